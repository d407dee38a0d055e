"""Checks of a Redis before a daemon trusts it: what is too weak is refused with its cure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis
from redis import exceptions

from gateway.domain.durability import Durability, NotedStore, StoreTerms
from gateway.domain.ids import mint
from gateway.domain.nodes import LIVES_FOR
from gateway.errors import ConfigError, StoreAway, StoreError, StoreTooNew
from gateway.store.codec import from_us
from gateway.store.kernel.nodes import MEMBERS, is_alive
from gateway.store.redis import indexes
from gateway.store.redis.connection import PROMOTE, address_of, connect, failure, shown
from gateway.store.redis.durability import promise_of
from gateway.store.redis.life import LIFE, Life, life_of
from gateway.store.redis.rows import FACT

SCHEMA = 3
"""Form of the rows. Those of earlier schemas are read too (`rows`); an earlier version reads no later ones."""
KILLED = f"One that was killed counts for {LIVES_FOR.total_seconds():.0f} s more."
OLDEST = (6, 2)
"""Oldest version of Redis that the scripts run on."""
FILLING = "filling"
"""Field of the store's description while a copy fills it: no daemon may use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A Redis that can hold the store."""

    time: tuple[int, int]
    """Its time in seconds and microseconds."""
    version: tuple[int, ...]
    durability: Durability
    """Its durability, or the operator's word for it where the server does not say."""


def check_url(url: str, terms: StoreTerms) -> Durability:
    """Return the durability of a Redis. Raises `ConfigError` or `StoreError` for one that cannot hold the store."""
    return check_server(*address_of(url), terms).durability


def check_server(
    url: str,
    prefix: str,
    terms: StoreTerms | None,
    *,
    begins: bool = False,
    half: bool = False,
    noted: NotedStore | None = None,
) -> Found:
    """Return the facts of a server that can hold the store. `begins`: mark an empty Redis as ours.

    `terms`: how much it may lose; None for a copy, which does not ask. `half`: accept a store that a copy fills, or
    left half filled. `noted`: the store that this node worked on last; another one is refused, and not marked.

    Raises `ConfigError` or `StoreError` for a Redis that cannot hold the store.
    """
    client: Any = connect(url)
    try:
        version = _check_version(client, url, 0 if terms is None else terms.replicas)
        durability = promise_of(client, url, terms)
        _check_rights(client, prefix, waits=terms is not None and terms.replicas > 0)
        schema = _check_keys(client, url, prefix, half=half)
        if noted is not None and noted.store:
            _refuse_another(client.hget(f"{prefix}meta", LIFE), url, noted)
        if begins:
            _begin(client, url, prefix, schema)
        return Found(time=client.time(), version=version, durability=durability)
    except redis.RedisError as error:
        raise failure(error, url) from None
    finally:
        client.close()


def _check_version(client: Any, url: str, replicas: int) -> tuple[int, ...]:
    found = str(client.info("server")["redis_version"])
    version = tuple(int(one) for one in found.split(".")[:2])
    if version < OLDEST:
        raise StoreError(f"Redis at {shown(url)} is version {found}.", cure="Install Redis 6.2 or newer, or Valkey.")
    replication = client.info("replication")
    if replication["role"] != "master":
        raise StoreAway(f"Redis at {shown(url)} is a replica.", cure=PROMOTE)
    if int(replication["connected_slaves"]) < replicas:
        raise StoreAway(
            f"Redis at {shown(url)} has {replication['connected_slaves']} replicas, and store.replicas is {replicas}.",
            cure="Start the replicas, or lower store.replicas.",
        )
    return version


