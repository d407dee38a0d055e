"""Who runs turns here: claim one, keep its lease, run it, give it up. One task a turn, in one group.

When a turn has ended, its task may go on for a while: it puts a long history into a summary, holding nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from gateway.agent.compaction import Compaction
from gateway.agent.turn import TurnRunner
from gateway.agent.window import LongHistory
from gateway.domain.ids import NodeId, TurnId
from gateway.domain.live import TURNS, LiveEvent, TurnsDue, turn_topic
from gateway.domain.sessions import LEASE_LASTS
from gateway.domain.slots import NewSlot
from gateway.domain.turns import Lease, TurnState
from gateway.domain.views import Claimed, TurnView
from gateway.domain.waits import NewWait
from gateway.errors import DragomanError, LeaseLost, StoreError, first_of
from gateway.ports import EventBus, Queries, TurnQueue
from gateway.system.cancellation import Cancellation, CancelReason
from gateway.system.failpoints import FailPoints
from gateway.system.logging_setup import log
from gateway.system.metrics import Metrics

AT_ONCE = 256
CLAIMED_AT_ONCE = 32
"""In one transition, which takes about 0.3 ms for each: other writes wait for it."""
RENEW_EVERY_S = 5.0
FIRST_LOOK_S = 0.25
"""A turn that is shorter has no renewer, which saves 0.2 ms of CPU; one that was stopped by then sees it then."""
CALM_S = 0.01
"""Most wakes of a renewer are its own turn's end, which cancels it: no need to look after those."""
LOOK_EVERY_S = 1.0
RETRY_AFTER_S = 1.0
END_TRIES = int(LEASE_LASTS.total_seconds() / RETRY_AFTER_S)
SHORTAGES = 3
"""So often one life gives back a turn for which no memory was left. Then it fails: it may be what takes the memory."""


@dataclass(eq=False, slots=True, kw_only=True)
class _Held:
    """One holding of a turn. The same turn can be claimed again while its last holding still ends."""

    cancellation: Cancellation
    work: asyncio.Task[LongHistory | None] | None = None


