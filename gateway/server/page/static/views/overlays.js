/** Overlays: connection state, keyboard help, notices; `tell` in actions.js shows a notice, for `NOTICE_MS`. */
import { retryNow } from "../actions.js";
import { html, useEffect, useState } from "../html.js";
import { assertive, connection, helpOpen, now, outbox, polite, toast } from "../state.js";

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

/** Keyboard help. Loaded when it is first wanted: the page stays small. */
export function Help() {
  const [found, setFound] = useState(/** @type {any} */ (null));
  const open = helpOpen.value;
  useEffect(() => void (open && !found && import("./help.js").then(setFound)), [open]);
  return found && html`<${found.Keyboard} />`;
}

export function Notices() {
  return html`<div class="toast" role="status" hidden=${!toast.value}>${toast.value}</div>
    <div class="off-screen" aria-live="polite">${polite.value}</div>
    <div class="off-screen" aria-live="assertive" role="alert">${assertive.value}</div>`;
}
