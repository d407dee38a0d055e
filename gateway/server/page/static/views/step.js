/** Tool call in the conversation: name, status, output. */
import { between, duration, summary } from "../format.js";
import { computed, html, useMemo, useState } from "../html.js";
import { inspected, now, sessionState } from "../state.js";
import { SpawnedChild, spawnedBy } from "./child.js";
import { Icon } from "./icons.js";
import { Download, LiveOutput, Output, Picture } from "./components.js";

/** Word, icon and tone of each result. @type {Record<string, [string, string, string]>} */
const STATUS = {
  ok: ["done", "check", "good"],
  error: ["failed", "cross", "bad"],
  denied: ["denied", "cross", "bad"],
  expired: ["expired", "clock", "dim"],
  timeout: ["timed out", "clock", "bad"],
  cancelled: ["stopped", "stop", "dim"],
  unknown: ["outcome unknown", "warn", "warn"],
};

/** @param {import("../types.js").StepRow} step @returns {[string, string, string]} */
export function statusOf(step) {
  if (!step.result) return step.state === "started" ? ["running", "none", "busy"] : ["waiting", "clock", "dim"];
  const failed = step.result.status === "ok" && step.result.exit_code;
  return failed ? ["done", "check", "dim"] : (STATUS[step.result.status] ?? STATUS.unknown);
}

/** "exit 1", "0.4 s": facts about its end. @param {{step: import("../types.js").StepRow}} props */
function Facts({ step }) {
  const { result } = step;
  const ms = result?.duration_ms ?? between(step.started_at, step.ended_at);
  const running = step.state === "started" && step.started_at ? now.value - Date.parse(step.started_at) : null;
  const exit = result && result.exit_code !== null && result.exit_code !== undefined ? `exit ${result.exit_code}` : "";
  return html`<span class="muted figures">${[duration(running === null ? ms : Math.max(0, running)), exit].filter(Boolean).join(" · ")}</span>`;
}

/** @param {{step: import("../types.js").StepRow, told?: import("../types.js").ChildRow|null, session: string, under?: boolean}} props  `under` a card, which has said what runs */
export function Step({ step, told, session, under }) {
  // Not read directly: every step would re-render at each change of the session list.
  const spawned = useMemo(() => computed(() => Boolean(spawnedBy(step))), [step.id]);
  if (told || spawned.value) return html`<${SpawnedChild} step=${step} told=${told ?? null} session=${session} />`;
  return html`<${Call} step=${step} session=${session} under=${under} />`;
}

/** @param {{step: import("../types.js").StepRow, session: string, under?: boolean}} props */
function Call({ step, session, under }) {
  const [open, setOpen] = useState(true);
  const [word, icon, tone] = statusOf(step);
  const body = `step-${step.id}`;
  return html`<section class="step" data-testid="step" data-state=${step.result?.status ?? step.state} aria-label=${`${step.tool}, ${word}`}>
    <div class="step-line">
      <button type="button" class="step-head" aria-expanded=${open} aria-controls=${body} onClick=${() => setOpen(!open)}>
        <span class=${`tone ${tone}`}><${Icon} name=${icon} /></span>
        <span class="tool">${step.tool}</span>
        ${!under && html`<code class="what">${summary(step.arguments)}</code>`}
        <span class=${`word ${tone}`}>${word}</span>
        <${Facts} step=${step} />
      </button>
      <button type="button" class="quiet small" title="Details of this turn" aria-label="Details of this turn" onClick=${() => (inspected.value = step.turn)}>
        <${Icon} name="inspect" />
      </button>
    </div>
    <div id=${body} hidden=${!open}>
      ${step.result ? html`<${ResultBody} result=${step.result} />` : step.state === "started" && html`<${LiveOutput} source=${sessionState(session).outputOf(step.turn, step.n)} />`}
    </div>
  </section>`;
}

/** A sentence with its `code`. @param {{text: string}} props */
const Words = ({ text }) => text.split(/`([^`\n]+)`/).map((part, at) => (at % 2 ? html`<code>${part}</code>` : part));

/** @param {{result: import("../types.js").Result}} props */
export function ResultBody({ result }) {
  return html`${(result.text || result.full) && html`<${Output} text=${result.text} full=${result.full} dropped=${result.dropped_bytes} />`}
    ${result.pictures.map((from) => html`<${Picture} key=${from} from=${from} />`)}
    ${result.files.map((file) => file.picture && html`<${Picture} key=${file.url} from=${file.url} />`)}
    ${result.files.length > 0 && html`<ul class="files">${result.files.map((file) => html`<li key=${file.url}><${Download} from=${file.url} name=${file.name} /></li>`)}</ul>`}
    ${result.hint && html`<p class="hint"><${Words} text=${result.hint} /></p>`}
    ${result.status === "unknown" && !result.hint && html`<p class="hint">It may or may not have run. Look at its effect before you ask for it again.</p>`}`;
}
