"""Changes of a batch as the arguments of the commit script."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from gateway.domain.audit import AuditHead
from gateway.domain.ids import TurnId
from gateway.store.answer_rules import together
from gateway.store.codec import EPOCH, dump_conversation, dump_json, storable, to_us
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import SessionRow
from gateway.store.redis.batch import ABSENT, Batch
from gateway.store.redis.indexes import Place, places_of, places_of_fact, unsent_in
from gateway.store.redis.life import Head
from gateway.store.redis.long_queues import LONG, STAYS, Section, dumped, laid_out, section_key
from gateway.store.redis.rows import AUDIT, AUDIT_HEAD, EVENT, FACT, KINDS, NEW, SPENT, TURN, UNNUMBERED, kind_of
from gateway.store.redis.source import HEAD, RedisSource

Word: TypeAlias = str | int | bytes

COPYING, CHANGED = "copying", "copying:changed"
"""Keys of a copy under way: its name, and rows that changed since it read them."""
EVENTS_KEPT = timedelta(days=15)
"""Lifetime of an event's deduplication key; platforms repeat an event within days."""
POISON_KEPT = 10_000
"""Approximate number of refused events kept for inspection."""
WORDS_AT_ONCE = 2_000
"""Members, or scores and members, of one command."""
FORGOTTEN_AT_ONCE = 500
"""Expired facts that one transition deletes."""
_TABLES = {
    "session": "sessions",
    "turn": "turns",
    "message": "messages",
    "step": "steps",
    "wait": "waits",
    "slot": "slots",
    "cards": "cards",
    "event": "events",
    "fact": "facts",
    "grant": "grants",
}
"""Table of a part for each kind of row."""


@dataclass(slots=True)
class Writes:
    """Everything that a batch writes beside its rows."""

    commands: list[tuple[Word, ...]] = field(default_factory=list[tuple[Word, ...]])
    freed: set[str] = field(default_factory=set[str])


def take_in(part: Part, source: RedisSource, writes: Writes) -> None:
    """Add the changes of a transition to its batch. Raises `Missing`, and then has changed nothing."""
    new: dict[str, Any] = {}
    for kind, table in _TABLES.items():
        for key, row in getattr(part, table).changed.items():
            new[KINDS[kind].key(key)] = row
    for spent in part.spent:
        key = SPENT.key((spent.day, spent.principal, spent.model))
        known = new.get(key) or source.named([key])[0]
        new[key] = spent if known is None else together(known, spent)
    if part.forgets_expired:
        new |= {key: None for key in source.expired_facts(part.now, FORGOTTEN_AT_ONCE) if key not in new}
    for row in part.audit:
        new[AUDIT.key(row.seq)] = row
        new[AUDIT_HEAD.key(HEAD)] = AuditHead(since=EPOCH, seq=row.seq, hash=row.hash)
    new |= {AUDIT.key(seq): None for seq in part.audit_removed}
    source.batch.changed |= new
    writes.commands += source.batch.commands
    source.batch.commands = []
    for event, raw, why in part.poison:
        words = ("event", storable(dump_json(list(event))), "raw", storable(raw), "why", storable(why))
        writes.commands.append(("XADD", "poison", "MAXLEN", "~", POISON_KEPT, "*", *words, "at", to_us(part.now)))
    writes.freed |= {dump_conversation(place) for place in part.freed}


