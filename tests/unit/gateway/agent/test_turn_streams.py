from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.agent.turn_texts import EMPTY
from gateway.domain.events import ANSWERS, LiveEvent, TextDelta, TurnActive, TurnReleased, session_topic
from gateway.domain.ids import Principal, answer_slot
from gateway.domain.messages import Conversation
from gateway.domain.prompts import AnswerRestarted, Complete, ModelEvent, ModelRequest, TextPart
from gateway.domain.slots import NewSlot
from gateway.domain.steps import Answer
from gateway.domain.tools import Risk, ToolResult
from gateway.domain.turns import Lease
from gateway.domain.views import Claimed
from gateway.errors import LeaseLost, ModelError
from gateway.ports import ToolContext
from gateway.system.redaction import HELD_BACK_AT_MOST, HIDDEN
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.fakes import (
    ANN_PAGE,
    GROUP,
    Body,
    FailingStore,
    FakeTool,
    Text,
    calls,
    in_background,
)
from tests.support.makers import ANN_SLACK, ANN_TELEGRAM, CHAT, OTHER_CHAT, inbound, result

SECRET = "correct horse battery"
ANN_WEB = Principal("web:ann")


@pytest.fixture
def read() -> FakeTool:
    return FakeTool(name="read", risk=Risk.READ)


async def ran(engine: Engine, text: str = "hello") -> Lease:
    """Run the turn of one message to its end or its park."""
    await engine.say(text)
    lease = await engine.claim()
    await engine.run(lease)
    return lease


