/** State changes from frames and from the person's actions, and notices (`tell`). Views call only these functions, never the wire. */
import { batch } from "./html.js";
import { Following } from "./follow.js";
import { plural } from "./format.js";
import { below } from "./session_tree.js";
import { Wire } from "./wire.js";
import * as storage from "./storage.js";
import {
  added,
  assertive,
  auth,
  commands,
  connection,
  current,
  drawerOpen,
  forgetSessions,
  inspected,
  isBehind,
  kin,
  me,
  outbox,
  polite,
  presses,
  sessions,
  sessionState,
  sessionTree,
  shortcuts,
  signIn,
  toast,
  unfolded,
  uploadLimits,
} from "./state.js";

/** Time in ms after which an unconfirmed press is not sent again: the person may have changed their mind. */
const PRESS_LIFE = 60_000;
/** Bytes of a message on the wire, at most. The server closes the connection at 1 MiB, and the message would be retried for ever. */
const MESSAGE_AT_MOST = 1_000_000;
/** Time in ms that an accepted message without a row (a control command has none) stays on the page. */
const LINGER = 1500;

const wire = new Wire(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`, {
  frame: (frame) => batch(() => handlers[/** @type {keyof typeof handlers} */ (frame.op)]?.(frame)),
  state: (state, retryAt) => {
    connection.value = { state, retryAt };
    if (state === "open") uploads?.resume();
  },
  mayConnect: async () => {
    const answer = await whoAmI();
    if (answer?.status !== 401) return true;
    signedOut("Your sign-in has ended.");
    return false;
  },
});

const following = new Following((frame) => wire.send(frame));

/** Asks the server whether this browser is signed in. Returns null if no answer comes. */
const whoAmI = () =>
  fetch("/api/me", { headers: storage.keyHeader(), signal: AbortSignal.timeout(10_000) }).catch(() => null);

/** Checks the sign-in and connects. A code in the address is used and erased first. */
export async function boot() {
  const code = takeCode();
  if (code) return redeem(code);
  const answer = await whoAmI();
  if (!answer) return void (auth.value = "unreachable");
  if (answer.status === 401) return void (auth.value = "out");
  if (!answer.ok) return void (auth.value = "unreachable");
  signedIn();
}

/** Removes the code of a sign-in link from the address bar and the history, and returns it. */
export function takeCode() {
  const match = /^#code=(.+)$/.exec(location.hash);
  if (!match) return "";
  history.replaceState(null, "", location.pathname + location.search);
  return match[1];
}

/** Signs in with a single-use code. @param {string} code */
export async function redeem(code) {
  batch(() => {
    auth.value = "out";
    signIn.value = { busy: true, error: "" };
  });
  document.documentElement.toggleAttribute("data-signing-in", true); // stale.js waits
  try {
    await exchange(code);
  } finally {
    document.documentElement.toggleAttribute("data-signing-in", false);
  }
}

/** @param {string} code */
async function exchange(code) {
  const answer = await fetch("/api/signin", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ code }),
  }).catch(() => null);
  if (answer?.ok) {
    storage.saveKey((await answer.json()).key);
    signIn.value = { busy: false, error: "" };
    return signedIn();
  }
  // Reopening a used link, from the history or a chat, must not end the sign-in that it created.
  const still = Boolean((await whoAmI())?.ok);
  signIn.value = { busy: false, error: still ? "" : await signInError(answer) };
  if (!still) return;
  signedIn();
  tell("The link did not work. You are signed in as before.");
}

/** @param {Response|null} answer */
async function signInError(answer) {
  if (!answer) return "The server did not answer. Check that Dragoman runs, then use the same link again.";
  const body = await answer.json().catch(() => ({}));
  return body.error?.replaceAll("`", "") ?? "This link did not work. Run dragoman link again for a new one.";
}

function signedIn() {
  wire.end();
  batch(() => {
    auth.value = "in";
    connection.value = { state: "connecting", retryAt: 0 };
  });
  wire.up();
}

