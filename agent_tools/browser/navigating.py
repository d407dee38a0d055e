"""Navigation of tabs, limited to allowed hosts. Used by `actions`, between an action and its tab."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from playwright.async_api import Error, Frame, Page, Request, Response
from playwright.async_api import TimeoutError as PlaywrightTimeout

from agent_tools._web.urls import scope_of
from agent_tools.browser import tabs
from agent_tools.browser.errors import SNAPSHOT, Trouble
from agent_tools.browser.guard import CURE, ask, note
from agent_tools.browser.page_session import PageSession
from gateway.domain.text import one_line

NOTHING_OPEN = "No page is open."
_BLANK = frozenset({"", "about:blank"})
_QUIET = """async () => {
  try {
    await new Promise(done => {
      const end = () => { watcher.disconnect(); done(); };
      let timer = setTimeout(end, 100);
      const watcher = new MutationObserver(() => { clearTimeout(timer); timer = setTimeout(end, 100); });
      watcher.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
      setTimeout(end, 1000);
    });
  } catch {}
}"""
"""Script that ends when the page was unchanged for 100 ms, or after a second. Never raises in a hostile page."""
SETTLE_S = 15.0
"""Timeout in seconds for a page that navigates to another host; a loaded page settles in two."""
_STOP_S = 0.5
_ALIVE_S = 2.0
_EMPTY_S = 3.0
_PAUSE_S = 0.05
_LEAST_S = 0.5
_INTERRUPTED = "interrupted by another navigation"
"""Text of playwright's error."""
_SEEN_S = 0.2
"""Timeout in seconds for the report of the navigation that ended another one."""


async def go(session: PageSession, page: Page, url: str, limit_s: float) -> tuple[Page, int]:
    """Load a URL until its content is there. Return the tab and the HTTP status, 0 when there is none.

    A page that keeps reloading interrupts this navigation or takes the tab back. The load is then retried once in a new
    tab. Raises `Trouble`.
    """
    ends_at = asyncio.get_running_loop().time() + limit_s
    loaded, status = await _load(session, page, url, limit_s)
    if not loaded:
        page = await _replaced(session, page)
        left_s = max(_LEAST_S, ends_at - asyncio.get_running_loop().time())
        _, status = await _load(session, page, url, left_s)
    await settle(page)
    return page, status


async def _load(session: PageSession, page: Page, url: str, limit_s: float) -> tuple[bool, int]:
    """Go to a URL; return whether the tab certainly shows it, and the HTTP status. Raises as `go`.

    Chromium reports no response for a navigation that raced with another of the same tab, nor for a jump within a page.
    It also reports an answer without content, such as 204, as aborted. That must not be asked for again.
    """
    assert session.guard is not None, "`tabs.prepare` comes first"
    session.guard.stopped = ""
    within = "#" in url and page.url.partition("#")[0] == url.partition("#")[0]
    others = _OtherNavigations(page, url)
    try:
        response = await page.goto(url, wait_until="commit", timeout=limit_s * 1000)
    except Error as error:
        aborted = "ERR_ABORTED" in error.message and not session.guard.stopped
        ended = _INTERRUPTED in error.message or (aborted and await others.seen())
        if ended and page.url not in _BLANK:
            return False, 0
        await stop(page)
        if session.guard.stopped:
            session.notes.clear()  # they repeat the error
            raise outside(session.guard.stopped) from None
        if "Download is starting" in error.message:
            raise Trouble("file", "That address is a file, not a page.", "Use `download` with the address.") from None
        if isinstance(error, PlaywrightTimeout):
            raise Trouble("timeout", f"The host did not answer within {limit_s:g} seconds.", "Try later.") from None
        if aborted and not ended:
            raise Trouble("no_page", "The address gave no page.", "Open another address.") from None
        raise
    finally:
        others.end()
    return response is not None or within, response.status if response else 0


class _OtherNavigations:
    """Watcher of a tab's own navigations while a call navigates it. End it after the call's navigation."""

    def __init__(self, page: Page, url: str) -> None:
        self._page = page
        self._url = url.partition("#")[0].rstrip("/")
        self._requests = 0
        self._other = asyncio.Event()
        page.on("request", self._requested)
        page.on("framenavigated", self._navigated)

    async def seen(self) -> bool:
        """Return whether there was one, after a moment in which it may still be reported."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SEEN_S):
                await self._other.wait()
        return self._other.is_set()

    def end(self) -> None:
        """Stop watching."""
        self._page.remove_listener("request", self._requested)
        self._page.remove_listener("framenavigated", self._navigated)

    def _requested(self, request: Request) -> None:
        if not request.is_navigation_request() or request.redirected_from is not None:
            return
        with suppress(Error):  # its frame is not known yet, or gone
            if request.frame == self._page.main_frame:
                self._requests += 1
                self._look_at(request.url, again=self._requests > 1)

    def _navigated(self, frame: Frame) -> None:
        if frame == self._page.main_frame:
            self._look_at(frame.url, again=False)

    def _look_at(self, url: str, *, again: bool) -> None:
        if again or url.partition("#")[0].rstrip("/") != self._url:
            self._other.set()


async def _replaced(session: PageSession, page: Page) -> Page:
    """Replace a tab whose page keeps navigating by a new one. The tab's history is lost."""
    session.page = await tabs.new_tab(session)
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(tabs.CLOSE_S):
            await page.close()
    session.stuck = not page.is_closed()
    note(session, "The page before went on without end, so its tab was closed.")
    return session.page


