"""The browser pool with a real Chromium, and pages of a server in the test."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.typedefs import Handler
from playwright.async_api import Error, Page

from agent_tools.browser import chromium
from agent_tools.browser.page_session import PageSession
from agent_tools.browser.pool import BrowserPool
from agent_tools.browser.settings import BrowserSettings
from gateway.domain.tools import SandboxMode
from gateway.errors import DragomanError
from tests.support.browser import executable
from tests.support.clock import FakeClock
from tests.support.fakes import in_background
from tests.support.patience import PATIENCE_S
from tests.support.sandbox_sessions import OpenPlace
from tests.support.surroundings import until

SPIN = """<script>
    while (true) { const said = new XMLHttpRequest(); said.open('GET', '/spinning', false); said.send(); }
</script>"""
"""Never ends, as an empty loop does, and leaves the processor to the other tests."""

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.whole("a real Chromium for minutes; test_10_browser, test_guard and test_browser_reach stay"),
]


async def _hello(request: web.Request) -> web.Response:
    return web.Response(text=f"<title>{request.headers.get('Cookie', 'nobody')}</title>", content_type="text/html")


async def _sign_in(request: web.Request) -> web.Response:
    answer = web.Response(text="<script>localStorage.setItem('seen', 'yes')</script>", content_type="text/html")
    answer.set_cookie("who", request.query["name"])
    return answer


async def _never(request: web.Request) -> web.Response:
    await asyncio.sleep(60)
    raise web.HTTPGone


async def _spin(request: web.Request) -> web.Response:
    return web.Response(text=SPIN, content_type="text/html")


async def _spinning(request: web.Request) -> web.Response:
    await asyncio.sleep(0.5)
    return web.Response()


class Site(str):
    """The address of the test's server."""

    asked: list[str]


@pytest_asyncio.fixture(loop_scope="session")
async def site() -> AsyncGenerator[Site]:
    asked: list[str] = []

    @web.middleware
    async def heard(request: web.Request, handler: Handler) -> web.StreamResponse:
        asked.append(request.path)
        return await handler(request)

    app = web.Application(middlewares=[heard])
    app.add_routes([web.get(path, handler) for path, handler in _ROUTES.items()])
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    server = web.TCPSite(runner, "127.0.0.1", 0)
    await server.start()
    host, port = runner.addresses[0][:2]
    address = Site(f"http://{host}:{port}")
    address.asked = asked
    yield address
    await runner.cleanup()


_ROUTES = {"/": _hello, "/sign-in": _sign_in, "/never": _never, "/spin": _spin, "/spinning": _spinning}


class Browsers:
    """A running pool with helpers of the tests."""

    def __init__(self, place: OpenPlace, clock: FakeClock, pool: BrowserPool) -> None:
        self.place, self.clock, self.pool = place, clock, pool
        self._others = drivers()

    def drivers(self) -> list[int]:
        """Return the playwright processes that this pool started."""
        return [pid for pid in drivers() if pid not in self._others]

    async def title(self, key: str, url: str) -> str:
        """Open a page as one call does."""
        async with self.pool.session(key, SandboxMode.OFF) as session:
            page = await page_of(session)
            await page.goto(url)
            return await page.title()

    async def asks(self, key: str, url: str) -> str:
        """Fetch a URL with the context's cookies and proxy, without a page: a page costs half a second of CPU."""
        async with self.pool.session(key, SandboxMode.OFF) as session:
            return await fetched(session, url)

    async def rested(self, seconds: float, until: Callable[[], bool]) -> None:
        """Advance the clock and wait for the effects."""
        self.clock.advance(seconds)
        await happens(until)


async def happens(what: Callable[[], bool]) -> None:
    for _ in range(500):
        if what():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not happen within 10 s")


async def page_of(session: PageSession) -> Page:
    session.page = session.page or await session.context.new_page()
    return session.page


async def fetched(session: PageSession, url: str) -> str:
    answer = await session.context.request.get(url)
    return (await answer.text()).removeprefix("<title>").removesuffix("</title>")


async def _prepare(session: PageSession) -> None:
    session.notes.append("prepared")


