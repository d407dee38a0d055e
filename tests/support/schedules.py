"""Seeded event loop: ready callbacks run in an order of the seed's, and time passes when nothing is ready.

No thread, no socket, no real second. Tasks and callbacks belong to a place, such as a machine, which can be suspended:
nothing of it runs until it is resumed, as under SIGSTOP. What callbacks of one place asked for runs in the order in
which they asked, as asyncio promises; whose turn it is among tasks, asyncio promises to nobody.
"""

from __future__ import annotations

import asyncio
import heapq
import secrets
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, TypeVar, TypeVarTuple, Unpack, cast
from unittest.mock import patch

from tests.support.clock import FakeClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
PLACE: ContextVar[str] = ContextVar("place", default="")
"""Place of a task or callback; its children inherit it."""
STEPS_AT_MOST = 500_000
DEMOTED_EVERY = 40
"""Steps, on average, after which whoever runs first becomes whoever runs last."""


class Stuck(AssertionError):
    """Nothing can happen any more, or it goes on for ever."""


class _Ready(asyncio.Handle):
    """A callback whose time has come."""

    def run(self) -> None:
        """Call it. What it raises is told to the loop."""
        self._run()


class _Timer(asyncio.TimerHandle):
    """A callback whose time comes."""

    lane: int

    def run(self) -> None:
        """Call it, unless it was cancelled."""
        if not self.cancelled():
            self._run()


class _Walk:
    """Anybody who is ready."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice

    def __call__(self, ready: list[int]) -> int:
        return ready[self._dice.randrange(len(ready))]


class _Priorities:
    """Priorities that last: the others starve, as behind a slow disk or a busy core."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._of: dict[int, float] = {}
        self._last = 0.0

    def __call__(self, ready: list[int]) -> int:
        for lane in ready:
            if lane not in self._of:
                self._of[lane] = self._dice.random()
        chosen = max(ready, key=self._of.__getitem__)
        if self._dice.randrange(DEMOTED_EVERY) == 0:
            self._last -= 1
            self._of[chosen] = self._last
        return chosen


