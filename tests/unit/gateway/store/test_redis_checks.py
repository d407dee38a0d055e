"""Start checks of the store on Redis: each weakness is refused, and the error names its cure."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import redis
from redis import exceptions

from gateway.domain.durability import Durability, StoreTerms
from gateway.errors import ConfigError, StoreError, StoreFull, StoreTooNew
from gateway.store import check_store, open_store
from gateway.store.redis.checks import FILLING, SCHEMA, check_server
from gateway.store.redis.connection import RUNBOOK, TooFewReplicas, address_of, failure
from gateway.store.redis.durability import weaker
from gateway.system.clock import SystemClock
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer, certificates

USER = "dragoman"
RIGHTS = "+@read +@write +@scripting +@pubsub +@connection +info +time +config|get"
"""Rights that the store needs of a Redis user; the runbook lists the same."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as started:
        started.share()
        yield started


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    """A client of the server, whose settings are as they were afterwards."""
    opened: Any = redis.Redis(port=server.port, decode_responses=True)
    with opened as found:
        before = found.config_get("append*", "no-appendfsync*", "maxmemory-policy")
        yield found
        for name in ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy"):
            found.config_set(name, before[name])
        found.flushall()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("appendonly", "no"),
        ("appendfsync", "everysec"),
        ("no-appendfsync-on-rewrite", "yes"),
        ("maxmemory-policy", "allkeys-lru"),
    ],
)
def test_a_redis_that_loses_writes_is_refused(server: RedisServer, client: Any, name: str, value: str) -> None:
    client.config_set(name, value)
    with pytest.raises(StoreError, match=f"{name} is {value}") as refused:
        check_store(server.url)
    assert f"`{name} " in refused.value.cure
    assert client.dbsize() == 0


def test_a_check_leaves_nothing_behind(server: RedisServer, client: Any) -> None:
    check_store(server.url)
    assert client.dbsize() == 0


async def test_an_opened_store_is_marked_as_ours(server: RedisServer, client: Any) -> None:
    for _ in range(2):
        store = open_store(server.url, SystemClock())
        await store.probe()
        await store.close()
    assert client.hget("{dragoman}:meta", "schema") == str(SCHEMA)


def test_several_nodes_begin_on_an_empty_redis(server: RedisServer, client: Any) -> None:
    """Whichever marks it as ours, to the others it is no foreign store."""
    with ThreadPoolExecutor(4) as nodes:
        for _ in range(10):
            client.flushall()
            began = Barrier(4)

            def begin(barrier: Barrier = began) -> None:
                barrier.wait()
                check_server(*address_of(server.url), StoreTerms(), begins=True)

            for one in [nodes.submit(begin) for _ in range(4)]:
                one.result()


def test_foreign_keys_under_the_prefix_are_refused(server: RedisServer, client: Any) -> None:
    """Keys of others beside it do not matter."""
    client.set("theirs", "1")
    check_store(server.url)
    client.set("{dragoman}:theirs", "1")
    with pytest.raises(ConfigError, match="not a store of Dragoman") as refused:
        check_store(server.url)
    assert "`?prefix=`" in refused.value.cure
    check_store(f"{server.url}?prefix=second")


def test_the_store_of_a_newer_version_is_refused(server: RedisServer, client: Any) -> None:
    client.hset("{dragoman}:meta", "schema", SCHEMA + 1)
    with pytest.raises(StoreTooNew, match=f"schema {SCHEMA + 1}"):
        check_store(server.url)


def test_a_half_filled_store_is_refused(server: RedisServer, client: Any) -> None:
    client.hset("{dragoman}:meta", mapping={"schema": 1, FILLING: "1"})
    with pytest.raises(StoreError, match=f"{server.url} is half filled: a copy into it") as refused:
        check_store(server.url)
    assert "it restarts" in refused.value.cure


REFUSED, CORRECT = "refuses this user: ", "Correct user and password in store.url."
PROMOTE = "Point store.url at the primary, or make this one the primary again (`REPLICAOF NO ONE`); nothing is lost."


