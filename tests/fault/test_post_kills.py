"""F01 for posts: kill -9 between the call, its result and what Telegram shows; and a chat that the bot has left."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.slots import Slot, SlotKind, SlotState
from gateway.domain.steps import Step, StepKind
from gateway.domain.tools import ResultStatus
from tests.fault.rig import stored
from tests.fault.telegram_rig import ANN, ONE_BOT, RESENT, Wire, wire
from tests.support.model_server import Call, Reply, Rule
from tests.support.patience import PATIENCE_S

KITCHEN = -1003
OPEN = f"{ONE_BOT}\n[[rules]]\ntool = 'telegram'\npattern = '{KITCHEN}'\ndecision = 'allow'\n"
NO_LIMITS = "per_chat_per_s = 0\nper_group_per_min = 0\noverall_per_s = 0"
POINTS = ("J14", "J17", "J18", "J13", "J12", "J11", "J16", "J19")
"""The points around a call and around a send, those first at which something was just stored or sent."""


def posts(**arguments: Any) -> Call:
    """Return a call of the tool."""
    return Call(name="telegram", arguments=json.dumps(arguments))


CALLS = (
    posts(action="poll", text="Which day?", options=["Monday", "Friday"]),
    posts(text="Supper is at seven.", chat=str(KITCHEN)),
    posts(action="react", emoji="👍"),
    posts(action="pin"),
    posts(text="Meet me.", chat="6666"),
)
RULES = (
    Rule(text="plan the supper", results=0, reply=Reply(calls=CALLS)),
    Rule(text="plan the supper", reply=Reply(text="It is planned.")),
)


async def check(one: Wire) -> None:
    """All is shown once, but for what may be there twice and says so; one call was refused."""
    await one.settled()
    assert await one.daemon.stop() == 0
    for chat, text in ((ANN, "Which day?"), (KITCHEN, "Supper is at seven.")):
        found = [message.text for message in one.telegram.shown(chat) if text in message.text]
        assert len([said for said in found if RESENT not in said]) <= 1, found
        assert 1 <= len(found) <= 1 + len(one.deaths), found
    asked = next(message for message in one.telegram.shown(ANN, by_bot=False) if message.text == "plan the supper")
    assert (asked.reaction, asked.pinned) == ("👍", True)
    assert "From the agent" in one.telegram.shown(KITCHEN)[0].text
    items = await stored(one.daemon.state, "main:ann")
    results = [item.result for item in items if isinstance(item, Step) and item.kind is StepKind.TOOL]
    assert [found.status for found in results if found] == [ResultStatus.OK] * 4 + [ResultStatus.DENIED]
    slots = [item for item in items if isinstance(item, Slot) and item.kind is SlotKind.POST]
    assert [slot.state for slot in slots] == [SlotState.SENT] * 4


@pytest.mark.sampled(1)
@pytest.mark.parametrize("passage", [1, 3])
@pytest.mark.parametrize("point", POINTS)
async def test_a_post_outlives_a_kill(point: str, passage: int, tmp_path: Path) -> None:
    """Each requested post arrives, and only one under way at the daemon's death may arrive again."""
    async with wire(tmp_path, rules=RULES, chats=[KITCHEN], channel=OPEN, limits=NO_LIMITS) as one:
        one.telegram.supergroup("Kitchen", chat=KITCHEN)
        await one.start(f"{point}:kill:{passage}", ready=False)

        async def come_back() -> None:
            await one.killed()
            await one.start()

        async with asyncio.timeout(2 * PATIENCE_S), asyncio.TaskGroup() as group:
            group.create_task(come_back())
            one.telegram.say(ANN, "plan the supper")
            await one.telegram.see(ANN, "It is planned.")
        await check(one)


@pytest.mark.whole("the channel's own test of a chat that was left stays")
async def test_a_poll_in_a_chat_that_was_left_is_reported(tmp_path: Path) -> None:
    """The call is stored, Telegram refuses it, and the owner is told why."""
    poll = posts(action="poll", text="Which day?", options=["Monday", "Friday"], chat=str(KITCHEN))
    rules = (
        Rule(text="ask the kitchen", results=0, reply=Reply(calls=(poll,))),
        Rule(text="ask the kitchen", reply=Reply(text="It is on its way.")),
    )
    async with wire(tmp_path, rules=rules, chats=[KITCHEN], channel=OPEN) as one:
        one.telegram.supergroup("Kitchen", chat=KITCHEN)
        one.telegram.chats.all[KITCHEN].refused = "Forbidden: bot was kicked from the supergroup chat"
        await one.start()
        one.telegram.say(ANN, "ask the kitchen")
        await one.telegram.see(ANN, "It is on its way.")
        told = await one.telegram.see(ANN, "what the agent posted could not be shown")
        assert "The bot was removed from this chat." in told.text
        await one.settled()
