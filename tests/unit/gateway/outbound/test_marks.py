"""Marks of receipt go when a turn has ended and its last answer is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gateway.domain.ids import web_principal
from gateway.domain.messages import Conversation, Inbound
from gateway.domain.routes import WhileRunning
from gateway.domain.slots import SlotKind, SlotState
from gateway.domain.steps import Answer
from gateway.domain.tools import Effect, Risk
from gateway.domain.turns import TurnKind
from tests.support.engine import Engine
from tests.support.fakes import ANN_PAGE, FakeChannel, FakeTool, calls
from tests.support.makers import ANN, CHAT, inbound, route
from tests.support.sending import delivered


@dataclass(slots=True)
class MarkingChannel(FakeChannel):
    """A channel that marks what it received."""

    unmarked: list[str] = field(default_factory=list[str])
    broken: bool = False

    def answered(self, messages: Sequence[Inbound]) -> None:
        """Remember their texts."""
        if self.broken:
            raise RuntimeError("the platform said something strange")
        self.unmarked += [message.text for message in messages]

    def stopped(self, conversation: Conversation) -> None:
        """Remember where."""
        self.unmarked.append(f"all in {conversation.key}")


async def test_marks_go_with_the_last_answer_of_a_turn(tmp_path: Path) -> None:
    """Not with what is said before its calls; and after a restart too, since the store knows the messages."""
    engine = Engine(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE)])
    channel = MarkingChannel()
    engine.model.script = [replace(calls("shell:ls"), text="I look."), Answer(text="Three files.", model="scripted")]
    await engine.say("What is here?")
    await engine.run(await engine.claim())
    await delivered(engine, channel)
    assert [one.slot.kind for one in channel.sent] == [SlotKind.ANSWER, SlotKind.CARD]
    assert channel.unmarked == []

    (wait,) = await engine.store.open_approvals()
    await engine.press(wait.id)
    await engine.say("And now?")
    await engine.run(await engine.claim())
    again = MarkingChannel()
    await delivered(engine, again)
    assert again.unmarked == ["What is here?", "And now?"]


async def test_the_message_that_interrupts_keeps_its_mark(tmp_path: Path) -> None:
    """It is worked on, while the turn before it is stopped."""
    engine, channel = Engine(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE)]), MarkingChannel()
    engine.model.script = [calls("shell:ls")]
    await engine.say("What is here?")
    await engine.run(await engine.claim())
    to, said = route(), inbound("Never mind. What time is it?")
    await engine.store.accept(to, said, TurnKind.MODEL, running=WhileRunning.INTERRUPT, say_if_waiting=None)
    await delivered(engine, channel, rounds=2)
    assert channel.unmarked == ["What is here?"]


async def test_an_answer_is_shown_once_though_its_mark_stays(tmp_path: Path) -> None:
    engine, channel = Engine(tmp_path), MarkingChannel(broken=True)
    engine.model.script = [Answer(text="Yes.", model="scripted")]
    await engine.say("There?")
    await engine.run(await engine.claim())
    await delivered(engine, channel, rounds=2)
    assert [one.text for one in channel.sent] == ["Yes."]
    assert [one.state for one in await engine.slots()] == [SlotState.SENT]


async def test_marks_go_where_a_stop_from_elsewhere_is_announced(tmp_path: Path) -> None:
    """One of the two commands tells of it."""
    engine, channel = Engine(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE)]), MarkingChannel()
    for word in ("one", "two"):
        engine.operator.script.append(calls(f"shell:{word}"))
        await engine.say(f"/shell {word}")
        await engine.run(await engine.claim())
    await engine.ingress.message(inbound("/stop", who=web_principal(ANN), where=ANN_PAGE))
    await delivered(engine, channel, rounds=2)
    assert channel.unmarked == ["/shell one", f"all in {CHAT.key}"]
