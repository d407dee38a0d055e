"""Downloads, uploads and PDFs of pages. Used by `actions`."""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from playwright.async_api import ElementHandle, Error, Page

from agent_tools.browser import navigating, pointing, tabs
from agent_tools.browser.errors import Trouble, meaning
from agent_tools.browser.guard import Arrival
from agent_tools.browser.page_session import PageSession
from agent_tools.browser.save_paths import DOWNLOADS, PDFS, safe_name
from gateway.domain.text import one_line
from gateway.domain.tools import KEPT_BYTES, Artifact
from gateway.errors import BadRequest, NotFound, TooLarge
from gateway.ports import ToolContext

_WITHOUT_A_HOST = frozenset({"", "about:blank", "about:srcdoc"})
_BEGIN_S = 20.0
"""Timeout in seconds for a download to begin."""
_LOOK_EVERY_S = 0.05
_PDF_S = 45.0
"""Timeout in seconds for printing a page."""
_MB = 1024 * 1024
LARGEST_UPLOAD = 50 * _MB
"""Most bytes of an uploaded file."""


@contextmanager
def _as_trouble() -> Generator[None]:
    """Turn an error of the workspace into the call's result."""
    try:
        yield
    except TooLarge as error:
        raise Trouble("size", error.message, error.cure) from None
    except (BadRequest, NotFound) as error:
        raise Trouble("path", error.message, error.cure) from None


async def pdf(ctx: ToolContext, page: Page, path: str | None) -> tuple[str, Artifact]:
    """Store the page as PDF in the workspace; return the result text and the artifact. Raises `Trouble`."""
    name = safe_name(await tabs.title(page) + ".pdf", "page")
    with _as_trouble():
        parts = ctx.files.new_parts(path or f"{PDFS}/{name}")
    async with asyncio.timeout(_PDF_S):
        data = await page.pdf(print_background=True)
    if len(data) > KEPT_BYTES:
        raise Trouble("size", "The PDF is larger than 50 MB.", "Take screenshots of the parts you need.")
    with _as_trouble():
        stored = await ctx.files.create("/".join(parts), data)
    kept = await ctx.artifacts.file(stored, parts[-1], "application/pdf")
    return f"The page is stored as {'/'.join(parts)} ({len(data)} bytes).", kept


# --- to the page ----------------------------------------------------------------------------------


async def upload(session: PageSession, ctx: ToolContext, page: Page, ref: str, path: str) -> str:
    """Upload a workspace file through a field, or a button that opens a file chooser. Return the result text."""
    field = await pointing.locate(page, ref)
    await _is_of_an_allowed_host(session, await field.element_handle(timeout=pointing.ACT_S * 1000))
    with _as_trouble():
        parts = ctx.files.parts(path)
        handed = await ctx.files.hand_over(path, session.folder, LARGEST_UPLOAD)
    size = handed.stat().st_size
    try:
        await field.set_input_files(handed, timeout=pointing.ACT_S * 1000)
    except Error as error:
        if "HTMLInputElement" not in error.message and "type=file" not in error.message:
            raise
        async with page.expect_file_chooser(timeout=5000) as asked:  # a button in front of a hidden field
            await field.click(timeout=5000)
        chooser = await asked.value
        await _is_of_an_allowed_host(session, chooser.element)
        await chooser.set_files(handed)
    return f"{'/'.join(parts)} ({size} bytes) was given to the page."


async def _is_of_an_allowed_host(session: PageSession, field: ElementHandle) -> None:
    """Raise `Trouble` for a field in a frame of a host that nobody allowed: the card named only the page's host."""
    assert session.guard is not None, "`tabs.prepare` comes first"
    frame = await field.owner_frame()
    while frame is not None and frame.parent_frame is not None and frame.url in _WITHOUT_A_HOST:
        frame = frame.parent_frame  # which wrote this frame
    if frame is None or not session.guard.allows(frame.url):
        where = one_line(frame.url, 500) if frame is not None else "elsewhere"
        text = f"That field is in a part of the page that is from {where}, which nobody allowed: nothing was given."
        raise Trouble("outside", text, "Open that address itself: a person is asked first.")


# --- from the page --------------------------------------------------------------------------------


async def download_from(
    session: PageSession, ctx: ToolContext, url: str, path: str | None, most_mb: int
) -> tuple[str, str]:
    """Fetch a URL as a file in a separate tab. Return its path in the workspace and the result text."""
    with _as_trouble():
        parts = ctx.files.new_parts(path) if path else ()
    page = await tabs.new_tab(session)
    try:
        async with _arriving(session, force=True) as arrival:
            assert session.guard is not None
            session.guard.stopped = ""
            try:
                await page.goto(url, wait_until="commit", timeout=_BEGIN_S * 1000)
            except Error as error:  # a download or a stopped navigation is an error of the page too
                if "Download is starting" not in error.message and "ERR_ABORTED" not in error.message:
                    raise meaning(error.message) from None
            return await _take(session, ctx, arrival, parts, most_mb)
    finally:
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(tabs.CLOSE_S):
                await page.close()


