"""Scheduler of the calls of an answer: decide each, ask or run, store the result. Used by `agent`; only entry to tools.

All calls are decided before any runs. Refused ones get their results at once, asked ones share a card. Reading calls
run in parallel, the rest one at a time, each as soon as it is allowed. Only the calls of a stateful tool run in order.
Each is decided when the one before it has its result, and is not run when that one waits. A wait (for a decision, a
sub-session) is a row: when nothing else is left to do, the turn can park.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from gateway import approvals as asking
from gateway.approvals import Approvals, Audience
from gateway.domain.audit import StartRecord
from gateway.domain.events import Activity, LiveEvent, turn_topic
from gateway.domain.grants import GRANT_LASTS
from gateway.domain.hooks import HookEvent
from gateway.domain.ids import WaitId, mint
from gateway.domain.sessions import SessionKind
from gateway.domain.slots import NewSlot
from gateway.domain.steps import Step, StepState
from gateway.domain.tools import Park, Risk, ToolResult
from gateway.domain.turns import Lease, TurnLimits
from gateway.domain.views import TurnView
from gateway.domain.waits import ESCALATE_AFTER, NewWait, StartOutcome, Wait, WaitKind, WaitState, escalation
from gateway.errors import StoreError
from gateway.policy.open_approvals import EXAMINED, room_to_ask, too_many_open
from gateway.ports import Clock, EventBus, FileChanges, Queries, TurnJournal
from gateway.sandbox import Containment
from gateway.system.cancellation import Cancellation
from gateway.system.clock import is_set
from gateway.system.failpoints import FailPoints
from gateway.system.logging_setup import log
from gateway.system.metrics import Metrics
from gateway.system.redaction import Redactor
from gateway.toolcalls.call_order import CallOrder
from gateway.toolcalls.decide import (
    Asked,
    CallDecider,
    Found,
    Runnable,
    SameCalls,
)
from gateway.toolcalls.execution import Execution, cut_short
from gateway.toolcalls.grants import Granted
from gateway.toolcalls.hooks import Hooks
from gateway.toolcalls.output import bounded
from gateway.toolcalls.permits import Permit
from gateway.toolcalls.posts import post_slots
from gateway.toolcalls.prepared import Prepared
from gateway.toolcalls.result_files import file_slots
from gateway.toolcalls.tool_set import ToolSet
from gateway.toolcalls.wait_results import after_a_wait, not_approved
from gateway.toolcalls.workspaces import Workspaces

SIDE_BY_SIDE = 4
"""Reading calls that run in parallel."""
READS = frozenset({Risk.NONE, Risk.READ})
"""Risks of reading calls."""
STORE_AGAIN_S = 1.0
"""Backoff in seconds after a failure of the store."""
WRITTEN_WITHIN_S = 1.0
"""Timeout in seconds for the write of a call's outcome when its turn is cancelled: a hanging store must not block a
stop."""

T = TypeVar("T")
OnActivity = Callable[[Activity], None]
"""Handler of activity, changed or not. Must not raise."""


@dataclass(slots=True, kw_only=True)
class ToolCalls:
    """Scheduler that brings the calls of a turn's last answer to their results."""

    journal: TurnJournal
    queries: Queries
    events: EventBus
    approvals: Approvals
    execution: Execution
    workspaces: Workspaces
    containment: Containment
    changes: Callable[[TurnView, int, Path], FileChanges]
    """Return the changes of workspace files by one call."""
    redactor: Redactor
    clock: Clock
    metrics: Metrics
    points: FailPoints
    expiry: Mapping[SessionKind, timedelta]
    limits: TurnLimits = field(default_factory=TurnLimits)
    escalate_after: float = ESCALATE_AFTER
    """Part of the expiry after which open approvals are shown to further approvers; 0: never."""
    hooks: Hooks = field(default_factory=Hooks)
    grant_lasts: timedelta = GRANT_LASTS
    """Lifetime of the grant that an approval of a scope becomes."""
    node: Callable[[], str] = lambda: ""
    """Return the name of this node while there are others; else empty."""
    _counting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held from the count of open approvals until more are opened."""
    _log: Any = field(default_factory=lambda: log("scheduler"))

    def _decider(self, tools: ToolSet) -> CallDecider:
        return CallDecider(
            tools=tools,
            workspaces=self.workspaces,
            containment=self.containment,
            limits=self.limits,
            metrics=self.metrics,
            redactor=self.redactor,
            changes=self.changes,
            node=self.node(),
            hooked=partial(self.hooks.any_for, HookEvent.BEFORE),
        )

    async def settle(
        self, view: TurnView, tools: ToolSet, lease: Lease, cancellation: Cancellation, on_activity: OnActivity
    ) -> TurnView | None:
        """Decide and run the calls of the turn as far as possible now; report activity to `on_activity`.

        `tools`: those of the turn.
        Return the turn's new view when every call has its result, None when only waits are left.
        """
        topic = turn_topic(lease.turn)
        async with self.events.subscribe(topic) as woken, asyncio.TaskGroup() as group:
            now, decider = _Running(on_activity=on_activity), self._decider(tools)
            running, changed = now.calls, now.changed
            watcher = group.create_task(_relay(woken, changed), name=f"wakes of {lease.turn}")
            # A decision may have come before the subscription; a turn without waits cannot get one.
            now.known = None if view.waits else view
            while True:
                changed.clear()
                busy = frozenset(running)  # before the read: the view may be older than a call's end meanwhile
                try:
                    view, now.known = now.known or await self.queries.turn(lease.turn), None
                    unfinished = [step for step in view.steps if step.state is not StepState.FINISHED]
                    runnable = await self._decide(_Look(view=view, decider=decider), unfinished, lease, busy)
                except StoreError as error:
                    if not running:
                        raise
                    await self._back_off(lease, error)  # running calls go on
                    continue
                for one in runnable:
                    if _fits(one.call.tool.spec.risk, running):
                        running[one.call.step.n] = one.call
                        work = self._run(one, lease, cancellation, now)
                        group.create_task(work, name=f"call {lease.turn}/{one.call.step.n}")
                if not running and not changed.is_set():
                    break
                now.all_there_is = all(step.n in running for step in unfinished)
                await now.until_more()
            watcher.cancel()
        if unfinished:
            view = await self.queries.turn(lease.turn)
        settled = all(step.state is StepState.FINISHED for step in view.steps)
        on_activity(waits_for(view))
        return view if settled else None

    # --- decide -------------------------------------------------------------------------------

    async def _decide(
        self, look: _Look, unfinished: Sequence[Step], lease: Lease, running: Collection[int]
    ) -> list[Runnable]:
        """Decide every call without a result; refuse and ask now, return those that may run."""
        order = CallOrder()
        for step in await self._after_hooks(look, unfinished, lease):
            await asyncio.sleep(0)  # a model may make 50 calls of 64 KiB in one answer: 13 ms for each
            tool = look.decider.ordered_tool(step)
            if order.waits_for_end(tool, runs=step.n in running):
                continue
            behind = step.state is StepState.PLANNED and order.is_behind_a_wait(tool)
            found = after_a_wait(tool) if behind else await self._look_at(look, step, tool)
            order.found(tool, found)
            if isinstance(found, ToolResult):
                # A sub-session's answer is not redacted yet.
                clean = replace(found, text=self.redactor.text(found.text)) if found.text else found
                await self.journal.finish_step(lease, step.n, bounded(clean))
        if look.asked:
            await self._open_approvals(look, lease)
        return look.runnable

    async def _after_hooks(self, look: _Look, steps: Sequence[Step], lease: Lease) -> Sequence[Step]:
        """Return the steps with the outcome of the hooks before them, which run now where they have not run yet."""
        hooks, calls = self.hooks, dict[int, Prepared]()
        for step in steps:
            if step.state is StepState.PLANNED and step.call is not None and step.hook_outcome is None:
                seen = look.decider.is_hooked(step)
                if seen and (call := look.decider.for_hooks(look.view, step)) is not None:
                    calls[step.n] = call
        if not calls:
            return steps
        outcomes = await hooks.before_all(calls)
        for n, outcome in outcomes.items():
            await self.journal.store_hook_outcome(lease, n, outcome)
        whole = [replace(step, hook_outcome=outcomes.get(step.n, step.hook_outcome)) for step in look.view.steps]
        look.view = replace(look.view, steps=tuple(whole))
        unfinished = {step.n for step in steps}
        return [step for step in whole if step.n in unfinished]

    async def _look_at(self, look: _Look, step: Step, tool: str) -> Found | None:
        """Decide one call; None: it still waits. `tool`: its name when calls run in order, else empty."""
        view, wait = look.view, look.waits.get(step.n)
        if (tool or step.state is StepState.STARTED) and (wait is None or wait.state is not WaitState.OPEN):
            await self._read_grants(look)
        if step.state is StepState.PLANNED:
            previewed = await look.decider.preview(view, step)
            first = partial(look.decider.first, view, step, look.same, previewed=previewed)
            found = first(look.granted or (), askable=True)
            if isinstance(found, Asked) and look.granted is None and await self._read_grants(look):
                found = first(look.granted or (), askable=True)
            if isinstance(found, Asked):
                name = found.request.action.tool
                if name not in look.audiences:
                    look.audiences[name] = await self.approvals.audience(
                        view.session, view.turn, name, self.clock.now()
                    )
                if not look.audiences[name].anybody:
                    found = first(look.granted or (), askable=False)
        else:
            approved = wait is not None and wait.state is WaitState.APPROVED
            previewed = await look.decider.preview(view, step) if approved else None
            checked = await look.decider.check(view, step) if step.state is StepState.STARTED else None
            found = look.decider.later(view, step, wait, look.granted or (), previewed, checked)
        if isinstance(found, Asked):
            look.asked.append(found)
        elif isinstance(found, Runnable):
            look.runnable.append(found)
        return found

    async def _read_grants(self, look: _Look) -> Granted:
        """Read the grants that hold for the turn, once in a pass and only when one may matter."""
        if look.granted is None:
            look.granted = await self.journal.grants_for(look.view.turn.id)
        return look.granted

    async def _open_approvals(self, look: _Look, lease: Lease) -> None:
        """Open approvals for the calls as far as the requester's limits allow, and refuse the others."""
        view, asked, most = look.view, look.asked, self.limits.open_approvals
        refusal = too_many_open(most, "this session")
        if view.session.root_kind is SessionKind.MAIN:
            opened = await self._open(look, lease, asked, None)
        else:
            async with self._counting:
                waiting = await self.queries.open_approvals(EXAMINED)
                room, refusal = room_to_ask(waiting, view.session.id, view.turn.principal, most)
                opened = await self._open(look, lease, asked[:room], most)
        if opened is None:
            return  # the turn is being stopped
        for one in asked[opened:]:
            await self.journal.finish_step(lease, one.step.n, look.decider.refuse(refusal))
        if not opened:
            return
        self.metrics.decisions.labels("ask", "").inc(opened)
        await self.points.hit("J8")
        await self.points.hit("WAITS")

    async def _open(self, look: _Look, lease: Lease, asked: Sequence[Asked], most: int | None) -> int | None:
        """Store the approvals with their cards and note; return as `TurnJournal.open_waits`.

        Calls of which the same people decide share a card.
        """
        view = look.view
        waits = [
            NewWait(
                id=WaitId(mint("w")),
                kind=WaitKind.APPROVAL,
                n=one.step.n,
                approval=one.request,
                payload=asking.payload(view.session),
                expires_in=self.expiry[view.session.root_kind],
            )
            for one in asked
        ]
        shared: dict[Audience, list[tuple[WaitId, str]]] = {}
        for wait, one in zip(waits, asked, strict=True):
            row = (wait.id, asking.title(one.request))
            shared.setdefault(look.audiences[one.request.action.tool], []).append(row)
        slots: list[NewSlot] = []
        for place, rows in shared.items():
            ids, titles = [wait for wait, _ in rows], [title for _, title in rows]
            slots += asking.card_slots(ids, titles, place, view.session, view.turn)
        timers = [] if not self.escalate_after else self._escalations(shared, view.session.root_kind)
        return await self.journal.open_waits(lease, [*waits, *timers], slots, most=most)

    def _escalations(self, shared: Mapping[Audience, Sequence[tuple[WaitId, str]]], kind: SessionKind) -> list[NewWait]:
        """Return the timers that show the approvals to further approvers, where there are any."""
        after = self.expiry[kind] * self.escalate_after
        return [escalation([wait for wait, _ in rows], a.later, after) for a, rows in shared.items() if a.later]

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
        """Store the start of a call; None when the store failed.

        Then, and when a grant no longer holds, nothing was started and the call is decided again.
        """
        started: list[StartOutcome] = []
        action = one.call.action
        record = StartRecord(
            tool=action.tool,
            action_sha=one.call.action_sha,
            sandbox=action.sandbox,
            grant=one.grant,
            rule=one.rule,
            grant_lasts=self.grant_lasts,
        )

        async def start() -> None:
            started.append(await self.journal.start_step(lease, one.call.step.n, one.wait, record))

        try:
            await _finish_write(start)
        except StoreError as error:
            await self._back_off(lease, error)
            return None
        except asyncio.CancelledError:
            # Nothing was run. Without a result the outcome would be unknown.
            if StartOutcome.STARTED in started and (result := cut_short(cancellation)) is not None:
                await self.journal.finish_step(lease, one.call.step.n, result)
            raise
        return started[0]

    async def _back_off(self, lease: Lease, error: StoreError) -> None:
        self._log.error("the store failed beside a call", turn=lease.turn, error=str(error))
        await asyncio.sleep(STORE_AGAIN_S)

    async def _execute(self, call: Prepared, lease: Lease, cancellation: Cancellation, now: _Running) -> None:
        n = call.step.n
        permit = Permit(lease, n, call.action_sha)

        async def store_partial(result: ToolResult) -> None:
            await _finish_write(partial(self.journal.finish_step, lease, n, result))

        await self.points.hit("J12")
        outcome = await self.execution.run(permit, call, cancellation, store_partial, partial(now.printed, n))
        await self.points.hit("J13")
        if isinstance(outcome, Park):  # the store has opened its wait already
            return
        slots = [*file_slots(call.view, n, outcome), *post_slots(call.view, n, outcome)]
        now.stored(n, await self._store(lease, n, outcome, slots))
        await self.points.hit("J14")

    async def _store(self, lease: Lease, n: int, outcome: ToolResult, slots: Sequence[NewSlot]) -> TurnView | None:
        """Store the result of a call. Retry until the store can write: the call cannot be run again."""
        while True:
            try:
                return await _finish_write(partial(self.journal.finish_step, lease, n, outcome, slots))
            except StoreError as error:
                self._log.error("result not stored", turn=lease.turn, n=n, error=str(error))
                await asyncio.sleep(STORE_AGAIN_S)


