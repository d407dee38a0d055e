"""Browser pool: started by the first call, shared by all sessions, shut down when idle. Used by `BrowserTool`.

One task for each browser and one for each page session in it, all below `serve`. Each task closes what it opened, even
if the call that requested it is cancelled. A cancelled call sets `untidy`, and the lease's own task cleans up.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast

from agent_tools.browser.page_session import PageSession
from agent_tools.browser.settings import BrowserSettings
from gateway.domain.tools import SandboxMode
from gateway.errors import DragomanError
from gateway.ports import ToolHost

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from gateway.ports import SandboxSession

_log = logging.getLogger(__name__)
LOOK_EVERY_S = 1.0
"""Seconds between idle checks."""
SERVED_WITHIN_S = 5.0
"""Timeout in seconds for `serve` to start, which the daemon runs as a separate task."""
END_WITHIN_S = 4.5
"""Timeout in seconds for an orderly shutdown of all browsers."""
GIVE_WAY_S = 10.0
"""Timeout in seconds for an evicted page session to close."""
FORGET_AFTER = timedelta(days=30)
"""Time after which the saved state of an unused session is deleted."""


@dataclass(slots=True, eq=False)
class _Lease:
    """Lease of one page session, from the first request to its end."""

    key: str
    users: int = 0
    """Number of calls that hold it or wait for it."""
    used_at: float = 0.0
    session: PageSession | None = None
    failed: DragomanError | None = None
    untidy: bool = False
    """True after a call was cancelled in it, until cleaned up."""
    leaving: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """It can be used, or it failed."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def leave(self) -> None:
        """Request that its task save and close it. No new call may use it."""
        self.leaving = True
        self.wake.set()


