"""The tool `browser` as the daemon runs it: served, called, stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from agent_tools import browser
from agent_tools.browser.settings import BrowserSettings
from gateway.domain.scopes import Scopes
from gateway.domain.tools import ResultStatus, SandboxMode, ToolResult
from gateway.ports import StatefulTool, ToolContext
from tests.support.browser import executable
from tests.support.calls import BareCall
from tests.support.clock import FakeClock
from tests.support.pages import serving
from tests.support.sandbox_sessions import OpenPlace
from tests.support.surroundings import until

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.whole("a real Chromium for minutes; test_10_browser, test_guard and test_browser_reach stay"),
]


class Session:
    """Calls as `execution` makes them."""

    def __init__(self, tool: StatefulTool, workspace: Path, *scopes: str) -> None:
        self._tool = tool
        self._context = BareCall(workspace)
        self._context.kept_for, self._context.sandbox = "ann", SandboxMode.OFF
        self._context.scopes = Scopes(frozenset(scopes))

    async def __call__(self, action: str, **more: Any) -> ToolResult:
        args = browser.Args.model_validate({"action": action, **more})
        result = await self._tool.run(cast("ToolContext", self._context), args)
        assert isinstance(result, ToolResult)
        return result


@asynccontextmanager
async def kept(folder: Path, **settings: object) -> AsyncGenerator[tuple[StatefulTool, OpenPlace]]:
    place = OpenPlace(
        folder / "tool", BrowserSettings.model_validate({"executable": executable(), **settings}), FakeClock()
    )
    tool = browser.create(place)
    serving_it = asyncio.create_task(tool.serve())
    try:
        yield tool, place
    finally:
        serving_it.cancel()
        with suppress(asyncio.CancelledError):
            await serving_it


async def test_a_session_at_the_browser(tmp_path: Path) -> None:
    async with serving() as pages, kept(tmp_path) as (tool, place):
        ann = Session(tool, tmp_path, pages.scope)
        assert (await ann("close")).text == "No page was open."
        opened = await ann("open", url=f"{pages.here}/plain")
        assert (opened.status, opened.untrusted) == (ResultStatus.OK, True)
        assert "A plain page" in opened.text

        # What one call is allowed, the next is not.
        stranger = await Session(tool, tmp_path)("text")
        assert stranger.status is ResultStatus.ERROR
        assert "A plain page" not in stranger.text

        await ann("open", url=f"{pages.here}/plain")
        call = asyncio.create_task(ann("open", url=f"{pages.here}/forever"))
        await until(lambda: any(one.endswith("/forever") for one in pages.asked))
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        assert "A plain page" in (await ann("open", url=f"{pages.here}/plain")).text

        call = asyncio.create_task(ann("open", url=f"{pages.here}/hang"))
        await until(lambda: any(one.endswith("/hang") for one in pages.asked))
        place.sessions[0].crash()
        crashed = await call
        assert (crashed.status, crashed.code) == (ResultStatus.ERROR, "crashed")
        assert "Open the page again" in crashed.hint

        again = await ann("open", url=f"{pages.here}/plain")
        assert "A plain page" in again.text
        assert len(place.sessions) == 2
        assert (await ann("close")).text == "Closed; cookies are kept."


async def test_unstartable_browser_is_a_result_with_a_cure(tmp_path: Path) -> None:
    async with kept(tmp_path, executable=str(tmp_path / "none")) as (tool, _):
        result = await Session(tool, tmp_path)("open", url="https://example.org/")
        assert (result.status, result.code) == (ResultStatus.ERROR, "browser")
        assert "cannot be run" in result.text
        assert "Correct `executable`" in result.hint
