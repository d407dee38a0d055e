/** Sub-session inside its parent: status, activity and approvals. */
import { glance, show } from "../actions.js";
import { costs, sumOf } from "../figures.js";
import { direction, duration, summary } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { endsLine, standingOf, stepsLine } from "../session_tree.js";
import { kin, me, now, sessionState } from "../state.js";
import { Ask } from "./card.js";
import { Icon } from "./icons.js";
import { Markdown } from "./components.js";

/** @typedef {import("../types.js").StepRow} StepRow @typedef {import("../types.js").ChildRow} ChildRow */
/** @typedef {import("../types.js").SessionLine} SessionLine */

/** Returns the line of the sub-session that a step spawned; null for other steps. @param {StepRow} step */
export const spawnedBy = (step) => kin.value.bySpawn.get(`${step.turn}/${step.n}`) ?? null;

/** Returns the known facts of a sub-session. @param {SessionLine|null} line @param {ChildRow|null} told */
function factsOf(line, told) {
  const state = line && sessionState(line.id);
  state?.version.value;
  /** @type {any[]} */
  const rows = state?.store.list ?? [];
  const asked = state?.asked.value ?? [];
  const turn = rows.findLast((row) => row.type === "turn") ?? null;
  const open = asked.filter((row) => row.state === "open");
  const [waiting, questions] = [open.length, open.filter((row) => row.type === "question").length];
  const live = Boolean(line && kin.value.live.has(line.id));
  return { state, rows, asked, turn, standing: standingOf({ line, live, told, turn, waiting, questions }) };
}

/** Returns the current activity on one line. @param {any[]} rows @param {string[]} live  answers being written */
function doing(rows, live) {
  const running = rows.filter((row) => row.type === "step" && row.tool && row.state === "started" && !row.result);
  if (running.length) return running.map((row) => `${row.tool}: ${summary(row.arguments)}`).join(" · ");
  return live.length ? "writing" : "thinking";
}

/** @param {any[]} rows @returns {string} */
const lastAnswer = (rows) => rows.findLast((row) => row.type === "slot" && row.kind === "answer")?.text ?? "";

/** @param {any[]} rows @returns {string} */
const taskOf = (rows) => rows.find((row) => row.type === "message" && row.role === "task")?.text ?? "";

