"""Starts Chromium in its enclosure and opens places in it. The one station of `keeper` that speaks to playwright.

Imported when the first page is opened, never before: playwright costs 40 MB and a sixth of a second.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from playwright.async_api import (
    Browser,
    BrowserContext,
    Error,
    Page,
    Playwright,
    StorageState,
    ViewportSize,
    async_playwright,
)

from agent_tools.browser.asking import teach
from agent_tools.browser.finding import find_chromium
from agent_tools.browser.navigating import answers, stop
from agent_tools.browser.page_session import PageSession
from agent_tools.browser.settings import BrowserSettings
from gateway.domain.tools import SandboxMode
from gateway.errors import DragomanError
from gateway.ports import SandboxSession, ToolHost

if TYPE_CHECKING:
    from playwright._impl._api_structures import StorageStateCookie

START_S = 30.0
"""Seconds for the driver and Chromium together; 1 on a quiet machine."""
OPEN_S = 15.0
"""Seconds for a new place."""
END_S = 1.0
"""Seconds for each part of an end: what hangs is killed with the enclosure."""
DRIVER_S = 3.0
"""What playwright's own process may take to start, when nobody wants it any more."""
ANSWER_S = 10.0
"""Seconds that a browser has to say that it is there; after that it is given up, with all places in it."""
UNSTICK_S = 4.0
"""Seconds that a page has to answer after a call was cut, and then to close."""
_SCREEN: ViewportSize = {"width": 1280, "height": 800}

# Beside playwright's own, which keep it from fetching updates, lists and suggestions. Only what is in one switch each:
# of `--disable-features` Chromium takes the last.
SWITCHES = (
    "--disable-quic",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--disable-client-side-phishing-detection",
    "--disable-domain-reliability",
    "--disable-component-update",
    "--disable-sync",
    "--dns-prefetch-disable",
    "--no-pings",
    "--no-first-run",
    "--disable-gpu",
    "--disk-cache-size=52428800",
)
READS = tuple(map(Path, ("/etc/fonts", "/var/cache/fontconfig", "/etc/chromium", "/etc/chromium.d")))
"""What it must be shown of the machine: without fonts it draws no text, and a distribution's own settings start it."""
NOWHERE = "http://127.0.0.1:9"
"""The way out of the browser itself: none. Only places have one."""


@asynccontextmanager
async def chromium(
    host: ToolHost, settings: BrowserSettings, sandbox: SandboxMode | None
) -> AsyncGenerator[tuple[Browser, SandboxSession]]:
    """Run driver and browser; both are gone afterwards, within about 4 s.

    Raises `NotFound` when there is no Chromium, `DragomanError` when it does not start.
    """
    program = find_chromium(settings.executable, os.environ)
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(START_S):
                # Outside of the enclosure: once everything in there is killed, nothing holds the driver.
                playwright = await stack.enter_async_context(_driver())
                await teach(playwright)
                enclosure = await stack.enter_async_context(
                    host.enclose(
                        program, sandbox=sandbox, hosts=settings.hosts, gates=settings.sessions, readable=READS
                    )
                )
                browser = await playwright.chromium.launch(
                    executable_path=_starter(enclosure),
                    args=SWITCHES,
                    artifacts_dir=_made(enclosure.folder / "files"),
                    downloads_path=_made(enclosure.folder / "files"),
                    env={"PATH": os.defpath},  # for the launcher, which gives Chromium one of its own
                    # Root is the one user that Chromium's own sandbox refuses, and in the enclosure nobody is root.
                    chromium_sandbox=sandbox == SandboxMode.BASIC or os.geteuid() != 0,
                    proxy={"server": NOWHERE, "bypass": "<-loopback>"},
                    handle_sighup=False,
                    handle_sigint=False,
                    handle_sigterm=False,
                    timeout=START_S * 1000,
                )
        except TimeoutError:
            raise _not_started(f"it was not ready within {START_S:g} s") from None
        except Error as error:
            raise _not_started(_last_words(error)) from error
        except DragomanError:
            raise
        except Exception as error:  # playwright's own, when its process ends; a full disk
            raise _not_started(_first_line(error)) from error
        stack.push_async_callback(_within_end, browser.close)
        yield browser, enclosure


@asynccontextmanager
async def _driver() -> AsyncGenerator[Playwright]:
    """Playwright and its process. Whoever is cut while it starts waits a while for that; later it ends by itself."""
    started, over, left = list[Playwright](), asyncio.Event(), asyncio.Event()

    async def start() -> None:
        try:
            driver = await async_playwright().start()
            if left.is_set():
                await driver.stop()
            else:
                started.append(driver)
        finally:
            over.set()

    async def end() -> None:
        await over.wait()
        for driver in started:
            await driver.stop()

    try:
        await asyncio.shield(start())
        yield started[0]
    finally:
        try:
            await _within_end(end, END_S if over.is_set() else DRIVER_S)
        finally:
            left.set()


