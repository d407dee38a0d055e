"""Store failures, at each call in turn: no loop stops, and the message is answered."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType

from gateway.app.maintenance import Sweeper
from gateway.domain.ids import Principal, SessionId
from gateway.domain.messages import Conversation
from gateway.domain.prompts import CallResult, Complete, ModelEvent, ModelRequest
from gateway.domain.routes import WhileRunning
from gateway.domain.slots import RenderedSlot, SlotKind, SlotState
from gateway.domain.steps import Answer
from gateway.domain.tools import ApprovalMode, Effect, ResultStatus, Risk
from gateway.domain.turns import ENDED, Lease, TurnKind, TurnState
from gateway.domain.waits import PressResult, Verb
from gateway.errors import SendFailed, SendOutcome, StoreError, StoreFull
from gateway.outbound.delivery import AT_ONCE
from gateway.ports import Accounts, Intake, Node, Outbox, Queries, Sweeps, TurnJournal, TurnQueue
from tests.support.clock import FakeClock
from tests.support.engine import Engine, served
from tests.support.fakes import (
    ANN_PAGE,
    CLEO_CHAT,
    CLEO_TELEGRAM,
    NODE,
    FailingStore,
    FakeChannel,
    FakeTool,
    calls,
    in_background,
    until,
)
from tests.support.makers import ANN, OTHER_CHAT, drop, inbound, route
from tests.support.patience import PATIENCE_S
from tests.support.proof import times as sized

PORTS = (Intake, TurnQueue, TurnJournal, Sweeps, Outbox, Accounts, Node, Queries)
EVERY = sized(1, 1, small=4)
"""Step between the calls that fail: all of them take a minute of CPU."""
METHODS = frozenset(name for port in PORTS for name, found in vars(port).items() if inspect.iscoroutinefunction(found))
SWEEPS = frozenset({"expire_waits", "reclaim", "fire_timers", "alive", "claim", "claim_slots"})
"""Methods called by timers. Their order differs between runs, so they are counted separately."""


class Brittle(FailingStore):
    """Memory store of which one call fails, several times in a row."""

    def __init__(self, at: int, times: int = 1, *, only: str = "") -> None:
        """Fail `times` calls from number `at` (from 1) on; with `only`, count calls of that method alone."""
        self.at, self.times, self.only, self.count = at, times, only, 0
        self.failed: list[str] = []
        super().__init__(FakeClock())

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in METHODS:
            return found
        return functools.partial(self._call, name, found)

    async def _call(self, name: str, method: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        if name == self.only or (not self.only and name not in SWEEPS):
            self.count += 1
            if self.at <= self.count < self.at + self.times:
                self.failed.append(name)
                raise StoreFull if self.count % 2 else StoreError(f"{name} failed")
        await asyncio.sleep(0)
        return await method(*args, **kwargs)


class SameAgain:
    """Deterministic model: two calls, then a final answer."""

    name = "same"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Answer."""
        done = any(isinstance(message, CallResult) for message in request.messages)
        last = Answer(text="That is all.", model=self.name)
        yield Complete(answer=last if done else calls("read:a", "shell:b", text="I look."))


