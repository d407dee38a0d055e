"""Mouse actions at elements and at places: click, hover, drag, wheel, selection of text, size of the window.

A place is a pixel of the last screenshot, for what has no ref: a canvas, a drawing, a closed part of a page.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal, NamedTuple, cast

from playwright.async_api import Locator, Page

from agent_tools.browser.errors import PLACE, SNAPSHOT, Trouble
from agent_tools.browser.page_queries import asked, asked_of, numbers
from agent_tools.browser.page_session import PageSession, Shot
from agent_tools.browser.pointing import ACT_S, locate
from gateway.domain.text import one_line

_ASK_S = 3.0
_BUTTONS = frozenset({"right", "middle"})
_HOLD_MS = 1200
"""Duration of a long click."""
_DRAG_STEPS = 12
"""Mouse movements of one drag."""
_REST_S = 0.05
"""Seconds between the moves of a drag, in which a page follows the pointer."""
_SMALLEST, _LARGEST = 200, 4000
"""Limits in pixels of the window's size."""
_SHOWN_CHARS = 200
"""Characters of a selected text in the result."""

Modifier = Literal["Alt", "Control", "Meta", "Shift"]
Button = Literal["left", "middle", "right"]


class How(NamedTuple):
    """Way to click: the button, the number of clicks, and the modifier keys held."""

    button: Button
    clicks: int
    hold_ms: float
    """Milliseconds between press and release."""
    modifiers: tuple[Modifier, ...]


def how_of(text: str | None) -> How:
    """Parse `double+Shift`."""
    ways = text.split("+") if text else []
    button = next((one for one in ways if one in _BUTTONS), "left")
    modifiers = tuple(one for one in ways if one not in _BUTTONS and one not in ("double", "hold"))
    held = cast("tuple[Modifier, ...]", modifiers)
    return How(cast("Button", button), 2 if "double" in ways else 1, _HOLD_MS if "hold" in ways else 0, held)


def is_place(ref: str) -> bool:
    """Return whether it is a place, as in 310,42, and no ref."""
    return "," in ref


async def click(session: PageSession, page: Page, ref: str, how: How) -> str:
    """Click the middle of an element, or a place, without waiting for a navigation. Return a line about it."""
    done = {1: "Clicked", 2: "Double-clicked"}[how.clicks]
    if is_place(ref):
        spot = await place(session, page, ref)
        what = await _steady(page, spot)
        async with _holding(page, how.modifiers), asyncio.timeout(ACT_S):
            await page.mouse.click(*spot, button=how.button, click_count=how.clicks, delay=how.hold_ms)
        return f"{done} at {ref}, on {what}."
    element = await locate(page, ref)
    await element.click(
        button=how.button,
        click_count=how.clicks,
        delay=how.hold_ms,
        modifiers=list(how.modifiers),
        timeout=ACT_S * 1000,
        no_wait_after=True,
    )
    return f"{done} {ref}."


async def hover(session: PageSession, page: Page, ref: str, how: How) -> str:
    """Leave the pointer over an element or a place. Return a line about it."""
    if is_place(ref):
        spot = await place(session, page, ref)
        async with asyncio.timeout(ACT_S):
            await page.mouse.move(*spot)
        return f"The pointer is at {ref}, on {await _under(page, spot)}."
    await (await locate(page, ref)).hover(modifiers=list(how.modifiers), timeout=ACT_S * 1000)
    return f"The pointer is on {ref}."


async def drag(session: PageSession, page: Page, ref: str, to: str, how: How) -> str:
    """Press the button on one element or place, move, and release it on another. Return a line about it."""
    for one in (ref, to):
        if not is_place(one):
            await (await locate(page, one)).scroll_into_view_if_needed(timeout=ACT_S * 1000)
    begin, end = await _spot(session, page, ref), await _spot(session, page, to)
    begin = await _spot(session, page, ref)  # the end may have been scrolled into view
    if begin == end:
        raise Trouble("place", "It would be dragged onto itself.", "Give another place in `to`.")
    size = page.viewport_size or {"width": 0, "height": 0}
    for x, y in (begin, end):
        if not (0 <= x < size["width"] and 0 <= y < size["height"]):
            text = "The two ends do not show at the same time."
            raise Trouble("place", text, "Use `resize` to make the window larger, or drag in two steps.")
    async with _holding(page, how.modifiers), asyncio.timeout(2 * ACT_S):
        await _dragged(page, begin, end)
    return f"Dragged {ref} to {to}."


async def _dragged(page: Page, begin: tuple[float, float], end: tuple[float, float]) -> None:
    await page.mouse.move(*begin)
    await page.mouse.down()
    try:
        for n in range(1, _DRAG_STEPS + 1):
            part = n / _DRAG_STEPS
            await page.mouse.move(begin[0] + (end[0] - begin[0]) * part, begin[1] + (end[1] - begin[1]) * part)
        await asyncio.sleep(_REST_S)
        await page.mouse.move(*end)
        await asyncio.sleep(_REST_S)
    finally:
        await page.mouse.up()


async def _spot(session: PageSession, page: Page, ref: str) -> tuple[float, float]:
    """Return the middle of an element, or a place, in pixels of the window."""
    if is_place(ref):
        return await place(session, page, ref)
    return await middle(await locate(page, ref), ref)