/** Drops the previous owner's unsent messages and presses after another sign-in. The storage keeps them for their author. */
function forgetPerson() {
  forgetSessions();
  following.forget();
  uploads?.forget();
  outbox.value = [];
  presses.value = {};
  inspected.value = null;
}

/** @param {string} error */
function signedOut(error) {
  wire.end();
  forgetSessions();
  following.forget();
  batch(() => {
    auth.value = "out";
    signIn.value = { busy: false, error };
    sessions.value = [];
    current.value = "";
    inspected.value = null;
  });
}

/** Ends the sign-in here, and deletes its data in this browser. */
export async function signOut() {
  const answer = await fetch("/api/signout", { method: "POST", headers: storage.keyHeader() }).catch(() => null);
  if (!answer?.ok && answer?.status !== 401) return tell("Not signed out: the server did not answer. Try again.");
  storage.clear(me.value.owner);
  storage.saveKey("");
  uploads?.forget();
  outbox.value = [];
  signedOut("");
}

/** Reconnects without waiting. */
export const retryNow = () => wire.retryNow();

/** Checks the connection after the page was hidden. */
export function wake() {
  if (auth.value !== "in" || !current.value) return;
  const state = sessionState(current.value);
  if (!state.store.loaded) return retryNow();
  wire.check(following.ask(state));
}

/** Time in ms for which a notice is shown. */
const NOTICE_MS = 5000;
let toastTimer = 0;
/** Shows a notice. @param {string} text */
export function tell(text) {
  toast.value = text;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => (toast.value = ""), NOTICE_MS);
}

// ---- frames ---------------------------------------------------------------------------------------------------------

