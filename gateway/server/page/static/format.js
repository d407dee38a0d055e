/** Formatting for people: times, durations, sizes, names. Pure. Chats have theirs in gateway/system/figures.py. */

const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** @param {string} iso */
export const exactTime = (iso) => EXACT.format(new Date(iso));
/** @param {string} iso */
export const clockTime = (iso) => TIME.format(new Date(iso));

/** "now", "3 min", "12:03", "Mon 12:03"…: as short as possible. @param {string} iso @param {number} now  ms */
export function relativeTime(iso, now) {
  const then = Date.parse(iso);
  const seconds = (now - then) / 1000;
  if (seconds < 45) return "now";
  return seconds < 3600 ? `${Math.max(1, Math.round(seconds / 60))} min` : dayTime(iso, now);
}

/** "12:03", "Mon 12:03", "3 Dec": a time before or after now, with its day unless it is today. @param {string} iso @param {number} now  ms */
export function dayTime(iso, now) {
  const then = new Date(iso);
  if (new Date(now).toDateString() === then.toDateString()) return TIME.format(then);
  return Math.abs(now - then.getTime()) < 6 * 86400_000
    ? `${then.toLocaleDateString(undefined, { weekday: "short" })} ${TIME.format(then)}`
    : DAY.format(then);
}

/** @param {number|null|undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "";
  if (ms < 950) return `${Math.round(ms)} ms`;
  if (ms < 59_500) return `${(ms / 1000).toFixed(ms < 9950 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.round((ms % 60_000) / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Matches a text whose first letter is right-to-left. */
const FROM_THE_RIGHT = /^\P{L}*[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Nko}\p{Script=Syriac}\p{Script=Thaana}]/u;
/** Returns `dir` for a person's text. `auto` gives the same, but takes seconds for a pasted megabyte. @param {string} text */
export const direction = (text) => (FROM_THE_RIGHT.test(text) ? "rtl" : "ltr");

/** Terminal escape sequences for colours, titles and the cursor. */
const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])/g;
/** @param {string} text  what a program printed */
export const withoutEscapes = (text) => text.replace(ESCAPES, "");

/** "12 min", "40 s": the time left of a wait. @param {number} ms */
export function left(ms) {
  if (ms <= 0) return "now";
  if (ms < 90_000) return `in ${Math.ceil(ms / 1000)} s`;
  if (ms < 90 * 60_000) return `in ${Math.round(ms / 60_000)} min`;
  return `in ${Math.round(ms / 3_600_000)} h`;
}

/** @param {number} count */
export function bytes(count) {
  if (count < 1000) return `${count} B`;
  return count < 1_000_000
    ? `${(count / 1000).toFixed(count < 10_000 ? 1 : 0)} kB`
    : `${(count / 1_000_000).toFixed(1)} MB`;
}

/** @param {number} count @param {string} one @param {string} [many] */
export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

/** @param {string|null|undefined} a @param {string|null|undefined} b */
export const between = (a, b) => (a && b ? Date.parse(b) - Date.parse(a) : null);

/** Returns the most telling part of a call's arguments, on one line. @param {string|undefined} text  JSON */
export function summary(text) {
  const value = parsed(text);
  if (!value || typeof value !== "object") return text ?? "";
  for (const name of ["command", "url", "path", "query", "task", "text"]) {
    if (typeof value[name] === "string") return value[name].split("\n")[0];
  }
  const first = firstText(value);
  return first ? first.split("\n")[0] : Object.keys(value).length ? JSON.stringify(value) : "";
}

/** Returns the first text in a value, also in what it holds. @param {any} value @param {number} [depth] @returns {string} */
function firstText(value, depth = 4) {
  if (typeof value === "string") return value;
  if (!value || typeof value !== "object" || !depth) return "";
  const all = Object.values(value);
  return all.find((item) => typeof item === "string") ?? firstText(all.find(Boolean), depth - 1);
}

/** @param {string|undefined} text  JSON, or what a model meant to be JSON */
export function pretty(text) {
  const value = parsed(text);
  return value === undefined ? (text ?? "") : JSON.stringify(value, null, 2);
}

/** @param {string|undefined} text @returns {any} */
function parsed(text) {
  try {
    return JSON.parse(text ?? "");
  } catch {
    return undefined;
  }
}

const CHANNELS = { web: "web", telegram: "Telegram", slack: "Slack", terminal: "terminal", child: "its parent" };
/** @param {string} name */
export const channelName = (name) => CHANNELS[/** @type {keyof typeof CHANNELS} */ (name)] ?? name;
