"""Notes in memory: small facts by room."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from gateway.store.memory.turn_ops import TurnOps


class MemoryKeyValue(TurnOps):
    """`ports.Notes`."""

    async def note(self, room: str, key: str, value: str, ttl: timedelta | None = None) -> None:
        """Store a small fact; forget the room's expired ones."""
        with self.transition() as now:
            self.rooms[room] = self._lasting(room, now) | {key: (value, None if ttl is None else now + ttl)}

    async def notes(self, room: str) -> Mapping[str, str]:
        """The facts of a room."""
        found = self._lasting(room, self.clock.now())
        return {key: found[key][0] for key in sorted(found)}

    def _lasting(self, room: str, now: datetime) -> dict[str, tuple[str, datetime | None]]:
        facts = self.rooms.get(room, {}).items()
        return {key: (value, until) for key, (value, until) in facts if until is None or until > now}
