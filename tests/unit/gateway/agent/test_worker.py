from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.agent.worker import FIRST_LOOK_S, SHORTAGES
from gateway.domain.events import ANSWERS, LiveEvent, TurnActive, TurnWoken, turn_topic
from gateway.domain.ids import NodeId, Principal, SessionId, TurnId, answer_slot
from gateway.domain.messages import Conversation
from gateway.domain.prompts import ModelEvent, ModelRequest, TextPart
from gateway.domain.routes import WhileRunning
from gateway.domain.steps import Answer
from gateway.domain.tools import Effect, Park, ResultStatus, Risk, ToolResult
from gateway.domain.turns import TurnKind, TurnLimits, TurnState
from gateway.domain.waits import StartOutcome, WaitKind
from gateway.errors import LeaseLost
from gateway.ports import ControlEffect, Task, ToolContext
from tests.support.engine import Engine
from tests.support.fakes import ANN_PAGE, CLEO_CHAT, CLEO_TELEGRAM, FakeTool, Text, calls, in_background, until
from tests.support.makers import ANN_SLACK, ANN_TELEGRAM, CHAT, OTHER_CHAT, beginning, control, inbound, route

OTHER = NodeId("there#1")


@pytest.fixture
def read() -> FakeTool:
    return FakeTool(name="read", risk=Risk.READ)


@pytest.fixture
def engine(tmp_path: Path, read: FakeTool) -> Engine:
    return Engine(tmp_path, [read])


async def ends(engine: Engine, turn: TurnId, state: TurnState = TurnState.DONE) -> None:
    async def ended() -> bool:
        return engine.store.turns[turn].turn.state is state

    await until(ended)


async def test_turns_are_claimed_as_they_come_and_run(engine: Engine) -> None:
    async with in_background(engine.worker().run()):
        first = await engine.say("one")
        await ends(engine, first)
        second = await engine.say("two", who=CLEO_TELEGRAM, where=CLEO_CHAT)
        await ends(engine, second)

    assert len(engine.model.requests) == 2


async def test_a_turn_of_one_session_does_not_wait_for_another_session(engine: Engine, read: FakeTool) -> None:
    read.hold = True
    engine.model.script = [calls("read"), Answer(text="Quick.")]
    async with in_background(engine.worker().run()):
        slow = await engine.say("slow")
        await read.until_begun()
        quick = await engine.say("quick", who=CLEO_TELEGRAM, where=CLEO_CHAT)
        await ends(engine, quick)
        assert (await engine.store.turn(slow)).turn.state is TurnState.RUNNING
        read.release.set()
        await ends(engine, slow)


async def test_a_worker_runs_no_more_turns_than_it_has_room_for(engine: Engine, read: FakeTool) -> None:
    read.hold = True
    engine.model.script = [calls("read"), Answer(text="Done."), Answer(text="Next.")]
    worker = engine.worker()
    worker.at_once = 1
    async with in_background(worker.run()):
        first = await engine.say("first")
        await read.until_begun()
        second = await engine.say("second", who=CLEO_TELEGRAM, where=CLEO_CHAT)
        await asyncio.sleep(0.1)
        assert (await engine.store.turn(second)).turn.state is TurnState.QUEUED
        read.release.set()
        await ends(engine, first)
        await ends(engine, second)


async def test_stop_ends_a_running_call_within_a_second_and_says_so(engine: Engine, read: FakeTool) -> None:
    read.hold = True
    engine.model.script = [calls("read:x")]
    async with in_background(engine.worker().run()):
        turn = await engine.say()
        await read.until_begun()
        began = time.monotonic()
        await engine.ingress.message(inbound("/stop"))
        await ends(engine, turn, TurnState.STOPPED)
        took = time.monotonic() - began

    assert took < 1.0
    assert read.running == 0
    found = await engine.result(turn, 1)
    assert (found.status, found.hint) == (ResultStatus.CANCELLED, "cancelled by /stop")
    assert (await engine.texts()).count("Stopped.") == 1  # the reply


async def test_stop_ends_a_turn_that_waits_for_its_model(engine: Engine) -> None:
    engine.model.hold = True
    async with in_background(engine.worker().run()):
        turn = await engine.say()
        await engine.model.until_asked()
        await engine.ingress.message(inbound("/stop"))
        await ends(engine, turn, TurnState.STOPPED)
        engine.model.hold = False
        await ends(engine, await engine.say("go on"))

    assert (await engine.texts())[-1] == "That is all."