def _check_rights(client: Any, prefix: str, *, waits: bool) -> None:
    """Try each command so that none changes anything. Raises what the server says of a missing right."""
    key, nothing = f"{prefix}no-such-key", "nothing"
    tried: tuple[tuple[str | int, ...], ...] = (
        ("GET", key),
        ("MGET", key),
        ("GETRANGE", key, 0, 1),
        ("ZCARD", key),
        ("ZRANGE", key, 0, 1),
        ("ZREVRANGE", key, 0, 1),
        ("ZRANGEBYSCORE", key, 0, 1),
        ("ZREVRANGEBYSCORE", key, 1, 0),
        ("SET", key, nothing, "XX"),
        ("MSET", key, nothing, key),
        ("DEL", key),
        ("EXPIRE", key, 1),
        ("ZADD", key, "XX", 0, nothing),
        ("ZREM", key, nothing),
        ("XADD", key, "NOMKSTREAM", "MAXLEN", "~", 1, "*", "a", "b"),
        ("PUBLISH", f"{prefix}check", ""),
        ("EVAL", "return 1", 0),
        ("SCRIPT LOAD", "return 1"),
    )
    pipeline = client.pipeline(transaction=False)
    for words in (*tried, *((("WAIT", 0, 1),) if waits else ())):
        pipeline.execute_command(*words)
    answers: list[Any] = pipeline.execute(raise_on_error=False)
    for answer in answers:
        if isinstance(answer, exceptions.NoPermissionError | exceptions.OutOfMemoryError):
            raise answer
    with client.pubsub() as pubsub:
        pubsub.subscribe(f"{prefix}check")
        pubsub.get_message(timeout=1.0)


def _check_keys(client: Any, url: str, prefix: str, *, half: bool) -> int | None:
    """Return the schema of the store; None where nothing is. Raises `ConfigError` or `StoreError`."""
    found, filling = client.hmget(f"{prefix}meta", "schema", FILLING)
    if found is None:
        is_empty = next(iter(client.scan_iter(match=f"{escaped(prefix)}*", count=1000)), None) is None
        if not is_empty and client.hget(f"{prefix}meta", "schema") is None:  # another node may have begun meanwhile
            raise ConfigError(
                f"Redis at {shown(url)} has keys `{prefix}*` that are not a store of Dragoman.",
                cure="Use another prefix (`?prefix=` in store.url) or another database.",
            )
        return None
    if int(found) > SCHEMA:
        raise StoreTooNew(f"The store in Redis at {shown(url)} has the schema {found}; this version knows {SCHEMA}.")
    if filling and not half:
        raise StoreError(
            f"The store in Redis at {shown(url)} is half filled: a copy into it is under way, or did not end.",
            cure="Give the same `dragoman migrate` or `dragoman restore` again: it restarts.",
        )
    return int(found)


def _begin(client: Any, url: str, prefix: str, schema: int | None) -> None:
    """Mark a store with the schema that this version writes. Raises `StoreError` while an earlier version uses it."""
    if schema is None:
        client.hsetnx(f"{prefix}meta", "schema", SCHEMA)
    elif schema < SCHEMA:
        if name := living_node(client, prefix):
            raise StoreError(
                f"The node {name} uses the store in Redis at {shown(url)} with an earlier version of Dragoman.",
                cure=f"Stop all daemons of that version, then start this one. {KILLED}",
            )
        client.hset(f"{prefix}meta", "schema", SCHEMA)


def living_node(client: Any, prefix: str) -> str | None:
    """Return a node that uses a store, by the list of nodes and the clock of the server."""
    seconds, micros = client.time()
    now = from_us(seconds * 1_000_000 + micros)
    keys = client.zrange(f"{prefix}{indexes.facts_of(MEMBERS)}", 0, -1)
    found = client.mget([prefix + key for key in keys]) if keys else ()
    rows = [None if fact is None else FACT.load(0, fact.partition(" ")[2]) for fact in found]
    alive = (key for key, row in zip(keys, rows, strict=True) if row is not None and is_alive(row, now))
    return next((indexes.fact_key(key)[1] for key in alive), None)


def escaped(prefix: str) -> str:
    """Return a prefix without a meaning of its own in a pattern."""
    return "".join(f"\\{char}" if char in "[]*?\\" else char for char in prefix)


def life_at(url: str, prefix: str) -> Life:
    """Return the life of a store, which begins with the first node. Raises `StoreError`."""
    client: Any = connect(url)
    try:
        client.hsetnx(f"{prefix}meta", LIFE, str(Life(store=mint("s"), number=0)))
        return life_of(client.hget(f"{prefix}meta", LIFE))
    except redis.RedisError as error:
        raise failure(error, url) from None
    finally:
        client.close()


def _refuse_another(found: str | None, url: str, noted: NotedStore) -> None:
    if found is not None and life_of(found).store == noted.store:
        return
    if found is None:
        says = f"The store in Redis at {shown(url)} was emptied, or replaced, since this node worked on it."
    else:
        says = f"The store in Redis at {shown(url)} is another one than this node worked on."
    cure = f"Restore a backup (`dragoman restore`) or correct store.url. If this store is meant, remove {noted.note}."
    raise StoreError(says, cure=cure)