class Life:
    """Engine with all its loops, and a person who writes and presses."""

    def __init__(self, folder: Path, store: Brittle) -> None:
        self.store = store
        self.shell = FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE)
        self.read = FakeTool(name="read", risk=Risk.READ)
        self.engine = Engine(folder, [self.shell, self.read], store=store)
        self.engine.models.model = SameAgain()
        self.channel = FakeChannel()

    async def insist(self, wanted: Callable[[], Awaitable[Any]]) -> Any:
        """Redeliver an event that was not acknowledged, as a platform does."""
        while True:
            try:
                return await wanted()
            except StoreError:
                await asyncio.sleep(0.01)

    async def live(self) -> None:
        """Write, allow the request, wait for the answer; write again."""
        engine = self.engine
        sweeper = Sweeper(node_id=NODE, sweeps=self.store, node=self.store, metrics=engine.metrics)
        worker, delivery = engine.worker(), engine.delivery(self.channel)
        async with in_background(worker.run()), in_background(delivery.run()), in_background(sweeper.run()):
            message = inbound("please", key="e1")
            accepted = await self.insist(lambda: engine.ingress.message(message))
            await self.wait_for(self.asked)
            wait = self.cards()[0].rows[0].wait
            pressed = await self.insist(lambda: engine.press(wait.id, Verb.ONCE))
            assert pressed.result in (PressResult.APPROVED, PressResult.ALREADY)
            await self.wait_for(lambda: self.ended(accepted.turn))
            await self.wait_for(self.answered)
            thanked = await self.insist(lambda: engine.ingress.message(inbound("thanks", key="e2")))
            await self.wait_for(lambda: self.ended(thanked.turn))
            await self.wait_for(lambda: self.answered(2))

    async def wait_for(self, wanted: Callable[[], Awaitable[bool]]) -> None:
        """Wait; without progress for three seconds, let the leases expire."""
        try:
            await until(wanted, 4)
        except AssertionError:
            self.engine.clock.advance(61)
            await until(wanted, 4)

    def cards(self) -> list[RenderedSlot]:
        """Return the cards shown to the person."""
        return [one for one in self.channel.sent if one.slot.kind is SlotKind.CARD]

    async def asked(self) -> bool:
        """Return True when a card is shown."""
        return bool(self.cards())

    async def ended(self, turn: Any) -> bool:
        """Return True when the turn ended."""
        return self.store.turns[turn].turn.state in ENDED

    async def answered(self, times: int = 1) -> bool:
        """Return True when the last answer is shown."""
        return sum(one.text == "That is all." for one in self.channel.sent) >= times


async def all_of(folder: Path, stores: list[Brittle]) -> list[str]:
    """Run the lives in parallel; return the failure of each."""
    wrong: list[str] = []

    async def one(store: Brittle) -> None:
        life = Life(folder / f"{store.only}{store.at}", store)
        try:
            await life.live()
        except BaseException as error:  # noqa: BLE001 - reported with its place
            wrong.append(f"{store.failed} at {store.at}: {error!r}")
            return
        turn = next(iter(store.turns.values())).turn
        runs = (len(life.shell.calls), turn.state)
        if store.failed and runs != (1, TurnState.DONE):
            wrong.append(f"{store.failed} at {store.at}: {runs}")

    async with asyncio.TaskGroup() as group:
        for store in stores:
            group.create_task(one(store), name=f"life {store.at}")
    return wrong


@pytest.mark.sampled(3)
@pytest.mark.parametrize("only", ["claim", "claim_slots", "expire_waits", "renew", "slot_sent", "finish_step"])
async def test_a_method_that_fails_three_times_stops_nobody(tmp_path: Path, only: str) -> None:
    stores = [Brittle(at, 3, only=only) for at in range(1, 4)]

    assert await all_of(tmp_path, stores) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("times", [1, 3])
async def test_one_failing_store_call_stops_nobody_and_loses_nothing(tmp_path: Path, times: int) -> None:
    stores = [Brittle(at, times) for at in range(1, 70, EVERY)]

    assert await all_of(tmp_path, stores) == []
    assert sum(bool(store.failed) for store in stores) > 25 // EVERY


# --- one place at a time --------------------------------------------------------------------------


async def test_failed_turn_that_could_not_be_ended_ends_a_moment_later(tmp_path: Path) -> None:
    """Its session does not wait for the end of the lease."""
    store = Brittle(1, 2, only="finish_turn")
    engine = Engine(tmp_path, store=store)
    engine.model.script = [ValueError("a secret detail")]
    async with in_background(engine.worker().run()):
        turn = await engine.say()
        await until(lambda: _is(store.turns[turn].turn.state is TurnState.FAILED))

    assert store.failed == ["finish_turn"] * 2
    assert len(await engine.texts()) == 1


def _is_due(store: FailingStore) -> bool:
    (row,) = store.slots.values()
    return row.slot.state is SlotState.DUE


