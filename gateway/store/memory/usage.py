"""Books in memory: summaries of long histories, and what was spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from gateway.domain.ids import SessionId, TurnId
from gateway.domain.views import Spent
from gateway.store.memory.turn_ops import TurnOps
from gateway.store.usage import NOTHING


class MemoryUsage(TurnOps):
    """`ports.Books`."""

    async def compact(self, session: SessionId, epoch: int, through: TurnId, summary: str, spent: Spent | None) -> bool:
        """Store what stands for the beginning of a history, and what making it cost."""
        with self.transition():
            if spent is not None and spent.usage != NOTHING:
                self.add_spent(spent)
            row, ended = self.all_sessions.get(session), self.ended.get(session, [])
            place = next((n for n, one in enumerate(ended, 1) if one.turn.id == through and one.turn.epoch == epoch), 0)
            if row is None or row.session.epoch != epoch or place <= row.summed_up:
                return False
            row.session, row.summed_up = replace(row.session, summary=summary), place
            return True

    async def spent(self, since: date) -> Sequence[Spent]:
        """What was spent since a day, the newest first."""
        found = [one for one in self.books.values() if one.day >= since]
        found.sort(key=lambda one: (one.principal, one.model))
        return sorted(found, key=lambda one: one.day, reverse=True)
