"""F01 on Redis: kill -9 at every point of a message's path, and another node goes on; the first never comes back."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path

import pytest

from gateway.domain.ids import SYSTEM_HOME
from gateway.domain.messages import Received
from gateway.domain.views import Item
from gateway.system.failpoints import POINTS
from tests.fault.nodes_rig import Fleet, fleet
from tests.fault.oracle import (
    Evidence,
    every_call_has_one_result,
    every_turn_ended_with_one_answer,
    nothing_is_lost,
    order_is_kept,
    tell,
    what_was_allowed_ran_once,
)
from tests.fault.rig import lines_of
from tests.fault.telegram_rig import ANN, judge_chats, slots_of
from tests.support.model_server import Call, Reply, Rule
from tests.support.proof import KILLS, counted, figure
from tests.support.telegram.world import Shown

WORK, COMMAND, DECIDED, MORE = "do it", "echo x >> ran", "It is decided.", "and then?"
GONE = "the files of this session are there"
"""Note to the model when the first node had files of the session."""
RULES = [
    Rule(text=WORK, results=0, reply=Reply(calls=(Call(name="shell", arguments=json.dumps({"command": COMMAND})),))),
    Rule(text=WORK, reply=Reply(text=DECIDED)),
    Rule(text=GONE, nth=2, reply=Reply(text=DECIDED)),
    Rule(text=GONE, nth=3, reply=Reply(text=f"You said: {MORE}")),
]
MORE_CONFIG = '[tools.shell]\npermission = "always"\n[cluster]\nhome_away_after = "20s"\n'
"""The other node has the files of nobody: it takes the session when the first was away for so long."""
NOW = ("J4",)
WITHIN_S = 170.0
"""A lease is 15 s, and a slot that was being sent is taken back after 60 s."""


async def live(two: Fleet) -> None:
    """Say something, allow what is asked, on the second node once more, and say more."""
    two.telegram.say(ANN, WORK)
    pressed = set[int]()

    def asked() -> list[Shown]:
        return [one for one in two.telegram.shown(ANN) if "Once" in one.labels and one.id not in pressed]

    def decided() -> bool:
        return any(DECIDED in one.text for one in two.telegram.shown(ANN))

    while not decided():
        await two.telegram.until(lambda: decided() or asked() != [], WITHIN_S)
        for card in asked():
            pressed.add(card.id)
            two.telegram.press(ANN, card, "Once")
    two.telegram.say(ANN, MORE)
    await two.telegram.see(ANN, f"You said: {MORE}", within_s=WITHIN_S)


async def take_over(two: Fleet) -> None:
    """When the first node is dead, begin the life of the second."""
    assert await two.nodes[0].died(within_s=30) == -signal.SIGKILL
    two.deaths.append(time.monotonic())
    await two.start(two.nodes[1])


def is_notice(item: Item) -> bool:
    """Return True for the gateway's own notice to the model that files are away."""
    return isinstance(item, Received) and item.message.principal == SYSTEM_HOME


@pytest.mark.parametrize(
    "point",
    [
        *NOW,
        *(pytest.param(one, marks=pytest.mark.whole("waits for leases; J4 stays")) for one in POINTS if one not in NOW),
    ],
)
@pytest.mark.timeout(240)
async def test_killed_at(point: str, tmp_path: Path) -> None:
    """Nothing is lost or answered twice, and what was allowed ran at most once, on either machine."""
    async with fleet(tmp_path, 1, spare=1, rules=RULES, more=MORE_CONFIG, armed=f"{point}:kill:1") as two:
        async with asyncio.TaskGroup() as group:
            group.create_task(live(two), name="ann")
            group.create_task(take_over(two), name="the other node")
        await two.settled(WITHIN_S)
        await two.stop()
        rows = await two.everything()
        evidence = Evidence(
            said=[WORK, MORE],
            ran={COMMAND: len(lines_of(tmp_path, "ran"))},
            frames=(),
            asked=(),
            page=(),
            items=[one for one in rows["main:ann"] if not is_notice(one)],
        )
        counted(KILLS, 1, "F01")
        tell("F01", evidence)
        nothing_is_lost(evidence)
        order_is_kept(evidence)
        every_turn_ended_with_one_answer(evidence)
        every_call_has_one_result(evidence)
        what_was_allowed_ran_once(evidence)
        marked = len(judge_chats(two.telegram, slots_of(rows), two.deaths))
        figure("F01", "on Redis: shown again and marked, of what was on its way", marked, 1)
