"""Connections to Redis: one address, explicit timeouts, our own retries (`until_answered`), errors with a cure."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway.domain.text import without_password
from gateway.errors import ConfigError, StoreAway, StoreError, StoreFull
from gateway.store.redis import sentinels
from gateway.store.redis.sentinels import NoPrimary, Sentinels

T = TypeVar("T")


class TooFewReplicas(redis.ConnectionError):
    """Fewer replicas have a commit than must. It may stand: it is sent again under its number."""


CONNECT_S = 2.0
"""Timeout in seconds for connecting."""
ANSWER_S = 5.0
"""Timeouts of connecting and of an answer, in seconds."""
TRY_FOR_S = 15.0
"""Retry window in seconds while Redis is away."""
BETWEEN_S = 0.1
"""Seconds between two attempts."""
OPTIONS: dict[str, Any] = {
    "decode_responses": True,
    "protocol": 2,
    "socket_connect_timeout": CONNECT_S,
    "socket_timeout": ANSWER_S,
    "max_connections": 1,
}
"""Options of each connection to a server."""
SENTINELS = ("redis+sentinel", "rediss+sentinel")
"""Schemes of URLs that name Sentinels, which name the primary."""
SENTINEL_PORT = "26379"
DEFAULT_PREFIX = "{dragoman}:"
LOST = (redis.ConnectionError, redis.TimeoutError)
"""Errors after which a request may or may not have been done."""
REPLICA = (exceptions.ReadOnlyError, exceptions.MasterDownError)
"""Errors of a server that is no primary any more."""
DEMOTED = ("READONLY", "UNBLOCKED", "is now a slave")
"""Words of the same in errors that the library has no class for, or that a script passes on."""
NO_WRITES = (*DEMOTED, "NOREPLICAS")
"""Words in errors of a server that reads, and writes nothing."""
BUSY = "BUSY "
"""Prefix of errors while a script runs for long."""
FILES = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
"""Options of the URL that name files for TLS, and what the library calls them."""
PROMOTE = "Point store.url at the primary, or make this one the primary again (`REPLICAOF NO ONE`); nothing is lost."
RUNBOOK = "deploy/RUNBOOK.md (A store on Redis) says what Redis needs."


def address_of(url: str) -> tuple[str, str]:
    """Return the URL for the client and the prefix of all keys. Raises `ConfigError`."""
    parts = urlsplit(url)
    options = _options_of(parts.query)
    prefix = options.pop("prefix", "")
    of_sentinels = sentinels.OPTIONS if parts.scheme in SENTINELS else ()
    if unknown := sorted(set(options) - {"db", *FILES, *of_sentinels}):
        raise ConfigError(
            f"The store's URL has an unknown option: {', '.join(unknown)}.",
            cure="Use `redis://user:password@host:port/0`, with `?prefix=` where several gateways share a Redis, and "
            "`rediss://` with `?ca=FILE`, `&cert=FILE` and `&key=FILE` for TLS. With Sentinels: "
            "`redis+sentinel://user:password@one:26379,two:26379/name`, with `?sentinel_user=`, `&sentinel_password=` "
            "and `&sentinel_tls=no` for the Sentinels themselves.",
        )
    _check_tls(parts.scheme, options.get(sentinels.TLS))
    for name, option in FILES.items():
        if (file := options.pop(name, None)) is not None:
            _check_file(name, file, parts.scheme)
            options[option] = file
    plain = urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(options, quote_via=quote), ""))
    return plain, f"{{{prefix}}}:" if prefix else DEFAULT_PREFIX


def _options_of(query: str) -> dict[str, str]:
    """Return the options of a URL. A plus is a plus, in passwords too."""
    return dict(parse_qsl(query.replace("+", "%2B")))


def _check_tls(scheme: str, of_sentinels: str | None) -> None:
    if of_sentinels is not None and not scheme.startswith("rediss"):
        raise ConfigError(
            f"The store's URL has `{sentinels.TLS}` and no TLS.", cure="Begin it with `rediss+sentinel://`."
        )
    if of_sentinels not in (None, "yes", "no"):
        raise ConfigError(
            f"The store's URL has `{sentinels.TLS}={of_sentinels}`.", cure="Write `yes` or `no`; `yes` is the default."
        )


def _check_file(name: str, file: str, scheme: str) -> None:
    if not scheme.startswith("rediss"):
        raise ConfigError(f"The store's URL has `{name}=` and no TLS.", cure="Begin it with `rediss://`.")
    if not os.path.isfile(file):
        raise ConfigError(f"The store's URL names a file that is not there: {name}={file}.", cure="Correct its path.")


def shown(url: str) -> str:
    """Return a URL without its password and options."""
    return without_password(url).partition("?")[0]


class Line:
    """Connection of a thread that must know when it is a new one: the library makes one without a word."""

    def __init__(self) -> None:
        """Begin without a connection."""
        self.is_cut = True
        """True if a new connection may be made: its thread then checks which server it reached."""

    def made(self, connection: Any) -> None:
        """Take a new connection. Raises `redis.ConnectionError` when the thread does not know of the end of the old."""
        if not self.is_cut:
            raise redis.ConnectionError("the connection was cut")
        connection.on_connect()


def connect(url: str, line: Line | None = None) -> redis.Redis:
    """Return a client with one connection, made at the first command. Raises `ConfigError` for a wrong URL."""
    options = OPTIONS if line is None else OPTIONS | {"redis_connect_func": line.made}
    try:
        if urlsplit(url).scheme in SENTINELS:
            return _through_sentinels(url, options)
        return redis.Redis.from_url(  # pyright: ignore[reportUnknownMemberType] - untyped in the library
            url, retry=Retry(NoBackoff(), 0), **options
        )
    except ValueError as error:
        raise ConfigError(
            f"The store's URL {shown(url)} is wrong: {error}.", cure="Use `redis://user:password@host:port/0`."
        ) from None


def _through_sentinels(url: str, given: dict[str, Any]) -> redis.Redis:
    """Return a client of the primary that the Sentinels name, asked for it at each connection."""
    parts = urlsplit(url)
    signing_in, _, places = parts.netloc.rpartition("@")
    user, _, password = (unquote(one) for one in signing_in.partition(":"))
    options = _options_of(parts.query)
    database = int(options.pop("db", "0"))
    to_them: dict[str, Any] = {"socket_connect_timeout": CONNECT_S, "socket_timeout": CONNECT_S, "protocol": 2}
    to_them |= {name: options.pop(key) for key, name in sentinels.SIGN_IN.items() if key in options}
    has_tls = parts.scheme.startswith("rediss")
    if options.pop(sentinels.TLS, "yes") == "yes" and has_tls:
        to_them |= {"ssl": True, **options}
    hosts = [_place(one) for one in places.split(",")]
    found: Any = Sentinels(hosts, sentinel_kwargs={**to_them, "retry": Retry(NoBackoff(), 0)})
    return found.master_for(
        parts.path.removeprefix("/"),
        ssl=has_tls,
        db=database,
        username=user or None,
        password=password or None,
        retry=Retry(NoBackoff(), 0),
        **options,
        **given,
    )


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":") if re.search(r":\d+$", text) else (text, "", SENTINEL_PORT)
    return host.strip("[]"), int(port)


def failure(error: redis.RedisError, url: str) -> StoreError:
    """Return the error for the caller."""
    text = _text_of(error)
    if isinstance(error, NoPrimary):
        kind = StoreAway if error.may_pass else StoreError
        return kind(f"No Sentinel names the primary of Redis at {shown(url)}: {text}.", cure=error.cure)
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
    return _refused(error, url) or _away(error, url)


def _refused(error: redis.RedisError, url: str) -> StoreError | None:
    """Return the error for a server that answers, but does not work; None for one that does not answer."""
    text, where = _text_of(error), f"Redis at {shown(url)}"
    if isinstance(error, exceptions.OutOfMemoryError):
        return StoreFull(f"{where} is full: {text}.", cure="Give Redis more memory (maxmemory); the daemon goes on.")
    if isinstance(error, REPLICA) or any(word in text for word in DEMOTED):
        return StoreAway(f"{where} is a replica.", cure=PROMOTE)
    if isinstance(error, exceptions.BusyLoadingError):
        return StoreAway(f"{where} reads its data from its disk after a start.", cure="Wait: work goes on by itself.")
    if text.startswith(BUSY):
        cure = "Wait, or end it with `SCRIPT KILL`; work goes on by itself."
        return StoreAway(f"{where} runs a script of somebody else for long: {text.rstrip('.')}.", cure=cure)
    if "number of clients" in text:
        cure = "Raise `maxclients` in redis.conf, or end other clients."
        return StoreAway(f"{where} takes no more connections: {text}.", cure=cure)
    if "NOREPLICAS" in text:
        cure = "Start the replicas, or lower min-replicas-to-write in redis.conf; nothing is lost."
        return StoreAway(f"{where} takes no writes: too few replicas are linked to it.", cure=cure)
    if "MISCONF" in text:
        cure = "Free space on the disk of Redis; its log names the reason. The daemon goes on by itself."
        return StoreError(f"{where} cannot write to its disk: {text}.", cure=cure)
    return None if isinstance(error, LOST) else StoreError(f"{where} failed: {text}.", cure=RUNBOOK)


def _away(error: redis.RedisError, url: str) -> StoreError:
    if isinstance(error, TooFewReplicas):
        cure = "Start the replicas, or lower store.replicas; nothing is lost."
        return StoreAway(f"Redis at {shown(url)} has too few replicas: {error}.", cure=cure)
    return StoreAway(f"Redis at {shown(url)} does not answer: {error}.", cure="Start Redis, or correct the URL.")


def _text_of(error: redis.RedisError) -> str:
    """Return the server's message, without the place in a script."""
    return re.sub(r"\.? script: [0-9a-f]{40}, on @.*", "", str(error))


