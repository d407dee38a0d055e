"""Old rows of a session in Redis, for retention: its ended turns by their end, and what belongs to no turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.domain.ids import InboundId, SessionId, SlotId, TurnId
from gateway.store.kernel.rows import MessageRow, SlotRow
from gateway.store.redis import indexes
from gateway.store.redis.rows import MESSAGE, SLOT

if TYPE_CHECKING:
    from gateway.store.redis.source import RedisSource

PAGE = 100
"""Places read together."""
_MAY_BE_LOOSE = (f"{MESSAGE.name}:", f"{SLOT.name}:")
"""Key prefixes of rows that may belong to no turn."""


def ended_turns(source: RedisSource, session: SessionId, last: int, passed: int, limit: int) -> list[TurnId]:
    """Return ended turns of a session by epoch and end, but for the last ones and the first ones."""
    row = source.session_row(session)
    names = [] if row is None else [indexes.ended_in(session, epoch) for epoch in range(row.session.epoch + 1)]
    source.ask_together([("ZCARD", name) for name in names])
    sizes = [source.size(name) for name in names]
    left, found = max(0, min(limit, sum(sizes) - last - passed)), list[TurnId]()
    for name, size in zip(names, sizes, strict=True):
        if passed < size and left > len(found):
            found += [TurnId(one) for one in source.members(name, passed, passed + left - len(found) - 1)]
        passed = max(0, passed - size)
    return found


def loose_rows(
    source: RedisSource, session: SessionId, before: int, limit: int
) -> tuple[list[InboundId], list[SlotId]]:
    """Return the oldest messages and slots of a session that belong to no turn."""
    name, messages, slots, at = indexes.by_place(session), list[InboundId](), list[SlotId](), 0
    while len(messages) < limit and len(slots) < limit:
        keys = source.ask("ZRANGEBYSCORE", name, "-inf", f"({before}", "LIMIT", at, PAGE)
        rows = source.readable([key for key in keys if key.startswith(_MAY_BE_LOOSE)])
        messages += [row.received.id for row in rows if isinstance(row, MessageRow) and row.received.turn is None]
        slots += [row.slot.id for row in rows if isinstance(row, SlotRow) and row.slot.turn is None]
        at += PAGE
        if len(keys) < PAGE:
            break
    return messages[:limit], slots[:limit]