def _starter(sandbox_session: SandboxSession) -> Path:
    """What playwright starts: the launcher, with the profile where the enclosure has it (of a switch the last holds).

    playwright would have it in its own temporary folder, and refuses to be told another one.
    """
    path = sandbox_session.folder / "start"
    profile = _made(sandbox_session.folder / "profile")
    launcher, own = shlex.quote(str(sandbox_session.launcher)), shlex.quote(f"--user-data-dir={profile}")
    path.write_text(f'#!/bin/sh\nexec {launcher} "$@" {own}\n')
    path.chmod(0o700)
    return path


def _made(path: Path) -> Path:
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _not_started(why: str) -> DragomanError:
    return DragomanError(
        f"The browser did not start: {why}.", cure="Ask again; `dragoman check` tells what is missing."
    )


def _last_words(error: Error) -> str:
    """What the launcher or Chromium complained of last, else what playwright says."""
    said = [line.partition("[err]")[2].strip() for line in error.message.splitlines() if "[err]" in line]
    return next((line[-200:].rstrip(".") for line in reversed(said) if line), _first_line(error))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")


# --- a place in it --------------------------------------------------------------------------------


@asynccontextmanager
async def open_page_session(
    browser: Browser, sandbox_session: SandboxSession, key: str, kept: Path
) -> AsyncGenerator[PageSession]:
    """Open a place with a way out of its own, with what was `kept` in that file; keep it there again at the end.

    Raises `DragomanError` when it cannot be opened.
    """
    folder = _made(sandbox_session.folder / f"seat-{key}")
    try:
        state = await asyncio.to_thread(load, kept)
        async with sandbox_session.gate() as gate:
            gate.let(())  # what may be reached is said by each call
            try:
                context = await _context(browser, gate.address, state)
            except (Error, TimeoutError):
                if state is None:
                    raise
                state, context = None, await _context(browser, gate.address, None)
            session = PageSession(context=context, gate=gate, folder=folder)
            try:
                context.on("page", lambda page: _watch(page, session))
                if state is not None:
                    session.notes.append("The cookies of earlier are kept; the pages of earlier are not open any more.")
                yield session
                await _keep_state(context, kept)
            finally:
                await leave(session)
    except (Error, TimeoutError, OSError) as error:
        why = _first_line(error)
        raise DragomanError(f"The browser has no place for this session: {why}.", cure="Ask again.") from error
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def leave(session: PageSession) -> None:
    """Close what a place has in the browser. What does not answer in time is left to the enclosure."""
    await _within_end(session.context.close)
    if session.guard is not None:
        await _within_end(session.guard.end)


async def _context(browser: Browser, way_out: str, state: StorageState | None) -> BrowserContext:
    async with asyncio.timeout(OPEN_S):
        return await browser.new_context(
            proxy={"server": way_out, "bypass": "<-loopback>"},
            storage_state=state,
            accept_downloads=True,
            service_workers="block",  # what they answer, no guard sees
            viewport=_SCREEN,
        )


def _watch(page: Page, session: PageSession) -> None:
    def crashed(page: Page) -> None:
        session.crashed.append(page)

    page.on("crash", crashed)


async def alive(session: PageSession) -> bool:
    """Whether driver and browser still answer for this place. About a millisecond."""
    try:
        async with asyncio.timeout(ANSWER_S):
            await session.context.cookies("https://localhost")
    except (Error, TimeoutError):
        return False
    return True


async def tidy(session: PageSession) -> bool:
    """Make a place usable after a call was cut or a page crashed: loading stops; a page that is stuck is closed.

    False when the place cannot be used any more.
    """
    while session.crashed:
        page = session.crashed.pop()
        session.page = None if session.page is page else session.page
        await _within_end(page.close)
    page = session.page
    if page is None or page.is_closed():
        return True
    await stop(page)
    if await answers(page, UNSTICK_S):
        return True
    session.page = None
    session.notes.append("The page did not answer any more and was closed: open it again.")
    await _within_end(page.close, UNSTICK_S)
    return page.is_closed()


async def _within_end(close: Callable[[], Awaitable[None]], seconds: float = END_S) -> None:
    """Close something; what does not answer in time is left to the enclosure, which kills."""
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(seconds):
            await close()


# --- what is kept of a place ----------------------------------------------------------------------


async def _keep_state(context: BrowserContext, kept: Path) -> None:
    """Cookies and what pages stored. What cannot be read or written any more costs a sign-in, not the place.

    The cookies alone where the rest takes too long: each host whose storage is read costs a page, and the frames of one
    page may have come from a hundred.
    """
    with suppress(Error, TimeoutError, OSError):
        async with asyncio.timeout(END_S):
            cookies = cast("list[StorageStateCookie]", await context.cookies())
        state: StorageState = {"cookies": cookies, "origins": []}
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(END_S):
                state = await context.storage_state()
        await asyncio.to_thread(save, kept, state)


def load(path: Path) -> StorageState | None:
    """Read what was kept; None when there is nothing, or nothing that can be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def save(path: Path, state: StorageState) -> None:
    """Keep it for the daemon's user alone, whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
