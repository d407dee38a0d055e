"""Copies of a store in Redis: all rows of one moment while nodes go on writing, and an empty Redis filled with records.

A copy first reads every row, while the commit script notes the keys of those that change. What changed is read again
until little is left; one script reads the rest, so that all rows are of the moment of that script. Used by
`gateway.store.copying`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Protocol

import redis

from gateway.domain.audit import AuditHead, AuditMark
from gateway.domain.ids import SessionId, mint
from gateway.errors import StoreError
from gateway.store.codec import EPOCH, dump_json, load_json
from gateway.store.kernel.audit import REMOVED, mark_of
from gateway.store.records import Record, Snapshot, batches, list_key
from gateway.store.redis import indexes
from gateway.store.redis.checks import FILLING, KILLED, check_server, escaped, living_node
from gateway.store.redis.commit import CHANGED, COPYING, EVENTS_KEPT
from gateway.store.redis.connection import Script, address_of, connect, failure, shown
from gateway.store.redis.folds import expanded
from gateway.store.redis.rows import AUDIT, AUDIT_HEAD, FACT, KINDS, NEW
from gateway.store.redis.source import HEAD

COPY_LASTS_S = 60
"""Seconds after which a copy that says nothing is over."""
LAST_AT_MOST = 500
"""Rows that are read in one moment, at the end."""
POISON = "poison"
_IMPORTED = 0
"""Stamp of rows that were copied: no commit has it, since the counter begins above."""


class CopiedRows(Protocol):
    """Keeper of the rows of a copy until all of them are of one moment."""

    def put(self, records: Sequence[Record]) -> None:
        """Keep records in place of earlier ones."""
        ...

    def drop(self, kind: str, key: str) -> None:
        """Forget a record that is gone."""
        ...

    def settle(self, rev: int) -> None:
        """Set the revision of the moment at which the rows stand."""
        ...


class RedisCopy:
    """One connection for a copy, and the keys under one prefix."""

    def __init__(self, url: str) -> None:
        """Take the store's URL. Raises `ConfigError` or `StoreError` when it cannot hold a store."""
        self.url, self.prefix = address_of(url)
        self.time = check_server(self.url, self.prefix, None, half=True).time
        self.client: Any = connect(self.url)
        self._name = mint("")

    def close(self) -> None:
        """End the connection."""
        self.client.close()

    def key(self, name: str) -> str:
        """Return a key with the prefix."""
        return self.prefix + name

    # --- reading ----------------------------------------------------------------------------

    def keys(self) -> Iterator[str]:
        """Yield the keys of this store, without the prefix."""
        for key in self.client.scan_iter(match=f"{escaped(self.prefix)}*", count=1000):
            yield key.removeprefix(self.prefix)

    @property
    def rev(self) -> int:
        """Return its last revision."""
        return int(self.client.get(self.key("rev")) or 0)

    def records(self) -> Iterator[Record]:
        """Yield all rows of a store that nobody changes. Those of the audit come in their order."""
        of_audit = f"{AUDIT.name}:"
        for keys in batches(key for key in self.keys() if not key.startswith(of_audit)):
            yield from self.placed(one for one in self.read(keys) if isinstance(one, Record))
        yield from self.audit(self.removed_audit())
        yield from self.poison()

    def removed_audit(self) -> AuditMark | None:
        """Return the last row of the audit that was removed."""
        stored = self.client.get(self.key(FACT.key(REMOVED)))
        return mark_of(None if stored is None else FACT.load(_IMPORTED, stored.partition(" ")[2]).value)

    def audit(self, removed: AuditMark | None) -> Iterator[Record]:
        """Yield the rows behind that one in their order. Raises `StoreError` when some are removed meanwhile."""
        head = self.client.get(self.key(AUDIT_HEAD.key(HEAD)))
        last = 0 if head is None else AUDIT_HEAD.load(_IMPORTED, head.partition(" ")[2]).seq
        for numbers in batches(range(1 if removed is None else removed.seq + 1, last + 1)):
            found = [one for one in self.read([AUDIT.key(number) for number in numbers]) if isinstance(one, Record)]
            if len(found) < len(numbers) and self.removed_audit() != removed:
                raise StoreError("Old rows of the audit were removed while it was read.", cure="Begin again.")
            yield from found

    def read(self, keys: Sequence[str]) -> list[Record | tuple[str, str]]:
        """Return the records of rows; kind and key of one that is gone."""
        wanted = [key for key in keys if key.partition(":")[0] in KINDS and not key.startswith(AUDIT_HEAD.name)]
        if not wanted:
            return []
        values = expanded(wanted, self._values(wanted), self._values)
        return [_record(key, value) for key, value in zip(wanted, values, strict=True)]

    def _values(self, keys: Sequence[str]) -> list[str | None]:
        return self.client.mget([self.key(key) for key in keys])

    def placed(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records; sessions with their places among the children of their parents."""
        for batch in batches(records):
            parents = {one.key: _parent(one) for one in batch if one.kind == "session"}
            asked = [(key, parent) for key, parent in parents.items() if parent]
            pipeline = self.client.pipeline(transaction=False)
            for key, parent in asked:
                pipeline.zscore(self.key(indexes.below(parent)), key)
            places = dict(zip((key for key, _ in asked), pipeline.execute() if asked else (), strict=True))
            for one in batch:
                place = int(places.get(one.key) or 0)
                yield Record(kind=one.kind, key=one.key, values=one.values, place=place) if place else one

    def poison(self) -> Iterator[Record]:
        """Yield the refused events."""
        for _, found in self.client.xrange(self.key(POISON)):
            yield Record(
                kind=POISON,
                key=list_key(load_json(found["event"])),
                values=[found["raw"], found["why"], int(found["at"])],
            )

    def read_all(self, into: CopiedRows) -> None:
        """Read all rows of one moment while nodes write. Raises `StoreError`."""
        if not self.client.set(self.key(COPYING), self._name, nx=True, ex=COPY_LASTS_S):
            raise StoreError(
                f"Redis at {shown(self.url)} is being copied already.",
                cure=f"Wait for the other copy; one that was killed ends by itself within {COPY_LASTS_S} s.",
            )
        try:
            self.client.delete(self.key(CHANGED))
            for keys in batches(self.keys()):
                self._take(keys, into)
                self._go_on()
            self._settle(into)
        finally:
            self.client.delete(self.key(COPYING), self.key(CHANGED))

    def _settle(self, into: CopiedRows) -> None:
        """Read the changes of the meantime, until one script reads the rest."""
        text = files("gateway.store.redis").joinpath("lua/settled.lua").read_text()
        script, keys = Script(self.client, text), [self.key(one) for one in (COPYING, CHANGED, "rev")]
        while True:
            status, *rest = script.call(keys, [self._name, LAST_AT_MOST])
            if status == "done":
                break
            self._go_on()
            self._take([key.removeprefix(self.prefix) for key in self.client.spop(keys[1], 1000)], into)
        rev, *found = rest
        keys = [key.removeprefix(self.prefix) for key in found[::2]]
        changed = list(zip(keys, expanded(keys, found[1::2], self._values), strict=True))
        self._keep([_record(key, value) for key, value in changed if key.partition(":")[0] in KINDS], into)
        into.put(list(self.poison()))
        into.settle(int(rev))

    def _take(self, keys: Sequence[str], into: CopiedRows) -> None:
        self._keep(self.read(keys), into)

    def _keep(self, found: Sequence[Record | tuple[str, str]], into: CopiedRows) -> None:
        into.put(list(self.placed(one for one in found if isinstance(one, Record))))
        for one in found:
            if not isinstance(one, Record):
                into.drop(*one)

    def _go_on(self) -> None:
        if self.client.get(self.key(COPYING)) != self._name:
            raise StoreError("The copy paused for too long; what changed meanwhile is not known.", cure="Begin again.")
        self.client.expire(self.key(COPYING), COPY_LASTS_S)

    def refuse_running(self) -> None:
        """Raise `StoreError` while a daemon uses the store, by the list of nodes and the clock of the server."""
        if name := living_node(self.client, self.prefix):
            raise StoreError(
                f"The node {name} uses the store in Redis at {shown(self.url)}.", cure=f"Stop all daemons. {KILLED}"
            )

    # --- filling ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Mark the store as half full, once it is empty. What an earlier copy left half done is removed."""
        found = self.client.hgetall(self.key("meta"))
        if FILLING not in found and any(key != "meta" for key in self.keys()):
            raise StoreError(
                f"Redis at {shown(self.url)} has a store under `{self.prefix}` already.",
                cure="Name another prefix (`?prefix=` in the URL) or another database.",
            )
        check_server(self.url, self.prefix, None, begins=True, half=True)
        self.client.hset(self.key("meta"), FILLING, self._name)
        for keys in batches(key for key in self.keys() if key != "meta"):
            self.client.unlink(*(self.key(key) for key in keys))

    def fill(self, snapshot: Snapshot) -> None:
        """Write all records of a snapshot to the store that `begin` emptied."""
        head: Record | None = None
        for records in batches(snapshot.records()):
            pipeline = self.client.pipeline(transaction=False)
            for record in records:
                self._write(pipeline, record)
                if record.kind == "audit" and (head is None or int(record.key) > int(head.key)):
                    head = record
            pipeline.execute()
        if head is not None:
            end = AuditHead(since=EPOCH, seq=int(head.key), hash=head.values[-1])
            self.client.set(self.key(AUDIT_HEAD.key(HEAD)), f"{_IMPORTED} {AUDIT_HEAD.dump(end)}")
        self.client.set(self.key("rev"), max(snapshot.rev, _IMPORTED + 1))

    def finish(self) -> None:
        """Give the store free for daemons. Raises `StoreError` when another copy began meanwhile."""
        if self.client.hget(self.key("meta"), FILLING) != self._name:
            raise StoreError(
                f"Another copy into Redis at {shown(self.url)} began meanwhile.", cure="Run one of them at a time."
            )
        self.client.hdel(self.key("meta"), FILLING)

    def _write(self, pipeline: Any, record: Record) -> None:
        if record.kind == POISON:
            raw, why, at = record.values
            pipeline.xadd(self.key(POISON), {"event": record.key, "raw": raw, "why": why, "at": at})
            return
        name, text = f"{record.kind}:{record.key}", dump_json(record.values)
        ttl = int(EVENTS_KEPT.total_seconds()) if record.kind == "event" else None
        pipeline.set(self.key(name), f"{_IMPORTED} {text}", ex=ttl)
        row = KINDS[record.kind].load(_IMPORTED, text)
        for (where, member), score in indexes.places_of(name, row).items():
            pipeline.zadd(self.key(where), {member: record.place if score == NEW else score})


def _record(key: str, value: str | None) -> Record | tuple[str, str]:
    """Return the record of a stored value; kind and key when there is none."""
    kind, _, rest = key.partition(":")
    if value is None:
        return kind, rest
    stamp, _, text = value.partition(" ")
    return Record(kind=kind, key=rest, values=KINDS[kind].stored(int(stamp), text))


def _parent(record: Record) -> SessionId | None:
    """Return the parent of a child's session."""
    return record.values[KINDS[record.kind].columns.index("parent")]


@contextmanager
def copy_of(url: str) -> Generator[RedisCopy]:
    """Open a Redis for a copy. Errors of Redis come out as `StoreError`."""
    copy = RedisCopy(url)
    try:
        yield copy
    except redis.RedisError as error:
        raise failure(error, copy.url) from None
    finally:
        copy.close()
