"""The calls of an answer: resolve, decide (pure), ask or run, store the result. No tool runs but from here.

All calls are decided before any runs. Refused ones get their results at once, asked ones share a card; what reads
runs side by side, the rest one at a time, each as soon as it is allowed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ValidationError

from gateway import approvals as asking
from gateway.approvals import Approvals, Audience
from gateway.errors import DragomanError, SandboxMissing, StoreError
from gateway.execution import Cut, Execution, Permit, Prepared
from gateway.failpoints import FailPoints
from gateway.model.ids import WaitId, mint
from gateway.model.live import LiveEvent, turn_topic
from gateway.model.sessions import Lease, Session, SessionKind
from gateway.model.tools import (
    Action,
    Allow,
    Ask,
    Decision,
    Deny,
    DenyReason,
    Effect,
    Park,
    ResultStatus,
    Risk,
    Step,
    StepKind,
    StepState,
    ToolResult,
)
from gateway.model.views import TurnView
from gateway.model.waits import ApprovalRequest, NewWait, Start, Wait, WaitKind, WaitState
from gateway.observe import Meters, log
from gateway.permission import decide
from gateway.ports import Clock, Live, Steps, Views
from gateway.registry import Registry, check_arguments
from gateway.sandbox import choose

SIDE_BY_SIDE = 4
READS = frozenset({Risk.NONE, Risk.READ})
CALLS_A_TURN = 50
STORE_AGAIN_S = 1.0

_NOT_RUN: Mapping[WaitState, tuple[ResultStatus, str, str]] = MappingProxyType(
    {
        WaitState.DENIED: (ResultStatus.DENIED, "denied", "Nothing was run."),
        WaitState.EXPIRED: (ResultStatus.EXPIRED, "expired", "Nobody decided in time; nothing was run."),
        WaitState.CANCELLED: (ResultStatus.CANCELLED, "withdrawn", "It was withdrawn; nothing was run."),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A call that needs a decision, with what the card will say."""

    step: Step
    request: ApprovalRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runnable:
    """A call that may start now."""

    call: Prepared
    wait: WaitId | None