/** Returns the first non-empty line without markup. @param {string} text  Markdown */
const firstLine = (text) =>
  text
    .split("\n")
    .find((line) => line.trim())
    ?.replace(/[*_`#]+/g, "")
    .trim() ?? "";

/** Returns the line below the title: the activity, or the last answer. @param {ReturnType<typeof factsOf>} facts @param {string} said */
function nowLine({ standing, rows, state }, said) {
  if (standing.tone === "busy") return doing(rows, state?.liveKeys.value ?? []);
  return firstLine(said || lastAnswer(rows) || (standing.word === "queued" ? "begins as soon as a place is free" : ""));
}

/** @param {{step: StepRow, told: ChildRow|null, session: string}} props  the step that spawned it, in the parent `session` */
export function SpawnedChild({ step, told, session }) {
  // The step of a workflow spawns many: it is shown by its graph, with those at work below.
  const line = told?.steps?.length ? null : spawnedBy(step);
  const turn = /** @type {any} */ (sessionState(session).store.byKey.get(`turn:${step.turn}`));
  const answer = told && step.result ? step.result.text : "";
  return html`<${Child} line=${line} told=${told} task=${told?.steps?.length ? `Workflow of ${told.steps.length} steps` : summary(step.arguments)} answer=${answer} hint=${(told && step.result?.hint) || ""} begun=${step.started_at} opened=${turn?.kind === "command"} />`;
}

/**
 * @param {{line: SessionLine|null, told: ChildRow|null, task: string, answer?: string, hint?: string, begun: string|null, opened?: boolean}} props
 * `line` is null for the moment before the list has it, and when it is too old to be in it
 */
function Child({ line, told, task, answer: given, hint, begun, opened }) {
  const [open, setOpen] = useState(Boolean(opened));
  const facts = factsOf(line, told);
  const { rows, asked, turn, standing } = facts;
  // It may have ended before the list had it, or before this page was opened.
  const unknown = standing.ended && !turn && !given && !hint;
  const wanted = Boolean(line) && (unknown || (open && !rows.length));
  useEffect(() => {
    if (wanted && line) glance(line.id);
  }, [wanted]);
  const id = line?.id ?? told?.session ?? "";
  const title = line?.title || task || "sub-session";
  const answer = given || (standing.ended ? lastAnswer(rows) : "");
  const flow = told?.steps?.length ? (told.state === "open" ? stepsLine(told.steps) : endsLine(told.steps)) : "";
  const excerpt = flow || nowLine(facts, answer || hint || "");
  const body = `child-${id}`;
  return html`<section class="child" data-testid="child" data-session=${id} data-standing=${standing.word} aria-label=${`Sub-session ${title}, ${standing.word}`}>
    <div class="step-line">
      <button type="button" class="step-head" aria-expanded=${open} aria-controls=${body} onClick=${() => setOpen(!open)}>
        <span class=${`tone ${standing.tone}`}><${Icon} name=${standing.icon} /></span>
        <span class="child-title">${title}</span>
        <span class=${`word ${standing.tone}`}>${standing.word}</span>
        <${Figures} told=${told} turn=${turn} rows=${rows} begun=${begun} ended=${standing.ended} />
      </button>
      ${line && html`<button type="button" class="quiet small" data-testid="child-open" title="Open this sub-session" aria-label=${`Open the sub-session ${title}`} onClick=${() => show(id)}><${Icon} name="open" /></button>`}
    </div>
    <p class="child-now muted" hidden=${open || !excerpt}>${excerpt}</p>
    <div id=${body} class="child-body" hidden=${!open}>
      <h4>Task</h4><p class="task-text">${taskOf(rows) || task}</p>
      ${answer && html`<h4>Its answer</h4><${Markdown} text=${answer} />`}
      ${hint && html`<p class="muted small">${hint}</p>`}
      ${!answer && !standing.ended && html`<p class="muted small">It has not answered yet.</p>`}
    </div>
    ${standing.ended ? null : html`<${Asked} rows=${asked} />`}
    ${(told?.steps?.length ? atWork(told.steps) : liveChildren(id)).map((one) => html`<div class="grandchild" key=${one.id}><${Child} line=${one} told=${null} task=${one.title} begun=${one.created_at} /></div>`)}
  </section>`;
}

/** @param {string} id */
const liveChildren = (id) => (kin.value.children.get(id) ?? []).filter((line) => kin.value.live.has(line.id));

/** Returns the sub-sessions of the steps that run. @param {ChildRow["steps"]} steps */
const atWork = (steps) =>
  steps.flatMap((one) => (one.state === "running" ? (kin.value.byId.get(one.session) ?? []) : []));

/** Open cards and the last decided one, which keeps its place. @param {{rows: any[]}} props */
function Asked({ rows }) {
  const byTime = rows.filter((row) => row.decided_at).sort((a, b) => Date.parse(a.decided_at) - Date.parse(b.decided_at));
  const last = byTime[byTime.length - 1];
  const shown = rows.filter((row) => row.state === "open" || row === last);
  return shown.length > 0 && html`<div class="child-cards">${shown.map((row) => html`<${Ask} key=${row.id} row=${row} />`)}</div>`;
}

/** Time, tokens, cost. @param {{told: ChildRow|null, turn: any, rows: any[], begun: string|null, ended: boolean}} props */
function Figures({ told, turn, rows, begun, ended }) {
  const start = turn?.started_at ?? begun;
  const ms = !ended && start ? Math.max(0, now.value - Date.parse(start)) : told?.active_ms || turn?.active_ms || null;
  const usage = told && told.state === "answered" ? told.usage : null;
  const sum = usage ?? usageOf(rows);
  return html`<span class="muted figures">${[duration(ms), ...(ended ? costs(sum, me.value.currency) : [])].filter(Boolean).join(" · ")}</span>`;
}

/** @param {any[]} rows */
function usageOf(rows) {
  const used = rows.filter((row) => row.usage).map((row) => row.usage);
  return used.length ? sumOf(used) : null;
}

/** Message about a sub-session's end, with its text folded. @param {{row: import("../types.js").MessageRow}} props */
export function ChildEnded({ row }) {
  const line = kin.value.byId.get(row.child ?? "");
  const how = /: (done|failed|stopped)\.$/.exec(row.text)?.[1];
  const ended = !/is at work\.$/.test(row.text);
  return html`<article class="child-ended" data-testid="child-ended" aria-label=${ended ? "A sub-session has ended" : "A sub-session writes"}>
    <p><${Icon} name="branch" />${
      line && (how || !ended)
        ? html`<span>${ended ? `A sub-session has ended, ${how}: ` : "A sub-session at work says: "}<button type="button" class="link" onClick=${() => show(line.id)}>${line.title || line.id}</button></span>`
        : html`<span>${row.text}</span>`
    }</p>
    ${row.quoted && html`<details><summary><${Icon} name="chevron" />What it said</summary><${Markdown} text=${row.quoted} /></details>`}
  </article>`;
}

/** First message of a sub-session: its task and its parent. @param {{row: import("../types.js").MessageRow, session: string}} props */
export function Task({ row, session }) {
  const parent = kin.value.byId.get(kin.value.byId.get(session)?.lineage?.parent ?? "");
  return html`<article class="task" data-testid="task" aria-label="The task">
    <h3><${Icon} name="branch" />Task${parent && html` from <button type="button" class="link" onClick=${() => show(parent.id)}>${parent.id === me.value.main ? "main" : parent.title || parent.id}</button>`}</h3>
    <p class="task-text" dir=${direction(row.text)}>${row.text}</p>
  </article>`;
}
