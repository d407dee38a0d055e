"""Worker that claims turns, renews their leases, runs and releases them. One task a turn, in one group. Used by `app`.

After a turn's end its task may go on for a while, without a lease: it puts a long history into a summary.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from gateway.agent.compaction import Compaction
from gateway.agent.limits import out_of_time
from gateway.agent.turn import TurnRun, TurnRunner
from gateway.domain.events import TURNS, LiveEvent, TurnsDue, turn_topic
from gateway.domain.ids import NodeId, TurnId
from gateway.domain.slots import NewSlot
from gateway.domain.turns import LEASE_LASTS, Lease, TurnState, company
from gateway.domain.views import Claimed, TurnView
from gateway.domain.waits import NewWait
from gateway.errors import DragomanError, FilesElsewhere, LeaseLost, RowDamaged, StoreError, first_of
from gateway.ports import EventBus, Queries, TurnQueue
from gateway.system.cancellation import CancelReason
from gateway.system.failpoints import FailPoints
from gateway.system.gate import Gate
from gateway.system.logging_setup import log
from gateway.system.metrics import Metrics

AT_ONCE = 256
"""Default limit of turns that run on this node at a time."""
CLAIMED_AT_ONCE = 32
"""Turns in one claim, a transition of about 0.3 ms for each turn: other writes wait for it."""
RENEW_EVERY_S = 5.0
"""Seconds between renewals of a lease."""
FIRST_LOOK_S = 0.25
"""Seconds before a turn's renewer starts. A shorter turn saves its 0.2 ms of CPU; an earlier stop is seen only then."""
CALM_S = 0.01
"""Debounce of a renewer in seconds: most wake-ups are the end of its own turn, which cancels it anyway."""
LOOK_EVERY_S = 1.0
"""Timeout in seconds of one claim's wait for turns."""
RETRY_AFTER_S = 1.0
"""Seconds between attempts after a failure of the store."""
END_TRIES = int(LEASE_LASTS.total_seconds() / RETRY_AFTER_S)
"""Attempts to end a turn, for as long as its lease may last."""
AMONG_FEW_FOR_S = 3.0
"""Seconds at most for which nothing is claimed beside a turn that was begun often: it may end the process."""
SHORTAGES = 3
"""Releases of a turn for lack of memory in one process. Then it fails: it may be the one that takes the memory."""


