"""Actions on page elements, addressed by refs of the last snapshot: select, press, scroll, wait. See also `mouse`."""

from __future__ import annotations

import asyncio

from playwright.async_api import Locator, Page
from playwright.async_api import TimeoutError as PlaywrightTimeout

from agent_tools.browser.clickables import MOST_FRAMES
from agent_tools.browser.errors import SNAPSHOT, Trouble
from agent_tools.browser.page_queries import asked_of, numbered
from gateway.domain.text import one_line

ACT_S = 5.0
"""Timeout in seconds for an element to become ready and the action to complete."""
LONGEST_WAIT_S = 30.0
"""Most seconds of one `wait`."""
_ASK_S = 3.0
"""Timeout in seconds for a query of the page."""
_OPTIONS_AT_MOST = 5_000
"""Most characters of a list's option labels in an error."""
_WHEEL = {"down": (0, 1), "up": (0, -1), "right": (1, 0), "left": (-1, 0)}


async def locate(page: Page, ref: str) -> Locator:
    """Return the element of a ref. Raises `Trouble` when the page no longer has it or no snapshot was taken."""
    async with asyncio.timeout(_ASK_S):
        if ref.startswith("x"):
            for frame in page.frames[:MOST_FRAMES]:
                found = numbered(frame, ref[1:])
                if await found.count():
                    return found
        elif await (found := page.locator(f"aria-ref={ref}")).count():
            return found
    raise Trouble("ref", f"There is no {ref} on the page now.", SNAPSHOT)


async def select(page: Page, ref: str, values: list[str]) -> None:
    """Choose options of a list, by label or value."""
    field = await locate(page, ref)
    try:
        await field.select_option(values, timeout=_ASK_S * 1000)
    except PlaywrightTimeout as error:
        if "did not find some options" not in error.message:
            raise
        there = await asked_of(field, "options", _ASK_S, limit=_OPTIONS_AT_MOST)
        named = ", ".join(one_line(label, 60) for label in there.split("\n"))
        raise Trouble("options", f"The list has no such option. It has: {named}", "Choose one of these.") from None


async def press(page: Page, key: str, ref: str | None) -> None:
    """Press a key in an element, or in the focused one."""
    if ref is not None:
        await (await locate(page, ref)).press(key, timeout=ACT_S * 1000, no_wait_after=True)
        return
    async with asyncio.timeout(ACT_S):
        await page.keyboard.press(key)


async def scroll(
    page: Page, direction: str | None, screens: float, ref: str | None, place: tuple[float, float] | None = None
) -> None:
    """Bring an element into view, or turn the wheel over it, over a place, or over the middle of the page."""
    size = page.viewport_size or {"width": 1280, "height": 800}
    spot = place or (size["width"] / 2, size["height"] / 2)
    if ref is not None and place is None:
        element = await locate(page, ref)
        await element.scroll_into_view_if_needed(timeout=ACT_S * 1000)
        if direction is None:
            return
        box = await element.bounding_box(timeout=ACT_S * 1000)
        if box is not None:
            spot = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    across, down = _WHEEL[direction or "down"]
    async with asyncio.timeout(ACT_S):
        await page.mouse.move(*spot)
        await page.mouse.wheel(across * screens * size["width"] * 0.9, down * screens * size["height"] * 0.9)
        await asyncio.sleep(0.15)  # the wheel event only starts the scroll


async def wait(page: Page, text: str | None, seconds: float | None, limit_s: float) -> None:
    """Wait for a number of seconds, or until the page shows a text. Raises `Trouble` on a timeout."""
    if text is None:
        if (seconds or 0) > LONGEST_WAIT_S:
            raise Trouble("wait", "That is too long.", f"Wait at most {LONGEST_WAIT_S:g} seconds at a time.")
        await asyncio.sleep(seconds or 0)
        return
    within = min(limit_s, LONGEST_WAIT_S)
    try:
        await page.get_by_text(text).first.wait_for(state="visible", timeout=within * 1000)
    except PlaywrightTimeout:
        said = one_line(text, 100)
        raise Trouble("timeout", f"The page did not show “{said}” within {within:g} seconds.", SNAPSHOT) from None
