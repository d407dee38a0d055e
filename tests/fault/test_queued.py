"""F22: thousands of messages wait when the daemon comes back. They are answered in order, and memory stays small."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from gateway.domain.messages import Received
from tests.fault.rig import everything, resident_kib
from tests.fault.telegram_rig import tell_sessions, wire
from tests.support.model_server import Reply, Rule
from tests.support.proof import figure, times

SESSIONS, MESSAGES = times((40, 800), (500, 10_000), small=(40, 300))
FRIENDS = range(3001, 3001 + SESSIONS)
NO_LIMITS = "per_chat_per_s = 0\noverall_per_s = 0"
GROWTH_AT_MOST_MIB = 150
ANSWERED_A_S = times(10, 30)
"""Messages a second, at least; a quiet machine of two cores does a hundred and more."""


@pytest.mark.timeout(times(120, 1800))
async def test_thousands_are_waiting(tmp_path: Path) -> None:
    """Each is answered once, those of one chat in the order in which they were written."""
    rules = [Rule(reply=Reply(text="You said: {text}", think_s=0.05))]
    async with wire(tmp_path, friends=FRIENDS, limits=NO_LIMITS, rules=rules) as one:
        telegram = one.telegram
        await one.start()
        assert one.daemon.process is not None
        before_kib = resident_kib(one.daemon.process.pid)
        said: dict[str, list[str]] = {}
        began = time.monotonic()
        for n in range(MESSAGES):
            who = FRIENDS[n % SESSIONS]
            said.setdefault(f"dm:telegram/main/{who}", []).append(f"message {n}")
            telegram.say(who, f"message {n}")
        await one.settled(times(90, 1500))
        took_s = time.monotonic() - began
        growth_mib = (resident_kib(one.daemon.process.pid) - before_kib) / 1024
        assert await one.daemon.stop() == 0
        rows = await everything(one.daemon.state)
        tell_sessions("F22", rows, said, {})
        stored = {s: [i.message.text for i in rows[s] if isinstance(i, Received)] for s in said}
        figure("F22", "chats whose order was broken", sum(stored[s] != said[s] for s in said), 0, of=SESSIONS)
        jumbled = sum(not in_order([message.text for message in telegram.shown(who)]) for who in FRIENDS)
        figure("F22", "chats whose answers were out of order", jumbled, 0, of=SESSIONS)
        figure("F22", "memory that grew", growth_mib, GROWTH_AT_MOST_MIB, "MiB")
        figure("F22", "messages answered a second", MESSAGES / took_s, ANSWERED_A_S, least=True)


def in_order(answers: list[str]) -> bool:
    """Return True if the numbers in them rise."""
    numbers = [int(number) for text in answers for number in re.findall(r"message (\d+)", text)]
    return bool(numbers) and numbers == sorted(numbers)
