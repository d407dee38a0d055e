"""Waiting for replicas: a commit counts once so many have it. Used by `worker`."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.domain.durability import Durability
from gateway.store.redis.checks import Found
from gateway.store.redis.connection import TooFewReplicas

WAIT_MS = 1_000
"""Milliseconds of one wait; a commit that too few replicas have by then is sent again."""
WAITAOF = (7, 2)
"""Oldest version that can wait until replicas have written to their disks."""


class WaitCommand:
    """The command behind a commit, in the same request, and what its answer says."""

    def __init__(self, replicas: int, *, on_disk: bool) -> None:
        """Take the number of replicas; `on_disk`: their disks must have it, and this server's."""
        self._replicas = replicas
        self.command = ("WAITAOF", 1, replicas, WAIT_MS) if on_disk else ("WAIT", replicas, WAIT_MS)

    def check(self, answer: int | Sequence[int]) -> None:
        """Raise `TooFewReplicas` when the answer does not suffice."""
        here, there = (1, answer) if isinstance(answer, int) else answer
        if here < 1 or there < self._replicas:
            raise TooFewReplicas(f"{there} of {self._replicas} replicas have the last write")


def waits_for(replicas: int, found: Found) -> WaitCommand | None:
    """Return the wait of a commit for its replicas; None when it does not."""
    if not replicas:
        return None
    return WaitCommand(replicas, on_disk=found.version >= WAITAOF and found.durability is Durability.ALWAYS)
