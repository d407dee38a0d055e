/** Conversation of the shown session: a window of its entries, the activity line, the composer. */
import { loadOlder, readingUp, show, tell } from "../actions.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { conversation, goToWaiting, wanted } from "../keys.js";
import { waitingIn } from "../session_tree.js";
import { onCopyClick } from "../markdown.js";
import { lowerBound } from "../rows.js";
import { Anchor } from "../scroll.js";
import {
  commands,
  connection,
  current,
  currentLine,
  drawerOpen,
  kin,
  me,
  outbox,
  sessionState,
  sessions,
  waitingBelow,
  waitingTotal,
  wide,
} from "../state.js";
import { Activity, Composer, ReadOnly } from "./composer.js";
import { EntryView, PendingView } from "./entry.js";
import { Icon } from "./icons.js";
import { ConnectionBar } from "./overlays.js";
import { Badge } from "./components.js";

/** Entries drawn at the end of a conversation, drawn at most, and by how many the window moves. */
const TAIL = 120;
const MOST = 280;
const SLIDE = 80;

/** @param {import("../types.js").Entry[]} entries @param {number|null} from  ord of the first one drawn; null = the end */
export function windowOf(entries, from) {
  const start = from === null ? Math.max(0, entries.length - TAIL) : lowerBound(entries, from);
  return { start, end: from === null ? entries.length : Math.min(entries.length, start + MOST) };
}

export function Chat() {
  const id = current.value;
  return html`<main class="chat">
    <${TopBar} />
    ${id ? html`<${Conversation} key=${id} id=${id} />` : html`<div class="scroller"><p class="empty muted" role="status">${connection.value.state === "offline" ? "Your sessions appear when the connection is back." : "Loading your sessions…"}</p></div>`}
  </main>`;
}

function TopBar() {
  const line = currentLine.value;
  const others = waitingTotal.value - (line ? waitingIn(kin.value, line) : 0);
  const parent = kin.value.byId.get(line?.lineage?.parent ?? "");
  return html`<header class="top">
    ${
      !wide.value &&
      html`<button type="button" class="quiet menu" aria-label="Sessions" aria-expanded=${drawerOpen.value} aria-controls="sessions" onClick=${() => (drawerOpen.value = true)}>
      <${Icon} name="menu" />${others > 0 && html`<span class="dot" title="Another session waits for a decision"></span>`}</button>`
    }
    ${parent && html`<button type="button" class="link crumb" data-testid="to-parent" aria-label=${`Back to ${titleOf(parent)}, which spawned this`} onClick=${() => show(parent.id)}>${titleOf(parent)}</button><span class="muted" aria-hidden="true">/</span>`}
    <h1>${line ? line.title || "Main" : "Dragoman"}</h1>
    ${line && (line.id === me.value.main ? html`<span class="badge" data-origin="main">main</span>` : html`<${Badge} channel=${line.channel} origin=${line.origin} />`)}
    <${ConnectionBar} />
  </header>`;
}

/** @param {import("../types.js").SessionLine} line */
const titleOf = (line) => line.title || (line.id === me.value.main ? "Main" : line.id);

/** @param {{id: string}} props */
function Conversation({ id }) {
  const state = sessionState(id);
  const main = id === me.value.main;
  const scroller = useRef(/** @type {any} */ (null));
  const content = useRef(/** @type {any} */ (null));
  /** @type {{current: Anchor}} */
  const anchor = useRef(/** @type {any} */ (null));
  const [from, setFrom] = useState(/** @type {number|null} */ (null));
  const [atEnd, setAtEnd] = useState(true);
  const entries = state.entries.value;
  const shown = windowOf(entries, from);
  const view = useRef(/** @type {any} */ (null));
  view.current = { entries, from, ...shown };

  useEffect(() => {
    anchor.current = new Anchor(scroller.current, content.current, {
      top: () => slideUp(id, view.current, setFrom),
      bottom: () => slideDown(view.current, setFrom),
      end: (reached) => onEnd(id, reached, view.current, setFrom, setAtEnd),
    });
    return () => {
      anchor.current.end();
      readingUp.delete(id);
    };
  }, [id]);
  useLayoutEffect(() => anchor.current?.settle());
  useEffect(() => {
    conversation.toWaiting = () => showCard(state, view.current.from, setFrom, anchor);
    // Repeated with each page of older rows, until the card arrives or is decided.
    if (wanted.session === id && state.store.loaded && !state.loadingOlder.value) {
      wanted.session = "";
      conversation.toWaiting();
    }
  });
  const pending = main ? outbox.value.filter((/** @type {any} */ item) => !item.shown) : [];
  const toEnd = () => {
    setFrom(null);
    requestAnimationFrame(() => anchor.current?.toEnd());
  };

  return html`<div class="scroller" ref=${scroller} tabindex="0" role="region" aria-label="Conversation" onClick=${onCopyClick}>
      <div class="column" ref=${content}>
        <${Beginning} state=${state} reached=${shown.start === 0} empty=${entries.length + pending.length === 0} />
        ${entries.slice(shown.start, shown.end).map((entry) => html`<${EntryView} key=${entry.key} entry=${entry} session=${id} mine=${main} />`)}
        ${shown.end === entries.length && pending.map((/** @type {any} */ item) => html`<${PendingView} key=${item.id} item=${item} />`)}
      </div>
    </div>
    <div class="bottom">
      ${!atEnd && html`<button type="button" class="to-end" onClick=${toEnd}><${Icon} name="down" />Newest</button>`}
      <${Activity} onShowWaiting=${goToWaiting} />
      ${main ? html`<${Composer} onSent=${toEnd} />` : html`<${ReadOnly} />`}
    </div>`;
}