@contextlib.asynccontextmanager
async def served(folder: Path, **settings: object) -> AsyncGenerator[Browsers]:
    clock = FakeClock()
    place = OpenPlace(folder / "tool", BrowserSettings.model_validate({"executable": executable(), **settings}), clock)
    pool = BrowserPool(place, _prepare)
    made = Browsers(place, clock, pool)
    serving = asyncio.create_task(pool.serve())
    try:
        yield made
    finally:
        serving.cancel()
        began = asyncio.get_running_loop().time()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        assert asyncio.get_running_loop().time() - began < 5
        assert left_running(place) == []
        # playwright's own process may be ready only after a stop that has waited for it; then it ends by itself.
        await until(lambda: not made.drivers(), 20)


def left_running(place: OpenPlace) -> list[str]:
    """Return the command lines of this test's browsers that still run."""
    found: list[str] = []
    folders = [str(session.folder) for session in place.sessions]
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = one.read_text(errors="replace")
            found += [line[:200] for folder in folders if folder in line]
    return found


def drivers() -> list[int]:
    """Return the playwright processes that this process started."""
    found: list[int] = []
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        with contextlib.suppress(OSError):  # it may end meanwhile
            found += [int(pid)] if b"run-driver" in Path(f"/proc/{pid}/cmdline").read_bytes() else []
    return found


async def test_parallel_first_calls_share_one_browser_and_no_cookies(tmp_path: Path, site: Site) -> None:
    async with served(tmp_path) as browsers:
        async with asyncio.TaskGroup() as group:
            group.create_task(browsers.title("ann", f"{site}/sign-in?name=ann"))
            group.create_task(browsers.title("bob", f"{site}/sign-in?name=bob"))
        assert await browsers.title("ann", site) == "who=ann"
        assert await browsers.title("bob", site) == "who=bob"
        assert [len(session.proxies) for session in browsers.place.sessions] == [2]
        # Nothing but what the pages asked for went out.
        asked = {host for proxy in browsers.place.sessions[0].proxies for host in proxy.asked}
        assert asked == {site.removeprefix("http://")}


async def test_idle_browser_is_ended_and_cookies_are_kept(tmp_path: Path, site: Site) -> None:
    async with served(tmp_path, idle=60) as browsers:
        await browsers.title("ann", f"{site}/sign-in?name=ann")
        [session] = browsers.place.sessions
        await browsers.rested(59, until=lambda: True)
        await asyncio.sleep(1.2)
        assert session.folder.exists()

        await browsers.rested(1, until=lambda: not session.folder.exists() and not browsers.drivers())
        assert left_running(browsers.place) == []
        [kept] = (browsers.place.folder / "states").iterdir()
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600

        async with browsers.pool.session("ann", SandboxMode.OFF) as session:
            assert "pages of earlier are not open any more" in session.notes[0]
            page = await page_of(session)
            await page.goto(site)
            assert (await page.title(), await page.evaluate("localStorage.seen")) == ("who=ann", "yes")
        assert len(browsers.place.sessions) == 2


async def test_the_place_unused_for_the_longest_gives_way(tmp_path: Path, site: Site) -> None:
    async with served(tmp_path, sessions=2) as browsers:
        for name in ("ann", "bob"):
            await browsers.asks(name, f"{site}/sign-in?name={name}")
            browsers.clock.advance(1)
        await browsers.asks("cid", site)  # ann gives way
        [session] = browsers.place.sessions
        assert session.open == 2
        assert [path.name for path in (browsers.place.folder / "states").iterdir()] == ["ann.json"]
        assert await browsers.asks("ann", site) == "who=ann"  # bob gives way


async def test_seat_in_use_is_kept_and_calls_of_one_session_wait(tmp_path: Path, site: Site) -> None:
    async with served(tmp_path, sessions=1) as browsers:
        async with browsers.pool.session("ann", SandboxMode.OFF) as session:
            second = asyncio.create_task(browsers.asks("ann", site))
            with pytest.raises(DragomanError, match=r"All 1 page sessions .* in use.* raise `sessions`"):
                await browsers.asks("bob", site)
            await fetched(session, f"{site}/sign-in?name=ann")
            assert not second.done()
        assert await second == "who=ann"
        assert await browsers.pool.leave("ann", SandboxMode.OFF) is True
        assert await browsers.pool.leave("ann", SandboxMode.OFF) is False
        assert await browsers.asks("ann", site) == "who=ann"
        assert await browsers.asks("bob", site) == "nobody"


async def asks_until_anew(browsers: Browsers, site: Site, count: int) -> None:
    """Ask until so many browsers were started. Until its end is noticed, playwright answers without the last one."""
    async with asyncio.timeout(PATIENCE_S):
        while len(browsers.place.sessions) < count:
            assert await browsers.asks("ann", site) == "nobody"


