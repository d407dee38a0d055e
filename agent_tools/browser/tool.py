"""Runs one call of the browser, after everything that decides: finds the session's place and acts in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from agent_tools.browser.arguments import Args, scopes_of
from agent_tools.browser.pool import BrowserPool
from agent_tools.browser.settings import BrowserSettings
from gateway.domain.tools import ResultStatus, ToolResult
from gateway.errors import DragomanError
from gateway.ports import ToolContext, ToolHost

if TYPE_CHECKING:
    from agent_tools.browser.page_session import PageSession


_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What becomes of values that a page forged, in playwright too. Their text is the page's, so it is not told."""


class BrowserTool:
    """`ports.KeptTool`."""

    def __init__(self, place: ToolHost) -> None:
        """Nothing is started here."""
        self._settings = cast("BrowserSettings", place.settings)
        self._keeper = BrowserPool(place, _prepare)

    async def serve(self) -> None:
        """Keep the browsers, until cancelled."""
        await self._keeper.serve()

    async def run(self, ctx: ToolContext, args: Args) -> ToolResult:
        """Do one call. What fails is a result; only a cancellation goes on."""
        try:
            if args.action == "close" and args.tab is None:
                return await self._close(ctx)
            async with self._keeper.seat(ctx.kept_for, ctx.sandbox) as seat:
                return await self._act(seat, ctx, args)
        except DragomanError as error:
            return _failed(error.message, "browser", error.cure)

    async def _close(self, ctx: ToolContext) -> ToolResult:
        was_there = await self._keeper.leave(ctx.kept_for, ctx.sandbox)
        said = "Closed; cookies are kept." if was_there else "No page was open."
        return ToolResult(status=ResultStatus.OK, text=said)

    async def _act(self, seat: PageSession, ctx: ToolContext, args: Args) -> ToolResult:
        from playwright.async_api import Error

        from agent_tools.browser.actions import perform

        seat.scopes = scopes_of(args, ctx.scopes)
        seat.gate.let(seat.scopes)
        try:
            result = await perform(seat, ctx, args, self._settings)
        except Error as error:
            result = _failed(
                _first_line(error), "page", "Take a `snapshot` to see where the page is now.", stranger=True
            )
        except _UNREADABLE:
            result = _failed("The page gave an answer that cannot be read.", "page", "Open another page.")
        browser = seat.context.browser
        if browser is not None and not browser.is_connected():
            return _failed("The browser crashed.", "crashed", "Open the page again: the browser is started anew.")
        if seat.crashed:
            return _failed("The page crashed.", "crashed", "Open it again, or another one.")
        return result


async def _prepare(seat: PageSession) -> None:
    from agent_tools.browser.tabs import prepare

    await prepare(seat)


def _failed(text: str, code: str, hint: str, *, stranger: bool = False) -> ToolResult:
    return ToolResult(status=ResultStatus.ERROR, text=text, code=code, hint=hint, untrusted=stranger)


def _first_line(error: Exception) -> str:
    """What a page can put there stays short; the call log below it is left out."""
    return (str(error).strip().splitlines() or ["The page did not do that."])[0][:300]
