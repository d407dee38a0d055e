"""The calls of an answer: decide each, ask or run, store the result. No tool runs but from here.

All calls are decided before any runs. Refused ones get their results at once, asked ones share a card; what reads
runs side by side, the rest one at a time, each as soon as it is allowed. Only the calls of a tool that keeps something
between them go in their order: each is decided when the one before it has its result, and is not run when that one
waits. What a call waits for (a decision, a sub-session) is a row: when nothing else is left to do, the turn can park.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from gateway import approvals as asking
from gateway.approvals import Approvals, Audience
from gateway.domain.audit import StartRecord
from gateway.domain.ids import WaitId, mint
from gateway.domain.live import Activity, LiveEvent, turn_topic
from gateway.domain.sessions import SessionKind
from gateway.domain.slots import NewSlot
from gateway.domain.steps import Step, StepState
from gateway.domain.text import one_line
from gateway.domain.tools import Park, Risk, ToolResult
from gateway.domain.turns import Lease, TurnLimits
from gateway.domain.views import TurnView
from gateway.domain.waits import NewWait, StartOutcome, Wait, WaitKind, WaitState
from gateway.errors import StoreError
from gateway.ports import Clock, EventBus, Queries, TurnJournal
from gateway.system.cancellation import Cancellation
from gateway.system.failpoints import FailPoints
from gateway.system.logging_setup import log
from gateway.system.metrics import Metrics
from gateway.toolcalls.decide import (
    Asked,
    CallDecider,
    Found,
    Runnable,
    SameCalls,
    Scopes,
    after_a_wait,
    not_approved,
    too_many_open,
)
from gateway.toolcalls.execution import Execution, Prepared, cut_short
from gateway.toolcalls.output import bounded
from gateway.toolcalls.permits import Permit
from gateway.toolcalls.registry import Registry
from gateway.toolcalls.result_files import file_slots

SIDE_BY_SIDE = 4
READS = frozenset({Risk.NONE, Risk.READ})
STORE_AGAIN_S = 1.0
WRITTEN_WITHIN_S = 1.0
"""So long the end of a turn waits for what became of its call; a store that hangs must not hold up a stop for ever."""
DOING_CHARS = 120

T = TypeVar("T")
Tell = Callable[[Activity], None]
"""Told what is done now, whenever that changes. Must not raise."""


@dataclass(slots=True, kw_only=True)
class ToolCalls:
    """Brings the calls of a turn's last answer to their results."""

    registry: Registry
    journal: TurnJournal
    queries: Queries
    events: EventBus
    approvals: Approvals
    execution: Execution
    clock: Clock
    metrics: Metrics
    points: FailPoints
    expiry: Mapping[SessionKind, timedelta]
    limits: TurnLimits = field(default_factory=TurnLimits)
    _deciding: CallDecider = field(init=False)
    _log: Any = field(default_factory=lambda: log("toolcalls"))

    def __post_init__(self) -> None:
        """Make what decides."""
        self._deciding = CallDecider(
            registry=self.registry,
            workspaces=self.execution.workspaces,
            containment=self.execution.containment,
            limits=self.limits,
            metrics=self.metrics,
            redactor=self.execution.redactor,
        )

    async def settle(self, view: TurnView, lease: Lease, cancellation: Cancellation, doing: Tell) -> TurnView | None:
        """Do all that can be done now for the turn, which stands as in `view`; tell `doing` what that is.

        Return how it stands when every call has its result, None when only waits are left.
        """
        topic = turn_topic(lease.turn)
        say = _Saying(doing=doing, clean=self.execution.redactor.text)
        async with self.events.subscribe(topic) as woken, asyncio.TaskGroup() as group:
            now = _Running()
            running, changed = now.calls, now.changed
            watcher = group.create_task(_relay(woken, changed), name=f"wakes of {lease.turn}")
            # A decision may have come before anybody listened here; of a turn without waits none can.
            now.known = None if view.waits else view
            while True:
                changed.clear()
                busy = frozenset(running)  # before reading: a call that ends meanwhile stands in the view as it was
                try:
                    view, now.known = now.known or await self.queries.turn(lease.turn), None
                    unfinished = [step for step in view.steps if step.state is not StepState.FINISHED]
                    runnable = await self._decide(view, unfinished, lease, busy)
                except StoreError as error:
                    if not running:
                        raise
                    await self._a_moment(lease, error)  # what runs is not ended for that
                    continue
                for one in runnable:
                    if _fits(one.call.tool.spec.risk, running):
                        running[one.call.step.n] = one.call
                        work = self._run(one, lease, cancellation, now)
                        group.create_task(work, name=f"call {lease.turn}/{one.call.step.n}")
                if not running and not changed.is_set():
                    break
                now.all_there_is = all(step.n in running for step in unfinished)
                await now.until_more(say)
            watcher.cancel()
        if unfinished:
            view = await self.queries.turn(lease.turn)
        settled = all(step.state is StepState.FINISHED for step in view.steps)
        say.waiting(view)
        return view if settled else None

    # --- decide -------------------------------------------------------------------------------

    async def _decide(
        self, view: TurnView, unfinished: Sequence[Step], lease: Lease, running: Collection[int]
    ) -> list[Runnable]:
        """Decide every call that has no result yet; refuse and ask now, return what may run."""
        look, order = _Look(view=view), _InOrder()
        for step in unfinished:
            await asyncio.sleep(0)  # a model may make 50 calls of 64 KiB in one answer: 13 ms for each
            kept = self._deciding.kept(step)
            if order.waits_for_end(kept, runs=step.n in running):
                continue
            behind = step.state is StepState.PLANNED and order.is_behind_a_wait(kept)
            found = after_a_wait(kept) if behind else await self._look_at(look, step, kept)
            order.found(kept, found)
            if isinstance(found, ToolResult):
                # A sub-session's words come as its model gave them.
                clean = replace(found, text=self.execution.redactor.text(found.text)) if found.text else found
                await self.journal.finish_step(lease, step.n, bounded(clean))
        if look.asked and look.place is not None:
            await self._ask(view, lease, look.asked, look.place)
        return look.runnable

    async def _look_at(self, look: _Look, step: Step, kept: str) -> Found | None:
        """Decide one call; None: it still waits."""
        view, wait = look.view, look.waits.get(step.n)
        if kept and look.allowed is None and (wait is None or wait.state is not WaitState.OPEN):
            look.allowed = await self.journal.allowed_scopes(view.session.id)
        allowed = look.allowed or ()
        if step.state is StepState.PLANNED:
            found = self._deciding.first(view, step, look.same, allowed, askable=True)
            if isinstance(found, Asked):
                look.place = look.place or await self.approvals.audience(view.session, view.turn, self.clock.now())
                if not look.place.anybody:
                    found = self._deciding.first(view, step, look.same, allowed, askable=False)
        else:
            found = self._deciding.later(view, step, wait, allowed)
        if isinstance(found, Asked):
            look.asked.append(found)
        elif isinstance(found, Runnable):
            look.runnable.append(found)
        return found

    async def _ask(self, view: TurnView, lease: Lease, asked: Sequence[Asked], place: Audience) -> None:
        until = self.clock.now() + self.expiry[view.session.root_kind]
        waits = [
            NewWait(
                id=WaitId(mint("w")),
                kind=WaitKind.APPROVAL,
                n=one.step.n,
                approval=one.request,
                payload=asking.payload(view.session),
                expires_at=until,
            )
            for one in asked
        ]
        titles = [asking.title(one.request) for one in asked]
        slots = asking.card_slots([wait.id for wait in waits], titles, place, view.session, view.turn)
        most = None if view.session.root_kind is SessionKind.MAIN else self.limits.open_approvals
        opened = await self.journal.open_waits(lease, waits, slots, most=most)
        if opened is None:
            return  # the turn is being stopped
        for one in asked[opened:]:
            await self.journal.finish_step(lease, one.step.n, self._deciding.refuse(too_many_open(most or 0)))
        if not opened:
            return
        self.metrics.decisions.labels("ask", "").inc(opened)
        await self.points.hit("J8")
        await self.points.hit("WAITS")

    # --- run ----------------------------------------------------------------------------------

    async def _run(self, one: Runnable, lease: Lease, cancellation: Cancellation, now: _Running) -> None:
        n = one.call.step.n
        try:
            started = await self._start(one, lease, cancellation)
            if started is StartOutcome.STARTED:
                if one.wait is None:
                    self.metrics.decisions.labels("allow", "").inc()
                await self.points.hit("J11")
                await self._execute(one.call, lease, cancellation, now)
            elif started is StartOutcome.NOT_APPROVED:
                await self.journal.finish_step(lease, n, not_approved())
        finally:
            now.ended(n)

    async def _start(self, one: Runnable, lease: Lease, cancellation: Cancellation) -> StartOutcome | None:
        """Store that a call begins; None when the store failed: nothing was begun, and it is looked at again."""
        started: list[StartOutcome] = []
        action = one.call.action
        beginning = StartRecord(
            tool=action.tool, action_sha=one.call.action_sha, sandbox=action.sandbox, scoped=one.scoped
        )

        async def begin() -> None:
            started.append(await self.journal.start_step(lease, one.call.step.n, one.wait, beginning))

        try:
            await _to_its_end(begin)
        except StoreError as error:
            await self._a_moment(lease, error)
            return None
        except asyncio.CancelledError:
            # Nothing of it was run. Without a result nobody would know that.
            if StartOutcome.STARTED in started and (result := cut_short(cancellation)) is not None:
                await self.journal.finish_step(lease, one.call.step.n, result)
            raise
        return started[0]

    async def _a_moment(self, lease: Lease, error: StoreError) -> None:
        self._log.error("the store failed beside a call", turn=lease.turn, error=str(error))
        await asyncio.sleep(STORE_AGAIN_S)

    async def _execute(self, call: Prepared, lease: Lease, cancellation: Cancellation, now: _Running) -> None:
        n = call.step.n
        permit: Permit = self.execution.office.issue(lease, n, call.action_sha)

        async def store_partial(result: ToolResult) -> None:
            await _to_its_end(partial(self.journal.finish_step, lease, n, result))

        await self.points.hit("J12")
        outcome = await self.execution.run(permit, call, lease, cancellation, store_partial)
        await self.points.hit("J13")
        if isinstance(outcome, Park):  # the store has opened its wait already
            return
        now.stored(n, await self._store(lease, n, outcome, file_slots(call.view, n, outcome)))
        await self.points.hit("J14")

    async def _store(self, lease: Lease, n: int, outcome: ToolResult, slots: Sequence[NewSlot]) -> TurnView | None:
        """Store what came of a call. It cannot be run again, so a store that fails is asked until it can write."""
        while True:
            try:
                return await _to_its_end(partial(self.journal.finish_step, lease, n, outcome, slots))
            except StoreError as error:
                self._log.error("result not stored", turn=lease.turn, n=n, error=str(error))
                await asyncio.sleep(STORE_AGAIN_S)


