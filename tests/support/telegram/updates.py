"""The queue of updates of one bot, with Telegram's rules of what an offset confirms."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.support.telegram.checks import Json, Refusal

LEFT_OUT_UNLESS_ASKED = frozenset({"chat_member", "message_reaction", "message_reaction_count"})
CONFLICT = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
_FUTURE = 10
"""An offset further ahead than this confirms nothing: the real one then starts at the earliest it has."""


def kind_of(update: Json) -> str:
    """The one field of an update besides its id."""
    return next((name for name in update if name != "update_id"), "")


@dataclass(slots=True)
class Updates:
    """Updates that were not confirmed yet, in the order they arose."""

    next_id: int = 100_000_001
    allowed: list[str] = field(default_factory=list[str])
    """Kinds that are kept; empty: all but those that must be asked for."""
    shuffle: random.Random | None = None
    """Given one, the updates of an answer come in any order."""
    waiting: deque[Json] = field(default_factory=deque[Json])
    given: list[Json] = field(default_factory=list[Json])
    """Everything that was ever put here, for `replay`."""
    on_added: Callable[[Json], None] = lambda update: None
    _again: deque[Json] = field(default_factory=deque[Json])
    _poll: asyncio.Future[bool] | None = None

    def add(self, update: Json) -> int:
        """Put an update here under the next id, unless its kind is not wanted; returns its id."""
        update = {"update_id": self.next_id, **update}
        self.next_id += 1
        self.given.append(update)
        kind = kind_of(update)
        if kind in self.allowed if self.allowed else kind not in LEFT_OUT_UNLESS_ASKED:
            self.waiting.append(update)
            self.on_added(update)
            self._wake(True)
        return update["update_id"]

    def add_raw(self, update: Json) -> int:
        """Put an update here as it is; its id may be any, or missing."""
        if "update_id" not in update:
            return self.add(update)
        self._again.append(update)
        self.given.append(update)
        self.on_added(update)
        self._wake(True)
        return update["update_id"]

    def replay(self, count: int) -> None:
        """Deliver the last updates once more, whatever was confirmed."""
        for update in self.given[-count:]:
            self._again.append(update)
            self.on_added(update)
        self._wake(True)

    def jump(self, by: int) -> None:
        """Go on with other ids, as Telegram does after a week of silence; nothing may wait then."""
        if self.waiting:
            raise RuntimeError(f"{len(self.waiting)} updates are not confirmed yet: wait for that first")
        self.next_id += by

    def drop(self) -> None:
        """Forget what waits."""
        self.waiting.clear()
        self._again.clear()

    def done(self, update: Json) -> None:
        """A webhook took this one."""
        for queue in (self._again, self.waiting):
            for n, one in enumerate(queue):
                if one is update:
                    del queue[n]
                    return

    def pending(self) -> Sequence[Json]:
        """Return the unconfirmed updates, the repeated ones too."""
        return [*self._again, *self.waiting]

    def end_poll(self) -> None:
        """End a poll that waits: with a conflict."""
        self._wake(False)

    async def take(self, offset: int, limit: int, timeout_s: float) -> list[Json]:
        """Return the answer to one getUpdates."""
        self._wake(False)
        self._confirm(offset)
        if (batch := self._batch(limit)) or timeout_s <= 0:
            return batch
        self._poll = poll = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                if not await poll:
                    raise Refusal(CONFLICT, code=409)
        except TimeoutError:
            pass
        finally:
            if self._poll is poll:
                self._poll = None
        return self._batch(limit)

    def _wake(self, more: bool) -> None:
        if self._poll is not None and not self._poll.done():
            self._poll.set_result(more)

    def _confirm(self, offset: int) -> None:
        if offset > self.next_id + _FUTURE:
            return
        if offset < 0:
            while len(self.waiting) > -offset:
                self.waiting.popleft()
            return
        while self.waiting and self.waiting[0]["update_id"] < offset:
            self.waiting.popleft()

    def _batch(self, limit: int) -> list[Json]:
        batch: list[Json] = []
        while self._again and len(batch) < limit:
            batch.append(self._again.popleft())
        for update in self.waiting:
            if len(batch) >= limit:
                break
            batch.append(update)
        if self.shuffle is not None:
            self.shuffle.shuffle(batch)
        return batch
