/** Keyboard shortcuts outside input fields: single keys. Each also has a button, so all can be switched off. */
import { show, step, stop, tell } from "./actions.js";
import { drawerOpen, helpOpen, inspected, sessions, current, sessionState, shortcuts } from "./state.js";

/** For the help view: keys, what they do, and whether they are one-letter keys, in this order. @type {[string, string, boolean?][]} */
export const KEYS = [
  ["/", "write a command, with completion"],
  ["↑", "in an empty message: your last one"],
  ["j  k", "next and previous session", true],
  ["a", "to the oldest card that waits", true],
  ["1 – 4", "press that button of the card", true],
  [".", "stop what runs", true],
  ["i", "open or close the details of the last turn", true],
  ["?", "this help", true],
  ["Esc", "close, or leave the message"],
  ["Enter", "send"],
  ["Shift Enter", "new line"],
];

/** Actions of the conversation for the keyboard, set while it is shown. */
export const conversation = {
  /** Shows and focuses the oldest waiting card of the session. @returns {boolean} */
  toWaiting: () => false,
  /** @param {string} _start  put before what is written */
  focusComposer: (_start) => {},
};

/** Returns whether a key belongs to an input method. Safari reports the end of a composition before its Enter. @param {KeyboardEvent} event */
export const isComposing = (event) => event.isComposing || event.keyCode === 229;

/** @param {EventTarget|null} target */
const isField = (target) =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));

/** Goes to the oldest waiting card of this session, else of the first waiting session. */
export function goToWaiting() {
  if (conversation.toWaiting()) return;
  const other = sessions.value.find((/** @type {any} */ line) => line.waiting > 0 && line.id !== current.value);
  if (!other) return tell("Nothing waits for a decision.");
  show(other.id);
  wanted.session = other.id;
}

/** Session whose waiting card is shown as soon as its rows arrive. */
export const wanted = { session: "" };

/** Presses the n-th button of the card that has the focus. @param {number} n @param {Element|null} focus */
function pressNth(n, focus) {
  const card = focus?.closest("[data-testid=card]");
  const buttons = card?.querySelectorAll("[data-testid=card-button]");
  const button = buttons?.[n - 1];
  if (!(button instanceof HTMLElement)) return false;
  button.click();
  return true;
}

function toggleInspector() {
  if (inspected.value) return void (inspected.value = null);
  const turns = sessionState(current.value).store.list.filter((row) => row.type === "turn");
  inspected.value = turns[turns.length - 1]?.id ?? null;
}

/** @returns {boolean} whether something was closed */
function closeTop() {
  for (const open of [helpOpen, drawerOpen]) {
    if (!open.value) continue;
    open.value = false;
    return true;
  }
  if (!inspected.value) return false;
  inspected.value = null;
  return true;
}

/** @type {Record<string, (event: KeyboardEvent) => void>} */
const ACTIONS = {
  "/": () => conversation.focusComposer("/"),
  j: () => step(1),
  k: () => step(-1),
  a: goToWaiting,
  ".": stop,
  i: toggleInspector,
  "?": () => (helpOpen.value = true),
};

/** @param {KeyboardEvent} event */
export function onKey(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isComposing(event)) return;
  if (event.key === "Escape") return void (closeTop() && event.preventDefault());
  if (isField(event.target) || helpOpen.value || !shortcuts.value) return;
  if (/^[1-4]$/.test(event.key)) {
    if (pressNth(Number(event.key), document.activeElement)) event.preventDefault();
    return;
  }
  const action = ACTIONS[event.key];
  if (!action || (event.repeat && !"jk".includes(event.key))) return;
  event.preventDefault();
  action(event);
}