def refuses_writes(error: redis.RedisError) -> bool:
    """Return whether only what writes fails: reads are answered meanwhile."""
    return isinstance(error, (*REPLICA, TooFewReplicas)) or any(word in str(error) for word in NO_WRITES)


def _right_for(text: str) -> str:
    """Return the command that gives a user its missing right."""
    found = re.search(r"'([a-z|]+)'", text)
    if found:
        return f"Give it the right `+{found[1]}`. {RUNBOOK}"
    what = "channels `&{dragoman}:*`" if "channel" in text else "keys `~{dragoman}:*`"
    return f"Allow it the {what}, or those of its prefix. {RUNBOOK}"


def until_answered(
    command: Callable[[], T], *, is_closed: Callable[[], bool], before_again: Callable[[redis.RedisError], None]
) -> T:
    """Call a command that may be repeated, until Redis answers or has been away for too long.

    `before_again`: called before each repetition. The next connection may be to another server.
    """
    deadline = time.monotonic() + TRY_FOR_S
    while True:
        try:
            return command()
        except redis.RedisError as error:
            if not _is_away(error) or is_closed() or time.monotonic() > deadline:
                raise
            before_again(error)
            time.sleep(BETWEEN_S)


def _is_away(error: redis.RedisError) -> bool:
    return isinstance(error, LOST) or refuses_writes(error) or str(error).startswith(BUSY)


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
