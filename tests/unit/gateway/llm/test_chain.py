"""Chains of scripted models: fallback, cooldown, cost."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeAlias

import pytest

from gateway.domain.children import Lineage, SpawnMode
from gateway.domain.ids import SessionId, TurnId
from gateway.domain.messages import Conversation
from gateway.domain.prompts import AnswerRestarted, Complete, ModelEvent, ModelRequest, TextPart, UserText
from gateway.domain.sessions import Origin, Session, SessionKind
from gateway.domain.steps import Answer, Usage
from gateway.errors import ModelError
from gateway.llm.chain import WELL, ChainedModels, ModelHealth, Price, after_failure, next_choice
from gateway.ports import Model
from gateway.system.redaction import Redactor
from tests.support.clock import FakeClock

ASK = ModelRequest(system="", messages=(UserText(text="Hi"),), tools=())
BUSY = ModelError("example.org limits how often it may be asked (429: slow).", cure="Wait.", retryable=True)
KEY = ModelError("The key for example.org is refused (401: expired sk-abcdefghijklmnopqrstuv).", cure="Set it.")
LONG = ModelError("The conversation is too long.", too_long=True)
LONG_TOO = ModelError("So it is.", too_long=True)
FILTERED = ModelError("The provider's content filter stopped the answer.", cure="Ask otherwise.", about_request=True)

Line: TypeAlias = str | ModelError | AnswerRestarted | None
"""Line of a script: a piece of text, a failure, a restart; None: the stream ends without an answer."""


class Scripted:
    """`ports.Model` that answers each prompt with the next lines; after the last, with its name."""

    def __init__(self, name: str, *script: Sequence[Line], usage: Usage | None = None) -> None:
        self._name = name
        self.script = list(script)
        self.asked = 0
        self.closed = 0
        self._usage = usage or Usage(input_tokens=1_000, output_tokens=10)

    @property
    def name(self) -> str:
        return self._name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        del request
        self.asked += 1
        lines = self.script.pop(0) if self.script else [self._name]
        text = ""
        try:
            for line in lines:
                if isinstance(line, ModelError):
                    raise line
                if line is None:
                    return
                text = text + line if isinstance(line, str) else ""
                yield TextPart(text=line) if isinstance(line, str) else line
            yield Complete(answer=Answer(text=text, model=self._name, usage=self._usage))
        finally:
            self.closed += 1


def session(model: str | None = None) -> Session:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    root = Session(
        id=SessionId("main:ann"),
        kind=SessionKind.MAIN,
        origin=Origin.DIRECT,
        owner=None,
        title="ann",
        epoch=0,
        root_kind=SessionKind.MAIN,
        created_at=now,
        active_at=now,
    )
    if model is None:
        return root
    lineage = Lineage(
        parent=root.id,
        turn=TurnId("t1"),
        n=1,
        root=root.id,
        root_turn=TurnId("t1"),
        conversation=Conversation(channel="web", account="a", chat="c"),
        depth=1,
        mode=SpawnMode.RUN,
        model=model,
        active_s=60,
        tokens=0,
    )
    return replace(root, id=SessionId("child:t1.1"), lineage=lineage)


def chain(*models: Scripted, clock: FakeClock | None = None, prices: dict[str, Price] | None = None) -> Model:
    return ChainedModels(models, prices or {}, clock or FakeClock(), Redactor()).of(session())


async def ask(model: Model) -> tuple[Answer, list[ModelEvent]]:
    """Return the answer and all events before it."""
    events = [event async for event in model.stream(ASK)]
    *before, last = events
    assert isinstance(last, Complete)
    assert shown(before) == last.answer.text
    return last.answer, before


def shown(events: Sequence[ModelEvent]) -> str:
    """Return the text that a reader sees in the end."""
    text = ""
    for event in events:
        text = "" if isinstance(event, AnswerRestarted) else text + (event.text if isinstance(event, TextPart) else "")
    return text


async def fails(model: Model) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(model)
    return caught.value


# --- next choice and cooldown -----------------------------------------------------------------------

RESTS = ModelHealth(failures=1, rests_until=60.0, because="429")
SOONER = ModelHealth(failures=1, rests_until=59.0, because="429")


@pytest.mark.parametrize(
    ("healths", "asked", "now", "even_resting", "expected"),
    [
        ([WELL, WELL], [], 0.0, False, 0),
        ([WELL, WELL], [0], 0.0, False, 1),
        ([WELL, WELL], [0, 1], 0.0, False, None),
        ([RESTS, WELL], [], 59.9, False, 1),
        ([RESTS, WELL], [1], 59.9, False, None),
        ([RESTS, WELL], [], 60.0, False, 0),
        ([WELL, RESTS, WELL], [0], 0.0, False, 2),
        ([RESTS, RESTS], [], 0.0, False, None),
        ([RESTS, RESTS], [], 0.0, True, 0),
        ([RESTS, RESTS], [0], 0.0, True, 1),
        ([RESTS, SOONER, RESTS], [], 0.0, True, 1),
        ([RESTS, SOONER, RESTS], [1], 0.0, True, 0),
        ([RESTS, SOONER, RESTS], [1, 0], 0.0, True, 2),
        ([RESTS, SOONER, RESTS], [1, 0, 2], 0.0, True, None),
        ([SOONER, RESTS, WELL], [], 0.0, True, 2),
        ([RESTS], [], 0.0, True, 0),
        ([], [], 0.0, True, None),
    ],
)
def test_the_next_is_the_first_that_neither_rests_nor_was_asked(
    healths: list[ModelHealth], asked: list[int], now: float, even_resting: bool, expected: int | None
) -> None:
    assert next_choice(healths, asked, now, even_resting=even_resting) == expected


@pytest.mark.parametrize(
    ("failures", "until", "retry_after_s", "now", "expected"),
    [
        (0, -math.inf, None, 100.0, (1, 160.0)),
        (1, 160.0, None, 160.0, (2, 280.0)),
        (2, 280.0, None, 300.0, (3, 540.0)),
        (3, 540.0, None, 600.0, (4, 1080.0)),
        (4, 1080.0, None, 2000.0, (5, 2600.0)),
        (999, 0.0, None, 1.0, (1000, 601.0)),
        (0, -math.inf, 5.0, 0.0, (1, 60.0)),
        (0, -math.inf, 300.0, 0.0, (1, 300.0)),
        (0, -math.inf, 1e9, 0.0, (1, 600.0)),
        (1, 60.0, None, 30.0, (1, 90.0)),
        (1, 300.0, None, 30.0, (1, 300.0)),
    ],
    ids=str,
)
def test_cooldown_doubles_up_to_ten_minutes(
    failures: int, until: float, retry_after_s: float | None, now: float, expected: tuple[int, float]
) -> None:
    after = after_failure(ModelHealth(failures=failures, rests_until=until), "x", retry_after_s, now)

    assert (after.failures, after.rests_until, after.because) == (*expected, "x")


# --- one answer ---------------------------------------------------------------------------------------


async def test_the_first_model_answers_and_nothing_is_noted() -> None:
    second = Scripted("openai:b")
    answer, events = await ask(chain(Scripted("openai:a", ["Hel", "lo"]), second))

    assert (answer.text, answer.note, answer.model) == ("Hello", "", "openai:a")
    assert events == [TextPart(text="Hel"), TextPart(text="lo")]
    assert second.asked == 0


@pytest.mark.parametrize("error", [BUSY, KEY, ModelError("odd")], ids=str)
async def test_fallback_answers_after_any_failure_and_a_note_tells(error: ModelError) -> None:
    answer, events = await ask(chain(Scripted("anthropic:claude-x", [error]), Scripted("openai:gpt-5-mini")))

    assert answer.model == "openai:gpt-5-mini"
    assert answer.note.startswith("gpt-5-mini answered: claude-x failed (")
    assert "\n" not in answer.note
    assert len(answer.note) < 200
    assert not any(isinstance(event, AnswerRestarted) for event in events)


async def test_the_note_tells_the_reason_and_no_secret() -> None:
    busy, _ = await ask(chain(Scripted("openai:a", [BUSY]), Scripted("openai:b")))
    key, _ = await ask(chain(Scripted("openai:a", [KEY]), Scripted("openai:b")))
    long, _ = await ask(chain(Scripted("openai:a", [ModelError("x\n" * 500)]), Scripted("openai:b")))

    assert busy.note == "b answered: a failed (example.org limits how often it may be asked (429: slow))"
    assert key.note == "b answered: a failed (The key for example.org is refused (401: expired [hidden]))"
    assert long.note.endswith("x x…)")


async def test_the_note_is_shortened_after_its_secrets_are_hidden() -> None:
    said = ModelError(f"{'x' * 100} {'opensesame' * 4} is no key")
    models = [Scripted("openai:a", [said]), Scripted("openai:b")]
    answer, _ = await ask(ChainedModels(models, {}, FakeClock(), Redactor(["opensesame" * 4])).of(session()))

    assert answer.note == f"b answered: a failed ({'x' * 100} [hidden] is no key)"


async def test_text_of_a_model_that_breaks_off_is_taken_back() -> None:
    answer, events = await ask(chain(Scripted("openai:a", ["Half", BUSY]), Scripted("openai:b", ["Who", "le"])))

    assert answer.text == "Whole"
    assert events == [
        TextPart(text="Half"),
        AnswerRestarted(because=BUSY.message),
        TextPart(text="Who"),
        TextPart(text="le"),
    ]


async def test_a_stream_without_an_answer_is_a_failure() -> None:
    answer, events = await ask(chain(Scripted("openai:a", ["Half", None]), Scripted("openai:b")))

    assert answer.model == "openai:b"
    assert AnswerRestarted(because="The model's stream ended before its answer did.") in events


async def test_restart_by_the_model_itself_is_not_repeated() -> None:
    own = AnswerRestarted(because="again")
    _, events = await ask(chain(Scripted("openai:a", ["Half", own, BUSY]), Scripted("openai:b")))

    assert events == [TextPart(text="Half"), own, TextPart(text="openai:b")]


async def test_too_long_prompt_falls_back_without_a_cooldown() -> None:
    model = chain(Scripted("openai:a", [LONG]), Scripted("openai:b"))
    answer, _ = await ask(model)

    assert (answer.model, answer.note) == ("openai:b", "b answered: a failed (The conversation is too long)")
    assert (await ask(model))[0].model == "openai:a"


@pytest.mark.parametrize(
    "scripts", [[LONG, LONG_TOO, LONG_TOO], [BUSY, LONG, LONG_TOO], [LONG, BUSY, KEY], [KEY, BUSY, LONG]]
)
async def test_too_long_error_is_raised_first_when_all_fail(scripts: list[ModelError]) -> None:
    models = [Scripted(f"openai:{n}", [error]) for n, error in enumerate(scripts)]

    assert await fails(chain(*models)) is LONG
    assert [model.asked for model in models] == [1, 1, 1]


async def test_request_too_long_is_not_given_to_a_resting_model() -> None:
    first, second = Scripted("openai:a", ["fine"]), Scripted("openai:b", [BUSY])
    models = ChainedModels([first, second], {}, FakeClock(), Redactor())
    await ask(models.of(session("openai:b")))
    first.script.append([LONG])

    assert await fails(models.of(session())) is LONG
    assert second.asked == 1


async def test_first_error_names_the_others_when_all_models_fail() -> None:
    models = [Scripted("openai:a", [BUSY]), Scripted("openai:b", [KEY]), Scripted("openai:c", [ModelError("Gone.")])]
    error = await fails(chain(*models))

    assert error.message == (
        "example.org limits how often it may be asked (429: slow). Others did not answer either: "
        "b (The key for example.org is refused (401: expired [hidden])); c (Gone)."
    )
    assert (error.cure, error.retryable, error.too_long) == (BUSY.cure, True, False)
    assert [model.asked for model in models] == [1, 1, 1]


async def test_one_model_alone_raises_what_it_raised() -> None:
    model = Scripted("openai:a", [BUSY])

    assert await fails(chain(model)) is BUSY
    assert model.asked == 1


async def test_model_is_asked_again_after_a_break_without_fallback() -> None:
    model = Scripted("openai:a", ["Half", BUSY], ["Whole"])
    answer, events = await ask(chain(model))

    assert (answer.text, answer.note) == ("Whole", "")
    assert AnswerRestarted(because=BUSY.message) in events

    model = Scripted("openai:a", ["Half", BUSY], ["Half", BUSY], ["Whole"])
    assert await fails(chain(model)) is BUSY
    assert model.asked == 2

    model = Scripted("openai:a", ["Half", KEY], ["Whole"])
    assert await fails(chain(model)) is KEY
    assert model.asked == 1


# --- cooldown --------------------------------------------------------------------------------------


async def test_a_failed_model_is_passed_over_until_its_rest_is_over() -> None:
    clock = FakeClock()
    first, second = Scripted("openai:a", [BUSY]), Scripted("openai:b")
    model = chain(first, second, clock=clock)
    await ask(model)

    clock.advance(59)
    answer, _ = await ask(model)
    assert answer.note.startswith("b answered: a rests after a failure (example.org limits")
    assert first.asked == 1

    clock.advance(1)
    answer, _ = await ask(model)
    assert (answer.model, answer.note) == ("openai:a", "")


async def test_an_answer_ends_the_count() -> None:
    clock = FakeClock()
    first = Scripted("openai:a", [BUSY], [BUSY], ["fine"], [BUSY])
    model = chain(first, Scripted("openai:b"), clock=clock)
    for seconds in (60, 120, 0):
        await ask(model)
        clock.advance(seconds)
    await ask(model)
    clock.advance(60)

    assert (await ask(model))[0].model == "openai:a"


async def test_the_rest_that_a_server_asked_for_is_given_it() -> None:
    clock = FakeClock()
    wish = ModelError("429", retryable=True, retry_after_s=300)
    model = chain(Scripted("openai:a", [wish]), Scripted("openai:b"), clock=clock)
    await ask(model)

    clock.advance(299)
    assert (await ask(model))[0].model == "openai:b"
    clock.advance(1)
    assert (await ask(model))[0].model == "openai:a"


async def test_all_in_cooldown_are_asked_once_shortest_first() -> None:
    clock = FakeClock()
    first, second = Scripted("openai:a", [BUSY], [BUSY], [BUSY]), Scripted("openai:b", [KEY], [KEY])
    model = chain(first, second, clock=clock)
    await fails(model)

    error = await fails(model)
    assert "b (The key for example.org" in error.message
    assert (first.asked, second.asked) == (2, 2)
    assert (await ask(model))[0].model == "openai:b"
    assert (first.asked, second.asked) == (3, 3)
    assert (await ask(model))[0].model == "openai:b"
    assert first.asked == 3


async def test_the_soonest_to_recover_is_asked_first() -> None:
    long_rest = ModelError("429", retryable=True, retry_after_s=300)
    first, second = Scripted("openai:a", [long_rest]), Scripted("openai:b", [BUSY])
    model = chain(first, second)
    await fails(model)

    answer, _ = await ask(model)
    assert (answer.model, answer.note) == ("openai:b", "b answered: a rests after a failure (429)")
    assert first.asked == 1


async def test_model_in_cooldown_is_not_asked_when_another_fails() -> None:
    first, second = Scripted("openai:a", [KEY]), Scripted("openai:b", ["fine"], [FILTERED], ["fine"])
    model = chain(first, second)
    await ask(model)

    error = await fails(model)
    assert "a (rests: The key for example.org" in error.message
    assert (await ask(model))[0].model == "openai:b"
    assert first.asked == 1


async def test_request_error_falls_back_without_a_cooldown() -> None:
    first = Scripted("openai:a", [FILTERED])
    model = chain(first, Scripted("openai:b"))

    answer, _ = await ask(model)
    assert (answer.model, answer.note[:21]) == ("openai:b", "b answered: a failed ")
    answer, _ = await ask(model)
    assert (answer.model, answer.note) == ("openai:a", "")


async def test_a_model_that_others_could_step_in_for_is_asked_in_haste() -> None:
    class Two(Scripted):
        def impatient(self) -> Model:
            return quick

    quick, last = Scripted("openai:a", [BUSY], [BUSY]), Scripted("openai:b", [KEY])
    first = Two("openai:a")
    model = chain(first, last)
    await fails(model)
    assert (quick.asked, first.asked, last.asked) == (1, 0, 1)

    alone = chain(Two("openai:a", ["fine"]))
    assert (await ask(alone))[0].text == "fine"


# --- close -----------------------------------------------------------------------------------------


async def test_closing_the_stream_closes_the_model_that_answers() -> None:
    first, second = Scripted("openai:a", [BUSY]), Scripted("openai:b", ["Hel", "lo"])
    events = chain(first, second).stream(ASK)
    await anext(events)
    await events.aclose()

    assert (first.closed, second.closed) == (1, 1)


async def test_cancelling_goes_through_and_asks_nobody_else() -> None:
    class Silent(Scripted):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
            await asyncio.Event().wait()
            async for event in super().stream(request):
                yield event

    first, second = Silent("openai:a"), Scripted("openai:b")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await ask(chain(first, second))

    assert second.asked == 0


# --- the configured models ---------------------------------------------------------------------------


async def test_cost_of_an_answer_is_filled_in() -> None:
    prices = {"openai:b": Price(input=1.0, output=5.0)}
    free, _ = await ask(chain(Scripted("openai:a"), prices=prices))
    paid, _ = await ask(chain(Scripted("openai:a", [BUSY]), Scripted("openai:b"), prices=prices))

    assert free.usage.cost_micros == 0
    assert paid.usage == Usage(input_tokens=1_000, output_tokens=10, cost_micros=1_050)


async def test_child_asks_its_own_model_before_the_default_ones() -> None:
    a, b, c = Scripted("openai:a"), Scripted("openai:b"), Scripted("openai:c", [KEY])
    models = ChainedModels([a, b, c], {}, FakeClock(), Redactor())

    assert list(models.names) == ["openai:a", "openai:b", "openai:c"]
    assert (await ask(models.of(session())))[0].model == "openai:a"
    assert (await ask(models.of(session(""))))[0].model == "openai:a"
    assert (await ask(models.of(session("openai:b"))))[0].model == "openai:b"
    answer, _ = await ask(models.of(session("openai:c")))
    assert (answer.model, answer.note[:22]) == ("openai:a", "a answered: c failed (")
    assert models.of(session("openai:b")).name == "openai:b"


async def test_removed_model_is_replaced_by_the_default() -> None:
    models = ChainedModels([Scripted("openai:a")], {}, FakeClock(), Redactor())

    assert (await ask(models.of(session("openai:gone"))))[0].model == "openai:a"


async def test_all_chains_share_what_is_known_of_a_model() -> None:
    a, b = Scripted("openai:a"), Scripted("openai:b", [KEY])
    models = ChainedModels([a, b], {}, FakeClock(), Redactor())
    await ask(models.of(session("openai:b")))

    answer, _ = await ask(models.of(session("openai:b")))
    assert "b rests" in answer.note
    assert b.asked == 1


async def test_models_that_hold_something_open_are_closed() -> None:
    class Holding(Scripted):
        async def close(self) -> None:
            self.closed += 1

    holding = Holding("anthropic:a")
    await ChainedModels([Scripted("openai:b"), holding], {}, FakeClock(), Redactor()).close()

    assert holding.closed == 1
