"""Taking of sessions whose files are on a node that is away, with an empty workspace. Run by `app.daemon`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from gateway.domain.ids import NodeId, SessionId
from gateway.errors import DragomanError, StoreError
from gateway.ports import Homes
from gateway.system.gate import Gate
from gateway.system.logging_setup import log
from gateway.toolcalls.workspaces import Workspaces

LOOK_EVERY_S = 2.0
"""Seconds between two looks for homes that are away. The first message to such a session may wait for so long."""


@dataclass(slots=True, kw_only=True)
class HomeKeeper:
    """Taker of families of sessions that nobody else can run."""

    node: NodeId
    homes: Homes
    workspaces: Workspaces
    gate: Gate
    """Closed while this node takes no turns."""
    every_s: float = LOOK_EVERY_S
    _log: Any = field(default_factory=lambda: log("homes"))

    async def run(self) -> None:
        """Look every two seconds, until cancelled."""
        while True:
            await asyncio.sleep(self.every_s)
            if self.gate.is_open:
                await self.look()

    async def look(self) -> None:
        """Take the families whose home is away. One that cannot be taken is left for the next look."""
        try:
            for session in await self.homes.astray(self.node):
                await self._take(session)
        except StoreError as error:
            self._log.error("homes not looked at", error=str(error))
        except Exception:  # noqa: BLE001 - a sweep: the next look goes on with it (house rule 9)
            self._log.exception("homes not looked at")

    async def _take(self, session: SessionId) -> None:
        try:
            # Before it is ours nobody works in a folder of it here: what stands there is from an earlier time.
            aside = await asyncio.to_thread(self.workspaces.set_aside, session)
        except DragomanError as error:
            self._log.error("a session is left where it is", session=session, error=str(error))
            return
        if await self.homes.take_over(self.node, session):
            kept = "" if aside is None else str(aside)
            self._log.warning("took a session whose files are away", session=session, files_of_before=kept)
