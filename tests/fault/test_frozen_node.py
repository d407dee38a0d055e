"""F03 on Redis: the node that polls, sends and runs the turns is frozen for longer than its leases, and goes on."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from gateway.domain.slots import Slot, SlotKind
from tests.fault.nodes_rig import fleet
from tests.fault.oracle import Evidence, every_turn_ended_with_one_answer, nothing_is_lost, order_is_kept
from tests.fault.telegram_rig import judge_chats, slots_of
from tests.support.model_server import Reply, Rule
from tests.support.proof import figure

SLOW, NEW = range(3001, 3004), range(3011, 3014)
"""People whose turns the frozen node holds, and people who write while it is frozen."""
FROZEN_S = 24.0
TAKEOVER_S = 20.0
RULES = [Rule(text="^slow", times=len(SLOW), reply=Reply(text="Too late.", think_s=FROZEN_S + 2))]


@pytest.mark.whole("waits 30 s; test_two_apps suspends a machine with a clock that jumps")
async def test_the_node_that_polls_and_sends_is_frozen(tmp_path: Path) -> None:
    """The other node takes polling, sending and turns within 20 s. The frozen one writes nothing afterwards."""
    async with fleet(tmp_path, 1, mode="polling", rules=RULES, spare=1) as two:
        stale, other = two.nodes
        for who in SLOW:
            two.telegram.say(who, "first")
            await two.telegram.see(who, "You said: first")
            two.telegram.say(who, "slow")
        await two.model.until(lambda: len(two.model.requests) == 2 * len(SLOW))
        await two.start(other)
        assert stale.process is not None
        stale.process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        for who in NEW:
            two.telegram.say(who, "new")
        for who in NEW:
            await two.telegram.see(who, "You said: new", within_s=60)
        figure(
            "F03", "on Redis: from the freeze to answers by the other node", time.monotonic() - began, TAKEOVER_S, "s"
        )
        for who in SLOW:
            await two.telegram.see(who, "You said: slow", within_s=60)
        figure("F03", "on Redis: from the freeze to the turns it held", time.monotonic() - began, TAKEOVER_S, "s")
        await two.settled()
        before = await two.everything()
        await asyncio.sleep(max(0.0, FROZEN_S - (time.monotonic() - began)))
        stale.process.send_signal(signal.SIGCONT)
        await asyncio.sleep(4)
        after = await two.everything()
        stale_rows = sum(len([row for row in items if row not in before[one]]) for one, items in after.items())
        figure("F03", "on Redis: writes accepted from a node that had lost its leases", stale_rows, 0, of=len(after))
        two.telegram.say(NEW[0], "and now")
        await two.telegram.see(NEW[0], "You said: and now")
        await two.settled()
        await two.stop()
        rows = await two.everything()
        said = {who: ["first", "slow"] for who in SLOW} | {who: ["new"] for who in NEW}
        said[NEW[0]].append("and now")
        for who, texts in said.items():
            items = rows[f"dm:telegram/main/{who}"]
            one = Evidence(said=texts, ran={}, frames=(), asked=(), page=(), items=items)
            nothing_is_lost(one)
            order_is_kept(one)
            every_turn_ended_with_one_answer(one)
            answers = [slot.text for slot in one.of(Slot) if slot.kind is SlotKind.ANSWER]
            assert answers == [f"You said: {text}" for text in texts]
        again = judge_chats(two.telegram, slots_of(rows))
        figure("F03", "on Redis: messages shown twice", len(again), 0, of=sum(map(len, said.values())))
