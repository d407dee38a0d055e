/** The page's state as signals: sign-in, connection, sessions and their rows. Changed by actions.js, read by views. */
import { batch, computed, signal } from "./html.js";
import { loadShortcuts } from "./storage.js";
import { below, kinOf, treeOf, waitingIn } from "./session_tree.js";
import { applyFrame, appendDelta, emptyStore, entriesOf, stepKey, trim } from "./rows.js";

/** @typedef {import("./types.js").Entry} Entry */

/** @type {import("./vendor/signals-core.js").Signal<"checking"|"out"|"in"|"unreachable">} */
export const auth = signal("checking");
/** State of the sign-in view: text for the person, and whether a code is being checked. */
export const signIn = signal({ busy: false, error: "" });
/** @type {any} `connecting` (first time), `open`, `offline`; `retryAt` in ms when the next attempt is due */
export const connection = signal({ state: "connecting", retryAt: 0 });
export const me = signal({ owner: "", main: "", model: "", version: "", currency: "USD", warning: "" });
/** @type {any} {@link import("./types.js").Command}[] */
export const commands = signal([]);
/** @type {any} {@link import("./types.js").SessionLine}[] as the server sent them */
export const sessions = signal([]);
/** @type {any} id of the session that is shown */
export const current = signal("");
/** @type {any} Set of ids: sessions whose ended sub-sessions are in the list */
export const unfolded = signal(new Set());
/** @type {any} id of the turn in the inspector, or null */
export const inspected = signal(null);
export const drawerOpen = signal(false);
export const helpOpen = signal(false);
/** True if one-letter keys are on in this browser. */
export const shortcuts = signal(loadShortcuts());
/** @type {any} {@link import("./types.js").Pending}[] messages that have no row yet */
export const outbox = signal([]);
/** Files of the message that is being written; `uploads.js` changes them. @type {{value: import("./types.js").Added[]}} */
export const added = signal([]);
/** Limits of files, as the server named them. */
export const uploadLimits = signal({ files: 0, file: 0, message: 0 });
/** @type {any} by handle: a pending press, or the server's answer */
export const presses = signal({});
/** Notice for the person that disappears by itself. */
export const toast = signal("");
/** Announcements to screen readers: answers politely, cards at once. */
export const polite = signal("");
export const assertive = signal("");
/** ms; ticks each second while something counts down, each 20 s otherwise. */
export const now = signal(Date.now());

export const wide = signal(matchMedia("(min-width: 900px)").matches);
matchMedia("(min-width: 900px)").addEventListener("change", (event) => {
  wide.value = event.matches;
});

/** Rows held of a session shown at its end; more are held while the person reads further up. */
const KEEP = 3000;
/** Characters of live output held on the page; the result's link has all. */
const LIVE_LIMIT = 60_000;

/**
 * Rows and streams of one session.
 */
