"""Sentinels, which name the primary of a Redis, and why they name none. Used by `connection`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import redis
from redis import exceptions
from redis.sentinel import Sentinel

SIGN_IN = {"sentinel_user": "username", "sentinel_password": "password"}
"""Options of the URL that are for the Sentinels alone, and what the library calls them."""
TLS = "sentinel_tls"
"""Option of the URL: `no` where the Sentinels have no TLS, and their primary has."""
OPTIONS = frozenset({*SIGN_IN, TLS})


class NoPrimary(redis.ConnectionError):
    """No Sentinel names a primary. Its text has what each of them said."""

    cure = ""
    may_pass = False
    """True if they may name one later, with the same address."""


class Sentinels(Sentinel):
    """Sentinels of one gateway, asked one after the other until one names the primary."""

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return host and port of the primary; the Sentinel that named it is asked first the next time.

        Raises `NoPrimary`.
        """
        said, cures, away = list[str](), list[str](), ""
        asked: list[Any] = self.sentinels
        for place, one in enumerate(asked):
            away = _AWAY_TLS if issubclass(one.connection_pool.connection_class, redis.SSLConnection) else _AWAY
            try:
                watched: dict[str, Any] = one.sentinel_masters()
            except (redis.ConnectionError, redis.TimeoutError, redis.ResponseError) as error:
                why, cure = str(error), _cure_of(error)
            else:
                state = watched.get(service_name)
                if state is not None and state["is_master"] and not state["is_sdown"] and not state["is_odown"]:
                    asked[0], asked[place] = one, asked[0]
                    return str(state["ip"]), int(state["port"])
                why, cure = _why_not(service_name, watched)
            address = one.connection_pool.connection_kwargs
            said.append(f"{address['host']}:{address['port']}: {why.rstrip('.')}")
            cures.append(cure)
        nowhere = NoPrimary("; ".join(said))
        nowhere.cure = next(filter(None, cures), away)
        nowhere.may_pass = nowhere.cure in (away, _DOWN)
        raise nowhere


_AWAY = (
    "Start the Sentinels, or correct their addresses in store.url. Where they speak TLS, write `rediss+sentinel://`."
)
_DOWN = "Start Redis, or wait until the Sentinels have chosen another primary."
_AWAY_TLS = (
    "Start the Sentinels, or correct their addresses in store.url. Where they have no TLS, add `&sentinel_tls=no`."
)


def _why_not(name: str, watched: Mapping[str, Any]) -> tuple[str, str]:
    if name in watched:
        return f"`{name}` is down", _DOWN
    known = ", ".join(sorted(watched)) or "none"
    return f"it watches no `{name}`", f"Correct the name at the end of store.url; it watches: {known}."


def _cure_of(error: redis.RedisError) -> str:
    """Return the cure for a Sentinel's answer; empty for one that does not answer."""
    if isinstance(error, exceptions.AuthenticationError | exceptions.NoPermissionError):
        return (
            "Give the user and the password of the Sentinels in store.url: "
            "`&sentinel_user=NAME&sentinel_password=SECRET`. Those before `@` are for Redis itself."
        )
    if "SSL" in str(error) or "CERTIFICATE" in str(error).upper():
        return (
            "Name the authority of their certificate with `?ca=FILE`; where they have no TLS, add `&sentinel_tls=no`."
        )
    return ""
