from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.agent.turn_texts import EMPTY
from gateway.domain.events import TextDelta, session_topic
from gateway.domain.ids import Principal, SessionId, TurnId
from gateway.domain.messages import Conversation
from gateway.domain.prompts import CallResult, Image, ModelEvent, ModelRequest, UserText
from gateway.domain.slots import SlotKind
from gateway.domain.steps import Answer, Usage
from gateway.domain.tools import ResultStatus, Risk, ToolResult
from gateway.domain.turns import Lease, Turn, TurnKind, TurnLimits, TurnState
from gateway.domain.waits import WaitKind, WaitState
from gateway.errors import LeaseLost, ModelError
from gateway.ports import ToolContext
from tests.support.engine import Engine
from tests.support.fakes import (
    ANN_PAGE,
    BOB_CHAT,
    CLEO_PAGE,
    GROUP,
    FakeTool,
    Text,
    calls,
    in_background,
)
from tests.support.makers import ANN_TELEGRAM, BOB, CHAT, inbound, result
from tests.support.patience import PATIENCE_S

SECRET = "correct horse battery"
ANN_WEB, CLEO_WEB = Principal("web:ann"), Principal("web:cleo")


@pytest.fixture
def read() -> FakeTool:
    return FakeTool(name="read", risk=Risk.READ)


@pytest.fixture
def engine(tmp_path: Path, read: FakeTool) -> Engine:
    return Engine(tmp_path, [read, FakeTool(name="shell", risk=Risk.EXECUTE)], secrets=[SECRET])


async def turn_of(engine: Engine, lease: Lease) -> Turn:
    return (await engine.store.turn(lease.turn)).turn


async def ran(engine: Engine, text: str = "hello") -> Lease:
    """Run the turn of one message to its end or its park."""
    await engine.say(text)
    lease = await engine.claim()
    await engine.run(lease)
    return lease


async def test_an_answer_ends_the_turn_and_is_shown_where_it_began(engine: Engine) -> None:
    engine.model.script = [Answer(text="Hi there.")]
    lease = await ran(engine)

    turn = await turn_of(engine, lease)
    assert (turn.state, turn.ended_at) == (TurnState.DONE, engine.clock.now())
    (slot,) = await engine.slots()
    assert (slot.kind, slot.text, slot.conversation, slot.n) == (SlotKind.ANSWER, "Hi there.", turn.conversation, 0)


async def test_results_of_calls_are_given_to_the_next_model_request(engine: Engine, read: FakeTool) -> None:
    engine.model.script = [calls("read:a", "read:b", text="Looking."), Answer(text="Found.")]
    await ran(engine)

    assert read.calls == ["a", "b"]
    assert await engine.texts() == ["Looking.", "Found."]
    last = engine.model.requests[-1].messages
    assert isinstance(last[0], UserText)
    assert isinstance(last[1], Answer)
    assert [m.call for m in last[2:] if isinstance(m, CallResult)] == ["c0", "c1"]
    assert engine.model.requests[0].system == "You are a test."
    assert [offer.name for offer in engine.model.requests[0].tools] == ["read", "shell"]


async def test_parked_turn_continues_after_the_press_on_any_machine(engine: Engine, tmp_path: Path) -> None:
    engine.model.script = [calls("shell:ls")]
    lease = await ran(engine)
    assert (await turn_of(engine, lease)).state is TurnState.PARKED
    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id)

    shell = FakeTool(name="shell", risk=Risk.EXECUTE)
    other = Engine(tmp_path, [shell], store=engine.store)
    await other.run(await other.claim())
    assert shell.calls == ["ls"]
    assert (await turn_of(engine, lease)).state is TurnState.DONE
    assert len(engine.model.requests) == 1
    assert len(other.model.requests) == 1


