/**
 * From an answer's Markdown to elements, while it streams and when it is whole.
 *
 * Safe twice: the renderer makes only the elements named here and sets only checked addresses, and a finished answer passes
 * DOMPurify with the same list. Markdown's raw HTML stays text. Nothing is loaded from another host.
 */
import * as smd from "./vendor/streaming-markdown.js";
import DOMPurify from "./vendor/dompurify.js";

/** @type {Record<number, string>} */
const TAGS = {
  [smd.PARAGRAPH]: "p",
  [smd.HEADING_1]: "h3",
  [smd.HEADING_2]: "h4",
  [smd.HEADING_3]: "h5",
  [smd.HEADING_4]: "h6",
  [smd.HEADING_5]: "h6",
  [smd.HEADING_6]: "h6",
  [smd.CODE_INLINE]: "code",
  [smd.ITALIC_AST]: "em",
  [smd.ITALIC_UND]: "em",
  [smd.STRONG_AST]: "strong",
  [smd.STRONG_UND]: "strong",
  [smd.STRIKE]: "s",
  [smd.LINK]: "a",
  [smd.RAW_URL]: "a",
  [smd.IMAGE]: "span",
  [smd.BLOCKQUOTE]: "blockquote",
  [smd.LINE_BREAK]: "br",
  [smd.RULE]: "hr",
  [smd.LIST_UNORDERED]: "ul",
  [smd.LIST_ORDERED]: "ol",
  [smd.LIST_ITEM]: "li",
  [smd.TABLE]: "table",
  [smd.EQUATION_BLOCK]: "code",
  [smd.EQUATION_INLINE]: "code",
};
const ALLOWED_TAGS = [
  ...new Set([
    ...Object.values(TAGS),
    "pre",
    "figure",
    "figcaption",
    "button",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "img",
    "div",
    "#text",
  ]),
];
const ALLOWED_ATTR = [
  "href",
  "src",
  "alt",
  "title",
  "rel",
  "target",
  "class",
  "dir",
  "start",
  "type",
  "aria-label",
  "tabindex",
  "role",
];
/** Allowed attribute values: a URL with one of these schemes, or a value without a scheme. */
const ADDRESSES = /^(?!\/\/)(?:(?:https?|mailto):|data:image\/(?:png|jpeg|gif|webp);|[^:\\]*$)/i;
const LINKS = /^(?:https?:|mailto:)/i;
/** Allowed picture URLs: of this server, or inline data. */
const PICTURES = /^(?:\/(?!\/)[^\\]*|data:image\/(?:png|jpeg|gif|webp);base64,[a-z0-9+/=]+)$/i;

/** @param {string} tag @param {string} [className] */
function make(tag, className) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  return element;
}

/**
 * The web address that a text begins with. It ends before a space, a quote, the punctuation of a text in Chinese or Japanese,
 * a bracket that it did not open, and does not have the sentence's own punctuation at its end.
 * @param {string} text
 */