@pytest.mark.parametrize(
    ("error", "said", "cure"),
    [
        (
            exceptions.OutOfMemoryError("OOM"),
            "is full: OOM.",
            "Give Redis more memory (maxmemory); the daemon goes on.",
        ),
        (
            exceptions.OutOfMemoryError(f"no room. script: {40 * 'e'}, on @user_script:117."),
            "is full: no room.",
            "Give Redis more memory (maxmemory); the daemon goes on.",
        ),
        (redis.ConnectionError("gone"), "does not answer: gone.", "Start Redis, or correct the URL."),
        (
            TooFewReplicas("1 of 2"),
            "has too few replicas: 1 of 2.",
            "Start the replicas, or lower store.replicas; nothing is lost.",
        ),
        (
            redis.ConnectionError("SSL: bad"),
            "cannot be reached through TLS: SSL: bad.",
            "Name the authority of its certificate with `?ca=FILE`, and your own with `&cert=FILE&key=FILE`.",
        ),
        (redis.AuthenticationError("no"), f"{REFUSED}no.", CORRECT),
        (
            exceptions.NoPermissionError("run the 'mget' command"),
            f"{REFUSED}run the 'mget' command.",
            f"Give it the right `+mget`. {RUNBOOK}",
        ),
        (
            exceptions.NoPermissionError("one of the channels"),
            f"{REFUSED}one of the channels.",
            f"Allow it the channels `&{{dragoman}}:*`, or those of its prefix. {RUNBOOK}",
        ),
        (
            redis.ResponseError("ACL failure in script: one of the keys"),
            f"{REFUSED}ACL failure in script: one of the keys.",
            f"Allow it the keys `~{{dragoman}}:*`, or those of its prefix. {RUNBOOK}",
        ),
        (
            redis.ResponseError("DB index is out of range"),
            "has no such database: DB index is out of range.",
            "Correct the number at the end of store.url, or raise `databases` in redis.conf.",
        ),
        (
            exceptions.BusyLoadingError("Redis is loading the dataset in memory"),
            "reads its data from its disk after a start.",
            "Wait: work goes on by itself.",
        ),
        (
            redis.ConnectionError("max number of clients reached"),
            "takes no more connections: max number of clients reached.",
            "Raise `maxclients` in redis.conf, or end other clients.",
        ),
        (
            redis.ResponseError("BUSY Redis is busy running a script."),
            "runs a script of somebody else for long: BUSY Redis is busy running a script.",
            "Wait, or end it with `SCRIPT KILL`; work goes on by itself.",
        ),
        (exceptions.ReadOnlyError("You can't write"), "is a replica.", PROMOTE),
        (redis.ResponseError("UNBLOCKED force unblock, instance state changed"), "is a replica.", PROMOTE),
        (redis.ConnectionError("The previous master is now a slave"), "is a replica.", PROMOTE),
        (exceptions.MasterDownError("Link with MASTER is down"), "is a replica.", PROMOTE),
        (
            redis.ResponseError("MISCONF Errors writing to the AOF file: No space left on device"),
            "cannot write to its disk: MISCONF Errors writing to the AOF file: No space left on device.",
            "Free space on the disk of Redis; its log names the reason. The daemon goes on by itself.",
        ),
        (redis.ResponseError("what"), "failed: what.", RUNBOOK),
    ],
)
def test_each_failure_names_server_and_cure(error: redis.RedisError, said: str, cure: str) -> None:
    found = failure(error, "redis://nobody:secret@here:1/0")
    assert found.message.startswith("Redis at redis://")
    assert found.message.endswith(f"here:1/0 {said}")
    assert "secret" not in found.message
    assert found.cure == cure


def test_a_replica_is_refused(server: RedisServer, client: Any) -> None:
    client.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(StoreError, match="is a replica") as refused:
            check_store(server.url)
        assert refused.value.cure == PROMOTE
    finally:
        client.replicaof("NO", "ONE")


def test_a_wrong_password_is_refused(server: RedisServer, client: Any) -> None:
    """No password stands in the error."""
    url = server.url.replace("127.0.0.1", "nobody:wrong-password@127.0.0.1")
    with pytest.raises(StoreError, match="refuses this user") as refused:
        check_store(url)
    assert "wrong-password" not in f"{refused.value} {refused.value.cure}"
    assert client.ping()


