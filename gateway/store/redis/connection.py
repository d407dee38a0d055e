"""Connections to Redis: one address, explicit timeouts, no retries of the library, errors with a cure."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway.domain.text import without_password
from gateway.errors import ConfigError, StoreError, StoreFull

T = TypeVar("T")


class TooFewReplicas(redis.ConnectionError):
    """Fewer replicas have a commit than must. It may stand: it is sent again under its number."""


CONNECT_S = 2.0
ANSWER_S = 5.0
"""Timeouts of connecting and of an answer, in seconds."""
TRY_FOR_S = 15.0
"""How long a request is sent again while Redis is away, in seconds."""
BETWEEN_S = 0.1
"""Seconds between two attempts."""
DEFAULT_PREFIX = "{dragoman}:"
LOST = (redis.ConnectionError, redis.TimeoutError)
"""Errors after which a request may or may not have been done."""
AWAY = (*LOST, exceptions.BusyLoadingError)
"""Errors of a server that is gone, or begins."""
FILES = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
"""Options of the URL that name files for TLS, and what the library calls them."""
RUNBOOK = "deploy/RUNBOOK.md (A store on Redis) says what Redis needs."


def address_of(url: str) -> tuple[str, str]:
    """Return the URL for the client and the prefix of all keys. Raises `ConfigError`."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    prefix = options.pop("prefix", "")
    if unknown := sorted(set(options) - {"db", *FILES}):
        raise ConfigError(
            f"The store's URL has an unknown option: {', '.join(unknown)}.",
            cure="Use `redis://user:password@host:port/0`, with `?prefix=` where several gateways share a Redis, and "
            "`rediss://` with `?ca=FILE`, `&cert=FILE` and `&key=FILE` for TLS.",
        )
    for name, option in FILES.items():
        if (file := options.pop(name, None)) is not None:
            _check_file(name, file, parts.scheme)
            options[option] = file
    plain = urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(options), ""))
    return plain, f"{{{prefix}}}:" if prefix else DEFAULT_PREFIX


def _check_file(name: str, file: str, scheme: str) -> None:
    if scheme != "rediss":
        raise ConfigError(f"The store's URL has `{name}=` and no TLS.", cure="Begin it with `rediss://`.")
    if not os.path.isfile(file):
        raise ConfigError(f"The store's URL names a file that is not there: {name}={file}.", cure="Correct its path.")


def shown(url: str) -> str:
    """Return a URL without its password and options."""
    return without_password(url).partition("?")[0]


def connect(url: str) -> redis.Redis:
    """Return a client with one connection, made at the first command. Raises `ConfigError` for a wrong URL."""
    try:
        return redis.Redis.from_url(  # pyright: ignore[reportUnknownMemberType] - untyped in the library
            url,
            decode_responses=True,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=CONNECT_S,
            socket_timeout=ANSWER_S,
            max_connections=1,
        )
    except ValueError as error:
        raise ConfigError(
            f"The store's URL {shown(url)} is wrong: {error}.", cure="Use `redis://user:password@host:port/0`."
        ) from None


def failure(error: redis.RedisError, url: str) -> StoreError:
    """Return the error for the caller."""
    text = str(error)
    if isinstance(error, exceptions.NoPermissionError) or "ACL failure in script" in text:
        return StoreError(f"Redis at {shown(url)} refuses this user: {text}.", cure=_right_for(text))
    if isinstance(error, redis.AuthenticationError):
        cure = "Correct user and password in store.url."
        return StoreError(f"Redis at {shown(url)} refuses this user: {text}.", cure=cure)
    if "DB index" in text:
        cure = "Correct the number at the end of store.url, or raise `databases` in redis.conf."
        return StoreError(f"Redis at {shown(url)} has no such database: {text}.", cure=cure)
    if "SSL" in text or "CERTIFICATE" in text.upper():
        cure = "Name the authority of its certificate with `?ca=FILE`, and your own with `&cert=FILE&key=FILE`."
        return StoreError(f"Redis at {shown(url)} cannot be reached through TLS: {text}.", cure=cure)
    if isinstance(error, LOST):
        return _away(error, url)
    if isinstance(error, exceptions.OutOfMemoryError):
        return StoreFull(
            f"Redis at {shown(url)} is full: {text}.", cure="Give Redis more memory (maxmemory); the daemon goes on."
        )
    if isinstance(error, exceptions.ReadOnlyError):
        return StoreError(f"Redis at {shown(url)} is a replica.", cure="Point store.url at the primary.")
    return StoreError(f"Redis at {shown(url)} failed: {text}.", cure=RUNBOOK)


def _away(error: redis.RedisError, url: str) -> StoreError:
    if isinstance(error, TooFewReplicas):
        cure = "Start the replicas, or lower store.replicas; nothing is lost."
        return StoreError(f"Redis at {shown(url)} has too few replicas: {error}.", cure=cure)
    return StoreError(f"Redis at {shown(url)} does not answer: {error}.", cure="Start Redis, or correct the URL.")


def _right_for(text: str) -> str:
    """Return how to give a user the right that it misses."""
    found = re.search(r"'([a-z|]+)'", text)
    if found:
        return f"Give it the right `+{found[1]}`. {RUNBOOK}"
    what = "channels `&{dragoman}:*`" if "channel" in text else "keys `~{dragoman}:*`"
    return f"Allow it the {what}, or those of its prefix. {RUNBOOK}"


def until_answered(command: Callable[[], T], *, is_closed: Callable[[], bool]) -> T:
    """Call a command that may be repeated, until Redis answers or has been away for too long."""
    deadline = time.monotonic() + TRY_FOR_S
    while True:
        try:
            return command()
        except AWAY:
            if is_closed() or time.monotonic() > deadline:
                raise
            time.sleep(BETWEEN_S)


class Script:
    """A Lua script, called by its hash; a server that restarted gets its text again."""

    def __init__(self, client: redis.Redis, text: str) -> None:
        """Take a client and the script's text."""
        self._client: Any = client
        self._text = text
        self._sha = ""

    def call(self, keys: list[str], arguments: list[Any]) -> list[Any]:
        """Run the script. Raises `redis.RedisError`."""
        return self._known(lambda: self._client.evalsha(self._sha, len(keys), *keys, *arguments))

    def call_and(self, then: tuple[str | int, ...], keys: list[str], arguments: list[Any]) -> list[Any]:
        """Run the script and a command behind it in one request; return both answers. Raises `redis.RedisError`."""

        def both() -> list[Any]:
            pipeline = self._client.pipeline(transaction=False)
            pipeline.execute_command("EVALSHA", self._sha, len(keys), *keys, *arguments)
            pipeline.execute_command(*then)
            return pipeline.execute()

        return self._known(both)

    def _known(self, call: Callable[[], list[Any]]) -> list[Any]:
        if not self._sha:
            self._sha = self._client.script_load(self._text)
        try:
            return call()
        except exceptions.NoScriptError:
            self._sha = self._client.script_load(self._text)
            return call()
