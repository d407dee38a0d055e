/** Message composer: command completion, stored draft, Enter to send. */
import { say, show, stop, takeFiles, tell } from "../actions.js";
import { direction, plural } from "../format.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { loadDraft, saveDraft } from "../storage.js";
import { conversation, isComposing } from "../keys.js";
import { liveBelow } from "../session_tree.js";
import { added, commands, connection, current, currentLine, kin, me, outbox, sessionState, shortcuts, waitingBelow } from "../state.js";
import { AddFiles, DropZone, onPaste } from "./files.js";
import { Icon } from "./icons.js";

/** Offers shown at once. */
const OFFERS = 8;

/** Commands that fit what was typed after "/": those that begin with it first. @param {string} text @returns {import("../types.js").Command[]} */
export function offersFor(text) {
  const typed = /^\/(\S*)$/.exec(text)?.[1].toLowerCase();
  if (typed === undefined) return [];
  const rank = (/** @type {import("../types.js").Command} */ item) =>
    item.name.startsWith(typed) ? 0 : item.name.includes(typed) ? 1 : 2;
  return commands.value
    .filter((/** @type {any} */ item) => rank(item) < 2)
    .sort((/** @type {any} */ a, /** @type {any} */ b) => rank(a) - rank(b) || a.name.localeCompare(b.name))
    .slice(0, OFFERS);
}

/** Returns the typed command, once its name is complete. @param {string} text */
const begun = (text) => commands.value.find((/** @type {any} */ item) => text.startsWith(`/${item.name} `)) ?? null;

/** Returns the person's last message in the main session, except one sent by the Stop button. */
function lastMessage() {
  const written = (/** @type {any} */ item) => item.text !== "/stop";
  const sent = outbox.value.findLast(written);
  if (sent) return sent.text;
  const row = sessionState(me.value.main).store.list.findLast(
    (item) => item.type === "message" && item.role === "person" && written(item),
  );
  return row && row.type === "message" ? row.text : "";
}

/** True if every file of the message is there. */
const allReady = () => added.value.every((one) => one.state === "ready");
/** True while an upload is under way. */
const underWay = () => added.value.some((one) => one.state === "waiting" || one.state === "uploading");

/** @param {{onSent: () => void}} props */
export function Composer({ onSent }) {
  const owner = me.value.owner;
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const [closed, setClosed] = useState(false);
  const [wanted, setWanted] = useState(false);
  const ref = useRef(/** @type {any} */ (null));
  const files = added.value;
  const [chips, setChips] = useState(/** @type {any} */ (null));
  const offers = closed ? [] : offersFor(text);

  useEffect(() => setText(loadDraft(owner)), [owner]);
  useEffect(() => {
    conversation.focusComposer = (start) => {
      ref.current?.focus();
      const draft = ref.current.value;
      if (start === "/") change(draft || "/");
      else if (start) change(draft && !start.endsWith(" ") ? `${start}\n\n${draft}` : start + draft);
    };
  });
  useLayoutEffect(() => {
    const box = ref.current;
    box.style.height = "auto";
    box.style.height = `${Math.min(box.scrollHeight, 200)}px`;
  }, [text]);

  const change = (/** @type {string} */ value) => {
    setText(value);
    setChosen(0);
    setClosed(false);
    saveDraft(owner, value);
  };
  const send = () => {
    const clean = text.trim();
    if (!clean && !files.length) return;
    if (!allReady()) {
      if (!underWay()) tell("A file is not there: try it again, or remove it.");
      return setWanted(underWay());
    }
    setWanted(false);
    say(clean, takeFiles());
    change("");
    onSent();
  };
  useEffect(() => {
    if (files.length && !chips) import("./chips.js").then(({ Chips }) => setChips(() => Chips));
  }, [files.length]);
  useEffect(() => {
    if (!wanted) return;
    if (files.length && (allReady() || !underWay())) send();
    else if (!files.length) setWanted(false);
  }, [wanted, files]);
  const complete = (/** @type {import("../types.js").Command} */ item) => {
    change(`/${item.name} `);
    ref.current.focus();
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (isComposing(event)) return;
    if (offers.length > 0 && offerKey(event)) return event.preventDefault();
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      send();
    } else if (event.key === "ArrowUp" && !text) {
      event.preventDefault();
      change(lastMessage());
    } else if (event.key === "Escape") {
      event.preventDefault();
      ref.current.blur();
    }
  };
  /** @param {KeyboardEvent} event @returns {boolean} whether the list of offers took the key */
  const offerKey = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key] ?? 0;
    if (by) setChosen((chosen + by + offers.length) % offers.length);
    else if (event.key === "Escape") setClosed(true);
    else if (event.key === "Tab" && !event.shiftKey) complete(offers[chosen]);
    else if (event.key === "Enter" && !event.shiftKey && text !== `/${offers[chosen].name}`) complete(offers[chosen]);
    else return false;
    return true;
  };
  const hint = begun(text);

  return html`<form class="composer" onPaste=${onPaste} onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), send())}>
    ${offers.length > 0 && html`<${Offers} offers=${offers} chosen=${chosen} onPick=${complete} />`}
    ${hint && html`<p class="usage" id="usage"><code>${hint.usage}</code><span>${hint.about}</span></p>`}
    <div class="field">
      ${chips && html`<${chips} onEmpty=${() => ref.current.focus()} />`}
      ${wanted && html`<p class="small muted sends" role="status">Sent as soon as the files are there. <button type="button" class="link" onClick=${() => setWanted(false)}>Wait</button></p>`}
      <${DropZone} place=${ref} />
      <${AddFiles} />
      <textarea ref=${ref} rows="1" data-testid="composer" value=${text} dir=${direction(text)} enterkeyhint="send" autocomplete="off"
        aria-label="Message to Dragoman" aria-autocomplete="list" aria-haspopup="listbox" aria-controls=${offers.length ? "offers" : undefined}
        aria-activedescendant=${offers.length ? `offer-${offers[chosen].name}` : undefined} aria-describedby=${hint ? "usage" : undefined}
        placeholder=${connection.value.state === "offline" ? "Write on, it is sent later" : "Message or /command"}
        onInput=${(/** @type {any} */ event) => change(event.target.value)} onKeyDown=${onKeyDown}></textarea>
      <button type="submit" class="send" data-testid="send" aria-label="Send" title="Send (Enter)" aria-disabled=${!text.trim() && !files.length}><${Icon} name="send" /></button>
    </div>
  </form>`;
}

