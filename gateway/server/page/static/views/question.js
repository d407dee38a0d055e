/** Question to a person: the answers so far, and buttons and a field for the one that is asked now. */
import { press } from "../actions.js";
import { clockTime, dayTime, exactTime, left } from "../format.js";
import { html, useLayoutEffect, useRef } from "../html.js";
import { moved } from "../scroll.js";
import { connection, now, presses, shortcuts } from "../state.js";
import { Icon } from "./icons.js";

/** Time in ms after buttons moved during which a press is ignored. */
const SETTLE = 400;
/** Characters of a written answer. */
const ANSWER_CHARS = 4000;
/** @type {Record<string, [string, string]>} */
const ENDS = { answered: ["good", "check"], expired: ["dim", "clock"], cancelled: ["dim", "stop"] };

const style = document.createElement("link");
style.rel = "stylesheet";
style.href = new URL("../question.css", import.meta.url).href;
document.head.append(style);

/** @typedef {import("../types.js").QuestionRow} QuestionRow */

/** @param {{row: QuestionRow}} props */
export function Question({ row }) {
  const heading = `card-${row.id}`;
  const open = row.state === "open";
  return html`<section class=${open ? "card inquiry" : "card inquiry over"} data-testid="card" data-card=${row.id} data-risk="none" data-kind="question" data-state=${row.state} tabindex="-1" aria-labelledby=${heading}>
    <h3 id=${heading}><span class="risk"><${Icon} name="help" />${row.count ? `Question ${row.count}` : "Question"}</span></h3>
    ${row.answered.length > 0 && html`<dl class="answered">${row.answered.map(([question, answer], n) => html`<div key=${n}><dt>${question}</dt><dd>${answer}</dd></div>`)}</dl>`}
    ${row.question && html`<p class="asked">${row.question}</p>`}
    ${open ? html`<${Choices} key=${row.write} row=${row} /><${Until} row=${row} />` : html`<${Outcome} row=${row} />`}
  </section>`;
}

/** @param {QuestionRow} row */
const pressOf = (row) => [row.write, ...row.buttons.map((button) => button.handle)].map((one) => presses.value[one]).find(Boolean);

/** Options as buttons, and a field for words of one's own. @param {{row: QuestionRow}} props */
function Choices({ row }) {
  const field = useRef(/** @type {any} */ (null));
  const form = useRef(/** @type {any} */ (null));
  const busy = pressOf(row)?.state === "sending";
  const several = row.buttons.some((button) => button.ends);
  // The next question of the card takes the place of the one that was just answered: the keyboard stays in it.
  useLayoutEffect(() => {
    if (document.activeElement === form.current?.closest(".card")) field.current?.focus({ preventScroll: true });
  }, [row.write]);
  const onClick = (/** @type {MouseEvent} */ event, /** @type {string} */ handle) => {
    const byPointer = event.detail > 0;
    if (busy || (byPointer && (event.detail > 1 || performance.now() - moved.at < SETTLE))) return;
    press(handle, null);
  };
  const onSubmit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const text = field.current.value.trim();
    if (!text || busy) return field.current.focus();
    press(row.write, text);
    field.current.closest(".card")?.focus({ preventScroll: true });
  };
  return html`<div class="choices">
    ${
      row.buttons.length > 0 &&
      html`<div class="buttons" data-pressable>
        ${row.buttons.map(
          (
            button,
            i,
          ) => html`<button type="button" key=${button.handle} class=${button.ends ? "verb once" : "verb"} data-testid="card-button" aria-disabled=${busy}
            aria-pressed=${several && !button.ends ? String(button.chosen) : undefined} aria-keyshortcuts=${shortcuts.value ? String(i + 1) : undefined}
            onClick=${(/** @type {any} */ event) => onClick(event, button.handle)}>
            ${several && !button.ends && html`<span class="tick" aria-hidden="true">${button.chosen ? "☑" : "☐"}</span> `}${button.label}${shortcuts.value && html`<kbd aria-hidden="true">${i + 1}</kbd>`}</button>`,
        )}
      </div>`
    }
    <form class="buttons own" ref=${form} onSubmit=${onSubmit}>
      <input ref=${field} type="text" maxlength=${ANSWER_CHARS} data-testid="card-answer" aria-label="Your own answer" placeholder=${row.buttons.length ? "Or your own words" : "Write your answer"} autocomplete="off" />
      <button type="submit" class="verb">Answer</button>
    </form>
  </div>`;
}

/** Time left to answer, or what became of the press. @param {{row: QuestionRow}} props */
function Until({ row }) {
  const said = pressOf(row);
  const rest = Date.parse(row.expires_at) - now.value;
  const until = rest > 0 ? `Answer ${left(rest)}, until ${dayTime(row.expires_at, now.value)}` : "The time to answer is over";
  const asks = row.asks ? `The sub-session “${row.asks}” asks. ` : "";
  const words = !said
    ? `${asks}${until}`
    : said.state === "answered"
      ? said.text
      : connection.value.state === "open"
        ? "Sending…"
        : "Not sent yet: it goes out when the connection is back.";
  return html`<p class=${said ? "until said" : "until"} title=${exactTime(row.expires_at)}>${words}</p>`;
}

/** @param {{row: QuestionRow}} props */
function Outcome({ row }) {
  const [tone, icon] = ENDS[row.state] ?? ["dim", "none"];
  const at = row.decided_at;
  const words = at ? row.note.replace(`, ${at.slice(11, 16)} UTC`, `, ${clockTime(at)}`) : row.note;
  return html`<p class="until"><span class=${`tone ${tone}`}><${Icon} name=${icon} /></span> ${words}</p>`;
}