@dataclass(slots=True, kw_only=True)
class _Running:
    """Calls that run now."""

    on_activity: OnActivity
    calls: dict[int, Prepared] = field(default_factory=dict[int, Prepared])
    lines: dict[int, str] = field(default_factory=dict[int, str])
    """Last line that each of them printed."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a call ends, and on each event of the turn."""
    with_result: set[int] = field(default_factory=set[int])
    """Finished calls with stored results."""
    all_there_is: bool = False
    """True when every other call has its result: then nothing can be decided before the last one ends."""
    known: TurnView | None = None
    """Current view of the turn, where it need not be read again."""

    def stored(self, n: int, view: TurnView | None) -> None:
        """Record a stored result; the last one comes with the turn's new view."""
        self.with_result.add(n)
        self.known = view or self.known

    def ended(self, n: int) -> None:
        """Remove an ended call and wake the scheduler."""
        del self.calls[n]
        self.lines.pop(n, None)
        self.all_there_is = self.all_there_is and n in self.with_result
        self.changed.set()

    def printed(self, n: int, line: str) -> None:
        """Take a running call's last line. The line of the first call is a part of the activity."""
        self.lines[n] = line
        if n == next(iter(self.calls), None):
            self.report()

    def report(self) -> None:
        """Report the running calls."""
        tail = self.lines.get(next(iter(self.calls)), "")
        self.on_activity(Activity(calls=tuple(_of_call(call) for call in self.calls.values()), tail=tail))

    async def until_more(self) -> None:
        """Wait until there may be something to decide; report running calls meanwhile."""
        while True:
            if self.calls:
                self.report()
            await self.changed.wait()
            if not self.calls or not self.all_there_is:
                return
            self.changed.clear()


