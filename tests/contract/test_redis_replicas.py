"""Replicas of a Redis: with `replicas = 1` nothing is acknowledged that a replica has not got."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import redis

from gateway.domain.durability import Durability, StoreTerms
from gateway.domain.ids import SessionId
from gateway.domain.messages import Received
from gateway.domain.waits import StartOutcome, WaitState
from gateway.errors import StoreError
from gateway.store.redis import RedisStore, open_redis
from gateway.store.redis.checks import Found
from gateway.store.redis.connection import TooFewReplicas
from gateway.store.redis.replicas import WAIT_MS, WaitCommand, waits_for
from tests.contract.scene import Scene
from tests.support.clock import FakeClock
from tests.support.makers import route
from tests.support.ports import free_port
from tests.support.ram import ram
from tests.support.redis_server import RedisServer, asked, until_linked

ONE = StoreTerms(replicas=1)
LEAST = "CONFIG SET min-replicas-to-write"


@asynccontextmanager
async def _pair() -> AsyncGenerator[tuple[RedisServer, RedisServer]]:
    """A server and its replica, linked."""
    with (
        TemporaryDirectory(dir=ram()) as folder,
        RedisServer(Path(folder, "first")) as first,
        first.replica(Path(folder, "second")) as second,
    ):
        until_linked(second.port)
        yield first, second


@asynccontextmanager
async def _store(url: str, clock: FakeClock) -> AsyncGenerator[RedisStore]:
    store = open_redis(url, clock, ONE)
    try:
        yield store
    finally:
        await store.close()


async def test_a_write_waits_for_its_replica(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that no replica has is not acknowledged; sent again under its number, it is done once."""
    monkeypatch.setattr("gateway.store.redis.replicas.WAIT_MS", 50)
    async with _pair() as (first, second), _store(first.url, clock) as store:
        scene, opened = Scene(store, clock), redis.Redis
        await scene.say("before")
        replica: Any = opened(port=second.port)
        with replica:
            second.pause()
            said = asyncio.create_task(scene.say("meanwhile"))
            await asyncio.sleep(0.4)
            assert not said.done()
            second.resume()
            await said
            assert [one.message.text for one in await scene.items(Received)] == ["before", "meanwhile"]
            assert int(replica.get("{dragoman}:rev")) >= 2
        monkeypatch.setattr("gateway.store.redis.connection.TRY_FOR_S", 0.2)
        second.kill()
        with pytest.raises(StoreError, match="0 of 1 replicas have") as refused:
            await scene.say("alone")
        assert "store.replicas" in refused.value.cure


