"""Rows of one batch of transitions, and what a worker keeps of them for later ones.

A row counts as read with its stamp: the batch is written only when all of them are still stored. So a cached row that
another node has changed since, or a row wrongly taken for absent, costs one more run and no more.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, TypeAlias

from gateway.domain.slots import SlotState
from gateway.domain.steps import StepState
from gateway.domain.text import one_line
from gateway.domain.turns import ENDED
from gateway.errors import RowDamaged
from gateway.store.codec import dump_conversation
from gateway.store.kernel.rows import MessageRow, SlotRow, StepRow, TurnRow
from gateway.store.redis.long_queues import Section
from gateway.store.redis.rows import EVENT, SESSION, SLOT, UNNUMBERED, BareRow, kind_of

Question: TypeAlias = tuple[str | int, ...]
"""Command on a sorted set: its name, the set, and the rest."""

UNSENT = frozenset({SlotState.DUE, SlotState.SENDING})
ROWS_KEPT, SIZE_KEPT = 5_000, 8_000_000
"""Maximum kept rows, and characters of their values."""
SMALL = 2_000
"""Characters of a stored value that a commit reads as a whole to compare its beginning, together with others."""
HISTORIES_KEPT = 500
"""Maximum kept histories: ids of their last turns."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A row as it is stored."""

    row: Any
    """None: there is none."""
    stamp: str = ""
    """Prefix of its value that names its version; empty when there is none."""
    size: int = 0
    """Characters of its value."""
    sections: tuple[Section, ...] = ()
    """Sections of a session's queue."""
    damage: str = ""
    """Why its value cannot be read; then there is no row here. Empty for a readable one."""
    bare: BareRow | None = None
    """The damaged row without its payloads, as far as that can be read."""

    @property
    def at_least(self) -> Any:
        """The row, or what can be read of it."""
        return self.row if self.bare is None else self.bare.row


