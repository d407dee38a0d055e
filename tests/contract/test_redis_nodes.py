"""Several nodes on one Redis: rows that another node changed, events of another node, a server that dies."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import redis

from gateway.domain.events import ANSWERS, SESSIONS, SLOTS, Changed, LiveEvent, LookAgain, TurnReleased
from gateway.domain.ids import InboundId, NodeId, SessionId, TurnId, mint
from gateway.domain.messages import Received
from gateway.domain.turns import TurnKind, TurnState
from gateway.domain.views import Claimed
from gateway.domain.waits import PressResult, WaitState
from gateway.errors import LeaseLost, StoreError, StoreFull
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import Fact
from gateway.store.redis import RedisStore, open_redis
from tests.contract.scene import NODE, OTHER_NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import CHAT, OTHER_CHAT, answer, deny, route, said, seconds
from tests.support.patience import PATIENCE_S
from tests.support.proof import LOST, TWICE, figure, times
from tests.support.ram import ram
from tests.support.redis_server import RedisServer

WRITERS, MESSAGES = 8, 400
"""Load under which the server is killed."""
DONE_IN_A_LIFE = 100
"""Messages and turns that a life of the server has at least."""


@asynccontextmanager
async def _nodes(server: RedisServer, count: int, clock: FakeClock) -> AsyncGenerator[list[RedisStore]]:
    """Open so many stores on the same keys."""
    url = f"{server.url}?prefix={mint('nodes')}"
    async with AsyncExitStack() as opened:
        stores: list[RedisStore] = []
        for _ in range(count):
            stores.append(open_redis(url, clock))
            opened.push_async_callback(stores[-1].close)
        yield stores


@pytest.fixture
async def pair(redis_server: RedisServer, clock: FakeClock) -> AsyncIterator[list[Scene]]:
    async with _nodes(redis_server, 2, clock) as stores:
        yield [Scene(store, clock) for store in stores]


async def _heard(events: AsyncIterator[LiveEvent], is_it: Callable[[LiveEvent], bool]) -> LiveEvent:
    """Wait for an event."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_it(event := await anext(events)):
            pass
    return event


async def _connected(one: Scene, other: Scene, events: AsyncIterator[LiveEvent]) -> None:
    """Wait until events of a node arrive at another."""
    probe = SessionId("probe")
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        arrived = group.create_task(_heard(events, lambda event: event == Changed(session=probe)))
        while not arrived.done():
            one.store.event_bus.publish(SESSIONS, Changed(session=probe))
            await asyncio.sleep(0.05)
    assert one is not other


# --- rows -----------------------------------------------------------------------------------


async def test_a_node_that_ends_is_no_fault_of_the_others(pair: list[Scene]) -> None:
    """It says goodbye to its own listener on the channel of all; what a newer version says is left alone, too."""
    one, other = pair
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    async with one.store.event_bus.subscribe(SESSIONS) as events:
        await _connected(other, one, events)
        await other.store.close()
        one.store.event_bus.publish(SESSIONS, Changed(session=SessionId("after")))
        await _heard(events, lambda event: event == Changed(session=SessionId("after")))
        await asyncio.sleep(0.2)
    assert faults == []


async def test_a_node_sees_what_another_changed(pair: list[Scene]) -> None:
    """A row that a node keeps is not believed when another node has written it since."""
    one, other = pair
    asked = await one.parked()
    assert (await other.press(asked.wait)).result is PressResult.APPROVED
    assert (await one.press(asked.wait, deny())).result is PressResult.ALREADY
    assert await one.wait_state(asked.wait) is WaitState.APPROVED
    lease = await other.claim(OTHER_NODE)
    with pytest.raises(LeaseLost):
        await one.store.renew(asked.lease)
    assert await other.finish(lease)
    assert await one.state(asked.turn) is TurnState.DONE


async def test_nodes_that_write_at_once_lose_nothing(pair: list[Scene]) -> None:
    """Both write into one session: each message gets a turn, a place of its own, and its place in the lane."""
    texts = [f"{node} {number}" for node in (0, 1) for number in range(40)]
    async with asyncio.TaskGroup() as group:
        for text in texts:
            group.create_task(pair[int(text[0])].say(text))
    rows = await pair[0].rows()
    received = [row.item.message.text for row in rows if isinstance(row.item, Received)]
    assert sorted(received) == sorted(texts)
    assert len({row.ord for row in rows}) == len(rows)
    ran: list[str] = []
    for number in range(len(texts)):
        lease = await pair[number % 2].claim()
        ran += [one.message.text for one in (await pair[0].view(lease.turn)).inputs]
        assert await pair[number % 2].finish(lease)
    assert ran == received