export class SessionState {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.store = emptyStore();
    this.version = signal(0);
    this.loadingOlder = signal(false);
    /** True while an `open` is unanswered that asked for everything new since `rev`. */
    this.resuming = false;
    /** @type {Map<string, any>} answers being written, by `turn/n`: signals of {text, next} */
    this.live = new Map();
    this.liveKeys = signal(/** @type {string[]} */ ([]));
    /** @type {Map<string, any>} output of running calls, by `turn/n` */
    this.outputs = new Map();
    this.entries = computed(() => {
      this.version.value;
      return entriesOf(this.store, this.liveKeys.value);
    });
    /** Open approvals, oldest first. */
    this.waiting = computed(() =>
      this.entries.value.filter((entry) => entry.kind === "card" && entry.row.state === "open"),
    );
    /** All approvals and questions, oldest first. */
    this.asked = computed(() => {
      this.version.value;
      return this.store.list.filter((row) => row.type === "approval" || row.type === "question");
    });
    /** Turns that have not ended. */
    this.active = computed(() => {
      this.version.value;
      return this.store.list.filter((row) => row.type === "turn" && !["done", "stopped", "failed"].includes(row.state));
    });
  }

  /** @param {any} frame @param {boolean} atEnd  nobody reads further up: old rows may go */
  take(frame, atEnd) {
    batch(() => {
      applyFrame(this.store, frame, !this.resuming && !this.store.loaded);
      if (frame.older) this.loadingOlder.value = false;
      // Older rows were requested: for a card, or because the person scrolls up.
      const asked = frame.older || this.loadingOlder.value;
      if (atEnd && !asked && this.store.list.length > KEEP * 1.3) trim(this.store, KEEP);
      for (const row of frame.rows) this.settle(row);
      this.version.value += 1;
    });
  }

  /** Drops the stream that a row replaces. @param {any} row */
  settle(row) {
    if (row.type === "step" && row.kind === "model") this.dropLive(stepKey(row.turn, row.n));
    if (row.type === "step" && row.kind === "tool" && row.result) this.outputs.delete(stepKey(row.turn, row.n));
    if (row.type === "turn" && ["parked", "done", "stopped", "failed"].includes(row.state)) {
      for (const key of [...this.live.keys()]) if (key.startsWith(`${row.id}/`)) this.dropLive(key);
    }
  }

  /** @param {string} key */
  dropLive(key) {
    if (this.live.delete(key)) this.liveKeys.value = [...this.live.keys()];
  }

  /** @param {any} frame */
  takeDelta(frame) {
    const key = stepKey(frame.turn, frame.n);
    if (this.hasAnswer(frame)) return;
    const held = this.live.get(key);
    if (held) held.value = appendDelta(held.value, frame.start, frame.text);
    else {
      this.live.set(key, signal(appendDelta({ text: "", next: 0 }, frame.start, frame.text)));
      this.liveKeys.value = [...this.live.keys()];
    }
  }

  /** True for a delta that comes after the row it belongs to. @param {any} frame */
  hasAnswer(frame) {
    const turn = this.store.byKey.get(`turn:${frame.turn}`);
    if (turn && turn.type === "turn" && ["done", "stopped", "failed"].includes(turn.state)) return true;
    return this.store.byKey.has(`step:${stepKey(frame.turn, frame.n)}`);
  }

  /** @param {any} frame */
  takeOutput(frame) {
    const held = this.outputOf(frame.turn, frame.n);
    const grown = appendDelta(held.value, frame.start, frame.text);
    const text = grown.text.length > LIVE_LIMIT ? `…${grown.text.slice(-LIVE_LIMIT / 2)}` : grown.text;
    held.value = { text, next: grown.next };
  }

  /** @param {string} turn @param {number} n */
  outputOf(turn, n) {
    const key = stepKey(turn, n);
    if (!this.outputs.has(key)) this.outputs.set(key, signal({ text: "", next: 0 }));
    return this.outputs.get(key);
  }
}

/** @type {Map<string, SessionState>} */
const opened = new Map();

/** The state of a session, made when it is first asked for. @param {string} id */
export function sessionState(id) {
  let state = opened.get(id);
  if (!state) opened.set(id, (state = new SessionState(id)));
  return state;
}

/** Returns whether the rows here are newer than the session's line. @param {any} line */
export const isBehind = (line) => (opened.get(line.id)?.store.rev ?? 0) > line.rev;

/** Clears all state of a sign-in. */
export function forgetSessions() {
  opened.clear();
}

/** Tree of sessions. */
export const kin = computed(() => kinOf(sessions.value));
/** The list as it is drawn. Main first, then what waits, then by last activity; sub-sessions below their parents. */
export const sessionTree = computed(() => {
  const waits = (/** @type {any} */ line) => Number(waitingIn(kin.value, line) > 0);
  const sorted = [...sessions.value].sort(
    (a, b) =>
      Number(b.id === me.value.main) - Number(a.id === me.value.main) ||
      waits(b) - waits(a) ||
      Date.parse(b.active_at) - Date.parse(a.active_at),
  );
  return treeOf(kin.value, sorted, unfolded.value, current.value);
});
export const waitingTotal = computed(() => sessions.value.reduce((sum, line) => sum + line.waiting, 0));
/** Open cards of the sub-sessions of the session that is shown, oldest first: `{row, session}`. */
export const waitingBelow = computed(() =>
  below(kin.value, current.value)
    .flatMap((line) =>
      sessionState(line.id)
        .asked.value.filter((row) => row.state === "open")
        .map((row) => ({ row, session: line.id })),
    )
    .sort((a, b) => Date.parse(a.row.opened_at) - Date.parse(b.row.opened_at)),
);
/** The line of the session that is shown. */
export const currentLine = computed(() => sessions.value.find((line) => line.id === current.value) ?? null);
