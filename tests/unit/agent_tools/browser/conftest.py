"""Fixtures: a real Chromium with one page session, and pages to open."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Container, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest_asyncio
from playwright.async_api import Browser, Error, ViewportSize

from agent_tools.browser.actions import perform
from agent_tools.browser.arguments import Args
from agent_tools.browser.chromium import leave
from agent_tools.browser.guard import ask
from agent_tools.browser.page_session import PageSession
from agent_tools.browser.settings import BrowserSettings
from agent_tools.browser.tabs import prepare
from gateway.domain.scopes import Scopes
from gateway.domain.tools import Artifact, Picture, ResultStatus, ToolResult
from gateway.ports import ToolContext, TurnedAway
from tests.conftest import no_tasks_left
from tests.support.browser import chromium
from tests.support.calls import BareCall
from tests.support.pages import Pages, serving

WINDOW: ViewportSize = {"width": 1280, "height": 800}


class StandInEgressProxy:
    """Fake egress proxy that refuses the hosts set by a test."""

    address = ""

    def __init__(self) -> None:
        self.refused: list[TurnedAway] = []

    def let(self, scopes: Container[str]) -> None:
        """Allow everything."""

    def turned_away(self) -> Sequence[TurnedAway]:
        told, self.refused = self.refused, []
        return told


class Work(BareCall):
    """Fake context of a call: a workspace and an artifact store."""

    def __init__(self, cwd: Path) -> None:
        super().__init__(cwd)
        self.pictures: list[bytes] = []
        self.kept: list[tuple[Path, str, str]] = []

    async def picture(self, data: bytes, media_type: str) -> Picture:
        self.pictures.append(data)
        return Picture(file=f"{len(self.pictures)}.jpg", media_type=media_type)

    async def file(self, path: Path, name: str, media_type: str) -> Artifact:
        self.kept.append((path, name, media_type))
        return Artifact(file=name, name=name, media_type=media_type)


class Rig:
    """One session with a browser, driven by calls."""

    def __init__(self, session: PageSession, work: Work, pages: Pages) -> None:
        self.session, self.work, self.pages = session, work, pages
        self.proxy = cast("StandInEgressProxy", session.proxy)
        self.settings = BrowserSettings()

    async def __call__(self, action: str, **more: Any) -> ToolResult:
        args = Args.model_validate({"action": action, **more})
        return await perform(self.session, cast("ToolContext", self.work), args, self.settings)

    async def open(self, path: str) -> ToolResult:
        result = await self("open", url=self.pages.here + path)
        assert result.status is ResultStatus.OK, result
        return result

    async def ref(self, name: str) -> str:
        """Return the ref of the element with this name, from a new snapshot."""
        tree = (await self("snapshot")).text
        found = re.search(rf'"{re.escape(name)}".*?\[ref=(\w+)\]', tree)
        assert found is not None, tree
        return found[1]

    async def click(self, name: str) -> ToolResult:
        return await self("click", ref=await self.ref(name))

    @property
    def url(self) -> str:
        assert self.session.page is not None
        return self.session.page.url


class PageSessions:
    """Pool of page sessions for tests. A new one costs more than most tests, so one left in order is reused."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._free: PageSession | None = None

    async def take(self) -> PageSession:
        """Return a page session with one empty tab, without history, cookies and notes."""
        session, self._free = self._free, None
        return session or await self.make()

    async def make(self) -> PageSession:
        """Return a new page session."""
        context = await self._browser.new_context(service_workers="block", viewport=WINDOW)
        session = PageSession(context=context, proxy=StandInEgressProxy(), folder=Path())
        await prepare(session)
        return session

    async def give_back(self, session: PageSession) -> None:
        """Reset a page session for reuse; close one whose tabs a test changed, crashed or made hang."""
        if (
            self._free is None
            and [session.page] == session.context.pages
            and not session.crashed
            and await self._emptied(session)
        ):
            self._free = session
        else:
            await leave(session)

    @staticmethod
    async def _emptied(session: PageSession) -> bool:
        assert session.page is not None
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(2):
                await session.page.goto("about:blank")
                cdp = await session.context.new_cdp_session(session.page)
                await ask(cdp, "Page.resetNavigationHistory")
                await cdp.detach()
                await session.context.clear_cookies()
                await session.page.set_viewport_size(WINDOW)
            session.notes.clear()
            session.shot = None
            return [session.page] == session.context.pages
        return False


@pytest_asyncio.fixture(loop_scope="session")
async def no_task_is_left() -> AsyncIterator[None]:
    """Run the check of all tests in the event loop that the tests of this folder share."""
    async with no_tasks_left():
        yield


@pytest_asyncio.fixture(loop_scope="session")
async def pages() -> AsyncIterator[Pages]:
    async with serving() as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sessions() -> AsyncIterator[PageSessions]:
    """Share one browser among all tests of a process: its start takes longer than most of them."""
    async with chromium() as browser:
        yield PageSessions(browser)


@pytest_asyncio.fixture(loop_scope="session")
async def rig(sessions: PageSessions, pages: Pages, tmp_path: Path) -> AsyncIterator[Rig]:
    async with _rig(sessions, await sessions.take(), pages, tmp_path) as one:
        yield one


@pytest_asyncio.fixture(loop_scope="session")
async def new_desk(sessions: PageSessions, pages: Pages, tmp_path: Path) -> AsyncIterator[Rig]:
    """Give a session that no test used before."""
    async with _rig(sessions, await sessions.make(), pages, tmp_path) as one:
        yield one


@asynccontextmanager
async def _rig(sessions: PageSessions, session: PageSession, pages: Pages, folder: Path) -> AsyncGenerator[Rig]:
    work = Work(folder / "workspace")
    session.proxy, session.folder, session.scopes = (
        StandInEgressProxy(),
        folder / "page",
        Scopes(frozenset({pages.scope})),
    )
    work.cwd.mkdir()
    session.folder.mkdir()
    try:
        yield Rig(session, work, pages)
    finally:
        await sessions.give_back(session)
