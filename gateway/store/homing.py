"""Rows of a store as they go to a store of several nodes: without its members, and with the homes of its sessions.

Used by `gateway.store.copying`. A lone daemon's rows name no homes: its own state folder has all files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from gateway.domain.ids import SessionId
from gateway.domain.turns import ENDED
from gateway.store.codec import dump_json, load_json, to_us
from gateway.store.columns import SESSIONS, TURNS
from gateway.store.kernel.nodes import MEMBERS, PLACES, place_fact
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
    """Display name until a node has the place."""
    has: Callable[[SessionId], bool]
    """True if files of this session are there."""


@dataclass(slots=True, kw_only=True)
class Homed:
    """A snapshot for several nodes, in which every family is at home where its files are.

    Its members are those of the source: none of them is one of the copy. Each home counts as left on purpose just now,
    so that the nodes that start first wait for the others.
    """

    snapshot: Snapshot
    moved_at: datetime
    """Time from which the nodes wait for those that have the files."""
    files: KeptFiles | None = None
    """Place that may hold files of families without a home."""
    settled: set[str] = field(default_factory=set[str])
    """Roots that got a home, once all records were read."""
    homes: set[str] = field(default_factory=set[str])
    """Names of nodes whose places the source knew, once all records were read."""
    _families: dict[str, str] = field(default_factory=dict[str, str])
    """Root of each session of theirs."""

    @property
    def rev(self) -> int:
        """Return its last revision."""
        return self.snapshot.rev

    def records(self) -> Iterator[Record]:
        """Yield all rows. Sessions come before their turns, parents before their children, and facts behind both."""
        before_facts = True
        for record in self.snapshot.records():
            if before_facts and KINDS.index(record.kind) >= _FACTS:
                before_facts = False
                yield from self._own_place()
            match record.kind:
                case "session":
                    yield self._session(record)
                case "turn":
                    yield self._turn(record)
                case "fact":
                    yield from self._fact(record)
                case _:
                    yield record
        if before_facts:
            yield from self._own_place()

    def _own_place(self) -> Iterator[Record]:
        if self.files is not None and self.settled:
            yield self._place(list_key((PLACES, self.files.home)), self.files.name)

    def _fact(self, record: Record) -> Iterator[Record]:
        namespace, key = load_json(record.key)
        if namespace == PLACES:
            if self.files is None or not self.settled or key != self.files.home:
                self.homes.add(name := load_json(record.values[0])["name"])
                yield self._place(record.key, name)
        elif namespace != MEMBERS:
            yield record

    def _place(self, key: str, name: str) -> Record:
        """Return the fact for which other nodes wait: else they would take the sessions of an unknown home."""
        fact = place_fact(name, to_us(self.moved_at), self.moved_at)
        assert fact.until is not None, "a place is forgotten"
        return Record(kind="fact", key=key, values=[fact.value, to_us(fact.until)])

    def _session(self, record: Record) -> Record:
        root = record.values[_ROOT]
        if root is not None:
            if root in self.settled:
                self._families[record.key] = root
            return record
        files = self.files
        if files is None or record.values[_HOMES] != _NO_HOMES or not files.has(SessionId(record.key)):
            return record
        self.settled.add(record.key)
        self._families[record.key] = record.key
        return _with(record, _HOMES, dump_json([files.home]))

    def _turn(self, record: Record) -> Record:
        if self.files is None or record.values[_SESSION] not in self._families or record.values[_STATE] in _ENDED:
            return record
        return _with(record, _HOME, self.files.home)


def _with(record: Record, at: int, value: Any) -> Record:
    values = list(record.values)
    values[at] = value
    return replace(record, values=values)
