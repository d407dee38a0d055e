"""Faults around a daemon in a soak: platforms refuse, connections break, tools die, the store is locked."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.bench.measure import tree
from tests.fault.telegram_rig import RESENT
from tests.soak.world import World
from tests.support import slack, telegram
from tests.support.slack import faults as slack_faults
from tests.support.telegram import faults as telegram_faults

TELEGRAM: tuple[tuple[float, Callable[[], telegram.Fault]], ...] = (
    (0.01, lambda: telegram_faults.too_many(2)),
    (0.01, telegram_faults.broken),
    (0.005, telegram_faults.page),
    (0.01, telegram_faults.drop),
    (0.005, telegram_faults.cut),
    (0.01, lambda: telegram_faults.slow(hold_s=1.0)),
)
SLACK: tuple[tuple[float, Callable[[], slack.Fault]], ...] = (
    (0.01, lambda: slack_faults.too_many(2)),
    (0.01, slack_faults.broken),
    (0.005, slack_faults.page),
    (0.01, slack_faults.drop),
    (0.005, slack_faults.cut),
    (0.005, slack_faults.torn),
    (0.01, lambda: slack_faults.slow(hold_s=1.0)),
)
"""Faults of a call, with their probability."""
GUSTS = (("kill a tool", 4), ("break a socket", 3), ("hold the store", 1), ("ban a chat", 2))
"""Other faults, with their weight."""
HELD_S = (0.2, 2.0)
BANNED_S = (1.0, 4.0)
LONG_COMMAND = b"sleep"
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Weather:
    """Faults at random. `going`: while it is set there are some; `every_s`: between two gusts, about."""

    world: World
    chance: random.Random
    every_s: float
    going: asyncio.Event = field(default_factory=asyncio.Event)
    happened: Counter[str] = field(default_factory=Counter[str])
    cuts: list[telegram.Call] = field(default_factory=list[telegram.Call])
    """Calls to Telegram that took effect and whose answer did not arrive: what they made may stand there again."""

    _doubted: set[str] = field(default_factory=set[str])

    def begin(self) -> None:
        """From now on each call to a platform may go wrong."""
        self.world.telegram.script(self._at_telegram)
        self.world.slack.script(self._at_slack)

    def _at_telegram(self, call: telegram.Call) -> telegram.Fault | None:
        fault = self._drawn(TELEGRAM) if self.going.is_set() else None
        if fault is not None and _doubtful(fault) and RESENT in str(call.parameters):
            return None
        if fault is not None:
            self.happened["telegram calls that went wrong"] += 1
            if fault.acts and fault.closes:
                self.cuts.append(call)
        return fault

    def _at_slack(self, call: slack.Call) -> slack.Fault | None:
        fault = self._drawn(SLACK) if self.going.is_set() else None
        slot = str(call.parameters.get("metadata", ""))
        if fault is not None and slot and _doubtful(fault):
            fault = None if slot in self._doubted else fault
            self._doubted.add(slot)
        if fault is not None:
            self.happened["slack calls that went wrong"] += 1
        return fault

    def _drawn(self, faults: tuple[tuple[float, Callable[[], T]], ...]) -> T | None:
        draw = self.chance.random()
        for share, fault in faults:
            draw -= share
            if draw < 0:
                return fault()
        return None

    async def blow(self) -> None:
        """Let something happen now and then, until cancelled."""
        acts = {
            "kill a tool": self._kill_a_tool,
            "break a socket": self._break_a_socket,
            "hold the store": self._hold_the_store,
            "ban a chat": self._ban_a_chat,
        }
        while True:
            await asyncio.sleep(self.chance.expovariate(1 / self.every_s))
            await self.going.wait()
            (name,) = self.chance.choices([name for name, _ in GUSTS], [share for _, share in GUSTS])
            with suppress(ConnectionError, RuntimeError):  # a socket that is closing already
                self.happened[name] += await acts[name]()

    async def _kill_a_tool(self) -> bool:
        """A process of a command that takes long, by `kill -9`."""
        found = [pid for pid in tree(self.world.pid) if LONG_COMMAND in _command_line(pid)]
        if found:
            with suppress(ProcessLookupError):
                os.kill(self.chance.choice(sorted(found)), signal.SIGKILL)
        return bool(found)

    async def _break_a_socket(self) -> bool:
        sockets = self.world.slack.sockets
        if not sockets:
            return False
        socket = self.chance.choice(sockets)
        match self.chance.choice(("cut", "freeze", "half_close", "disconnect")):
            case "cut":
                socket.cut()
            case "freeze":
                socket.freeze()
            case "half_close":
                socket.half_close()
            case _:
                await socket.disconnect()
        return True

    async def _hold_the_store(self) -> bool:
        """Another program holds its lock for a moment."""
        store = self.world.daemon.state / "dragoman.db"
        return await asyncio.to_thread(_held, store, self.chance.uniform(*HELD_S))

    async def _ban_a_chat(self) -> bool:
        """Telegram refuses whatever is to be shown in one chat, or anywhere."""
        chat = self.chance.choice([None, *self.world.telegram.chats.all])
        self.world.telegram.ban(chat, self.chance.uniform(*BANNED_S))
        return True


def _doubtful(fault: telegram.Fault | slack.Fault) -> bool:
    """Return whether the fault leaves open if the call took effect.

    A message is given up after two such attempts, which other tests cover (`gateway/outbound/delivery.py`). Here the
    second attempt is spared, so that everything must arrive in the end.
    """
    return fault.closes or fault.status >= 500 or (isinstance(fault, slack.Fault) and fault.tears)


def _command_line(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _held(store: Path, seconds: float) -> bool:
    """Hold the lock of a store; False when somebody else does."""
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(store, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        # In this thread: the connection is its own, and meanwhile the others live on.
        time.sleep(seconds)
        other.execute("ROLLBACK")
        return True
    return False