@dataclass(slots=True, kw_only=True)
class _Running:
    """The calls that run now."""

    calls: dict[int, Prepared] = field(default_factory=dict[int, Prepared])
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when one ends, and when something happened to the turn."""
    with_result: set[int] = field(default_factory=set[int])
    """Calls that ran and have their results."""
    all_there_is: bool = False
    """Whether no other call is without a result: then there is nothing to decide before the last of them ends."""
    known: TurnView | None = None
    """How the turn stands, where it need not be read."""

    def stored(self, n: int, view: TurnView | None) -> None:
        """The result of one is stored; the last one's comes with how the turn stands then."""
        self.with_result.add(n)
        self.known = view or self.known

    def ended(self, n: int) -> None:
        """One is over."""
        del self.calls[n]
        self.all_there_is = self.all_there_is and n in self.with_result
        self.changed.set()

    async def until_more(self, say: _Saying) -> None:
        """Wait until there may be something to decide; say what runs meanwhile."""
        say.running(self.calls)
        await self.changed.wait()
        while self.calls and self.all_there_is:
            self.changed.clear()
            say.running(self.calls)
            await self.changed.wait()


@dataclass(slots=True, kw_only=True)
class _Look:
    """What one look at a turn found out, each thing once and only when it was needed."""

    view: TurnView
    runnable: list[Runnable] = field(default_factory=list[Runnable])
    asked: list[Asked] = field(default_factory=list[Asked])
    place: Audience | None = None
    allowed: Scopes | None = None
    same: SameCalls = field(default_factory=SameCalls)
    waits: Mapping[int, Wait] = field(init=False)
    """The last one of a step: what was asked anew, or the sub-session that an approval let begin."""

    def __post_init__(self) -> None:
        """Sort the waits by their steps."""
        self.waits = {wait.n: wait for wait in self.view.waits if wait.kind is not WaitKind.TIMER}