@dataclass(slots=True, kw_only=True)
class TurnWorker:
    """Worker that runs every turn this node can claim."""

    node: NodeId
    queue: TurnQueue
    queries: Queries
    events: EventBus
    turns: TurnRunner
    compaction: Compaction
    metrics: Metrics
    points: FailPoints
    gate: Gate = field(default_factory=Gate)
    """Closed while this node takes no turns."""
    home: str = ""
    """As in `TurnQueue.claim`."""
    at_once: int = AT_ONCE
    """Turns that run here at a time, at most."""
    _draining: bool = False
    _held: set[TurnRun] = field(default_factory=set[TurnRun])
    _after: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])
    """Tasks of ended turns that still write a summary."""
    _cut: list[Lease] = field(default_factory=list[Lease])
    """Leases of turns not released within the drain's timeout."""
    _short: Counter[TurnId] = field(default_factory=Counter[TurnId])
    """Shortages of memory of each turn that is to run again here."""
    _log: Any = field(default_factory=lambda: log("worker"))

    async def run(self) -> None:
        """Claim and run turns until drained; return when the last one is released."""
        async with asyncio.TaskGroup() as group:
            while not self._draining:
                often: list[asyncio.Task[None]] = []
                for one in await self._claim():
                    run = self.turns.begin(one)
                    self._held.add(run)
                    task = group.create_task(self._hold(run), name=f"turn {one.lease.turn}")
                    if company(one.begun) < CLAIMED_AT_ONCE:
                        often.append(task)
                if often:
                    await asyncio.wait(often, timeout=AMONG_FEW_FOR_S)
                    self.events.publish_here(TURNS, TurnsDue())  # the claim left turns behind

    def drain(self) -> None:
        """Stop claiming, and cancel running turns, which releases them. Idempotent."""
        self._draining = True
        self.events.publish_here(TURNS, TurnsDue())
        for run in self._held:
            run.cancel(CancelReason.SHUTDOWN)
        for task in self._after:
            task.cancel()

    async def release(self) -> None:
        """Release the turns cut at the end of a drain, so that another machine need not wait for their leases.

        Call when none of them runs any more. Leases of messages are kept: one in flight may still arrive, so nobody
        else may send it yet.
        """
        for lease in self._cut:
            try:
                await self.queue.release(lease)
            except StoreError as error:
                self._log.error("turn left to the sweeps", turn=lease.turn, error=str(error))

    async def _claim(self) -> Sequence[Claimed]:
        """Claim turns that may run, or wait for some; without room for any, wait for room."""
        if not self.gate.is_open:
            await self.gate.wait(LOOK_EVERY_S)
            return ()
        most = min(CLAIMED_AT_ONCE, self.at_once - len(self._held))
        try:
            history = self.turns.history_turns
            return await self.queue.claim(self.node, most, wait_s=LOOK_EVERY_S, history=history, home=self.home)
        except (StoreError, RowDamaged) as error:
            self._log.error("claim failed", error=str(error))
            await asyncio.sleep(RETRY_AFTER_S)
            return ()

    async def _hold(self, run: TurnRun) -> None:
        """Run one turn under its lease. Each outcome becomes a row; only a cancellation is raised."""
        lease = run.lease
        with structlog.contextvars.bound_contextvars(session=lease.session, turn=lease.turn):
            try:
                await self.points.hit("J4")
                await self._work(run)
                await self._give_up(run)
            except asyncio.CancelledError:
                self._cut.append(lease)
                raise
            except (StoreError, LeaseLost) as error:
                # The lease expires, and a sweep requeues the turn.
                self._log.error("turn left to the sweeps", error=str(error))
            except Exception:  # noqa: BLE001 - the loop of sessions: one turn does not end the others (house rule 9)
                self._log.exception("turn left to the sweeps")
            finally:
                if run.cancellation.why not in (CancelReason.SHUTDOWN, CancelReason.RELEASE):
                    self._short.pop(lease.turn, None)
                run.release(ended=run.cancellation.why in (CancelReason.STOP, CancelReason.LIMIT))
                full = len(self._held) >= self.at_once
                self._held.discard(run)
                if full:  # the store announced waiting turns while there was no room for them
                    self.events.publish_here(TURNS, TurnsDue())
            await self._afterwards(run)

    async def _afterwards(self, run: TurnRun) -> None:
        """Summarise a long history. The answer is sent and the lease released: the next turn may run meanwhile.

        A summary lost by a failure or the end of the daemon is written after the next turn.
        """
        task, work = asyncio.current_task(), run.work
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

    async def _work(self, run: TurnRun) -> None:
        """Run the turn beside the renewer of its lease."""
        turn = run.lease.turn
        try:
            async with asyncio.TaskGroup() as group:
                run.work = group.create_task(run.run(), name=f"run {turn}")
                if self._draining:
                    run.cancel(CancelReason.SHUTDOWN)
                _, goes_on = await asyncio.wait([run.work], timeout=FIRST_LOOK_S)
                if goes_on:
                    renewer = group.create_task(self._renew(run), name=f"lease of {turn}")
                    run.work.add_done_callback(lambda _: renewer.cancel())
        except ExceptionGroup as failed:  # the loop of sessions: a failure becomes a row (house rule 9)
            await self._went_wrong(run, failed)

    async def _went_wrong(self, run: TurnRun, failed: ExceptionGroup[Exception]) -> None:
        """Fail, release or drop a turn that raised; parallel calls may raise several errors at once."""
        lease = run.lease
        if failed.split((LeaseLost, StoreError, MemoryError))[1] is not None or self._never_fits(lease, failed):
            self._log.error("turn failed", exc_info=failed)
            text = f"Something went wrong inside Dragoman; see its log (turn `{lease.turn}`)."
            await self._end(run, TurnState.FAILED, text)
            run.cancellation.why = CancelReason.LOST
        elif failed.subgroup(MemoryError) is not None:
            self._log.error("no memory was left for a turn")
            await asyncio.sleep(RETRY_AFTER_S)
            run.cancellation.why = CancelReason.RELEASE
        elif (store := failed.subgroup(StoreError)) is not None:
            self._log.error("the store failed during a turn", error=str(first_of(store)))
            await asyncio.sleep(RETRY_AFTER_S)
            run.cancellation.why = CancelReason.RELEASE
        elif failed.subgroup(FilesElsewhere) is not None:
            run.cancellation.why = CancelReason.RELEASE  # its home claims it
        else:
            run.cancellation.why = run.cancellation.why or await self._why_refused(lease)

    def _never_fits(self, lease: Lease, failed: ExceptionGroup[Exception]) -> bool:
        """Count a shortage of memory; return True when it exceeds `SHORTAGES`."""
        if failed.subgroup(MemoryError) is None:
            return False
        self._short[lease.turn] += 1
        return self._short[lease.turn] > SHORTAGES

    async def _renew(self, run: TurnRun) -> None:
        """Renew the lease now, every 5 s, and at once on an event of the turn, such as a stop."""
        lease = run.lease
        async with self.events.subscribe(turn_topic(lease.turn)) as wakes:
            while True:
                try:
                    if await self.queue.renew(lease) is TurnState.STOPPING:
                        run.cancel(CancelReason.STOP)
                        return
                except LeaseLost:
                    run.cancel(CancelReason.LOST)
                    return
                except StoreError as error:
                    self._log.error("lease not renewed", error=str(error))
                else:
                    run.publish_active()
                left_s = run.left_s()
                if left_s is not None and left_s <= 0:
                    run.cancel(CancelReason.LIMIT)
                    return
                # Plus the debounce: the event loop's clock may differ a little from the turn's.
                await _wait_for_wake(wakes, RENEW_EVERY_S if left_s is None else min(RENEW_EVERY_S, left_s + CALM_S))
                await asyncio.sleep(CALM_S)

    async def _why_refused(self, lease: Lease) -> CancelReason:
        """Return the reason for a refused write: the turn was stopped, or another node holds it."""
        try:
            state = await self.queue.renew(lease)
        except DragomanError:
            return CancelReason.LOST
        return CancelReason.STOP if state is TurnState.STOPPING else CancelReason.LOST

    async def _give_up(self, run: TurnRun) -> None:
        """End or release the turn by the reason of its cancellation; nothing when it ran to its end."""
        match run.cancellation.why:
            case CancelReason.STOP:
                await self._end(run, TurnState.STOPPED)
            case CancelReason.LIMIT:
                await self._end(run, TurnState.FAILED)
            case CancelReason.SHUTDOWN | CancelReason.RELEASE:
                await self._release(run.lease)
            case CancelReason.LOST | None:
                pass

    async def _release(self, lease: Lease) -> None:
        """Release the turn. Retry while the store fails: the lease may outlast the outage."""
        while True:
            try:
                await self.queue.release(lease)
            except StoreError as error:
                self._log.error("turn not released", error=str(error))
                await asyncio.sleep(RETRY_AFTER_S)
            else:
                return

    async def _end(self, run: TurnRun, state: TurnState, text: str = "") -> None:
        """End a turn without an answer. Retry while the store fails, for as long as the lease may last."""
        for _ in range(END_TRIES):
            try:
                await self._end_now(run, state, text)
            except StoreError as error:
                self._log.error("turn not ended", error=str(error))
                await asyncio.sleep(RETRY_AFTER_S)
            else:
                return
        await self._end_now(run, state, text)

    async def _end_now(self, run: TurnRun, state: TurnState, text: str) -> None:
        """End the turn. Default text: that of the stop, which may be empty, or else that its time is over."""
        lease = run.lease
        view = await self._view(lease)
        slots: list[NewSlot] = []
        timers: list[NewWait] = []
        if view is not None:
            stopped = state is TurnState.STOPPED
            if not text:
                text = view.turn.stopped_text if stopped else out_of_time(view, self.turns.limits)
            slots, timers = run.last_slots(view, text, keep=stopped)
        if state is TurnState.STOPPED:
            timers = []  # the person who stopped it knows
        if await self.queue.finish_turn(lease, state, answer=None, given=(), slots=slots, timers=timers):
            self.metrics.turns.labels(state.value).inc()

    async def _view(self, lease: Lease) -> TurnView | None:
        try:
            return await self.queries.turn(lease.turn)
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - an unreadable turn may be the cause of its failure: it ends (house rule 9)
            self._log.exception("the turn cannot be read")
            return None


async def _wait_for_wake(wakes: AsyncIterator[LiveEvent], seconds: float) -> None:
    """Wait for a wake-up, with a timeout because wake-ups may be lost."""
    try:
        async with asyncio.timeout(seconds):
            await anext(wakes)
    except TimeoutError:
        pass
