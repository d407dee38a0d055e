"""Chromium process and its browser contexts, through playwright. Used by `pool` only.

Import only when the first page is opened: playwright costs 40 MB and a sixth of a second.
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

from agent_tools.browser.chromium_path import find_chromium
from agent_tools.browser.dialogs import drop
from agent_tools.browser.navigating import answers, stop
from agent_tools.browser.page_queries import teach
from agent_tools.browser.page_session import PageSession
from agent_tools.browser.settings import BrowserSettings
from gateway.domain.tools import SandboxMode
from gateway.errors import DragomanError
from gateway.ports import SandboxSession, ToolHost

if TYPE_CHECKING:
    from playwright._impl._api_structures import StorageStateCookie

START_S = 30.0
"""Timeout in seconds for starting the driver and Chromium together; 1 on a quiet machine."""
OPEN_S = 15.0
"""Timeout in seconds for a new browser context."""
END_S = 1.0
"""Timeout in seconds for each step of a shutdown; anything that hangs is killed with the sandbox session."""
DRIVER_S = 3.0
"""Timeout in seconds for the start of playwright's process after its caller was cancelled."""
ANSWER_S = 10.0
"""Timeout in seconds for a browser's health check; after that it is given up with all its page sessions."""
UNSTICK_S = 4.0
"""Timeout in seconds for a page to answer after a cancelled call, and again to close."""
_SCREEN: ViewportSize = {"width": 1280, "height": 800}

# Added to playwright's own, which stop it from fetching updates, lists and suggestions. No `--disable-features`:
# Chromium takes only the last one, and `starter` adds ours to playwright's.
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
UNUSED = "WebUIOmniboxPopup,WebUIOmniboxAimPopup"
"""Chromium's features that nobody sees without a window. For suggestions of its address bar alone it loads two pages
beside each new one. That is more than half of the CPU of opening a page (1.5 s against 0.7 s).
"""
READS = tuple(map(Path, ("/etc/fonts", "/var/cache/fontconfig", "/etc/chromium", "/etc/chromium.d")))
"""Host paths readable in the sandbox: fonts, without which it draws no text, and the distribution's start settings."""
NOWHERE = "http://127.0.0.1:9"
"""Unreachable proxy of the browser itself. Only page sessions have egress."""


