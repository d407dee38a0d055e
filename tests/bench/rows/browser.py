"""Rows: the browser on a page that the bench serves, driven by commands from the web page; and its memory.

The floor is playwright by itself with the same Chromium and the same page: no turn, no sandbox, no proxy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from playwright.async_api import Page as BarePage

from tests.bench import measure
from tests.bench.figures import Figure
from tests.bench.world import SETTLE_S, WITHIN_S, Bench, pid_of, start
from tests.support.browser import chromium
from tests.support.daemon import Daemon, Page, page_of
from tests.support.pages import Pages, serving

OWNERS = ("ann", "bob", "cid")
"""Each has a session of their own, and so a context."""
CONFIG = """
[owners]
{owners}
[tools.browser]
hosts = ["{host}"]
idle = "10s"
"""
PAGE = "/large?n=200"
"""A page of 100 links."""
CALM_S = 1.5
LOOK_EVERY_S = 0.1
ENDS_LOOKS = 300
LIBRARY_MB = 15.0
"""Memory that playwright's library keeps once it is imported."""
MS = 1000
JPEG: dict[str, Any] = {"type": "jpeg", "quality": 60}


# --- rows ---------------------------------------------------------------------------------------


async def times(bench: Bench) -> list[Figure]:
    """Measure the time until a person sees the answer: at first, and once the browser runs."""
    cold: list[float] = []
    bare_cold: list[float] = []
    took: list[list[float]] = []
    bare: list[list[float]] = []
    async with serving() as pages:
        for life in range(bench.counts.starts):
            count = bench.counts.pages if life == 0 else 0
            first, warm = await _timed_life(bench, pages, count)
            bare_first, bare_warm = await _timed_bare(pages, count)
            cold.append(first)
            bare_cold.append(bare_first)
            if life == 0:
                took, bare = warm, bare_warm
    acts = zip(("open", "snapshot", "screenshot"), took, bare, strict=True)
    return [
        _ms("first open, browser started", cold, bare_cold),
        *(_ms(what, mine, alone) for what, mine, alone in acts),
    ]


async def memory(bench: Bench) -> list[Figure]:
    """Measure the memory of the daemon and its descendants: with one context, with three, and after the shutdown."""
    async with serving() as pages, _daemon(bench, pages) as daemon, AsyncExitStack() as stack:
        opens = f"open {pages.here}{PAGE}"
        first, *others = [await stack.enter_async_context(page_of(daemon, owner)) for owner in OWNERS]
        for page in (first, *others):
            await _greeted(page)
        own = await _calm_mb(daemon)
        await _first(first, opens)
        await _asked(first, "screenshot")
        one = await _calm_mb(daemon)
        for page in others:
            await _first(page, opens)
            await _asked(page, "screenshot")
        every = await _calm_mb(daemon)
        await _ended(daemon)
        rest = await _calm_mb(daemon)
    beside = "floor: the daemon before"
    more = (every - one) / len(others)
    return [
        Figure(what=f"browser, memory with 1 context; {beside}", value=one, unit="MB", floor=own),
        Figure(what="browser, memory of each context more", value=more, unit="MB"),
        Figure(
            what=f"browser, memory once it is shut down; {beside}",
            value=rest,
            unit="MB",
            floor=own,
            budget=own + LIBRARY_MB,
        ),
    ]


def _ms(what: str, seconds: Sequence[float], bare: Sequence[float]) -> Figure:
    name = f"browser, {what}, p50; floor: bare playwright"
    return Figure(what=name, value=measure.p50(seconds) * MS, unit="ms", floor=measure.p50(bare) * MS)


# --- the daemon's -------------------------------------------------------------------------------


@asynccontextmanager
async def _daemon(bench: Bench, pages: Pages) -> AsyncGenerator[Daemon]:
    owners = "\n".join(f"{owner} = []" for owner in OWNERS)
    daemon = Daemon(folder=bench.new_folder(), config=CONFIG.format(owners=owners, host=pages.scope))
    try:
        await start(daemon)
        yield daemon
    finally:
        await daemon.kill()