async def download_by(
    session: PageSession, ctx: ToolContext, page: Page, ref: str, path: str | None, most_mb: int
) -> tuple[str, str]:
    """Click an element that starts a download. Return its path in the workspace and the result text."""
    with _as_trouble():
        parts = ctx.files.new_parts(path) if path else ()
    link = await pointing.locate(page, ref)
    async with _arriving(session, force=False) as arrival:
        assert session.guard is not None
        session.guard.stopped = ""
        with suppress(navigating.PlaywrightTimeout):  # a click also waits for its navigation
            await link.click(timeout=pointing.ACT_S * 1000)
        return await _take(session, ctx, arrival, parts, most_mb)


@asynccontextmanager
async def _arriving(session: PageSession, *, force: bool) -> AsyncGenerator[Arrival]:
    """Accept one download into the session's folder; refuse downloads afterwards and remove its leftovers."""
    assert session.guard is not None, "`tabs.prepare` comes first"
    arrival = Arrival(force=force)
    try:
        await session.guard.accept_download(arrival, session.folder)
        yield arrival
    finally:
        session.guard.arrival = None
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(2):
                if arrival.guid and arrival.state == "inProgress":
                    await session.guard.cancel_download(arrival.guid)
                await session.guard.refuse_downloads()
        if arrival.guid:
            await asyncio.to_thread(_remove, session.folder / arrival.guid)


def _remove(path: Path) -> None:
    for one in (path, path.with_name(f"{path.name}.crdownload")):
        with suppress(OSError):
            one.unlink()


async def _take(
    session: PageSession, ctx: ToolContext, arrival: Arrival, parts: tuple[str, ...], most_mb: int
) -> tuple[str, str]:
    """Wait for a download to complete and copy it into the workspace. The call's timeout applies. Raises `Trouble`."""
    await _begun(session, arrival)
    arrived = session.folder / arrival.guid
    while arrival.state == "inProgress":
        size = max(arrival.received, arrival.total, _size(arrived.with_name(f"{arrived.name}.crdownload")))
        if size > most_mb * _MB:
            raise _too_large(most_mb)
        arrival.moved.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_EVERY_S):
                await arrival.moved.wait()
    if arrival.state != "completed":
        raise Trouble("load", "The download broke off.", "Try again later.")
    if (size := _size(arrived)) > most_mb * _MB:
        raise _too_large(most_mb)
    parts = parts or (DOWNLOADS, safe_name(arrival.suggested, "file"))
    with _as_trouble():
        await ctx.files.take_in(arrived, "/".join(parts), most_mb * _MB)
    path = "/".join(parts)
    return path, f"{path} ({size} bytes) is in the workspace; the host calls it “{one_line(arrival.suggested, 120)}”."


async def _begun(session: PageSession, arrival: Arrival) -> None:
    """Wait until a download begins. Raises `Trouble` when none does."""
    assert session.guard is not None
    with suppress(TimeoutError):
        async with asyncio.timeout(_BEGIN_S):
            while not (arrival.guid or arrival.status or arrival.outside or session.guard.stopped):
                arrival.moved.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await arrival.moved.wait()
    if arrival.guid:
        return
    if arrival.status:
        raise Trouble("load", f"The host answered {arrival.status}: there is no file.", "Check the address.")
    if leads := arrival.outside or session.guard.stopped:
        text = f"The file is at {one_line(leads, 2000)}, whose host nobody allowed yet: stopped."
        raise Trouble("outside", text, "Use `download` with that address: a person is asked first.")
    raise Trouble("load", "No download began.", "Take a snapshot to see what the page shows now.")


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _too_large(most_mb: int) -> Trouble:
    return Trouble(
        "size",
        f"The file is larger than {most_mb} MB; the download was stopped and nothing of it is kept.",
        "The owner can raise `download_mb` in [tools.browser].",
    )


async def kept(ctx: ToolContext, path: str) -> Artifact | None:
    """Store a downloaded file as an artifact; None when it is too large and stays in the workspace only."""
    there = ctx.files.root / path
    if _size(there) > KEPT_BYTES:
        return None
    media_type = mimetypes.guess_type(there.name)[0] or "application/octet-stream"
    return await ctx.artifacts.file(there, there.name, media_type)
