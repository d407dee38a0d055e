"""What a transition of the SQLite store works with: named statements, the time, revisions, and who has to be woken."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gateway.model.ids import SessionId, TurnId
from gateway.model.live import (
    SESSIONS,
    SLOTS,
    TURNS,
    Changed,
    SlotsDue,
    TurnsDue,
    TurnWoken,
    session_topic,
    turn_topic,
)
from gateway.ports import Live
from gateway.store.codec import from_us, storable

Values = tuple[Any, ...]


class Reader:
    """Statements by name on one connection."""

    def __init__(self, db: sqlite3.Connection, sql: Mapping[str, str], now: int) -> None:
        """Take the connection, the statements and the time in microseconds."""
        self.now = now
        self.db = db
        self._sql = sql

    def run(self, name: str, *values: Any) -> list[Values]:
        """Run a statement and return its rows."""
        try:
            return self.db.execute(self._sql[name], values).fetchall()
        except UnicodeEncodeError:
            clean = tuple(storable(value) if isinstance(value, str) else value for value in values)
            return self.db.execute(self._sql[name], clean).fetchall()

    def one(self, name: str, *values: Any) -> Values | None:
        """Run a statement that gives one row at most."""
        rows = self.run(name, *values)
        return rows[0] if rows else None

    def count(self, name: str, *values: Any) -> int:
        """Run a statement that writes and return how many rows it changed."""
        try:
            return self.db.execute(self._sql[name], values).rowcount
        except UnicodeEncodeError:
            clean = tuple(storable(value) if isinstance(value, str) else value for value in values)
            return self.db.execute(self._sql[name], clean).rowcount


@dataclass(slots=True)
class Touched:
    """What a transition changed, for the wake-ups after it."""

    sessions: set[SessionId] = field(default_factory=set[SessionId])
    turns: set[TurnId] = field(default_factory=set[TurnId])
    turns_due: bool = False
    slots_due: bool = False

    def publish(self, live: Live) -> None:
        """Wake whoever must know. Called in the event loop, after the commit."""
        for session in self.sessions:
            changed = Changed(session=session)
            live.publish(session_topic(session), changed)
            live.publish(SESSIONS, changed)
        for turn in self.turns:
            live.publish(turn_topic(turn), TurnWoken(turn=turn))
        if self.turns_due:
            live.publish(TURNS, TurnsDue())
        if self.slots_due:
            live.publish(SLOTS, SlotsDue())


class Tx(Reader):
    """One transition. Used by one function, within one savepoint."""

    def __init__(self, db: sqlite3.Connection, sql: Mapping[str, str], now: int, rev: int) -> None:
        """Start at the store's last revision."""
        super().__init__(db, sql, now)
        self.rev = rev
        self.touched = Touched()

    @property
    def moment(self) -> datetime:
        """The time of the transition."""
        return from_us(self.now)

    def next_rev(self, session: SessionId) -> int:
        """Return the revision for a changed row of a session."""
        self.rev += 1
        self.touched.sessions.add(session)
        return self.rev