@dataclass(slots=True, kw_only=True)
class _Look:
    """Findings of one pass over a turn, each determined once and only when needed."""

    view: TurnView
    decider: CallDecider
    runnable: list[Runnable] = field(default_factory=list[Runnable])
    asked: list[Asked] = field(default_factory=list[Asked])
    audiences: dict[str, Audience] = field(default_factory=dict[str, Audience])
    """Audience of an approval, by tool."""
    granted: Granted | None = None
    same: SameCalls = field(default_factory=SameCalls)
    waits: Mapping[int, Wait] = field(init=False)
    """Last wait of each step, which has several when it was asked again or its approval started a sub-session."""

    def __post_init__(self) -> None:
        """Index the waits by step."""
        self.waits = {wait.n: wait for wait in self.view.waits if wait.kind is not WaitKind.TIMER}


def _fits(risk: Risk, running: Mapping[int, Prepared]) -> bool:
    """Return True when a call of this risk may start beside the running ones."""
    alike = [other for other in running.values() if (other.tool.spec.risk in READS) == (risk in READS)]
    return len(alike) < (SIDE_BY_SIDE if risk in READS else 1)


async def _finish_write(write: Callable[[], Awaitable[T]]) -> T:
    """Await the write of a call's outcome, shielded: a cancellation goes on when the write has ended.

    The next step of ending the turn must find it written. A write that is cancelled before it begins
    never sets the event, so it waits as long as one that hangs.
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
        await is_set(ended, WRITTEN_WITHIN_S)
        raise


async def _relay(events: AsyncIterator[LiveEvent], changed: asyncio.Event) -> None:
    async for _ in events:
        changed.set()


# --- activity, in a line --------------------------------------------------------------------------


def waits_for(view: TurnView) -> Activity:
    """Return a turn's waits as its activity."""
    open_ones = (wait.kind for wait in view.waits if wait.state is WaitState.OPEN and wait.kind is not WaitKind.TIMER)
    return Activity(waits=tuple(open_ones))


def _of_call(call: Prepared) -> str:
    shown = call.action.arguments.get(call.tool.spec.shows or "")
    return f"{call.action.tool}: {shown}" if isinstance(shown, str) and shown.strip() else call.action.tool
