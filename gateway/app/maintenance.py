"""Start of a life of the store, and its periodic sweeps: expired waits, leases of dead holders, timers.

After a long downtime the start shows open cards again (`DOWNTIME`). Each sweep is one transition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from gateway.domain.ids import NodeId
from gateway.errors import StoreError
from gateway.ports import ApproversOf, Node, Sweeps, nobody_decides
from gateway.system.logging_setup import log
from gateway.system.metrics import Metrics

EVERY_S = 1.0
"""Seconds between sweeps."""
RECLAIM = "reclaim"
DOWNTIME = timedelta(seconds=120)
"""Downtime after which open cards are shown again: Telegram drops a press after 150 s."""
HOLDERS_FIRST = 7
"""Sweeps without `reclaim` after a failed sweep. During a store outage no holder could renew its lease, and holders
retry every 5 s; reclaiming at once would lose the results of their calls."""


@dataclass(slots=True, kw_only=True)
class Sweeper:
    """Sweep loop."""

    node_id: NodeId
    sweeps: Sweeps
    node: Node
    metrics: Metrics
    approvers: ApproversOf = nobody_decides
    """Returns who may decide an approval now, for the step to further approvers."""
    _holders_first: int = 0
    """Remaining sweeps without `reclaim`."""
    _log: Any = field(default_factory=lambda: log("maintenance"))

    async def start(self, machine: str) -> None:
        """Void leases of earlier processes on this machine; after a downtime, show open cards again. Runs first."""
        while count := await self.sweeps.void_leases(machine):
            self._count("void_leases", count)
        self._count("offer_again", await self.node.begin(self.node_id, DOWNTIME))

    async def run(self) -> None:
        """Sweep every second until cancelled."""
        while True:
            self._holders_first = max(0, self._holders_first - 1)
            for name, sweep in self._all():
                if name == RECLAIM and self._holders_first:
                    continue
                await self._until_done(name, sweep)
            await asyncio.sleep(EVERY_S)

    async def leave(self) -> None:
        """Let other nodes send and poll at once. Call last."""
        try:
            async with asyncio.timeout(EVERY_S):
                await self.node.leave(self.node_id)
        except (TimeoutError, StoreError) as error:
            self._log.error("other nodes take over only when the leases of this one have ended", error=str(error))

    def _all(self) -> list[tuple[str, Callable[[], Awaitable[int]]]]:
        return [
            ("expire_waits", self.sweeps.expire_waits),
            (RECLAIM, self.sweeps.reclaim),
            ("fire_timers", partial(self.sweeps.fire_timers, self.approvers)),
            ("expire_grants", self.sweeps.expire_grants),
        ]

    async def _until_done(self, name: str, sweep: Callable[[], Awaitable[int]]) -> None:
        try:
            while count := await sweep():
                self._count(name, count)
        except StoreError as error:
            self._log.error("sweep failed", sweep=name, error=str(error))
            self._holders_first = HOLDERS_FIRST
        except Exception:  # noqa: BLE001 - the loop of sweeps: the others keep running (house rule 9)
            self._log.exception("sweep failed", sweep=name)

    def _count(self, name: str, count: int) -> None:
        if count:
            self.metrics.sweeps.labels(name).inc(count)
            self._log.info("swept", sweep=name, count=count)
