/** Row store of one session: rows upserted by (type, id), in order of `ord`. Plain data between the wire and the views. */

/** @typedef {import("./types.js").Row} Row @typedef {import("./types.js").Entry} Entry @typedef {import("./types.js").StepRow} StepRow */
/**
 * @typedef {object} Store
 * @property {Map<string, Row>} byKey  by `type:id`
 * @property {Row[]} list  by `ord`, ascending
 * @property {number} rev  what `open` gives as `after`: every change up to it is here
 * @property {number} from  the lowest `ord` from which on every row is here; a change may bring one from before it
 * @property {boolean} more  the server has older rows
 * @property {boolean} removed  the server removed older rows
 * @property {boolean} loaded  at least one answer to `open` came
 */

/** @returns {Store} */
export function emptyStore() {
  return { byKey: new Map(), list: [], rev: 0, from: Infinity, more: false, removed: false, loaded: false };
}

/** @param {{type: string, id: string}} row */
export const keyOf = (row) => `${row.type}:${row.id}`;
/** @param {string|null} turn @param {number|null} n */
export const stepKey = (turn, n) => `${turn}/${n}`;

/**
 * Adds rows or replaces older versions of them. Idempotent; a row with a lower `rev` than the one held is ignored,
 * so frames may come twice and out of order.
 * @param {Store} store @param {Row[]} rows
 */
export function upsert(store, rows) {
  /** @type {Map<string, Row>} */
  const fresh = new Map();
  for (const row of rows) {
    const key = keyOf(row);
    const held = store.byKey.get(key);
    if (held && held.rev > row.rev) continue;
    store.byKey.set(key, row);
    if (held && !fresh.has(key)) store.list[indexOf(store.list, held)] = row;
    else fresh.set(key, row);
  }
  if (fresh.size === 0) return;
  const last = store.list[store.list.length - 1];
  store.list.push(...fresh.values());
  if (fresh.size > 1 || (last && last.ord > store.list[store.list.length - 1].ord))
    store.list.sort((a, b) => a.ord - b.ord);
}

/**
 * Applies a `rows` frame. Only a forward frame advances `rev`: a page of older rows may contain a change
 * whose neighbours have not arrived yet.
 * @param {Store} store @param {{rows: Row[], rev: number, more: boolean, older?: boolean, removed?: boolean}} frame @param {boolean} fresh  the answer to an open from nothing
 */
export function applyFrame(store, frame, fresh) {
  upsert(store, frame.rows);
  if (fresh || frame.older || store.from === Infinity)
    for (const row of frame.rows) store.from = Math.min(store.from, row.ord);
  if (frame.removed) store.removed = true;
  if (frame.older) {
    store.more = frame.more;
    return;
  }
  if (fresh) store.more = frame.more;
  store.loaded = true;
  for (const row of frame.rows) store.rev = Math.max(store.rev, row.rev);
  if (typeof frame.rev === "number") store.rev = Math.max(store.rev, frame.rev);
}

/**
 * Drops the oldest rows; they can be requested again.
 * @param {Store} store @param {number} keep
 */
export function trim(store, keep) {
  if (store.list.length <= keep) return;
  for (const row of store.list.splice(0, store.list.length - keep)) store.byKey.delete(keyOf(row));
  const first = store.list[0].ord;
  store.from = store.more ? Math.max(store.from, first) : first;
  store.more = true;
}

/** Returns the first index whose ord is not lower. @param {{ord: number}[]} list @param {number} ord */
export function lowerBound(list, ord) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (list[mid].ord < ord) low = mid + 1;
    else high = mid;
  }
  return low;
}

/** @param {Row[]} list @param {Row} row  one that is in the list */
function indexOf(list, row) {
  let i = lowerBound(list, row.ord);
  while (i < list.length && list[i] !== row) i += 1;
  return i;
}

/** Returns relations between rows: the last card and sub-session of each step, turns, the messages that began them. @param {Row[]} list */
function relate(list) {
  const approvals = new Map();
  const steps = new Map();
  const answers = new Map();
  const told = new Map();
  const turns = new Map();
  const ran = new Set();
  const began = new Map();
  for (const row of list) {
    if (row.type === "message" && !began.has(row.turn)) began.set(row.turn, row);
    if (row.type === "approval" || row.type === "question") approvals.set(stepKey(row.turn, row.n), row);
    else if (row.type === "turn") turns.set(row.id, row);
    else if (row.type === "step" && row.kind === "tool") {
      steps.set(stepKey(row.turn, row.n), row);
      if (row.result) ran.add(row.turn);
    } else if (row.type === "step") answers.set(stepKey(row.turn, row.n), row);
    else if (row.type === "child") told.set(stepKey(row.turn, row.n), row);
  }
  return { approvals, steps, turns, ran, answers, told, began };
}

/** @param {StepRow|null|undefined} step */
const hasRun = (step) => Boolean(step && (step.state === "started" || step.result));