async def test_command_is_answered_by_the_operator_without_a_model(engine: Engine) -> None:
    lease = await ran(engine, "/read a")

    assert (await turn_of(engine, lease)).kind is TurnKind.COMMAND
    assert (len(engine.operator.requests), engine.model.requests) == (1, [])


@pytest.mark.parametrize("text", ["", "  \n", "\u200b", "\u2800"])
async def test_an_empty_answer_is_answered_in_words(engine: Engine, text: str) -> None:
    engine.model.script = [Answer(text=text)]
    lease = await ran(engine)

    assert await engine.texts() == [EMPTY]
    assert (await turn_of(engine, lease)).state is TurnState.DONE


async def test_calls_without_a_text_show_no_empty_message(engine: Engine) -> None:
    engine.model.script = [calls("read"), Answer(text="Done.")]
    await ran(engine)

    assert await engine.texts() == ["Done."]


@pytest.mark.parametrize(
    ("script", "state"), [([Answer(text="Done.")], "done"), ([ModelError("No.", cure="Wait.")], "failed")]
)
async def test_a_turn_that_ends_is_counted_once(engine: Engine, script: list[Answer | ModelError], state: str) -> None:
    engine.model.script = [*script]
    await ran(engine)

    ended = engine.metrics.turns.collect()
    counted = {
        one.labels["state"]: one.value for metric in ended for one in metric.samples if one.name.endswith("_total")
    }
    assert counted == {state: 1}


async def test_a_model_that_fails_is_reported_without_its_secrets(engine: Engine) -> None:
    engine.model.script = [ModelError(f"401 for {SECRET}.", cure="Correct the key.")]
    lease = await ran(engine)

    assert (await turn_of(engine, lease)).state is TurnState.FAILED
    assert await engine.texts() == ["The model could not answer: 401 for [hidden]. Correct the key."]


