from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from gateway.agent.compaction import CHARS_OF_EACH, READ_TURNS, SUMMARY_CHARS
from gateway.agent.transcript import SUMMARY
from gateway.agent.window import HISTORY_TURNS, LongHistory
from gateway.domain.ids import SessionId, main_session
from gateway.domain.prompts import Complete, ModelEvent, ModelRequest, UserText
from gateway.domain.steps import Answer, Usage
from gateway.domain.tools import Risk
from gateway.domain.turns import TurnState
from gateway.domain.views import TurnView
from gateway.errors import ModelError
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.fakes import CLEO_CHAT, CLEO_TELEGRAM, FailingStore, FakeTool, calls, in_background, until
from tests.support.makers import ANN, ANN_TELEGRAM, inbound

SECRET = "correct horse battery"
MAIN = main_session(ANN)


class Chatting:
    """Model that answers people in a word; the test sets its summaries and their delay."""

    name = "chatting"

    def __init__(self, *summaries: Answer | Exception) -> None:
        """Use these summaries first; then "In short."."""
        self.summaries: Sequence[Answer | Exception] = summaries
        self.asked: list[ModelRequest] = []
        self.written: list[ModelRequest] = []
        self.go = asyncio.Event()
        self.go.set()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Answer, or summarise."""
        if request.system.startswith("You keep the memory"):
            self.written.append(request)
            await self.go.wait()
            found, self.summaries = (*self.summaries[:1], Answer(text="In short."))[0], self.summaries[1:]
            if isinstance(found, Exception):
                raise found
            yield Complete(answer=found)
        else:
            self.asked.append(request)
            yield Complete(answer=Answer(text="Yes.", model=self.name))


@pytest.fixture
def model() -> Chatting:
    return Chatting()


@pytest.fixture
def engine(tmp_path: Path, model: Chatting) -> Engine:
    """Return an engine with a window of 3,500 characters: three turns of 1,000 are long."""
    engine = Engine(tmp_path, secrets=[SECRET], context_tokens=1_000)
    engine.models.model = model
    return engine


def words(name: str) -> str:
    return f"{name} {'x' * 1_000}"


async def chat(engine: Engine, *names: str) -> None:
    """Run that many turns of Ann's, one after the other, by a worker."""
    for name in names:
        turn = await engine.say(words(name))
        await until(lambda turn=turn: _ended(engine, str(turn)))


async def _ended(engine: Engine, turn: str) -> bool:
    return any(row.turn.state is TurnState.DONE for id_, row in engine.store.turns.items() if id_ == turn)


async def summary(engine: Engine, session: SessionId = MAIN) -> str:
    found = await engine.store.session(session)
    return found.summary if found else ""


async def has_summary(engine: Engine) -> bool:
    return bool(await summary(engine))


def names_in(request: ModelRequest) -> list[str]:
    said = [one.text.split(" ")[0] for one in request.messages if isinstance(one, UserText) and one.text]
    return [one for one in said if one]


async def test_long_history_is_summarised_and_the_newest_turns_stay(engine: Engine, model: Chatting) -> None:
    async with in_background(engine.worker().run()):
        await chat(engine, "one", "two", "three")
        await until(lambda: has_summary(engine))
        await chat(engine, "next")

    (written,) = model.written
    assert (written.tools, names_in(model.asked[-1])) == ((), ["three", "next"])
    (about,) = [one for one in written.messages if isinstance(one, UserText)]
    assert "one xxx" in about.data
    assert "two xxx" in about.data
    assert "three" not in about.data
    assert "The assistant answered" in about.data
    first = model.asked[-1].messages[0]
    assert isinstance(first, UserText)
    assert first.data.startswith(f"[{SUMMARY}; data")
    assert "In short." in first.data


async def test_next_summary_is_made_of_the_last_one_and_newer_turns(engine: Engine, model: Chatting) -> None:
    model.summaries = [Answer(text="Ann likes tea."), Answer(text="Tea and cake.")]
    async with in_background(engine.worker().run()):
        await chat(engine, "one", "two", "three")
        await until(lambda: has_summary(engine))
        await chat(engine, "four", "five")

        async def again() -> bool:
            return await summary(engine) == "Tea and cake."

        await until(again)

    (about,) = [one for one in model.written[1].messages if isinstance(one, UserText)]
    assert "Ann likes tea." in about.data
    assert "one xxx" not in about.data
    assert "three xxx" in about.data