async def _first(page: Page, words: str) -> float:
    """Give a session's first command for a host and press its button; return the seconds from then to the result."""
    await page.say(f"/browser {words}")
    card = await page.until_row("approval", lambda row: row["state"] == "open", WITHIN_S)
    began = time.perf_counter()
    await page.press(page.button(card, "once"))
    return await _ended_well(page, 1) - began


async def _asked(page: Page, words: str) -> float:
    """Give a command that nobody is asked about; return the seconds until its result is on the page."""
    before = len(_results(page))
    began = time.perf_counter()
    await page.say(f"/browser {words}")
    return await _ended_well(page, before + 1) - began


async def _ended_well(page: Page, count: int) -> float:
    """Wait for a call's result; return when it came. Raises `AssertionError` when it is that it failed."""
    await page.until_row("step", lambda _: len(_results(page)) >= count, WITHIN_S)
    now = time.perf_counter()
    result = _results(page)[-1]
    assert result["status"] == "ok", result
    await asyncio.sleep(SETTLE_S)
    return now


def _results(page: Page) -> list[dict[str, Any]]:
    """Of all calls that ended, in order."""
    rows = sorted(page.rows.values(), key=lambda row: row["ord"])
    return [row["result"] for row in rows if row["type"] == "step" and row["kind"] == "tool" and row["result"]]


async def _greeted(page: Page) -> None:
    """A turn without a call: what any turn takes for good is the daemon's own."""
    await page.say("hello")
    await page.until_row("slot", lambda row: row["kind"] == "answer", WITHIN_S)


async def _ended(daemon: Daemon) -> None:
    """Wait until nothing of the browser is left, which nobody uses any more."""
    for _ in range(ENDS_LOOKS):
        if not measure.tree(pid_of(daemon)):
            return
        await asyncio.sleep(LOOK_EVERY_S)
    raise AssertionError(f"the browser still runs {ENDS_LOOKS * LOOK_EVERY_S:g} s after its last use")


async def _calm_mb(daemon: Daemon) -> float:
    await asyncio.sleep(CALM_S)
    return measure.tree_pss_mb(pid_of(daemon))


async def _timed_life(bench: Bench, pages: Pages, count: int) -> tuple[float, list[list[float]]]:
    """Seconds of a life's first page, and of each act that often."""
    opens = f"open {pages.here}{PAGE}"
    async with _daemon(bench, pages) as daemon, page_of(daemon, OWNERS[0]) as page:
        first = await _first(page, opens)
        return first, await _timed(
            count, *(partial(_asked, page, words) for words in (opens, "snapshot", "screenshot"))
        )


# --- the floor ----------------------------------------------------------------------------------


async def _timed_bare(pages: Pages, count: int) -> tuple[float, list[list[float]]]:
    """The same without us."""
    began = time.perf_counter()
    async with chromium() as bare:
        page = await bare.new_page()
        await _open(page, pages)
        first = time.perf_counter() - began
        return first, await _timed(
            count,
            lambda: _took(_open(page, pages)),
            lambda: _took(page.aria_snapshot(mode="ai")),
            lambda: _took(page.screenshot(**JPEG)),
        )


async def _open(page: BarePage, pages: Pages) -> None:
    """Load the page and take its snapshot, which is the answer of the tool's `open`."""
    await page.goto(f"{pages.here}{PAGE}")
    await page.aria_snapshot(mode="ai")


async def _took(act: Awaitable[object]) -> float:
    began = time.perf_counter()
    await act
    return time.perf_counter() - began


async def _timed(count: int, *acts: Callable[[], Awaitable[float]]) -> list[list[float]]:
    """Do each in turn, so often; the seconds of each."""
    took: list[list[float]] = [[] for _ in acts]
    for _ in range(count):
        for act, seconds in zip(acts, took, strict=True):
            seconds.append(await act())
    return took
