/** Overlays: connection state, keyboard help, notices. */
import { retryNow, switchShortcuts } from "../actions.js";
import { html, useEffect, useRef } from "../html.js";
import { KEYS } from "../keys.js";
import { assertive, connection, helpOpen, now, outbox, polite, shortcuts, toast } from "../state.js";
import { Icon } from "./icons.js";

/** Thin bar for connection trouble. It overlays the top edge of the conversation, so nothing moves. */
export function ConnectionBar() {
  const { state, retryAt } = connection.value;
  const unsent = outbox.value.filter((/** @type {any} */ item) => item.state === "sending").length;
  const rest = Math.max(0, Math.ceil((retryAt - now.value) / 1000));
  return html`<div class="connection" data-testid="connection" data-state=${state} role="status">
    ${state === "connecting" && html`<div>Connecting…</div>`}
    ${
      state === "offline" &&
      html`<div><span>Not connected. ${rest > 1 ? `Trying again in ${rest} s.` : "Trying again…"}${unsent ? ` ${unsent === 1 ? "1 message is" : `${unsent} messages are`} kept.` : ""}</span>
      <button type="button" class="link" onClick=${retryNow}>Try now</button></div>`
    }
  </div>`;
}

export function Help() {
  const ref = useRef(/** @type {any} */ (null));
  const closing = useRef(false);
  const open = helpOpen.value;
  const on = shortcuts.value;
  useEffect(() => {
    if (open && !ref.current.open) ref.current.showModal();
    if (open || !ref.current.open) return;
    closing.current = true;
    ref.current.close();
  }, [open]);
  const close = () => (helpOpen.value = false);
  // A task later: the help may be wanted again.
  const onClosed = () => (closing.current ? (closing.current = false) : close());
  return html`<dialog class="help" ref=${ref} aria-labelledby="help-title" onClose=${onClosed} onClick=${(/** @type {any} */ event) => event.target === ref.current && close()}>
    <header><h2 id="help-title">Keyboard</h2><button type="button" class="quiet" aria-label="Close" onClick=${close}><${Icon} name="cross" /></button></header>
    <dl>${KEYS.map(([key, words, letter]) => html`<div key=${key} class=${letter && !on ? "off" : ""}><dt>${key.split(/\s+/).map((part) => (part === "–" ? " – " : html`<kbd>${part}</kbd>`))}</dt><dd>${words}</dd></div>`)}</dl>
    <label class="switch"><input type="checkbox" role="switch" checked=${on} onChange=${(/** @type {any} */ event) => switchShortcuts(event.target.checked)} />One-letter keys</label>
    <p class="muted small" role="status">${on ? "One-letter keys are on." : "One-letter keys are off. Enter, Esc and / in a message still work."}</p>
  </dialog>`;
}

export function Notices() {
  return html`<div class="toast" role="status" hidden=${!toast.value}>${toast.value}</div>
    <div class="off-screen" aria-live="polite">${polite.value}</div>
    <div class="off-screen" aria-live="assertive" role="alert">${assertive.value}</div>`;
}