async def test_crash_ends_the_call_under_way_and_no_later_one(tmp_path: Path, site: Site) -> None:
    async with served(tmp_path) as browsers:
        await browsers.asks("ann", site)
        browsers.place.sessions[0].crash()
        await asks_until_anew(browsers, site, 2)
        await until(lambda: len(browsers.drivers()) == 1)  # that of the first browser has ended
        os.kill(browsers.drivers()[0], signal.SIGKILL)
        await asks_until_anew(browsers, site, 3)

        async with browsers.pool.session("ann", SandboxMode.OFF) as session:
            page = await page_of(session)
            browsers.place.sessions[2].crash()
            with pytest.raises(Error):
                await page.goto(f"{site}/never")
        assert await browsers.asks("ann", site) == "nobody"


async def test_slow_starting_browser_is_not_ended_as_idle(tmp_path: Path, site: Site) -> None:
    said: list[str] = []
    async with served(tmp_path) as browsers:

        async def asks() -> None:
            said.append(await browsers.asks("ann", site))

        async with in_background(asks()) as asking:
            await happens(lambda: bool(browsers.place.sessions))
            browsers.clock.advance(100_000)
            await asking
    assert said == ["nobody"]


async def test_a_page_that_crashed_is_closed_and_the_cookies_stay(tmp_path: Path, site: Site) -> None:
    async with served(tmp_path) as browsers:
        await browsers.title("ann", f"{site}/sign-in?name=ann")
        async with browsers.pool.session("ann", SandboxMode.OFF) as session:
            page = await page_of(session)
            with pytest.raises(Error):
                await page.goto("chrome://crash")
        await happens(lambda: bool(session.crashed))
        async with browsers.pool.session("ann", SandboxMode.OFF) as again:
            assert again is session
            assert (again.page, again.crashed) == (None, [])
        assert await browsers.title("ann", site) == "who=ann"
        assert len(browsers.place.sessions) == 1


async def test_a_cut_call_leaves_the_page_usable(tmp_path: Path, site: Site) -> None:
    async with served(tmp_path) as browsers:
        await browsers.title("ann", site)
        call = asyncio.create_task(browsers.title("ann", f"{site}/never"))
        await happens(lambda: "/never" in site.asked)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        async with browsers.pool.session("ann", SandboxMode.OFF) as session:
            assert session.page is not None
            assert await session.page.title() == "nobody"
        assert await browsers.title("ann", site) == "nobody"


async def test_a_page_that_does_not_answer_is_closed_after_a_cut_call(tmp_path: Path, site: Site) -> None:
    async with served(tmp_path) as browsers:
        await browsers.asks("bob", site)
        call = asyncio.create_task(browsers.title("ann", f"{site}/spin"))
        await happens(lambda: "/spinning" in site.asked)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        async with browsers.pool.session("ann", SandboxMode.OFF) as session:
            assert session.page is None
            assert "did not answer" in session.notes[-1]
        assert await browsers.title("ann", site) == "nobody"
        assert await browsers.asks("bob", site) == "nobody"
        assert len(browsers.place.sessions) == 1


async def test_seat_with_a_stuck_tab_is_given_up_after_the_call(tmp_path: Path, site: Site) -> None:
    async with served(tmp_path) as browsers:
        assert await browsers.title("ann", f"{site}/sign-in?name=ann") == ""
        async with browsers.pool.session("ann", SandboxMode.OFF) as first:
            first.stuck = True
        assert await browsers.title("ann", site) == "who=ann", "the cookies were kept"
        async with browsers.pool.session("ann", SandboxMode.OFF) as second:
            assert second is not first
        assert len(browsers.place.sessions) == 1


async def test_a_first_call_that_is_cut_does_not_stop_the_start(tmp_path: Path, site: Site) -> None:
    async with served(tmp_path) as browsers:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await browsers.asks("ann", site)
        assert await browsers.asks("ann", site) == "nobody"
        assert len(browsers.place.sessions) == 1


async def test_a_daemon_that_stops_during_the_start_leaves_nothing(tmp_path: Path, site: Site) -> None:
    async with served(tmp_path) as browsers:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await browsers.asks("ann", site)


@pytest.mark.parametrize("after_s", [0.02, 0.25, 0.4, 0.7])
async def test_nor_does_one_that_stops_at_any_moment_around_it(tmp_path: Path, site: Site, after_s: float) -> None:
    async with served(tmp_path) as browsers:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(after_s):
                await browsers.asks("ann", site)


