"""A Redis that lost what it had acknowledged, or was emptied, while nodes work on it: they notice, and say so."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from gateway.domain.audit import StartBasis
from gateway.domain.durability import STRICT, NotedStore, Reached
from gateway.domain.ids import SessionId, mint
from gateway.domain.messages import Received
from gateway.domain.steps import StepState
from gateway.domain.turns import LIFE_BITS, TurnState
from gateway.domain.waits import PressResult, StartOutcome, WaitState
from gateway.errors import LeaseLost, StoreError
from gateway.store.kernel import losses
from gateway.store.redis import RedisStore, open_redis
from gateway.store.redis.checks import life_at
from gateway.store.redis.clock import ServerClock
from gateway.store.redis.connection import Line, address_of
from gateway.store.redis.life import JUMP, Life, Lives, SharedKnowledge, life_of
from tests.contract.scene import NODE, OTHER_NODE, Asked, Scene
from tests.support.clock import FakeClock
from tests.support.makers import ANN, ANN_TELEGRAM, route
from tests.support.proof import figure
from tests.support.redis_server import RedisServer

OWNERS = {ANN: [ANN_TELEGRAM]}


class World:
    """Two nodes on one store, whose server forgets on demand."""

    def __init__(self, server: RedisServer, clock: FakeClock) -> None:
        self.name, self.server = mint("loss"), server
        self.url, self.clock = f"{server.url}?prefix={self.name}", clock
        self.client: Any = redis.Redis(port=server.port)
        self.opened: list[RedisStore] = []

    def node(self) -> Scene:
        self.opened.append(open_redis(self.url, self.clock))
        return Scene(self.opened[-1], self.clock)

    def keys(self) -> list[bytes]:
        return list(self.client.scan_iter(match=f"{{{self.name}}}:*", count=1000))

    def empty(self) -> None:
        for key in self.keys():
            self.client.delete(key)

    def copied(self) -> Callable[[], None]:
        """Return what makes the server as it is now, as a replica that lags is when it is promoted."""
        kept = {key: self.client.dump(key) for key in self.keys()}

        def back() -> None:
            self.empty()
            for key, value in kept.items():
                self.client.restore(key, 0, value)

        return back

    def saved(self) -> Callable[[], None]:
        """Return what starts the server anew with the disk that it has now. It must be no shared one."""
        folder = self.server.folder
        kept = shutil.copytree(folder, folder.with_name("kept"))

        def back() -> None:
            self.server.kill()
            shutil.rmtree(folder)
            kept.rename(folder)
            self.server.start()

        return back

    @property
    def life(self) -> Life:
        return life_at(*address_of(self.url))

    @property
    def rev(self) -> int:
        return int(self.client.get(f"{{{self.name}}}:rev"))


@asynccontextmanager
async def world_on(server: RedisServer, clock: FakeClock) -> AsyncGenerator[World]:
    made = World(server, clock)
    yield made
    for store in made.opened:
        await store.close()
    made.client.close()


@pytest.fixture
async def world(redis_server: RedisServer, clock: FakeClock) -> AsyncIterator[World]:
    async with world_on(redis_server, clock) as made:
        yield made


@pytest.fixture
async def world_alone(tmp_path: Path, clock: FakeClock) -> AsyncIterator[World]:
    with RedisServer(tmp_path / "redis") as server:
        async with world_on(server, clock) as made:
            yield made


async def approved_and_run(scene: Scene, asked: Asked) -> None:
    """Approve a call; another node runs it under that approval."""
    assert (await scene.press(asked.wait)).result is PressResult.APPROVED
    assert await scene.start(await scene.claim(OTHER_NODE), 1, asked.wait) is StartOutcome.STARTED


async def test_an_approval_that_was_used_is_not_used_again(world: World) -> None:
    """The server lost the start of the call, and the node that ran it is gone; another one notices."""
    one, other = world.node(), world.node()
    asked = await one.parked()
    await one.press(asked.wait)
    back, rev = world.copied(), world.rev
    assert await one.start(await other.claim(OTHER_NODE), 1, asked.wait) is StartOutcome.STARTED
    told = world.rev
    back()
    await one.say("later", to=route(SessionId("chat:later")))
    state = await one.wait_state(asked.wait)
    figure("F08", "used approvals that a loss made good again", int(state is not WaitState.SUPERSEDED), 0, of=1)
    assert (await one.step(asked.turn, 1)).asked_anew
    assert world.life.number == 1
    assert not world.life.voids
    assert world.rev > told + JUMP
    loss = await other.store.tell_loss(OWNERS)
    assert loss is not None
    assert (loss.life, loss.revisions) == (1, told - rev)


@pytest.mark.parametrize("is_dead", [False, True])
async def test_a_restart_without_the_last_writes_is_a_loss(world_alone: World, *, is_dead: bool) -> None:
    """Its settings promise that it loses nothing. The node that ran the call notices, or one that read of it."""
    world = world_alone
    one, other = world.node(), world.node()
    asked = await one.parked()
    await one.press(asked.wait)
    back, rev = world.saved(), world.rev
    runs = other if is_dead else one
    assert await runs.start(await runs.claim(OTHER_NODE), 1, asked.wait) is StartOutcome.STARTED
    assert await one.wait_state(asked.wait) is WaitState.CONSUMED
    told = world.rev
    if is_dead:
        await other.store.close()
    back()
    await one.say("later", to=route(SessionId("chat:later")))
    assert await one.wait_state(asked.wait) is WaitState.SUPERSEDED
    assert world.life.number == 1
    loss = await one.store.tell_loss(OWNERS)
    assert loss is not None
    least = 1 if is_dead else told - rev  # who only read knows of a part
    assert least <= loss.revisions <= told - rev


async def test_a_node_that_knows_less_hides_no_loss(world_alone: World) -> None:
    """It is the first to meet the server that was restarted, and knows of nothing that is missing."""
    world = world_alone
    one, other = world.node(), world.node()
    await one.say("before")
    await other.store.counts()
    back, rev = world.saved(), world.rev
    await one.say("lost")
    back()
    await other.store.counts()
    assert world.rev == rev
    await one.say("after")
    assert world.life.number == 1


async def test_a_node_that_read_the_last_row_hears_of_a_life(world: World) -> None:
    """Nothing but the life is new to it, and nothing that it writes is."""
    one, other = world.node(), world.node()
    await one.say("first")
    back = world.copied()
    await other.say("lost", to=route(SessionId("chat:lost")))
    back()
    await other.store.probe()
    assert await one.store.get("probe", "probe") == ""
    assert world.life.number == 1
    assert (await one.claim()).fence > 1 << LIFE_BITS


@pytest.mark.parametrize("let_go", [False, True])
async def test_an_allowed_call_that_may_have_run_is_in_doubt(world: World, *, let_go: bool) -> None:
    """It needed no approval; the server lost its start. Its next holder starts it again only where that is harmless."""
    one, other = world.node(), world.node()
    lease = await one.planned(2)
    if let_go:
        await one.store.release(lease)
    back = world.copied()
    if let_go:
        lease = await one.claim()
    assert await one.start(lease, 1) is StartOutcome.STARTED
    back()
    await other.say("later", to=route(SessionId("chat:later")))
    if not world.life.number:  # the other one was told less than what the server has: the holder notices
        with pytest.raises(LeaseLost):
            await one.store.renew(lease)
    assert [(await other.step(lease.turn, n)).state for n in (1, 2)] == [StepState.STARTED] * 2
    claimed = {one.lease.turn: one.lease for one in await other.store.claim(OTHER_NODE, 5)}
    await other.start(claimed[lease.turn], 1)
    assert [row.basis for row in await other.store.audit_rows(0, 9)] == [StartBasis.AGAIN]


async def test_open_approvals_are_asked_again_after_a_loss(world: World) -> None:
    """Their decision was lost: a card in a chat may show it already."""
    one = world.node()
    asked = await one.parked()
    back = world.copied()
    await approved_and_run(one, asked)
    back()
    await one.say("later", to=route(SessionId("chat:later")))
    assert await one.wait_state(asked.wait) is WaitState.SUPERSEDED
    assert await one.state(asked.turn) is TurnState.QUEUED


async def test_a_lease_of_a_lost_life_is_refused(world: World) -> None:
    """Its number was given again to another holder, but for the number of the life."""
    one, other = world.node(), world.node()
    said = await one.say()
    back = world.copied()
    stale = await one.claim()
    back()
    fresh = await other.claim(OTHER_NODE)
    assert fresh.turn == stale.turn == said.turn
    with pytest.raises(LeaseLost):
        await one.store.renew(stale)
    lease = fresh
    if world.life.number:  # whoever noticed first took the lease back
        with pytest.raises(LeaseLost):
            await other.store.renew(fresh)
        lease = await other.claim(OTHER_NODE)
    assert lease.fence > stale.fence
    assert lease.claims == 1
    assert await other.finish(lease)


async def test_a_node_notices_what_it_was_told_itself(world: World) -> None:
    """Others have written so much since that the counter is past what it knows."""
    one, other = world.node(), world.node()
    await other.say("before", to=route(SessionId("chat:other")))
    back = world.copied()
    await one.say("lost")
    back()
    for number in range(5):
        await other.say(str(number), to=route(SessionId("chat:other")))
    assert world.life.number == 0
    await one.say("after")
    assert world.life.number == 1
    assert [received.message.text for received in await one.items(Received)] == ["after"]


async def test_the_owners_are_told_of_a_loss_once(world: World) -> None:
    one, other = world.node(), world.node()
    back = world.copied()
    await one.say()
    back()
    await one.say()
    told = [await scene.store.tell_loss(OWNERS) for scene in (one, other, one)]
    assert told[0] is not None
    assert told == [told[0]] * 3
    texts = [slot.text for slot in await one.store.claim_slots(NODE, ["telegram"], 9)]
    assert texts == [told[0].sentence]


async def test_a_node_that_knows_of_more_counts_a_loss_again(world: World) -> None:
    """The first node to notice knows least. Owners and figures get the rest once another node comes."""
    one, other = world.node(), world.node()
    await one.say("before")
    back, rev = world.copied(), world.rev
    await one.say("lost")
    least = world.rev - rev
    for number in range(3):
        await other.say(str(number), to=route(SessionId("chat:other")))
    every = world.rev - rev
    back()
    await one.say("later")
    first = await one.store.tell_loss(OWNERS)
    await other.say("after", to=route(SessionId("chat:other")))
    again = [await scene.store.tell_loss(OWNERS) for scene in (one, other, one)]
    assert first is not None
    assert again[0] is not None
    assert (first.life, first.revisions, first.every) == (1, least, least)
    assert again == [again[0]] * 3
    assert (again[0].life, again[0].revisions, again[0].every, again[0].at) == (1, every, every, first.at)
    assert again[0].sentence.startswith("Redis lost more than was known: of its last changes at least")
    for told in (first, again[0]):  # in the chat, one after the other
        [slot] = await one.store.claim_slots(NODE, ["telegram"], 9)
        assert slot.text == told.sentence
        await one.store.slot_sent(slot, ("m",))


async def test_a_loss_that_takes_a_life_counts_what_there_was(world: World) -> None:
    """A second replica takes over, which lags even more: it knows nothing of the first loss."""
    one, other = world.node(), world.node()
    await one.say("before")
    back, rev = world.copied(), world.rev
    await one.say("lost")
    await other.say("lost too", to=route(SessionId("chat:other")))
    first, _ = world.rev - rev, back()
    await one.say("in the next life")
    await other.say("in it, too", to=route(SessionId("chat:other")))
    second, _ = world.rev - rev - JUMP, back()
    await one.say("after")
    await other.say("after, too", to=route(SessionId("chat:other")))
    loss = await one.store.tell_loss(OWNERS)
    assert loss is not None
    assert first < second
    assert (loss.life, loss.revisions) == (2, second)


async def test_no_node_works_on_an_emptied_store(world: World) -> None:
    """Nothing is written to it, nothing is read from it; with its rows back the nodes go on."""
    one, other = world.node(), world.node()
    await one.say("before")
    await other.say("before too")
    back = world.copied()
    world.empty()
    for scene in (one, other):
        with pytest.raises(StoreError, match="was emptied") as refused:
            await scene.say("lost")
        assert "dragoman restore" in refused.value.cure
        with pytest.raises(StoreError, match="was emptied"):
            await scene.store.counts()
    assert world.keys() == []
    back()
    await one.say("after")
    assert [one.message.text for one in await other.items(Received)] == ["before", "before too", "after"]


async def test_a_store_that_was_recreated_is_another_one(world: World) -> None:
    one = world.node()
    await one.say()
    world.empty()
    other = world.node()
    await other.say("of another")
    with pytest.raises(StoreError, match="is another one"):
        await one.say()
    assert [received.message.text for received in await other.items(Received)] == ["of another"]


async def test_a_node_that_starts_knows_its_store(world: World) -> None:
    """By its note: an emptied store is refused, and one that was begun anew; without a note it is taken as it is."""
    one = world.node()
    noted = NotedStore(store=one.store.identity, note="/state/store.json")
    await open_redis(world.url, world.clock, noted=noted).close()
    world.empty()
    for says in ("was emptied", "is another one"):
        with pytest.raises(StoreError, match=says) as refused:
            open_redis(world.url, world.clock, noted=noted)
        assert "/state/store.json" in refused.value.cure
        again = open_redis(world.url, world.clock)
        assert again.identity not in ("", noted.store)
        await again.close()


@pytest.mark.parametrize("had_a_loss", [False, True])
async def test_a_node_that_starts_knows_how_far_its_store_was(world: World, *, had_a_loss: bool) -> None:
    """Nobody lived while an operator put an older copy of its data back. The note is the only memory of the rest."""
    one = world.node()
    asked = await one.parked()
    await one.press(asked.wait)
    back, rev, left_out = world.copied(), world.rev, 0
    if had_a_loss:
        await one.say("lost")
        back()
        await one.say("in the next life")
        left_out = JUMP
    else:
        assert await one.start(await one.claim(), 1, asked.wait) is StartOutcome.STARTED
    reached = one.store.reached
    assert reached == Reached(life=int(had_a_loss), revision=world.rev)
    noted = NotedStore(store=one.store.identity, note="/state/store.json", reached=reached)
    await one.store.close()
    back()
    store = open_redis(world.url, world.clock, noted=noted)
    scene = Scene(store, world.clock)
    await scene.say("later", to=route(SessionId("chat:later")))
    assert await scene.wait_state(asked.wait) is WaitState.SUPERSEDED
    loss = await store.tell_loss(OWNERS)
    assert loss is not None
    assert (loss.life, loss.revisions) == (reached.life + 1, reached.revision - rev - left_out)
    noted = replace(noted, reached=store.reached)
    await store.close()
    again = open_redis(world.url, world.clock, noted=noted)
    await again.probe()
    assert world.life.number == loss.life
    await again.close()


@pytest.mark.parametrize("meta", [{}, {"schema": "2", "life": "sother.0"}])
async def test_a_store_that_is_refused_is_not_changed(world: World, *, meta: dict[str, str]) -> None:
    """Neither an emptied one, nor one of an earlier version, which its own daemons open later."""
    one = world.node()
    noted = NotedStore(store=one.store.identity, note="/state/store.json")
    await one.store.close()
    world.empty()
    for name, value in meta.items():
        world.client.hset(f"{{{world.name}}}:meta", name, value)
    with pytest.raises(StoreError):
        open_redis(world.url, world.clock, noted=noted)
    found = world.client.hgetall(f"{{{world.name}}}:meta")
    assert found == {name.encode(): value.encode() for name, value in meta.items()}


async def test_a_new_life_is_begun_to_its_end(world: World) -> None:
    """The node that began it died: the next one takes back what is void before it writes anything else."""
    one = world.node()
    asked = await one.parked()
    await one.press(asked.wait)
    world.client.hset(f"{{{world.name}}}:meta", mapping={"life": str(world.life.after(world.life)), "lost": 7})
    other = world.node()
    await other.say("later", to=route(SessionId("chat:later")))
    assert await other.wait_state(asked.wait) is WaitState.SUPERSEDED
    assert not world.life.voids
    loss = await one.store.tell_loss({})
    assert loss is not None
    assert loss.revisions == 7


def test_a_life_is_read_as_it_is_written() -> None:
    life = Life(store="s1", number=3, voids=True)
    assert life_of(str(life)) == life
    assert life_of(str(life.cleared())) == Life(store="s1", number=3)
    assert losses.taking_back(1, 1)


@pytest.mark.parametrize("voids", [False, True])
def test_a_life_that_is_being_begun_is_waited_for(clock: FakeClock, *, voids: bool) -> None:
    known = SharedKnowledge(Life(store="s1", number=3, voids=voids), STRICT, STRICT)
    Lives(redis.Redis(), Line(), "redis://here", "", ServerClock(clock), known)
    assert [str(one) for one in (known.waits_for,) if one] == (
        [
            "The store lost its last changes; approvals and leases of the time before are being taken back. "
            "Wait: work goes on by itself."
        ]
        if voids
        else []
    )