async def test_a_user_with_the_named_rights_suffices(server: RedisServer, client: Any) -> None:
    client.execute_command("ACL", "SETUSER", USER, "on", ">secret", "~{dragoman}:*", "&{dragoman}:*", *RIGHTS.split())
    store = open_store(server.url.replace("127.0.0.1", f"{USER}:secret@127.0.0.1"), SystemClock())
    await store.probe()
    assert (await store.counts()).queued_turns == 0
    await store.close()
    client.execute_command("ACL", "DELUSER", USER)


def test_a_missing_right_is_named(server: RedisServer, client: Any) -> None:
    client.execute_command("ACL", "SETUSER", USER, "on", ">secret", "~{dragoman}:*", "&{dragoman}:*", "+info", "+time")
    with pytest.raises(StoreError, match="config") as refused:
        check_store(server.url.replace("127.0.0.1", f"{USER}:secret@127.0.0.1"))
    assert "secret" not in str(refused.value)
    client.execute_command("ACL", "DELUSER", USER)


@pytest.mark.parametrize("command", ["publish", "zadd", "mset", "subscribe", "mget", "eval"])
def test_each_missing_right_is_named(server: RedisServer, client: Any, command: str) -> None:
    """At the start, not in the first turn that needs it."""
    rights = [*RIGHTS.split(), f"-{command}"]
    client.execute_command("ACL", "SETUSER", USER, "on", ">secret", "~{dragoman}:*", "&{dragoman}:*", *rights)
    try:
        with pytest.raises(StoreError, match=command) as refused:
            check_store(server.url.replace("127.0.0.1", f"{USER}:secret@127.0.0.1"))
        assert f"`+{command}`" in refused.value.cure
        assert client.dbsize() == 0
    finally:
        client.execute_command("ACL", "DELUSER", USER)


def test_a_full_redis_is_refused_at_the_start(server: RedisServer, client: Any) -> None:
    client.config_set("maxmemory", "1mb")
    try:
        with pytest.raises(StoreFull, match="is full"):
            check_store(server.url)
    finally:
        client.config_set("maxmemory", "0")


def test_a_database_that_is_not_there_is_named(server: RedisServer) -> None:
    with pytest.raises(StoreError, match="no such database") as refused:
        check_store(f"redis://127.0.0.1:{server.port}/99999")
    assert "`databases`" in refused.value.cure


async def test_a_store_is_opened_through_tls(tmp_path: Path) -> None:
    """With the authority and a client's certificate; without either, the error says what is missing."""
    files, port = certificates(tmp_path), free_port()
    tls = ("--tls-port", str(port), "--tls-cert-file", str(files["cert"]), "--tls-key-file", str(files["key"]))
    with RedisServer(tmp_path, *tls, "--tls-ca-cert-file", str(files["cert"])):
        url = f"rediss://localhost:{port}/0?ca={files['cert']}"
        store = open_store(f"{url}&cert={files['cert']}&key={files['key']}", SystemClock())
        await store.probe()
        assert (await store.counts()).queued_turns == 0
        await store.close()
        with pytest.raises(StoreError, match="TLS") as refused:
            check_store(f"rediss://localhost:{port}/0")
        assert "?ca=FILE" in refused.value.cure
        with pytest.raises(StoreError):
            check_store(url)


@pytest.mark.parametrize(
    ("scheme", "end", "said", "cure"),
    [("redis", "", "no TLS", "Begin it with `rediss://`."), ("rediss", "x", "not there", "Correct its path.")],
)
def test_files_of_tls_are_checked(tmp_path: Path, scheme: str, end: str, said: str, cure: str) -> None:
    (file := tmp_path / "ca.pem").write_text("")
    with pytest.raises(ConfigError, match=said) as refused:
        check_store(f"{scheme}://127.0.0.1:1/0?ca={file}{end}")
    assert refused.value.cure == cure


def test_a_redis_that_is_not_there_is_named(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)  # never started
    with pytest.raises(StoreError, match=f"redis://127.0.0.1:{server.port}/0 does not answer") as refused:
        open_store(server.url, SystemClock())
    assert "Start Redis" in refused.value.cure


@pytest.mark.parametrize("option", ["?ssl=1", "?prefix=a&timeout=3"])
def test_an_unknown_option_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match="unknown option"):
        open_store(f"redis://127.0.0.1:1/0{option}", SystemClock())