ABSENT = Stored(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The last ended turns of a session. The session's row has another stamp after each further one."""

    epoch: int
    after: int
    limit: int
    turns: tuple[str, ...]
    stamp: str = ""

    def is_of(self, other: History) -> bool:
        """Return whether both answer one question."""
        return (self.epoch, self.after, self.limit) == (other.epoch, other.after, other.limit)


class BatchCache:
    """Rows that were loaded or written last, and histories. Another node may change any: a commit finds out."""

    def __init__(self) -> None:
        """Start empty."""
        self.rows: dict[str, Stored] = {}
        self.histories: dict[str, History] = {}
        """Cached histories by the key of their session."""
        self._size = 0

    def put(self, key: str, stored: Stored) -> None:
        """Keep a row, in place of an older version of it."""
        self.drop(key)
        if stored.row is not None:
            self.rows[key] = stored
            self._size += stored.size

    def drop(self, key: str) -> None:
        """Forget a row."""
        if (before := self.rows.pop(key, None)) is not None:
            self._size -= before.size

    def trim(self) -> None:
        """Forget what was kept for the longest."""
        while len(self.rows) > ROWS_KEPT or self._size > SIZE_KEPT:
            self.drop(next(iter(self.rows)))
        while len(self.histories) > HISTORIES_KEPT:
            self.histories.pop(next(iter(self.histories)))

    def take_in(self, batch: Batch, stamp: int) -> None:
        """Cache the rows of a batch under the number of its commit."""
        self._take_histories(batch, stamp)
        for key in batch.folded:
            self.drop(key)
        for key, row in batch.changed.items():
            if row is None or key.startswith(f"{EVENT.name}:") or key in batch.damaged:
                self.drop(key)
            else:
                sections = batch.sections.get(key, ())
                self.put(key, Stored(kind_of(key).numbered(row, stamp), f"{stamp} ", batch.sizes[key], sections))

    def _take_histories(self, batch: Batch, stamp: int) -> None:
        """Keep the histories that a batch asked for, and those of sessions that it changed."""
        sessions = {key for key in batch.changed if key.startswith(f"{SESSION.name}:")}
        for key in sessions | batch.histories.keys():
            known = batch.histories.get(key) or self.histories.get(key)
            self.histories.pop(key, None)
            if known is None or (key not in batch.histories and known.stamp != batch.read.get(key)):
                continue
            ended = [row.turn.id for row in batch.ended_in(key.partition(":")[2], known.epoch)]
            turns = (*(one for one in known.turns if one not in ended), *ended)[-known.limit :]
            now = f"{stamp} " if key in sessions else batch.read.get(key, "")
            self.histories[key] = replace(known, turns=turns, stamp=now)


@dataclass(slots=True)
class Batch:
    """Rows, answers and changes of one batch of transitions."""

    kept: BatchCache
    """Rows left by earlier batches; another node may have changed one since."""
    certain: frozenset[str] = frozenset()
    """Rows that must be read: another run took them for absent, and they were not."""
    loaded: dict[str, Stored] = field(default_factory=dict[str, Stored])
    damaged: set[str] = field(default_factory=set[str])
    """Loaded rows that cannot be read whole."""
    guessed: set[str] = field(default_factory=set[str])
    """Rows taken for absent without a read."""
    answers: dict[Question, Any] = field(default_factory=dict[Question, Any])
    histories: dict[str, History] = field(default_factory=dict[str, History])
    """Histories that were asked for, by the key of their session."""
    read: dict[str, str] = field(default_factory=dict[str, str])
    """Stamps of the rows that were read."""
    alone: dict[str, int] = field(default_factory=dict[str, int])
    """Conversations, as text, that must have so many unsent slots."""
    changed: dict[str, Any] = field(default_factory=dict[str, Any])
    """Changed rows; None for a removed one."""
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    """Characters of the changed rows, once they are written."""
    sections: dict[str, tuple[Section, ...]] = field(default_factory=dict[str, tuple[Section, ...]])
    """Sections of the queues of changed sessions that have some, by the key of the session."""
    folded: dict[str, str] = field(default_factory=dict[str, str])
    """Pointers in the place of rows that this batch folds."""
    commands: list[tuple[str | int, ...]] = field(default_factory=list[tuple[str | int, ...]])
    """Further commands, which write no rows."""
    loads: int = 0
    """Times that rows were loaded. Rows of one load are of one moment."""

    def known(self, key: str) -> Stored | None:
        """Return a row as it was stored when it was read, if it is loaded."""
        return self.loaded.get(key) or self.kept.rows.get(key)

    def is_known(self, key: str) -> bool:
        """Return whether a row needs no load."""
        return key in self.changed or key in self.loaded or key in self.kept.rows

    def take_for_absent(self, key: str) -> None:
        """Take an unread row for absent: the commit compares it like any other."""
        if not self.is_known(key) and key not in self.certain:
            self.loaded[key] = ABSENT
            self.guessed.add(key)

    def get(self, key: str) -> Any:
        """Return a row that is loaded; None when there is none. Raises `RowDamaged` for a damaged one."""
        row = self.get_readable(key)
        if row is None and (damage := self.damage_of(key)):
            raise RowDamaged(f"The row {one_line(key, 100)} in Redis cannot be read ({damage}).")
        return row

    def get_bare(self, key: str) -> Any:
        """Return a row like `get_readable`; of a damaged one what can be read: a transition must be able to end it."""
        row = self.get_readable(key)
        is_damaged = key in self.damaged and key not in self.changed
        return (self.known(key) or ABSENT).at_least if is_damaged else row

    def get_readable(self, key: str) -> Any:
        """Return a row that is loaded; None when there is none, or a damaged one."""
        if key in self.changed:
            return self.changed[key]
        stored = self.known(key)
        assert stored is not None, "it is loaded"
        self.read[key] = stored.stamp
        return stored.row

    def damage_of(self, key: str) -> str:
        """Return why a loaded row cannot be read; empty for a readable or changed one."""
        return "" if key in self.changed else (self.known(key) or ABSENT).damage

    def before(self, key: str) -> Any:
        """Return the stored row that a change replaces. A row that nobody read is new, and must be so."""
        stored = self.known(key) or ABSENT
        self.read.setdefault(key, stored.stamp)
        return stored.at_least

    def is_large(self, key: str) -> bool:
        """Return whether the stored value of a row is better not read as a whole."""
        return (self.known(key) or ABSENT).size > SMALL

    def trust_ended(self, before: Collection[str]) -> None:
        """Do not compare rows that were read since `before` and that nobody changes any more: a history has many."""
        for key in [key for key in self.read if key not in before]:
            stored = self.known(key)
            if key not in self.changed and stored is not None and _has_ended(stored.row):
                del self.read[key]

    def ended_in(self, session: str, epoch: int) -> list[TurnRow]:
        """Return the turns of a history that this batch ended, in the order of their ends."""
        rows = [row for row in self.changed.values() if isinstance(row, TurnRow)]
        mine = [row for row in rows if (row.turn.session, row.turn.epoch) == (session, epoch)]
        ended = [(row.ended_rev, row) for row in mine if row.ended_rev is not None and row.ended_rev > UNNUMBERED]
        return [row for _, row in sorted(ended, key=itemgetter(0))]

    def conditions(self) -> tuple[dict[str, str], dict[str, int]]:
        """Return the conditions for writing this batch, so far."""
        return dict(self.read), dict(self.alone)

    def restore(self, conditions: tuple[dict[str, str], dict[str, int]]) -> None:
        """Forget the conditions of a transition that was given up."""
        self.read, self.alone = conditions

    def unsent(self) -> dict[str, list[SlotRow]]:
        """Return the unsent slots that this batch changed, by conversation."""
        lanes: dict[str, list[SlotRow]] = {}
        for row in self.changed.values():
            if isinstance(row, SlotRow) and row.slot.state in UNSENT:
                lanes.setdefault(dump_conversation(row.slot.conversation), []).append(row)
        return lanes

    def was_sending(self, row: SlotRow) -> bool:
        """Return whether a slot that this batch changed was being sent before."""
        stored = self.known(SLOT.key(row.slot.id))
        return stored is not None and stored.row is not None and stored.row.sending_since is not None

    def must_be_alone(self, where: str) -> None:
        """Let this batch be written only when a conversation has no unsent slots but those that it changed."""
        changed = [(self.known(key), row) for key, row in self.changed.items() if isinstance(row, SlotRow)]
        before = [known.row for known, row in changed if known and dump_conversation(row.slot.conversation) == where]
        self.alone[where] = sum(row is not None and row.slot.state in UNSENT for row in before)

    @property
    def is_of_one_moment(self) -> bool:
        """Return whether no other node can have come between the reads."""
        are_loaded = all(key in self.loaded and key not in self.guessed for key in self.read)
        return self.loads <= 1 and are_loaded and not self.alone


def _has_ended(row: object) -> bool:
    match row:
        case TurnRow():
            return row.turn.state in ENDED
        case StepRow():
            return row.step.state is StepState.FINISHED
        case MessageRow():
            return row.received.given is not None
        case _:
            return False
