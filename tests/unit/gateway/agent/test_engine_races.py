"""Races between ends, stops, messages, presses and limits: nothing hangs, spins or is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.agent.worker import AT_ONCE
from gateway.domain.ids import NodeId, SessionId, TurnId
from gateway.domain.prompts import ModelEvent, ModelRequest, UserText
from gateway.domain.routes import WhileRunning
from gateway.domain.slots import SlotKind
from gateway.domain.tools import ApprovalMode, Effect, ResultStatus, Risk, SandboxPolicy, ToolResult
from gateway.domain.turns import BEGUN_AT_MOST, ENDED, Lease, TurnKind, TurnState
from gateway.domain.views import Claimed, TurnView
from gateway.domain.waits import WaitState
from gateway.errors import LeaseLost, ModelError, RowDamaged
from gateway.ports import ToolContext
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.fakes import (
    ANN_PAGE,
    GROUP,
    FailingStore,
    FakeTool,
    ScriptedModel,
    Text,
    calls,
    done,
    in_background,
    until,
)
from tests.support.makers import CHAT, inbound, route


@pytest.fixture
def read() -> FakeTool:
    return FakeTool(name="read", risk=Risk.READ)


@pytest.fixture
def shell() -> FakeTool:
    return FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE)


@pytest.fixture
def engine(tmp_path: Path, read: FakeTool, shell: FakeTool) -> Engine:
    return Engine(tmp_path, [read, shell])


async def _is(found: bool) -> bool:
    return found


def state(engine: Engine, turn: TurnId) -> TurnState:
    return engine.store.turns[turn].turn.state


# --- a turn that goes wrong does not take the others with it ---------------------------------------


async def test_error_at_a_fail_point_before_the_turn_ends_nothing_else(engine: Engine) -> None:
    engine.points.armed = {"J4": ("raise", 1)}
    turn = await engine.say()
    async with in_background(engine.worker().run()) as running:
        await until(lambda: _is(engine.points.passed.get("J4") == 1))
        engine.clock.advance(16)
        await engine.store.reclaim()
        await until(lambda: _is(state(engine, turn) is TurnState.DONE))
        assert not running.done()


class Unreadable(FailingStore):
    """Store with one unreadable turn."""

    bad: TurnId | None = None

    async def claim(
        self, node: NodeId, limit: int = 1, *, wait_s: float = 0, history: int = 0, home: str = ""
    ) -> Sequence[Claimed]:
        claimed = await super().claim(node, limit, wait_s=wait_s, history=history, home=home)
        return [replace(one, view=None) if one.lease.turn == self.bad else one for one in claimed]

    async def turn(self, turn: TurnId) -> TurnView:
        if turn == self.bad:
            raise RowDamaged("This row makes no sense.")
        return await super().turn(turn)


async def test_unreadable_turn_fails_and_the_next_of_its_session_runs(tmp_path: Path) -> None:
    store = Unreadable(FakeClock())
    engine = Engine(tmp_path, store=store)
    store.bad = await engine.say("poison")
    after = await engine.say("after it", where=ANN_PAGE)
    async with in_background(engine.worker().run()) as running:
        await until(lambda: _is(state(engine, after) is TurnState.DONE))
        assert not running.done()

    assert state(engine, store.bad) is TurnState.FAILED


async def test_several_failures_at_once_end_only_their_turn(engine: Engine) -> None:
    """As calls that run side by side raise them: one found the lease lost, one a bug."""
    engine.model.script = [ExceptionGroup("", [LeaseLost(), ExceptionGroup("", [ValueError("a bug")])])]
    turn, after = await engine.say("first"), await engine.say("after it", where=ANN_PAGE)
    async with in_background(engine.worker().run()) as running:
        await until(lambda: _is(state(engine, after) is TurnState.DONE))
        assert not running.done()

    assert state(engine, turn) is TurnState.FAILED


async def test_turn_fails_after_ten_crashes_of_the_process(tmp_path: Path, shell: FakeTool) -> None:
    """I44: a poison event cannot loop."""
    engine = Engine(tmp_path, [shell])
    turn = await engine.say("poison")
    for _ in range(BEGUN_AT_MOST):
        await engine.claim()
        assert await engine.store.void_leases("here") == 1
    await engine.run(await engine.claim())

    assert (state(engine, turn), engine.model.requests) == (TurnState.FAILED, [])
    assert (await engine.texts())[-1].startswith("Stopped: this was started 10 times")


class Deadly(ScriptedModel):
    """Model that ends the process when it is asked about poison, before any other answer is whole."""

    def __init__(self) -> None:
        super().__init__()
        self.died = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        if "poison" in str(request.messages[-1]):
            self.died.set()
            await self.go.wait()
        await asyncio.sleep(0.03)
        async for event in super().stream(request):
            yield event


async def test_only_the_turn_that_ends_the_process_fails(engine: Engine) -> None:
    """I44: those that were begun beside it, however often, are answered."""
    engine.models.model = model = Deadly()
    turns = list[TurnId]()
    for n in range(AT_ONCE // 4):
        to, said = route(SessionId(f"group:{n}")), inbound("poison" if n == 20 else "hello", where=GROUP)
        accepted = await engine.store.accept(to, said, TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
        turns.append(accepted.turn)
    while engine.store.unended:
        model.died.clear()
        async with in_background(engine.worker().run()):
            await until(lambda: _is(model.died.is_set() or not engine.store.unended))
        while await engine.store.void_leases("here"):
            pass
    assert [n for n, turn in enumerate(turns) if state(engine, turn) is not TurnState.DONE] == [20]


async def test_turn_with_many_decisions_is_not_taken_for_poison(engine: Engine, shell: FakeTool) -> None:
    engine.model.script = [calls(f"shell:{i}") for i in range(BEGUN_AT_MOST + 3)]
    turn = await engine.say()
    await engine.run(await engine.claim())
    for i in range(BEGUN_AT_MOST + 3):
        assert state(engine, turn) is TurnState.PARKED
        await engine.press((await engine.waits(turn))[i].id)
        await engine.run(await engine.claim())

    assert (state(engine, turn), len(shell.calls)) == (TurnState.DONE, BEGUN_AT_MOST + 3)


# --- limits ----------------------------------------------------------------------------------------


class Slow(ScriptedModel):
    """Model that takes five minutes for an answer."""

    def __init__(self, engine: Engine) -> None:
        super().__init__([calls(f"read:{n}") for n in range(10)])
        self.clock = engine.clock

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        self.clock.advance(300)
        async for event in super().stream(request):
            yield event


async def test_fifteen_minutes_count_in_one_holding_too(engine: Engine) -> None:
    engine.models.model = model = Slow(engine)
    turn = await engine.say()
    await engine.run(await engine.claim())

    assert (state(engine, turn), len(model.requests)) == (TurnState.FAILED, 4)
    assert await engine.texts() == ["Stopped: this turn worked for 15 min. Write again to go on."]


async def test_failure_is_shown_in_the_chat_when_no_page_is_open(engine: Engine) -> None:
    await engine.ingress.message(inbound("/status", where=CHAT))
    engine.model.script = [ModelError("It is away.")]
    await engine.say(where=ANN_PAGE)
    await engine.run(await engine.claim())
    engine.clock.advance(31)
    await engine.store.fire_timers()

    last = (await engine.slots())[-1]
    assert (last.kind, last.conversation) == (SlotKind.COPY, CHAT)
    assert "It is away." in last.text


async def test_waiting_turn_starts_as_soon_as_there_is_room(tmp_path: Path) -> None:
    """The store announces the next turn while its place is not free yet; nobody waits a second for that."""
    engine = Engine(tmp_path)
    engine.model.hold = True
    for i in range(AT_ONCE + 1):
        way = route(SessionId(f"group:{i}"))
        await engine.store.accept(
            way, inbound(where=GROUP), TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None
        )
    async with in_background(engine.worker().run()):
        await until(lambda: _is(len(engine.model.requests) == AT_ONCE))
        await asyncio.sleep(0.1)
        engine.model.go.set()
        await until(lambda: _is(not engine.store.unended), within_s=0.8)


# --- messages, stops and presses --------------------------------------------------------------------


async def test_a_message_at_the_very_end_of_a_turn_is_answered(engine: Engine) -> None:
    """For each place where it can fall: it joins the turn or starts the next one."""
    for awaits in range(25):
        turn = await engine.say("first")
        async with in_background(engine.worker().run()):
            for _ in range(awaits):
                await asyncio.sleep(0)
            second = await engine.say("second")
            await until(lambda turn=turn: _is(state(engine, turn) is TurnState.DONE))
            await until(lambda second=second: _is(state(engine, second) is TurnState.DONE))
        asked = [m.text for m in engine.model.requests[-1].messages if isinstance(m, UserText)]
        assert asked[-1] == "second"


async def test_stop_at_any_moment_ends_the_turn_and_runs_nothing_more(tmp_path: Path) -> None:
    """Between any two steps of the engine: planned, asked, pressed, begun, recorded."""
    for first in range(0, 40, 8):  # eight side by side: most of it is waiting
        async with asyncio.TaskGroup() as group:
            for awaits in range(first, first + 8):
                group.create_task(stopped_after(awaits, tmp_path / str(awaits)), name=f"stop {awaits}")


async def stopped_after(awaits: int, folder: Path) -> None:
    shell = FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE, hold=True)
    read = FakeTool(name="read", risk=Risk.READ)
    engine = Engine(folder, [shell, read], script=[calls("read", "shell"), calls("read")])
    turn = await engine.say()
    async with in_background(engine.worker().run()):
        for i in range(awaits):
            await asyncio.sleep(0)
            if waits := await engine.waits(turn):
                await engine.press(waits[0].id)
            if i == awaits - 1:
                await engine.ingress.message(inbound("/stop"))
        if awaits == 0:
            await engine.ingress.message(inbound("/stop"))
            return
        await asyncio.sleep(0.05)
        begun = len(shell.calls), len(engine.model.requests)
        if state(engine, turn) is not TurnState.QUEUED:
            await until(lambda: _is(state(engine, turn) in ENDED), within_s=1.5)
        assert (len(shell.calls), len(engine.model.requests)) == begun
    assert all(result is not None for result in await engine.results(turn))
    assert all(wait.state not in (WaitState.OPEN, WaitState.APPROVED) for wait in await engine.waits(turn))


async def test_press_at_any_moment_around_parking_runs_its_call_once(tmp_path: Path) -> None:
    for awaits in range(25):
        shell = FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE)
        engine = Engine(tmp_path / str(awaits), [shell], script=[calls("shell")])
        turn = await engine.say()
        async with in_background(engine.worker().run()):
            await until(lambda engine=engine, turn=turn: engine.waits(turn))
            for _ in range(awaits):
                await asyncio.sleep(0)
            await engine.press((await engine.waits(turn))[0].id)
            await until(lambda engine=engine, turn=turn: _is(state(engine, turn) is TurnState.DONE))
        assert len(shell.calls) == 1


async def test_new_during_a_turn_gives_the_next_an_empty_history(engine: Engine) -> None:
    engine.model.hold = True
    old = await engine.say("the old matter")
    async with in_background(engine.worker().run()):
        await engine.model.until_asked()
        await engine.ingress.message(inbound("/new"))
        new = await engine.say("the new matter")
        engine.model.go.set()
        await until(lambda: _is(state(engine, new) is TurnState.DONE))

    assert state(engine, old) is TurnState.STOPPED
    assert [m.text for m in engine.model.requests[-1].messages if isinstance(m, UserText)] == ["the new matter"]


async def test_a_decision_that_waited_too_long_for_its_turn_says_so(engine: Engine, shell: FakeTool) -> None:
    """Somebody did decide: the model is not told that nobody did."""
    lease = await engine.planned("shell")
    await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id)
    engine.clock.advance(301)
    assert await engine.settle(lease)

    found = await engine.result(lease.turn, 1)
    assert (found.status, shell.calls) == (ResultStatus.EXPIRED, [])
    assert "Nobody decided" not in found.hint
    assert "5 minutes" in found.hint


@pytest.mark.parametrize(("now", "status", "runs"), [("allow", ResultStatus.OK, 1), ("ask", ResultStatus.UNKNOWN, 0)])
async def test_cut_call_runs_again_only_if_still_allowed(
    tmp_path: Path, now: str, status: ResultStatus, runs: int
) -> None:
    """Settings change over a restart."""
    first = FakeTool(name="note", risk=Risk.WRITE, effect=Effect.IDEMPOTENT, hold=True, approval=ALLOWED)
    engine = Engine(tmp_path, [first])
    lease = await engine.planned("note")
    async with in_background(_settled(engine, lease)) as settling:
        await first.until_begun()
        settling.cancel()
    await engine.store.void_leases("here")

    second = FakeTool(name="note", risk=Risk.WRITE, effect=Effect.IDEMPOTENT, approval={"main": ApprovalMode(now)})
    life = Engine(tmp_path, [second], store=engine.store)
    assert await life.settle(await life.claim())
    assert ((await life.result(lease.turn, 1)).status, len(second.calls)) == (status, runs)


@pytest.mark.parametrize("again", [True, False])
async def test_approved_cut_call_runs_again_as_approved(tmp_path: Path, again: bool) -> None:
    """The action comes from the approval; a sandbox that was changed since does not get in."""
    first = FakeTool(name="note", risk=Risk.EXECUTE, effect=Effect.IDEMPOTENT, hold=True)
    engine = Engine(tmp_path, [first])
    lease = await engine.planned("note:a")
    await engine.settle(lease)
    await engine.press((await engine.waits(lease.turn))[0].id)
    async with in_background(_settled(engine, lease)) as settling:
        await first.until_begun()
        settling.cancel()
    await engine.store.void_leases("here")

    async def spawns(ctx: ToolContext, args: Text) -> ToolResult:
        await ctx.process.run(["/bin/true"])
        return done(args.text)

    second = FakeTool(
        name="note",
        risk=Risk.EXECUTE,
        effect=Effect.IDEMPOTENT,
        sandbox=SandboxPolicy.OFF,
        body=None if again else spawns,
    )
    life = Engine(tmp_path, [second], store=engine.store)
    assert await life.settle(await life.claim())
    found = await life.result(lease.turn, 1)
    assert (found.status, second.calls) == (ResultStatus.OK if again else ResultStatus.ERROR, ["a"])


ALLOWED = {"main": ApprovalMode.ALLOW}


async def _settled(engine: Engine, lease: Lease) -> None:
    await engine.settle(lease)