@dataclass(slots=True, kw_only=True)
class TurnWorker:
    """Runs every turn that this node can claim."""

    node: NodeId
    queue: TurnQueue
    queries: Queries
    events: EventBus
    turns: TurnRunner
    compaction: Compaction
    metrics: Metrics
    points: FailPoints
    _draining: bool = False
    _held: set[_Held] = field(default_factory=set[_Held])
    _after: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])
    """Tasks of turns that have ended, which still write a summary."""
    _cut: list[Lease] = field(default_factory=list[Lease])
    """Of turns that were not given up before the drain's time was over."""
    _short: Counter[TurnId] = field(default_factory=Counter[TurnId])
    """How often no memory was left for a turn that is to run again here."""
    _log: Any = field(default_factory=lambda: log("sessions"))

    async def run(self) -> None:
        """Claim and run turns until drained; returns when the last one was given up."""
        async with asyncio.TaskGroup() as group:
            while not self._draining:
                for one in await self._claim():
                    held = _Held(cancellation=Cancellation())
                    self._held.add(held)
                    group.create_task(self._hold(one, held), name=f"turn {one.lease.turn}")

    def drain(self) -> None:
        """Claim nothing more; cut what runs, so that it is given back. Twice is safe."""
        self._draining = True
        self.events.publish(TURNS, TurnsDue())
        for held in self._held:
            _halt(held, CancelReason.SHUTDOWN)
        for task in self._after:
            task.cancel()

    async def let_go(self) -> None:
        """Give back what the end of a drain cut, once nothing of it runs: another machine need not wait for the leases.

        Only turns: what was being sent may still arrive, so nobody else sends it before that is sure.
        """
        for lease in self._cut:
            try:
                await self.queue.release(lease)
            except StoreError as error:
                self._log.error("turn left to the sweeps", turn=lease.turn, error=str(error))

    async def _claim(self) -> Sequence[Claimed]:
        """Claim what may run, or wait for it; with no room for any, wait until there is some."""
        most = min(CLAIMED_AT_ONCE, AT_ONCE - len(self._held))
        try:
            return await self.queue.claim(self.node, most, wait_s=LOOK_EVERY_S, history=self.turns.history_turns)
        except StoreError as error:
            self._log.error("claim failed", error=str(error))
            await asyncio.sleep(RETRY_AFTER_S)
            return ()

    async def _hold(self, claimed: Claimed, held: _Held) -> None:
        """Run one turn under its lease. Whatever happens becomes a row; nothing but a cancellation is raised."""
        lease = claimed.lease
        with structlog.contextvars.bound_contextvars(session=lease.session, turn=lease.turn):
            try:
                await self.points.hit("J4")
                await self._work(claimed, held)
                await self._give_up(lease, held.cancellation)
            except asyncio.CancelledError:
                self._cut.append(lease)
                raise
            except (StoreError, LeaseLost) as error:
                # The lease runs out by itself and a sweep takes the turn back.
                self._log.error("turn left to the sweeps", error=str(error))
            except Exception:  # noqa: BLE001 - the loop of sessions: one turn does not end the others (house rule 9)
                self._log.exception("turn left to the sweeps")
            finally:
                if held.cancellation.why is not CancelReason.SHUTDOWN:
                    self._short.pop(lease.turn, None)
                self.turns.let_go(lease, ended=held.cancellation.why in (CancelReason.STOP, CancelReason.LIMIT))
                full = len(self._held) >= AT_ONCE
                self._held.discard(held)
                if full:  # the store announced who may run when there was no room yet
                    self.events.publish(TURNS, TurnsDue())
            await self._afterwards(held)

    async def _afterwards(self, held: _Held) -> None:
        """Put a long history into a summary. The answer is out and the lease is gone: the session's next turn may run.

        What is lost here, by a failure or because the daemon ends, is done after the next turn.
        """
        task, work = asyncio.current_task(), held.work
        if task is None or work is None or work.cancelled() or work.exception() is not None:
            return
        long = work.result()
        if long is None or self._draining:
            return
        self._after.add(task)
        try:
            await self.compaction.run(long)
        except Exception:  # noqa: BLE001 - the loop of sessions: the history stays as it is (house rule 9)
            self._log.exception("no summary was written")
        finally:
            self._after.discard(task)

    async def _work(self, claimed: Claimed, held: _Held) -> None:
        """Run the turn beside the renewer of its lease."""
        lease = claimed.lease
        try:
            async with asyncio.TaskGroup() as group:
                held.work = group.create_task(self.turns.run(claimed, held.cancellation), name=f"run {lease.turn}")
                if self._draining:
                    _halt(held, CancelReason.SHUTDOWN)
                _, goes_on = await asyncio.wait([held.work], timeout=FIRST_LOOK_S)
                if goes_on:
                    renewer = group.create_task(self._renew(lease, held), name=f"lease of {lease.turn}")
                    held.work.add_done_callback(lambda _: renewer.cancel())
        except ExceptionGroup as failed:  # the loop of sessions: a failure becomes a row (house rule 9)
            await self._went_wrong(lease, held, failed)

    async def _went_wrong(self, lease: Lease, held: _Held, failed: ExceptionGroup[Exception]) -> None:
        """Decide what becomes of a turn that raised; calls that run side by side may raise several things at once."""
        if failed.split((LeaseLost, StoreError, MemoryError))[1] is not None or self._never_fits(lease, failed):
            self._log.error("turn failed", exc_info=failed)
            text = f"Something went wrong inside Dragoman; its log tells more (turn `{lease.turn}`)."
            await self._end(lease, TurnState.FAILED, text)
            held.cancellation.why = CancelReason.LOST
        elif failed.subgroup(MemoryError) is not None:
            self._log.error("no memory was left for a turn")
            await asyncio.sleep(RETRY_AFTER_S)
            held.cancellation.why = CancelReason.SHUTDOWN
        elif (store := failed.subgroup(StoreError)) is not None:
            self._log.error("the store failed during a turn", error=str(first_of(store)))
            await asyncio.sleep(RETRY_AFTER_S)
            held.cancellation.why = CancelReason.SHUTDOWN
        else:
            held.cancellation.why = held.cancellation.why or await self._why_refused(lease)

    def _never_fits(self, lease: Lease, failed: ExceptionGroup[Exception]) -> bool:
        """Count a shortage of memory; say whether this was one too many."""
        if failed.subgroup(MemoryError) is None:
            return False
        self._short[lease.turn] += 1
        return self._short[lease.turn] > SHORTAGES

    async def _renew(self, lease: Lease, held: _Held) -> None:
        """Renew the lease now and every 5 s, and look at once when somebody stopped the turn."""
        async with self.events.subscribe(turn_topic(lease.turn)) as wakes:
            while True:
                try:
                    if await self.queue.renew(lease) is TurnState.STOPPING:
                        _halt(held, CancelReason.STOP)
                        return
                except LeaseLost:
                    _halt(held, CancelReason.LOST)
                    return
                except StoreError as error:
                    self._log.error("lease not renewed", error=str(error))
                else:
                    self.turns.say_working(lease)
                left_s = self.turns.left_s(lease)
                if left_s is not None and left_s <= 0:
                    _halt(held, CancelReason.LIMIT)
                    return
                # Not at once: a clock may differ by a little from the one that wakes.
                await _look_again(wakes, RENEW_EVERY_S if left_s is None else min(RENEW_EVERY_S, left_s + CALM_S))
                await asyncio.sleep(CALM_S)

    async def _why_refused(self, lease: Lease) -> CancelReason:
        """A write was refused: because the turn was stopped, or because somebody else has it."""
        try:
            state = await self.queue.renew(lease)
        except DragomanError:
            return CancelReason.LOST
        return CancelReason.STOP if state is TurnState.STOPPING else CancelReason.LOST

    async def _give_up(self, lease: Lease, cancellation: Cancellation) -> None:
        match cancellation.why:
            case CancelReason.STOP:
                await self._end(lease, TurnState.STOPPED)
            case CancelReason.LIMIT:
                await self._end(lease, TurnState.FAILED)
            case CancelReason.SHUTDOWN:
                await self._release(lease)
            case CancelReason.LOST | None:
                pass

    async def _release(self, lease: Lease) -> None:
        """Give the turn back. A store that fails is asked again: the lease may last longer than its trouble."""
        while True:
            try:
                await self.queue.release(lease)
            except StoreError as error:
                self._log.error("turn not given back", error=str(error))
                await asyncio.sleep(RETRY_AFTER_S)
            else:
                return

    async def _end(self, lease: Lease, state: TurnState, text: str = "") -> None:
        """End a turn that has no answer. A store that fails is asked again, for as long as the lease may last."""
        for _ in range(END_TRIES):
            try:
                await self._end_now(lease, state, text)
            except StoreError as error:
                self._log.error("turn not ended", error=str(error))
                await asyncio.sleep(RETRY_AFTER_S)
            else:
                return
        await self._end_now(lease, state, text)

    async def _end_now(self, lease: Lease, state: TurnState, text: str) -> None:
        """Without a text one that was stopped says what whoever stopped it wants, which may be nothing; any other that
        its time is over."""
        view = await self._view(lease)
        slots: list[NewSlot] = []
        timers: list[NewWait] = []
        if view is not None:
            stopped = state is TurnState.STOPPED
            if not text:
                text = view.turn.stopped_text if stopped else self.turns.out_of_time(view)
            slots, timers = self.turns.last_slots(view, lease, text, keep=stopped)
        if state is TurnState.STOPPED:
            timers = []  # whoever stopped it knows
        if await self.queue.finish_turn(lease, state, answer=None, given=(), slots=slots, timers=timers):
            self.metrics.turns.labels(state.value).inc()

    async def _view(self, lease: Lease) -> TurnView | None:
        try:
            return await self.queries.turn(lease.turn)
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - what cannot be read may be why it failed: it ends (house rule 9)
            self._log.exception("the turn cannot be read")
            return None


def _halt(held: _Held, why: CancelReason) -> None:
    """Cancel a turn's work, once, having said why."""
    if held.cancellation.why is None and held.work is not None and not held.work.done():
        held.cancellation.why = why
        held.work.cancel()


async def _look_again(wakes: AsyncIterator[LiveEvent], seconds: float) -> None:
    """Wait for a wake-up; and look by the clock too, because wake-ups may be lost."""
    try:
        async with asyncio.timeout(seconds):
            await anext(wakes)
    except TimeoutError:
        pass