async def middle(element: Locator, ref: str) -> tuple[float, float]:
    """Return the middle of an element in pixels of the window. Raises `Trouble` when it does not show."""
    box = await element.bounding_box(timeout=ACT_S * 1000)
    if box is None:
        raise Trouble("hidden", f"{ref} does not show on the page.", SNAPSHOT)
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@asynccontextmanager
async def _holding(page: Page, modifiers: tuple[Modifier, ...]) -> AsyncGenerator[None]:
    """Hold modifier keys down."""
    async with AsyncExitStack() as stack:
        for key in modifiers:
            await page.keyboard.down(key)
            stack.push_async_callback(page.keyboard.up, key)
        yield


async def mark_text(page: Page, ref: str, text: str) -> str:
    """Select a text in an element as a person does, with the mouse; empty text selects all of it.

    Return a line about it. Raises `Trouble` when it is not there.
    """
    element = await locate(page, ref)
    hexed = text.encode().hex()
    found = await asked_of(element, "part", _ASK_S, hexed)
    if found == "none":
        raise Trouble("text", f"{ref} does not contain that text.", "Use `text` with the ref to see what it holds.")
    if found != "done":
        await _sweep(page, element, [float(one) for one in found.split(" ")])
        if (await _selected(element)).split() != text.split():
            await asked_of(element, "range", _ASK_S, hexed)
    return f"Selected “{one_line(await _selected(element), _SHOWN_CHARS)}”."


async def _sweep(page: Page, element: Locator, ends: list[float]) -> None:
    """Drag from the beginning of a text to its end. The ends are in pixels of the element's own frame."""
    box = await element.bounding_box(timeout=ACT_S * 1000)
    inside = [float(one) for one in (await asked_of(element, "box", _ASK_S)).split(" ")]
    across, down = (box["x"] - inside[0], box["y"] - inside[1]) if box else (0.0, 0.0)
    x1, y1, x2, y2 = ends
    async with asyncio.timeout(ACT_S):
        await _dragged(page, (x1 + across, y1 + down), (x2 + across, y2 + down))


async def _selected(element: Locator) -> str:
    return await asked_of(element, "selected", _ASK_S, limit=_SHOWN_CHARS * 5)


async def resize(page: Page, size: str) -> str:
    """Change the size of the window. Return a line about it."""
    width, height = (int(one) for one in size.split(","))
    if not (_SMALLEST <= width <= _LARGEST and _SMALLEST <= height <= _LARGEST):
        raise Trouble("size", f"No window is {width} by {height}.", f"Give {_SMALLEST} to {_LARGEST} pixels for each.")
    async with asyncio.timeout(ACT_S):
        await page.set_viewport_size({"width": width, "height": height})
    return f"The window is {width} by {height} now."


# --- places ---------------------------------------------------------------------------------------


async def view(page: Page) -> tuple[int, int, int, int]:
    """Return the scroll position and the size of the window."""
    left, top, width, height = await numbers(page, "view", _ASK_S, how_many=4)
    return left, top, width, height


async def place(session: PageSession, page: Page, text: str) -> tuple[float, float]:
    """Return a place of the last screenshot in pixels of the window; scroll there if need be. Raises `Trouble`."""
    shot, (x, y) = session.shot, (int(one) for one in text.split(","))
    if shot is None or shot.page != page or shot.url != page.url.partition("#")[0]:
        raise Trouble("place", "There is no screenshot of this page.", _cure())
    if x >= shot.width or y >= shot.height:
        text = f"{text} is outside of the last screenshot, which is {shot.width:g} by {shot.height:g} pixels."
        raise Trouble("place", text, "Give a place inside of it, or take another one.")
    now = await view(page)
    if now[2:] != shot.scrolled[2:]:
        raise Trouble("place", "The window has another size than at the last screenshot.", _cure())
    if shot.window and now != shot.scrolled:
        raise Trouble("place", "The page was scrolled after the last screenshot.", _cure())
    across, down = shot.left + x, shot.top + y
    left, top, *_ = await numbers(page, "brought", _ASK_S, f"{across:g}", f"{down:g}", how_many=4)
    return across - left, down - top


def _cure() -> str:
    return f"First {PLACE}."


async def shot_of(page: Page, element: Locator | None, full_page: bool, size: tuple[float, float]) -> Shot:
    """Return the facts of a fresh screenshot that places in it need."""
    now = await view(page)
    left, top = (0.0, 0.0) if full_page else (float(now[0]), float(now[1]))
    if element is not None:
        box = await element.bounding_box(timeout=ACT_S * 1000)
        if box is not None:
            left, top = left + box["x"], top + box["y"]
    url = page.url.partition("#")[0]
    return Shot(
        page=page,
        url=url,
        left=left,
        top=top,
        width=size[0],
        height=size[1],
        scrolled=now,
        window=element is None and not full_page,
    )


async def _steady(page: Page, spot: tuple[float, float]) -> str:
    """Move the pointer to a place and return what is there. Raises `Trouble` when that keeps changing."""
    async with asyncio.timeout(ACT_S):
        before = ""
        for _ in range(3):
            await page.mouse.move(*spot)
            await asyncio.sleep(_REST_S)
            now = await _under(page, spot)
            if now == before:
                return now
            before = now
    text = "The page moves what is there under the pointer: nothing was clicked."
    raise Trouble("moving", text, "Take another `screenshot`, or use the keyboard.")


async def _under(page: Page, spot: tuple[float, float]) -> str:
    """Return the name of the element at a place of the window, as in `canvas` or `button “Save”`."""
    found = await asked(page, "under", _ASK_S, f"{spot[0]:g}", f"{spot[1]:g}")
    number, _, rest = found.partition(" ")
    tag, _, name = rest.partition(" ")
    ref = f" [ref=x{number}]" if number not in ("0", "") else ""
    named = f" “{one_line(name, 60)}”" if name.strip() else ""
    return f"{tag}{named}{ref}"