function addressIn(text) {
  const run = /^https?:\/\/[^\s<>"`|，。、；：！？（）「」『』【】《》]+/u.exec(text)?.[0] ?? "";
  let opened = 0;
  const end = [...run].findIndex((char) => {
    if ("([".includes(char)) opened += 1;
    if (")]".includes(char)) opened -= 1;
    return opened < 0;
  });
  const whole = end < 0 ? run : [...run].slice(0, end).join("");
  return whole.replace(/[.,;:!?'*_~]+$/, "");
}

/** Sets a link's target; only web and mail URLs, without referrer or opener. @param {HTMLElement} element @param {string} address */
function link(element, address) {
  const clean = address.trim();
  if (!LINKS.test(clean)) return;
  element.setAttribute("href", clean);
  element.setAttribute("rel", "noopener noreferrer");
  element.setAttribute("target", "_blank");
}

/** Shows a picture; one of another host becomes a link: loading it would tell that host who reads. @param {HTMLElement} holder @param {string} address */
function picture(holder, address) {
  const alt = holder.textContent ?? "";
  if (PICTURES.test(address)) {
    const image = make("img");
    image.setAttribute("src", address);
    image.setAttribute("alt", alt);
    holder.replaceChildren(image);
    return;
  }
  const anchor = make("a", "far-picture");
  anchor.textContent = `picture: ${alt || address}`;
  link(anchor, address);
  holder.replaceChildren(anchor);
}

/** A code block with its language and a copy button. @param {Node} parent */
function codeBlock(parent) {
  const figure = make("figure", "code");
  const caption = make("figcaption");
  const copy = make("button", "copy");
  copy.setAttribute("type", "button");
  copy.textContent = "Copy";
  caption.append(make("span", "lang"), copy);
  const pre = make("pre");
  pre.setAttribute("tabindex", "0");
  const code = make("code");
  pre.append(code);
  figure.append(caption, pre);
  parent.appendChild(figure);
  return code;
}

/** @param {HTMLElement} parent @param {number} token */
function place(parent, token) {
  if (token === smd.CODE_BLOCK || token === smd.CODE_FENCE) return codeBlock(parent);
  if (token === smd.TABLE_ROW) {
    const part = parent.children[1] ?? parent.appendChild(make(parent.children.length === 0 ? "thead" : "tbody"));
    return part.appendChild(make("tr"));
  }
  if (token === smd.TABLE_CELL)
    return parent.appendChild(make(parent.parentElement?.tagName === "THEAD" ? "th" : "td"));
  if (token === smd.CHECKBOX) {
    const box = make("span", "box");
    box.textContent = "☐ ";
    return parent.appendChild(box);
  }
  const element = make(TAGS[token] ?? "span");
  if (token === smd.EQUATION_BLOCK) element.className = "block";
  if (token === smd.LIST_UNORDERED || token === smd.LIST_ORDERED) element.dir = "auto";
  return parent.appendChild(element);
}

/** Returns a link's target without its title and angle brackets. @param {string} text */
const target = (text) =>
  text
    .replace(/\s(?:"[^"]*"|'[^']*')$/, "")
    .trimEnd()
    .replace(/^<(.*)>$/, "$1");

/** @param {HTMLElement} element @param {number} attr @param {string} value */
function setAttr(element, attr, value) {
  if (attr === smd.HREF) link(element, target(value));
  else if (attr === smd.SRC) picture(element, target(value));
  else if (attr === smd.START) element.setAttribute("start", String(Number(value) || 1));
  else if (attr === smd.CHECKED) element.textContent = "☑ ";
  else if (attr === smd.LANG) {
    const label = element.closest("figure")?.querySelector(".lang");
    if (label) label.textContent = value;
  }
}

/** Opening marks of elements that may turn out to be text. @type {Record<number, string>} */
const MARKS = {
  [smd.LINK]: "[",
  [smd.ITALIC_UND]: "_",
  [smd.STRONG_UND]: "__",
  [smd.ITALIC_AST]: "*",
  [smd.STRONG_AST]: "**",
};
/** Tokens in which backslashes and URLs are plain text. @type {Set<number>} */
const VERBATIM = new Set([smd.CODE_BLOCK, smd.CODE_FENCE, smd.CODE_INLINE, smd.RAW_URL, smd.EQUATION_BLOCK, smd.EQUATION_INLINE]);
/** Position within a word, among at most 20 underscores. */
const IN_A_WORD = /(?<=[\p{L}\p{N}]_{0,20})(?=_{1,20}[\p{L}\p{N}])/u;
const BEFORE_AN_ADDRESS = /(?=https?:\/\/)/;
/** The last word or address, until what follows says whether it has ended; of one without end a part is enough. */
const UNDECIDED = /(?:https?:(?:\/|\/\/\S{0,1999})?|[\p{L}\p{N}][\p{L}\p{N}_]{0,99})$/u;

/** Of the text's end as much as `UNDECIDED` can match: 2,007 characters, each of up to two units. */
const HELD_AT_MOST = 4100;
/** Nesting depth, at most: a few thousand nested quotes crash the browser's tab. */
const DEEPEST = 100;
/** Undecided characters, at most: the parser rescans all of them for each new one. */
const PENDING_AT_MOST = 500;

/** Returns a code block's extra indentation relative to its list. @param {any} parser  at the block's beginning */
function indentation(parser) {
  const item = parser.tokens.lastIndexOf(smd.LIST_ITEM, parser.len);
  return parser.indent_len - (item < 0 ? 0 : parser.spaces[item]);
}

/** Returns whether the parser is inside a link's target. @param {any} parser */
const inTarget = (parser) => parser.pending.startsWith("](");

/** A blank line would end the code in a list, unless it is indented with the list. @param {any} parser @param {string} text */
function write(parser, text) {
  for (const line of text.split(/(?<=\n)/)) {
    const beginsInCode = parser.tokens[parser.len] === smd.CODE_FENCE && parser.token !== smd.CODE_FENCE;
    if (beginsInCode && /^[ \t]*\n$/.test(line)) smd.parser_write(parser, " ".repeat(missing(parser)));
    writeLine(parser, line);
  }
}

/** Piece by piece, so that what stays undecided ends at the same place however the text comes. @param {any} parser @param {string} text */
function writeLine(parser, text) {
  for (let from = 0, to = 0; from < text.length; from = to) {
    if (inTarget(parser)) {
      // The parser would only add it, up to the bracket that closes.
      to = text.indexOf(")", from) + 1 || text.length + 1;
      parser.pending += text.slice(from, to - 1);
      smd.parser_write(parser, text.slice(to - 1, to));
    } else {
      // The line below a table's head is kept as a whole, at no cost.
      const room = parser.token === smd.TABLE ? text.length : PENDING_AT_MOST - parser.pending.length;
      to = from + Math.max(1, room);
      if (/[\ud800-\udbff]/.test(text[to - 1] ?? "")) to += 1;
      smd.parser_write(parser, text.slice(from, to));
      const whole = inTarget(parser) || parser.token === smd.TABLE;
      if (!whole && parser.pending.length >= PENDING_AT_MOST) decide(parser);
    }
  }
}

/** Has the parser take what it keeps for what it is if no more comes, and go on from there. @param {any} parser */
function decide(parser) {
  const { token, pending } = parser;
  let end = "\\";
  if (token === smd.CODE_INLINE) end = " ";
  else if (token !== smd.CODE_FENCE && pending.startsWith("`")) end = "\n";
  smd.parser_write(parser, end);
  parser.pending = "";
}

/** Spaces until the text of the innermost list, as the parser counts: those of each list are added. @param {any} parser */
function missing(parser) {
  let spaces = -parser.indent_len;
  for (let at = 0; at <= parser.len; at += 1) spaces += parser.spaces[at];
  return Math.max(0, spaces);
}

/** @param {any} parser @param {string} text */
function feedWords(parser, text) {
  for (const [n, piece] of text.split(IN_A_WORD).entries()) {
    const verbatim = VERBATIM.has(parser.token) || inTarget(parser);
    write(parser, n > 0 && !verbatim ? `\\${piece}` : piece);
  }
}

/** Ends all undecided text and any URL with a backslash, which is removed before it escapes anything. @param {any} parser */
function settle(parser) {
  smd.parser_write(parser, "\\");
  parser.pending = "";
}

/** Passes text to the parser, each URL as a unit. @param {any} parser @param {string} text */
function feed(parser, text) {
  for (const piece of text.split(BEFORE_AN_ADDRESS)) {
    const address = addressIn(piece);
    const verbatim = VERBATIM.has(parser.token) || /^[`$]/.test(parser.pending);
    if (address && inTarget(parser)) {
      // The parser ends a target with the first bracket that closes, though an address may hold pairs of them.
      parser.pending += address.replaceAll("(", "%28").replaceAll(")", "%29");
      feedWords(parser, piece.slice(address.length));
    } else if (address && !verbatim) {
      settle(parser);
      // Inside a link's label a URL is text.
      if (parser.token === smd.LINK) feedWords(parser, address);
      else smd.parser_write(parser, address);
      settle(parser);
      feedWords(parser, piece.slice(address.length));
    } else feedWords(parser, piece);
  }
}

/**
 * @typedef {object} Opened
 * @property {number} token
 * @property {boolean} meant  it is known to be what it was taken for
 * @property {number} indent  how far it is indented, in spaces
 * @property {boolean} flat  it is too deep for an element of its own: its marks are text, and its words stand in what is above it
 */

/**
 * Writes Markdown into an element piece by piece; what is written stays, but for a mark that turns out to be text, so it can
 * be selected while it grows.
 *
 * Corrects the parser: `snake_case` has no emphasis in it, `x[0]` is no link, an address has its end, and code in a list is
 * indented with the list.
 * @param {HTMLElement} root  owned by the writer until `end`
 */
export function writer(root) {
  const nodes = [root];
  /** Open elements. @type {Opened[]} */
  const open = [];
  /** Elements that turned out to be text, the innermost first. @type {{element: HTMLElement, mark: string, end: string}[]} */
  const texts = [];
  const close = () => {
    const element = /** @type {HTMLElement} */ (nodes.pop());
    const { token, meant, indent, flat } = /** @type {Opened} */ (open.pop());
    const ended = !meant && token === smd.LINK && parser.pending.startsWith("]");
    if (flat) return void element.append(ended ? "]" : meant && token !== smd.LINK ? (MARKS[token] ?? "") : "");
    if (token === smd.CODE_FENCE && indent > 0)
      element.textContent = (element.textContent ?? "").replace(new RegExp(`^ {1,${indent}}`, "gm"), "");
    if (!meant && MARKS[token]) texts.push({ element, mark: MARKS[token], end: ended ? "]" : "" });
  };
  /** Outermost first, so that nested content moves only once. */
  const unwrap = () => {
    for (const { element, mark, end } of texts.splice(0).reverse()) {
      element.before(mark);
      while (element.firstChild) element.before(element.firstChild);
      element.replaceWith(end);
    }
  };
  const parser = smd.parser({
    data: nodes,
    add_token: (data, token) => {
      const above = data[data.length - 1];
      const flat = data.length > DEEPEST;
      open.push({ token, meant: false, indent: indentation(parser), flat });
      if (flat) above.append(token === smd.IMAGE ? "![" : (MARKS[token] ?? " "));
      data.push(flat ? above : place(above, token));
    },
    end_token: (data) => {
      const last = open[open.length - 1];
      if (data.length < 2 || !last) return;
      if (last.token !== smd.LINK && MARKS[last.token]) last.meant = /^[_*]/.test(parser.pending);
      close();
    },
    add_text: (data, text) => data[data.length - 1].append(text),
    set_attr: (data, attr, value) => {
      const last = open[open.length - 1];
      const element = data[data.length - 1];
      if (attr === smd.HREF) last.meant = true;
      if (!last?.flat) setAttr(element, attr, value);
      else if (last.token === smd.LINK || last.token === smd.IMAGE) element.append(`](${value})`);
    },
  });
  let held = "";
  return {
    /** @param {string} text */
    write: (text) => {
      const whole = held + text;
      held = UNDECIDED.exec(whole.slice(-HELD_AT_MOST))?.[0] ?? "";
      feed(parser, whole.slice(0, whole.length - held.length));
      unwrap();
    },
    end: () => {
      feed(parser, held);
      smd.parser_end(parser);
      while (open.length) close();
      unwrap();
    },
  };
}

/** Renders a complete answer. @param {HTMLElement} root  emptied first @param {string} text */
export function renderMarkdown(root, text) {
  const fresh = document.createElement("div");
  const whole = writer(fresh);
  whole.write(text);
  whole.end();
  DOMPurify.sanitize(fresh, {
    IN_PLACE: true,
    ALLOWED_TAGS,
    ALLOWED_ATTR,
    ALLOWED_URI_REGEXP: ADDRESSES,
    ALLOW_DATA_ATTR: false,
  });
  root.replaceChildren(...fresh.childNodes);
}

/** Click handler for the copy buttons of answers. @param {MouseEvent} event */
export async function onCopyClick(event) {
  const button = event.target instanceof Element ? event.target.closest("button.copy") : null;
  if (!button) return;
  const text = button.closest("figure")?.querySelector("pre")?.textContent ?? "";
  const done = await copyText(text);
  button.textContent = done ? "Copied" : "Select and copy by hand";
  setTimeout(() => (button.textContent = "Copy"), 1500);
}

/** Copies a text. The modern clipboard API exists only on secure origins; the old one works over plain http too. @param {string} text */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "off-screen";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
