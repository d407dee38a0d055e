"""Takeover of sessions whose home is away: notify their chats, then continue here with an empty workspace.

Run by `app.daemon`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from gateway.app.core import Core
from gateway.domain.ids import NodeId, SessionId
from gateway.domain.nodes import LIVES_FOR, Role
from gateway.domain.turns import NamedLease
from gateway.errors import DragomanError
from gateway.ports import Homes, Node
from gateway.system.gate import Gate
from gateway.system.logging_setup import log
from gateway.toolcalls.workspaces import Workspaces

HOLD_FOR = timedelta(seconds=60)
"""Time for which a node that takes a family keeps the others of its place from the same."""
LATE_TIMES = 3
"""Multiple of the interval after which a check counts as stuck in an outage of the store."""
LOOK_EVERY_S = 2.0
"""Interval in seconds between checks for homes that are away; the first message to one may wait that long."""


@dataclass(slots=True, kw_only=True)
class HomeKeeper:
    """Takeover of families of sessions whose home is away, and the notices until then."""

    node: NodeId
    homes: Homes
    leases: Node
    workspaces: Workspaces
    gate: Gate
    """Closed while this node takes no turns."""
    every_s: float = LOOK_EVERY_S
    heard_for_s: float = 0.0
    """Seconds without an outage of the store before another node is missed: none could say that it lives."""
    _looked_at: float = -math.inf
    _hears_since: float = 0.0
    """Start of the uninterrupted series of checks, in seconds of the loop's clock."""
    _log: Any = field(default_factory=lambda: log("homes"))

    async def run(self) -> None:
        """Look every two seconds, until cancelled."""
        while True:
            await asyncio.sleep(self.every_s)
            await self.look()

    async def look(self) -> None:
        """Tell waiting chats which home is missing, then take over families whose home is away, where this node may.

        A family that cannot be taken over is left for the next check.
        """
        with self._left_for_later("homes not checked"):
            if self._hears():
                await self.homes.say_awaited(self.node)
            if self.gate.is_open and (astray := await self.homes.astray(self.node)):
                await self._take_all(astray)

    def _hears(self) -> bool:
        """Return whether the store answered for long enough. A check that fails there takes longer than others."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_at > LATE_TIMES * self.every_s:
            self._hears_since = now
        self._looked_at = now
        return now - self._hears_since >= self.heard_for_s

    async def _take_all(self, sessions: Sequence[SessionId]) -> None:
        """Take these families, while no other node of this place does: both would rename the same folders."""
        for session in sessions:
            if await self._hold(HOLD_FOR) is None:
                return
            with self._left_for_later("a session is left where it is", session=session):
                await self._take(session)
        await self._hold(timedelta(0))

    @contextmanager
    def _left_for_later(self, event: str, **about: str) -> Generator[None]:
        """Log what fails. No failed check and no family ends the daemon, or blocks the families behind it."""
        try:
            yield
        except DragomanError as error:
            self._log.error(event, error=str(error), **about)
        except Exception:  # noqa: BLE001 - a sweep: logged, and tried again at the next look (house rule 9)
            self._log.exception(event, **about)

    async def _hold(self, ttl: timedelta) -> NamedLease | None:
        return await self.leases.hold(f"homes/{self.workspaces.home()}", self.node, ttl)

    async def _take(self, session: SessionId) -> None:
        places = await self.homes.places_of(session)
        if not places or places[0].home == self.workspaces.home():
            return  # another node of this place took it since: its turns work in the folder
        # Before it is ours nobody works in a folder of it here: what stands there is from an earlier time.
        aside = await asyncio.to_thread(self.workspaces.set_aside, session)
        if await self.homes.take_over(self.node, session):
            kept = "" if aside is None else str(aside)
            self._log.warning("took a session whose files are away", session=session, files_of_before=kept)


def make_home_keeper(core: Core) -> HomeKeeper:
    """Wire the taking of sessions whose files are away."""
    return HomeKeeper(
        node=core.node,
        homes=core.store,
        leases=core.store,
        workspaces=core.workspaces,
        gate=core.gates[Role.WORKER],
        heard_for_s=min(core.loaded.settings.cluster.home_away_after / 2, LIVES_FOR).total_seconds(),
    )
