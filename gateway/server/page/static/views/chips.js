/** Chips of the files of the message that is being written. Loaded with the first of them. */
import { bytes } from "../format.js";
import { html, useRef } from "../html.js";
import { added } from "../state.js";
import { again, remove } from "../uploads.js";
import { Icon } from "./icons.js";

/** The files of the message that is being written. @param {{onEmpty: () => void}} props  `onEmpty`: the last one was removed */
export function Chips({ onEmpty }) {
  const list = useRef(/** @type {any} */ (null));
  const files = added.value;
  if (!files.length) return null;
  const takeBack = (/** @type {string} */ id) => {
    const at = files.findIndex((one) => one.id === id);
    remove(id);
    // The focus stays among the files, so that several can be removed by keyboard.
    requestAnimationFrame(() => {
      const buttons = list.current?.querySelectorAll(".remove");
      if (buttons?.length) buttons[Math.min(at, buttons.length - 1)].focus();
      else onEmpty();
    });
  };
  return html`<ul class="chips" ref=${list} aria-label="Files of this message" data-testid="chips">
    ${files.map((one) => html`<${Chip} key=${one.id} one=${one} onRemove=${takeBack} />`)}
  </ul>`;
}

/** @param {{one: import("../uploads.js").Added, onRemove: (id: string) => void}} props */
function Chip({ one, onRemove }) {
  const bad = ["broken", "lost", "refused"].includes(one.state);
  const part = one.size ? Math.min(100, Math.round((100 * one.sent) / one.size)) : 0;
  const busy = one.state === "waiting" || one.state === "uploading";
  return html`<li class=${bad ? "upload bad" : "upload"} data-testid="chip" data-state=${one.state}>
    ${one.picture ? html`<img src=${one.picture} alt="" />` : html`<span class="kind"><${Icon} name=${bad ? "warn" : "file"} /></span>`}
    <span class="what"><bdi class="name" title=${one.name}>${one.name}</bdi>
      <span class="state">${bad ? one.error : busy ? `${part} % of ${bytes(one.size)}` : bytes(one.size)}</span></span>
    ${one.state === "broken" && html`<button type="button" class="link small" onClick=${() => again(one.id)}>Try again<span class="off-screen">: ${one.name}</span></button>`}
    <button type="button" class="quiet small remove" aria-label=${`Remove ${one.name}`} title="Remove" onClick=${() => onRemove(one.id)}><${Icon} name="cross" /></button>
    ${busy && html`<progress max="100" value=${part} aria-label=${`Upload of ${one.name}`}></progress>`}
  </li>`;
}