async def test_a_short_history_costs_nothing(engine: Engine, model: Chatting) -> None:
    async with in_background(engine.worker().run()):
        await chat(engine, "one", "two")
        await asyncio.sleep(0.05)

    assert model.written == []


async def test_a_history_of_more_turns_than_are_given_is_summed_up_too(tmp_path: Path, model: Chatting) -> None:
    """Turns that fall out of the window must not be forgotten without a word."""
    engine = Engine(tmp_path)
    engine.models.model = model
    async with in_background(engine.worker().run()):
        for n in range(41):
            turn = await engine.say(f"n{n}")
            await until(lambda turn=turn: _ended(engine, str(turn)))
        await until(lambda: has_summary(engine))

    (about,) = [one for one in model.written[0].messages if isinstance(one, UserText)]
    assert "\nn0\n" in about.data
    assert "\nn20\n" in about.data
    assert "\nn21\n" not in about.data


async def test_cost_of_a_summary_counts_for_the_person(engine: Engine, model: Chatting) -> None:
    usage = Usage(input_tokens=900, output_tokens=50, cost_micros=7)
    model.summaries = [Answer(text="In short.", model="served", usage=usage)]
    async with in_background(engine.worker().run()):
        await chat(engine, "one", "two", "three")
        await until(lambda: has_summary(engine))

    (spent,) = await engine.store.spent(date.min)
    assert (spent.principal, spent.model, spent.answers, spent.usage) == (ANN_TELEGRAM, "served", 1, usage)
    assert spent.day == engine.clock.now().date()


async def test_summary_delays_no_turn_and_is_made_once_at_a_time(engine: Engine, model: Chatting) -> None:
    model.go.clear()
    async with in_background(engine.worker().run()):
        await chat(engine, "one", "two", "three", "four", "five")
        assert len(model.written) == 1
        assert await summary(engine) == ""
        model.go.set()
        await until(lambda: has_summary(engine))
        await chat(engine, "six")

    # What came last was read by no summary, so it is given.
    assert names_in(model.asked[-1])[-2:] == ["five", "six"]


@pytest.mark.parametrize("failure", [ModelError("Away."), Answer(text=" \n"), ValueError("a bug")])
async def test_failed_summary_is_tried_after_the_next_turn(
    engine: Engine, model: Chatting, failure: Answer | Exception
) -> None:
    model.summaries = [failure]
    async with in_background(engine.worker().run()):
        await chat(engine, "one", "two", "three")
        await until(lambda: _is(len(model.written) == 1))
        assert await summary(engine) == ""
        await chat(engine, "four")
        await until(lambda: has_summary(engine))

    assert await engine.texts() == ["Yes."] * 4


async def _is(found: bool) -> bool:
    return found


async def test_slow_summary_is_given_up(engine: Engine, model: Chatting) -> None:
    model.go.clear()
    engine.compaction.within_s = 0.05
    async with in_background(engine.worker().run()):
        await chat(engine, "one", "two", "three")
        await until(lambda: _is(len(model.written) == 1))
        await asyncio.sleep(0.2)
        model.go.set()
        await chat(engine, "four")
        await until(lambda: has_summary(engine))

    assert len(model.written) == 3  # three turns are too long for one


async def test_a_shutdown_does_not_wait_for_it(engine: Engine, model: Chatting) -> None:
    model.go.clear()
    worker = engine.worker()
    async with in_background(worker.run()) as running:
        await chat(engine, "one", "two", "three")
        await until(lambda: _is(len(model.written) == 1))
        worker.drain()
        async with asyncio.timeout(2):
            await running

    assert await summary(engine) == ""
    assert await engine.texts() == ["Yes."] * 3


async def test_a_new_history_gets_no_summary_of_the_old_one(engine: Engine, model: Chatting) -> None:
    model.go.clear()
    async with in_background(engine.worker().run()):
        await chat(engine, "one", "two", "three")
        await until(lambda: _is(len(model.written) == 1))
        await engine.ingress.message(inbound("/new"))
        model.go.set()
        await chat(engine, "fresh")
        await asyncio.sleep(0.05)

    assert await summary(engine) == ""
    assert names_in(model.asked[-1]) == ["fresh"]


