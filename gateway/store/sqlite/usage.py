"""Books in SQLite: summaries of long histories, and what was spent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from gateway.domain.ids import Principal, SessionId, TurnId
from gateway.domain.steps import Usage
from gateway.domain.views import Spent
from gateway.store.sqlite.base import SqliteBase
from gateway.store.sqlite.rows import readable
from gateway.store.sqlite.tx import Tx, Values
from gateway.store.usage import NOTHING


class SqliteUsage(SqliteBase):
    """`ports.Books`."""

    async def compact(self, session: SessionId, epoch: int, through: TurnId, summary: str, spent: Spent | None) -> bool:
        """Store what stands for the beginning of a history, and what making it cost."""
        return await self.write(lambda tx: _compact(tx, session, epoch, through, summary, spent))

    async def spent(self, since: date) -> Sequence[Spent]:
        """What was spent since a day, the newest first."""
        return await self.read(lambda reader: readable(_spent_of, reader.run("spent", since.isoformat()), "day"))


def _compact(tx: Tx, session: SessionId, epoch: int, through: TurnId, summary: str, spent: Spent | None) -> bool:
    if spent is not None and spent.usage != NOTHING:
        add_spent(tx, spent)
    return tx.count("compact", session, epoch, through, summary) > 0


def add_spent(tx: Tx, spent: Spent) -> None:
    """Add to what this person's turns used of this model on this day."""
    usage = spent.usage
    tokens = (usage.input_tokens, usage.output_tokens, usage.cached_tokens)
    tx.run("add_spent", spent.day.isoformat(), spent.principal, spent.model, spent.answers, *tokens, usage.cost_micros)


def _spent_of(columns: Values) -> Spent:
    day, principal, model, answers, input_tokens, output_tokens, cached_tokens, cost_micros = columns
    usage = Usage(
        input_tokens=input_tokens, output_tokens=output_tokens, cached_tokens=cached_tokens, cost_micros=cost_micros
    )
    return Spent(day=date.fromisoformat(day), principal=Principal(principal), model=model, answers=answers, usage=usage)
