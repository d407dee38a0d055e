"""Actions of the browser: runs one call on a session's tabs and builds its result. The last step of a browser call.

Every result begins with a line of ours; text of the page follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlsplit

from playwright.async_api import Error, Page
from playwright.async_api import TimeoutError as PlaywrightTimeout

from agent_tools.browser import dialogs, files, mouse, navigating, pointing, reading, tabs, writing
from agent_tools.browser.arguments import Args
from agent_tools.browser.errors import Trouble, cure_of, meaning
from agent_tools.browser.page_session import PageSession
from agent_tools.browser.settings import BrowserSettings
from gateway.domain.text import one_line
from gateway.domain.tools import Artifact, Picture, ResultStatus, ToolResult
from gateway.ports import ToolContext

LOAD_S = 30.0
"""Timeout in seconds for a host to answer, at most the call's own."""

READ_AT_MOST = 3
"""Attempts to read a page that navigates away during each."""
WENT_ON = "context was destroyed"
"""Text of playwright's error for such a navigation."""


_BESIDE_A_DIALOG = frozenset({"dialog", "close"})
"""Actions that a page can do while a dialog is open in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """The inputs of one action."""

    session: PageSession
    ctx: ToolContext
    args: Args
    settings: BrowserSettings

    @property
    def limit_s(self) -> float:
        """Timeout in seconds for a host; leaves time to report that it did not answer."""
        return LOAD_S if self.args.timeout is None else max(0.5, min(LOAD_S, self.args.timeout * 0.8 - 0.5))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """The outcome of an action."""

    said: str = ""
    """A line of ours for the result."""
    page: str = ""
    """Text of the page."""
    status: int = 0
    pictures: tuple[Picture, ...] = ()
    files: tuple[Artifact, ...] = ()
    heading: bool = True
    """True when the result names the page."""


async def perform(session: PageSession, ctx: ToolContext, args: Args, settings: BrowserSettings) -> ToolResult:
    """Run one action. A failure in a page is a result; only a cancellation propagates, after loading was stopped."""
    try:
        done = await _until_a_dialog(_Call(session=session, ctx=ctx, args=args, settings=settings))
        return await _result(session, done)
    except Trouble as trouble:
        return _failed(session, trouble)
    except (PlaywrightTimeout, TimeoutError) as error:
        told = str(error.message) if isinstance(error, Error) else "Timeout"
        return _failed(session, await navigating.revive(session) or meaning(told))
    except Error as error:
        return _failed(session, meaning(error.message))
    except asyncio.CancelledError:
        if session.page is not None and not session.page.is_closed():
            await navigating.stop(session.page)
        raise


async def _until_a_dialog(call: _Call) -> _Done:
    """Run the action, until it is done or a dialog waits for an answer. Raises `Trouble` when one waits already."""
    if call.args.action not in _BESIDE_A_DIALOG:
        dialogs.require_none(call.session)
    scope = asyncio.timeout(None)
    try:
        async with scope:
            with dialogs.ending(call.session, scope):
                return await _ACTIONS[call.args.action](call)
    except TimeoutError:
        if not scope.expired() or (dialog := dialogs.waiting(call.session)) is None:
            raise
        return _Done(said=dialogs.told(dialog), heading=False)


async def _result(session: PageSession, done: _Done) -> ToolResult:
    """Build the result of an action."""
    lines = [done.said] if done.said else []
    if done.heading and (page := await tabs.current(session)) is not None:
        lines.insert(0, await _heading(page, done.status))
    lines += _notes(session)
    if done.page:
        lines += ["", done.page]
    return ToolResult(
        status=ResultStatus.OK, text="\n".join(lines), untrusted=True, pictures=done.pictures, files=done.files
    )


async def _heading(page: Page, status: int) -> str:
    answered = f" (HTTP {status})" if status else ""
    return f"Page: {await tabs.title(page) or 'without a title'} — {one_line(page.url, 2000)}{answered}"


def _notes(session: PageSession) -> list[str]:
    """Return and clear notes on events since the last result, a line each."""
    told = [f"Note: {text}" for text in session.notes]
    session.notes.clear()
    if turned := session.proxy.turned_away():
        named = dict.fromkeys(f"{one_line(one.host, 100)} ({one_line(one.why, 200)})" for one in turned)
        told.append(f"Note: parts of the page were refused on the way: {', '.join(named)}")
    return told


def _failed(session: PageSession, trouble: Trouble) -> ToolResult:
    return trouble.result("\n".join(_notes(session)), untrusted=True)


async def _after(call: _Call, said: str) -> _Done:
    """Wait for a page to settle after an action, and return its snapshot."""
    page = await navigating.here(call.session)
    await navigating.settle(page, call.limit_s)
    return _Done(
        said=said, page=await _seen(call, lambda now: reading.snapshot(call.session, now, limit=reading.BRIEF))
    )


async def _seen(call: _Call, read: Callable[[Page], Awaitable[str]]) -> str:
    """Read the current tab; retry when the page navigates away meanwhile.

    Return the text only if the tab was on an allowed host before the read and still is.
    """
    for left in reversed(range(READ_AT_MOST)):
        page = await navigating.shown(call.session)
        try:
            words = await read(page)
        except Error as error:
            if not left or WENT_ON not in error.message:
                raise
            await navigating.settle(page, call.limit_s)
        else:
            await navigating.here(call.session)
            return words
    raise AssertionError("the last try returns or raises")


# --- the actions ----------------------------------------------------------------------------------


async def _open(call: _Call) -> _Done:
    url = call.args.url or ""
    page = await _loadable(call.session)
    call.session.proxy.turned_away()  # clears refusals of earlier pages
    try:
        page, status = await navigating.go(call.session, page, url, call.limit_s)
    except Error as error:
        await _raise_if_refused(call.session, page, url)
        await navigating.empty(page)
        raise meaning(error.message) from None
    await _raise_if_refused(call.session, page, url)
    seen = await _seen(call, lambda now: reading.snapshot(call.session, now))
    return _Done(page=seen, status=status)


async def _loadable(session: PageSession) -> Page:
    """Return a tab that can navigate; replaces one that hangs."""
    page = await tabs.current(session)
    if page is not None and not await navigating.answers(page, 0.5):
        await navigating.revive(session)
    if page is None or page.is_closed():
        session.page = page = await tabs.new_tab(session)
    return page


async def _raise_if_refused(session: PageSession, page: Page, url: str) -> None:
    """Raise `Trouble` when the egress proxy refused the page itself; note refusals of its parts."""
    turned = list(session.proxy.turned_away())
    mains = {_host_and_port(url), _host_and_port(page.url)}
    for one in turned:
        if one.host.lower() in mains:
            await navigating.empty(page)
            host = one_line(one.host, 100)
            raise Trouble(
                "refused",
                f"{host} was refused on the way: {one_line(one.why, 300)}",
                cure_of(host),
            )
    for one in turned:
        host = f"{one_line(one.host, 100)} ({one_line(one.why, 200)})"
        session.notes.append(f"A part of the page was refused on the way: {host}")


def _host_and_port(url: str) -> str:
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


async def _snapshot(call: _Call) -> _Done:
    return _Done(page=await _seen(call, lambda page: reading.snapshot(call.session, page, call.args.ref)))


async def _text(call: _Call) -> _Done:
    return _Done(page=await _seen(call, lambda page: reading.text(page, call.args.ref)))


async def _click(call: _Call) -> _Done:
    page = await navigating.here(call.session)
    said = await mouse.click(call.session, page, call.args.ref or "", mouse.how_of(call.args.how))
    return await _after(call, said)


async def _hover(call: _Call) -> _Done:
    page = await navigating.here(call.session)
    said = await mouse.hover(call.session, page, call.args.ref or "", mouse.how_of(call.args.how))
    return await _after(call, said)


async def _drag(call: _Call) -> _Done:
    args, page = call.args, await navigating.here(call.session)
    said = await mouse.drag(call.session, page, args.ref or "", args.to or "", mouse.how_of(args.how))
    return await _after(call, said)


async def _resize(call: _Call) -> _Done:
    return await _after(call, await mouse.resize(await navigating.here(call.session), call.args.to or ""))


async def _dialog(call: _Call) -> _Done:
    return await _after(call, await dialogs.answer(call.session, bool(call.args.submit), call.args.text))


async def _type(call: _Call) -> _Done:
    args, page = call.args, await navigating.here(call.session)
    ref = args.ref
    if ref is not None and mouse.is_place(ref):
        await mouse.click(call.session, page, ref, mouse.how_of(None))
        ref = None
    await writing.write(page, ref, args.text or "", bool(args.submit))
    where = f"Wrote into {args.ref}" if args.ref else "Typed"
    return await _after(call, where + (" and pressed Enter." if args.submit else "."))


async def _select(call: _Call) -> _Done:
    if call.args.values is None:
        page = await navigating.here(call.session)
        return await _after(call, await mouse.mark_text(page, call.args.ref or "", call.args.text or ""))
    await pointing.select(await navigating.here(call.session), call.args.ref or "", call.args.values or [])
    return await _after(call, f"Chose in {call.args.ref}.")


async def _press(call: _Call) -> _Done:
    await pointing.press(await navigating.here(call.session), call.args.key or "", call.args.ref)
    return await _after(call, f"Pressed {one_line(call.args.key or '', 60)}.")


async def _scroll(call: _Call) -> _Done:
    page = await navigating.here(call.session)
    ref = call.args.ref
    place = await mouse.place(call.session, page, ref) if ref is not None and mouse.is_place(ref) else None
    await pointing.scroll(page, call.args.direction, call.args.amount or 1.0, ref, place)
    return await _after(call, await reading.position(page))


async def _wait(call: _Call) -> _Done:
    await pointing.wait(await navigating.here(call.session), call.args.text, call.args.amount, call.limit_s)
    return await _after(call, "Waited.")


async def _back(call: _Call) -> _Done:
    await navigating.back(call.session, await navigating.here(call.session), call.limit_s)
    return await _after(call, "Went back.")


async def _tabs(call: _Call) -> _Done:
    if call.args.tab is None:
        return _Done(said=await tabs.listed(call.session), heading=False)
    await tabs.switch(call.session, call.args.tab)
    return await _after(call, f"This is tab {call.args.tab} now.")


async def _screenshot(call: _Call) -> _Done:
    page = await navigating.shown(call.session)
    data, shot, marks = await reading.picture(call.session, page, call.args.ref, bool(call.args.full_page))
    await navigating.here(call.session)
    picture = await call.ctx.artifacts.picture(data, "image/jpeg")
    call.session.shot = shot
    said = "This is what it looks like. A pixel of it is a place, which `click` takes as a ref, as in 310,42."
    if marks:
        said += f" {marks} elements without a name are marked with their refs."
    return _Done(said=said, pictures=(picture,))


async def _pdf(call: _Call) -> _Done:
    said, kept = await files.pdf(call.ctx, await navigating.shown(call.session), call.args.path)
    return _Done(said=said, files=(kept,))


async def _download(call: _Call) -> _Done:
    args, most_mb = call.args, call.settings.download_mb
    if args.url is not None:
        path, said = await files.download_from(call.session, call.ctx, args.url, args.path, most_mb)
    else:
        page = await navigating.here(call.session)
        path, said = await files.download_by(call.session, call.ctx, page, args.ref or "", args.path, most_mb)
    kept = await files.kept(call.ctx, path)
    return _Done(said=said, files=() if kept is None else (kept,), heading=False)


async def _upload(call: _Call) -> _Done:
    page = await navigating.here(call.session)
    navigating.require_host(page, call.args.host or "")
    said = await files.upload(call.session, call.ctx, page, call.args.ref or "", call.args.path or "")
    return await _after(call, said)


async def _evaluate(call: _Call) -> _Done:
    script, host, limit_s = call.args.script or "", call.args.host or "", min(call.limit_s, 20.0)
    seen = await _seen(call, lambda page: reading.evaluated(page, script, host, limit_s))
    return _Done(page=seen)


async def _close(call: _Call) -> _Done:
    return _Done(said=await tabs.close(call.session, call.args.tab), heading=False)


_ACTIONS: Mapping[str, Callable[[_Call], Awaitable[_Done]]] = MappingProxyType(
    {
        "open": _open,
        "snapshot": _snapshot,
        "click": _click,
        "hover": _hover,
        "drag": _drag,
        "type": _type,
        "select": _select,
        "press": _press,
        "scroll": _scroll,
        "wait": _wait,
        "back": _back,
        "tabs": _tabs,
        "screenshot": _screenshot,
        "pdf": _pdf,
        "text": _text,
        "download": _download,
        "upload": _upload,
        "evaluate": _evaluate,
        "resize": _resize,
        "dialog": _dialog,
        "close": _close,
    }
)
