/** List of sessions, with the owner, the theme and the sign-out below. */
import { fold, show, signOut } from "../actions.js";
import { plural } from "../format.js";
import { html, useState } from "../html.js";
import { setTheme, theme } from "../storage.js";
import { current, helpOpen, kin, me, sessions, sessionTree, wide, drawerOpen } from "../state.js";
import { Icon } from "./icons.js";
import { Badge, Time } from "./components.js";

const ORIGINS = { direct: "", group: "group", thread: "thread", child: "" };
const THEMES = /** @type {const} */ (["system", "light", "dark"]);
const THEME_WORDS = { system: "By the system", light: "Light", dark: "Dark" };
const THEME_ICONS = { system: "system", light: "sun", dark: "moon" };

export function Sessions() {
  const hidden = !wide.value && !drawerOpen.value;
  return html`<nav class=${drawerOpen.value ? "sidebar open" : "sidebar"} id="sessions" aria-label="Sessions" inert=${hidden}>
    <div class="brand"><img src="/static/icon.svg" alt="" width="24" height="24" /><b>Dragoman</b>
      ${!wide.value && html`<button type="button" class="quiet" aria-label="Close the list of sessions" onClick=${() => (drawerOpen.value = false)}><${Icon} name="cross" /></button>`}
    </div>
    <ul class="sessions">
      ${sessionTree.value.map((item) =>
        item.kind === "fold"
          ? html`<li key=${`fold:${item.parent}`} class="below" data-depth=${item.depth}><${Fold} item=${item} /></li>`
          : item.depth > 0
            ? html`<li key=${item.line.id} class="below" data-depth=${item.depth}><${ChildLine} line=${item.line} /></li>`
            : html`<li key=${item.line.id}><${Line} line=${item.line} /></li>`,
      )}
    </ul>
    ${sessions.value.length === 1 && html`<p class="muted small empty-note">Groups, threads and sub-sessions appear here when they begin.</p>`}
    <${Footer} />
  </nav>`;
}

/** @param {{line: import("../types.js").SessionLine}} props */
function Line({ line }) {
  const chosen = line.id === current.value;
  const main = line.id === me.value.main;
  const busy = line.running > 0 ? "working" : line.queued > 0 ? "queued" : "";
  return html`<button type="button" class="session" data-testid="session-item" data-session=${line.id} aria-current=${chosen ? "true" : undefined} onClick=${() => show(line.id)}>
    <span class="name">${main && !line.title ? "Main" : line.title || line.id}</span>
    ${
      line.waiting > 0
        ? html`<${Waiting} count=${line.waiting} />`
        : html`<span class="when"><${Time} at=${line.active_at} /></span>`
    }
    <span class="about">
      ${main ? html`<span class="badge" data-origin="main">main</span>` : html`<${Badge} channel=${line.channel} origin=${line.origin} />`}
      ${ORIGINS[line.origin] && html`<span>${ORIGINS[line.origin]}</span>`}
      ${line.kind === "dm" && html`<span>direct</span>`}
      ${busy && html`<span class=${busy}>${busy}</span>`}
    </span>
  </button>`;
}

/** @param {{count: number}} props */
const Waiting = ({ count }) =>
  html`<span class="count" title="Cards that wait for a decision"><span class="dot" aria-hidden="true"></span>${count}<span class="off-screen"> waiting for a decision</span></span>`;

/** Sub-session, below its parent. @param {{line: import("../types.js").SessionLine}} props */
function ChildLine({ line }) {
  const live = kin.value.live.has(line.id);
  const word = line.running > 0 ? "working" : line.queued > 0 ? "queued" : live ? "waits" : "";
  return html`<button type="button" class=${live ? "session of-child" : "session of-child ended"} data-testid="session-item" data-session=${line.id} aria-current=${line.id === current.value ? "true" : undefined} title=${line.title} onClick=${() => show(line.id)}>
    <span class="name">${line.title || line.id}</span>
    ${line.waiting > 0 ? html`<${Waiting} count=${line.waiting} />` : word ? html`<span class=${`about ${word}`}>${word}</span>` : html`<span class="when"><${Time} at=${line.active_at} /></span>`}
  </button>`;
}

/** @param {{item: import("../session_tree.js").FoldItem}} props */
function Fold({ item }) {
  return html`<button type="button" class="session of-child fold-line" data-testid="session-fold" aria-expanded=${item.open} onClick=${() => fold(item.parent)}>
    <span class="name"><${Icon} name=${item.open ? "down-small" : "chevron"} />${plural(item.count, "sub-session")} ended</span>
  </button>`;
}

function Footer() {
  return html`<div class="side-foot">
    <div class="me"><span class="who" title=${me.value.model ? `Model: ${me.value.model}` : ""}>${me.value.owner || "…"}</span><span class="muted small">${me.value.model}</span>${me.value.warning && html`<span class="muted small" data-testid="store-warning" title=${me.value.warning}>${me.value.warning}</span>`}</div>
    <${ThemeSwitch} />
    <button type="button" class="quiet" aria-label="Keyboard help" title="Help (?)" onClick=${() => (helpOpen.value = true)}><${Icon} name="help" /></button>
    <button type="button" class="quiet" aria-label="Sign out" title="Sign out" onClick=${signOut}><${Icon} name="leave" /></button>
  </div>`;
}

export function ThemeSwitch() {
  const [choice, setChoice] = useState(theme());
  const next = THEMES[(THEMES.indexOf(choice) + 1) % THEMES.length];
  const onClick = () => {
    setTheme(next);
    setChoice(next);
  };
  return html`<button type="button" class="quiet" data-testid="theme-switch" data-theme-choice=${choice} aria-label=${`Colours: ${THEME_WORDS[choice]}. Change to: ${THEME_WORDS[next]}`}
    title=${`Colours: ${THEME_WORDS[choice]}`} onClick=${onClick}><${Icon} name=${THEME_ICONS[choice]} /></button>`;
}