async def back(session: PageSession, page: Page, limit_s: float) -> None:
    """Go back in the tab's history. Raises `Trouble` when there is no allowed page."""
    assert session.guard is not None
    session.guard.stopped = ""
    before = page.url
    try:
        response: Response | None = await page.go_back(wait_until="commit", timeout=limit_s * 1000)
    except PlaywrightTimeout:
        await stop(page)
        raise Trouble("timeout", "The page before did not answer in time.", "Open its address.") from None
    except Error:
        if session.guard.stopped:
            session.notes.clear()
            raise outside(session.guard.stopped) from None
        raise
    if response is None and page.url == before:
        raise Trouble("history", "There is no page before this one.", "Open an address.")
    await settle(page)


async def settle(page: Page, limit_s: float = SETTLE_S) -> None:
    """Wait until a page is loaded and quiet, with a timeout: some pages never are."""
    with suppress(TimeoutError):
        async with asyncio.timeout(min(limit_s, SETTLE_S)):
            for _ in range(3):  # it may go to another page meanwhile
                try:
                    await page.wait_for_load_state("domcontentloaded", timeout=3000)
                    with suppress(PlaywrightTimeout):
                        await page.wait_for_load_state("load", timeout=1500)
                    await page.evaluate(_QUIET)
                except PlaywrightTimeout:
                    return
                except Error:
                    if page.is_closed():
                        return
                else:
                    return


async def here(session: PageSession) -> Page:
    """Return the current tab, which shows an allowed page. Raises `Trouble` when there is none.

    Call before and after each read: a page may navigate at any time. A tab on a forbidden host is emptied.
    """
    assert session.guard is not None
    page = await tabs.current(session)
    if page is None:
        raise Trouble("closed", NOTHING_OPEN, "Use `open` with an address.")
    url = page.url
    if url in _BLANK or session.guard.allows(url):
        return page
    await empty(page)
    if url.startswith("chrome-error:"):
        raise Trouble("load", "The page could not be loaded.", "Check the address, or try later.")
    raise outside(url)


def require_host(page: Page, host: str) -> None:
    """Raise `Trouble` unless the page is of the host that the approver saw."""
    now = scope_of(page.url)
    if now != host:
        where = f"of {one_line(now, 300)}" if now else "of no host"
        text = f"The page that is open is {where}, and this was to be done on {host}: nothing was done."
        raise Trouble("host", text, f"Open a page of {host} first, or name the host of the page that is open.")


async def shown(session: PageSession) -> Page:
    """Return the current tab, which has content to read. Raises `Trouble` as `here`, and for a single empty tab.

    Every page session begins with one, also when an earlier one had pages open before a crash or a shutdown.
    """
    page = await here(session)
    if page.url in _BLANK and len(session.context.pages) == 1:  # a second blank tab may hold content from its opener
        raise Trouble("closed", NOTHING_OPEN, "Use `open` with an address.")
    return page


def outside(url: str) -> Trouble:
    """Make the error for a page whose host nobody allowed."""
    return Trouble("outside", f"The page leads to {one_line(url, 2000)}, which nobody allowed yet: stopped.", CURE)


async def empty(page: Page) -> None:
    """Navigate a tab to about:blank; close it when that fails."""
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(_EMPTY_S):
            while not await _emptied(page):
                pass
            return
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(_ALIVE_S):
            await page.close()


async def _emptied(page: Page) -> bool:
    """Try to empty a tab; return False when another navigation interrupted it. Raises `Error`."""
    try:
        await page.goto("about:blank", wait_until="commit", timeout=_EMPTY_S * 1000)
    except Error as error:
        if _INTERRUPTED not in error.message:
            raise
        # The browser's own error page, or an earlier attempt. Until it is done each would abort the other.
        await asyncio.sleep(_PAUSE_S)
        return False
    return True


async def stop(page: Page) -> None:
    """Stop loading. A page that waits for a host answers no other command."""
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(_STOP_S):
            cdp = await page.context.new_cdp_session(page)
            await ask(cdp, "Page.stopLoading")
            await cdp.detach()


async def revive(session: PageSession) -> Trouble | None:
    """Stop loading after a timeout, and close a tab that does not answer at all.

    Return the error to report, None when the tab answers normally.
    """
    page = session.page
    if page is None or page.is_closed():
        return None
    waited = not await answers(page, _STOP_S)
    await stop(page)
    if await answers(page, _ALIVE_S):
        gone = Trouble("timeout", "The page did not answer in time: what it was loading was stopped.", SNAPSHOT)
        return gone if waited else None
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(tabs.CLOSE_S):
            await page.close()
    session.stuck = not page.is_closed()
    return Trouble("hangs", "The page does not answer, so its tab was closed.", "Open it again, or another page.")


async def answers(page: Page, within_s: float) -> bool:
    """Return whether scripts run in a tab, so that it neither hangs nor waits for a host."""
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(within_s):
            await page.evaluate("0")
            return True
    return False
