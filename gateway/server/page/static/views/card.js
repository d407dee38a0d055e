/** Approval card: one exact action that waits for a decision, or one line with its outcome. */
import { press } from "../actions.js";
import { clockTime, dayTime, exactTime, left } from "../format.js";
import { html, useLayoutEffect, useRef, useState } from "../html.js";
import { isComposing } from "../keys.js";
import { moved } from "../scroll.js";
import { connection, now, presses, shortcuts } from "../state.js";
import { Icon } from "./icons.js";

/** Time in ms after buttons moved during which a press is ignored. */
const SETTLE = 400;
/** Lines of an action before its block scrolls by itself. */
const TALL = 24;
/** As in `channels/_shared/card_layout.py`. */
const RISKS = { none: "this session only", read: "reads", write: "writes", execute: "executes", network: "network" };
/** Icon of an outcome by its state. @type {Record<string, string>} */
const ENDS = { approved: "check", consumed: "check", denied: "cross", expired: "clock", cancelled: "stop", superseded: "down" };

/** Card that had the focus when it was decided: its line gets the focus. */
const hadFocus = { card: "" };

/** Loaded with the first question: the page stays small. @param {{row: any}} props */
function Asked({ row }) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  useLayoutEffect(() => void import("./question.js").then(setFound), []);
  return found && html`<${found.Question} row=${row} />`;
}

/** Action or question of a card. @param {{row: any}} props */
export const Ask = ({ row }) =>
  row.type === "question" ? html`<${Asked} row=${row} />` : row.state === "open" ? html`<${OpenCard} row=${row} />` : html`<${Decided} row=${row} />`;

/** @param {{row: import("../types.js").ApprovalRow}} props */
function OpenCard({ row }) {
  const [asking, setAsking] = useState(false);
  const ref = useRef(/** @type {any} */ (null));
  useLayoutEffect(() => {
    const section = ref.current;
    return () => {
      if (section.contains(document.activeElement)) hadFocus.card = row.id;
    };
  }, [row.id]);
  const heading = `card-${row.id}`;
  const lines = row.rendered.split("\n").length;
  return html`<section class="card" ref=${ref} data-testid="card" data-card=${row.id} data-risk=${row.risk} data-state="open" tabindex="-1" aria-labelledby=${heading}>
    <h3 id=${heading}>
      <span class="risk"><${Icon} name=${row.risk} />${RISKS[/** @type {keyof typeof RISKS} */ (row.risk)] ?? row.risk}</span>
      <span class="title">${row.title}</span>
    </h3>
    <pre class=${lines > TALL ? "action tall" : "action"} tabindex="0" aria-label="The whole action">${row.rendered}</pre>
    ${lines > TALL && html`<p class="muted small">${lines} lines: scroll in the block to read them all.</p>`}
    ${row.escaped && html`<p class="escaped"><${Icon} name="warn" />Unusual characters are shown as \\u{…}. Read them before you allow this.</p>`}
    ${row.note && html`<p class="note">${row.note}</p>`}
    ${row.parts.length > 0 && html`<ul class="parts" aria-label="Parts of the command">${row.parts.map((line, n) => html`<li key=${n}>${line}</li>`)}</ul>`}
    <${Facts} facts=${row.facts.filter(([label]) => label !== "Risk")} />
    <details class="more"><summary>Details</summary><${Facts} facts=${row.details} /></details>
    <${Expiry} row=${row} />
    ${row.question && html`<p class="question" data-testid="card-question">${row.question}</p>`}
    ${asking ? html`<${Reason} row=${row} onClose=${() => setAsking(false)} />` : html`<${Buttons} row=${row} onAsk=${() => setAsking(true)} />`}
  </section>`;
}

/** Facts about an action. @param {{facts: [string, string][]}} props */
const Facts = ({ facts }) =>
  html`<dl class="facts">${facts.map(([label, value]) => html`<div key=${label}><dt>${label}</dt><dd>${value}</dd></div>`)}</dl>`;

/** Time left to answer. @param {{row: import("../types.js").ApprovalRow}} props */
function Expiry({ row }) {
  const end = Date.parse(row.expires_at);
  const rest = end - now.value;
  const share = Math.max(0, Math.min(1, rest / (end - Date.parse(row.opened_at))));
  const words =
    rest > 0
      ? `Answer ${left(rest)}, until ${dayTime(row.expires_at, now.value)}`
      : "The time to answer is over; nothing was run";
  return html`<div class="expiry" title=${exactTime(row.expires_at)}>
    <div class="line" aria-hidden="true"><div class=${share < 0.2 ? "rest short" : "rest"} style=${{ width: `${(share * 100).toFixed(1)}%` }}></div></div>
    <${Said} row=${row} otherwise=${words} />
  </div>`;
}

