/** What survives a reload in this browser: unsent messages, the draft, the theme. Storage may be forbidden or full: then nothing is kept. */

/** @param {string} key @param {any} otherwise */
function read(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "null") ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** @param {string} key @param {any} value  null removes */
function write(key, value) {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, JSON.stringify(value));
  } catch {
    /* nothing is kept */
  }
}

/** The key of this sign-in: what the cookie is worth nothing without. Kept here because other ports of this host get the cookie too. */
export const loadKey = () => read("dragoman.key", "");
/** @param {string} key  empty forgets it */
export const saveKey = (key) => write("dragoman.key", key || null);
/** What every request that needs a sign-in carries. */
export const keyHeader = () => ({ "X-Dragoman-Key": loadKey() });
/** @param {string} owner @returns {any[]} */
export const loadOutbox = (owner) => read(`dragoman.outbox.${owner}`, []);
/** Only what is still on its way is kept. @param {string} owner @param {any[]} items */
export function saveOutbox(owner, items) {
  const unsent = items.filter((item) => item.state !== "accepted").map(({ shown, ...item }) => item);
  write(`dragoman.outbox.${owner}`, unsent.length ? unsent : null);
}
/** @param {string} owner @returns {string} */
export const loadDraft = (owner) => read(`dragoman.draft.${owner}`, "");
/** @param {string} owner @param {string} text */
export const saveDraft = (owner, text) => write(`dragoman.draft.${owner}`, text || null);

/** @param {string} owner */
export function clear(owner) {
  write(`dragoman.outbox.${owner}`, null);
  write(`dragoman.draft.${owner}`, null);
}

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