async def test_turn_is_claimed_by_one_of_two_nodes(pair: list[Scene]) -> None:
    ways = [route(SessionId(f"chat:{number}")) for number in range(30)]
    for way in ways:
        await pair[0].say(to=way)
    claimed: list[TurnId] = []

    async def claim(scene: Scene, node: NodeId) -> None:
        while found := await scene.store.claim(node, 2):
            claimed.extend(one.lease.turn for one in found)

    async with asyncio.TaskGroup() as group:
        for scene, node in zip(pair, (NODE, OTHER_NODE), strict=True):
            group.create_task(claim(scene, node))
    assert len(claimed) == len(set(claimed)) == len(ways)


async def test_a_repeated_event_is_stored_once(pair: list[Scene]) -> None:
    one, other = pair
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(scene.say("hello", event_key="e1")) for scene in (one, other) for _ in range(20)]
    assert len({task.result().turn for task in tasks}) == 1
    assert [received.message.text for received in await one.items(Received)] == ["hello"]


async def test_a_page_misses_no_row_of_another_node(pair: list[Scene]) -> None:
    """Revisions are given in the order of the commits: a page that reads on from its last one has seen all."""
    seen: dict[InboundId, int] = {}
    after, done = 0, asyncio.Event()

    async def write(scene: Scene, name: str) -> None:
        for number in range(40):
            await scene.say(f"{name} {number}")

    async def read() -> None:
        nonlocal after
        last = False
        while not last:
            last = done.is_set()
            page = await pair[0].store.changes(SessionId("main:ann"), after, 1_000)
            after = page.rev
            seen.update({row.item.id: row.rev for row in page.rows if isinstance(row.item, Received)})
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        async with asyncio.TaskGroup() as writers:
            for name, scene in zip("ab", pair, strict=True):
                writers.create_task(write(scene, name))
        done.set()
    assert len(seen) == 80


async def test_a_commit_may_have_thousands_of_rows(redis_server: RedisServer, clock: FakeClock) -> None:
    """A script passes on a thousand words at a time; all rows are compared, written and removed together."""
    keys = [("many", str(number)) for number in range(times(2_500, 2_500, small=1_100))]

    def put(part: Part) -> None:
        for key in keys:
            part.facts.put(key, Fact(key[1]))

    def remove(part: Part) -> int:
        found = [key for key in keys if part.facts.get(key)]
        for key in found:
            part.facts.delete(key)
        return len(found)

    async with _nodes(redis_server, 2, clock) as (one, other):
        await one.run(put)
        assert len(await other.facts_in("many")) == len(keys)
        assert await other.run(remove) == len(keys)
        assert await one.run(remove) == 0
        assert await one.facts_in("many") == []


# --- work that is handed out in the commit that brings it -----------------------------------


async def test_a_plain_turn_takes_three_round_trips(own_server: RedisServer, clock: FakeClock) -> None:
    """Its message with the claim of its turn, its end with the claim of its answer, and what was shown."""
    async with _nodes(own_server, 1, clock) as (store,):
        counts, opened = list[int](), redis.Redis(port=own_server.port)
        with opened as client:
            for _ in range(5):
                before = _round_trips(client)
                await _a_plain_turn(Scene(store, clock))
                counts.append(_round_trips(client) - before - 1)
    assert min(counts) == 3, counts  # on a busy machine a waiting claim may look once more


def _round_trips(client: Any) -> int:
    return client.info("stats")["total_reads_processed"]


async def _a_plain_turn(scene: Scene) -> None:
    """Accept, answer and show a message as a daemon does, whose worker and sender wait for work."""
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        worker = group.create_task(scene.store.claim(NODE, 32, wait_s=PATIENCE_S, history=40))
        sender = group.create_task(scene.store.claim_slots(NODE, [CHAT.channel], 32, wait_s=PATIENCE_S))
        await asyncio.sleep(0.02)
        await scene.say()
        (claimed,) = await worker
        await _answer(scene, claimed)
        (slot,) = await sender
        await scene.store.slot_sent(slot, ("m1",))


async def _answer(scene: Scene, claimed: Claimed) -> None:
    assert claimed.view is not None
    given = claimed.view.inputs
    end = TurnState.DONE
    assert await scene.store.finish_turn(claimed.lease, end, answer=answer(), given=given, slots=[said()], timers=[])


