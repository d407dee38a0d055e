"""Dialogs of pages: `alert` is dismissed and reported, the others wait for the model's answer. Used by `actions`.

A page stands still while a dialog is open. So a dialog ends the running action, and its text is the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress

from playwright.async_api import Dialog, Error
from playwright.async_api import TimeoutError as PlaywrightTimeout

from agent_tools.browser.errors import Trouble
from agent_tools.browser.guard import note
from agent_tools.browser.page_session import PageSession
from gateway.domain.text import one_line

MOST_DIALOGS = 50
"""Most dialogs of one tab; it is closed at the next one."""
MOST_CHARS = 1000
"""Most characters of a dialog's text."""
LEAVE_S = 5.0
"""Timeout in seconds for a page to be left after a `beforeunload` dialog was accepted."""
CURE = "Answer it with the action `dialog`: submit=true accepts it, submit=false refuses it."


async def opened(session: PageSession, dialog: Dialog, how_many: int) -> None:
    """Keep a dialog for the model, and end the running action. Dismiss an `alert`, which asks nothing."""
    if how_many > MOST_DIALOGS:
        await _end(session, dialog)
    elif session.refuses_dialogs:
        with suppress(Error):
            await dialog.dismiss()
    elif dialog.type == "alert":
        with suppress(Error):  # its tab is gone
            await dialog.dismiss()
            said = one_line(dialog.message, 300)
            note(session, f"The page showed a dialog (alert), which was dismissed: {said}")
    else:
        session.dialogs.append(dialog)
        if session.interrupt is not None:
            session.interrupt.reschedule(asyncio.get_running_loop().time())
            session.interrupt = None  # a second dialog must not end it again


async def _end(session: PageSession, dialog: Dialog) -> None:
    with suppress(Error):
        await dialog.dismiss()
        note(session, "The page showed dialogs without end, so its tab was closed.")
        if dialog.page is not None and not dialog.page.is_closed():
            await dialog.page.close()


@contextmanager
def ending(session: PageSession, scope: asyncio.Timeout) -> Generator[None]:
    """Let a dialog end a block that runs in this scope."""
    session.interrupt = scope
    try:
        yield
    finally:
        session.interrupt = None


def waiting(session: PageSession) -> Dialog | None:
    """Return the dialog that waits for an answer; None when there is none."""
    session.dialogs[:] = [one for one in session.dialogs if one.page is None or not one.page.is_closed()]
    return session.dialogs[0] if session.dialogs else None


def told(dialog: Dialog) -> str:
    """Return the result's text about a waiting dialog."""
    words = one_line(dialog.message, MOST_CHARS)
    if dialog.type == "beforeunload":
        return f"The page asks whether to leave it, as changes may be lost. {CURE}"
    given = f" It suggests “{one_line(dialog.default_value, 300)}”." if dialog.type == "prompt" else ""
    more = " The `text` is what is entered." if dialog.type == "prompt" else ""
    return f"The page shows a dialog ({dialog.type}) and waits: “{words}”.{given} {CURE}{more}"


def require_none(session: PageSession) -> None:
    """Raise `Trouble` while a dialog waits: its page does nothing else."""
    if (dialog := waiting(session)) is not None:
        raise Trouble("dialog", f"Nothing was done. {told(dialog)}", CURE)


async def answer(session: PageSession, accept: bool, text: str | None) -> str:
    """Answer the waiting dialog, and return a line about it. Raises `Trouble` when there is none."""
    dialog = waiting(session)
    if dialog is None:
        raise Trouble("dialog", "No dialog is open.", "Take a snapshot to see what the page shows.")
    session.dialogs.remove(dialog)
    if not accept:
        await dialog.dismiss()
        return "Refused the dialog."
    if dialog.type == "prompt":
        await dialog.accept(dialog.default_value if text is None else text)
    elif dialog.type == "beforeunload" and dialog.page is not None:
        with suppress(PlaywrightTimeout):
            async with dialog.page.expect_event("framenavigated", timeout=LEAVE_S * 1000):
                await dialog.accept()
    else:
        await dialog.accept()
    return "Accepted the dialog."


async def drop(session: PageSession) -> None:
    """Dismiss every waiting dialog, so that its page goes on."""
    while session.dialogs:
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(1):
                await session.dialogs.pop().dismiss()