async def test_unrecorded_failure_of_a_send_does_not_end_the_sender(tmp_path: Path) -> None:
    store = Brittle(1, only="slot_retry")
    engine = Engine(tmp_path, store=store)
    channel = FakeChannel(outcomes=[SendFailed("no network", outcome=SendOutcome.RETRY)])
    await engine.ingress.message(inbound("/help"))
    async with in_background(engine.delivery(channel).run()) as running:
        await until(lambda: _is(store.count == 2 and _is_due(store)))  # else the clock moves before the row is written
        engine.clock.advance(10)
        await until(lambda: _is(len(channel.sent) == 1))
        assert not running.done()

    assert store.failed == ["slot_retry"]


async def test_shown_message_is_not_repeated_after_a_store_failure(tmp_path: Path) -> None:
    engine = Engine(tmp_path, store=Brittle(1, 2, only="slot_sent"))
    channel = FakeChannel()
    await engine.ingress.message(inbound("/help"))
    async with in_background(engine.delivery(channel).run()):
        await until(lambda: _is(all(row.slot.state is SlotState.SENT for row in engine.store.slots.values())))
        engine.clock.advance(100)
        await engine.store.reclaim()
        await asyncio.sleep(0.05)

    assert len(channel.sent) == 1


@pytest.mark.parametrize("method", ["start_step", "turn", "finish_step"])
async def test_store_failure_of_one_call_keeps_its_siblings(tmp_path: Path, method: str) -> None:
    """A long call is not lost because its sibling could not be begun, decided or recorded at once."""
    store = Brittle(0, only=method)
    long = FakeTool(
        name="long", risk=Risk.WRITE, effect=Effect.UNSAFE, hold=True, approval={"main": ApprovalMode.ALLOW}
    )
    read = FakeTool(name="read", risk=Risk.READ, hold=True)
    then = FakeTool(name="then", risk=Risk.WRITE, effect=Effect.UNSAFE, approval={"main": ApprovalMode.ALLOW})
    engine = Engine(tmp_path, [long, read, then], store=store)
    lease = await engine.planned("long", "read", "then")
    async with in_background(_settled(engine, lease)) as settling:
        await long.until_begun()
        await read.until_begun()
        store.at = store.count + 1
        read.release.set()
        await until(lambda: _is(bool(store.failed)) if method != "start_step" else _is(True))
        long.release.set()
        await settling

    assert store.failed == [method]
    assert await engine.results(lease.turn) == [ResultStatus.OK, ResultStatus.OK, ResultStatus.OK]
    assert (len(long.calls), len(read.calls), len(then.calls)) == (1, 1, 1)


async def test_a_call_that_could_not_be_begun_is_begun_later_and_once(tmp_path: Path) -> None:
    store = Brittle(2, only="start_step")
    write = FakeTool(
        name="write", risk=Risk.WRITE, effect=Effect.UNSAFE, hold=True, approval={"main": ApprovalMode.ALLOW}
    )
    read = FakeTool(name="read", risk=Risk.READ)
    engine = Engine(tmp_path, [write, read], store=store)
    lease = await engine.planned("write", "read")
    async with in_background(_settled(engine, lease)) as settling:
        await write.until_begun()
        await until(lambda: _is(len(read.calls) == 1))
        write.release.set()
        await settling

    assert store.failed == ["start_step"]
    assert await engine.results(lease.turn) == [ResultStatus.OK, ResultStatus.OK]
    assert (len(write.calls), len(read.calls)) == (1, 1)


async def test_a_sweep_that_breaks_is_one_sweep_that_breaks(tmp_path: Path) -> None:
    class Broken(FailingStore):
        async def expire_waits(self) -> int:
            raise KeyError("a row that nobody expected")

    store = Broken(FakeClock())
    engine = Engine(tmp_path, store=store)
    await engine.say()
    await engine.claim()
    engine.clock.advance(20)
    sweeper = Sweeper(node_id=NODE, sweeps=store, node=store, metrics=engine.metrics)
    async with in_background(sweeper.run()):
        await until(lambda: _is(not store.held_now))


