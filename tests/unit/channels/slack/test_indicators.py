"""Marks of receipt: made when a message is accepted, gone when it is answered or stopped."""

from __future__ import annotations

import asyncio

import pytest

from channels.slack.indicators import SEEN
from tests.support.patience import PATIENCE_S
from tests.support.slack import FakeSlack, Shown, faults
from tests.support.surroundings import until
from tests.unit.channels.slack.scene import Scene, running

ANN = "U0ANN"


def unmarked(said: Shown) -> bool:
    return not said.reactions.get(SEEN)


async def test_a_mark_goes_when_its_message_is_answered(slack: FakeSlack, scene: Scene) -> None:
    """Slack's limit only delays that, and a mark is not made after its removal."""
    slack.channel("C0CC", members=[ANN])
    trouble = {"reactions.add": faults.slow(0.05), "reactions.remove": faults.too_many(1)}
    slack.script(lambda call: trouble.pop(call.method, None))
    async with running(scene) as account:
        said = slack.mention(ANN, "look here", channel="C0CC")
        await until(lambda: len(scene.sink.messages) == 1)
        await until(lambda: bool(slack.calls("reactions.add")))
        account.answered(scene.sink.messages[0])
        await until(lambda: len(slack.calls("reactions.remove")) == 2)
        await until(lambda: unmarked(said))
    assert trouble == {}


async def test_a_mark_of_an_earlier_process_goes_too(slack: FakeSlack, scene: Scene) -> None:
    async with running(scene):
        said = slack.say(ANN, "hello")
        assert await slack.see_reaction(said) == SEEN
    async with running(scene) as account:
        account.answered(scene.sink.messages[0])
        await until(lambda: unmarked(said))


async def test_an_answer_to_a_question_is_not_marked(slack: FakeSlack, scene: Scene) -> None:
    """No turn is begun for it, whose end would take the mark off; the question's card shows it."""
    scene.sink.asked = True
    async with running(scene):
        slack.say(ANN, "blue")
        await until(lambda: scene.sink.texts == ["blue"])
        scene.sink.asked = False
        assert await slack.see_reaction(slack.say(ANN, "hello")) == SEEN
    assert len(slack.calls("reactions.add")) == 1


async def test_a_mark_that_was_cut_off_keeps_no_other(slack: FakeSlack, scene: Scene) -> None:
    """An account that starts anew ends what it was sending; the marks behind that one are removed all the same."""
    slack.script(lambda call: faults.slow(60) if call.method == "reactions.add" else None)
    async with running(scene) as account:
        slack.say(ANN, "hello")
        await until(lambda: bool(slack.calls("reactions.add")))
    place = scene.sink.messages[0].conversation
    async with asyncio.timeout(PATIENCE_S):
        await account.indicators.unmark_all(place.chat, place.thread)
    assert len(slack.calls("reactions.remove")) == 1


@pytest.mark.parametrize("command", ["stop", "new"])
async def test_a_stop_takes_the_marks_of_its_chat(slack: FakeSlack, scene: Scene, command: str) -> None:
    """The stopped turn is not answered: the reply to the command is the last word."""
    slack.channel("C0CC", members=[ANN])
    scene.host.of_owners = ("stop", "new")
    async with running(scene):
        said = [slack.say(ANN, "hello"), slack.say(ANN, "and this")]
        there = slack.mention(ANN, "look here", channel="C0CC")
        for one in (*said, there):
            assert await slack.see_reaction(one) == SEEN
        slack.slash(ANN, command)
        await until(lambda: all(map(unmarked, said)))
        assert not unmarked(there)