@dataclass(slots=True)
class Lists:
    """Lists of the commit script."""

    prefix: str
    number: int
    """Probable number of the commit."""
    rows: list[Word] = field(default_factory=list[Word])
    fading: list[Word] = field(default_factory=list[Word])
    removed: list[Word] = field(default_factory=list[Word])
    places: dict[str, list[Word]] = field(default_factory=dict[str, list[Word]])
    """Scores that count from the number of the commit, each with its member, by sorted set."""
    scores: dict[str, list[Word]] = field(default_factory=dict[str, list[Word]])
    """Scores that do not, in the same form."""
    left: dict[str, list[Word]] = field(default_factory=dict[str, list[Word]])
    """Members that leave, by sorted set."""
    of_queues: list[tuple[Word, ...]] = field(default_factory=list[tuple[Word, ...]])
    """Commands that store and forget sections of queues."""
    made: int = 0
    """Rows that were given a place once, in the order in which they were made."""

    def put(self, key: str, row: Any, batch: Batch) -> int:
        """Add a row. Return its characters, with about those that stand elsewhere."""
        elsewhere = 0
        if isinstance(row, SessionRow) and (queue := self._queue(key, row.turns, batch)):
            name, text = self.prefix + key, dumped(row, queue)
            elsewhere = (len(row.turns) - len(queue)) * len(row.turns[0])
        else:
            name, text = self.prefix + key, kind_of(key).dump(row, (batch.known(key) or ABSENT).bare)
        if key.startswith(f"{EVENT.name}:"):
            self.fading += (name, f"{self.number} {text}", int(EVENTS_KEPT.total_seconds()))
        else:
            self.rows += (name, f"{self.number} {text}")
        return len(text) + elsewhere

    def _queue(self, key: str, turns: tuple[TurnId, ...], batch: Batch) -> tuple[TurnId, ...] | None:
        """Store a session's queue in sections. Return the content of its row; None when that is the queue."""
        before = (batch.known(key) or ABSENT).sections
        if len(turns) <= LONG and not before:
            return None
        words, sections = laid_out(turns, before)
        batch.sections[key], known = sections, {one.name for one in before}
        for one in sections:
            if one.name not in known:
                self.of_queues.append(("SET", f"{self.prefix}{section_key(one.name)}", " ".join(one.turns)))
        self.forget(before, sections)
        return words if sections else None

    def forget(self, before: Sequence[Section], now: Sequence[Section] = ()) -> None:
        """Let sections that are in no row any more fade."""
        names = {one.name for one in now}
        for one in before:
            if one.name not in names:
                key = f"{self.prefix}{section_key(one.name)}"
                self.of_queues.append(("EXPIRE", key, int(STAYS.total_seconds())))

    def move(self, was: Mapping[Place, int], is_: Mapping[Place, int]) -> None:
        """Move a row from its places in the sorted sets to new ones."""
        for name, member in was.keys() - is_.keys():
            self.left.setdefault(self.prefix + name, []).append(member)
        for place, score in is_.items():
            name, member = self.prefix + place[0], place[1]
            if was.get(place) == score:
                continue
            if score == NEW:
                self.made += 1
                self.places.setdefault(name, []).extend((self.number + self.made, member))
            elif score > UNNUMBERED:
                self.places.setdefault(name, []).extend((self.number + score - UNNUMBERED, member))
            else:
                self.scores.setdefault(name, []).extend((score, member))

    def commands(self) -> Iterator[tuple[Word, ...]]:
        """Yield the changes of sorted sets that need no number of the commit, and those of queues."""
        yield from _each("ZREM", self.left)
        yield from _each("ZADD", self.scores)
        yield from self.of_queues

    def numbered(self) -> Iterator[tuple[Word, ...]]:
        """Yield a sorted set, and scores that count from the number of the commit with their members."""
        for name, words in self.places.items():
            for start in range(0, len(words), WORDS_AT_ONCE):
                yield name, *words[start : start + WORDS_AT_ONCE]


def arguments(batch: Batch, writes: Writes, head: Head, prefix: str, event: tuple[str, str]) -> list[Word]:
    """Return the arguments of the commit script. `event`: channel and message for freed conversations."""
    lists = Lists(prefix, head.told)
    for key, pointer in batch.folded.items():
        lists.rows += (prefix + key, f"{head.told} {pointer}")
    for key, row in batch.changed.items():
        is_blind = key.startswith(f"{FACT.name}:") and key not in batch.read
        before = None if is_blind else batch.before(key)
        if row is None:
            lists.removed.append(prefix + key)
            lists.forget((batch.known(key) or ABSENT).sections)
            if key.startswith(f"{TURN.name}:"):
                lists.removed.append(f"{prefix}fold:{key.partition(':')[2]}")
        else:
            batch.sizes[key] = lists.put(key, row, batch)
        was = places_of_fact(key, (batch.known(key) or ABSENT).row) if is_blind else places_of(key, before)
        lists.move(was, places_of(key, row))
    large = [key for key in batch.read if batch.is_large(key)]
    small = [key for key in batch.read if key not in large] if large else list(batch.read)
    others = ((words[0], f"{prefix}{words[1]}", *words[2:]) for words in writes.commands)
    places, commands = list(lists.numbered()), [*others, *lists.commands()]
    counts = (
        *(len(small), len(large), len(batch.alone)),
        *(len(lists.rows) // 2, len(lists.fading) // 3, len(lists.removed)),
        *(len(places), len(commands), len(writes.freed)),
    )
    lengths = [*(len(words) // 2 for words in places), *(len(words) for words in commands)]
    return [
        head.life,
        head.lane,
        struct.pack("<4d10I", head.number, head.needs, head.told, head.left, head.asks_time, *counts),
        struct.pack(f"<{len(lengths)}H", *lengths),
        *(prefix + key for key in small),
        *(batch.read[key] for key in small),
        *(word for key in large for word in (prefix + key, batch.read[key])),
        *(word for where, count in batch.alone.items() for word in (f"{prefix}{unsent_in(where)}", count)),
        *lists.rows,
        *lists.fading,
        *lists.removed,
        *(word for words in (*places, *commands) for word in words),
        *(f"{prefix}{unsent_in(place)}" for place in writes.freed),
        *(event if writes.freed else ()),
    ]


def _each(command: str, sets: Mapping[str, list[Word]]) -> Iterator[tuple[Word, ...]]:
    for name, words in sets.items():
        for start in range(0, len(words), WORDS_AT_ONCE):
            yield command, name, *words[start : start + WORDS_AT_ONCE]