const handlers = {
  /** @param {any} frame */
  welcome(frame) {
    // The store was restored from a backup: some shown rows no longer exist, and new ones have lower revisions.
    if (frame.sessions.some(isBehind)) return location.reload();
    const { owner, main, model, version, currency, warning } = frame;
    if (me.value.owner && me.value.owner !== owner) forgetPerson();
    if (warning && warning !== me.value.warning) tell(warning);
    me.value = { owner, main, model, version, currency, warning };
    uploadLimits.value = frame.uploads;
    if (!added.value.length && storage.loadFiles(owner).length) withUploads().then((found) => found.restore());
    commands.value = frame.commands.map((/** @type {any} */ item) => ({ ...item, name: item.name.replace(/^\//, "") }));
    sessions.value = frame.sessions;
    const known = frame.sessions.some((/** @type {any} */ line) => line.id === current.value);
    if (!current.value || !known) current.value = frame.main;
    following.reset();
    resend();
  },
  /** @param {any} frame */
  lines(frame) {
    const lines = new Map(sessions.value.map((/** @type {any} */ line) => [line.id, line]));
    for (const id of frame.gone) lines.delete(id);
    for (const line of frame.sessions) lines.set(line.id, line);
    sessions.value = [...lines.values()];
    following.fit();
  },
  /** @param {any} frame */
  rows(frame) {
    const state = sessionState(frame.session);
    const before = state.store.rev;
    const fresh = !state.store.loaded;
    const resuming = state.resuming && !frame.older;
    // A sub-session is opened when it begins, and may have open approvals by then.
    if ((!fresh || kin.value.byId.get(frame.session)?.lineage) && !frame.older) announce(state, frame.rows);
    state.take(frame, !readingUp.has(frame.session));
    if (!frame.older) state.resuming = false;
    if (resuming && frame.more && frame.rows.length > 0 && state.store.rev > before) following.open(frame.session);
    if (frame.session === me.value.main) settleOutbox(frame.rows);
    following.fit();
  },
  /** @param {any} frame */
  delta(frame) {
    sessionState(frame.session).takeDelta(frame);
  },
  /** @param {any} frame */
  output(frame) {
    sessionState(frame.session).takeOutput(frame);
  },
  /** @param {any} frame */
  said(frame) {
    const pending = outbox.value.find((/** @type {any} */ item) => item.id === frame.id);
    if (!pending) return;
    if (!frame.ok) return changePending(frame.id, { state: "failed", error: frame.error ?? "Not accepted." });
    if (pending.state === "sending") changePending(frame.id, { state: "accepted" });
    setTimeout(() => dropPending(frame.id), LINGER);
  },
  /** @param {any} frame */
  pressed(frame) {
    for (const [handle, press] of Object.entries(presses.value)) {
      if (press.id !== frame.id) continue;
      presses.value = {
        ...presses.value,
        [handle]: { ...press, state: "answered", result: frame.result, text: frame.text },
      };
      speak(polite, frame.text ?? "");
    }
  },
  /** @param {any} frame */
  error(frame) {
    tell(frame.text);
  },
};

/** Sessions scrolled up from their end: no rows are removed there. @type {Set<string>} */
export const readingUp = new Set();

/** Announces a text to screen readers. They notice only changes: a repeated text differs by a space. @param {{value: string}} region @param {string} text */
const speak = (region, text) => void (region.value = region.value === text ? `${text}\u00a0` : text);

/** @param {import("./state.js").SessionState} state @param {any[]} rows */
function announce(state, rows) {
  const here = state.id === current.value;
  if (!here && !below(kin.value, current.value).some((line) => line.id === state.id)) return;
  for (const row of rows) {
    const known = state.store.byKey.get(`${row.type}:${row.id}`);
    if (row.type === "approval" && row.state === "open" && !known) {
      speak(assertive, `Waits for your decision: ${row.risk}, ${row.title}.${shortcuts.value ? " Press a to go there." : ""}`);
    }
    if (row.type === "question" && !known) speak(assertive, `Question: ${row.question}`);
    if (here && row.type === "slot" && !known) speak(polite, `Dragoman: ${row.text.slice(0, 400)}`);
  }
}

// ---- the person's actions -----------------------------------------------------------------------------------------

/** Shows a session. The main one stays live, others only while they, or one above them, are shown. @param {string} id */
export function show(id) {
  const before = current.value;
  batch(() => {
    drawerOpen.value = false;
    if (id === before) return;
    current.value = id;
    inspected.value = null;
  });
  following.fit();
}

/** Loads the rows of a session that has ended, unless they are here. @param {string} id */
export const glance = (id) => following.glance(id);

/** Shows or hides the sub-sessions of a session that have ended, in the list. @param {string} parent */
export function fold(parent) {
  const next = new Set(unfolded.value);
  if (!next.delete(parent)) next.add(parent);
  unfolded.value = next;
}

/** Switches one-letter keys on or off, in this browser. @param {boolean} on */
export function switchShortcuts(on) {
  shortcuts.value = on;
  storage.saveShortcuts(on);
}

/** @param {1|-1} by */
export function step(by) {
  const ids = sessionTree.value.flatMap((item) => (item.kind === "session" ? [item.line.id] : []));
  const next = ids[ids.indexOf(current.value) + by];
  if (next) show(next);
}

/** Requests the rows before the oldest contiguous one. @param {string} id @returns {boolean} whether it was asked */
export function loadOlder(id) {
  const state = sessionState(id);
  if (!state.store.list.length || !state.store.more || state.loadingOlder.value) return false;
  state.loadingOlder.value = wire.send({ op: "older", session: id, before: state.store.from });
  return state.loadingOlder.value;
}

/** The module of uploads, loaded when it is first needed: the page itself stays small. @type {typeof import("./uploads.js")|null} */
let uploads = null;
const withUploads = async () => (uploads ??= await import("./uploads.js"));

/** Returns the files of a message that is sent now. */
export const takeFiles = () => uploads?.takeAll() ?? [];

/** Adds files to the message that is being written. @param {File[]} files */
export async function addFiles(files) {
  const found = await withUploads().catch(() => null);
  if (!found) return tell("Files cannot be added now. Reload the page.");
  const refused = found.add(files, uuid);
  if (refused) tell(refused);
  speak(polite, refused || `${plural(files.length, "file")} added.`);
}

/**
 * Sends a message to the main session; retries with the same id until the server confirms it.
 * @param {string} text @param {{id: string, name: string, size: number}[]} [files]
 */
export function say(text, files = []) {
  const pending = {
    id: uuid(),
    text,
    files,
    at: new Date().toISOString(),
    state: "sending",
    rev: sessionState(me.value.main).store.rev,
  };
  outbox.value = [...outbox.value, pending];
  storage.saveOutbox(me.value.owner, outbox.value);
  post(pending);
}

/** Sends a message, unless it is too long for the server. @param {import("./types.js").Pending} item */
function post(item) {
  const frame = { op: "say", id: item.id, text: item.text, files: (item.files ?? []).map((one) => one.id) };
  if (new Blob([JSON.stringify(frame)]).size < MESSAGE_AT_MOST) return wire.check(frame);
  changePending(item.id, { state: "failed", error: "It is too long for one message. Send it in parts." });
}

/** Takes a message that was not sent back to the composer, with its files. @param {import("./types.js").Pending} item */
export function takeBack(item) {
  const files = item.files ?? [];
  if (files.length) withUploads().then((found) => found.giveBack(files));
  dropPending(item.id);
}

/** @param {string} id */
export function dropPending(id) {
  outbox.value = outbox.value.filter((/** @type {any} */ item) => item.id !== id);
  storage.saveOutbox(me.value.owner, outbox.value, id);
}

/** @param {string} id @param {object} change */
function changePending(id, change) {
  outbox.value = outbox.value.map((/** @type {any} */ item) => (item.id === id ? { ...item, ...change } : item));
  storage.saveOutbox(me.value.owner, outbox.value);
}

/** Removes pending messages whose rows have arrived. @param {any[]} rows */
function settleOutbox(rows) {
  for (const row of rows) {
    if (row.type !== "message" || row.channel !== "web") continue;
    const match = outbox.value.find(
      (/** @type {any} */ item) =>
        item.state !== "failed" && (item.id === row.id || (item.text === row.text && row.rev > (item.rev ?? 0))),
    );
    if (match?.state === "accepted") dropPending(match.id);
    else if (match) changePending(match.id, { shown: true });
  }
}

/** Sends everything unconfirmed again after a reconnect. */
function resend() {
  const stored = storage.loadOutbox(me.value.owner);
  const known = new Set(outbox.value.map((/** @type {any} */ item) => item.id));
  outbox.value = [...stored.filter((/** @type {any} */ item) => !known.has(item.id)), ...outbox.value];
  for (const item of outbox.value) if (item.state === "sending") post(item);
  for (const [handle, press] of Object.entries(presses.value)) {
    if (press.state !== "sending") continue;
    if (Date.now() - press.at < PRESS_LIFE) wire.check({ op: "press", id: press.id, handle, reason: press.reason });
    else
      presses.value = {
        ...presses.value,
        [handle]: {
          ...press,
          state: "answered",
          result: "unsent",
          text: "Not sent: the connection was away too long. Press again.",
        },
      };
  }
}

/** Presses a button of a card. @param {string} handle @param {string|null} reason */
export function press(handle, reason) {
  const frame = { op: "press", id: uuid(), handle, reason };
  const card = `${handle.split(".")[0]}.`;
  const others = Object.entries(presses.value).filter(([one, { state }]) => state === "sending" || !one.startsWith(card));
  presses.value = { ...Object.fromEntries(others), [handle]: { id: frame.id, at: Date.now(), reason, state: "sending", text: "" } };
  wire.check(frame);
}

/** Stops the running turn of the main session. */
export function stop() {
  if (current.value !== me.value.main) return tell("Stop works in your main session. Go back to main first.");
  say("/stop");
}

/** A random UUID; `crypto.randomUUID` exists only on secure origins. */
function uuid() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