class ScheduledLoop(asyncio.AbstractEventLoop):
    """The loop. One seed, one order, whatever the addresses and hashes of this process are."""

    def __init__(self, seed: int | str) -> None:
        """Nothing is ready."""
        self.dice = Random(seed)
        self._choose = self.dice.choice((_Walk, _Priorities))(self.dice)
        self.steps = 0
        self.troubles: list[str] = []
        """Unhandled exceptions of tasks and callbacks."""
        self.passed = 0
        """A number for the way taken: equal for equal schedules."""
        self._now = 0.0
        self._asked = 0
        self._lanes: dict[int, deque[_Ready | _Timer]] = {}
        self._lane_of: dict[object, int] = {}
        self._place_of: list[str] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._timers: list[tuple[float, int, _Timer]] = []
        self._suspended: set[str] = set()
        self._soon: list[tuple[int, Callable[[], object]]] = []
        self._running = False
        self._closed = False

    # --- places -------------------------------------------------------------------------------

    def suspend(self, place: str) -> None:
        """Let nothing of a place run."""
        self._suspended.add(place)

    def resume(self, place: str) -> None:
        """Let it go on where it was."""
        self._suspended.discard(place)

    def begin(self, place: str, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start a task that belongs to a place."""
        context = copy_context()
        context.run(PLACE.set, place)
        return self.create_task(work, name=name, context=context)

    def suspended(self, place: str) -> bool:
        """Return True while it is suspended."""
        return place in self._suspended

    def there(self, place: str, make: Callable[[], T]) -> T:
        """Call something as a place does."""
        context = copy_context()
        context.run(PLACE.set, place)
        return context.run(make)

    def at(self, place: str, seconds: float, callback: Callable[[], object]) -> None:
        """Call back at a place after so many seconds."""
        context = copy_context()
        context.run(PLACE.set, place)
        self.call_later(seconds, callback, context=context)

    def in_steps(self, steps: int, callback: Callable[[], object]) -> None:
        """Call back between two steps, so many steps from now."""
        self._soon.append((self.steps + steps, callback))

    def bury(self) -> None:
        """Cancel all tasks that are left, those of suspended places too, and run until they have ended."""
        self._suspended.clear()
        self._soon.clear()
        self.steps = 0

        async def end() -> None:
            for task in self.left():
                if task is not asyncio.current_task():
                    task.cancel()
            left = [task for task in self.left() if task is not asyncio.current_task()]
            if left:
                await asyncio.wait(left)

        self.run_until_complete(end())

    def left(self) -> list[asyncio.Task[Any]]:
        """The tasks that have not ended, in the order in which they began."""
        return [task for task in self._tasks if not task.done()]

    def left_running(self) -> list[asyncio.Task[Any]]:
        """Those of them that belong to no suspended place."""
        return [task for task in self.left() if self._place_of[self._lane_of[task]] not in self._suspended]

    # --- running ------------------------------------------------------------------------------

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        """Run until this has ended. Raises `Stuck` when it cannot."""
        main = self.create_task(cast("Coroutine[Any, Any, T]", future), name="main")
        before = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(finalizer=self._left_open)
        asyncio._set_running_loop(self)
        self._running = True
        try:
            while not main.done():
                self._step()
        finally:
            self._running = False
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*before)
        return main.result()

    def _step(self) -> None:
        """Run one callback, or let time pass to the next timer."""
        ready = sorted(lane for lane in self._lanes if self._place_of[lane] not in self._suspended)
        if not ready:
            self._wait()
            return
        lane = self._choose(ready)
        queue = self._lanes[lane]
        handle = queue.popleft()
        if not queue:
            del self._lanes[lane]
        if not handle.cancelled():
            handle.run()
        self.steps += 1
        self.passed = (self.passed * 31 + lane) % (1 << 61)
        if self.steps > STEPS_AT_MOST:
            raise Stuck(f"{STEPS_AT_MOST} steps and no end, at {self._now:.3f} s")
        if self._soon:
            due = [callback for step, callback in self._soon if step <= self.steps]
            self._soon = [one for one in self._soon if one[0] > self.steps]
            for callback in due:
                callback()

    def _wait(self) -> None:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            names = ", ".join(task.get_name() for task in self.left())
            raise Stuck(f"nothing can happen any more at {self._now:.3f} s; these wait: {names}")
        self._now = max(self._now, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self._now:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled():
                self._lanes.setdefault(timer.lane, deque()).append(timer)

    def _lane(self, callback: object, context: Context) -> int:
        """A task's own, or that of all other callbacks of a place."""
        owner = getattr(callback, "__self__", None)
        place = context.get(PLACE, "")
        key: object = cast("object", owner) if isinstance(owner, asyncio.Task) else place
        if key not in self._lane_of:
            self._lane_of[key] = len(self._place_of)
            self._place_of.append(place)
        return self._lane_of[key]

    def _left_open(self, generator: object) -> None:
        self.troubles.append(f"an asynchronous generator was left open: {generator!r}")

    # --- what asyncio asks of a loop ----------------------------------------------------------

    def time(self) -> float:
        """Seconds since the beginning."""
        return self._now

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run it when the seed says."""
        context = copy_context() if context is None else context
        handle = _Ready(callback, args, self, context)
        self._lanes.setdefault(self._lane(callback, context), deque()).append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """There is no other thread that could ask."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run it when so many seconds have passed."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run it when that time has come."""
        context = copy_context() if context is None else context
        timer = _Timer(when, callback, args, self, context)
        timer.lane = self._lane(callback, context)
        self._asked += 1
        heapq.heappush(self._timers, (when, self._asked, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is skipped when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        """One of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """One of this loop."""
        task = asyncio.Task(coro, loop=self, name=None if name is None else str(name), context=context)
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Remember it."""
        self.troubles.append(f"{context.get('message')}: {context.get('exception')!r}")

    def get_debug(self) -> bool:
        """It is not."""
        return False

    def is_running(self) -> bool:
        """Return True while it is running."""
        return self._running

    def is_closed(self) -> bool:
        """Return True once it is closed."""
        return self._closed

    def close(self) -> None:
        """Take nothing more."""
        self._closed = True

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:
        """There are no signals."""

    def remove_signal_handler(self, sig: int) -> bool:
        """There are none."""
        return False


class LoopClock(FakeClock):
    """A clock that shows a loop's time, and may be put forward or back."""

    def __init__(self, loop: ScheduledLoop) -> None:
        """Begin with the loop."""
        super().__init__(datetime(2026, 1, 1, tzinfo=UTC))
        self._loop = loop

    def now(self) -> datetime:
        """Return the wall clock."""
        return super().now() + timedelta(seconds=self._loop.time())

    def monotonic(self) -> float:
        """Return the loop's seconds."""
        return super().monotonic() + self._loop.time()


@contextmanager
def drawn_from(dice: Random) -> Generator[None]:
    """Draw what `secrets` is asked for, such as ids and the time between two tries, from these dice."""

    def token_hex(size: int) -> str:
        return dice.randbytes(size).hex()

    with (
        patch.object(secrets, "token_hex", token_hex),
        patch.object(secrets, "token_bytes", dice.randbytes),
        patch.object(secrets, "randbelow", dice.randrange),
    ):
        yield