async def test_a_new_slot_does_not_overtake_an_older_one(pair: list[Scene]) -> None:
    """A sender is handed a new slot only while its conversation has no other, whoever made that one wait."""
    one, other = pair
    await one.say()
    await _answer(one, (await one.store.claim(NODE))[0])
    (first,) = await one.store.claim_slots(NODE, [CHAT.channel], 1)
    await other.store.slot_retry(first, seconds(60), uncertain=False)
    await one.say()
    (second,) = await one.store.claim(NODE)
    async with asyncio.TaskGroup() as group:
        sender = group.create_task(one.store.claim_slots(NODE, [CHAT.channel], 32, wait_s=0.5))
        await asyncio.sleep(0.05)
        await _answer(one, second)
    assert sender.result() == []
    one.clock.advance(61)
    assert [slot.id for slot in await one.store.claim_slots(NODE, [CHAT.channel], 32)] == [first.id]


async def test_a_kept_history_is_that_of_all_nodes(pair: list[Scene]) -> None:
    one, other = pair
    ended = [await one.ended(), await other.ended(), await one.ended()]
    await one.say()
    found, last = await _history(one)
    assert found == ended
    ended += [last, await other.ended()]
    await one.say()
    assert (await _history(one))[0] == ended


async def _history(scene: Scene) -> tuple[list[TurnId], TurnId]:
    """Claim the turn that waits, and end it; return the turns before it, and itself."""
    (claimed,) = await scene.store.claim(NODE, history=40)
    assert claimed.history is not None
    await _answer(scene, claimed)
    return [view.turn.id for view in claimed.history], claimed.lease.turn


async def test_the_next_turn_has_the_one_that_ends_in_its_history(pair: list[Scene]) -> None:
    """The commit that ends a turn hands out the next one."""
    one = pair[0]
    await one.say()
    (first,) = await one.store.claim(NODE, history=40)
    second = await one.say()
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(one.store.claim(NODE, wait_s=PATIENCE_S, history=40))
        await asyncio.sleep(0.05)
        await _answer(one, first)
    (claimed,) = worker.result()
    assert claimed.lease.turn == second.turn
    assert [view.turn.id for view in claimed.history or ()] == [first.lease.turn]


# --- events ---------------------------------------------------------------------------------


async def test_a_commit_wakes_the_other_node(pair: list[Scene]) -> None:
    one, other = pair
    async with other.store.event_bus.subscribe(SESSIONS) as events:
        await _connected(one, other, events)
        await one.say()
        await _heard(events, lambda event: event == Changed(session=SessionId("main:ann")))


async def test_a_claim_waits_for_a_turn_of_another_node(pair: list[Scene]) -> None:
    one, other = pair
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        claim = group.create_task(other.store.claim(OTHER_NODE, wait_s=PATIENCE_S))
        accepted = await one.say()
    assert [found.lease.turn for found in claim.result()] == [accepted.turn]


async def test_an_answer_goes_to_the_sender_of_its_account(pair: list[Scene]) -> None:
    """Without one it stays here."""
    one, other = pair
    event, ends = TurnReleased(turn=TurnId("t1")), TurnReleased(turn=TurnId("t2"))
    async with (
        one.store.event_bus.subscribe(ANSWERS, SLOTS) as here,
        other.store.event_bus.subscribe(ANSWERS, SESSIONS) as there,
    ):
        one.store.event_bus.publish_to_sender(CHAT, event)
        assert await _heard(here, lambda found: found == event)
        other.store.event_bus.send_for([(CHAT.channel, CHAT.account)])
        await _connected(one, other, there)
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            arrived = group.create_task(_heard(there, lambda found: found == ends))
            while not arrived.done():
                one.store.event_bus.publish_to_sender(CHAT, ends)
                await asyncio.sleep(0.05)


# --- a server that dies ---------------------------------------------------------------------


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    with TemporaryDirectory(dir=ram()) as folder, RedisServer(Path(folder)) as server:
        yield server


async def test_a_restarted_server_is_found_again(own_server: RedisServer, clock: FakeClock) -> None:
    """Requests of the meantime are done once, and subscribers learn that events may be lost."""
    async with _nodes(own_server, 2, clock) as stores:
        one, other = [Scene(store, clock) for store in stores]
        async with other.store.event_bus.subscribe(SESSIONS) as events:
            await _connected(one, other, events)
            own_server.kill()
            async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
                accepted = group.create_task(one.say("meanwhile"))
                await asyncio.get_running_loop().run_in_executor(None, own_server.start)
            await _heard(events, lambda event: isinstance(event, LookAgain))
        assert [row.message.text for row in await other.items(Received)] == ["meanwhile"]
        assert (await other.claim()).turn == accepted.result().turn