/** @param {import("../types.js").ApprovalRow} row */
const pressOf = (row) => row.buttons.map((button) => presses.value[button.handle]).find(Boolean);

/** @param {{row: import("../types.js").ApprovalRow, onAsk: () => void}} props */
function Buttons({ row, onAsk }) {
  const busy = pressOf(row)?.state === "sending";
  const onClick = (/** @type {MouseEvent} */ event, /** @type {import("../types.js").Button} */ button) => {
    const byPointer = event.detail > 0;
    if (busy || (byPointer && (event.detail > 1 || performance.now() - moved.at < SETTLE))) return;
    if (button.verb === "deny_reason") onAsk();
    else press(button.handle, null);
  };
  return html`<div class="buttons" data-pressable>
    ${row.buttons.map(
      (
        button,
        i,
      ) => html`<button type="button" key=${button.handle} class=${`verb ${button.verb}`} data-testid="card-button" data-verb=${button.verb}
        aria-disabled=${busy} aria-keyshortcuts=${shortcuts.value ? String(i + 1) : undefined} onClick=${(/** @type {any} */ event) => onClick(event, button)}>
        ${button.label}${shortcuts.value && html`<kbd aria-hidden="true">${i + 1}</kbd>`}</button>`,
    )}
  </div>`;
}

/** One line of text for the person who asked. @param {{row: import("../types.js").ApprovalRow, onClose: () => void}} props */
function Reason({ row, onClose }) {
  const ref = useRef(/** @type {any} */ (null));
  const button = row.buttons.find((item) => item.verb === "deny_reason");
  useLayoutEffect(() => ref.current?.focus(), []);
  const onSubmit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const text = ref.current.value.trim();
    if (!text) return ref.current.focus();
    if (button) press(button.handle, text);
    onClose();
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape" || isComposing(event)) return;
    event.preventDefault();
    const card = ref.current.closest(".card");
    onClose();
    card?.focus();
  };
  return html`<form class="buttons reason" data-pressable onSubmit=${onSubmit}>
    <input ref=${ref} type="text" maxlength="500" data-testid="card-reason" aria-label="Why it is denied" placeholder="Why not? The agent reads this." onKeyDown=${onKeyDown} autocomplete="off" />
    <button type="submit" class="verb deny">Deny</button>
    <button type="button" class="verb" onClick=${onClose}>Back</button>
  </form>`;
}

/** Result of a press, in the place of the time left. @param {{row: import("../types.js").ApprovalRow, otherwise: string}} props */
function Said({ row, otherwise }) {
  const said = pressOf(row);
  const words = !said
    ? otherwise
    : said.state === "answered"
      ? said.text
      : connection.value.state === "open"
        ? "Sending…"
        : "Not sent yet: it goes out when the connection is back.";
  return html`<p class=${said ? "said" : ""}>${words}</p>`;
}

/** Outcome in the reader's time zone: `outcome_line` in `gateway/approvals/action.py` writes `, HH:MM UTC`. @param {import("../types.js").ApprovalRow} row */
const outcomeOf = ({ outcome, decided_at: at }) =>
  at ? outcome.replace(`, ${at.slice(11, 16)} UTC`, `, ${clockTime(at)}`) : outcome;

/** One line. @param {{row: import("../types.js").ApprovalRow}} props */
function Decided({ row }) {
  const icon = ENDS[row.state] ?? "none";
  const ref = useRef(/** @type {any} */ (null));
  useLayoutEffect(() => {
    if (hadFocus.card !== row.id) return;
    hadFocus.card = "";
    ref.current.focus({ preventScroll: true });
  }, [row.id]);
  const good = row.state === "approved" || row.state === "consumed";
  return html`<details class="decided" data-testid="card" data-risk=${row.risk} data-state=${row.state}>
    <summary ref=${ref}>
      <span class=${good ? "tone good" : row.state === "denied" ? "tone bad" : "tone dim"}><${Icon} name=${icon} /></span>
      <span class="title">${row.title} <code>${row.rendered.split("\n")[0]}</code></span><span class="outcome">${outcomeOf(row)}</span>
    </summary>
    <pre class="action" tabindex="0">${row.rendered}</pre>
    ${row.reason && html`<p class="note">Reason: ${row.reason}</p>`}
    <${Facts} facts=${[...row.facts, ...row.details]} />
  </details>`;
}
