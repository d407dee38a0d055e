"""Fail points: named points of a message's path where a test can kill, stop, delay or fail the daemon.

No-ops unless `DRAGOMAN_FAILPOINT` is set: with `J12:kill:1` the daemon dies as by `kill -9` at the first passage of
J12. Several are separated by commas; the number counts passages. Actions: `kill`, `stop` (SIGSTOP), `raise`
(`FailPoint`), `sleep` (two seconds).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

POINTS: Mapping[str, str] = {
    "J1": "before the message is committed",
    "J2": "after the commit, before the acknowledgement to the platform",
    "J3": "after the acknowledgement to the platform",
    "J4": "turn claimed",
    "J5": "model asked",
    "J6": "model answered, not stored",
    "J7": "answer stored, its calls planned",
    "J8": "approvals stored, card queued",
    "J9": "card sent",
    "J10": "decision stored",
    "J11": "step started and approval consumed",
    "J12": "effect begun",
    "J13": "effect done, not stored",
    "J14": "step finished",
    "J15": "slot stored",
    "J16": "slot claimed, before the write",
    "J17": "written, before the response",
    "J18": "response received, not stored",
    "J19": "sent stored",
    "J20": "turn closed, lease released",
    "WAITS": "waits opened, before the turn parks",
    "PARKED": "turn parked",
    "WOKEN": "turn with steps claimed again",
}
"""Every point and the act just before it; J1–J20 are the journal points."""

ENVIRONMENT = "DRAGOMAN_FAILPOINT"


class FailPoint(Exception):
    """A fail point raised, as armed."""


@dataclass(slots=True)
class FailPoints:
    """Armed points, from `DRAGOMAN_FAILPOINT`; each fires at its n-th passage."""

    armed: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    passed: dict[str, int] = field(default_factory=dict[str, int])

    @staticmethod
    def read(environ: Mapping[str, str]) -> FailPoints:
        """Parse the environment. Raises `ValueError` for an unknown point or action."""
        points = FailPoints()
        for item in filter(None, environ.get(ENVIRONMENT, "").split(",")):
            name, _, rest = item.partition(":")
            action, _, count = rest.partition(":")
            if name not in POINTS or action not in ("kill", "stop", "raise", "sleep"):
                raise ValueError(f"{ENVIRONMENT}: no such fail point: {item!r}")
            points.armed[name] = (action, int(count or "1"))
        return points

    async def hit(self, name: str) -> None:
        """Pass the point `name`, and run its action if it is armed. Raises `ValueError` for an unknown name, once any
        is armed.
        """
        if not self.armed:
            return
        if name not in POINTS:
            raise ValueError(f"no such fail point: {name}")
        self.passed[name] = self.passed.get(name, 0) + 1
        action, count = self.armed.get(name, ("", 0))
        if self.passed[name] != count:
            return
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif action == "sleep":
            await asyncio.sleep(2)
        elif action == "raise":
            raise FailPoint(name)
