"""Daemon lifecycle: one task group, a start order, a drain order, signals. Wired by `app.build`."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gateway.agent.worker import TurnWorker
from gateway.app.maintenance import Sweeper
from gateway.app.membership import Membership
from gateway.errors import StoreError
from gateway.inbound.ingress import Ingress
from gateway.outbound.delivery import Delivery
from gateway.outbound.live_edits import LiveEdits
from gateway.ports import Channel, Clock, StatefulTool, Store
from gateway.server.control_server import ControlServer
from gateway.server.http import HttpServer
from gateway.system.logging_setup import log

LIVE_EDITS_WITHIN_S = 0.5
"""Timeout in seconds for live edits at shutdown; together these timeouts stay below ten seconds."""
TURNS_WITHIN_S = 3.5
"""Timeout in seconds for running turns to stop."""
SENDS_WITHIN_S = 2.0
"""Timeout in seconds for sending what is due."""
SENDERS_WITHIN_S = 1.0
"""Timeout in seconds for the delivery loop to end."""
CLOSED_WITHIN_S = 2.0
"""Timeout in seconds for each closer."""
RESTART_AFTER_S = (1.0, 2.0, 4.0, 8.0, 16.0, 60.0)
"""Backoff in seconds before a failed channel or tool is restarted, by consecutive failures."""
CALM_S = 60.0
"""Seconds of running after which the backoff is reset."""


@dataclass(slots=True, kw_only=True)
class Daemon:
    """All running parts, wired by `app.build`."""

    machine: str
    store: Store
    clock: Clock
    ingress: Ingress
    channels: Mapping[str, Channel]
    stateful_tools: Mapping[str, StatefulTool]
    """Stateful tools by name."""
    http: HttpServer
    control: ControlServer
    worker: TurnWorker
    delivery: Delivery
    live_edits: LiveEdits
    sweeper: Sweeper
    membership: Membership
    chores: Mapping[str, Callable[[], Coroutine[Any, Any, None]]] = field(
        default_factory=dict[str, Callable[[], Coroutine[Any, Any, None]]]
    )
    """Background tasks by name, cancelled when the drain begins. They do not raise."""
    closers: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    """Closers that run in order after the HTTP server stopped, before leases and the store are released."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _log: Any = field(default_factory=lambda: log("daemon"))

    async def run(self, ready: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run until `stop` or a signal, then drain within ten seconds. Awaits `ready` once work is accepted."""
        async with self._signals():
            try:
                self.control.check_place()
                await self.membership.join()
                await self.sweeper.start(self.machine)
                await self.http.start()
                await self._serve(ready)
            finally:
                for close in [self.http.stop, *self.closers, self.worker.release, self.membership.resign]:
                    await self._closed(close)
                await self.store.close()

    async def _closed(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            async with asyncio.timeout(CLOSED_WITHIN_S):
                await close()
        except Exception:  # noqa: BLE001 - an exit: a closer that fails must not keep the store open (house rule 9)
            self._log.exception("not closed cleanly")

    def stop(self) -> None:
        """Begin to drain. Idempotent."""
        self.stopping.set()

    async def _serve(self, ready: Callable[[], Coroutine[Any, Any, None]]) -> None:
        reachable = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            inward = [
                group.create_task(
                    self._keep_running(f"channel {name}", partial(channel.run, self.ingress)), name=f"channel {name}"
                )
                for name, channel in self.channels.items()
            ]
            inward.append(group.create_task(self.control.run(reachable), name="control_server"))
            sweeps = group.create_task(self.sweeper.run(), name="maintenance")
            member = group.create_task(self.membership.run(), name="membership")
            chores = [group.create_task(chore(), name=name) for name, chore in self.chores.items()]
            live_edits = group.create_task(self.live_edits.run(), name="live_edits")
            tools = [
                group.create_task(self._keep_running(f"tool {name}", tool.serve), name=f"tool {name}")
                for name, tool in self.stateful_tools.items()
            ]
            turns = group.create_task(self.worker.run(), name="worker")
            sends = group.create_task(self.delivery.run(), name="delivery")
            await reachable.wait()  # clients ask for a sign-in link as soon as they see "ready"
            await ready()
            self._log.info("ready", port=self.http.port)
            await self.stopping.wait()
            self._log.info("draining")
            for task in [*inward, sweeps, member, *chores]:
                task.cancel()
            self.live_edits.drain()
            await _within(live_edits, LIVE_EDITS_WITHIN_S)
            await self._drain(turns, sends)
            for task in tools:
                task.cancel()

    async def _drain(self, turns: asyncio.Task[None], sends: asyncio.Task[None]) -> None:
        """Stop running turns, release them, send what is due. Cancel the rest; the next start picks it up."""
        self.worker.drain()
        await _within(turns, TURNS_WITHIN_S)
        try:
            async with asyncio.timeout(SENDS_WITHIN_S):
                await self.delivery.flush()
        except (TimeoutError, StoreError) as error:
            self._log.warning("some messages stay for the next start", error=str(error))
        self.delivery.drain()
        await _within(sends, SENDERS_WITHIN_S)
        await self.sweeper.leave()

    async def _keep_running(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a channel or a tool; log each failure and restart with backoff."""
        failures = 0
        while True:
            began = self.clock.monotonic()
            try:
                await run()
            except Exception:  # noqa: BLE001 - the loop of channels and tools: the others keep running (house rule 9)
                self._log.exception("broke", what=name)
            failures = 0 if self.clock.monotonic() - began > CALM_S else failures + 1
            await asyncio.sleep(RESTART_AFTER_S[min(failures, len(RESTART_AFTER_S) - 1)])

    @asynccontextmanager
    async def _signals(self) -> AsyncGenerator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


async def _within(task: asyncio.Task[None], seconds: float) -> None:
    """Wait for a task that was asked to end; cancel it after the timeout."""
    done, _ = await asyncio.wait([task], timeout=seconds)
    if not done:
        task.cancel()
