/** The page's entry module: checks the sign-in, renders the views, starts the clock and the keyboard. Nothing imports it. */
import { boot, redeem, takeCode, wake } from "./actions.js";
import { effect, html, render } from "./html.js";
import { onKey } from "./keys.js";
import {
  auth,
  connection,
  current,
  currentLine,
  drawerOpen,
  inspected,
  kin,
  now,
  sessionState,
  waitingTotal,
  wide,
} from "./state.js";
import { Chat } from "./views/chat.js";
import { Inspector } from "./views/inspector.js";
import { Help, Notices } from "./views/overlays.js";
import { Sessions } from "./views/sessions.js";
import { SignIn } from "./views/signin.js";

function App() {
  if (auth.value !== "in") return html`<${SignIn} />`;
  const covered = !wide.value && (drawerOpen.value || Boolean(inspected.value));
  return html`<div class=${inspected.value ? "room inspecting" : "room"}>
    <${Sessions} />
    ${drawerOpen.value && !wide.value && html`<div class="backdrop" onClick=${() => (drawerOpen.value = false)}></div>`}
    <div class="middle" inert=${covered}><${Chat} /></div>
    <${Inspector} />
    <${Help} />
    <${Notices} />
  </div>`;
}

/** Ticks each second while something counts (a card, a run, the next attempt), else every 20 s. */
function startClock() {
  let last = 0;
  setInterval(() => {
    const counting =
      connection.value.state === "offline" ||
      kin.value.live.size > 0 ||
      (current.value && sessionState(current.value).active.value.length > 0);
    if (document.hidden || (!counting && Date.now() - last < 20_000)) return;
    last = Date.now();
    now.value = last;
  }, 1000);
}

/** The keyboard of a phone takes its room from the page, so the composer stays above it. */
function followViewport() {
  const viewport = window.visualViewport;
  if (!viewport) return;
  const fit = () => viewport.scale < 1.01 && document.documentElement.style.setProperty("--vh", `${viewport.height}px`);
  viewport.addEventListener("resize", fit);
  fit();
}

effect(() => {
  const waiting = waitingTotal.value;
  const line = currentLine.value;
  document.title = `${waiting ? `(${waiting}) ` : ""}${line?.title ? `${line.title} · ` : ""}Dragoman`;
});
addEventListener("keydown", onKey);
addEventListener("hashchange", () => {
  const code = takeCode();
  if (code) redeem(code);
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  now.value = Date.now();
  wake();
});

// A line may die without a word while somebody reads.
setInterval(() => document.hidden || wake(), 60_000);

followViewport();
startClock();
const root = document.getElementById("app");
if (root) render(html`<${App} />`, root);
boot();
