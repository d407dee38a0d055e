"""Jobs of a store's threads, and how their callers hear of the end. Used by the stores on SQLite and Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from gateway.store.notifications import Notifications

J = TypeVar("J", bound="StoreJob")


@dataclass(slots=True, eq=False)
class StoreJob:
    """A job for a thread, and the caller that waits for it."""

    work: Callable[[Any], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    touched: Notifications | None = None

    def settle(self) -> None:
        """Resolve the caller's future, unless it was cancelled. Runs in its event loop."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


def deliver(jobs: Sequence[J], announce: Callable[[J], None]) -> None:
    """Call `announce` for each job in the job's event loop. A closed loop is skipped."""
    for loop in {job.loop for job in jobs}:
        mine = [job for job in jobs if job.loop is loop]
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_announce_all, mine, announce)


def _announce_all(jobs: Sequence[J], announce: Callable[[J], None]) -> None:
    for job in jobs:
        announce(job)