/** @param {string} id @param {any} view @param {(from: number|null) => void} setFrom */
function slideUp(id, view, setFrom) {
  if (view.start > 0 && view.entries.length) setFrom(view.entries[Math.max(0, view.start - SLIDE)].ord);
  else loadOlder(id);
}

/** @param {any} view @param {(from: number|null) => void} setFrom */
function slideDown(view, setFrom) {
  if (view.end < view.entries.length) setFrom(view.entries[Math.min(view.entries.length - 1, view.start + SLIDE)].ord);
}

/** Moves the window with new entries at the end; elsewhere it stays. @param {string} id @param {boolean} reached @param {any} view @param {(from: number|null) => void} setFrom @param {(at: boolean) => void} setAtEnd */
function onEnd(id, reached, view, setFrom, setAtEnd) {
  const last = reached && view.end === view.entries.length;
  setAtEnd(last);
  if (last) {
    readingUp.delete(id);
    if (view.from !== null && view.end - view.start > TAIL) setFrom(null);
  } else {
    readingUp.add(id);
    if (view.from === null && view.entries.length) setFrom(view.entries[view.start].ord);
  }
}

/** Returns the entry that contains a sub-session or its descendant. @param {import("../state.js").SessionState} state @param {string} session */
function entryAbove(state, session) {
  let line = kin.value.byId.get(session);
  while (line?.lineage && line.lineage.parent !== state.id) line = kin.value.byId.get(line.lineage.parent);
  const from = line?.lineage;
  return from && state.entries.value.find(({ step }) => step && step.turn === from.turn && step.n === from.n);
}

/** Returns the longest-waiting card and its entry. @param {import("../state.js").SessionState} state */
function oldestCard(state) {
  const own = state.waiting.value.map((entry) => ({ entry, row: entry.row }));
  const theirs = waitingBelow.value.map(({ row, session }) => ({ entry: entryAbove(state, session), row }));
  return [...own, ...theirs]
    .filter((card) => card.entry)
    .sort((a, b) => Date.parse(a.row.opened_at) - Date.parse(b.row.opened_at))[0];
}

/**
 * Shows and focuses the oldest waiting card, here or in a sub-session; requests older rows if it is not loaded.
 * @param {import("../state.js").SessionState} state @param {number|null} from @param {(from: number|null) => void} setFrom @param {{current: Anchor}} anchor
 */
function showCard(state, from, setFrom, anchor) {
  const card = oldestCard(state);
  if (!card) {
    const line = sessions.value.find((/** @type {any} */ item) => item.id === state.id);
    if (!line?.waiting || !loadOlder(state.id)) return false;
    wanted.session = state.id;
    tell("Looking for the card further up…");
    return true;
  }
  // The newest entries, not those of the last drawing: rows may have come since.
  const entries = state.entries.value;
  const { start, end } = windowOf(entries, from);
  const at = entries.findIndex((entry) => entry.key === card.entry?.key);
  anchor.current.jumping = true;
  if (at < start || at >= end) setFrom(entries[Math.max(0, at - 20)].ord);
  focusCard(card.row.id, anchor, 10);
  return true;
}

/** Drawing may take a frame or two. @param {string} id @param {{current: Anchor}} anchor @param {number} tries */
function focusCard(id, anchor, tries) {
  requestAnimationFrame(() => {
    const el = document.querySelector(`[data-card="${CSS.escape(id)}"]`);
    if (!(el instanceof HTMLElement) && tries > 0) return focusCard(id, anchor, tries - 1);
    if (el instanceof HTMLElement) el.focus({ preventScroll: true });
    anchor.current?.show(el);
  });
}

/** Line above the first entry: loading older ones, or the start of the session. @param {{state: any, reached: boolean, empty: boolean}} props */
function Beginning({ state, reached, empty }) {
  state.version.value;
  if (!state.store.loaded)
    return html`<p class="empty muted" role="status">${connection.value.state === "offline" ? "This conversation appears when the connection is back." : "Loading the conversation…"}</p>`;
  if (empty && !state.store.removed) return html`<${Empty} main=${state.id === me.value.main} />`;
  if (!reached && !empty) return null;
  if (!state.store.more)
    return html`<p class="beginning muted small" data-testid="beginning">${state.store.removed ? "Older messages were removed: this gateway keeps only a part of each conversation." : "The conversation begins here."}</p>`;
  return html`<p class="beginning muted small"><button type="button" class="link" onClick=${() => loadOlder(state.id)}>${state.loadingOlder.value ? "Loading older messages…" : "Load older messages"}</button></p>`;
}

/** @param {{main: boolean}} props */
function Empty({ main }) {
  if (!main) return html`<p class="empty muted">Nothing was said here yet.</p>`;
  const model = me.value.model;
  const tries = commands.value
    .filter((/** @type {any} */ item) => !["stop", "new", "approvals"].includes(item.name))
    .slice(0, 4);
  return html`<div class="empty">
    <h2>Nothing here yet</h2>
    <p class="muted">${model === "operator" ? "No model is attached, so you drive the tools yourself: write / and choose a command." : "Write a message below, or / for the commands you may use."}</p>
    <p class="tries">${tries.map((/** @type {any} */ item) => html`<button type="button" key=${item.name} class="chip" onClick=${() => conversation.focusComposer(`/${item.name} `)}>/${item.name}</button>`)}</p>
  </div>`;
}
