/** Files of messages, and the ways to add some: a button, drop and paste. */
import { addFiles } from "../actions.js";
import { bytes } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { Icon } from "./icons.js";

/** Loaded with the first recording: the page stays small. @param {{from: string, name: string}} props */
export function Player(props) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  useEffect(() => void import("./player.js").then(setFound), []);
  return found && html`<${found.Player} ...${props} />`;
}

/** @param {{name: string, size?: number, path?: string, trouble?: string, audio?: string|null}} props  file of a message */
export function FileChip({ name, size, path, trouble, audio }) {
  return html`<span class=${trouble ? "file-chip bad" : "file-chip"} data-testid="attached"><${Icon} name=${trouble ? "warn" : "file"} />
    <bdi class="name" title=${name}>${name}</bdi>${size ? html`<span class="muted">${bytes(size)}</span>` : null}${path && html`<code class="muted">${path}</code>`}${trouble && html`<span class="why">${trouble}</span>`}</span>${audio && html`<${Player} from=${audio} name=${name} />`}`;
}

/** The paperclip. */
export function AddFiles() {
  const input = useRef(/** @type {any} */ (null));
  return html`<button type="button" class="add quiet" data-testid="add-files" aria-label="Add files" title="Add files; or drop or paste them" onClick=${() => input.current.click()}><${Icon} name="clip" /></button>
    <input ref=${input} type="file" multiple hidden data-testid="file-input" onChange=${(/** @type {any} */ event) => (addFiles([...event.target.files]), (event.target.value = ""))} />`;
}

/** Adds the pictures and files of a paste; a text that comes with them goes first. @param {ClipboardEvent} event */
export function onPaste(event) {
  const files = [...(event.clipboardData?.files ?? [])];
  if (!files.length || event.clipboardData?.getData("text/plain")) return;
  event.preventDefault();
  addFiles(files);
}

/** Takes files that are dropped on the conversation, and says so while they hang over it. @param {{place: {current: any}}} props */
export function DropZone({ place }) {
  const [over, setOver] = useState(false);
  useEffect(() => {
    const chat = place.current?.closest(".chat");
    if (!chat) return;
    let leaving = 0;
    const hasFiles = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files");
    const onOver = (/** @type {DragEvent} */ event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      clearTimeout(leaving);
      setOver(true);
    };
    // Each element that the pointer leaves tells it; the next one takes it back.
    const onLeave = () => (leaving = setTimeout(() => setOver(false), 80));
    const onDrop = (/** @type {DragEvent} */ event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(false);
      addFiles([...(event.dataTransfer?.files ?? [])]);
    };
    chat.addEventListener("dragover", onOver);
    chat.addEventListener("dragleave", onLeave);
    chat.addEventListener("drop", onDrop);
    return () => {
      chat.removeEventListener("dragover", onOver);
      chat.removeEventListener("dragleave", onLeave);
      chat.removeEventListener("drop", onDrop);
    };
  }, []);
  return over && html`<div class="drop" data-testid="drop" aria-hidden="true"><span><${Icon} name="clip" />Drop files to add them to your message</span></div>`;
}
