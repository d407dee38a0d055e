/** Tree of sessions and sub-sessions, with the status of each. Pure; used by state.js. */

/** @typedef {import("./types.js").SessionLine} SessionLine */
/**
 * @typedef {object} Kin
 * @property {Map<string, SessionLine>} byId
 * @property {Map<string, SessionLine[]>} children  by parent, in the order they were spawned
 * @property {Map<string, SessionLine>} bySpawn  by the step that spawned it, `turn/n`
 * @property {Set<string>} live  those at work, and those that wait for one that is
 */

/** @param {SessionLine[]} lines @returns {Kin} */
export function kinOf(lines) {
  /** @type {Kin} */
  const kin = { byId: new Map(), children: new Map(), bySpawn: new Map(), live: new Set() };
  for (const line of lines) kin.byId.set(line.id, line);
  for (const line of [...lines].sort(byBirth)) {
    if (!line.lineage) continue;
    const { parent, turn, n } = line.lineage;
    kin.children.set(parent, [...(kin.children.get(parent) ?? []), line]);
    kin.bySpawn.set(`${turn}/${n}`, line);
  }
  for (const line of lines) if (line.running || line.queued || line.waiting) markLive(kin, line);
  return kin;
}

/** @param {SessionLine} a @param {SessionLine} b */
const byBirth = (a, b) =>
  Date.parse(a.created_at) - Date.parse(b.created_at) || (a.lineage?.n ?? 0) - (b.lineage?.n ?? 0);

/** Marks a session active, with the parents that wait for it (mode `run`). @param {Kin} kin @param {SessionLine} line */
function markLive(kin, line) {
  kin.live.add(line.id);
  const parent = line.lineage?.mode === "run" ? kin.byId.get(line.lineage.parent) : undefined;
  if (parent && !kin.live.has(parent.id)) markLive(kin, parent);
}

/** Returns all descendants of a session, each parent before its children. @param {Kin} kin @param {string} id @returns {SessionLine[]} */
export function below(kin, id) {
  return (kin.children.get(id) ?? []).flatMap((line) => [line, ...below(kin, line.id)]);
}

/** Returns the active descendants of a session. @param {Kin} kin @param {string} id */
export const liveBelow = (kin, id) => below(kin, id).filter((line) => kin.live.has(line.id));

/** Returns the number of waiting cards in a session and its descendants. @param {Kin} kin @param {SessionLine} line */
export const waitingIn = (kin, line) =>
  below(kin, line.id).reduce((sum, child) => sum + child.waiting, line.waiting);

/**
 * One line of the list: a session, or the fold with its ended children.
 * @typedef {{kind: "session", line: SessionLine, depth: number}} SessionItem
 * @typedef {{kind: "fold", parent: string, count: number, open: boolean, depth: number}} FoldItem
 */

/**
 * Returns the list as drawn: sessions in the given order, each followed by its active children and a fold for the others.
 * @param {Kin} kin @param {SessionLine[]} sorted @param {Set<string>} unfolded  parents whose fold is open
 * @param {string} current  always in the list
 * @returns {(SessionItem|FoldItem)[]}
 */
export function treeOf(kin, sorted, unfolded, current) {
  /** @type {(SessionItem|FoldItem)[]} */
  const out = [];
  const add = (/** @type {SessionLine} */ line, /** @type {number} */ depth) => {
    out.push({ kind: "session", line, depth });
    const children = kin.children.get(line.id) ?? [];
    const stays = (/** @type {SessionLine} */ one) =>
      [one, ...below(kin, one.id)].some((item) => kin.live.has(item.id) || item.id === current);
    for (const child of children) if (stays(child)) add(child, depth + 1);
    const ended = children.filter((child) => !stays(child));
    if (!ended.length) return;
    const open = unfolded.has(line.id);
    out.push({ kind: "fold", parent: line.id, count: ended.length, open, depth: depth + 1 });
    if (open) for (const child of ended) add(child, depth + 1);
  };
  for (const line of sorted) if (!line.lineage || !kin.byId.has(line.lineage.parent)) add(line, 0);
  return out;
}

const NAMED = 6;

/** Returns how the steps of an ended workflow ended: `3 done · 1 failed`. @param {import("./types.js").ChildRow["steps"]} steps */
export function endsLine(steps) {
  const states = [...new Set(steps.map((one) => one.state))];
  return states.map((state) => `${steps.filter((one) => one.state === state).length} ${state}`).join(" · ");
}

/**
 * Returns the running steps of a workflow, in one line with at most six names; empty for a single sub-session.
 * @param {import("./types.js").ChildRow["steps"]} steps
 */
export function stepsLine(steps) {
  const names = steps.filter((one) => one.state === "running").map((one) => one.name);
  const done = steps.filter((one) => one.state !== "running" && one.state !== "waiting").length;
  const more = names.length > NAMED ? ` and ${names.length - NAMED} more` : "";
  const run = names.length ? `: ${names.slice(0, NAMED).join(", ")}${more}` : "";
  const verb = names.length === 1 ? "runs" : "run";
  return steps.length ? `${names.length} of ${steps.length} steps ${verb}${run}${done ? ` · ${done} ended` : ""}` : "";
}

/** Word, icon and tone of a sub-session's status. @typedef {{word: string, icon: string, tone: string, ended: boolean}} Standing */

/** @type {Record<string, Standing>} */
const ENDS = {
  done: { word: "done", icon: "check", tone: "good", ended: true },
  failed: { word: "failed", icon: "cross", tone: "bad", ended: true },
  stopped: { word: "stopped", icon: "stop", tone: "dim", ended: true },
};
const ENDED = { word: "ended", icon: "check", tone: "dim", ended: true };
const QUEUED = { word: "queued", icon: "clock", tone: "dim", ended: false };
const RUNNING = { word: "running", icon: "none", tone: "busy", ended: false };
const DECISION = { word: "waits for a decision", icon: "clock", tone: "waits", ended: false };
const ANSWER = { ...DECISION, word: "waits for an answer" };
const ITS_OWN = { word: "waits for sub-sessions", icon: "clock", tone: "dim", ended: false };

/**
 * Returns the state of a sub-session from the best source: its parent's row, its own turn, or its line in the list.
 * @param {{line: SessionLine|null, live: boolean, told: import("./types.js").ChildRow|null, turn: any, waiting: number, questions: number}} known
 * `turn`: its last one, when its rows are here; `waiting`: open cards, of which so many are `questions`
 * @returns {Standing}
 */
export function standingOf({ line, live, told, turn, waiting, questions }) {
  if (told && told.state !== "open") return ENDS[told.outcome ?? "stopped"] ?? ENDED;
  if (told?.steps?.length) return RUNNING;
  if (turn && ENDS[turn.state]) return ENDS[turn.state];
  if (questions && questions === waiting) return ANSWER;
  if (waiting || (!turn && line?.waiting)) return DECISION;
  if (turn ? turn.state !== "queued" && turn.state !== "parked" : line?.running) return RUNNING;
  if (turn ? turn.state === "queued" : line ? line.queued : told) return QUEUED;
  return live || turn ? ITS_OWN : ENDED;
}
