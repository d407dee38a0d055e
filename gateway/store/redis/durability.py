"""Durability settings of a Redis server: read before a daemon trusts it, and from each server it meets later.

Used by `checks` and `life`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import redis

from gateway.domain.durability import Durability, StoreTerms
from gateway.errors import StoreError
from gateway.store.redis.connection import shown

DURABLE = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}
"""Settings without which Redis loses what it has acknowledged."""
WHOLE = {"maxmemory-policy": "noeviction"}
"""Settings without which Redis forgets single rows: no store is good for anything then."""
LOSES = {Durability.ALWAYS: 0, Durability.ONE_SECOND: 1, Durability.NONE: 2}
"""Order of what may be lost."""


def promise_of(client: Any, url: str, terms: StoreTerms | None) -> Durability:
    """Return the server's durability. Raises `StoreError` when the terms want more."""
    written = None if terms is None else terms.durability
    try:
        found: dict[str, str] = client.config_get(*DURABLE, *WHOLE)
    except redis.ResponseError as error:
        if written is not None or terms is None:
            return written or Durability.NONE
        raise StoreError(
            f"Redis at {shown(url)} does not say whether it loses writes: {error}.",
            cure="Allow this user the command CONFIG GET, or write into [store] what it promises: durability = "
            '"always", "one-second" or "none".',
        ) from None
    has = _promised(found)
    wanted = DURABLE if LOSES[has] > LOSES[written or Durability.ALWAYS] and terms is not None else {}
    weak = {name: found.get(name) for name, value in (wanted | WHOLE).items() if found.get(name) != value}
    if weak:
        is_ = ", ".join(f"{name} is {value}" for name, value in weak.items())
        cure = ", ".join(f"`{name} {(DURABLE | WHOLE)[name]}`" for name in weak)
        accept = f' Or accept the loss: [store] durability = "{has}".' if wanted else ""
        raise StoreError(
            f"Redis at {shown(url)} may lose what it acknowledged: {is_}.", cure=f"Set {cure} in redis.conf.{accept}"
        )
    return has


def _promised(found: Mapping[str, str]) -> Durability:
    """Return the durability of these settings. Without fsync while the AOF is rewritten, the loss has no bound."""
    if found.get("appendonly") != "yes" or found.get("no-appendfsync-on-rewrite") != "no":
        return Durability.NONE
    known = {"always": Durability.ALWAYS, "everysec": Durability.ONE_SECOND}
    return known.get(found.get("appendfsync", ""), Durability.NONE)


def weaker(one: Durability | None, other: Durability) -> Durability:
    """Return the one that loses more. None: not known."""
    return other if one is None else max(one, other, key=LOSES.__getitem__)
