"""Going to pages and staying on allowed ones: stands between an action and the tab it acts on."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from playwright.async_api import Error, Page, Response
from playwright.async_api import TimeoutError as PlaywrightTimeout

from agent_tools.browser import tabs
from agent_tools.browser.guard import CURE, ask, note
from agent_tools.browser.hosts import scope_of
from agent_tools.browser.page_session import PageSession
from agent_tools.browser.trouble import SNAPSHOT, Trouble
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
"""Ends when the page has not changed for 100 ms, or after a second; whatever a page replaces, it says nothing."""
SETTLE_S = 15.0
"""Seconds that a page waits for a host that it goes to next; what is there already settles in two."""
_STOP_S = 0.5
_ALIVE_S = 2.0
_EMPTY_S = 3.0
_PAUSE_S = 0.05
_LEAST_S = 0.5
_INTERRUPTED = "interrupted by another navigation"
"""Playwright's words."""


async def go(session: PageSession, page: Page, url: str, limit_s: float) -> tuple[Page, int]:
    """Load an address, until its words are there. Return the tab and the HTTP status, 0 when there is none.

    A page that goes on to itself interrupts this navigation, or takes the tab back after it: then the tab is another
    one, and the host is asked a second time. Raises `Trouble`.
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
    """Go to an address; return whether the tab shows it for certain, and the HTTP status. Raises as `go`.

    Chromium names no answer for a navigation that another one of the same tab was mixed with. It names none for a jump
    within a page either.
    """
    assert session.guard is not None, "`tabs.prepare` comes first"
    session.guard.stopped = ""
    within = "#" in url and page.url.partition("#")[0] == url.partition("#")[0]
    try:
        response = await page.goto(url, wait_until="commit", timeout=limit_s * 1000)
    except Error as error:
        ended = _INTERRUPTED in error.message or ("ERR_ABORTED" in error.message and not session.guard.stopped)
        if ended and page.url not in _BLANK:
            return False, 0
        await stop(page)
        if session.guard.stopped:
            session.notes.clear()  # which say the same
            raise outside(session.guard.stopped) from None
        if "Download is starting" in error.message:
            raise Trouble("file", "That address is a file, not a page.", "Use `download` with the address.") from None
        if isinstance(error, PlaywrightTimeout):
            raise Trouble("timeout", f"The host did not answer within {limit_s:g} seconds.", "Try later.") from None
        raise
    return response is not None or within, response.status if response else 0


async def _replaced(session: PageSession, page: Page) -> Page:
    """Return a new tab in place of one whose page does not let go of it. What was before in it is forgotten."""
    session.page = await tabs.new_tab(session)
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(tabs.CLOSE_S):
            await page.close()
    session.stuck = not page.is_closed()
    note(session, "The page before went on without end, so its tab was closed.")
    return session.page


async def back(session: PageSession, page: Page, limit_s: float) -> None:
    """Go to the page before this one. Raises `Trouble` when there is none that may be shown."""
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
    """Wait until a page is loaded and quiet, not for long: some never are."""
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

    Asked before and after something is read: a page may have gone elsewhere at any time. Where it must not be, it is
    emptied.
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


def is_of(page: Page, host: str) -> None:
    """Raise `Trouble` for a page of another host than the one that was shown to whoever allowed what is done there."""
    now = scope_of(page.url)
    if now != host:
        where = f"of {one_line(now, 300)}" if now else "of no host"
        text = f"The page that is open is {where}, and this was to be done on {host}: nothing was done."
        raise Trouble("host", text, f"Open a page of {host} first, or name the host of the page that is open.")


async def shown(session: PageSession) -> Page:
    """Return the current tab, which has something to be read. Raises `Trouble` as `here`, and for the one empty tab.

    A place begins with that one, also where another had pages open before the browser crashed or was shut down.
    """
    page = await here(session)
    if page.url in _BLANK and len(session.context.pages) == 1:  # in another one may be what its opener wrote
        raise Trouble("closed", NOTHING_OPEN, "Use `open` with an address.")
    return page


def outside(url: str) -> Trouble:
    """Say that a page is not shown because nobody allowed its host."""
    return Trouble("outside", f"The page leads to {one_line(url, 2000)}, which nobody allowed yet: stopped.", CURE)


async def empty(page: Page) -> None:
    """Show nothing in a tab; close it when it does not obey."""
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(_EMPTY_S):
            while not await _emptied(page):
                pass
            return
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(_ALIVE_S):
            await page.close()


async def _emptied(page: Page) -> bool:
    """Say whether nothing is shown now; False when something else came in between. Raises `Error`."""
    try:
        await page.goto("about:blank", wait_until="commit", timeout=_EMPTY_S * 1000)
    except Error as error:
        if _INTERRUPTED not in error.message:
            raise
        # The browser's own error page, or an earlier try. Until that is done each would end the other.
        await asyncio.sleep(_PAUSE_S)
        return False
    return True


async def stop(page: Page) -> None:
    """Stop loading. While a page waits for a host, nothing else can be asked of it."""
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(_STOP_S):
            cdp = await page.context.new_cdp_session(page)
            await ask(cdp, "Page.stopLoading")
            await cdp.detach()


async def revive(session: PageSession) -> Trouble | None:
    """After something took too long: stop what still loads, and close a tab that does not answer at all.

    Return what to say when that was so.
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
    """Say whether scripts can run in a tab: it neither hangs nor waits for a host."""
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(within_s):
            await page.evaluate("0")
            return True
    return False
