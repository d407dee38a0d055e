"""Tabs of a page session: handlers of dialogs and popups, and the actions on tabs. Used by `actions` and `navigating`.

Handled events are added to the next result, so that no page waits for an answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

from playwright.async_api import Dialog, Error, Page

from agent_tools.browser.dialogs import opened as opened_dialog
from agent_tools.browser.errors import Trouble
from agent_tools.browser.guard import Guard, note
from agent_tools.browser.page_session import PageSession
from gateway.domain.text import one_line

MOST_TABS = 10
"""Tabs of one session; further ones are closed."""
CLOSE_S = 5.0
"""Timeout in seconds for closing a tab."""


async def prepare(session: PageSession) -> None:
    """Attach handlers and the guard to a new context, and open its first tab. Call once for a page session."""
    dialogs: Counter[Page] = Counter()
    context = session.context

    def forgotten(page: Page) -> None:
        del dialogs[page]  # a Counter ignores the deletion of a missing key

    async def opened(page: Page) -> None:
        page.on("close", forgotten)
        await _popup(session, page)

    async def asked(dialog: Dialog) -> None:
        if dialog.page is not None and dialog.type == "alert":  # the others come no faster than their answers
            dialogs[dialog.page] += 1
        await opened_dialog(session, dialog, dialogs[dialog.page] if dialog.page is not None else 0)

    context.set_default_timeout(10_000)
    context.set_default_navigation_timeout(30_000)
    session.page = await context.new_page()
    session.guard = await Guard.start(session, session.page)
    context.on("page", opened)
    context.on("dialog", asked)


async def _popup(session: PageSession, page: Page) -> None:
    """Note a tab that a page opened, or close it when there are too many."""
    if session.guard is None or session.guard.making_tab:
        return
    with suppress(Error):  # it is closed already
        if len(session.context.pages) > MOST_TABS:
            note(session, f"The page opened more tabs than the {MOST_TABS} that a session may have: they were closed.")
            await page.close()
        elif not page.is_closed():
            note(session, f"The page opened tab {number(session, page)}. Go there with `tabs`.")


# --- the actions ----------------------------------------------------------------------------------


async def new_tab(session: PageSession) -> Page:
    """Open an empty tab. The caller decides whether it becomes the current one."""
    assert session.guard is not None, "`prepare` comes first"
    session.guard.making_tab = True
    try:
        return await session.context.new_page()
    finally:
        session.guard.making_tab = False


async def current(session: PageSession) -> Page | None:
    """Return the current tab; the last one when that was closed, None when none is open."""
    page = session.page
    if page is None or page.is_closed():
        session.page = page = next((one for one in reversed(session.context.pages) if not one.is_closed()), None)
    return page


def number(session: PageSession, page: Page) -> int:
    """Return a tab's number: 1 for the oldest, 0 when it is closed."""
    pages = session.context.pages
    return pages.index(page) + 1 if page in pages else 0


def _numbered(session: PageSession, tab: int) -> Page:
    pages = session.context.pages
    if tab > len(pages):
        raise Trouble("tab", f"There is no tab {tab}.", "Use `tabs` without a number to see them.")
    return pages[tab - 1]


async def switch(session: PageSession, tab: int) -> None:
    """Make a tab the current one."""
    session.page = _numbered(session, tab)
    await session.page.bring_to_front()


async def listed(session: PageSession) -> str:
    """List the tabs, a line each. Must not reveal a URL of a host that is not allowed."""
    assert session.guard is not None
    lines: list[str] = []
    here = await current(session)
    for page in session.context.pages:
        shown = one_line(page.url, 300) if session.guard.allows(page.url) else "about:blank"
        name = await title(page) if session.guard.allows(page.url) else ""
        lines.append(f"{'*' if page is here else ' '} {number(session, page)}  {name}  {shown}")
    return "\n".join(lines) or "No tab is open."


async def title(page: Page) -> str:
    """Return a tab's title on one line; empty when the tab does not answer."""
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(2):
            return one_line(await page.title(), 150)
    return ""


async def close(session: PageSession, tab: int | None) -> str:
    """Close one tab, or all. No page can prevent it."""
    pages = list(session.context.pages) if tab is None else [_numbered(session, tab)]
    for page in pages:
        with suppress(Error):
            async with asyncio.timeout(CLOSE_S):
                await page.close(run_before_unload=False)
    if tab is not None and await current(session) is not None:
        return f"Tab {tab} is closed."
    session.page = None
    return "All tabs are closed."