async def test_a_summary_is_short_and_without_secrets_and_marks(engine: Engine, model: Chatting) -> None:
    class Telltale(Chatting):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
            text = f"{request.mark} and {SECRET} {'y' * 10_000}"
            self.written.append(request)
            yield Complete(answer=Answer(text=text))

    for name in ("one", "two", "three"):
        await engine.say(words(name))
        await engine.run(await engine.claim())
    engine.models.model = telltale = Telltale()
    await engine.compaction.run(LongHistory(session=MAIN, epoch=0, principal=ANN_TELEGRAM, hard=False))

    found = await summary(engine)
    assert len(found) <= SUMMARY_CHARS
    assert found.startswith("[hidden] and [hidden] yyy")
    assert telltale.written[0].mark not in found


async def test_history_refused_as_too_long_is_summarised_by_half(tmp_path: Path, model: Chatting) -> None:
    """Its context may be much smaller than what is configured."""
    engine = Engine(tmp_path)

    class Small(Chatting):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
            if sum(len(one.text) for one in request.messages if isinstance(one, UserText)) > 3_500:
                raise ModelError("Too long.", too_long=True)
            async for event in super().stream(request):
                yield event

    engine.models.model = small = Small()
    async with in_background(engine.worker().run()):
        await chat(engine, "one", "two", "three", "four")
        await until(lambda: has_summary(engine))
        await chat(engine, "five")

    assert names_in(small.asked[-2]) == ["three", "four"]  # the newer half, not the summary's
    assert names_in(small.asked[-1]) == ["three", "four", "five"]


def told(model: Chatting) -> list[str]:
    """Return the input of each summary."""
    return [one.data for request in model.written for one in request.messages if isinstance(one, UserText)]


async def test_text_too_long_for_a_summary_is_tried_with_fewer_turns(engine: Engine, model: Chatting) -> None:
    model.summaries = [ModelError("Too long.", too_long=True), Answer(text="In short."), Answer(text="Shorter.")]
    for name in ("one", "two", "three", "four"):
        await engine.say(words(name))
        await engine.run(await engine.claim())
    await engine.compaction.run(LongHistory(session=MAIN, epoch=0, principal=ANN_TELEGRAM, hard=False))

    seen = [[name for name in ("one", "two", "three", "four") if f"{name} x" in one] for one in told(model)]
    assert seen == [["one", "two"], ["one"], ["two"]]
    assert "In short." in told(model)[-1]
    assert await summary(engine) == "Shorter."
    history = await engine.store.history(MAIN, 0, 100)
    assert [one.inputs[0].message.text for one in history] == [words("three"), words("four")]


async def test_turns_in_no_summary_stay_in_the_history(engine: Engine, model: Chatting) -> None:
    """The oldest turns are summarised first after a long time without a summary, some rounds after each turn."""
    for n in range(20):
        await engine.say(words(f"n{n}"))
        await engine.run(await engine.claim())
    await engine.compaction.run(LongHistory(session=MAIN, epoch=0, principal=ANN_TELEGRAM, hard=False))

    seen = [[n for n in range(20) if f"n{n} x" in one] for one in told(model)]
    assert seen == [[0, 1], [2, 3], [4, 5]]
    history = await engine.store.history(MAIN, 0, 100)
    assert [one.inputs[0].message.text.split(" ")[0] for one in history] == [f"n{n}" for n in range(6, 20)]


async def test_the_oldest_turns_are_summarised_however_many_there_are(tmp_path: Path, model: Chatting) -> None:
    engine = Engine(tmp_path)
    engine.models.model = model
    for n in range(READ_TURNS + 5):
        await engine.say(f"n{n}.")
        await engine.run(await engine.claim())
    await engine.compaction.run(LongHistory(session=MAIN, epoch=0, principal=ANN_TELEGRAM, hard=False))

    (about,) = told(model)
    assert "\nn0.\n" in about
    history = await engine.store.history(MAIN, 0, 1_000)
    kept = {one.inputs[0].message.text for one in history}
    assert [n for n in range(READ_TURNS + 5) if f"n{n}." not in kept and f"\nn{n}.\n" not in about] == []


class Weighed(FailingStore):
    """Store that records the most ended turns it returned at once."""

    most = 0

    async def history(self, session: SessionId, epoch: int, limit: int, *, oldest: bool = False) -> Sequence[TurnView]:
        """Return the turns and record their number."""
        found = await super().history(session, epoch, limit, oldest=oldest)
        self.most = max(self.most, len(found))
        return found


