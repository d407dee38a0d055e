"""Indexes of the SQLite store for the kernel: rows that time or a free place makes due. Base of `source`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gateway.domain.ids import GrantId, InboundId, NodeId, SessionId, SlotId, TurnId, WaitId
from gateway.domain.turns import COMMANDS_AT_ONCE
from gateway.store.codec import to_us
from gateway.store.constants import AT_ONCE
from gateway.store.kernel.part import AccountKey
from gateway.store.kernel.rows import FILE_SENDING_AT_MOST, SENDING_AT_MOST
from gateway.store.sqlite.queries import claimable
from gateway.store.sqlite.tx import Tx


class SqliteIndex:
    """`kernel.part.Index` over one transaction at a time."""

    tx: Tx

    def ready_turns(self, now: datetime, limit: int, home: str = "") -> Sequence[TurnId]:
        """Return queued turns that may run there, the longest waiting first."""
        return self._ids("ready_turns", to_us(now), COMMANDS_AT_ONCE, limit, home)

    def turns_at(self, home: str, limit: int) -> Sequence[TurnId]:
        """Return turns of a home that have not ended."""
        return self._ids("turns_of_home", home, limit)

    def homes_at_work(self) -> Sequence[str]:
        """Return the homes of turns that have not ended."""
        return self._ids("homes_at_work")

    def held_turns(self, lapsed: datetime | None = None) -> Sequence[tuple[TurnId, NodeId]]:
        """Return leased turns with their holders."""
        if lapsed is None:
            return [(turn, node) for turn, node in self.tx.run("held_turns")]
        return [(turn, node) for turn, node in self.tx.run("lapsed_turns", to_us(lapsed), AT_ONCE)]

    def gathering_turns(self) -> Sequence[TurnId]:
        """Return new turns that wait, or waited, for the rest of a message."""
        return self._ids("gathering_turns")

    def orphans(self, limit: int) -> Sequence[SessionId]:
        """Return live children whose waiting turn has ended and that nobody stopped."""
        return self._ids("orphans", limit)

    def expired_waits(self, now: datetime, unused_since: datetime, limit: int) -> Sequence[WaitId]:
        """Return open waits past their time, and decided ones that nobody uses since before then."""
        return self._ids("expired_waits", to_us(now), to_us(unused_since), limit)

    def due_timers(self, now: datetime, limit: int) -> Sequence[WaitId]:
        """Return open timers past their time."""
        return self._ids("due_timers", to_us(now), limit)

    def asked_waits(self) -> Sequence[WaitId]:
        """Return all open approvals."""
        return self._ids("asked_waits")

    def open_questions(self) -> Sequence[WaitId]:
        """Return all open questions."""
        return self._ids("open_questions")

    def claimable_slots(
        self, now: datetime, channels: Sequence[str], limit: int, without: Sequence[AccountKey] = ()
    ) -> Sequence[SlotId]:
        """Return slots that may be sent, refusals last."""
        return claimable(self.tx, channels, to_us(now), limit, without)

    def sending_slots(self, lapsed: datetime | None = None) -> Sequence[tuple[SlotId, NodeId]]:
        """Return slots being sent with their senders."""
        if lapsed is None:
            return [(slot, node) for slot, node in self.tx.run("sending_slots")]
        long_ago = [to_us(lapsed - at_most) for at_most in (SENDING_AT_MOST, FILE_SENDING_AT_MOST)]
        return [(slot, node) for slot, node in self.tx.run("lapsed_slots", *long_ago, AT_ONCE)]

    def expired_grants(self, now: datetime, limit: int) -> Sequence[GrantId]:
        """Return grants past their time that did not end yet."""
        return self._ids("expired_grants", to_us(now), limit)

    def ended_turns(self, session: SessionId, last: int, passed: int, limit: int) -> Sequence[TurnId]:
        """Return ended turns of a session by epoch and end, but for the last ones and the first ones."""
        key = session, passed, limit
        return self._ids("old_turns_but", *key, last) if last else self._ids("old_turns", *key)

    def loose_rows(self, session: SessionId, before: int, limit: int) -> tuple[Sequence[InboundId], Sequence[SlotId]]:
        """Return the oldest messages and slots of a session that belong to no turn."""
        key = session, before, limit
        return self._ids("loose_messages", *key), self._ids("loose_slots", *key)

    def grants_from(self, wait: WaitId) -> Sequence[GrantId]:
        """Return the grants that this approval gave."""
        return self._ids("grants_from", wait)

    def doubtful_slots(self, now: datetime, limit: int) -> Sequence[SlotId]:
        """Return slots that an edit settled by now may have overwritten."""
        return self._ids("slots_again", to_us(now), limit)

    def _ids(self, name: str, *values: Any) -> list[Any]:
        return [id_ for (id_,) in self.tx.run(name, *values)]