@dataclass(slots=True, kw_only=True)
class ToolCalls:
    """Brings the calls of a turn's last answer to their results."""

    registry: Registry
    steps: Steps
    views: Views
    live: Live
    approvals: Approvals
    execution: Execution
    clock: Clock
    meters: Meters
    points: FailPoints
    expiry: Mapping[SessionKind, timedelta]
    _log: Any = field(default_factory=lambda: log("toolcalls"))

    async def settle(self, view: TurnView, lease: Lease, cut: Cut) -> TurnView | None:
        """Do all that can be done now for the turn, which stands as in `view`.

        Return how it stands when every call has its result, None when decisions are missing.
        """
        topic = turn_topic(lease.turn)
        async with self.live.subscribe(topic) as woken, asyncio.TaskGroup() as group:
            changed = asyncio.Event()
            watcher = group.create_task(_relay(woken, changed), name=f"wakes of {lease.turn}")
            running: dict[int, Risk] = {}
            # A decision may have come before anybody listened here; of a turn without waits none can.
            known = not view.waits
            while True:
                changed.clear()
                try:
                    view = view if known else await self.views.turn(lease.turn)
                    known = False
                    unfinished = [step for step in view.steps if step.state is not StepState.FINISHED]
                    runnable = await self._decide(view, unfinished, lease, running)
                except StoreError as error:
                    if not running:
                        raise
                    await self._a_moment(lease, error)  # what runs is not ended for that
                    continue
                for one in runnable:
                    if _fits(one.call.tool.spec.risk, running):
                        running[one.call.step.n] = one.call.tool.spec.risk
                        work = self._run(one, lease, cut, running, changed)
                        group.create_task(work, name=f"call {lease.turn}/{one.call.step.n}")
                if not running and not changed.is_set():
                    break
                await changed.wait()
            watcher.cancel()
        if unfinished:
            view = await self.views.turn(lease.turn)
        return view if all(step.state is StepState.FINISHED for step in view.steps) else None

    # --- decide -------------------------------------------------------------------------------

    async def _decide(
        self, view: TurnView, unfinished: list[Step], lease: Lease, running: Mapping[int, Risk]
    ) -> list[_Runnable]:
        """Decide every call that has no result yet; refuse and ask now, return what may run."""
        runnable: list[_Runnable] = []
        asked: list[_Asked] = []
        place: Audience | None = None
        waits = {wait.n: wait for wait in view.waits if wait.kind is not WaitKind.TIMER}
        for step in unfinished:
            if step.n in running:
                continue
            if step.state is StepState.PLANNED:
                found = self._first_decision(view, step, askable=True)
                if isinstance(found, _Asked):
                    place = place or await self.approvals.audience(view.session, view.turn, self.clock.now())
                    found = found if place.anybody else self._first_decision(view, step, askable=False)
            else:
                found = self._later_decision(view, step, waits.get(step.n))
            if isinstance(found, ToolResult):
                await self.steps.finish_step(lease, step.n, found)
            elif isinstance(found, _Asked):
                asked.append(found)
            elif found is not None:
                runnable.append(found)
        if asked and place is not None:
            await self._ask(view, lease, asked, place)
        return runnable

    def _first_decision(self, view: TurnView, step: Step, *, askable: bool) -> _Runnable | _Asked | ToolResult:
        """Decide a call for which nothing was done yet; `askable`: whether somebody can be asked."""
        try:
            prepared = self._prepare(view, step)
            if isinstance(prepared, Deny):
                return self._refuse(prepared)
            decision = decide(prepared.tool.spec, prepared.tool.policy, view.session, askable=askable)
            return self._consequence(view, prepared, decision)
        except Exception:  # a decision that fails is a refusal (I02); house rule 9: it becomes a result
            self._log.exception("decision failed", turn=step.turn, n=step.n)
            return self._refuse(Deny(reason=DenyReason.POLICY_ERROR, hint="The decision failed, so the answer is no."))

    def _consequence(self, view: TurnView, call: Prepared, decision: Decision) -> _Runnable | _Asked | ToolResult:
        match decision:
            case Allow():
                self.meters.decisions.labels("allow", "").inc()
                return _Runnable(call=call, wait=None)
            case Deny():
                return self._refuse(decision)
            case Ask():
                request = self._request(view, call)
                return request if isinstance(request, _Asked) else self._refuse(request)

    def _later_decision(self, view: TurnView, step: Step, wait: Wait | None) -> _Runnable | ToolResult | None:
        """Decide a call that was asked about or started before."""
        if wait is not None and wait.state is WaitState.OPEN:
            return None
        if wait is not None and wait.state in _NOT_RUN:
            status, code, hint = _NOT_RUN[wait.state]
            if wait.state is WaitState.EXPIRED and wait.decided_at is not None:
                hint = "It was allowed, but could not start within 5 minutes of that; nothing was run."
            reason = f"The person who denied it says: {wait.reason} " if wait.reason else ""
            return ToolResult(status=status, text="", code=code, hint=f"{reason}{hint}")
        if step.state is StepState.STARTED:
            return self._cut_in_half(view, step, wait)
        if wait is None or wait.approval is None:
            return None
        return self._approved(view, step, wait, wait.approval)

    def _approved(self, view: TurnView, step: Step, wait: Wait, request: ApprovalRequest) -> _Runnable | ToolResult:
        """Take the action from the approval, not from the transcript; re-check that the tool still exists here."""
        key = asking.action_key(request.action)
        if asking.action_sha(key, view.session.id, step.turn, step.n, request.requester) != request.action_sha:
            return _not_approved()
        tool = self.registry.resolve(request.action.tool, view.session)
        if isinstance(tool, Deny):
            return self._refuse(tool)
        try:
            arguments = tool.arguments.model_validate(dict(request.action.arguments))
        except ValidationError:
            return self._refuse(
                Deny(reason=DenyReason.INVALID_ARGUMENTS, hint="The tool changed after it was asked; ask again.")
            )
        call = Prepared(step=step, tool=tool, arguments=arguments, action=request.action, action_sha=request.action_sha)
        return _Runnable(call=call, wait=wait.id)

    def _cut_in_half(self, view: TurnView, step: Step, wait: Wait | None) -> _Runnable | ToolResult:
        """A call that an earlier holder started and never finished."""
        call = self._as_allowed(view, step, wait)
        if call is not None and call.tool.spec.effect in (Effect.PURE, Effect.IDEMPOTENT):
            return _Runnable(call=call, wait=None)
        began = f"{step.started_at:%H:%M:%S} UTC" if step.started_at else "an unknown time"
        return ToolResult(
            status=ResultStatus.UNKNOWN,
            text="",
            code="unknown",
            hint=f"Outcome unknown: the process ended after the start at {began}. Do not assume success or failure; "
            "it is not run again unless it is asked for and allowed anew.",
        )

    def _as_allowed(self, view: TurnView, step: Step, wait: Wait | None) -> Prepared | None:
        """The action that was allowed before; None when it would not be allowed now: settings change over a restart."""
        if wait is not None and wait.approval is not None:
            found = self._approved(view, step, wait, wait.approval)
            return found.call if isinstance(found, _Runnable) else None
        call = self._prepare(view, step)
        if isinstance(call, Deny):
            return None
        decision = decide(call.tool.spec, call.tool.policy, view.session, askable=True)
        return call if isinstance(decision, Allow) else None

    def _refuse(self, deny: Deny) -> ToolResult:
        self.meters.decisions.labels("deny", deny.reason.value).inc()
        bad = deny.reason in (DenyReason.INVALID_ARGUMENTS, DenyReason.UNKNOWN_TOOL)
        status = ResultStatus.ERROR if bad else ResultStatus.DENIED
        return ToolResult(status=status, text="", code=deny.reason.value, hint=deny.hint)

    def _prepare(self, view: TurnView, step: Step) -> Prepared | Deny:
        """Resolve the tool, check the arguments and fix what exactly would run."""
        if step.call is None:
            raise DragomanError(f"Step {step.turn}/{step.n} is not a call.")
        if sum(1 for other in view.steps if other.kind is StepKind.TOOL and other.n <= step.n) > CALLS_A_TURN:
            return Deny(reason=DenyReason.CONFIGURED, hint=f"A turn may make {CALLS_A_TURN} calls; this one is beyond.")
        tool = self.registry.resolve(step.call.tool, view.session)
        if isinstance(tool, Deny):
            return tool
        arguments = check_arguments(tool, step.call.arguments)
        if isinstance(arguments, Deny):
            return arguments
        try:
            sandbox = self._sandbox(tool.policy.sandbox, view.session)
            cwd = str(self.execution.workspaces.workspace(view.session.id))
        except SandboxMissing as error:
            return Deny(reason=DenyReason.SANDBOX_MISSING, hint=str(error))
        except DragomanError as error:
            return Deny(reason=DenyReason.POLICY_ERROR, hint=str(error))
        action = Action(tool=tool.spec.name, arguments=_json_safe(arguments), cwd=cwd, sandbox=sandbox)
        sha = asking.action_sha(asking.action_key(action), view.session.id, step.turn, step.n, view.turn.principal)
        return Prepared(step=step, tool=tool, arguments=arguments, action=action, action_sha=sha)

    def _sandbox(self, wanted: Any, session: Session) -> str:
        if wanted is None:
            return ""
        return choose(wanted, session.root_kind is SessionKind.MAIN, self.execution.containment)

    # --- ask ----------------------------------------------------------------------------------

    def _request(self, view: TurnView, call: Prepared) -> _Asked | Deny:
        shown = asking.render_action(call.action, call.tool.spec.shows)
        if len(shown.encode()) > asking.SHOWN_AT_MOST:
            return Deny(
                reason=DenyReason.TOO_LONG_TO_SHOW,
                hint="It is longer than 64 KiB as shown, so nobody could read it before allowing it. Make it shorter.",
            )
        on_host = call.action.sandbox == "off"
        request = ApprovalRequest(
            action=call.action,
            risk=call.tool.spec.risk,
            action_key=asking.action_key(call.action),
            action_sha=call.action_sha,
            requester=view.turn.principal,
            rendered=shown,
            escaped=asking.needs_escape(call.action),
            note="No sandbox: this runs on the host with the daemon's rights." if on_host else "",
        )
        return _Asked(step=call.step, request=request)

    async def _ask(self, view: TurnView, lease: Lease, asked: list[_Asked], place: Audience) -> None:
        until = self.clock.now() + self.expiry[view.session.root_kind]
        waits = [
            NewWait(
                id=WaitId(mint("w")),
                kind=WaitKind.APPROVAL,
                n=one.step.n,
                approval=one.request,
                payload={},
                expires_at=until,
            )
            for one in asked
        ]
        titles = [asking.title(one.request) for one in asked]
        slots = asking.card_slots([wait.id for wait in waits], titles, place, view.session, view.turn)
        await self.steps.open_waits(lease, waits, slots)
        self.meters.decisions.labels("ask", "").inc(len(asked))
        await self.points.hit("J8")
        await self.points.hit("WAITS")

    # --- run ----------------------------------------------------------------------------------

    async def _run(
        self, one: _Runnable, lease: Lease, cut: Cut, running: dict[int, Risk], changed: asyncio.Event
    ) -> None:
        n = one.call.step.n
        try:
            started = await self._start(one, lease)
            if started is Start.STARTED:
                await self.points.hit("J11")
                await self._execute(one.call, lease, cut)
            elif started is Start.NOT_APPROVED:
                await self.steps.finish_step(lease, n, _not_approved())
        finally:
            del running[n]
            changed.set()

    async def _start(self, one: _Runnable, lease: Lease) -> Start | None:
        """Store that a call begins; None when the store failed: nothing was begun, and it is looked at again."""
        try:
            return await self.steps.start_step(lease, one.call.step.n, one.wait, one.call.action_sha)
        except StoreError as error:
            await self._a_moment(lease, error)
            return None

    async def _a_moment(self, lease: Lease, error: StoreError) -> None:
        self._log.error("the store failed beside a call", turn=lease.turn, error=str(error))
        await asyncio.sleep(STORE_AGAIN_S)

    async def _execute(self, call: Prepared, lease: Lease, cut: Cut) -> None:
        n = call.step.n
        permit: Permit = self.execution.office.issue(lease, n, call.action_sha)

        async def store_partial(result: ToolResult) -> None:
            await asyncio.shield(self.steps.finish_step(lease, n, result))

        await self.points.hit("J12")
        outcome = await self.execution.run(permit, call, lease, cut, store_partial)
        await self.points.hit("J13")
        if isinstance(outcome, Park):
            raise DragomanError(f"{call.tool.spec.name} wants to wait, and no wait of that kind exists yet.")
        await self._store(lease, n, outcome)
        await self.points.hit("J14")

    async def _store(self, lease: Lease, n: int, outcome: ToolResult) -> None:
        """Store what came of a call. It cannot be run again, so a store that fails is asked until it can write."""
        while True:
            try:
                await asyncio.shield(self.steps.finish_step(lease, n, outcome))
            except StoreError as error:
                self._log.error("result not stored", turn=lease.turn, n=n, error=str(error))
                await asyncio.sleep(STORE_AGAIN_S)
            else:
                return


def _not_approved() -> ToolResult:
    hint = "Its approval is for another action, or was withdrawn; nothing was run."
    return ToolResult(status=ResultStatus.DENIED, text="", code="not_approved", hint=hint)


def _fits(risk: Risk, running: Mapping[int, Risk]) -> bool:
    """Whether a call of this risk may start beside those that run."""
    alike = [other for other in running.values() if (other in READS) == (risk in READS)]
    return len(alike) < (SIDE_BY_SIDE if risk in READS else 1)


async def _relay(events: AsyncIterator[LiveEvent], changed: asyncio.Event) -> None:
    async for _ in events:
        changed.set()


def _json_safe(arguments: BaseModel) -> Mapping[str, Any]:
    return arguments.model_dump(mode="json", by_alias=False)