class _InOrder:
    """For one look at a turn: which tools that keep something have a call that comes first. `""` names no such tool."""

    def __init__(self) -> None:
        """Nothing comes first yet."""
        self._run: set[str] = set()
        self._wait: set[str] = set()

    def waits_for_end(self, kept: str, *, runs: bool) -> bool:
        """Whether a call is not looked at now: it runs, or one before it does or is about to."""
        if runs and kept:
            self._run.add(kept)
        return runs or kept in self._run

    def is_behind_a_wait(self, kept: str) -> bool:
        """Whether a call before it waits for somebody."""
        return kept in self._wait

    def found(self, kept: str, found: Found | None) -> None:
        """Remember what became of a call."""
        if kept and not isinstance(found, ToolResult):
            (self._run if isinstance(found, Runnable) else self._wait).add(kept)


def _fits(risk: Risk, running: Mapping[int, Prepared]) -> bool:
    """Whether a call of this risk may start beside those that run."""
    alike = [other for other in running.values() if (other.tool.spec.risk in READS) == (risk in READS)]
    return len(alike) < (SIDE_BY_SIDE if risk in READS else 1)


async def _to_its_end(write: Callable[[], Awaitable[T]]) -> T:
    """Await a write of what became of a call. A cancellation goes on when it has ended: whoever ends the turn next must
    find it written. A write that never began does not say that it ended, and is waited for as one that hangs.
    """
    ended = asyncio.Event()

    async def written() -> T:
        try:
            return await write()
        finally:
            ended.set()

    try:
        return await asyncio.shield(written())
    except asyncio.CancelledError:
        with suppress(TimeoutError):
            async with asyncio.timeout(WRITTEN_WITHIN_S):
                await ended.wait()
        raise


