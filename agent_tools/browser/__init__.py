"""The tool `browser`: web pages in one sandboxed Chromium, shared by all sessions.

`spec` has its timeouts; `arguments` validates a call and states its scope; `BrowserTool` runs it. Playwright is
imported at the first call, not before.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from agent_tools.browser.arguments import Args, schema, scope, scopes_of
from agent_tools.browser.chromium_path import find_chromium
from agent_tools.browser.pool import BrowserPool
from agent_tools.browser.settings import BrowserSettings
from agent_tools.browser.spec import SPEC
from gateway.domain.tools import ResultStatus, ToolResult
from gateway.errors import DragomanError
from gateway.ports import StatefulTool, ToolContext, ToolHost

if TYPE_CHECKING:
    from agent_tools.browser.page_session import PageSession

__all__ = ["SPEC", "Args", "create", "look", "schema", "scope"]

_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""Errors that values forged by a page cause, also inside playwright. Their text is the page's, so it is withheld."""


def create(host: ToolHost) -> StatefulTool:
    """Make the tool. Nothing is started before its first call."""
    return BrowserTool(host)


def look(settings: BrowserSettings) -> str:
    """Describe the Chromium that would run. Raises `NotFound` with the cure when there is none."""
    return f"Chromium is {find_chromium(settings.executable, os.environ)}"


class BrowserTool:
    """The stateful tool (`ports.StatefulTool`): one browser pool for the daemon."""

    def __init__(self, host: ToolHost) -> None:
        """Create the pool without starting a browser."""
        self._settings = cast("BrowserSettings", host.settings)
        self._pool = BrowserPool(host, _prepare)

    async def serve(self) -> None:
        """Run the browsers until cancelled."""
        await self._pool.serve()

    async def run(self, ctx: ToolContext, args: Args) -> ToolResult:
        """Run one call. A failure is a result; only a cancellation propagates."""
        try:
            if args.action == "close" and args.tab is None:
                return await self._close(ctx)
            async with self._pool.session(ctx.kept_for, ctx.process.sandbox) as session:
                return await self._act(session, ctx, args)
        except DragomanError as error:
            return _failed(error.message, "browser", error.cure)

    async def _close(self, ctx: ToolContext) -> ToolResult:
        was_there = await self._pool.leave(ctx.kept_for, ctx.process.sandbox)
        said = "Closed; cookies are kept." if was_there else "No page was open."
        return ToolResult(status=ResultStatus.OK, text=said)

    async def _act(self, session: PageSession, ctx: ToolContext, args: Args) -> ToolResult:
        from playwright.async_api import Error

        from agent_tools.browser.actions import perform

        session.scopes = scopes_of(args, ctx.scopes)
        session.proxy.let(session.scopes)
        try:
            result = await perform(session, ctx, args, self._settings)
        except Error as error:
            result = _failed(
                _first_line(error), "page", "Take a `snapshot` to see where the page is now.", stranger=True
            )
        except _UNREADABLE:
            result = _failed("The page gave an answer that cannot be read.", "page", "Open another page.")
        browser = session.context.browser
        if browser is not None and not browser.is_connected():
            return _failed("The browser crashed.", "crashed", "Open the page again: the browser is restarted.")
        if session.crashed:
            return _failed("The page crashed.", "crashed", "Open it again, or another one.")
        return result


async def _prepare(session: PageSession) -> None:
    from agent_tools.browser.tabs import prepare

    await prepare(session)


def _failed(text: str, code: str, hint: str, *, stranger: bool = False) -> ToolResult:
    return ToolResult(status=ResultStatus.ERROR, text=text, code=code, hint=hint, untrusted=stranger)


def _first_line(error: Exception) -> str:
    """Return the first line, cut at 300 characters: a page can write text there, and the call log follows below it."""
    return (str(error).strip().splitlines() or ["The page did not do that."])[0][:300]
