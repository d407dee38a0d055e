"""Keeps the browsers, between the calls: started for the first, shared by all sessions, shut down after a rest.

One task for each browser and one for each place in it, all below `serve`: what a task opened, the same task closes,
whatever became of the call that asked for it. A call that is cut leaves marks (`untidy`), and the place's own task
cleans up.
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
SERVED_WITHIN_S = 5.0
"""Seconds that a call waits for `serve`, which the daemon starts beside it."""
END_WITHIN_S = 4.5
GIVE_WAY_S = 10.0
FORGET_AFTER = timedelta(days=30)
"""Cookies of a session that did not come back."""


@dataclass(slots=True, eq=False)
class _Lease:
    """One session's place, from the first call's wish to its end."""

    key: str
    users: int = 0
    """Calls that have it or wait for it."""
    used_at: float = 0.0
    seat: PageSession | None = None
    failed: DragomanError | None = None
    untidy: bool = False
    """A call was cut in it."""
    leaving: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """It can be used, or it failed."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def leave(self) -> None:
        """Ask its task to save and close it. Nobody begins to use it any more."""
        self.leaving = True
        self.wake.set()


@dataclass(slots=True, eq=False)
class _Instance:
    """One browser, from the first call's wish to its end."""

    sandbox: SandboxMode | None
    used_at: float
    chairs: dict[str, _Lease] = field(default_factory=dict[str, _Lease])
    failed: DragomanError | None = None
    browser: Browser | None = None
    session: SandboxSession | None = None
    task: asyncio.Task[None] | None = None
    group: asyncio.TaskGroup | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """It can be used, or it failed."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """It ends, or ended: nobody begins to use it any more."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class BrowserPool:
    """The browsers by sandbox, normally one, and the places in them by session."""

    def __init__(self, place: ToolHost, prepare: Callable[[PageSession], Awaitable[None]]) -> None:
        """`prepare` is given each new place before its first use."""
        self._place = place
        self._settings = cast("BrowserSettings", place.settings)
        self._prepare = prepare
        self._lives: dict[SandboxMode | None, _Instance] = {}
        self._group: asyncio.TaskGroup | None = None
        self._serving = asyncio.Event()

    # --- for calls ------------------------------------------------------------------------------

    @asynccontextmanager
    async def seat(self, key: str, sandbox: SandboxMode | None) -> AsyncGenerator[PageSession]:
        """The session's place, for one call alone; started, opened or repaired first. Raises `DragomanError`.

        When the body is cut, the page stops loading before the next call begins.
        """
        while True:
            life, chair = await self._chair(key, sandbox)
            try:
                async with chair.lock:
                    seat = await self._usable(life, chair)
                    if seat is not None:
                        try:
                            yield seat
                        except asyncio.CancelledError:
                            chair.untidy = True
                            raise
                        if seat.stuck:
                            chair.leave()
                        return
                await chair.gone.wait()
            finally:
                chair.users -= 1
                chair.used_at = life.used_at = self._place.clock.monotonic()
                if chair.untidy:
                    chair.wake.set()

    async def leave(self, key: str, sandbox: SandboxMode | None) -> bool:
        """Save and close the session's place; return whether there was one."""
        life = self._lives.get(sandbox)
        chair = life.chairs.get(key) if life else None
        if chair is None:
            return False
        async with chair.lock:
            chair.leave()
        await chair.gone.wait()
        return True

    async def _usable(self, life: _Instance, chair: _Lease) -> PageSession | None:
        """Return the place; None when it ends, and another must be opened once it is gone. The lock is held."""
        await chair.ready.wait()
        if chair.failed is not None:
            raise DragomanError(chair.failed.message, cure=chair.failed.cure)
        from agent_tools.browser.chromium import alive

        seat = chair.seat
        if seat is None or chair.leaving or life.over.is_set():
            return None
        if not await alive(seat):
            life.over.set()
        elif await _tidied(chair, seat):
            return seat
        else:
            chair.leave()
        return None

    # --- who has which place --------------------------------------------------------------------

    async def _chair(self, key: str, sandbox: SandboxMode | None) -> tuple[_Instance, _Lease]:
        """Return the session's place and count the caller among its users. It may not be ready yet."""
        while True:
            life = await self._life(sandbox)
            chair = life.chairs.get(key)
            if life.over.is_set():  # it died as soon as it was there
                await life.gone.wait()
            elif chair is not None and chair.leaving:
                await chair.gone.wait()
            elif chair is not None:
                chair.users += 1
                return life, chair
            elif len(others := list(self._chairs())) >= self._settings.sessions:
                await self._make_room(others)
            else:
                assert life.group is not None
                chair = life.chairs[key] = _Lease(key, users=1)
                life.group.create_task(self._keep_seat(life, chair), name=f"browser seat {key}")
                return life, chair

    async def _make_room(self, chairs: list[_Lease]) -> None:
        """The place that was unused for the longest gives way; one that is leaving anyway is waited for."""
        leaving = next((chair for chair in chairs if chair.leaving), None)
        oldest = leaving or min((c for c in chairs if not c.users), key=lambda c: c.used_at, default=None)
        if oldest is None:
            raise DragomanError(
                f"All {self._settings.sessions} places of the browser are in use.",
                cure="Ask again in a minute, or raise `sessions` in [tools.browser].",
            )
        oldest.leave()
        with suppress(TimeoutError):
            async with asyncio.timeout(GIVE_WAY_S):
                await oldest.gone.wait()

    def _chairs(self) -> Iterator[_Lease]:
        for life in self._lives.values():
            yield from life.chairs.values()

    async def _life(self, sandbox: SandboxMode | None) -> _Instance:
        """Return a browser that runs; the first caller has it started. Raises `DragomanError` when that fails."""
        try:
            async with asyncio.timeout(SERVED_WITHIN_S):
                await self._serving.wait()
        except TimeoutError:
            raise DragomanError("The browser is not served here now.", cure="Ask again in a minute.") from None
        while (life := self._lives.get(sandbox)) is not None and life.over.is_set():
            await life.gone.wait()
        if life is None:
            if self._group is None:
                raise DragomanError("The browser is being shut down.")
            life = self._lives[sandbox] = _Instance(sandbox, self._place.clock.monotonic())
            life.task = self._group.create_task(self._keep(life), name=f"browser {sandbox}")
        await life.ready.wait()
        if life.failed is not None:
            raise DragomanError(life.failed.message, cure=life.failed.cure)
        if life.group is None:  # cut while it started
            raise DragomanError("The browser is being shut down.")
        return life

    # --- what runs beside the calls -------------------------------------------------------------

    async def serve(self) -> None:
        """Run the browsers that calls ask for, until cancelled. Nothing is left then, within 5 s."""
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
            self._lives.clear()

    async def _all_gone(self) -> None:
        """End all browsers in good order; what takes longer is cancelled, and killed with its enclosure.

        One that only starts has nothing to be kept: it is cancelled at once.
        """
        for life in self._lives.values():
            if life.task is not None and not life.ready.is_set():
                life.task.cancel()
        lives = [life for life in self._lives.values() if life.ready.is_set()]
        with suppress(TimeoutError):
            async with asyncio.timeout(END_WITHIN_S):
                for life in lives:
                    life.over.set()
                for life in lives:
                    await life.gone.wait()

    async def _keep(self, life: _Instance) -> None:
        """One browser's whole life."""
        try:
            await asyncio.to_thread(_import_playwright)
            from agent_tools.browser.chromium import chromium

            async with chromium(self._place, self._settings, life.sandbox) as (browser, enclosure):
                life.browser, life.session = browser, enclosure
                browser.on("disconnected", lambda _: life.over.set())
                async with asyncio.TaskGroup() as group:
                    life.group = group
                    life.used_at = self._place.clock.monotonic()  # to start may take longer than it may be unused
                    life.ready.set()
                    await self._until_over(life)
                    for chair in life.chairs.values():
                        chair.leave()
        except DragomanError as error:
            life.failed = error
        except ImportError:
            cure = "Install the extra `browser` (in a clone `./run add browser`)."
            life.failed = DragomanError("The browser is not installed here.", cure=cure)
        except Exception as error:  # noqa: BLE001 - what ends one browser must not end the others
            life.failed = DragomanError("The browser failed.", cure="Ask again; the log says why.")
            _log.error("a browser failed: %s", type(error).__name__, exc_info=error)
        finally:
            life.over.set()
            if self._lives.get(life.sandbox) is life:
                del self._lives[life.sandbox]
            life.ready.set()
            life.gone.set()

    async def _until_over(self, life: _Instance) -> None:
        """Wait for the browser's end: it crashed, the daemon stops, or nobody used it for long enough."""
        idle = self._settings.idle.total_seconds()
        while not life.over.is_set():
            now = self._place.clock.monotonic()
            for chair in life.chairs.values():
                if not chair.users and now - chair.used_at >= idle:
                    chair.leave()
            if not life.chairs and now - life.used_at >= idle:
                life.over.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await life.over.wait()

    async def _keep_seat(self, life: _Instance, chair: _Lease) -> None:
        """One place's whole life."""
        from agent_tools.browser.chromium import seated

        assert life.browser is not None
        assert life.session is not None
        kept = self._states / f"{chair.key}.json"
        try:
            async with seated(life.browser, life.session, chair.key, kept) as seat:
                await self._prepare(seat)
                chair.seat = seat
                chair.ready.set()
                await self._until_left(chair, seat)
        except DragomanError as error:
            chair.failed = error
        finally:
            del life.chairs[chair.key]
            chair.leaving = True
            chair.ready.set()
            chair.gone.set()

    async def _until_left(self, chair: _Lease, seat: PageSession) -> None:
        while not chair.leaving:
            await chair.wake.wait()
            chair.wake.clear()
            if not chair.leaving and not chair.lock.locked():  # else the call that has it cleans up first
                async with chair.lock:
                    if not await _tidied(chair, seat):
                        chair.leave()

    @property
    def _states(self) -> Path:
        return self._place.folder / "states"

    def _forget_old(self) -> None:
        oldest = (self._place.clock.now() - FORGET_AFTER).timestamp()
        with suppress(OSError):
            for path in self._states.iterdir():
                if path.stat().st_mtime < oldest:
                    path.unlink(missing_ok=True)


def _import_playwright() -> None:
    """For a thread: it reads two hundred files, and everybody else would wait."""
    importlib.import_module("agent_tools.browser.chromium")


async def _tidied(chair: _Lease, seat: PageSession) -> bool:
    """Clean up after a cut call or a crash; the lock is held. False: the place is of no more use."""
    from agent_tools.browser.chromium import tidy

    if chair.untidy or seat.crashed:
        chair.untidy = not await tidy(seat)
    return not chair.untidy