@dataclass(slots=True, eq=False)
class _Instance:
    """Instance of one browser, from the first request to its end."""

    sandbox: SandboxMode | None
    used_at: float
    leases: dict[str, _Lease] = field(default_factory=dict[str, _Lease])
    failed: DragomanError | None = None
    browser: Browser | None = None
    sandbox_session: SandboxSession | None = None
    task: asyncio.Task[None] | None = None
    group: asyncio.TaskGroup | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """It can be used, or it failed."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it is ending or has ended. No new call may use it."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class BrowserPool:
    """Browsers by sandbox mode, normally one, and their page sessions by key."""

    def __init__(self, host: ToolHost, prepare: Callable[[PageSession], Awaitable[None]]) -> None:
        """Start nothing. `prepare` is called with each new page session before its first use."""
        self._host = host
        self._settings = cast("BrowserSettings", host.settings)
        self._prepare = prepare
        self._instances: dict[SandboxMode | None, _Instance] = {}
        self._group: asyncio.TaskGroup | None = None
        self._serving = asyncio.Event()

    # --- for calls ------------------------------------------------------------------------------

    @asynccontextmanager
    async def session(self, key: str, sandbox: SandboxMode | None) -> AsyncGenerator[PageSession]:
        """Hold the page session of `key` for one call; start, open or repair it first. Raises `DragomanError`.

        When the body is cancelled, the page stops loading before the next call begins.
        """
        while True:
            instance, lease = await self._lease(key, sandbox)
            try:
                async with lease.lock:
                    session = await self._usable(instance, lease)
                    if session is not None:
                        try:
                            yield session
                        except asyncio.CancelledError:
                            lease.untidy = True
                            raise
                        if session.stuck:
                            lease.leave()
                        return
                await lease.gone.wait()
            finally:
                lease.users -= 1
                lease.used_at = instance.used_at = self._host.clock.monotonic()
                if lease.untidy:
                    lease.wake.set()

    async def leave(self, key: str, sandbox: SandboxMode | None) -> bool:
        """Save and close the page session; return whether there was one."""
        instance = self._instances.get(sandbox)
        lease = instance.leases.get(key) if instance else None
        if lease is None:
            return False
        async with lease.lock:
            lease.leave()
        await lease.gone.wait()
        return True

    async def _usable(self, instance: _Instance, lease: _Lease) -> PageSession | None:
        """Return the page session; None when it is ending and must be reopened after `gone`. Requires the lock."""
        await lease.ready.wait()
        if lease.failed is not None:
            raise DragomanError(lease.failed.message, cure=lease.failed.cure)
        from agent_tools.browser.chromium import alive

        session = lease.session
        if session is None or lease.leaving or instance.over.is_set():
            return None
        if not await alive(session):
            instance.over.set()
        elif await _tidied(lease, session):
            return session
        else:
            lease.leave()
        return None

    # --- leases ---------------------------------------------------------------------------------

    async def _lease(self, key: str, sandbox: SandboxMode | None) -> tuple[_Instance, _Lease]:
        """Return the lease of `key` and count the caller among its users. It may not be ready yet."""
        while True:
            instance = await self._instance(sandbox)
            lease = instance.leases.get(key)
            if instance.over.is_set():  # it ended right after its start
                await instance.gone.wait()
            elif lease is not None and lease.leaving:
                await lease.gone.wait()
            elif lease is not None:
                lease.users += 1
                return instance, lease
            elif len(others := list(self._all_leases())) >= self._settings.sessions:
                await self._make_room(others)
            else:
                assert instance.group is not None
                lease = instance.leases[key] = _Lease(key, users=1)
                instance.group.create_task(self._run_lease(instance, lease), name=f"browser session {key}")
                return instance, lease

    async def _make_room(self, leases: list[_Lease]) -> None:
        """Evict the page session that was idle longest, or wait for one that is closing. Raises `DragomanError`."""
        leaving = next((lease for lease in leases if lease.leaving), None)
        oldest = leaving or min((c for c in leases if not c.users), key=lambda c: c.used_at, default=None)
        if oldest is None:
            raise DragomanError(
                f"All {self._settings.sessions} page sessions of the browser are in use.",
                cure="Ask again in a minute, or raise `sessions` in [tools.browser].",
            )
        oldest.leave()
        with suppress(TimeoutError):
            async with asyncio.timeout(GIVE_WAY_S):
                await oldest.gone.wait()

    def _all_leases(self) -> Iterator[_Lease]:
        for instance in self._instances.values():
            yield from instance.leases.values()

    async def _instance(self, sandbox: SandboxMode | None) -> _Instance:
        """Return a running browser; the first caller starts it. Raises `DragomanError` when that fails."""
        try:
            async with asyncio.timeout(SERVED_WITHIN_S):
                await self._serving.wait()
        except TimeoutError:
            raise DragomanError("The browser is not served here now.", cure="Ask again in a minute.") from None
        while (instance := self._instances.get(sandbox)) is not None and instance.over.is_set():
            await instance.gone.wait()
        if instance is None:
            if self._group is None:
                raise DragomanError("The browser is being shut down.")
            instance = self._instances[sandbox] = _Instance(sandbox, self._host.clock.monotonic())
            instance.task = self._group.create_task(self._run_instance(instance), name=f"browser {sandbox}")
        await instance.ready.wait()
        if instance.failed is not None:
            raise DragomanError(instance.failed.message, cure=instance.failed.cure)
        if instance.group is None:  # cancelled during its start
            raise DragomanError("The browser is being shut down.")
        return instance

    # --- background tasks -----------------------------------------------------------------------

    async def serve(self) -> None:
        """Run the requested browsers until cancelled. All of them end within 5 s then."""
        await asyncio.to_thread(self._forget_old)
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._serving.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self._serving.clear()
                    self._group = None
                    await self._all_gone()
        finally:
            self._instances.clear()

    async def _all_gone(self) -> None:
        """Shut all browsers down in order; after the timeout they are cancelled and killed with their sandbox sessions.

        A browser still starting has no state to save and is cancelled at once.
        """
        for instance in self._instances.values():
            if instance.task is not None and not instance.ready.is_set():
                instance.task.cancel()
        instances = [instance for instance in self._instances.values() if instance.ready.is_set()]
        with suppress(TimeoutError):
            async with asyncio.timeout(END_WITHIN_S):
                for instance in instances:
                    instance.over.set()
                for instance in instances:
                    await instance.gone.wait()

    async def _run_instance(self, instance: _Instance) -> None:
        """Run one browser from start to end."""
        try:
            await asyncio.to_thread(_import_playwright)
            from agent_tools.browser.chromium import chromium

            async with chromium(self._host, self._settings, instance.sandbox) as (browser, sandbox_session):
                instance.browser, instance.sandbox_session = browser, sandbox_session
                browser.on("disconnected", lambda _: instance.over.set())
                async with asyncio.TaskGroup() as group:
                    instance.group = group
                    instance.used_at = self._host.clock.monotonic()  # its start may take longer than the idle timeout
                    instance.ready.set()
                    await self._until_over(instance)
                    for lease in instance.leases.values():
                        lease.leave()
        except DragomanError as error:
            instance.failed = error
        except ImportError:
            cure = "Install the extra `browser` (in a clone `./run add browser`)."
            instance.failed = DragomanError("The browser is not installed here.", cure=cure)
        except Exception as error:  # noqa: BLE001 - a failure of one browser must not end the others
            instance.failed = DragomanError("The browser failed.", cure="Ask again; the log says why.")
            _log.error("a browser failed: %s", type(error).__name__, exc_info=error)
        finally:
            instance.over.set()
            if self._instances.get(instance.sandbox) is instance:
                del self._instances[instance.sandbox]
            instance.ready.set()
            instance.gone.set()

    async def _until_over(self, instance: _Instance) -> None:
        """Wait until the browser crashed, the daemon stops, or the idle timeout passed."""
        idle = self._settings.idle.total_seconds()
        while not instance.over.is_set():
            now = self._host.clock.monotonic()
            for lease in instance.leases.values():
                if not lease.users and now - lease.used_at >= idle:
                    lease.leave()
            if not instance.leases and now - instance.used_at >= idle:
                instance.over.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await instance.over.wait()

    async def _run_lease(self, instance: _Instance, lease: _Lease) -> None:
        """Run one page session from opening to close."""
        from agent_tools.browser.chromium import open_page_session

        assert instance.browser is not None
        assert instance.sandbox_session is not None
        kept = self._states / f"{lease.key}.json"
        try:
            async with open_page_session(instance.browser, instance.sandbox_session, lease.key, kept) as session:
                await self._prepare(session)
                lease.session = session
                lease.ready.set()
                await self._until_left(lease, session)
        except DragomanError as error:
            lease.failed = error
        finally:
            del instance.leases[lease.key]
            lease.leaving = True
            lease.ready.set()
            lease.gone.set()

    async def _until_left(self, lease: _Lease, session: PageSession) -> None:
        while not lease.leaving:
            await lease.wake.wait()
            lease.wake.clear()
            if not lease.leaving and not lease.lock.locked():  # else the call that holds it cleans up first
                async with lease.lock:
                    if not await _tidied(lease, session):
                        lease.leave()

    @property
    def _states(self) -> Path:
        return self._host.folder / "states"

    def _forget_old(self) -> None:
        oldest = (self._host.clock.now() - FORGET_AFTER).timestamp()
        with suppress(OSError):
            for path in self._states.iterdir():
                if path.stat().st_mtime < oldest:
                    path.unlink(missing_ok=True)


def _import_playwright() -> None:
    """Import playwright. Run in a thread: it reads two hundred files, which would block the event loop."""
    importlib.import_module("agent_tools.browser.chromium")


async def _tidied(lease: _Lease, session: PageSession) -> bool:
    """Clean up after a cancelled call or a crash; return False when unusable. Requires the lock."""
    from agent_tools.browser.chromium import tidy

    if lease.untidy or session.crashed:
        lease.untidy = not await tidy(session)
    return not lease.untidy