async def test_worker_without_the_lease_writes_nothing(engine: Engine, read: FakeTool) -> None:
    read.hold = True
    engine.model.script = [calls("read:x")]
    async with in_background(engine.worker().run()):
        turn = await engine.say()
        await read.until_begun()
        engine.clock.advance(16)
        await engine.store.reclaim()
        stolen = (await engine.store.claim(OTHER))[0].lease
        assert stolen.turn == turn
        before = await engine.store.turn(turn)
        await engine.ingress.message(inbound("and this", who=ANN_TELEGRAM))  # wakes the old holder, who looks
        await until(lambda: _is(read.running == 0))
        await asyncio.sleep(0.05)

        after = await engine.store.turn(turn)
        assert (after.steps, after.turn.state) == (before.steps, TurnState.RUNNING)
        assert await engine.store.renew(stolen) is TurnState.RUNNING
        assert await engine.texts() == []


async def test_a_turn_whose_files_are_elsewhere_is_left_to_that_node(engine: Engine, read: FakeTool) -> None:
    """A command of the session ran elsewhere while the model was asked: it was first to leave files."""
    engine.model.script, engine.model.hold = [calls("read:x")], True
    worker = engine.worker()
    worker.home = "here"
    async with in_background(worker.run()):
        turn = await engine.say()
        await engine.model.until_asked()
        command = inbound("/read y", where=OTHER_CHAT)
        await engine.store.accept(route(), command, TurnKind.COMMAND, running=WhileRunning.QUEUE, say_if_waiting=None)
        [claimed] = await engine.store.claim(OTHER, home="there")
        lease = claimed.lease
        await engine.store.plan(lease, calls("read:y"), given=[], slots=[])
        assert await engine.store.start_step(lease, 1, None, beginning()) is StartOutcome.STARTED
        engine.model.go.set()
        await until(lambda: _is(engine.store.turns[turn].turn.state is TurnState.QUEUED))
    assert read.calls == []
    assert lease.turn != turn
    assert [one.lease.turn for one in await engine.store.claim(OTHER, home="there")] == [turn]


async def _is(found: bool) -> bool:
    return found


async def test_shutdown_gives_back_what_runs_with_what_it_printed(engine: Engine, read: FakeTool) -> None:
    read.hold = True
    engine.model.script = [calls("read:x"), Answer(text="After the restart.")]
    worker = engine.worker()
    async with in_background(worker.run()) as running:
        turn = await engine.say()
        await read.until_begun()
        worker.drain()
        worker.drain()
        async with asyncio.timeout(2):
            await running

    found = await engine.result(turn, 1)
    assert (found.status, found.hint) == (ResultStatus.CANCELLED, "cancelled by shutdown")
    assert (await engine.store.turn(turn)).turn.state is TurnState.QUEUED
    async with in_background(engine.worker().run()):
        await ends(engine, turn)
    assert await engine.texts() == ["After the restart."]


async def test_drained_worker_claims_nothing(engine: Engine) -> None:
    worker = engine.worker()
    worker.drain()
    turn = await engine.say()
    async with asyncio.timeout(2):
        await worker.run()

    assert (await engine.store.turn(turn)).turn.state is TurnState.QUEUED


async def test_exception_in_a_turn_fails_it_and_the_next_one_runs(engine: Engine) -> None:
    engine.model.script = [ValueError("a secret detail"), Answer(text="Well.")]
    async with in_background(engine.worker().run()):
        turn = await engine.say()
        await ends(engine, turn, TurnState.FAILED)
        await ends(engine, await engine.say("again"))

    words, well = await engine.texts()
    assert words == f"Something went wrong inside Dragoman; see its log (turn `{turn}`)."
    assert well == "Well."
    assert engine.metrics.registry.get_sample_value("dragoman_turns_total", {"state": "failed"}) == 1


async def test_turn_without_memory_is_released_and_runs_again(engine: Engine) -> None:
    engine.model.script = [MemoryError(), Answer(text="Well.")]
    async with in_background(engine.worker().run()):
        await ends(engine, await engine.say())

    assert await engine.texts() == ["Well."]


async def test_a_turn_that_never_has_enough_memory_fails(engine: Engine) -> None:
    engine.model.script = [MemoryError() for _ in range(SHORTAGES + 1)]
    async with in_background(engine.worker().run()):
        turn = await engine.say()
        await ends(engine, turn, TurnState.FAILED)

    assert engine.model.script == []