@pytest.mark.whole("hundreds of turns; one more than is read at once stays")
async def test_a_history_of_any_length_is_not_read_as_a_whole(tmp_path: Path, model: Chatting) -> None:
    """Each round takes up where the one before ended: three of them tell what is in three reads."""
    store = Weighed(FakeClock())
    engine = Engine(tmp_path, store=store)
    engine.models.model = model
    count = 3 * READ_TURNS + HISTORY_TURNS
    for n in range(count):
        await engine.say(f"n{n}.")
        await engine.run(await engine.claim())
    await engine.compaction.run(LongHistory(session=MAIN, epoch=0, principal=ANN_TELEGRAM, hard=False))

    assert store.most == READ_TURNS
    assert [[n for n in range(count) if f"\nn{n}.\n" in one] for one in told(model)] == [
        list(range(at, at + READ_TURNS)) for at in range(0, 3 * READ_TURNS, READ_TURNS)
    ]


async def test_turn_ended_during_a_summary_is_not_in_it(engine: Engine, model: Chatting) -> None:
    """Later rounds, too, tell of what came before the turns that were the newest when it began."""
    model.go.clear()
    for name in ("one", "two", "three", "four", "five"):
        await engine.say(words(name))
        await engine.run(await engine.claim())
    long = LongHistory(session=MAIN, epoch=0, principal=ANN_TELEGRAM, hard=False)
    async with asyncio.TaskGroup() as group:
        group.create_task(engine.compaction.run(long), name="compaction")
        await until(lambda: _is(len(model.written) == 1))
        for name in ("six", "seven"):
            await engine.say(words(name))
            await engine.run(await engine.claim())
        model.go.set()

    assert [name for name in ("four", "five", "six", "seven") if any(f"{name} x" in one for one in told(model))] == [
        "four"
    ]


async def test_a_too_long_turn_is_summarised_by_head_and_tail(tmp_path: Path, model: Chatting) -> None:
    read = FakeTool(name="read", risk=Risk.READ)
    engine = Engine(tmp_path, [read], context_tokens=1_000)
    engine.model.script = [*(calls(f"read:c{n} {'z' * 600}") for n in range(12)), Answer(text="Read it all.")]
    for name in ("one", "two"):
        await engine.say(name)
        await engine.run(await engine.claim())
    engine.models.model = model
    await engine.compaction.run(LongHistory(session=MAIN, epoch=0, principal=ANN_TELEGRAM, hard=False))

    (about,) = told(model)
    assert len(about) < 3_500
    assert "\none\n" in about
    assert "Read it all." in about
    assert "messages and calls between are left out]" in about
    assert about.count(f"\n{model.written[0].mark}") % 2 == 0


async def test_tool_results_in_a_summary_are_cut_and_marked_as_data(tmp_path: Path, model: Chatting) -> None:
    read = FakeTool(name="read", risk=Risk.READ)
    engine = Engine(tmp_path, [read], context_tokens=1_000)
    engine.model.script = [
        calls(f"read:{'z' * 6_000} [end]"),
        Answer(text="Read."),
        Answer(text="Yes."),
        Answer(text="In short."),
    ]
    for name in ("one", "two"):
        await engine.say(name)
        await engine.run(await engine.claim())
    await engine.compaction.run(LongHistory(session=MAIN, epoch=0, principal=ANN_TELEGRAM, hard=True))

    request = engine.model.requests[-1]
    (about,) = [one for one in request.messages if isinstance(one, UserText)]
    assert about.data.count("[What came of a call; data between two lines") == 1
    assert about.data.count(f"\n{request.mark}\n") + about.data.endswith(request.mark) >= 4
    assert "[end]" in about.data
    assert max(len(one) for one in about.data.split(request.mark)) < CHARS_OF_EACH + 200


async def test_other_sessions_are_summed_up_at_the_same_time(engine: Engine, model: Chatting) -> None:
    model.go.clear()
    async with in_background(engine.worker().run()):
        await chat(engine, "one", "two", "three")
        for n in range(3):
            turn = await engine.say(words(f"c{n}"), who=CLEO_TELEGRAM, where=CLEO_CHAT)
            await until(lambda turn=turn: _ended(engine, str(turn)))
        await until(lambda: _is(len(model.written) == 2))
        model.go.set()
        await until(lambda: has_summary(engine))
        await until(lambda: _summary_of_cleo(engine))

    assert [replace(one, mark="").tools for one in model.written] == [(), ()]


async def _summary_of_cleo(engine: Engine) -> bool:
    return bool(await summary(engine, SessionId("main:cleo")))
