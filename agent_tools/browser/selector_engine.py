"""Script of the selector engine, which finds what a person can use in a page. Registered by `page_queries`.

It runs in playwright's isolated world: a page cannot change it, and does not see what it keeps. The module `clickables`
reads the lines that `usable` writes.
"""

from __future__ import annotations

SCRIPT = r"""{
  kept: globalThis.dragoman ??= {numbers: new WeakMap(), elements: new Map(), uses: new WeakMap(), closed: new Set()},
  native: /^(A|AREA|BUTTON|INPUT|SELECT|TEXTAREA|OPTION|SUMMARY|LABEL|IFRAME|FRAME)$/,
  roles: /^(button|link|checkbox|radio|switch|textbox|spinbutton|slider|combobox|tab|menuitem)$/,
  drawn: /^(CANVAS|OBJECT|EMBED|SVG)$/,
  found: {
    extent: (root) => `${document.getElementsByTagName('*').length} ${document.documentElement.textContent.length}`,
    size(root) {
      const whole = document.scrollingElement || document.documentElement;
      return `${whole.scrollWidth} ${whole.scrollHeight}`;
    },
    scrolled: (root) => `${scrollY} ${(document.scrollingElement || document.documentElement).scrollHeight}`,
    view: (root) => `${scrollX} ${scrollY} ${innerWidth} ${innerHeight}`,
    shown: (root) => (/^(TEXTAREA|INPUT)$/.test(root.tagName) ? root.value : root.innerText ?? root.textContent),
    options: (root) => [...root.options].slice(0, 50).map((one) => one.label.slice(0, 100)).join('\n'),
    words(root, limit) {
      const kept = [];
      let length = 0;
      const walk = document.createTreeWalker(document.body || document, NodeFilter.SHOW_TEXT);
      while (length < limit && walk.nextNode()) {
        const node = walk.currentNode;
        const text = node.data.replace(/\s+/g, ' ').trim();
        if (text && !/^(SCRIPT|STYLE|NOSCRIPT|TEMPLATE)$/.test(node.parentElement?.tagName)) {
          kept.push(text);
          length += text.length + 1;
        }
      }
      return kept.join('\n');
    },
    usable(root, limit, first) { return this.usable(first); },
    marked(root) { return this.mark(); },
    unmarked(root) { this.overlay?.remove(); return ''; },
    field: (root) => (root.isContentEditable ? 'editable'
      : root.tagName === 'TEXTAREA' || (root.tagName === 'INPUT' && /^(text|search|tel|url|email|password|number)$/
        .test(root.type)) ? 'text' : /^(INPUT|SELECT)$/.test(root.tagName) ? 'value' : 'other'),
    box(root) { const b = root.getBoundingClientRect(); return `${b.x} ${b.y} ${b.width} ${b.height}`; },
    brought(root, limit, x, y) {
      if (x < scrollX || x >= scrollX + innerWidth || y < scrollY || y >= scrollY + innerHeight)
        scrollTo({left: x - innerWidth / 2, top: y - innerHeight / 2, behavior: 'instant'});
      return `${scrollX} ${scrollY} ${innerWidth} ${innerHeight}`;
    },
    under(root, limit, x, y) {
      let found = document.elementFromPoint(x, y);
      for (let inner; found?.shadowRoot && (inner = found.shadowRoot.elementFromPoint(x, y)) && inner !== found;)
        found = inner;
      return found ? `${this.number(found, 0)} <${found.tagName.toLowerCase()}> ${this.name(found)}` : '0 nothing ';
    },
    part(root, limit, hex) { return this.part(root, this.text(hex)); },
    selected(root) {
      const at = document.activeElement;
      return (/^(TEXTAREA|INPUT)$/.test(at?.tagName) && at.selectionStart !== at.selectionEnd
        ? at.value.slice(at.selectionStart, at.selectionEnd) : String(getSelection()));
    },
    range(root, limit, hex) {
      const [range] = this.ranges(root, this.text(hex));
      if (range) { getSelection().removeAllRanges(); getSelection().addRange(range); }
      return '';
    },
  },
  text: (hex) => decodeURIComponent(hex.replace(/../g, '%$&')),
  plain: (text, most) => (text || '').replace(/\s+/g, ' ').trim().slice(0, most),
  letters: (text) => /\p{L}/u.test(text),
  tells: (text) => /[\p{L}\p{N}]/u.test(text),
  number(element, first) {
    const kept = this.kept;
    let number = kept.numbers.get(element);
    if (number === undefined && first) {
      kept.numbers.set(element, number = first);
      kept.elements.set(number, element);
    }
    return number || 0;
  },
  name(element) {
    const ref = element._ariaRef;
    const named = element.getAttribute('aria-label') || element.getAttribute('title') || element.getAttribute('alt')
      || element.getAttribute('placeholder') || (ref && ref.name)
      || element.querySelector(':scope > title')?.textContent;
    return this.plain(named || (element.children.length < 20 ? element.innerText ?? element.textContent : ''), 60);
  },
  near(element) {
    for (let around = element, up = 0; up < 6; up++) {
      around = around.parentElement || around.getRootNode().host;
      if (!around || around === document.body && up > 3) break;
      let before = '', after = '';
      const walk = document.createTreeWalker(around, NodeFilter.SHOW_TEXT);
      for (let n = 0; n < 200 && walk.nextNode(); n++) {
        const node = walk.currentNode, holder = node.parentElement;
        if (element.contains(node) || !holder || /^(SCRIPT|STYLE|OPTION|BUTTON)$/.test(holder.tagName)) continue;
        if (element.compareDocumentPosition(node) & Node.DOCUMENT_POSITION_PRECEDING) before += ' ' + node.data;
        else { after += ' ' + node.data; if (after.length > 200) break; }
      }
      for (const text of [before.replace(/\s+/g, ' ').trim().slice(-50), after])
        if (this.letters(text)) return this.plain(text.replace(/[^\p{L})]+$/u, ''), 50);
    }
    return this.plain(element.id || (typeof element.className === 'string' ? element.className : ''), 40);
  },
  uses(element) {
    const told = new Set((this.kept.uses.get(element) || '').split(' ').filter(Boolean));
    if (element.hasAttribute('onclick')) told.add('click');
    if (element.hasAttribute('ondblclick')) told.add('double-click');
    if (element.hasAttribute('oncontextmenu')) told.add('right-click');
    if (element.draggable && !/^(A|IMG)$/.test(element.tagName)) told.add('drag');
    return told;
  },
  seen(element) {
    if (!element.checkVisibility({visibilityProperty: true})) return null;
    const box = element.getBoundingClientRect();
    return box.width > 0 && box.height > 0 ? box : null;
  },
  *elements(root) {
    let left = 10000;
    const roots = [document];
    while (roots.length) {
      for (const element of roots.pop().querySelectorAll('*')) {
        if (!left--) return;
        yield element;
        if (element.shadowRoot) roots.push(element.shadowRoot);
      }
    }
    for (const element of this.kept.closed) if (element.isConnected) yield element;
  },
  kind(element, told) {
    const tag = element.tagName.toUpperCase();
    if (/^(HTML|BODY|HEAD|SCRIPT|STYLE)$/.test(tag)) return '';
    if (this.drawn.test(tag)) return element.getAttribute('role') && !told.size ? '' : 'drawing';
    if (tag.includes('-') && !element.shadowRoot && !element.children.length && !element.innerText?.trim())
      return 'closed';
    const role = element.getAttribute('role');
    if (tag === 'LABEL' && element.control && !element.control._ariaRef) return 'clickable';
    if (this.native.test(tag) || (role && !/^(presentation|none|generic)$/.test(role))) return 'native';
    const style = getComputedStyle(element);
    if (style.pointerEvents === 'none') return '';
    if (element.isContentEditable && !element.parentElement?.isContentEditable) return 'editable';
    if (told.size && element.getElementsByTagName('*').length < 60) return 'clickable';
    if (element.tabIndex >= 0 && element.hasAttribute('tabindex')) return 'clickable';
    const around = element.parentElement || element.getRootNode().host;
    return style.cursor !== 'auto' && /^(pointer|grab|move|crosshair|cell|zoom-in|.*resize)$/.test(style.cursor)
      && (!around || getComputedStyle(around).cursor !== style.cursor) ? 'clickable' : '';
  },
  usable(first) {
    const natives = [], lines = [], names = new Map();
    let made = 0;
    for (const element of this.elements()) {
      const told = this.uses(element), kind = this.kind(element, told);
      const box = kind && this.seen(element);
      if (!box || (kind === 'drawing' && !told.size && (box.width < 48 || box.height < 48))) continue;
      if (kind === 'native') {
        const ref = element._ariaRef;
        if (!ref || !this.roles.test(ref.role)) continue;
        names.set(ref.role + ref.name, (names.get(ref.role + ref.name) || 0) + 1);
        natives.push([element, ref, told]);
      } else if (made < 80) {
        if (element.tagName === 'LABEL') told.add('click');
        const number = this.number(element, first + made);
        made += number === first + made ? 1 : 0;
        const name = this.name(element), at = [box.x, box.y, box.width, box.height].map(Math.round).join(' ');
        const near = this.tells(name) && kind !== 'closed' ? '' : this.near(element);
        lines.push(['x', number, kind, element.tagName.toLowerCase(), name, near, [...told].join(', '), at,
          element._ariaRef?.ref || ''].join('\t'));
      }
    }
    let told = 0;
    for (const [element, ref, uses] of natives) {
      uses.delete('click');
      const near = this.tells(ref.name) && names.get(ref.role + ref.name) < 2 ? '' : this.near(element);
      if ((near || uses.size) && told++ < 60) lines.push(['e', ref.ref, near, [...uses].join(', ')].join('\t'));
    }
    return [String(first + made), ...lines, ''].join('\n');
  },
  mark() {
    this.overlay?.remove();
    const marks = [];
    for (const element of this.elements()) {
      const number = this.kept.numbers.get(element), ref = element._ariaRef;
      const called = number ? 'x' + number : ref && /^(button|link|checkbox|radio|switch|textbox|img)$/.test(ref.role)
        && !this.tells(ref.name) ? ref.ref : '';
      const box = called && marks.length < 100 && !(number && this.tells(this.name(element))) && this.seen(element);
      if (box) marks.push([called, box]);
    }
    if (!marks.length) return '0';
    const host = this.overlay = document.createElement('div');
    host.style.cssText = 'all:initial;position:absolute;left:0;top:0;width:0;height:0;z-index:2147483647';
    const inside = host.attachShadow({mode: 'closed'});
    for (const [called, box] of marks) {
      const frame = document.createElement('div'), label = document.createElement('span');
      frame.style.cssText = `position:absolute;pointer-events:none;outline:1px solid #d00;left:${box.x + scrollX}px;`
        + `top:${box.y + scrollY}px;width:${box.width}px;height:${box.height}px`;
      label.style.cssText = 'position:absolute;right:0;bottom:0;font:10px/11px monospace;background:#d00;color:#fff';
      label.textContent = called;
      frame.append(label);
      inside.append(frame);
    }
    document.documentElement.append(host);
    return String(marks.length);
  },
  ranges(root, wanted) {
    const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT), nodes = [];
    let text = '';
    while (walk.nextNode()) { nodes.push([text.length, walk.currentNode]); text += walk.currentNode.data; }
    const start = wanted ? text.indexOf(wanted) : 0, end = wanted ? start + wanted.length : text.length;
    if (start < 0 || !nodes.length) return [];
    const place = (at) => nodes.findLast(([begins], n) => begins < at || !n);
    const [from, to] = [nodes.findLast(([begins]) => begins <= start), place(end)];
    const range = document.createRange();
    range.setStart(from[1], start - from[0]);
    range.setEnd(to[1], end - to[0]);
    return [range];
  },
  part(root, wanted) {
    if (/^(TEXTAREA|INPUT)$/.test(root.tagName)) {
      const start = wanted ? root.value.indexOf(wanted) : 0;
      if (start < 0) return 'none';
      root.focus();
      root.setSelectionRange(start, start + (wanted ? wanted.length : root.value.length));
      return 'done';
    }
    const [range] = this.ranges(root, wanted);
    if (!range) return 'none';
    range.startContainer.parentElement.scrollIntoView({block: 'center', behavior: 'instant'});
    const boxes = [...range.getClientRects()].filter((one) => one.width);
    if (!boxes.length) return 'none';
    const first = boxes[0], last = boxes[boxes.length - 1];
    return `${first.left + 0.5} ${first.top + first.height / 2} ${last.right - 0.5} ${last.top + last.height / 2}`;
  },
  query(root, asked) {
    const [what, limit, ...more] = asked.split(' ');
    if (what === 'element') {
      const element = this.kept.elements.get(Number(more[0]));
      return element?.isConnected ? element : null;
    }
    const said = document.createElement('pre');
    const given = more.map((one) => (/^[\d.-]+$/.test(one) ? Number(one) : one));
    if (what === 'part' || what === 'range') given[0] = more[0] ?? '';
    said.textContent = String(this.found[what].call(this, root, Number(limit), ...given)).slice(0, Number(limit));
    return said;
  },
  queryAll(root, asked) {
    const found = this.query(root, asked);
    return found ? [found] : [];
  },
}"""
"""Queries on an element: `shown` returns its laid-out text or its value; `words` reads the beginning of any page."""

HEARD = r"""function (...given) {
  for (let n = 0; n < given.length; n += 2) {
    const element = given[n]?.nodeType === 3 ? given[n].parentElement : given[n];
    if (element?.nodeType !== 1) continue;
    const kept = element.ownerDocument.defaultView.dragoman ??= {numbers: new WeakMap(), elements: new Map(),
      uses: new WeakMap(), closed: new Set()};
    kept.uses.set(element, given[n + 1]);
    const root = element.getRootNode();
    if (root instanceof ShadowRoot && root.mode === 'closed') kept.closed.add(element);
  }
}"""
"""Function that keeps which events elements listen to: an element, then its uses, and so on."""