async def test_stop_does_not_wait_for_a_starting_browser(tmp_path: Path, site: Site) -> None:
    program = tmp_path / "never-ready"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o700)
    loop = asyncio.get_running_loop()
    async with served(tmp_path, executable=str(program)) as browsers:
        asking = asyncio.create_task(browsers.asks("ann", site))
        await until(lambda: bool(browsers.place.sessions))
        began = loop.time()
    assert loop.time() - began < 3
    with pytest.raises(DragomanError, match="is being shut down"):
        await asking


async def test_failed_start_of_a_browser_does_not_end_the_others(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Playwright's process ends, for example without memory: its error then has no type of its own."""
    async with served(tmp_path) as browsers:
        await browsers.asks("ann", site)
        monkeypatch.setenv("PLAYWRIGHT_NODEJS_PATH", "/bin/false")
        with pytest.raises(DragomanError, match="did not start"):
            async with browsers.pool.session("bob", SandboxMode.BASIC):
                pass
        assert await browsers.asks("ann", site) == "nobody"
        assert len(browsers.place.sessions) == 1


class _Driver:
    """playwright's, as far as it is begun and ended."""

    def __init__(self, takes_s: float) -> None:
        self.begun, self.stopped, self._takes_s = 0, 0, takes_s

    async def start(self) -> _Driver:
        self.begun += 1
        await asyncio.sleep(self._takes_s)
        return self

    async def stop(self) -> None:
        self.stopped += 1


@pytest.mark.parametrize("cuts", [1, 2])
async def test_driver_that_starts_after_its_caller_left_is_ended(monkeypatch: pytest.MonkeyPatch, cuts: int) -> None:
    made = _Driver(takes_s=0.5)
    monkeypatch.setattr(chromium, "async_playwright", lambda: made)
    monkeypatch.setattr(chromium, "DRIVER_S", 0.1 if cuts == 1 else 3.0)

    async def ask() -> None:
        async with chromium._driver():  # pyright: ignore[reportPrivateUsage]
            raise AssertionError("it was not ready")

    asking = asyncio.create_task(ask())
    for _ in range(cuts):
        await asyncio.sleep(0.1)
        asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await until(lambda: made.stopped == 1)
    assert made.begun == 1


async def test_stop_ends_browsers_that_start_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.asynccontextmanager
    async def fake(_place: object, _settings: object, sandbox: SandboxMode | None) -> AsyncGenerator[tuple[Any, Any]]:
        try:
            if sandbox is SandboxMode.BASIC:
                await asyncio.sleep(60)
            yield SimpleNamespace(on=print), None
        finally:
            ends.append("begins")
            await asyncio.sleep(0.3)
            ends.append("over")

    ends: list[str] = []
    monkeypatch.setattr(chromium, "chromium", fake)
    async with served(tmp_path) as browsers:
        await browsers.pool._instance(SandboxMode.OFF)  # pyright: ignore[reportPrivateUsage]
        other = asyncio.create_task(browsers.pool._instance(SandboxMode.BASIC))  # pyright: ignore[reportPrivateUsage]
        await asyncio.sleep(0.05)
    assert ends == ["begins", "begins", "over", "over"]
    with pytest.raises(DragomanError, match="is being shut down"):
        await other


async def test_without_chromium_the_call_says_what_to_do(tmp_path: Path, site: Site) -> None:
    async with served(tmp_path, executable=str(tmp_path / "none")) as browsers:
        for _ in range(2):
            with pytest.raises(DragomanError, match=r"cannot be run.* Correct `executable`"):
                await browsers.title("ann", site)


async def test_a_program_that_is_no_browser_is_said_to_be_none(tmp_path: Path, site: Site) -> None:
    async with served(tmp_path, executable="/bin/false") as browsers:
        with pytest.raises(DragomanError, match="did not start"):
            await browsers.title("ann", site)
        assert browsers.drivers() == []


async def test_states_of_sessions_that_did_not_come_back_are_forgotten(tmp_path: Path) -> None:
    states = tmp_path / "tool" / "states"
    states.mkdir(parents=True)
    now = FakeClock().now().timestamp()
    for name, days in (("old", 31), ("new", 29)):
        (states / f"{name}.json").write_text("{}")
        os.utime(states / f"{name}.json", (now, now - days * 86_400))
    async with served(tmp_path):
        await happens(lambda: not (states / "old.json").exists())
    assert [path.name for path in states.iterdir()] == ["new.json"]
