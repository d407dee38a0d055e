"""Page content: snapshot, text, screenshot, script result. Bounded in time and size. Used by `actions`.

All of it is untrusted.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from typing import Any

from playwright.async_api import Error, FloatRect, Page
from playwright.async_api import TimeoutError as PlaywrightTimeout

from agent_tools.browser import clickables
from agent_tools.browser.clickables import ref_of
from agent_tools.browser.errors import Trouble, meaning
from agent_tools.browser.mouse import shot_of
from agent_tools.browser.navigating import require_host, stop
from agent_tools.browser.page_queries import asked, asked_of, numbers
from agent_tools.browser.page_session import PageSession, Shot
from agent_tools.browser.pointing import locate
from gateway.domain.text import one_line

LONGEST = 24_000
"""Most characters of a page in one result."""
BRIEF = 8_000
"""Most characters of a page in the result of an action on it."""
LONGEST_JSON = 16_384
"""Most bytes of a script's result."""
TALLEST = 10_000
"""Most pixels in height of a full-page screenshot."""
LARGEST_PICTURE = 10 * 1024 * 1024
"""Most bytes of a screenshot."""
_MOST_ELEMENTS = 30_000
"""Most elements of a page for a snapshot: 10,000 take one to two seconds of CPU."""
_MOST_CHARS = 5_000_000
"""Most characters of a page for a snapshot, which contains all of them until it is cut here."""
_FRAMES_S = 4.0
_SNAPSHOT_S = 10.0
"""Timeout in seconds of a snapshot or a page's text."""
_ASK_S = 3.0
_PICTURE_S = 15.0
"""Timeout in seconds of a screenshot."""
_MOST_LISTED = 4_000
"""Most characters of the elements without a role."""