@pytest.mark.parametrize("failing", [{"claim": 2}, {"turn": 1}])
async def test_a_store_that_fails_for_a_moment_loses_no_turn(engine: Engine, failing: dict[str, int]) -> None:
    async with in_background(engine.worker().run()):
        turn = await engine.say()
        engine.store.failing = dict(failing)
        await ends(engine, turn)

    assert await engine.texts() == ["That is all."]


async def test_a_stranger_to_the_turn_cannot_finish_it(engine: Engine) -> None:
    await engine.say()
    lease = await engine.claim()
    engine.clock.advance(16)
    await engine.store.reclaim()
    await engine.claim()

    with pytest.raises(LeaseLost):
        await engine.run(lease)
    assert await engine.texts() == []


async def test_four_commands_of_a_session_run_beside_its_model_turn(tmp_path: Path) -> None:
    read = FakeTool(name="read", risk=Risk.READ, hold=True)
    engine = Engine(tmp_path, [read])
    engine.operator.script = [calls(f"read:{n}") for n in range(5)]
    async with in_background(engine.worker().run()):
        turns = [await engine.say(f"/read {n}") for n in range(5)]
        await read.until_begun(4)
        await ends(engine, await engine.say("and you?"))
        assert read.running == 4
        read.release.set()
        for turn in turns:
            await ends(engine, turn)

    assert read.most == 4


async def test_the_page_and_a_chat_share_one_session_in_commit_order(engine: Engine) -> None:
    async with in_background(engine.worker().run()):
        turns = [
            await engine.say("from the chat"),
            await engine.say("from the page", where=ANN_PAGE),
        ]
        for turn in turns:
            await ends(engine, turn)

    order = [request.messages[-1] for request in engine.model.requests]
    assert [getattr(message, "text", "") for message in order] == ["from the chat", "from the page"]


# --- what chats see of it -----------------------------------------------------------------------


@pytest.mark.parametrize(("who", "where", "said"), [(ANN_TELEGRAM, CHAT, True), (ANN_SLACK, OTHER_CHAT, False)])
async def test_activity_is_published_at_renewal_but_not_while_parked(
    tmp_path: Path, read: FakeTool, who: Principal, where: Conversation, said: bool
) -> None:
    read.hold = True
    engine = Engine(tmp_path, [read, FakeTool(name="shell", risk=Risk.EXECUTE)])
    engine.model.script = [calls("read"), calls("shell:ls")]
    async with engine.store.event_bus.subscribe(ANSWERS) as events, in_background(engine.worker().run()):
        turn = await engine.say(who=who, where=where)
        await read.until_begun()
        await asyncio.sleep(FIRST_LOOK_S + 0.2)
        read.release.set()
        await ends(engine, turn, TurnState.PARKED)
        engine.store.event_bus.publish(ANSWERS, END)
        seen = [event async for event in taken_until(events, END) if isinstance(event, TurnActive)]

    working = TurnActive(session=engine.store.turns[turn].turn.session, turn=turn, conversation=where)
    assert seen == ([working, working] if said else [])


END = TurnActive(session=SessionId("end"), turn=TurnId("end"), conversation=CHAT)


async def taken_until(events: AsyncIterator[LiveEvent], end: LiveEvent) -> AsyncGenerator[LiveEvent]:
    async for event in events:
        if event == end:
            return
        yield event


@pytest.mark.parametrize(
    ("given", "said"), [("Stopped.", "\n\n*Stopped.*"), ("Ann stopped it.", "\n\n*Ann stopped it.*"), ("", "")]
)
async def test_stopped_answer_keeps_its_beginning_and_the_stop_text(engine: Engine, given: str, said: str) -> None:
    """It stands in the chat already."""
    model = engine.models.model = HalfSaid(engine)
    async with in_background(engine.worker().run()):
        turn = await engine.say()
        await model.said.wait()
        assert await engine.texts() == ["It began well and"]
        stop = replace(control(ControlEffect.STOP), stopped_text=given)
        await engine.store.control(route(), inbound("/stop", where=OTHER_CHAT), stop)
        await ends(engine, turn, TurnState.STOPPED)

    slots = [slot for slot in await engine.slots() if slot.turn == turn]
    text = f"It began well and{said}"
    assert [(slot.id, slot.text, slot.version) for slot in slots] == [(answer_slot(turn, 0), text, 2)]


