/** Inspector of one turn: its steps on a timeline; each opens to arguments and output. */
import { askedAt, costs, money, sumOf } from "../figures.js";
import { channelName, clockTime, duration, exactTime, pretty, summary } from "../format.js";
import { html, useEffect, useRef } from "../html.js";
import { current, inspected, me, now, sessionState, wide } from "../state.js";
import { Icon } from "./icons.js";
import { LiveOutput } from "./components.js";
import { ResultBody, statusOf } from "./step.js";

const STATES = {
  queued: "queued",
  running: "running",
  parked: "waiting for a person",
  stopping: "stopping",
  done: "done",
  stopped: "stopped",
  failed: "failed",
};

/**
 * Time span of the turn.
 * @typedef {{key: string, kind: "model"|"tool"|"person"|"sent", name: string, word: string, from: number, to: number|null, row: any}} Span
 */

/** @param {any[]} rows  of the session @param {string} turn @returns {Span[]} by start */
export function spansOf(rows, turn) {
  /** @type {Span[]} */
  const spans = [];
  const whole = rows.find((row) => row.type === "turn" && row.id === turn);
  for (const row of rows) {
    if (row.turn !== turn) continue;
    const key = `${row.type}:${row.id}`;
    const from = row.kind === "model" ? askedAt(rows, row, whole) : Date.parse(row.started_at);
    if (row.type === "step" && from) {
      const word = row.kind === "tool" ? statusOf(row)[0] : row.state === "finished" ? "" : "writing";
      spans.push({
        key,
        kind: row.kind,
        name: row.kind === "tool" ? row.tool : (row.model ?? "model"),
        word,
        from,
        to: row.ended_at ? Date.parse(row.ended_at) : null,
        row,
      });
    }
    if (row.type === "approval" || row.type === "question") {
      const to = row.decided_at ? Date.parse(row.decided_at) : row.state === "open" ? null : Date.parse(row.expires_at);
      spans.push({
        key,
        kind: "person",
        name: row.decided_by ? `decided by ${row.decided_by}` : "waiting for a person",
        word: row.state === "consumed" ? "allowed" : row.state,
        from: Date.parse(row.opened_at),
        to,
        row,
      });
    }
    if (row.type === "slot" && row.kind === "answer")
      spans.push({
        key,
        kind: "sent",
        name: `answer to ${channelName(row.channel)}`,
        word: "",
        from: Date.parse(row.at),
        to: Date.parse(row.at),
        row,
      });
  }
  return spans.sort((a, b) => a.from - b.from || Number(a.kind === "sent") - Number(b.kind === "sent"));
}

export function Inspector() {
  const id = inspected.value;
  const panel = useRef(/** @type {any} */ (null));
  useEffect(() => {
    if (!id) return undefined;
    const before = document.activeElement;
    panel.current?.focus({ preventScroll: true });
    return () => before instanceof HTMLElement && before.isConnected && before.focus({ preventScroll: true });
  }, [Boolean(id)]);
  if (!id) return null;
  const state = sessionState(current.value);
  state.version.value;
  const turn = /** @type {any} */ (state.store.byKey.get(`turn:${id}`));
  const spans = spansOf(state.store.list, id);
  const close = () => (inspected.value = null);
  return html`${!wide.value && html`<div class="backdrop" onClick=${close}></div>`}
  <aside class="inspector" data-testid="inspector" ref=${panel} tabindex="-1" role=${wide.value ? "complementary" : "dialog"} aria-modal=${wide.value ? undefined : "true"} aria-label="Details of a turn">
    <header><h2>Turn</h2>${turn && html`<span class="badge">${STATES[/** @type {keyof typeof STATES} */ (turn.state)] ?? turn.state}</span>`}
      <button type="button" class="quiet" aria-label="Close the details" title="Close (Esc)" onClick=${close}><${Icon} name="cross" /></button></header>
    ${turn ? html`<${Overview} turn=${turn} rows=${state.store.list} />` : html`<p class="muted">This turn is further up than what is loaded. Scroll up in the conversation to load it.</p>`}
    ${turn && html`<${Timeline} turn=${turn} spans=${spans} />`}
  </aside>`;
}