@asynccontextmanager
async def chromium(
    host: ToolHost, settings: BrowserSettings, sandbox: SandboxMode | None
) -> AsyncGenerator[tuple[Browser, SandboxSession]]:
    """Run driver and browser; both end with the block, within about 4 s.

    Raises `NotFound` when there is no Chromium, `DragomanError` when it does not start.
    """
    program = find_chromium(settings.executable, os.environ)
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(START_S):
                # Outside of the sandbox session: once all in there is killed, nothing blocks the driver.
                playwright = await stack.enter_async_context(_driver())
                await teach(playwright)
                sandbox_session = await stack.enter_async_context(
                    host.open_sandbox_session(
                        program, sandbox=sandbox, hosts=settings.hosts, proxies=settings.sessions, readable=READS
                    )
                )
                browser = await playwright.chromium.launch(
                    executable_path=_starter_in(sandbox_session),
                    args=SWITCHES,
                    artifacts_dir=_made(sandbox_session.folder / "files"),
                    downloads_path=_made(sandbox_session.folder / "files"),
                    env={"PATH": os.defpath},  # for the launcher, which sets Chromium's own
                    # Chromium's own sandbox refuses root only, and nobody is root inside the sandbox session.
                    chromium_sandbox=sandbox in (SandboxMode.BASIC, SandboxMode.FULL) or os.geteuid() != 0,
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
        except Exception as error:  # playwright's own errors when its process ends; a full disk
            raise _not_started(_first_line(error)) from error
        stack.push_async_callback(_within_end, browser.close)
        yield browser, sandbox_session


@asynccontextmanager
async def _driver() -> AsyncGenerator[Playwright]:
    """Run playwright's process. A caller cancelled during its start waits `DRIVER_S`; after that it ends on its own."""
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


def _starter_in(sandbox_session: SandboxSession) -> Path:
    """Write the script that playwright starts: the launcher with a profile folder inside the sandbox session.

    Playwright would put the profile into its own temporary folder and rejects the switch; the last switch wins.
    """
    profile = _made(sandbox_session.folder / "profile")
    return starter(sandbox_session.folder / "start", sandbox_session.launcher, f"--user-data-dir={profile}")


def starter(path: Path, program: Path, *switches: str) -> Path:
    """Write a script that starts Chromium with the given switches and these, and without `UNUSED`. Return its path."""
    # The loop replaces each argument: it puts the new one last and takes the first one away.
    path.write_text(
        f"""#!/bin/sh
for one do
    case $one in --disable-features=*) one=$one,{UNUSED} ;; esac
    set -- "$@" "$one"
    shift
done
exec {shlex.quote(str(program))} "$@" {shlex.join(switches)}
"""
    )
    path.chmod(0o700)
    return path


def _made(path: Path) -> Path:
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _not_started(why: str) -> DragomanError:
    return DragomanError(
        f"The browser did not start: {why}.", cure="Ask again; `dragoman check` names the missing part."
    )


def _last_words(error: Error) -> str:
    """Return the last error line of the launcher or Chromium, else playwright's first line."""
    said = [line.partition("[err]")[2].strip() for line in error.message.splitlines() if "[err]" in line]
    return next((line[-200:].rstrip(".") for line in reversed(said) if line), _first_line(error))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")


# --- page sessions --------------------------------------------------------------------------------


@asynccontextmanager
async def open_page_session(
    browser: Browser, sandbox_session: SandboxSession, key: str, kept: Path
) -> AsyncGenerator[PageSession]:
    """Open a page session with its own egress proxy; restore its state from the file `kept` and save it at the end.

    Raises `DragomanError` when it cannot be opened.
    """
    folder = _made(sandbox_session.folder / f"seat-{key}")
    try:
        state = await asyncio.to_thread(load, kept)
        async with sandbox_session.egress_proxy() as proxy:
            proxy.let(())  # each call sets the allowed hosts
            try:
                context = await _context(browser, proxy.address, state)
            except (Error, TimeoutError):
                if state is None:
                    raise
                state, context = None, await _context(browser, proxy.address, None)
            session = PageSession(context=context, proxy=proxy, folder=folder)
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
        raise DragomanError(f"The browser cannot open a page session: {why}.", cure="Ask again.") from error
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def leave(session: PageSession) -> None:
    """Close a page session's context and guard. Anything that times out is killed with the sandbox session."""
    await _within_end(session.context.close)
    if session.guard is not None:
        await _within_end(session.guard.end)


async def _context(browser: Browser, way_out: str, state: StorageState | None) -> BrowserContext:
    async with asyncio.timeout(OPEN_S):
        return await browser.new_context(
            proxy={"server": way_out, "bypass": "<-loopback>"},
            storage_state=state,
            accept_downloads=True,
            service_workers="block",  # the guard does not see their responses
            viewport=_SCREEN,
        )


def _watch(page: Page, session: PageSession) -> None:
    def crashed(page: Page) -> None:
        session.crashed.append(page)

    page.on("crash", crashed)


async def alive(session: PageSession) -> bool:
    """Return whether driver and browser still answer for this page session. Takes about a millisecond."""
    try:
        async with asyncio.timeout(ANSWER_S):
            await session.context.cookies("https://localhost")
    except (Error, TimeoutError):
        return False
    return True


async def tidy(session: PageSession) -> bool:
    """Repair a page session after a cancelled call or a crash: stop loading; close a page that hangs.

    Dialogs are refused meanwhile. Return False when the page session is unusable.
    """
    session.refuses_dialogs = True
    try:
        return await _repaired(session)
    finally:
        session.refuses_dialogs = False


async def _repaired(session: PageSession) -> bool:
    await drop(session)
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
    """Await `close` with a timeout; anything that times out is killed with the sandbox session."""
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(seconds):
            await close()


# --- saved state ----------------------------------------------------------------------------------


async def _keep_state(context: BrowserContext, kept: Path) -> None:
    """Save cookies and page storage. A failure to read or write costs a sign-in, not the page session.

    Only cookies are saved when the rest takes too long. Each host whose storage is read costs a page, and the frames of
    one page may be of a hundred hosts.
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
    """Return the saved state; None when there is none or it is unreadable."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def save(path: Path, state: StorageState) -> None:
    """Write the state atomically, readable for the daemon's user only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
