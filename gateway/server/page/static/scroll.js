/**
 * Scroll position of the conversation while its content changes.
 *
 * Priorities, in order: visible buttons keep their place on the screen; a reader at the end stays at the end;
 * the visible text keeps its place. The browser's own scroll anchoring ignores buttons, so it is switched off.
 */

/** Time, in ms of `performance.now()`, when buttons moved for lack of scroll space: a press right after it is ignored. */
export const moved = { at: -Infinity };
const NEAR = 700;

export class Anchor {
  /**
   * @param {HTMLElement} scroller @param {HTMLElement} content
   * @param {{top: () => void, bottom: () => void, end: (atEnd: boolean) => void}} events  near the top, near the bottom, end reached or left
   */
  constructor(scroller, content, events) {
    this.scroller = scroller;
    this.content = content;
    this.events = events;
    this.follow = true;
    /** Last position set by this code, until its scroll event arrives. */
    this.expected = -Infinity;
    /** True from drawing another part until `show`: the screen's content is ignored meanwhile. */
    this.jumping = false;
    /** @type {{el: Element, top: number}[]} */
    this.marks = [];
    /** Number of leading marks that are button rows. */
    this.buttons = 0;
    this.observer = new ResizeObserver(() => this.settle());
    const gutter = (scroller.offsetWidth - scroller.clientWidth) / 2;
    scroller.parentElement?.style.setProperty("--gutter", `${gutter}px`);
    this.observer.observe(scroller);
    this.observer.observe(content);
    this.onScroll = this.onScroll.bind(this);
    scroller.addEventListener("scroll", this.onScroll, { passive: true });
    this.settle();
  }

  end() {
    this.observer.disconnect();
    this.scroller.removeEventListener("scroll", this.onScroll);
  }

  get atEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight < 24;
  }

  onScroll() {
    if (this.jumping) return;
    const own = Math.abs(this.scroller.scrollTop - this.expected) < 2;
    if (!own) this.follow = this.atEnd;
    this.expected = -Infinity;
    this.remember();
    this.report();
  }

  report() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    this.events.end(this.atEnd);
    if (scrollTop < NEAR) this.events.top();
    else if (scrollHeight - scrollTop - clientHeight < NEAR) this.events.bottom();
  }

  /** Restores the position after a content change, before the paint. */
  settle() {
    if (this.jumping) return;
    const held = this.marks.findIndex((mark) => mark.el.isConnected);
    const pressable = held >= 0 && held < this.buttons;
    if (!pressable && this.follow) this.scrollTo(this.scroller.scrollHeight);
    else if (held >= 0) {
      const mark = this.marks[held];
      const by = mark.el.getBoundingClientRect().top - mark.top;
      if (Math.abs(by) >= 1) this.scrollTo(this.scroller.scrollTop + by);
    }
    for (const mark of this.marks.slice(0, this.buttons)) {
      if (mark.el.isConnected && Math.abs(mark.el.getBoundingClientRect().top - mark.top) > 2)
        moved.at = performance.now();
    }
    this.remember();
    this.report();
  }

  /** @param {number} top */
  scrollTo(top) {
    this.scroller.scrollTop = top;
    this.expected = this.scroller.scrollTop;
  }

  /** Records the positions of visible button rows, then of the first visible entry. */
  remember() {
    const view = this.scroller.getBoundingClientRect();
    /** @type {{el: Element, top: number}[]} */
    const rows = [];
    for (const el of this.content.querySelectorAll("[data-pressable]")) {
      const box = el.getBoundingClientRect();
      if (box.top >= view.top && box.bottom <= view.bottom + 1) rows.push({ el, top: box.top });
    }
    const touched = rows.findIndex((mark) => mark.el.matches(":hover, :focus-within"));
    if (touched > 0) rows.unshift(...rows.splice(touched, 1));
    this.buttons = rows.length;
    this.marks = [...rows, ...this.firstSeen(view.top)];
  }

  /** Returns some entries from the first visible one: one of them survives a change. @param {number} edge */
  firstSeen(edge) {
    const entries = this.content.querySelectorAll("[data-entry]");
    let low = 0;
    let high = entries.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (entries[mid].getBoundingClientRect().bottom <= edge) low = mid + 1;
      else high = mid;
    }
    return Array.from(entries)
      .slice(low, low + 4)
      .map((el) => ({ el, top: el.getBoundingClientRect().top }));
  }

  /** Goes to the end, at the person's request. */
  toEnd() {
    this.follow = true;
    this.scrollTo(this.scroller.scrollHeight);
    this.remember();
    this.report();
  }

  /** Ends a jump. @param {Element|null} el  null when there is nothing to show after all */
  show(el) {
    this.jumping = false;
    el?.scrollIntoView({ block: "nearest" });
    this.expected = this.scroller.scrollTop;
    this.follow = this.atEnd;
    this.remember();
  }
}
