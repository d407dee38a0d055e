/** Small components that several views share: times, badges of origin, Markdown, foldable output. */
import { bytes, channelName, exactTime, plural, relativeTime, withoutEscapes } from "../format.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { renderMarkdown, writer } from "../markdown.js";
import { keyHeader } from "../storage.js";
import { now } from "../state.js";

/** Relative, exact on hover. @param {{at: string|null}} props */
export function Time({ at }) {
  if (!at) return null;
  return html`<time datetime=${at} title=${exactTime(at)}>${relativeTime(at, now.value)}</time>`;
}

/** Badge of origin. @param {{channel: string, origin?: string}} props */
export function Badge({ channel, origin }) {
  const child = origin === "child";
  const words = child ? "child" : channelName(channel);
  return html`<span class="badge" data-origin=${child ? "child" : channel}>${words}</span>`;
}

/** Complete answer. @param {{text: string, class?: string}} props */
export function Markdown({ text, class: extra }) {
  const ref = useRef(/** @type {any} */ (null));
  useLayoutEffect(() => renderMarkdown(ref.current, text), [text]);
  return html`<div class=${`markdown ${extra ?? ""}`} ref=${ref}></div>`;
}

/** Streaming answer: only new text is added, once a frame, unless it restarted. @param {{source: any}} props  signal of {text} */
export function LiveMarkdown({ source }) {
  const ref = useRef(/** @type {any} */ (null));
  useEffect(() => {
    const root = ref.current;
    let out = writer(root);
    let written = "";
    let frame = 0;
    const flush = () => {
      frame = 0;
      const { text } = source.peek();
      if (!text.startsWith(written)) {
        root.replaceChildren();
        out = writer(root);
        written = "";
      }
      if (text.length > written.length) out.write(text.slice(written.length));
      written = text;
    };
    const stop = source.subscribe(() => {
      if (!frame) frame = requestAnimationFrame(flush);
    });
    return () => {
      stop();
      cancelAnimationFrame(frame);
    };
  }, [source]);
  return html`<div class="markdown live" ref=${ref}></div>`;
}

/** Lines shown of an output before it is folded. */
const FOLD = 12;

/** Output of a call: the first lines, all on demand. @param {{text: string, full: string|null, dropped: number}} props */
export function Output({ text, full, dropped }) {
  const [open, setOpen] = useState(false);
  const lines = withoutEscapes(text).replace(/\n$/, "").split("\n");
  const long = lines.length > FOLD + 2;
  const shown = open || !long ? lines : lines.slice(0, FOLD);
  const size = bytes(new Blob([text]).size + dropped);
  return html`<div class="output" data-testid="output">
    ${text && html`<pre tabindex="0" aria-label="Output">${shown.join("\n")}</pre>`}
    ${
      (long || full) &&
      html`<div class="fold">
      ${
        long &&
        html`<button type="button" class="link" aria-expanded=${open} onClick=${() => setOpen(!open)}>
        ${open ? "Show less" : `Show ${plural(lines.length - FOLD, "more line")}`}
      </button>`
      }
      <span class="muted">${plural(lines.length, "line")}${dropped > 0 ? " of head and tail" : ""}, ${size}</span>
      ${full && html`<${Download} from=${full} />`}
    </div>`
    }
  </div>`;
}

/** Fetches a file with this page's key, which a plain link could not carry. @param {{from: string, name?: string}} props  `name`: file name for saving */
export function Download({ from, name }) {
  const [failed, setFailed] = useState(false);
  const fetchIt = async () => {
    const answer = await fetch(from, { headers: keyHeader() }).catch(() => null);
    setFailed(!answer?.ok);
    if (!answer?.ok) return;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = name ?? `${from.split("/").slice(-2).join("-")}.txt`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  };
  return html`<button type="button" class="link" data-testid="download" onClick=${fetchIt}>
    ${failed ? "Not downloaded; try again" : name ? `Download ${name}` : "Download all of it"}
  </button>`;
}

/** Picture from a call, fetched with this page's key when it is about to be visible. @param {{from: string}} props */
export function Picture({ from }) {
  const [near, setNear] = useState(false);
  const [shown, setShown] = useState({ url: "", failed: false });
  const place = useRef(/** @type {any} */ (null));
  useEffect(() => {
    // Equivalent of `loading="lazy"`: a session may have hundreds of pictures, and most are never seen.
    const watch = new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && setNear(true), { rootMargin: "600px" });
    if (place.current) watch.observe(place.current);
    return () => watch.disconnect();
  }, [from]);
  useEffect(() => {
    if (!near) return undefined;
    let url = "";
    let gone = false;
    const fetchIt = async () => {
      const answer = await fetch(from, { headers: keyHeader() }).catch(() => null);
      const blob = answer?.ok ? await answer.blob().catch(() => null) : null;
      if (gone) return;
      if (blob) url = URL.createObjectURL(blob);
      setShown({ url, failed: !blob });
    };
    fetchIt();
    return () => {
      gone = true;
      URL.revokeObjectURL(url);
    };
  }, [from, near]);
  if (shown.failed) return html`<p class="hint">The picture is not there any more.</p>`;
  if (!shown.url) return html`<div class="result-picture later" ref=${place} data-testid="picture-later" aria-hidden="true"></div>`;
  return html`<img class="result-picture" data-testid="picture" loading="lazy" src=${shown.url} alt="Picture that the call made" />`;
}

/** Streaming output; its end stays visible unless the person scrolled. @param {{source: any}} props  signal of {text} */
export function LiveOutput({ source }) {
  const ref = useRef(/** @type {any} */ (null));
  const { text } = source.value;
  useLayoutEffect(() => {
    const box = ref.current;
    if (box && box.scrollHeight - box.scrollTop - box.clientHeight < 80) box.scrollTop = box.scrollHeight;
  }, [text]);
  return html`<div class="output live" data-testid="output">
    <pre ref=${ref} tabindex="0" aria-label="Output so far">${withoutEscapes(text) || "no output yet"}</pre>
  </div>`;
}
