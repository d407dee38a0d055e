"""Page queries by our own scripts, with results cut inside the page. Used by `reading` and `pointing`.

A selector engine of ours runs in playwright's isolated world, which a page cannot change. It returns its result as the
text of a detached element. Results are cut in the browser: a page's text cut only after transfer was 100 MB once.
"""

from __future__ import annotations

import asyncio

from playwright.async_api import Frame, Locator, Page, Playwright

from agent_tools.browser.errors import Trouble
from agent_tools.browser.selector_engine import SCRIPT

WHOLE = ":root"
"""Selector of the whole page."""
_ENGINE = "dragoman"
LARGEST_NUMBER = 1e9
"""Limit of a page's measurements; a page can forge them."""
_NUMBERS = 100
"""Most characters of a measurement."""


async def teach(playwright: Playwright) -> None:
    """Register the selector engine. Call once for a driver, before its first page is opened."""
    await playwright.selectors.register(_ENGINE, script=SCRIPT, content_script=True)


async def asked(
    page: Page | Frame, what: str, within_s: float, *more: str, limit: int = _NUMBERS, of: str = WHOLE
) -> str:
    """Return a query's result for the first match of a selector, at most `limit` characters. Raises `TimeoutError`."""
    async with asyncio.timeout(within_s):
        found = page.locator(of).first.locator(f"{_ENGINE}={' '.join((what, str(limit), *more))}")
        return await found.text_content(timeout=2 * within_s * 1000) or ""


async def asked_of(element: Locator, what: str, within_s: float, *more: str, limit: int = _NUMBERS) -> str:
    """Return a query's result for an element. Raises `TimeoutError`."""
    async with asyncio.timeout(within_s):
        found = element.locator(f"{_ENGINE}={' '.join((what, str(limit), *more))}")
        return await found.text_content(timeout=2 * within_s * 1000) or ""


def numbered(frame: Frame, number: str) -> Locator:
    """Return the element that `usable` gave a number in this frame."""
    return frame.locator(WHOLE).first.locator(f"{_ENGINE}=element 1 {number}")


async def numbers(page: Page | Frame, what: str, within_s: float, *more: str, how_many: int) -> list[int]:
    """Return measurements of a page. Raises `Trouble` when they are missing or forged."""
    return _parsed(await asked(page, what, within_s, *more), how_many)


def _parsed(text: str, how_many: int) -> list[int]:
    try:
        found = [round(float(one)) for one in text.split(" ")]
    except (ValueError, OverflowError):
        found = []
    if len(found) != how_many or any(abs(one) >= LARGEST_NUMBER for one in found):
        raise Trouble("page", "The page does not say how large it is.", "Open another page.")
    return found