# --- what it knows when it comes back -----------------------------------------------------------


@pytest.mark.parametrize(
    ("durability", "replicas", "restarted", "took_over", "both"),
    [
        (Durability.ALWAYS, 0, True, False, False),
        (Durability.ALWAYS, 1, True, True, True),
        (Durability.ONE_SECOND, 0, False, False, False),
        (Durability.ONE_SECOND, 1, False, True, False),
        (Durability.NONE, 1, False, True, False),
        (None, 0, False, False, False),
    ],
)
def test_a_server_that_comes_back_keeps_what_it_promised(
    durability: Durability | None, replicas: int, *, restarted: bool, took_over: bool, both: bool
) -> None:
    """One that took over and restarted keeps what both leave."""
    terms = StoreTerms(durability=durability, replicas=replicas)
    assert terms.keeps(restarted=False, took_over=False)
    assert terms.keeps(restarted=True, took_over=False) is restarted
    assert terms.keeps(restarted=False, took_over=True) is took_over
    assert terms.keeps(restarted=True, took_over=True) is both


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        (Durability.ALWAYS, Durability.ALWAYS, Durability.ALWAYS),
        (Durability.ALWAYS, Durability.ONE_SECOND, Durability.ONE_SECOND),
        (Durability.NONE, Durability.ALWAYS, Durability.NONE),
        (None, Durability.ALWAYS, Durability.ALWAYS),
    ],
)
def test_weaker_of_two_durabilities_counts(before: Durability | None, now: Durability, found: Durability) -> None:
    assert weaker(before, now) is found


# --- what it may lose, and its replicas ---------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "promise"),
    [
        ({}, Durability.ALWAYS),
        ({"appendfsync": "everysec"}, Durability.ONE_SECOND),
        ({"appendfsync": "no"}, Durability.NONE),
        ({"appendonly": "no"}, Durability.NONE),
        ({"no-appendfsync-on-rewrite": "yes"}, Durability.NONE),
    ],
)
async def test_a_weak_redis_is_used_where_that_is_written(
    server: RedisServer, client: Any, settings: dict[str, str], promise: Durability
) -> None:
    """As far as it is written; what the store says is what the server has."""
    for name, value in settings.items():
        client.config_set(name, value)
    for written in Durability:
        terms = StoreTerms(durability=written)
        if list(Durability).index(written) >= list(Durability).index(promise):
            assert check_store(server.url, terms) is promise
        else:
            with pytest.raises(StoreError, match="may lose") as refused:
                check_store(server.url, terms)
            assert f'durability = "{promise}"' in refused.value.cure
    store = open_store(server.url, SystemClock(), StoreTerms(durability=promise))
    assert store.terms.durability is promise
    assert bool(store.terms.warning) is (promise is not Durability.ALWAYS)
    await store.close()


def test_eviction_is_refused_whatever_is_written(server: RedisServer, client: Any) -> None:
    client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(StoreError, match="maxmemory-policy is allkeys-lru"):
        check_store(server.url, StoreTerms(durability=Durability.NONE))


def test_operators_durability_holds_where_redis_does_not_say(server: RedisServer, client: Any) -> None:
    rights = [*RIGHTS.split(), "-config"]
    client.execute_command("ACL", "SETUSER", USER, "on", ">secret", "~{dragoman}:*", "&{dragoman}:*", *rights)
    url = server.url.replace("127.0.0.1", f"{USER}:secret@127.0.0.1")
    try:
        with pytest.raises(StoreError, match="does not say whether it loses writes: ") as refused:
            check_store(url)
        assert refused.value.cure == (
            "Allow this user the command CONFIG GET, or write into [store] what it promises: "
            'durability = "always", "one-second" or "none".'
        )
        assert check_store(url, StoreTerms(durability=Durability.ONE_SECOND)) is Durability.ONE_SECOND
    finally:
        client.execute_command("ACL", "DELUSER", USER)


def test_missing_replicas_are_named(server: RedisServer, client: Any) -> None:
    with pytest.raises(StoreError, match="has 0 replicas") as refused:
        check_store(server.url, StoreTerms(replicas=1))
    assert "Start the replicas" in refused.value.cure
    assert client.dbsize() == 0