async def _relay(events: AsyncIterator[LiveEvent], changed: asyncio.Event) -> None:
    async for _ in events:
        changed.set()


# --- what is done now, in a line ------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Saying:
    """Tells what is done now, when that is something else than before."""

    doing: Tell
    clean: Callable[[str], str]
    """Takes secrets out."""
    _said: Activity = field(default_factory=Activity)

    def running(self, calls: Mapping[int, Prepared]) -> None:
        """Tell of the calls that run; of the first one what it does."""
        if not calls:
            return
        first = next(iter(calls.values()))
        beside = f" (and {len(calls) - 1} more)" if len(calls) > 1 else ""
        self._say(Activity(text=f"{one_line(self.clean(_of_call(first)), DOING_CHARS)}{beside}"))

    def waiting(self, view: TurnView) -> None:
        """Tell what the turn waits for, nothing being left to run."""
        self._say(waits_for(view))

    def _say(self, now: Activity) -> None:
        if now != self._said:
            self._said = now
            self.doing(now)


def waits_for(view: TurnView) -> Activity:
    """Say what a turn waits for, in words of decisions first, since somebody can do something about those."""
    open_ones = [wait.kind for wait in view.waits if wait.state is WaitState.OPEN and wait.kind is not WaitKind.TIMER]
    asked, children = open_ones.count(WaitKind.APPROVAL), open_ones.count(WaitKind.CHILD)
    text = ""
    if asked:
        text = "waits for a decision" if asked == 1 else f"waits for {asked} decisions"
    elif children:
        text = "waits for a sub-session" if children == 1 else f"waits for {children} sub-sessions"
    return Activity(text=text, waits=frozenset(open_ones))


def _of_call(call: Prepared) -> str:
    shown = call.action.arguments.get(call.tool.spec.shows or "")
    return f"{call.action.tool}: {shown}" if isinstance(shown, str) and shown.strip() else call.action.tool
