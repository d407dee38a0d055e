"""Row: what it takes of memory to read a page of the web: the daemon and its reading room, before, meanwhile and after.

The reading room is ended when it was idle for five minutes (`tests/unit/agent_tools/web/test_reading_room.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiohttp import web

from tests.bench import measure
from tests.bench.figures import Figure
from tests.bench.rows.files import long_page
from tests.bench.world import WITHIN_S, Bench, pid_of, start
from tests.support.daemon import Daemon, Page, page_of

CONFIG = """
[owners]
ann = []
[tools.webfetch]
hosts = ["127.0.0.1:{port}"]
approval = "allow"
"""
MORE_MB = 60.0
"""Growth allowed to the daemon and its reading room while it is used."""
CALM_S = 1.5
LOOK_EVERY_S = 0.02


async def reading(bench: Bench) -> list[Figure]:
    """Read a page of one megabyte a few times, looking at the memory of all processes meanwhile."""
    async with _serving() as port:
        daemon = Daemon(folder=bench.new_folder(), config=CONFIG.format(port=port))
        try:
            await start(daemon)
            async with page_of(daemon, "ann") as page:
                await page.say("hello")
                await page.until_row("slot", lambda row: row["kind"] == "answer", WITHIN_S)
                await asyncio.sleep(CALM_S)
                pid = pid_of(daemon)
                before = measure.tree_pss_mb(pid)
                most = 0.0
                for count in range(1, max(2, bench.counts.starts) + 1):
                    most = max(most, await _read(page, f"http://127.0.0.1:{port}/page", count, pid))
                await asyncio.sleep(CALM_S)
                after = measure.pss_mb(pid)
        finally:
            await daemon.kill()
    beside = "floor: before"
    return [
        Figure(
            what=f"webfetch of 1 MB, most memory with the reading room; {beside}",
            value=most,
            unit="MB",
            floor=before,
            budget=before + MORE_MB,
        ),
        Figure(what=f"webfetch, memory of the daemon afterwards; {beside}", value=after, unit="MB", floor=before),
    ]


async def _read(page: Page, url: str, count: int, pid: int) -> float:
    """Fetch a page; return the most memory in MB until its result came. Raises `AssertionError` when it failed."""
    most, ended = 0.0, asyncio.Event()

    async def look() -> None:
        nonlocal most
        while not ended.is_set():
            most = max(most, await asyncio.to_thread(measure.tree_pss_mb, pid))
            await asyncio.sleep(LOOK_EVERY_S)

    async with asyncio.TaskGroup() as group:
        group.create_task(look(), name="look at the memory")
        await page.say(f"/webfetch {url}")
        await page.until_row("step", lambda _: len(_results(page)) >= count, WITHIN_S)
        ended.set()
    result = _results(page)[-1]
    assert result["status"] == "ok", result
    return max(most, measure.tree_pss_mb(pid))


def _results(page: Page) -> list[dict[str, object]]:
    """Results of all calls that ended, in order."""
    rows = sorted(page.rows.values(), key=lambda row: row["ord"])
    return [row["result"] for row in rows if row["type"] == "step" and row["kind"] == "tool" and row["result"]]


@asynccontextmanager
async def _serving() -> AsyncGenerator[int]:
    """Serve a long page; yields the port."""
    text = long_page()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text, content_type="text/html")

    app = web.Application()
    app.router.add_get("/page", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
