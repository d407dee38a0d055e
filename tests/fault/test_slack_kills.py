"""F01 over Slack, by sockets and over HTTP: kill -9 while messages, cards, presses and files are on their way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from channels.slack.settings import Mode
from tests.fault.day import command_of
from tests.fault.rig import everything, lines_of
from tests.fault.slack_rig import (
    ANN,
    BOB,
    JOE,
    KITCHEN,
    TO_ANN,
    Wire,
    as_stored,
    cards_as_made,
    direct,
    judge_places,
    press,
    wire,
)
from tests.fault.telegram_rig import RESENT, judge_sessions, slots_of, tell_sessions
from tests.support.model_server import Reply, Rule
from tests.support.proof import KILLS, counted, figure, times
from tests.support.slack import Call, FakeSlack, Fault, faults
from tests.support.slack.rig import MODES

AGAIN = range(times(1, 6))
"""So often it dies at all points: at their first passages, then at their second, and so on by turns."""
LIVES = [("J1", "J2", "J3", "J8"), ("J9", "J15", "J16"), ("J17", "J18", "J19")]
"""The points at which one life after the other ends, before the one that is left in peace."""
LONG = " ".join(f"This is sentence number {n:04} of a long answer." for n in range(600))


class People:
    """Two owners and a friend. They press again what was not taken, and else do not know that the daemon dies."""

    def __init__(self, slack: FakeSlack) -> None:
        """Begin with nothing said."""
        self.slack = slack
        self.said: dict[str, list[str]] = {"main:ann": [], "main:joe": [], f"dm:slack/main/{direct(BOB)}": []}
        """By session."""

    def say_all(self, life: int) -> None:
        """Send the messages of one life: two commands that ask, a word from each, and one in the kitchen."""
        allowed, denied = (f"/shell {command_of(f'{name}-{life}')}" for name in ("allowed", "denied"))
        words = ([allowed, f"hello {life}"], [denied, f"hi {life}"], [f"good morning {life}"])
        for who, texts, said in zip((ANN, JOE, BOB), words, list(self.said.values())[:3], strict=True):
            for text in texts:
                self.slack.say(who, f"@dragoman {text}")
                said.append(text)
        asked = self.slack.mention(BOB, f"what is new, {life}?", channel=KITCHEN)
        self.said[f"chat:slack/main/{KITCHEN}/{asked.ts}"] = [f"what is new, {life}?"]

    async def decide(self, life: int) -> None:
        """Press both cards of one life."""
        for who, name, label in ((ANN, "allowed", "Once"), (JOE, "denied", "Deny")):
            command = command_of(f"{name}-{life}")
            card = await self.slack.see(direct(who), command, button="Once", within_s=90)
            await press(self.slack, who, card, label)

    async def press_everything_again(self) -> int:
        """Every button of every card that was ever shown, once; each is told that it is too late. Return how many."""
        count = {ANN: 0, JOE: 0}
        for card in cards_as_made(self.slack):
            who = ANN if card.channel == TO_ANN else JOE
            before = len(self.slack.notes(who))
            for label in ("Once", "Deny"):
                await self.slack.acknowledged(self.slack.press(who, card, label))
                count[who] += 1
            await self.slack.see_note(who, "Already decided.", count=before + 2)
        return sum(count.values())


async def die_at_each(points: Sequence[str], passage: int, one: Wire, people: People) -> None:
    """One life after the other, each with people who write and press; the last one is left alive."""
    async with asyncio.TaskGroup() as group:
        for life, point in enumerate(points):
            await one.start(f"{point}:kill:{passage}", ready=False)  # it may die before it can say so
            people.say_all(life)
            group.create_task(people.decide(life))
            await one.killed()
        await one.start()
    await one.settled()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize("points", LIVES, ids=["-".join(points) for points in LIVES])
@pytest.mark.parametrize("mode", MODES)
async def test_killed_at(mode: Mode, points: Sequence[str], again: int, tmp_path: Path) -> None:
    """Nothing is lost or answered twice, nothing runs twice, and nothing stands there twice: Slack says what does."""
    async with wire(tmp_path, mode=mode) as one:
        people = People(one.slack)
        async with asyncio.timeout(110):
            await die_at_each(points, 1 + again % 2, one, people)
        late = await people.press_everything_again()
        await one.settled()
        assert await one.daemon.stop() == 0
        rows = await everything(one.daemon.state)
        commands = [command_of(f"{name}-{life}") for life in range(len(points)) for name in ("allowed", "denied")]
        ran = {command: len(lines_of(one.daemon.state, command.split()[-1])) for command in commands}
        slots = slots_of(rows, "slack")
        counted(KILLS, len(one.deaths), "F01")
        tell_sessions("F01", rows, people.said, ran)
        surplus = judge_places(one.rig.workspaces, slots)
        figure("F01", "shown twice where Slack says what stands there", len(surplus), 0, of=len(slots))
        judge_sessions(rows, as_stored(rows, people.said), ran, one)
        assert late == 2 * len(commands)


# --- the parts of an answer ---------------------------------------------------------------------


@pytest.mark.parametrize("passage", [1, 2], ids=["the words", "the file"])
@pytest.mark.sampled(1)
async def test_killed_between_the_parts_of_an_answer(passage: int, tmp_path: Path) -> None:
    """A long answer is a message and a file: whichever was written and not answered is found, and not sent again."""
    async with wire(tmp_path, rules=[Rule(reply=Reply(text=LONG))]) as one:
        slack = one.slack
        await one.start(f"J17:kill:{passage}")
        slack.say(ANN, "tell me everything")
        await one.killed()
        assert (len(slack.shown(TO_ANN)), len(slack.uploads(TO_ANN))) == (passage, passage - 1)
        await one.start()
        await slack.until(lambda: slack.uploads(TO_ANN) != [])
        await one.settled()
        assert await one.daemon.stop() == 0
        slots = slots_of(await everything(one.daemon.state), "slack")
        surplus = judge_places(one.rig.workspaces, slots)
        shown = slack.shown(TO_ANN)
        marked = sum(RESENT in message.text for message in shown)
        counted(KILLS, 1, "F01")
        again = len(surplus) + marked
        figure("F01", "parts of a long answer shown again where Slack says what stands there", again, 0, of=2)
        assert (len(shown), len(slack.uploads())) == (2, 1)


# --- where Slack does not say what stands there -------------------------------------------------


def no_history(call: Call) -> Fault | None:
    """The app may not read what stands in a conversation."""
    return faults.error("missing_scope", needed="im:history") if call.method.startswith("conversations.") else None


async def test_unverifiable_message_is_repeated_and_marked(tmp_path: Path) -> None:
    """Without leave to look, what may stand there already is sent once more, and says so."""
    async with wire(tmp_path) as one:
        slack = one.slack
        slack.script(no_history)
        await one.start("J17:kill")
        slack.say(ANN, "hello")
        await one.killed()
        await one.start()
        await slack.see(TO_ANN, "You said: hello", count=2)
        await one.settled()
        texts = [" ".join(message.text.split()) for message in slack.shown(TO_ANN)]
        marked = sum(RESENT in text for text in texts)
        counted(KILLS, 1, "F01")
        figure("F01", "messages shown again and marked where Slack may not be asked, a death", marked, 1)
        assert texts == ["You said: hello", f"{RESENT} You said: hello"]


async def test_failed_lookup_is_repeated_before_any_send(tmp_path: Path) -> None:
    """While Slack does not say what stands there nothing is sent; then it is found."""
    async with wire(tmp_path) as one:
        slack, left = one.slack, [faults.broken(503)]
        slack.script(lambda call: left.pop() if left and call.method == "conversations.history" else None)
        await one.start("J17:kill")
        slack.say(ANN, "hello")
        await one.killed()
        await one.start()
        await slack.until(lambda: len(slack.calls("conversations.history")) >= 2)
        await one.settled()
        texts = [message.text for message in slack.shown(TO_ANN)]
        counted(KILLS, 1, "F01")
        figure("F01", "messages shown again after lookups that failed", len(texts) - 1, 0, of=1)
        assert texts == ["You said: hello"]
