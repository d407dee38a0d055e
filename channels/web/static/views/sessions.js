/** The list of sessions, and under it who is signed in, the theme and the way out. */
import { show, signOut } from "../actions.js";
import { html, useState } from "../html.js";
import { setTheme, theme } from "../keep.js";
import { current, helpOpen, me, sessions, sortedSessions, wide, drawerOpen } from "../state.js";
import { Icon } from "./icons.js";
import { Badge, Time } from "./parts.js";

const ORIGINS = { direct: "", group: "group", thread: "thread", child: "", timer: "timer", hook: "hook" };
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
      ${sortedSessions.value.map((/** @type {any} */ line) => html`<li key=${line.id}><${Line} line=${line} /></li>`)}
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
        ? html`<span class="count" title="Cards that wait for a decision"><span class="dot" aria-hidden="true"></span>${line.waiting}<span class="off-screen"> waiting for a decision</span></span>`
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

function Footer() {
  return html`<div class="side-foot">
    <div class="me"><span class="who" title=${me.value.model ? `Model: ${me.value.model}` : ""}>${me.value.owner || "…"}</span><span class="muted small">${me.value.model}</span></div>
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
