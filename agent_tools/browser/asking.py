"""Page queries by our own scripts, with results cut inside the page. Used by `reading` and `pointing`.

A selector engine of ours runs in playwright's isolated world, which a page cannot change. It returns its result as the
text of a detached element. Results are cut in the browser: a page's text cut only after transfer was 100 MB once.
"""

from __future__ import annotations

import asyncio

from playwright.async_api import Page, Playwright

WHOLE = ":root"
"""Selector of the whole page."""
_ENGINE = "dragoman"
_SCRIPT = r"""{
  found: {
    extent: (root) => `${document.getElementsByTagName('*').length} ${document.documentElement.textContent.length}`,
    size: (root) => `${document.documentElement.scrollWidth} ${document.documentElement.scrollHeight}`,
    scrolled: (root) => `${scrollY} ${document.documentElement.scrollHeight}`,
    shown: (root) => root.innerText ?? root.textContent,
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
  },
  query(root, asked) {
    const [what, limit] = asked.split(' ');
    const said = document.createElement('pre');
    said.textContent = String(this.found[what](root, Number(limit))).slice(0, Number(limit));
    return said;
  },
  queryAll(root, asked) {
    return [this.query(root, asked)];
  },
}"""
"""Queries on an element: `shown` returns its laid-out text; `words` reads the beginning of any page at once."""
_NUMBERS = 100
"""Most characters of a measurement."""


async def teach(playwright: Playwright) -> None:
    """Register the selector engine. Call once for a driver, before its first page is opened."""
    await playwright.selectors.register(_ENGINE, script=_SCRIPT, content_script=True)


async def asked(page: Page, what: str, within_s: float, *, limit: int = _NUMBERS, of: str = WHOLE) -> str:
    """Return a query's result for the first match of a selector, at most `limit` characters. Raises `TimeoutError`."""
    async with asyncio.timeout(within_s):
        found = page.locator(of).first.locator(f"{_ENGINE}={what} {limit}")
        return await found.text_content(timeout=2 * within_s * 1000) or ""
