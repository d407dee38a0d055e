/** Entry of the conversation: message, answer, step or card. Re-rendered only when its rows change. */
import { dropPending, takeBack } from "../actions.js";
import { answerFigures, turnFigures, turnSums } from "../figures.js";
import { direction } from "../format.js";
import { Component, html } from "../html.js";
import { inspected, me, now, sessionState } from "../state.js";
import { Ask } from "./card.js";
import { ChildEnded, Task } from "./child.js";
import { FileChip, Player } from "./files.js";
import { Icon } from "./icons.js";
import { Badge, LiveMarkdown, Markdown, Time } from "./components.js";
import { Step } from "./step.js";
import { conversation } from "../keys.js";

/** @typedef {import("../types.js").Entry} Entry */

/** @param {Entry} a @param {Entry} b */
const same = (a, b) =>
  a.row === b.row &&
  a.step === b.step &&
  a.told === b.told &&
  a.waits === b.waits &&
  a.foot === b.foot &&
  a.head === b.head &&
  a.kind === b.kind;

export class EntryView extends Component {
  /** @param {any} next */
  shouldComponentUpdate(next) {
    const live = next.entry.kind === "live";
    return (
      next.session !== this.props.session ||
      next.mine !== this.props.mine ||
      !(live ? next.entry.head === this.props.entry.head : same(next.entry, this.props.entry))
    );
  }

  render(/** @type {any} */ { entry, session, mine }) {
    const head = entry.head && entry.kind !== "message";
    return html`<div class=${`entry of-${entry.kind}`} data-entry=${entry.key}>
      ${head && html`<${Head} entry=${entry} />`}
      ${bodyOf(entry, session, mine)}
      ${entry.foot && html`<${Foot} turn=${entry.foot} session=${session} />`}
    </div>`;
  }
}

/** @param {Entry} entry @param {string} session @param {boolean} mine */
function bodyOf(entry, session, mine) {
  const { row } = entry;
  if (entry.kind === "message" && row.role === "child") return html`<${ChildEnded} row=${row} />`;
  if (entry.kind === "message" && row.role === "task") return html`<${Task} row=${row} session=${session} />`;
  if (entry.kind === "message") return html`<${Message} row=${row} mine=${mine} waits=${entry.waits} />`;
  if (entry.kind === "card")
    return html`<${Ask} row=${row} />${entry.step && html`<${Step} step=${entry.step} told=${entry.told} session=${session} under />`}`;
  if (entry.kind === "step") return html`<${Step} step=${row} told=${entry.told} session=${session} />`;
  if (entry.kind === "live") {
    const source = sessionState(session).live.get(`${row.turn}/${row.n}`);
    return source && html`<div data-testid="answer" data-live="true"><${LiveMarkdown} source=${source} /></div>`;
  }
  if (row.audio) return html`<${Player} from=${row.audio} name="the answer" />`;
  return html`<div data-testid="answer" data-kind=${row.kind}><${Markdown} text=${row.text} class=${row.kind} />
    ${entry.step && html`<${AnswerFigures} step=${entry.step} foot=${entry.foot} session=${session} />`}</div>`;
}

/** Model, time, tokens, cost of an answer; not when it is all that its turn's last line counts. @param {{step: import("../types.js").StepRow, foot: any, session: string}} props */
function AnswerFigures({ step, foot, session }) {
  const rows = sessionState(session).store.list;
  const sums = foot && turnSums(rows, foot);
  if (sums && sums.answers === 1 && !sums.calls) return null;
  return html`<p class="answer-figures muted">${answerFigures(rows, step, me.value.currency).join(" · ")}</p>`;
}

/** @param {{entry: Entry}} props */
function Head({ entry }) {
  const { row } = entry;
  const at = row.at ?? row.opened_at ?? row.started_at ?? null;
  return html`<div class="head"><span class="who">Dragoman</span><${Time} at=${at} /></div>`;
}

/** @param {{row: import("../types.js").MessageRow, mine: boolean, waits: boolean}} props */
function Message({ row, mine, waits }) {
  const command = row.text.startsWith("/");
  return html`<article class=${mine ? "message mine" : "message"} data-testid="message" aria-label=${`${row.from} wrote`}>
    <div class="head">
      <span class="who">${row.from}</span>
      ${(row.channel !== "web" || !mine) && html`<${Badge} channel=${row.channel} />`}
      <${Time} at=${row.at} />
    </div>
    ${(row.text || row.files.length === 0) && html`<div class=${command ? "bubble command" : "bubble"} dir=${direction(row.text)}>${row.text}</div>`}
    ${row.files.length > 0 && html`<${MessageFiles} files=${row.files} />`}
    ${waits && html`<p class="muted small waits"><${Icon} name="clock" />Waits; given to the agent at its next step.</p>`}
  </article>`;
}

/** @param {{files: {name: string, size?: number, trouble?: string, audio?: string|null}[]}} props */
function MessageFiles({ files }) {
  return html`<p class="message-files">${files.map((file, at) => html`<${FileChip} key=${at} ...${file} />`)}</p>`;
}

/** Outcome of a turn, with a button for its details. @param {{turn: import("../types.js").TurnRow, session: string}} props */
function Foot({ turn, session }) {
  const sums = turnSums(sessionState(session).store.list, turn);
  const bad = turn.state === "failed" ? "This turn failed." : turn.state === "stopped" ? "Stopped." : "";
  if (!bad && turn.kind === "command" && !sums.usage.input_tokens) return null;
  const figures = `${sums.answers > 1 ? "In all: " : ""}${turnFigures(sums, me.value.currency).join(" · ")}`;
  return html`<div class="foot">
    ${bad && html`<span class=${turn.state === "failed" ? "bad" : "dim"}><${Icon} name=${turn.state === "failed" ? "warn" : "stop"} />${bad}</span>`}
    <button type="button" class="link quiet" onClick=${() => (inspected.value = turn.id)}>${figures || "details"}<span class="off-screen">, details of this turn</span></button>
  </div>`;
}

/** Pending message. @param {{item: import("../types.js").Pending}} props */
export function PendingView({ item }) {
  const failed = item.state === "failed";
  const slow = now.value - Date.parse(item.at) > 3000;
  return html`<div class="entry of-message pending" data-entry=${`pending:${item.id}`}>
    <article class="message mine" data-testid="message" data-pending=${item.state} aria-label=${`${me.value.owner} wrote`}>
      ${(item.text || !item.files?.length) && html`<div class=${item.text.startsWith("/") ? "bubble command" : "bubble"} dir=${direction(item.text)}>${item.text}</div>`}
      ${item.files && item.files.length > 0 && html`<${MessageFiles} files=${item.files} />`}
      ${
        failed
          ? html`<p class="bad small" role="alert"><${Icon} name="warn" />Not sent. ${item.error}
            <button type="button" class="link" onClick=${() => (conversation.focusComposer(item.text), takeBack(item))}>Edit</button>
            <button type="button" class="link" onClick=${() => dropPending(item.id)}>Discard</button></p>`
          : html`<p class="muted small waits">${item.state === "sending" ? html`<${Icon} name="clock" />${slow ? "Kept here; sent when the connection is back." : "Sending…"}` : "\u00a0"}</p>`
      }
    </article>
  </div>`;
}