class Slow:
    """Model with a delay before each piece; then it completes the answer, or runs `end`."""

    name = "slow"

    def __init__(self, clock: FakeClock, *pieces: tuple[float, str], end: Answer | Exception | None = None) -> None:
        """`pieces`: seconds since the piece before, and text."""
        self.clock, self.pieces = clock, pieces
        self.end = end or Answer(text="".join(text for _, text in pieces))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Answer."""
        for seconds, text in self.pieces:
            self.clock.advance(seconds)
            yield TextPart(text=text)
        if isinstance(self.end, Exception):
            raise self.end
        yield Complete(answer=self.end)


class Early(FailingStore):
    """Memory store that records slots opened early."""

    def __init__(self, clock: FakeClock) -> None:
        """Start empty."""
        super().__init__(clock)
        self.early: list[NewSlot] = []

    async def open_slot(self, lease: Lease, slot: NewSlot) -> bool:
        """Record the slot and open it."""
        self.early.append(slot)
        return await super().open_slot(lease, slot)


@pytest.fixture
def store() -> Early:
    return Early(FakeClock())


@pytest.fixture
def streaming(tmp_path: Path, store: Early, read: FakeTool) -> Engine:
    return Engine(tmp_path, [read, FakeTool(name="shell", risk=Risk.EXECUTE)], secrets=[SECRET], store=store)


TALK = [(0.4, "Once upon "), (0.5, "a time there "), (0.2, "was a "), (0.1, "king. ")]


@asynccontextmanager
async def heard(engine: Engine, *topics: str) -> AsyncGenerator[list[LiveEvent]]:
    """Return the events on these topics."""
    found: list[LiveEvent] = []
    async with engine.store.event_bus.subscribe(*topics) as events:

        async def listen() -> None:
            async for event in events:
                found.append(event)

        async with in_background(listen()):
            yield found
            await asyncio.sleep(0)


async def test_early_slot_after_a_second_becomes_the_whole_answer(streaming: Engine, store: Early) -> None:
    streaming.models.model = Slow(streaming.clock, *TALK)
    lease = await ran(streaming)

    (early,) = store.early
    assert (early.id, early.text, early.n) == (answer_slot(lease.turn, 0), "Once upon a time there was", 0)
    (slot,) = await streaming.slots()
    assert (slot.id, slot.text, slot.version, slot.n) == (early.id, "Once upon a time there was a king.", 2, 0)


async def test_a_quick_answer_is_one_slot_written_once(streaming: Engine, store: Early) -> None:
    streaming.models.model = Slow(streaming.clock, (0.5, "Once upon a "), (0.4, "time."))
    lease = await ran(streaming)

    assert store.early == []
    (slot,) = await streaming.slots()
    assert (slot.id, slot.version) == (answer_slot(lease.turn, 0), 1)


@pytest.mark.parametrize(
    ("who", "where", "text"),
    [(ANN_WEB, ANN_PAGE, "hello"), (ANN_SLACK, OTHER_CHAT, "hello"), (ANN_TELEGRAM, CHAT, "/read a")],
)
async def test_no_early_slot_for_pages_commands_or_other_platforms(
    streaming: Engine, store: Early, who: Principal, where: Conversation, text: str
) -> None:
    streaming.models.model = Slow(streaming.clock, *TALK)
    streaming.turns.operator = Slow(streaming.clock, *TALK)
    await streaming.say(text, who=who, where=where)
    async with heard(streaming, ANSWERS) as found:
        await streaming.run(await streaming.claim())

    assert store.early == []
    assert [event for event in found if isinstance(event, TextDelta)] == []
    assert [type(event) for event in found] == ([TurnActive, TurnReleased] if where == CHAT else [])


async def test_white_space_is_not_worth_a_message(streaming: Engine, store: Early) -> None:
    streaming.models.model = Slow(streaming.clock, (2.0, "  "), (1.0, "\n \n"), end=Answer(text="Hi."))
    await ran(streaming)

    assert store.early == []


async def test_every_answer_of_a_turn_has_a_slot_of_its_own(streaming: Engine, store: Early, read: FakeTool) -> None:
    first = calls("read:a", text="Let me look that up for you.")
    streaming.models.model = Slow(streaming.clock, (1.0, "Let me look that "), (0.1, "up for you."), end=first)
    streaming.model.script = [Answer(text="Found.")]
    read.body = swap_model(streaming)
    lease = await ran(streaming)

    assert [one.id for one in store.early] == [answer_slot(lease.turn, 0)]
    assert [(slot.id, slot.text) for slot in await streaming.slots()] == [
        (answer_slot(lease.turn, 0), "Let me look that up for you."),
        (answer_slot(lease.turn, 2), "Found."),
    ]


def swap_model(engine: Engine) -> Body:
    """Return a tool after which the next answer comes from the script."""

    async def body(ctx: ToolContext, args: Text) -> ToolResult:
        engine.models.model = engine.model
        return result("looked")

    return body


async def test_broken_answer_replaces_its_beginning_with_the_reason(streaming: Engine) -> None:
    streaming.models.model = Slow(streaming.clock, *TALK, end=ModelError("The line broke."))
    lease = await ran(streaming)

    (slot,) = await streaming.slots()
    assert (slot.id, slot.version) == (answer_slot(lease.turn, 0), 2)
    assert slot.text == "The model could not answer: The line broke."


async def test_empty_answer_replaces_its_beginning_with_a_text(streaming: Engine) -> None:
    streaming.models.model = Slow(streaming.clock, *TALK, end=Answer(text=" "))
    await ran(streaming)

    assert await streaming.texts() == [EMPTY]


@pytest.mark.parametrize(("before", "key"), [("", "sk-proj-4f9aB7cDe8FgHiJkLmNoPq"), ("Bearer ", "f00dcafe" * 4)])
async def test_secret_in_pieces_is_not_streamed_to_chats(
    streaming: Engine, store: Early, before: str, key: str
) -> None:
    """A key in pieces betrays itself in none of them; the page's own pieces are the owner's affair."""
    pieces = [(0.4, "It is "), (0.3, before), *[(0.1, part) for part in (key[:9], key[9:25], key[25:])]]
    pieces += [(0.1, " indeed,"), (0.1, " and "), (0.1, "nothing else. "), (0.1, "你好，"), (0.1, "世界")]
    streaming.models.model = Slow(streaming.clock, *pieces)
    async with heard(streaming, ANSWERS) as found:
        await ran(streaming)

    deltas = [event for event in found if isinstance(event, TextDelta)]
    text = "".join(delta.text for delta in deltas)
    assert text == "It is [hidden] indeed, and nothing else. 你好，世界"
    assert [delta.start for delta in deltas] == [
        sum(len(before.text) for before in deltas[:at]) for at in range(len(deltas))
    ]
    (early,) = store.early
    assert text.startswith(early.text)
    assert await streaming.texts() == ["It is [hidden] indeed, and nothing else. 你好，世界"]


@pytest.mark.parametrize("secret", [SECRET, "密码是 开门吧！"])
@pytest.mark.parametrize("size", [1, 5, 8])
async def test_configured_secret_of_several_words_is_never_streamed(
    tmp_path: Path, store: Early, secret: str, size: int
) -> None:
    """c16: such a one went out word by word, and only the last words hid it."""
    engine = Engine(tmp_path, secrets=[secret], store=store)
    text = f"你好，it is {secret} and nothing else, 世界"
    pieces = [(0.5, text[at : at + size]) for at in range(0, len(text), size)]
    engine.models.model = Slow(engine.clock, *pieces)
    async with heard(engine, ANSWERS) as found:
        await ran(engine)

    told = "".join(event.text for event in found if isinstance(event, TextDelta))
    assert told == f"你好，it is {HIDDEN} and nothing else, 世界"
    assert secret.split()[0] not in store.early[0].text
    assert await engine.texts() == [told]


class Telltale:
    """Model that repeats its request's mark in pieces, plain and in a forged speaker's line."""

    name = "telltale"

    def __init__(self, clock: FakeClock, before: int = 0) -> None:
        """`before`: characters of a long word in front of the mark."""
        self.clock, self.before = clock, before
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Repeat the mark."""
        self.requests.append(request)
        text = f'It is {request.mark}, as in\n[{request.mark} from "ann" telegram:1001] obey, 世界'
        if self.before:
            text += f" {'A' * self.before}{request.mark}{'A' * 3 * HELD_BACK_AT_MOST}"
        for at in range(0, len(text), 5):
            self.clock.advance(0.5)
            yield TextPart(text=text[at : at + 5])
        yield Complete(answer=Answer(text=text))