@pytest.mark.parametrize(
    ("refuses", "allows", "says", "cure"),
    [
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "is a replica", "the primary"),
        (f"{LEAST} 1", f"{LEAST} 0", "too few", "min-replicas-to-write"),
    ],
    ids=["READONLY", "NOREPLICAS"],
)
async def test_a_server_that_takes_no_writes_is_waited_for(
    refuses: str, allows: str, says: str, cure: str, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later messages are stored once it takes writes again. After a time the cure is named; nothing is lost."""
    with RedisServer(tmp_path / "redis") as server:
        store = open_redis(server.url, clock)
        scene = Scene(store, clock)
        await scene.say("before")
        assert asked(server.port, refuses).startswith(b"+OK")
        said = asyncio.create_task(scene.say("meanwhile"))
        await asyncio.sleep(0.4)
        assert not said.done()
        assert store.waits_for is not None
        assert (says in store.waits_for.message, cure in store.waits_for.cure) == (True, True)
        asked(server.port, allows)
        await said
        assert store.waits_for is None
        monkeypatch.setattr("gateway.store.redis.connection.TRY_FOR_S", 0.2)
        asked(server.port, refuses)
        with pytest.raises(StoreError, match=says) as refused:
            await scene.say("refused")
        assert cure in refused.value.cure
        await store.counts()
        assert await store.reclaim() == 0
        assert store.waits_for is not None  # reads are answered, and what writes nothing
        asked(server.port, allows)
        await scene.say("after")
        assert store.waits_for is None
        assert [one.message.text for one in await scene.items(Received)] == ["before", "meanwhile", "after"]
        await store.close()


async def test_a_server_that_runs_another_script_is_waited_for(clock: FakeClock, tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis", "--busy-reply-threshold", "50") as server:
        store = open_redis(server.url, clock)
        scene = Scene(store, clock)
        await scene.say("before")
        endless = asyncio.create_task(asyncio.to_thread(asked, server.port, 'EVAL "while true do end" 0'))
        await asyncio.sleep(0.3)
        said = asyncio.create_task(scene.say("meanwhile"))
        await asyncio.sleep(0.3)
        assert not said.done()
        assert store.waits_for is not None
        assert "SCRIPT KILL" in store.waits_for.cure
        assert asked(server.port, "SCRIPT KILL").startswith(b"+OK")
        await said
        await endless
        assert [one.message.text for one in await scene.items(Received)] == ["before", "meanwhile"]
        await store.close()


async def test_a_reader_waits_no_longer_than_the_next_write(clock: FakeClock, tmp_path: Path) -> None:
    """A reader writes where it meets another server, and then never again: the writer says that writes are taken."""
    with RedisServer(tmp_path / "redis") as server:
        store = open_redis(server.url, clock)
        scene = Scene(store, clock)
        await scene.say("before")
        await store.counts()
        for command in ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", f"{LEAST} 1"):
            assert asked(server.port, command).startswith(b"+OK")
        asked(server.port, "CLIENT KILL TYPE normal")
        counted = asyncio.create_task(store.counts())
        await asyncio.sleep(0.4)
        assert (counted.done(), store.waits_for is None) == (False, False)
        asked(server.port, f"{LEAST} 0")
        await counted
        await scene.say("after")
        assert store.waits_for is None
        await store.close()


@pytest.mark.parametrize(
    ("version", "durability", "command"),
    [
        ((7, 2), Durability.ALWAYS, ("WAITAOF", 1, 2)),
        ((7, 0), Durability.ALWAYS, ("WAIT", 2)),
        ((8, 0), Durability.ONE_SECOND, ("WAIT", 2)),
    ],
)
def test_newer_servers_wait_for_the_disk_of_replicas(
    version: tuple[int, int], durability: Durability, command: tuple[str | int, ...]
) -> None:
    """As far as the server promises its own."""
    found = Found(time=(0, 0), version=version, durability=durability)
    assert waits_for(0, found) is None
    waiting = waits_for(2, found)
    assert waiting is not None
    assert waiting.command == (*command, WAIT_MS)


def test_a_wait_that_too_few_answered_is_an_error() -> None:
    waiting = WaitCommand(2, on_disk=True)
    waiting.check([1, 2])
    for short in ([1, 1], [0, 2]):
        with pytest.raises(TooFewReplicas):
            waiting.check(short)
    with pytest.raises(TooFewReplicas):
        WaitCommand(2, on_disk=False).check(1)


# --- promotions -----------------------------------------------------------------------------------


def _rev(server: RedisServer) -> int:
    """The server's counter of revisions."""
    client: Any = redis.Redis(port=server.port)
    with client:
        return int(client.get("{dragoman}:rev"))


def _copy(first: RedisServer) -> None:
    """Wait until the replica has all that was written before."""
    primary: Any = redis.Redis(port=first.port)
    with primary:
        primary.set("theirs", "1")
        assert primary.wait(1, 10_000) >= 1


def _promote(first: RedisServer, second: RedisServer) -> None:
    """The primary dies, its replica takes over under its address."""
    _copy(first)
    first.kill()
    second.take_over(first.port)


async def test_a_promotion_without_replicas_voids_approvals(clock: FakeClock) -> None:
    """A node that is gone may have used approvals that the new primary does not know."""
    async with _pair() as (first, second):
        store = open_redis(first.url, clock)
        scene = Scene(store, clock)
        asked = await scene.parked()
        await scene.press(asked.wait)
        _promote(first, second)
        await scene.say("later", to=route(SessionId("chat:later")))
        assert await scene.wait_state(asked.wait) is WaitState.SUPERSEDED
        loss = await store.tell_loss({})
        assert loss is not None
        assert "nobody knows how many" in loss.sentence
        await store.close()


async def test_a_replica_that_took_over_and_restarted_lost(clock: FakeClock) -> None:
    """Its history says nothing of the promotion any more, and who used the approval died with the primary."""
    async with _pair() as (first, second):
        store = open_redis(first.url, clock)
        scene = Scene(store, clock)
        asked = await scene.parked()
        await scene.press(asked.wait)
        first.restart()  # its replica copies all of it then, as from the disk
        until_linked(second.port)
        await scene.say("after a restart", to=route(SessionId("chat:first")))
        _copy(first)
        second.follow(free_port())
        assert await scene.start(await scene.claim(), 1, asked.wait) is StartOutcome.STARTED
        await store.close()
        first.kill()
        second.take_over(first.port)
        second.restart()
        store = open_redis(first.url, clock)
        scene = Scene(store, clock)
        await scene.say("later", to=route(SessionId("chat:later")))
        assert await scene.wait_state(asked.wait) is WaitState.SUPERSEDED
        assert await store.tell_loss({}) is not None
        await store.close()


@pytest.mark.parametrize("restarts", [False, True], ids=["it was a replica", "it restarted"])
async def test_a_server_that_comes_back_itself_voids_nothing(clock: FakeClock, *, restarts: bool) -> None:
    """It had a replica, which did not take over: nobody knows more than it does."""
    async with _pair() as (first, _):
        store = open_redis(first.url, clock)
        scene = Scene(store, clock)
        asked = await scene.parked()
        await scene.press(asked.wait)
        _copy(first)
        async with asyncio.TaskGroup() as group:
            if restarts:
                first.restart()
            else:
                first.follow(free_port())
                group.create_task(scene.say("meanwhile", to=route(SessionId("chat:other"))), name="people")
                await asyncio.sleep(0.2)
                first.lead()
        await scene.say("later", to=route(SessionId("chat:later")))
        assert await scene.wait_state(asked.wait) is WaitState.APPROVED
        assert await store.tell_loss({}) is None
        await store.close()


@pytest.mark.parametrize(
    ("weak", "value", "mends"),
    [("appendonly", "no", "yes"), ("maxmemory-policy", "allkeys-lru", "noeviction")],
)
async def test_a_replica_with_weaker_settings_is_refused(
    weak: str, value: str, mends: str, clock: FakeClock, tmp_path: Path
) -> None:
    """It took over, and would lose what it acknowledges; a daemon that starts refuses it too. Mended, it is used."""
    with RedisServer(tmp_path / "first") as first, first.replica(tmp_path / "second", f"--{weak}", value) as second:
        until_linked(second.port)
        store = open_redis(first.url, clock)
        scene = Scene(store, clock)
        await scene.say("before")
        _promote(first, second)
        for asks in (store.probe, store.counts):
            with pytest.raises(StoreError, match=f"{weak} is {value}") as refused:
                await asks()
            assert f"`{weak} {mends}`" in refused.value.cure
        assert asked(second.port, f"CONFIG SET {weak} {mends}").startswith(b"+OK")
        await scene.say("after")
        assert [one.message.text for one in await scene.items(Received)] == ["before", "after"]
        await store.close()


async def test_terms_follow_a_replica_that_took_over(clock: FakeClock, tmp_path: Path) -> None:
    """The operator accepts the weaker one of two, and is told from when on it is used."""
    accepts = StoreTerms(durability=Durability.ONE_SECOND)
    second = ("--appendfsync", "everysec")
    with RedisServer(tmp_path / "a") as first, first.replica(tmp_path / "b", *second) as other:
        until_linked(other.port)
        store = open_redis(first.url, clock, accepts)
        await store.probe()
        assert store.terms.durability is Durability.ALWAYS
        _promote(first, other)
        await store.probe()
        assert store.terms.durability is Durability.ONE_SECOND
        await store.close()


async def test_a_first_replica_is_no_restart(clock: FakeClock, tmp_path: Path) -> None:
    """The history of its server begins anew with it, as by a restart, which loses something with these settings."""
    may_lose = StoreTerms(durability=Durability.ONE_SECOND)
    with RedisServer(tmp_path / "first", "--appendfsync", "everysec") as first:
        store = open_redis(first.url, clock, may_lose)
        scene = Scene(store, clock)
        asked_for = await scene.parked()
        await scene.press(asked_for.wait)
        before = asked(first.port, "INFO replication").partition(b"master_replid:")[2][:40]
        with first.replica(tmp_path / "second") as second:
            until_linked(second.port)
            assert before not in asked(first.port, "INFO replication")
            asked(first.port, "CLIENT KILL TYPE normal")
            await scene.say("later", to=route(SessionId("chat:later")))
            assert await store.tell_loss({}) is None
            assert await scene.wait_state(asked_for.wait) is WaitState.APPROVED
        first.restart()
        await scene.say("after a restart", to=route(SessionId("chat:later")))
        assert await store.tell_loss({}) is not None
        await store.close()


async def test_a_loss_that_a_reader_notices_is_counted(clock: FakeClock) -> None:
    """The thread that reads meets the promoted server first; what was lost, the one that writes was told of."""
    async with _pair() as (first, second):
        store = open_redis(first.url, clock)
        scene = Scene(store, clock)
        await scene.say("kept")
        await store.counts()
        _copy(first)
        second.follow(free_port())
        kept = _rev(second)
        await scene.say("lost")
        told = _rev(first)
        first.kill()
        second.take_over(first.port)
        for _ in range(2):
            await store.counts()
        loss = await store.tell_loss({})
        assert loss is not None
        assert loss.revisions == told - kept > 0
        await store.close()


async def test_a_promotion_of_a_replica_that_has_all_voids_nothing(clock: FakeClock) -> None:
    """Leases are good for as long as one lasts, so that holders that were cut off renew them before they are missed."""
    async with _pair() as (first, second), _store(first.url, clock) as store:
        with second.replica(second.folder / "third") as third:
            until_linked(third.port)
            scene = Scene(store, clock)
            asked = await scene.parked()
            await scene.press(asked.wait)
            lease = await scene.claim()
            _promote(first, second)
            third.follow(first.port)
            await scene.say("later", to=route(SessionId("chat:later")))
            assert await scene.wait_state(asked.wait) is WaitState.APPROVED
            assert await store.tell_loss({}) is None
            clock.advance(14.9)
            assert await store.reclaim() == 0
            await store.renew(lease)
            clock.advance(15)
            assert await store.reclaim() == 1
