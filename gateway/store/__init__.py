"""The durable store: all that must survive a restart. `open_store(url)` chooses the implementation by the URL."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gateway.domain.durability import STRICT, Durability, NotedStore, StoreTerms
from gateway.domain.grants import Grant
from gateway.domain.ids import SessionId
from gateway.domain.sessions import Session
from gateway.errors import ConfigError, StoreError
from gateway.ports import Clock, Store

REDIS = ("redis://", "rediss://", "redis+sentinel://", "rediss+sentinel://")
"""Beginnings of the URL of a store on Redis."""


def open_store(url: str, clock: Clock, terms: StoreTerms = STRICT, noted: NotedStore | None = None) -> Store:
    """Open the store at `url`: `sqlite:///absolute/path`, `redis://host` or `memory://`.

    `terms`: what a Redis may lose. `noted`: the store that was there before; another one is refused.

    Raises `StoreError` or `ConfigError`.
    """
    if url == "memory://":
        from gateway.store.memory import MemoryStore

        return MemoryStore(clock)
    if url.startswith("sqlite:///"):
        from gateway.store.sqlite import open_sqlite

        return open_sqlite(url.removeprefix("sqlite://"), clock)
    if url.startswith(REDIS):
        try:
            from gateway.store.redis import open_redis
        except ModuleNotFoundError:
            raise no_redis() from None
        return open_redis(url, clock, terms, noted)
    raise ConfigError(
        f"No store can be opened at {url!r}.",
        cure="Use `sqlite:///` with an absolute path, `redis://` with an address, or `memory://`.",
    )


def no_redis() -> ConfigError:
    """Return the error for a store on Redis without its library."""
    return ConfigError(
        "A store on Redis needs the extra `redis`.",
        cure="Install it: `pip install 'dragoman[redis]'` (in a clone `./run add redis`).",
    )


def is_shared(url: str) -> bool:
    """Return whether several nodes can open the store at `url` together."""
    return url.startswith(REDIS)


def is_there(url: str) -> bool:
    """Return whether a store exists at `url` already. One on Redis is not checked: its key stands elsewhere."""
    return url.startswith("sqlite:///") and os.path.exists(url.removeprefix("sqlite://"))


def resting_session(url: str, session: SessionId, clock: Clock) -> tuple[Session, Sequence[Grant]] | None:
    """Return a stored session with all live grants, of a store that no daemon holds; None when it is not there.

    Writes nothing. Raises `StoreInUse` while a daemon holds it, and `StoreError`.
    """
    if not url.startswith("sqlite:///"):
        raise StoreError(f"The store {url} keeps nothing without its daemon.", cure="Start it: dragoman run.")
    from gateway.store.sqlite.resting import resting_session as read

    return read(url.removeprefix("sqlite://"), session, clock)


def check_store(url: str, terms: StoreTerms = STRICT) -> Durability:
    """Return the durability of a store. Raises `StoreError` for one that `open_store` would refuse by its content.

    Opens no store, changes nothing.
    """
    if url.startswith(REDIS):
        try:
            from gateway.store.redis.checks import check_url
        except ModuleNotFoundError:
            raise no_redis() from None
        return check_url(url, terms)
    if not url.startswith("sqlite:///"):
        return Durability.ALWAYS
    from gateway.store.sqlite.opening import check_file, check_lock
    from gateway.store.sqlite.statements import load_migrations

    path = os.path.realpath(url.removeprefix("sqlite://"))
    if os.path.lexists(path):
        check_file(path, len(load_migrations()))
    check_lock(path)
    return Durability.ALWAYS
