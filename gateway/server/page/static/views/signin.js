/** Sign-in view: instructions, and the error of a failed attempt. */
import { boot, redeem } from "../actions.js";
import { html, useRef } from "../html.js";
import { auth, signIn } from "../state.js";
import { Icon } from "./icons.js";
import { ThemeSwitch } from "./sessions.js";

/** The same address as in the page's head, so that it is loaded once. */
const ICON = new URL("../icon.svg", import.meta.url).pathname;

/** Returns the code in a pasted text: a whole link or the code alone. @param {string} text */
const codeIn = (text) => /#code=([^\s]+)/.exec(text)?.[1] ?? text.trim();

export function SignIn() {
  return html`<main class="signin" data-testid="signin">
    <div class="panel">
      <img src=${ICON} alt="" width="48" height="48" />
      ${auth.value === "checking" ? html`<h1>Dragoman</h1><p class="muted" role="status">Looking for your sign-in…</p>` : auth.value === "unreachable" ? html`<${Unreachable} />` : html`<${Steps} />`}
    </div>
    <${ThemeSwitch} />
  </main>`;
}

function Unreachable() {
  return html`<h1>The server does not answer</h1>
    <p role="alert">Check that Dragoman runs (<code>dragoman check</code> shows it) and that this device reaches it, then try again.</p>
    <button type="button" class="verb once" onClick=${boot}>Try again</button>`;
}

function Steps() {
  const ref = useRef(/** @type {any} */ (null));
  const { busy, error } = signIn.value;
  const onSubmit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const code = codeIn(ref.current.value);
    if (code && !busy) redeem(code);
    ref.current.value = "";
  };
  return html`<h1>Sign in to Dragoman</h1>
    ${error && html`<p class="problem" role="alert"><${Icon} name="warn" />${error}</p>`}
    <ol>
      <li>On the machine that runs Dragoman, run <code>dragoman link</code> (in a clone: <code>./run link</code>)</li>
      <li>Open the link it prints in this browser. It works once, and only for a short time.</li>
    </ol>
    <form onSubmit=${onSubmit}>
      <label for="code">Or paste the link</label>
      <div class="row"><input id="code" ref=${ref} type="text" autocomplete="off" autocapitalize="off" spellcheck="false" placeholder="http://…/#code=…" />
      <button type="submit" class="verb once" aria-disabled=${busy}>${busy ? "Signing in…" : "Sign in"}</button></div>
    </form>`;
}