/** Returns whether a step below a card in this state shows anything that the card does not. @param {StepRow|null|undefined} step @param {string} card @param {boolean} spawned */
const worthShowing = (step, card, spawned) => {
  if (step && spawned) return true;
  if (!step || !hasRun(step)) return false;
  return !step.result || ["approved", "consumed", "superseded"].includes(card);
};

/**
 * Returns the conversation's entries. A step with an approval is placed under its card; the answer of a command turn is
 * omitted when its step has a result; the last entry of a turn carries the turn when it has something to show.
 * A row before the loaded ones is held back until the rows between have arrived.
 * @param {Store} store @param {string[]} live  keys `turn/n` of answers that are being written
 * @returns {Entry[]}
 */
export function entriesOf(store, live = []) {
  const known = relate(store.list);
  /** @type {Entry[]} */
  const out = [];
  const writing = new Set(live);
  for (const row of store.more ? store.list.slice(lowerBound(store.list, store.from)) : store.list) {
    // A chat shows a partial answer as a slot; here the streamed text is longer.
    if (row.type === "slot" && row.n !== null && writing.has(stepKey(row.turn, row.n))) continue;
    const entry = entryOf(row, known);
    if (entry) out.push(entry);
  }
  out.sort((a, b) => a.ord - b.ord);
  for (const key of live) insertLive(out, store, key);
  return finish(out, known.turns);
}

/** @param {any} row @param {ReturnType<typeof relate>} known @returns {Entry|null} */
function entryOf(row, known) {
  const base = { key: keyOf(row), ord: row.ord, turn: row.turn ?? null, row };
  if (row.type === "message") {
    // The message that began a turn counts as given, although the store marks it later.
    return { ...base, kind: "message", waits: !row.given && known.began.get(row.turn) !== row };
  }
  if (row.type === "question") return { ...base, kind: "card", step: null };
  if (row.type === "approval") {
    const at = stepKey(row.turn, row.n);
    const step = known.approvals.get(at) === row ? known.steps.get(at) : null;
    const told = known.told.get(at);
    return { ...base, kind: "card", step: worthShowing(step, row.state, Boolean(told)) ? step : null, told };
  }
  if (row.type === "step" && row.kind === "tool") {
    const at = stepKey(row.turn, row.n);
    const shown = (hasRun(row) || known.told.has(at)) && !known.approvals.has(at);
    return shown ? { ...base, kind: "step", step: row, told: known.told.get(at) } : null;
  }
  if (row.type !== "slot" || !(row.text || row.audio)) return null;
  const repeats = row.kind === "answer" && known.turns.get(row.turn)?.kind === "command" && known.ran.has(row.turn);
  if (repeats) return null;
  // An answer's text is stored after its calls, but shown before them.
  const step = known.answers.get(stepKey(row.turn, row.n));
  return { ...base, kind: row.kind, ord: Math.min(row.ord, step?.ord ?? row.ord), step };
}

/** @param {Entry[]} out @param {Store} store @param {string} key */
function insertLive(out, store, key) {
  const [turn, n] = [key.slice(0, key.lastIndexOf("/")), Number(key.slice(key.lastIndexOf("/") + 1))];
  const step = store.list.findLast((row) => row.type === "step" && row.turn === turn && row.n === n);
  const ord = step ? step.ord : Infinity;
  /** @type {Entry} */
  const entry = { key: `live:${key}`, ord, kind: "live", turn, row: { turn, n } };
  out.splice(lowerBound(out, ord), 0, entry);
}

/** Marks the first entry of a turn's run (it gets a heading) and the last entry of each ended turn. @param {Entry[]} out @param {Map<string, any>} turns */
function finish(out, turns) {
  const last = new Map();
  /** @type {Entry|null} */
  let before = null;
  for (const entry of out) {
    entry.head = !before || before.turn !== entry.turn || before.kind === "message";
    // A spoken answer follows its text, whose figures are those of the turn.
    if (entry.turn && entry.kind !== "file") last.set(entry.turn, entry);
    before = entry;
  }
  for (const [id, entry] of last) {
    const turn = turns.get(id);
    if (turn && ["done", "stopped", "failed"].includes(turn.state)) entry.foot = turn;
  }
  return out;
}

/**
 * Returns the text with a delta at an offset in code points, as the server counts. Known text is skipped; a gap becomes "…".
 * Offset 0 restarts the text: another model took over, or a call runs again.
 * @param {{text: string, next: number}} held @param {number} start @param {string} text
 * @returns {{text: string, next: number}} `text` is everything so far
 */
export function appendDelta(held, start, text) {
  const points = Array.from(text);
  if (start === 0 && held.next > 0) return { text, next: points.length };
  if (start + points.length <= held.next) return held;
  if (start > held.next) return { text: `${held.text}…${text}`, next: start + points.length };
  const fresh = start < held.next ? points.slice(held.next - start).join("") : text;
  return { text: held.text + fresh, next: start + points.length };
}
