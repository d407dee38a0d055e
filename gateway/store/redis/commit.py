"""Changes of a batch as the arguments of the commit script."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from gateway.domain.audit import AuditHead
from gateway.store.answer_rules import together
from gateway.store.codec import EPOCH, dump_conversation, dump_json, storable, to_us
from gateway.store.kernel.part import Part
from gateway.store.redis.batch import Batch
from gateway.store.redis.indexes import places_of, places_of_fact, unsent_in
from gateway.store.redis.rows import AUDIT, AUDIT_HEAD, EVENT, FACT, KINDS, NEW, SPENT, UNNUMBERED, kind_of
from gateway.store.redis.source import HEAD, RedisSource

Word: TypeAlias = str | int

COPYING, CHANGED = "copying", "copying:changed"
"""Keys of a copy under way: its name, and rows that changed since it read them."""
EVENTS_KEPT = timedelta(days=15)
"""How long an event is known: platforms repeat one within days."""
POISON_KEPT = 10_000
"""Refused events that are kept for a look at them, about."""
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
    source.batch.changed |= new
    for event, raw, why in part.poison:
        words = ("event", storable(dump_json(list(event))), "raw", storable(raw), "why", storable(why))
        writes.commands.append(("XADD", "poison", "MAXLEN", "~", POISON_KEPT, "*", *words, "at", to_us(part.now)))
    writes.freed |= {dump_conversation(place) for place in part.freed}


def arguments(batch: Batch, writes: Writes, head: tuple[Word, ...], prefix: str, event: tuple[str, str]) -> list[Word]:
    """Return the arguments of the commit script.

    `head`: those before the lists. `event`: channel and message for freed conversations.
    """
    rows: list[tuple[Word, ...]] = []
    places: list[tuple[Word, ...]] = []
    commands, made = list(writes.commands), 0
    for key, row in batch.changed.items():
        is_blind = key.startswith(f"{FACT.name}:") and key not in batch.read
        before = None if is_blind else batch.before(key)
        if row is None:
            commands.append(("DEL", key))
        else:
            text = kind_of(key).dump(row)
            batch.sizes[key] = len(text)
            rows.append((prefix + key, text))
        if key.startswith(f"{EVENT.name}:"):
            commands.append(("EXPIRE", key, int(EVENTS_KEPT.total_seconds())))
        was, is_ = places_of_fact(key) if is_blind else places_of(key, before), places_of(key, row)
        commands += [("ZREM", *place) for place in was if place not in is_]
        for (name, member), score in is_.items():
            if was.get((name, member)) == score:
                continue
            if score == NEW:
                made += 1
                places.append((prefix + name, member, made))
            elif score > UNNUMBERED:
                places.append((prefix + name, member, score - UNNUMBERED))
            else:
                commands.append(("ZADD", name, score, member))
    conditions = [(prefix + key, stamp) for key, stamp in batch.read.items()]
    conditions += [(f"{prefix}{unsent_in(where)}", f"={count}") for where, count in batch.alone.items()]
    words = [(len(command), command[0], prefix + str(command[1]), *command[2:]) for command in commands]
    freed = [(f"{prefix}{unsent_in(place)}",) for place in writes.freed]
    lists = [_flat(one) for one in (conditions, rows, places, words, freed)]
    return [*head, *(word for one in lists for word in one), *event]


def _flat(items: Iterable[tuple[Word, ...]]) -> list[Word]:
    listed = list(items)
    return [len(listed), *(word for item in listed for word in item)]
