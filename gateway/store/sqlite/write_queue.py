"""What the SQLite store's threads are given to do, and claims that wait until there is something to take."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gateway.store.notifications import Notifications

LOOK_EVERY_S = 1.0
"""What can be taken by time alone is found so late at most."""


@dataclass(slots=True, eq=False)
class WriteJob:
    """Something to be run by a thread, and the caller that waits for it."""

    work: Callable[[Any], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    touched: Notifications | None = None
    claims: WaitingClaims | None = None
    """For a claim that would rather wait than take nothing: those of its kind."""
    most: int = 0
    """For such a claim: how many it takes."""
    patient: bool = True
    """For such a claim: whether it would still wait."""

    def settle(self) -> None:
        """Tell the caller, unless it went away. In its event loop."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class WaitingClaims:
    """The claims of one kind that wait, of turns or of slots. Used by the event loop and by the writer.

    One that waits is run in the commit of the transition that brings something, which saves a commit of its own: 0.3 ms
    of CPU. It is in the hands of one thread at a time: whoever takes it out of the list settles it.
    """

    def __init__(self) -> None:
        """Nobody waits, and nobody has looked yet."""
        self._lock = threading.Lock()
        self._waiting: list[WriteJob] = []
        self._due = True
        """Whether there may be something that nobody has looked for."""
        self._looked_at = -math.inf

    # --- in the event loop --------------------------------------------------------------------

    def must_look(self, job: WriteJob) -> bool:
        """Whether a claim has to be run now; if not, it waits from now on."""
        now = job.loop.time()
        with self._lock:
            if self._due or now - self._looked_at >= LOOK_EVERY_S:
                self._due, self._looked_at = False, now
                return True
            self._waiting.append(job)
            return False

    def give_up(self, job: WriteJob) -> None:
        """Let a claim wait no longer, if it still does. One that is being run is settled by the writer."""
        with self._lock:
            job.patient = False
            found = job in self._waiting
            if found:
                self._waiting.remove(job)
        if found:
            job.settle()

    def look_again(self) -> None:
        """Let nobody wait any longer: the next claim has to look."""
        with self._lock:
            self._due, waiting, self._waiting = True, self._waiting, []
        deliver(waiting, WriteJob.settle)

    # --- in the writer ------------------------------------------------------------------------

    def next(self) -> WriteJob | None:
        """Take out a claim that waits, now that there is something; if nobody does, the next one has to look."""
        with self._lock:
            if self._waiting:
                return self._waiting.pop(0)
            self._due = True
            return None

    def keep(self, job: WriteJob) -> bool:
        """Let a claim wait that found nothing; False when it must not, or need not: then it is settled."""
        with self._lock:
            keeps = job.patient and not self._due and not job.future.cancelled()
            if keeps:
                self._waiting.append(job)
            return keeps


def deliver(jobs: list[WriteJob], announce: Callable[[WriteJob], None]) -> None:
    """Have `announce` called for each job in its own event loop. A loop that is gone waits for nothing any more."""
    for loop in {job.loop for job in jobs}:
        mine = [job for job in jobs if job.loop is loop]
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_announce_all, mine, announce)


def _announce_all(jobs: list[WriteJob], announce: Callable[[WriteJob], None]) -> None:
    for job in jobs:
        announce(job)
