/** Browser storage for unsent messages, the draft and the theme. If storage is forbidden or full, nothing is stored. */

/** @param {string} key @param {any} otherwise @param {"localStorage"|"sessionStorage"} [place] */
function read(key, otherwise, place = "localStorage") {
  try {
    return JSON.parse(window[place].getItem(key) ?? "null") ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** @param {string} key @param {any} value  null removes @param {"localStorage"|"sessionStorage"} [place] @returns {boolean} whether it is kept */
function write(key, value, place = "localStorage") {
  try {
    if (value === null) window[place].removeItem(key);
    else window[place].setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

/** The sign-in key without storage: it lasts as long as the page. */
let unkept = "";
/** Key of this sign-in; the cookie alone is not sufficient. Stored here because other ports of this host receive the cookie too. */
export const loadKey = () => unkept || read("dragoman.key", "");
/** @param {string} key  empty forgets it */
export const saveKey = (key) => void (unkept = write("dragoman.key", key || null) ? "" : key);
/** Returns the headers of every signed-in request. */
export const keyHeader = () => ({ "X-Dragoman-Key": loadKey() });
/** @param {string} owner @returns {any[]} */
export const loadOutbox = (owner) => read(`dragoman.outbox.${owner}`, []);
/**
 * Stores only pending messages, next to those of other tabs.
 * @param {string} owner @param {any[]} items  this tab's @param {string} [gone]  id of one that is none any more
 */
export function saveOutbox(owner, items, gone) {
  const mine = new Set([...items.map((item) => item.id), gone]);
  const others = loadOutbox(owner).filter((item) => !mine.has(item.id));
  const unsent = items.filter((item) => item.state !== "accepted").map(({ shown, ...item }) => item);
  const all = [...others, ...unsent];
  write(`dragoman.outbox.${owner}`, all.length ? all : null);
}
/** Returns this tab's draft; a tab without one starts with the most recent of all. @param {string} owner @returns {string} */
export const loadDraft = (owner) =>
  read(`dragoman.draft.${owner}`, null, "sessionStorage") ?? read(`dragoman.draft.${owner}`, "");
/** @param {string} owner @param {string} text */
export function saveDraft(owner, text) {
  write(`dragoman.draft.${owner}`, text, "sessionStorage");
  write(`dragoman.draft.${owner}`, text || null);
}

/** Returns the uploads of this tab's draft. @param {string} owner @returns {any[]} */
export const loadFiles = (owner) => read(`dragoman.files.${owner}`, [], "sessionStorage");
/** @param {string} owner @param {any[]} files */
export const saveFiles = (owner, files) => void write(`dragoman.files.${owner}`, files.length ? files : null, "sessionStorage");

/** @param {string} owner */
export function clear(owner) {
  write(`dragoman.outbox.${owner}`, null);
  write(`dragoman.draft.${owner}`, null);
  saveFiles(owner, []);
  write(`dragoman.draft.${owner}`, null, "sessionStorage");
}

/** Returns whether one-letter keys are on; they are until switched off in this browser. @returns {boolean} */
export const loadShortcuts = () => read("dragoman.shortcuts", true) !== false;
/** @param {boolean} on */
export const saveShortcuts = (on) => void write("dragoman.shortcuts", on ? null : false);

/** @returns {"system"|"light"|"dark"} */
export function theme() {
  const choice = document.documentElement.dataset.theme;
  return choice === "light" || choice === "dark" ? choice : "system";
}

/** @param {"system"|"light"|"dark"} choice */
export function setTheme(choice) {
  try {
    if (choice === "system") localStorage.removeItem("dragoman.theme");
    else localStorage.setItem("dragoman.theme", choice);
  } catch {
    /* it holds until the page is closed */
  }
  if (choice === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
}