async def snapshot(session: PageSession, page: Page, ref: str | None = None, limit: int = LONGEST) -> str:
    """Return the elements of the page, or of one part, with their refs. Return a page that is too large as text.

    Elements that a person can use and that have no role come last (`clickables`).
    """
    elements, chars = await numbers(page, "extent", _ASK_S, how_many=2)
    if elements > _MOST_ELEMENTS or chars > _MOST_CHARS:
        words = await _words(page, limit)
        size = f"{elements} elements and {chars} characters"
        return f"(The page has {size}, too many for a snapshot: this is the beginning of its text.)\n{words}"
    try:
        tree = await _tree_and_listeners(page)
    except PlaywrightTimeout:
        words = await _words(page, limit)
        return f"(The page took too long for a snapshot: this is the beginning of its text.)\n{words}"
    found = await clickables.search(session, page)
    tree = clickables.annotated(tree, found)
    if ref is not None:
        return fitted(part(tree, ref), limit)
    more = clickables.listed(tree, found, min(limit // 3, _MOST_LISTED))
    return fitted(tree, limit - len(more)) + more


async def _tree(page: Page) -> str:
    """Return playwright's snapshot. It waits for every frame; after a timeout loading is stopped."""
    try:
        return await page.aria_snapshot(mode="ai", timeout=_FRAMES_S * 1000)
    except PlaywrightTimeout:
        await stop(page)
        return await page.aria_snapshot(mode="ai", timeout=_SNAPSHOT_S * 1000)


async def _tree_and_listeners(page: Page) -> str:
    """Return playwright's snapshot, while `clickables` asks which elements listen to events."""

    async def caught() -> str | Error:
        try:
            return await _tree(page)
        except Error as error:  # raised below as itself, not as a group of errors
            return error

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(caught(), name="browser snapshot")
        await clickables.hear(page)
    tree = reading.result()
    if isinstance(tree, Error):
        raise tree
    return tree


async def _words(page: Page, limit: int) -> str:
    return await asked(page, "words", _SNAPSHOT_S, limit=limit)


async def text(page: Page, ref: str | None) -> str:
    """Return the visible text from its beginning; of a very large page, all text."""
    elements, chars = await numbers(page, "extent", _ASK_S, how_many=2)
    if ref is not None:
        words = await asked_of(await locate(page, ref), "shown", _SNAPSHOT_S, limit=LONGEST + 1)
    elif elements > _MOST_ELEMENTS or chars > _MOST_CHARS:
        words = await _words(page, LONGEST + 1)
    else:
        words = await asked(page, "shown", _SNAPSHOT_S, limit=LONGEST + 1)
    if len(words) <= LONGEST:
        return words
    return f"{words[:LONGEST]}\n(This is the beginning. For more, give the `ref` of a part that `snapshot` shows.)"


async def picture(session: PageSession, page: Page, ref: str | None, full_page: bool) -> tuple[bytes, Shot, int]:
    """Return a JPEG of the window, of one element, or of the page down to `TALLEST` pixels; and what it shows.

    Elements without a name are marked in it with their refs; the number of marks comes last.
    """
    element = None if ref is None else await locate(page, ref)
    async with clickables.marked(session, page) as marks:
        how: dict[str, Any] = {"type": "jpeg", "quality": 60, "timeout": _PICTURE_S * 1000}
        size = await _size(page, full_page)
        if element is not None:
            data = await element.screenshot(**how)
            box = await element.bounding_box(timeout=_PICTURE_S * 1000)
            size = (box["width"], box["height"]) if box else size
        elif full_page:
            clip: FloatRect = {"x": 0, "y": 0, "width": size[0], "height": size[1]}
            data = await page.screenshot(full_page=True, clip=clip, **how)
        else:
            data = await page.screenshot(**how)
    if len(data) > LARGEST_PICTURE:
        raise Trouble("size", "The picture is larger than 10 MB.", "Take one of what shows, or of one element.")
    return data, await shot_of(page, element, full_page, size), marks


async def _size(page: Page, full_page: bool) -> tuple[float, float]:
    if full_page:
        wide, tall = await numbers(page, "size", _ASK_S, how_many=2)
        return min(wide, 2000), min(tall, TALLEST)
    window = page.viewport_size or {"width": 1280, "height": 800}
    return window["width"], window["height"]


async def evaluated(page: Page, script: str, host: str, limit_s: float) -> str:
    """Run a script in the page and return its value as JSON. Raises `Trouble` with the script's own error.

    It runs only in a document of this host: when the page navigates away, the window handle becomes invalid.
    """
    try:
        async with asyncio.timeout(limit_s):
            window = await page.evaluate_handle("window")
            require_host(page, host)
            value = await window.evaluate(script)
    except Error as error:
        if found := re.search(r"evaluate: ((?:\w*Error|Uncaught)\b.*)", error.message):
            raise Trouble("script", f"The script failed: {one_line(found[1], 500)}", "Correct the script.") from None
        raise meaning(error.message) from None
    given = json.dumps(value, ensure_ascii=False, default=str)
    if len(given.encode()) > LONGEST_JSON:
        raise Trouble("size", "What the script returned is longer than 16 KB.", "Let it return less.")
    return given


async def position(page: Page) -> str:
    """Return a sentence with the scroll position; empty when the page does not answer."""
    with suppress(Error, TimeoutError, Trouble):
        top, tall = await numbers(page, "scrolled", _ASK_S, how_many=2)
        return f"The page is {tall} pixels high, and shows what is at {top}."
    return ""


# --- snapshot text, pure --------------------------------------------------------------------------


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def part(tree: str, ref: str) -> str:
    """Return one element of a snapshot with its descendants. Raises `Trouble` when it is not there."""
    lines = tree.split("\n")
    for n, line in enumerate(lines):
        if ref_of(line) == ref:
            depth = _depth(line)
            end = next((m for m in range(n + 1, len(lines)) if _depth(lines[m]) <= depth), len(lines))
            return "\n".join(one[depth:] for one in lines[n:end])
    raise Trouble("ref", f"There is no {ref} on the page now.", "Take a new snapshot without `ref`.")


def fitted(tree: str, limit: int) -> str:
    """Return a snapshot whole when it fits; else its beginning, and the outermost elements with refs of the rest."""
    if len(tree) <= limit:
        return tree
    lines = tree.split("\n")
    shown, room = 0, limit * 2 // 3
    while shown < len(lines) and room >= len(lines[shown]) + 1:
        room -= len(lines[shown]) + 1
        shown += 1
    outline = _outline(lines[shown:], limit // 3 - 300)
    beneath = "\n(The rest in outline; for a part of it give its `ref` to `snapshot` or `text`.)\n" if outline else ""
    cut = f"(The snapshot has {len(tree)} characters; this is its beginning.)\n"
    return cut + "\n".join(line[:limit] for line in lines[:shown]) + beneath + "\n".join(outline)


def _outline(lines: list[str], room: int) -> list[str]:
    """Return the lines with refs down to the greatest depth that fits; if none fits, the first lines that do."""
    named = [line for line in lines if ref_of(line)]
    kept: list[str] = []
    for depth in sorted({_depth(line) for line in named}):
        wider = [line for line in named if _depth(line) <= depth]
        if sum(len(line[:200]) + 1 for line in wider) > room:
            break
        kept = wider
    if not kept:
        for line in named:
            room -= len(line[:200]) + 1
            if room < 0:
                break
            kept.append(line)
    return [line[:200] for line in kept]