async def test_more_than_one_sweep_takes_is_taken_back_at_start(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    for i in range(501):
        where = Conversation(channel="telegram", account="default", chat=f"{i}")
        await engine.store.accept(route(SessionId(f"s{i}")), inbound(where=where), TurnKind.MODEL, **QUIET)
        await engine.claim()
    await Sweeper(node_id=NODE, sweeps=engine.store, node=engine.store, metrics=engine.metrics).start("here")

    assert len(engine.store.held_now) == 0


# --- the page, and the end ----------------------------------------------------------------------------


async def test_a_full_disk_does_not_close_the_page(tmp_path: Path) -> None:
    """Stored rows can still be read; only visits are not dated."""
    store = Brittle(1, 10_000, only="saw_page")
    async with (
        served(Engine(tmp_path, store=store)) as found,
        found.client(await found.cookie(ANN)) as client,
        client.ws_connect(f"{found.url}/ws") as socket,
        asyncio.timeout(PATIENCE_S),
    ):
        assert (await socket.receive_json())["op"] == "welcome"
        await socket.send_json({"op": "open", "session": "main:ann"})
        assert (await socket.receive_json())["op"] == "rows"
        await until(lambda: _is("saw_page" in store.failed))
        await found.engine.ingress.message(inbound("/help", where=ANN_PAGE))
        assert (await socket.receive_json())["op"] in ("rows", "lines")


@pytest.mark.parametrize("method", ["older", "changes", "sessions"])
async def test_page_that_misses_changes_is_closed_and_reconnects(tmp_path: Path, method: str) -> None:
    """It must not stay open and stand still."""
    store = Brittle(2 if method == "sessions" else 1, only=method)
    async with served(Engine(tmp_path, store=store)) as found, found.client(await found.cookie(ANN)) as client:
        async with client.ws_connect(f"{found.url}/ws") as socket, asyncio.timeout(PATIENCE_S):
            await socket.send_json({"op": "open", "session": "main:ann"})
            await asyncio.sleep(0.1)
            await found.engine.ingress.message(inbound("/help", where=ANN_PAGE))
            while (await socket.receive()).type is WSMsgType.TEXT:
                pass
        async with client.ws_connect(f"{found.url}/ws") as socket, asyncio.timeout(PATIENCE_S):
            assert (await socket.receive_json())["op"] == "welcome"

    assert store.failed == [method]


async def test_a_burst_of_changes_is_read_once_for_the_list(tmp_path: Path) -> None:
    store = Brittle(0, only="sessions")
    async with (
        served(Engine(tmp_path, store=store)) as found,
        found.client(await found.cookie(ANN)) as client,
        client.ws_connect(f"{found.url}/ws") as socket,
        asyncio.timeout(PATIENCE_S),
    ):
        await socket.receive_json()
        before = store.count
        for _ in range(50):
            await found.engine.say(where=CLEO_CHAT, who=CLEO_TELEGRAM)
        last = await found.engine.say()
        await asyncio.sleep(1.5)
        assert store.count - before <= 3
        frame = await socket.receive_json()

    assert [one["queued"] for one in frame["sessions"] if one["id"] == "main:ann"] == [1]
    assert last in store.turns


async def test_a_channel_that_hangs_leaves_the_others_their_room(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    stuck, fine = FakeChannel(name="telegram"), FakeChannel(name="slack")
    for i in range(AT_ONCE + 10):
        stuck.slow[str(i)] = asyncio.Event()
        where = Conversation(channel="telegram", account="default", chat=str(i))
        await engine.store.drop(inbound(where=where, who=Principal(f"telegram:{i}")), drop(told=True), "No.")
    async with in_background(engine.delivery(stuck, fine).run()):
        await asyncio.sleep(0.05)
        await engine.store.drop(inbound(where=OTHER_CHAT, who=Principal("slack:T/U")), drop(told=True), "No.")
        await until(lambda: _is(len(fine.sent) == 1), within_s=0.5)


async def _is(found: bool) -> bool:
    return found


async def _settled(engine: Engine, lease: Lease) -> None:
    assert await engine.settle(lease)


QUIET: Any = {"running": WhileRunning.QUEUE, "say_if_waiting": None}
