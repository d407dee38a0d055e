"""Rows of a store that one daemon had to itself, with the homes that its sessions get on a store of several nodes.

Used by `gateway.store.copying`. A lone daemon's rows name no homes: its own state folder has all files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from gateway.domain.ids import SessionId
from gateway.domain.turns import ENDED
from gateway.store.codec import dump_json, to_us
from gateway.store.columns import SESSIONS, TURNS
from gateway.store.kernel.nodes import PLACES, place_fact
from gateway.store.records import KINDS, Record, Snapshot, list_key

_NO_HOMES = dump_json([])
_ROOT, _HOMES = SESSIONS.names.index("root"), SESSIONS.names.index("homes")
_SESSION, _STATE, _HOME = (TURNS.names.index(name) for name in ("session", "state", "home"))
_FACTS = KINDS.index("fact")
_ENDED = frozenset(state.value for state in ENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFiles:
    """Folder of files of sessions, which a node will have."""

    home: str
    """Id of the place."""
    name: str
    """What people read for it until a node has it."""
    left_at: datetime
    """Time from which the other nodes wait for one that has it."""
    has: Callable[[SessionId], bool]
    """Whether files of this session are there."""


@dataclass(slots=True, kw_only=True)
class Homed:
    """A snapshot in which families without a home are at home where their files are."""

    snapshot: Snapshot
    files: KeptFiles
    settled: set[str] = field(default_factory=set[str])
    """Roots that got a home, once all records were read."""
    _families: dict[str, str] = field(default_factory=dict[str, str])
    """Root of each session of theirs."""

    @property
    def rev(self) -> int:
        """Return its last revision."""
        return self.snapshot.rev

    def records(self) -> Iterator[Record]:
        """Yield all rows. Sessions come before their turns, and parents before their children."""
        place = list_key((PLACES, self.files.home))
        waited_for = False
        for record in self.snapshot.records():
            if not waited_for and KINDS.index(record.kind) >= _FACTS and self.settled:
                waited_for = True
                yield self._place(place)
            match record.kind:
                case "session":
                    yield self._session(record)
                case "turn":
                    yield self._turn(record)
                case "fact" if waited_for and record.key == place:
                    pass
                case _:
                    yield record
        if self.settled and not waited_for:
            yield self._place(place)

    def _place(self, key: str) -> Record:
        """Return what makes the other nodes wait: without it they would take the sessions of a home nobody knows."""
        fact = place_fact(self.files.name, to_us(self.files.left_at), self.files.left_at)
        assert fact.until is not None, "a place is forgotten"
        return Record(kind="fact", key=key, values=[fact.value, to_us(fact.until)])

    def _session(self, record: Record) -> Record:
        root = record.values[_ROOT]
        if root is not None:
            if root in self.settled:
                self._families[record.key] = root
            return record
        if record.values[_HOMES] != _NO_HOMES or not self.files.has(SessionId(record.key)):
            return record
        self.settled.add(record.key)
        self._families[record.key] = record.key
        return _with(record, _HOMES, dump_json([self.files.home]))

    def _turn(self, record: Record) -> Record:
        at_home = record.values[_SESSION] in self._families and record.values[_STATE] not in _ENDED
        return _with(record, _HOME, self.files.home) if at_home else record


def _with(record: Record, at: int, value: Any) -> Record:
    values = list(record.values)
    values[at] = value
    return replace(record, values=values)
