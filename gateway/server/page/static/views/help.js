/** Keyboard help. Loaded when it is first wanted. */
import { switchShortcuts } from "../actions.js";
import { html, useEffect, useRef } from "../html.js";
import { KEYS } from "../keys.js";
import { helpOpen, shortcuts } from "../state.js";
import { Icon } from "./icons.js";

export function Keyboard() {
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