@pytest.mark.whole("one restart stays in the default run")
@pytest.mark.timeout(900)
async def test_kills_of_the_server_lose_and_repeat_nothing(own_server: RedisServer, clock: FakeClock) -> None:
    """F08: killed each second under load from two nodes. What was accepted is there once, in order, and ran once."""
    accepted: dict[str, list[str]] = {}
    finished: Counter[TurnId] = Counter()

    async def write(scene: Scene, name: str) -> None:
        way, said = route(SessionId(f"chat:{name}")), accepted.setdefault(name, [])
        for number in range(MESSAGES):
            await scene.say(f"{name} {number}", to=way, where=OTHER_CHAT)
            said.append(f"{name} {number}")

    async def work(scene: Scene, node: NodeId, done: asyncio.Event) -> None:
        while not done.is_set() or (await scene.store.counts()).queued_turns:
            for found in await scene.store.claim(node, 4, wait_s=0.5):
                await scene.finish(found.lease)
                finished[found.lease.turn] += 1

    def moving() -> int:
        return sum(map(len, list(accepted.values()))) + len(finished)

    async with _nodes(own_server, 2, clock) as stores, _killed(own_server, moving) as kills:
        scenes, done = [Scene(store, clock) for store in stores], asyncio.Event()
        async with asyncio.TaskGroup() as workers:
            for scene, node in zip(scenes, (NODE, OTHER_NODE), strict=True):
                workers.create_task(work(scene, node, done))
            async with asyncio.TaskGroup() as writers:
                for number in range(WRITERS):
                    writers.create_task(write(scenes[number % 2], f"w{number}"))
            done.set()
        rows = {name: await scenes[0].items(Received, SessionId(f"chat:{name}")) for name in accepted}
    found = {name: [one.message.text for one in of] for name, of in rows.items()}
    figure("F08", "kills of the server under load of two nodes", len(kills), 3, least=True)
    lost = [Counter(said) - Counter(found[name]) for name, said in accepted.items()]
    twice = [Counter(found[name]) - Counter(said) for name, said in accepted.items()]
    figure("F08", LOST, sum(one.total() for one in lost), 0, of=WRITERS * MESSAGES)
    figure("F08", TWICE, sum(one.total() for one in twice), 0, of=WRITERS * MESSAGES)
    figure("F08", "sessions out of order", sum(found[name] != said for name, said in accepted.items()), 0, of=WRITERS)
    figure("F08", "turns that ended twice", sum(count > 1 for count in finished.values()), 0, of=len(finished))
    assert len(finished) == WRITERS * MESSAGES


@asynccontextmanager
async def _killed(server: RedisServer, moving: Callable[[], int]) -> AsyncGenerator[list[float]]:
    """Kill a server each second and start it again, in a thread of its own; yield the times of the kills.

    `moving`: what was done so far. A life goes on until it has done something: beside other load that takes long.
    """
    stop, kills = threading.Event(), list[float]()

    def kill() -> None:
        done = 0
        while not stop.wait(1.0):
            if moving() >= done + DONE_IN_A_LIFE:
                kills.append(time.monotonic())
                server.kill()
                server.start()
                done = moving()

    killer = asyncio.get_running_loop().run_in_executor(None, kill)
    try:
        yield kills
    finally:
        stop.set()
        await killer


async def test_a_server_that_stays_away_is_an_error(
    own_server: RedisServer, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.redis.connection.TRY_FOR_S", 0.2)
    async with _nodes(own_server, 1, clock) as (store,):
        own_server.kill()
        with pytest.raises(StoreError, match="does not answer"):
            await store.saw_page(mint("owner"))  # pyright: ignore[reportArgumentType]
        own_server.start()
        await Scene(store, clock).say()


async def test_a_full_server_refuses_and_goes_on(own_server: RedisServer, clock: FakeClock) -> None:
    """Nothing of a refused request is stored, and reads go on."""
    async with _nodes(own_server, 1, clock) as (store,):
        scene = Scene(store, clock)
        await scene.say("before")
        opened: Any = redis.Redis(port=own_server.port)
        with opened as client:
            client.config_set("maxmemory", "1mb")
            with pytest.raises(StoreFull, match="is full"):
                await scene.say("refused")
            assert [row.message.text for row in await scene.items(Received)] == ["before"]
            client.config_set("maxmemory", "0")
        await scene.say("after")
        assert [row.message.text for row in await scene.items(Received)] == ["before", "after"]


async def test_a_cancelled_caller_loses_nothing(pair: list[Scene]) -> None:
    """The effect of a cancelled request is whole, and the connection goes on."""
    scene = pair[0]
    for number in range(20):
        said = asyncio.ensure_future(scene.say(f"m{number}", kind=TurnKind.COMMAND))
        await asyncio.sleep(0.001 * (number % 3))
        said.cancel()
        await asyncio.gather(said, return_exceptions=True)
    last = await scene.say("last", kind=TurnKind.COMMAND)
    rows = await scene.items(Received)
    assert rows[-1].message.text == "last"
    assert rows[-1].turn == last.turn
    assert len({row.turn for row in rows}) == len(rows)
