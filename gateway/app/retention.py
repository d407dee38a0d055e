"""Loop of retention: removes old turns of each session, their files, and exported audit rows. Wired by `app.build`.

Files go after the rows that name them: the store remembers them until a node that holds them has removed them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from gateway.domain.ids import NodeId, SessionId, TurnId
from gateway.domain.retention import Keep
from gateway.errors import NotFound, StoreDamaged, StoreError
from gateway.ports import Clock, Node, Queries, Retention
from gateway.system.logging_setup import log
from gateway.system.metrics import Metrics
from gateway.toolcalls.workspaces import Workspaces

EVERY_S = 600.0
"""Interval in seconds between passes over all sessions."""
ROOTS_AT_ONCE = 100
"""Sessions in one batch; the next follows after `NEXT_S`."""
NEXT_S = 1.0
"""Seconds between two batches of a pass."""
REST_S = 0.02
"""Seconds between two removals, for other writers."""
ASIDE_KEPT = timedelta(days=30)
"""Lifetime of a workspace set aside when its session moved here."""
FOLD_AFTER = timedelta(hours=1)
"""Time after the end of a turn: until then its session may go on, and read it for each prompt."""
LEASE = "retention"
HELD_FOR = timedelta(seconds=60)
"""Duration of the lease of the one node that removes."""


@dataclass(slots=True, kw_only=True)
class HistoryTrimmer:
    """Removal of what is older than the setting. On a store of several nodes one of them removes rows."""

    node_id: NodeId
    retention: Retention
    node: Node
    queries: Queries
    keep: Keep
    metrics: Metrics
    workspaces: Workspaces
    clock: Clock
    is_alone: bool
    """True if no other node has files of this store."""
    audit_age: timedelta | None = None
    """Age from which rows of the audit that were exported are removed; None: never."""
    every_s: float = EVERY_S
    _after: str = ""
    _elsewhere: set[TurnId] = field(default_factory=set[TurnId])
    """Turns without files here."""
    _log: Any = field(default_factory=lambda: log("retention"))

    async def run(self) -> None:
        """Remove what is old until cancelled."""
        while True:
            pause = self.every_s
            try:
                await self.clear_files()
                await self._set_aside()
                if await self._is_ours():
                    await self._fold()
                    await self.audit_rows()
                    if not self.keep.is_everything:
                        await self._some_sessions()
                    pause = NEXT_S if self._after else self.every_s
            except StoreError as error:
                self._log.error("old messages are not removed now", error=str(error))
            except Exception:  # noqa: BLE001 - a sweep: a removal that failed must not end the daemon (house rule 9)
                self._log.exception("old messages are not removed now")
            await asyncio.sleep(pause)

    async def _set_aside(self) -> None:
        """Remove workspaces that were set aside long ago, once in each pass over all sessions."""
        if not self._after:
            count = await asyncio.to_thread(self.workspaces.remove_set_aside, self.clock.now() - ASIDE_KEPT)
            self.metrics.sweeps.labels("set_aside").inc(count)

    async def _fold(self) -> None:
        while count := await self.retention.fold(FOLD_AFTER):
            self.metrics.sweeps.labels("fold").inc(count)
            await asyncio.sleep(REST_S)

    async def audit_rows(self) -> None:
        """Remove old rows of the audit. One that is damaged stays as it is, and holds up nothing else."""
        try:
            while self.audit_age is not None and (count := await self.retention.trim_audit(self.audit_age)):
                self.metrics.sweeps.labels("audit").inc(count)
                await asyncio.sleep(REST_S)
        except StoreDamaged as error:
            self._log.error("old rows of the audit are not removed", error=str(error), cure=error.cure)

    async def _is_ours(self) -> bool:
        return await self.node.hold(LEASE, self.node_id, HELD_FOR) is not None

    async def _some_sessions(self) -> None:
        roots, self._after = await self.retention.some_roots(self._after, ROOTS_AT_ONCE)
        removed = False
        for session in roots:
            removed |= await self.trim(session)
        if removed:
            await self.clear_files()

    async def trim(self, session: SessionId) -> bool:
        """Remove all that is old of a session. Return whether something was."""
        passed: int | None = 0
        removed = False
        while passed is not None:
            done = await self.retention.trim(session, self.keep, passed)
            passed = done.passed
            if done.rows:
                removed = True
                self.metrics.sweeps.labels(LEASE).inc(done.rows)
                await asyncio.sleep(REST_S)
        return removed

    async def clear_files(self) -> None:
        """Remove the files of turns that are gone."""
        named = await self.retention.lost_files()
        self._elsewhere &= {one.turn for one in named}
        lost = [one for one in named if one.turn not in self._elsewhere and await self._is_gone(one.turn)]
        if not lost:
            return
        here = await asyncio.to_thread(self.workspaces.remove_files, lost)
        done = [one.turn for one in lost if self.is_alone or one.turn in here]
        self._elsewhere |= {one.turn for one in lost} - set(done)
        await self.retention.forget_files(done)

    async def _is_gone(self, turn: TurnId) -> bool:
        try:
            await self.queries.turn(turn)
        except NotFound:
            return True
        return False