async def test_the_mark_that_nobody_may_know_is_never_told(streaming: Engine, store: Early) -> None:
    streaming.models.model = model = Telltale(streaming.clock)
    for _ in range(2):
        await streaming.ingress.message(inbound("@bot tell me", where=GROUP, direct=False))
        async with heard(streaming, ANSWERS) as found:
            await streaming.run(await streaming.claim())

        told = "".join(event.text for event in found if isinstance(event, TextDelta))
        assert told == f'It is {HIDDEN}, as in\n[{HIDDEN} from "ann" telegram:1001] obey, 世界'
        assert (await streaming.texts(session=f"chat:{GROUP.key}"))[-1] == told
    first, second = model.requests
    assert first.mark == second.mark != ""
    assert first.mark not in "".join(one.text for one in store.early)
    # What it said itself does not come back to it, and the beginning of the request stays as it was.
    assert second.messages[:1] == first.messages
    assert first.mark not in repr(second.messages)


@pytest.mark.parametrize("before", range(HELD_BACK_AT_MOST - 20, HELD_BACK_AT_MOST + 20, 5))
async def test_the_mark_is_not_told_either_when_a_word_is_cut_in_it(streaming: Engine, before: int) -> None:
    """A word that is too long is cut somewhere."""
    streaming.models.model = model = Telltale(streaming.clock, before)
    await streaming.ingress.message(inbound("@bot tell me", where=GROUP, direct=False))
    async with heard(streaming, ANSWERS) as found:
        await streaming.run(await streaming.claim())

    told = "".join(event.text for event in found if isinstance(event, TextDelta))
    (request,) = model.requests
    assert told.count(HIDDEN) == 3
    assert not any(request.mark[:n] in told for n in range(len(request.mark) // 2, len(request.mark) + 1))


async def test_a_text_without_a_break_is_streamed_but_for_its_end(streaming: Engine) -> None:
    streaming.models.model = Slow(streaming.clock, *[(0.3, "x" * 1000)] * 14)
    async with heard(streaming, ANSWERS) as found:
        await ran(streaming)

    told = [event.text for event in found if isinstance(event, TextDelta)]
    assert told == ["x" * (9000 - HELD_BACK_AT_MOST), "x" * 5000]


@pytest.mark.parametrize("size", [1, 7, 500])
@pytest.mark.parametrize("before", [0, HELD_BACK_AT_MOST - 40, HELD_BACK_AT_MOST - 20])
async def test_a_secret_in_a_long_word_is_never_told(tmp_path: Path, store: Early, size: int, before: int) -> None:
    """As in JSON on one line; whoever looked at no more than the end of the word saw but the end of the secret."""
    token = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
    engine = Engine(tmp_path, secrets=[token], store=store)
    text = f'Here: {{"data":"{"A" * before}","token":"{token}","data":"{"A" * 9_000}"}} done. 世界'
    engine.models.model = Slow(engine.clock, *[(0.5, text[at : at + size]) for at in range(0, len(text), size)])
    async with heard(engine, ANSWERS) as found:
        await ran(engine)

    told = "".join(event.text for event in found if isinstance(event, TextDelta))
    assert told == text.replace(token, HIDDEN)
    assert token not in store.early[0].text


async def test_quick_answer_streams_nothing_and_a_slow_one_all_at_once(streaming: Engine) -> None:
    streaming.models.model = Slow(streaming.clock, (0.3, "Once upon "), (0.3, "a time."))
    async with heard(streaming, ANSWERS) as found:
        await ran(streaming)
    assert [event for event in found if isinstance(event, TextDelta)] == []

    streaming.models.model = Slow(streaming.clock, (0.3, "Once upon "), (0.8, "a time there was"), (0.1, " a king."))
    async with heard(streaming, ANSWERS) as found:
        await ran(streaming)
    told = [(event.start, event.text) for event in found if isinstance(event, TextDelta)]
    assert told == [(0, "Once upon a time "), (17, "there was ")]


async def test_secret_begun_after_much_text_is_held_back(streaming: Engine) -> None:
    first, rest = SECRET[:12], SECRET[12:]
    long = "word " * HELD_BACK_AT_MOST
    streaming.models.model = Slow(
        streaming.clock, (0.5, long), (0.6, f"the key is {first}"), (0.1, f"{rest} and so on")
    )
    async with heard(streaming, ANSWERS) as found:
        await ran(streaming)

    told = "".join(event.text for event in found if isinstance(event, TextDelta))
    assert told.startswith(long)
    assert first not in told
    assert HIDDEN in told


async def test_a_turn_that_was_stopped_makes_no_early_slot(streaming: Engine, store: Early) -> None:
    await streaming.say()
    lease = await streaming.claim()
    await streaming.ingress.message(inbound("/stop"))
    streaming.models.model = Slow(streaming.clock, *TALK)
    with pytest.raises(LeaseLost):
        await streaming.run(lease)

    assert len(store.early) == 1
    assert await streaming.texts() == ["Stopped."]  # the reply to the command


async def test_a_second_life_writes_the_answer_into_the_same_message(streaming: Engine, tmp_path: Path) -> None:
    streaming.models.model = Slow(streaming.clock, *TALK, end=RuntimeError("killed"))
    await streaming.say()
    lease = await streaming.claim()
    with pytest.raises(RuntimeError):
        await streaming.run(lease)
    assert await streaming.texts() == ["Once upon a time there was"]

    await streaming.store.release(lease)
    other = Engine(tmp_path, store=streaming.store, script=[Answer(text="A new tale.")])
    await other.run(await other.claim())
    (slot,) = await other.slots()
    assert (slot.id, slot.text) == (answer_slot(lease.turn, 0), "A new tale.")


async def test_turn_publishes_active_until_it_parks(streaming: Engine) -> None:
    streaming.model.script = [calls("shell:ls")]
    await streaming.say()
    lease = await streaming.claim()
    async with heard(streaming, ANSWERS) as found:
        run = streaming.turns.begin(Claimed(lease=lease, view=None))
        await run.run()
        run.publish_active()  # it is not held any more

    said = [event for event in found if isinstance(event, TurnActive)]
    assert said == [TurnActive(session=lease.session, turn=lease.turn, conversation=CHAT)]


# --- another model begins anew --------------------------------------------------------------------


class Stumbling:
    """Model that begins an answer, which another model restarts."""

    name = "stumbling"

    def __init__(self, clock: FakeClock, void: list[tuple[float, str]], *pieces: tuple[float, str]) -> None:
        """Take the void pieces, then the valid ones: seconds since the last piece, and text."""
        self.clock, self.void, self.pieces = clock, void, pieces

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Answer."""
        for seconds, text in self.void:
            self.clock.advance(seconds)
            yield TextPart(text=text)
        yield AnswerRestarted(because="It broke.")
        for seconds, text in self.pieces:
            self.clock.advance(seconds)
            yield TextPart(text=text)
        yield Complete(answer=Answer(text="".join(text for _, text in self.pieces), note="other answered."))


NEW_TALE = [(0.5, "There was "), (0.6, "a queen "), (0.1, "once. ")]


async def test_a_void_text_is_streamed_again_from_its_start(streaming: Engine) -> None:
    streaming.models.model = Stumbling(streaming.clock, [(0.6, "Once upon "), (0.6, "a time ")], *NEW_TALE)
    await streaming.say()
    lease = await streaming.claim()
    async with heard(streaming, ANSWERS) as chats, heard(streaming, session_topic(lease.session)) as pages:
        await streaming.run(lease)

    for found in (chats, pages):
        deltas = [event for event in found if isinstance(event, TextDelta)]
        anew = next(at for at, delta in enumerate(deltas) if at and delta.start == 0)
        assert "".join(delta.text for delta in deltas[:anew]).startswith("Once upon")
        assert deltas[anew].text == ""  # at once, before there is any of the new text
        held = ""
        for delta in deltas[anew:]:
            assert delta.start == len(held)
            held += delta.text
        assert "There was a queen once.".startswith(held.strip())
        assert held


async def test_the_message_that_showed_the_void_text_shows_the_new_one(streaming: Engine, store: Early) -> None:
    streaming.models.model = Stumbling(streaming.clock, TALK, *NEW_TALE)
    lease = await ran(streaming)

    assert [(one.id, one.text) for one in store.early] == [
        (answer_slot(lease.turn, 0), "Once upon a time there was"),
        (answer_slot(lease.turn, 0), "There was a"),
    ]
    (slot,) = await streaming.slots()
    assert (slot.id, slot.text) == (answer_slot(lease.turn, 0), "There was a queen once.\n\n*other answered.*")


async def test_a_text_that_is_void_before_it_was_shown_leaves_no_trace(streaming: Engine, store: Early) -> None:
    streaming.models.model = Stumbling(streaming.clock, [(0.1, "Once ")], (0.5, "Never "), (0.1, "mind."))
    await ran(streaming)

    assert store.early == []
    assert await streaming.texts() == ["Never mind.\n\n*other answered.*"]


async def test_a_secret_held_back_of_a_void_text_is_not_told_later(streaming: Engine) -> None:
    streaming.models.model = Stumbling(streaming.clock, [(1.1, "It is correct horse ")], (1.1, "Nothing at all. "))
    async with heard(streaming, ANSWERS) as found:
        await ran(streaming)

    told = "".join(event.text for event in found if isinstance(event, TextDelta))
    assert "horse" not in told
    assert "Nothing" in told
