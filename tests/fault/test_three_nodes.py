"""F02 on Redis: three daemons on one store, and one of them is killed every two seconds while many people write."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.domain.messages import Received
from gateway.domain.slots import Slot, SlotKind
from gateway.domain.turns import Turn, TurnKind, TurnState
from gateway.domain.views import Item
from tests.fault.nodes_rig import Fleet, fleet
from tests.fault.oracle import Evidence, every_turn_ended_with_one_answer, nothing_is_lost
from tests.fault.telegram_rig import judge_chats, slots_of
from tests.support.proof import KILLS, LOST, TWICE, counted, dice, figure, times
from tests.support.telegram import Call

MESSAGES, SESSIONS = times((300, 30), (20_000, 500), small=(80, 12))
KILL_EVERY_S = times(1.0, 2.0)
AT_ONCE = times(60, 400)
"""Messages that wait for their answer at most: people go on writing as long as the daemons live and die."""
PEOPLE = range(3001, 3001 + SESSIONS)
SETTLE_S = times(30.0, 300.0)


@dataclass(slots=True)
class Writers:
    """People who write on, each in their own chat."""

    all: Fleet
    chance: random.Random
    messages: int = MESSAGES
    said: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    number: int = 0
    answered: int = 0

    def saw(self, call: Call) -> None:
        """Note what is sent."""
        self.answered += call.method == "sendMessage"

    async def write(self) -> None:
        """Say everything, never too far ahead of the answers."""
        while self.number < self.messages:
            await self.all.telegram.until(lambda: self.number - self.answered < AT_ONCE, SETTLE_S)
            self.number += 1
            who = self.chance.choice(PEOPLE)
            self.said.setdefault(who, []).append(text := f"message {self.number}")
            self.all.telegram.say(who, text)
            await asyncio.sleep(0)

    def is_over(self) -> bool:
        """Return True once everything is sent."""
        return self.number >= self.messages


@pytest.mark.timeout(times(120, 4 * 3600))
@pytest.mark.whole("a takeover at J4, and what two and three nodes do without deaths, stay")
@pytest.mark.parametrize("mode", ["webhook", "polling"])
async def test_nodes_are_killed_in_turn(mode: str, tmp_path: Path) -> None:
    """Nothing is lost, doubled or out of order in any session, whichever daemon took, ran or sent it."""
    chance = dice("F02 on Redis")
    async with fleet(tmp_path, mode=mode) as three:
        people, began = Writers(three, chance), time.monotonic()
        three.telegram.script(people.saw)
        async with asyncio.TaskGroup() as group:
            group.create_task(people.write(), name="people")
            group.create_task(three.kill_often(KILL_EVERY_S, chance, people.is_over), name="deaths")
        await three.settled(SETTLE_S)
        took_s = time.monotonic() - began
        await three.stop()
        counted(KILLS, len(three.deaths), "F02")
        sys.stdout.write(f"{len(three.deaths)} kills, {MESSAGES} messages, {MESSAGES / took_s:.0f} a second\n")
        await judge(three, people)


async def judge(three: Fleet, people: Writers) -> None:
    """Compare what was said and shown with what is stored."""
    rows = await three.everything()
    found = [evidence_of(texts, rows.get(f"dm:telegram/main/{who}", ())) for who, texts in people.said.items()]
    lost = sum((Counter(one.said) - taken(one)).total() for one in found)
    twice = sum((taken(one) - Counter(one.said)).total() for one in found)
    figure("F02", LOST, lost, 0, of=MESSAGES)
    figure("F02", TWICE, twice, 0, of=MESSAGES)
    figure("F02", "on Redis: sessions out of order", sum(not in_order(one) for one in found), 0, of=len(found))
    failures = Counter(text for one in found for text in failures_of(one))
    sys.stdout.writelines(f"{count} turns failed: {text}\n" for text, count in failures.most_common(3))
    figure("F02", "on Redis: messages answered with a failure", failures.total(), 0, of=MESSAGES)
    for one in found:
        nothing_is_lost(one)
        every_turn_ended_with_one_answer(one)
    surplus = judge_chats(three.telegram, slots_of(rows), three.deaths)
    marked = len(surplus) / len(three.deaths)
    figure("F02", "on Redis: shown again and marked, of what was on its way, a death", marked, SESSIONS)


def evidence_of(said: Sequence[str], items: Sequence[Item]) -> Evidence:
    """One session."""
    return Evidence(said=said, ran={}, frames=(), asked=(), page=(), items=items)


def taken(evidence: Evidence) -> Counter[str]:
    """Return the messages given to a turn, with their number."""
    return Counter(one.message.text for one in evidence.of(Received) if one.turn is not None and one.given is not None)


def failures_of(evidence: Evidence) -> list[str]:
    """The answers of turns that failed."""
    failed = {turn.id for turn in evidence.of(Turn) if turn.state is TurnState.FAILED}
    return [slot.text for slot in evidence.of(Slot) if slot.kind is SlotKind.ANSWER and slot.turn in failed]


def in_order(evidence: Evidence) -> bool:
    """Return True if messages were taken and answered in their order, one turn at a time; print the violation.

    A failure has its place among the answers, whatever its text.
    """
    texts = [one.message.text for one in evidence.of(Received)]
    turns: list[Turn] = [turn for turn in evidence.of(Turn) if turn.kind is TurnKind.MODEL]
    failed = {turn.id for turn in turns if turn.state is TurnState.FAILED}
    answers = [slot for slot in evidence.of(Slot) if slot.kind is SlotKind.ANSWER]
    answered = [
        (text, slot.text)
        for text, slot in zip(evidence.said, answers, strict=False)
        if slot.turn not in failed and slot.text != f"You said: {text}"
    ]
    times = [(one.id, one.ended_at, two.id, two.started_at) for one, two in pairwise(turns) if overlap(one, two)]
    wrong = {
        "taken": [pair for pair in zip(evidence.said, texts, strict=False) if pair[0] != pair[1]],
        "answered": answered,
        "at the same time": times,
    }
    why = {name: found[:3] for name, found in wrong.items() if found}
    if why or not len(evidence.said) == len(texts) == len(answers):
        sys.stdout.write(
            f"out of order: {why}, {len(evidence.said)} said, {len(texts)} taken, {len(answers)} answered\n"
        )
        return False
    return True


def overlap(earlier: Turn, later: Turn) -> bool:
    """Return True if a turn of a session began before the previous one had ended."""
    return earlier.ended_at is None or later.started_at is None or later.started_at < earlier.ended_at