async def test_a_stream_that_ends_without_an_answer_is_a_failure(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    engine.models.model = Silent()
    lease = await ran(engine)

    assert (await turn_of(engine, lease)).state is TurnState.FAILED
    assert "ended before its answer did" in (await engine.texts())[0]


class Silent:
    """Model whose stream ends at once."""

    name = "silent"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Yield nothing."""
        for event in list[ModelEvent]():
            yield event


async def test_a_failed_turn_does_not_stand_in_the_way_of_the_next(engine: Engine) -> None:
    engine.model.script = [ModelError("Down."), Answer(text="Back.")]
    await ran(engine, "one")
    await ran(engine, "two")

    assert (await engine.texts())[-1] == "Back."


# --- limits -------------------------------------------------------------------------------------


async def test_a_model_that_never_stops_calling_is_stopped(engine: Engine, read: FakeTool) -> None:
    engine.model.script = [calls(f"read:{n}") for n in range(60)]
    lease = await ran(engine)

    assert (len(engine.model.requests), len(read.calls)) == (55, 50)
    assert (await turn_of(engine, lease)).state is TurnState.FAILED
    assert await engine.texts() == ["Stopped: the model was asked 55 times in this turn. Write again to go on."]


async def test_turn_is_stopped_at_its_working_time_without_waits(engine: Engine) -> None:
    engine.model.script = [calls("shell:a"), calls("shell:b"), Answer(text="Never said.")]
    lease = await ran(engine)
    engine.clock.advance(3000)  # parked
    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id)
    lease = await engine.claim()
    await engine.run(lease)
    assert (await turn_of(engine, lease)).state is TurnState.PARKED

    await engine.press((await engine.waits(lease.turn))[-1].id)
    lease = await engine.claim()
    await engine.works(lease, 15 * 60 + 1)
    await engine.store.release(lease)
    lease = await engine.claim()
    await engine.store.finish_step(lease, 3, result())
    await engine.run(lease)
    assert (await turn_of(engine, lease)).state is TurnState.FAILED
    assert (await engine.texts())[-1] == "Stopped: this turn worked for 15 min. Write again to go on."


# --- steering -----------------------------------------------------------------------------------


async def test_message_during_a_call_is_given_at_the_next_step(engine: Engine, read: FakeTool) -> None:
    read.hold = True
    engine.model.script = [calls("read"), Answer(text="Both.")]
    await engine.say("first")
    lease = await engine.claim()
    async with in_background(engine.run(lease)) as running:
        await read.until_begun()
        await engine.say("second")
        read.release.set()
        await running

    texts = [m.text for m in engine.model.requests[-1].messages if isinstance(m, UserText)]
    assert texts == ["first", "second"]
    assert isinstance(engine.model.requests[-1].messages[2], CallResult)
    assert await engine.texts() == ["Both."]


async def test_message_during_a_model_answer_is_answered_too(engine: Engine) -> None:
    engine.model.hold = True
    engine.model.script = [Answer(text="For the first."), Answer(text="To both.")]
    await engine.say("first")
    lease = await engine.claim()
    async with in_background(engine.run(lease)) as running:
        await engine.model.until_asked()
        await engine.say("second")
        engine.model.go.set()
        await running

    assert await engine.texts() == ["For the first.", "To both."]
    said = [one.text for one in engine.model.requests[-1].messages if not isinstance(one, CallResult)]
    assert said == ["first", "For the first.", "second"]
    assert (await turn_of(engine, lease)).state is TurnState.DONE


async def test_stop_during_a_model_answer_writes_and_asks_nothing_more(engine: Engine) -> None:
    engine.model.hold = True
    await engine.say("first")
    lease = await engine.claim()
    running = asyncio.create_task(engine.run(lease))
    await engine.model.until_asked()
    await engine.ingress.message(inbound("/stop"))
    engine.model.go.set()
    with pytest.raises(LeaseLost):
        async with asyncio.timeout(PATIENCE_S):
            await running

    assert len(engine.model.requests) == 1
    assert await engine.texts() == ["Stopped."]  # the reply to the command


# --- the page -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "where", "timers"),
    [
        (ANN_WEB, ANN_PAGE, 1),
        (CLEO_WEB, CLEO_PAGE, 0),  # she has no other place to be answered in
        (ANN_TELEGRAM, CHAT, 0),
        (BOB, BOB_CHAT, 0),
        (ANN_TELEGRAM, GROUP, 0),
    ],
)
async def test_page_answer_has_a_timer_when_the_owner_has_a_chat(
    engine: Engine, who: Principal, where: Conversation, timers: int
) -> None:
    turn = await engine.say(who=who, where=where)
    await engine.run(await engine.claim())
    waits = await engine.waits(turn)

    assert len(waits) == timers
    for wait in waits:
        assert (wait.kind, wait.state) == (WaitKind.TIMER, WaitState.OPEN)
        assert wait.expires_at - wait.opened_at == timedelta(seconds=30)
        (slot,) = await engine.slots()
        assert wait.payload["copy_of"] == slot.id
        assert wait.payload["owner"] == "ann"


# --- streaming ----------------------------------------------------------------------------------


async def test_the_text_streams_with_its_place_and_without_secrets(engine: Engine) -> None:
    engine.model.script = [Answer(text="It is sk-proj-4f9aB7cDe8FgHiJkLmNoPq indeed")]
    await engine.say()
    lease = await engine.claim()
    async with engine.store.event_bus.subscribe(session_topic(lease.session)) as events:
        await engine.run(lease)
        engine.store.event_bus.publish(session_topic(lease.session), END)
        found: list[TextDelta] = []
        async for event in events:
            if isinstance(event, TextDelta):
                if event == END:
                    break
                found.append(event)

    text = "".join(delta.text for delta in found)
    assert text == "It is [hidden] "  # a last word may still become a secret
    assert [delta.start for delta in found] == [text.index(delta.text) for delta in found]
    assert {(delta.turn, delta.n) for delta in found} == {(lease.turn, 0)}
    assert await engine.texts() == ["It is [hidden] indeed"]


END = TextDelta(session=SessionId("s"), turn=TurnId("t"), n=99, start=0, text="")


async def test_history_is_of_this_session_and_epoch(engine: Engine) -> None:
    await ran(engine, "old")
    await engine.ingress.message(inbound("/new"))
    await ran(engine, "new")
    await ran(engine, "newer")

    seen = [[m.text for m in r.messages if isinstance(m, UserText)] for r in engine.model.requests]
    assert seen == [["old"], ["new"], ["new", "newer"]]


async def test_a_result_keeps_its_status_for_the_model(engine: Engine) -> None:
    engine.model.script = [calls("nosuch")]
    await ran(engine)

    (found,) = [m.result for m in engine.model.requests[-1].messages if isinstance(m, CallResult)]
    assert (found.status, found.code) == (ResultStatus.ERROR, "unknown_tool")


# --- beyond, besides --------------------------------------------------------------------------


async def spoken(engine: Engine, *texts: str) -> None:
    """Run that many turns to their end."""
    for text in texts:
        await ran(engine, text)
    engine.model.requests.clear()


def people_said(request: ModelRequest) -> list[str]:
    return [one.text for one in request.messages if isinstance(one, UserText)]


async def test_an_old_turn_beyond_the_window_is_not_given(tmp_path: Path) -> None:
    engine = Engine(tmp_path, context_tokens=1_000)
    middle = "y" * 1_800
    await spoken(engine, "x" * 1_800, middle, "short")
    await ran(engine, "now")

    assert [people_said(one) for one in engine.model.requests] == [[middle, "short", "now"]]


async def test_a_turn_that_used_its_tokens_ends_and_says_so(tmp_path: Path, read: FakeTool) -> None:
    engine = Engine(tmp_path, [read], limits=TurnLimits(tokens=1_000))
    engine.model.script = [
        replace(calls(f"read:{n}"), usage=Usage(input_tokens=400, output_tokens=20)) for n in range(9)
    ]
    lease = await ran(engine)

    assert len(engine.model.requests) == 3
    assert (await turn_of(engine, lease)).state is TurnState.FAILED
    assert await engine.texts() == ["Stopped: this turn used 1,260 tokens; its limit is 1,000. Write again to go on."]


async def test_note_for_the_person_ends_the_answer_unread_by_models(engine: Engine, read: FakeTool) -> None:
    note = f"other *answered*, because main is\naway ({SECRET})."
    engine.model.script = [
        replace(calls("read", text="Looking."), note=note),
        Answer(text="Found.", note=note),
        Answer(text="Again.", note=note),
    ]
    await ran(engine)
    await ran(engine, "more")

    shown = "*other answered, because main is away ([hidden]).*"
    assert await engine.texts() == [f"Looking.\n\n{shown}", "Found.", f"Again.\n\n{shown}"]
    assert all("away" not in repr(one.messages) for one in engine.model.requests)


async def test_an_empty_answer_is_said_to_be_empty_whoever_gave_it(engine: Engine) -> None:
    engine.model.script = [Answer(text="", note="other answered.")]
    await ran(engine)

    assert await engine.texts() == [EMPTY]


async def test_pictures_of_a_call_are_given_with_its_result(engine: Engine, read: FakeTool) -> None:
    async def body(ctx: ToolContext, args: Text) -> ToolResult:
        return replace(result("a picture"), pictures=(await ctx.artifacts.picture(b"png", "image/png"),))

    read.body = body
    engine.model.script = [calls("read:a", "read:b")]
    await ran(engine)

    found = [one for one in engine.model.requests[-1].messages if isinstance(one, CallResult)]
    assert [(one.call, one.images) for one in found] == [
        ("c0", (Image(media_type="image/png", data=b"png"),)),
        ("c1", (Image(media_type="image/png", data=b"png"),)),
    ]