/** @param {{offers: import("../types.js").Command[], chosen: number, onPick: (item: any) => void}} props */
function Offers({ offers, chosen, onPick }) {
  const list = useRef(/** @type {any} */ (null));
  useEffect(() => list.current?.children[chosen]?.scrollIntoView({ block: "nearest" }), [chosen]);
  return html`<ul class="offers" id="offers" role="listbox" aria-label="Commands" ref=${list}>
    ${offers.map(
      (item, i) => html`<li key=${item.name} id=${`offer-${item.name}`} role="option" aria-selected=${i === chosen}
        onPointerDown=${(/** @type {Event} */ event) => event.preventDefault()} onClick=${() => onPick(item)}>
        <code>${item.usage}</code><span>${item.about}</span></li>`,
    )}
  </ul>`;
}

/** Footer of another session, which is read-only here. */
export function ReadOnly() {
  const line = currentLine.value;
  return html`<div class="read-only" role="note">
    <span>Reading ${line?.lineage ? "a sub-session" : line ? html`<b>${line.title}</b>` : "another session"}. You write in main.</span>
    <button type="button" class="link" onClick=${() => show(me.value.main)}>Back to main</button>
  </div>`;
}

/** Activity of the session, in a line of fixed height, so that nothing moves. @param {{onShowWaiting: () => void}} props */
export function Activity({ onShowWaiting }) {
  const state = sessionState(current.value);
  const turns = state.active.value;
  const below = liveBelow(kin.value, current.value).length;
  const running = turns.find((turn) => turn.type === "turn" && ["running", "stopping"].includes(turn.state));
  const queued = turns.filter((turn) => turn.type === "turn" && turn.state === "queued").length;
  const line = currentLine.value;
  const cards = (state.waiting.value.length || line?.waiting || 0) + waitingBelow.value.length;
  const main = current.value === me.value.main;
  const words = running
    ? /** @type {any} */ (running).state === "stopping"
      ? "Stopping…"
      : "Working…"
    : queued
      ? "Queued: it starts as soon as a place is free"
      : below
        ? `${plural(below, "sub-session")} at work`
        : turns.length && !cards
          ? "Waiting"
          : "";
  return html`<div class="activity">
    <span class=${running ? "doing" : ""} role="status">${words}${running && queued ? ` ${queued} queued` : ""}</span>
    ${cards > 0 && html`<button type="button" class="waiting-chip" onClick=${onShowWaiting}><span class="dot" aria-hidden="true"></span>${cards === 1 ? "1 card waits" : `${cards} cards wait`} for you${shortcuts.value && html`<kbd>a</kbd>`}</button>`}
    ${main && (running || turns.length > 0 || below > 0) && html`<button type="button" class="quiet small stop" onClick=${stop}><${Icon} name="stop" />Stop${shortcuts.value && html`<kbd>.</kbd>`}</button>`}
  </div>`;
}