class HalfSaid:
    """Model that begins an answer and then hangs."""

    name = "half"

    def __init__(self, engine: Engine) -> None:
        """Take the engine whose clock to advance."""
        self.engine, self.said = engine, asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Begin an answer, then hang."""
        self.engine.clock.advance(1.5)
        yield TextPart(text="It began well and then ")
        self.said.set()
        await asyncio.Event().wait()


# --- a turn's time ----------------------------------------------------------------------------------


LIMITS = TurnLimits(active=timedelta(seconds=60))


async def let_pass(engine: Engine, turn: TurnId, seconds: float) -> None:
    """Advance the clock of a turn that has a renewer by now, and wake it."""
    await asyncio.sleep(FIRST_LOOK_S + 0.1)
    engine.clock.advance(seconds)
    engine.store.event_bus.publish(turn_topic(turn), TurnWoken(turn=turn))


async def test_call_beyond_the_turns_time_is_cut_and_reported(tmp_path: Path, read: FakeTool) -> None:
    engine = Engine(tmp_path, [read], limits=LIMITS)
    read.hold = True
    engine.model.script = [calls("read:x", "read:y")]
    async with in_background(engine.worker().run()):
        turn = await engine.say()
        await read.until_begun(2)
        await let_pass(engine, turn, 59)
        await asyncio.sleep(0.1)
        assert read.running == 2
        engine.clock.advance(1)
        engine.store.event_bus.publish(turn_topic(turn), TurnWoken(turn=turn))
        await ends(engine, turn, TurnState.FAILED)

    assert read.running == 0
    for n in (1, 2):
        found = await engine.result(turn, n)
        assert (found.status, found.hint) == (ResultStatus.CANCELLED, "cancelled: the turn's time is over")
    assert "Stopped: this turn worked for 1 min. Write again to go on." in await engine.texts()


async def test_answer_beyond_the_turns_time_is_cut_and_the_next_runs(tmp_path: Path) -> None:
    engine = Engine(tmp_path, limits=LIMITS)
    engine.model.hold = True
    async with in_background(engine.worker().run()):
        turn = await engine.say()
        await engine.model.until_asked()
        await let_pass(engine, turn, 60)
        await ends(engine, turn, TurnState.FAILED)
        engine.model.hold = False
        await ends(engine, await engine.say("go on"))

    assert await engine.texts() == [
        "Stopped: this turn worked for 1 min. Write again to go on.",
        "That is all.",
    ]


async def test_the_time_that_a_turn_was_parked_is_not_its_time(tmp_path: Path) -> None:
    shell = FakeTool(name="shell", risk=Risk.EXECUTE)
    engine = Engine(tmp_path, [shell], limits=LIMITS)
    engine.model.script = [calls("shell:ls"), Answer(text="Done.")]
    async with in_background(engine.worker().run()):
        turn = await engine.say()
        await ends(engine, turn, TurnState.PARKED)
        engine.clock.advance(3_000)
        (wait,) = await engine.waits(turn)
        await engine.press(wait.id)
        await ends(engine, turn)

    assert (await engine.texts())[-1] == "Done."


async def test_page_turn_over_its_time_is_reported_in_the_chat_too(tmp_path: Path) -> None:
    engine = Engine(tmp_path, limits=LIMITS)
    engine.model.hold = True
    async with in_background(engine.worker().run()):
        turn = await engine.say(where=ANN_PAGE)
        await engine.model.until_asked()
        await let_pass(engine, turn, 60)
        await ends(engine, turn, TurnState.FAILED)

    (timer,) = await engine.waits(turn)
    assert timer.kind is WaitKind.TIMER


async def test_a_child_has_the_time_that_it_was_given(tmp_path: Path, read: FakeTool) -> None:
    async def body(ctx: ToolContext, args: Text) -> ToolResult | Park:
        return await ctx.sessions.spawn(Task(text=args.text, timeout_s=30))

    spawn = FakeTool(name="sessions_spawn", effect=Effect.IDEMPOTENT, body=body)
    engine = Engine(tmp_path, [read, spawn])
    read.hold = True
    engine.model.script = [calls("sessions_spawn:look"), calls("read:x"), Answer(text="It took too long.")]
    async with in_background(engine.worker().run()):
        turn = await engine.say()
        await read.until_begun()
        (child,) = [row.turn.id for id_, row in engine.store.turns.items() if id_ != turn]
        await let_pass(engine, child, 30)
        await ends(engine, child, TurnState.FAILED)
        await ends(engine, turn)

    assert "worked for 30 s" in (await engine.result(turn, 1)).text
    assert (await engine.texts())[-1] == "It took too long."