/** @param {{turn: import("../types.js").TurnRow, rows: any[]}} props  `rows` of the session */
function Overview({ turn, rows }) {
  const wall = (turn.ended_at ? Date.parse(turn.ended_at) : now.value) - Date.parse(turn.started_at ?? turn.created_at);
  const queued = turn.started_at ? Date.parse(turn.started_at) - Date.parse(turn.created_at) : null;
  const used = rows.filter((row) => row.turn === turn.id && row.usage);
  const sum = sumOf(used.map((row) => row.usage));
  const theirs = sumOf(used.filter((row) => row.type === "child").map((row) => row.usage));
  const cached = sum.cached_tokens;
  const facts = [
    ["Begun", exactTime(turn.created_at)],
    ["From", channelName(turn.channel)],
    ["Took", duration(Math.max(turn.active_ms, wall))], // a clock that was put back makes the wall time too short
    ["Worked", duration(turn.active_ms)],
    ["Queued", queued !== null && queued > 50 ? duration(queued) : ""],
    [
      "Tokens",
      sum.input_tokens
        ? `${sum.input_tokens.toLocaleString()} in${cached ? ` (${cached.toLocaleString()} cached)` : ""}, ${sum.output_tokens.toLocaleString()} out`
        : "",
    ],
    ["Cost", sum.cost_micros ? money(sum.cost_micros, me.value.currency) : ""],
    ["Of that", costs(theirs, me.value.currency).length ? `${costs(theirs, me.value.currency).join(", ")} in sub-sessions` : ""],
  ];
  return html`<dl class="facts">${facts.filter(([, value]) => value).map(([label, value]) => html`<div key=${label}><dt>${label}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** @param {{turn: import("../types.js").TurnRow, spans: Span[]}} props */
function Timeline({ turn, spans }) {
  if (!spans.length) return html`<p class="muted">Nothing has begun yet.</p>`;
  const start = Math.min(Date.parse(turn.started_at ?? turn.created_at), spans[0].from);
  const end = Math.max(start + 1, ...spans.map((span) => span.to ?? now.value));
  const share = (/** @type {number} */ ms) => `${((ms / (end - start)) * 100).toFixed(2)}%`;
  return html`<ol class="timeline">
    ${spans.map((span) => {
      const length = (span.to ?? now.value) - span.from;
      return html`<li key=${span.key} data-kind=${span.kind} data-testid="timeline-step"><details>
        <summary>
          <span class="name"><span class=${`mark ${span.kind}`} aria-hidden="true"></span>${span.name}${span.kind === "tool" && html` <code>${summary(span.row.arguments)}</code>`}</span>
          <span class="muted figures">${span.kind === "sent" ? clockTime(new Date(span.from).toISOString()) : [span.word, duration(Math.max(0, length)), ...costs(span.row.usage, me.value.currency)].filter(Boolean).join(" · ")}</span>
          <span class="track" aria-hidden="true"><span class=${`bar ${span.kind}`} style=${{ left: `min(${share(span.from - start)}, 100% - 4px)`, width: `max(3px, ${share(Math.max(0, length))})` }}></span></span>
        </summary>
        <${SpanBody} span=${span} start=${start} />
      </details></li>`;
    })}
  </ol>`;
}

/** @param {{span: Span, start: number}} props */
function SpanBody({ span, start }) {
  const { row } = span;
  const begun = html`<p class="muted small">${exactTime(new Date(span.from).toISOString())}, ${duration(Math.max(0, span.from - start))} after the start</p>`;
  if (span.kind === "model") {
    const usage = row.usage;
    return html`${begun}<p>${usage ? `${usage.input_tokens.toLocaleString()} tokens in, ${usage.cached_tokens.toLocaleString()} of them cached; ${usage.output_tokens.toLocaleString()} out${usage.cost_micros ? `; ${money(usage.cost_micros, me.value.currency)}` : ""}` : "No tokens were reported."}</p>`;
  }
  if (span.kind === "person")
    return html`${begun}<pre tabindex="0">${row.rendered}</pre><p>${row.outcome || "Not decided yet."}</p>`;
  if (span.kind === "sent") return html`${begun}<p class="excerpt">${row.text.slice(0, 400)}</p>`;
  const live = row.state === "started" && !row.result;
  return html`${begun}<h4>Arguments</h4><pre tabindex="0">${pretty(row.arguments)}</pre><h4>Output</h4>
    ${live ? html`<${LiveOutput} source=${sessionState(current.value).outputOf(row.turn, row.n)} />` : row.result?.text || row.result?.hint || row.result?.pictures.length || row.result?.files.length ? html`<${ResultBody} result=${row.result} />` : row.result ? html`<p class="muted">Nothing was printed.</p>` : html`<p class="muted">None yet.</p>`}`;
}
