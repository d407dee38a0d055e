"""What becomes of a call, before any runs: may it start, must somebody be asked, or is this its result?

Reads the turn as it is stored and writes nothing; `toolcalls` acts on what is found here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError

from gateway import approvals as asking
from gateway.domain.decisions import Allow, Ask, Decision, Deny, DenyReason
from gateway.domain.ids import WaitId
from gateway.domain.sessions import Session, SessionKind, works_in
from gateway.domain.steps import Step, StepKind, StepState
from gateway.domain.text import head_and_tail_bytes
from gateway.domain.tools import (
    ACTION_BYTES,
    EVERY_SCOPE,
    Action,
    ApprovalMode,
    CallScope,
    Effect,
    ResultStatus,
    SandboxMode,
    SandboxPolicy,
    ToolResult,
    outcome_unknown,
)
from gateway.domain.turns import TurnLimits, TurnState
from gateway.domain.views import TurnView
from gateway.domain.waits import ApprovalRequest, ChildEnd, Wait, WaitKind, WaitState
from gateway.errors import DragomanError, SandboxMissing
from gateway.policy.permission import decide, default_approval, refused
from gateway.sandbox import Containment, choose
from gateway.system.logging_setup import log
from gateway.system.metrics import Metrics
from gateway.system.redaction import Redactor
from gateway.toolcalls.execution import Prepared
from gateway.toolcalls.loop_guard import ASK_FROM, checked, repeats, same_call
from gateway.toolcalls.registry import Registry, Tool, check_arguments
from gateway.toolcalls.workspaces import Workspaces

COMPARED_AT_MOST = 65_536
"""Characters of arguments that the loop check reads as JSON; longer ones are compared as they were written."""
CHILD_BYTES = 32_768
"""Of a sub-session's last words, UTF-8, that its parent is given: the head and the tail."""

_NOT_RUN: Mapping[WaitState, tuple[ResultStatus, str, str]] = MappingProxyType(
    {
        WaitState.DENIED: (ResultStatus.DENIED, "denied", "Nothing was run."),
        WaitState.EXPIRED: (ResultStatus.EXPIRED, "expired", "Nobody decided in time; nothing was run."),
        WaitState.CANCELLED: (ResultStatus.CANCELLED, "withdrawn", "It was withdrawn; nothing was run."),
    }
)
_CHILD_CUT: Mapping[WaitState, tuple[ResultStatus, str, str]] = MappingProxyType(
    {
        WaitState.EXPIRED: (ResultStatus.EXPIRED, "expired", "The sub-session did not end in time and was stopped."),
        WaitState.CANCELLED: (ResultStatus.CANCELLED, "withdrawn", "The sub-session was stopped."),
    }
)
_CHILD_ENDED: Mapping[TurnState, tuple[ResultStatus, str, str]] = MappingProxyType(
    {
        TurnState.DONE: (ResultStatus.OK, "", ""),
        TurnState.FAILED: (ResultStatus.ERROR, "child_failed", "The sub-session failed."),
        TurnState.STOPPED: (ResultStatus.CANCELLED, "child_stopped", "The sub-session was stopped."),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call that needs a decision, with what the card will say."""

    step: Step
    request: ApprovalRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Runnable:
    """A call that may start now."""

    call: Prepared
    wait: WaitId | None
    scoped: bool = False
    """As in `Allow.scoped`."""


Found: TypeAlias = Runnable | Asked | ToolResult
Scopes: TypeAlias = Collection[tuple[str, str]]
"""Tool and scope: what people allowed for longer than one call."""


class SameCalls:
    """What makes two calls the same one, worked out once for each step. For one look at a turn."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._keys: dict[int, str] = {}

    def __call__(self, step: Step) -> str:
        """Return the step's key."""
        if step.n not in self._keys:
            self._keys[step.n] = hashlib.sha256(_as_compared(step).encode(errors="surrogatepass")).hexdigest()
        return self._keys[step.n]


def _as_compared(step: Step) -> str:
    if step.call is None or len(step.call.arguments) <= COMPARED_AT_MOST:
        return same_call(step)
    return f"{step.call.tool} {step.call.arguments}"


@dataclass(slots=True, kw_only=True)
class CallDecider:
    """Decides calls by what is registered, configured and stored."""

    registry: Registry
    workspaces: Workspaces
    containment: Containment
    limits: TurnLimits
    metrics: Metrics
    redactor: Redactor
    _log: Any = field(default_factory=lambda: log("deciding"))

    def kept(self, step: Step) -> str:
        """The step's tool, when its calls run in their order, as of one that keeps something; empty otherwise."""
        tool = None if step.call is None else self.registry.get(step.call.tool)
        return tool.spec.name if tool is not None and tool.in_order else ""

    def first(self, view: TurnView, step: Step, same: SameCalls, allowed: Scopes = (), *, askable: bool) -> Found:
        """Decide a call for which nothing was done yet; `askable`: whether somebody can be asked. Never raises."""
        try:
            call = self._prepare(view, step, allowed)
            if isinstance(call, Deny):
                return self.refuse(call)
            repeated = repeats(view, step.n, same)
            match checked(_decided(call, allowed, askable=askable), repeated):
                case Allow() as allow:
                    return Runnable(call=call, wait=None, scoped=allow.scoped)
                case Deny() as deny:
                    return self.refuse(deny)
                case Ask() if not askable:  # the loop check asks where otherwise nobody would be
                    hint = (
                        "The same call was made over and over in this turn, and nobody can be asked whether to go on."
                    )
                    return self.refuse(Deny(reason=DenyReason.LOOP, hint=hint))
                case Ask():
                    return self._request(view, call, repeated)
        except Exception:  # noqa: BLE001 - a decision that fails is a refusal, and so a result (house rules 3, 9)
            self._log.exception("decision failed", turn=step.turn, n=step.n)
            return self.refuse(Deny(reason=DenyReason.POLICY_ERROR, hint="The decision failed, so the answer is no."))

    def later(
        self, view: TurnView, step: Step, wait: Wait | None, allowed: Scopes = ()
    ) -> Runnable | ToolResult | None:
        """Decide a call that was asked about or started before; None: it still waits. `wait` is its last one."""
        if wait is not None and wait.state is WaitState.OPEN:
            return None
        if wait is not None and wait.kind is WaitKind.CHILD:
            return _of_child(wait)
        if wait is not None and wait.state in _NOT_RUN:
            status, code, hint = _NOT_RUN[wait.state]
            if wait.state is WaitState.EXPIRED and wait.decided_at is not None:
                hint = "It was allowed, but could not start within 5 minutes of that; nothing was run."
            reason = f"The person who denied it says: {wait.reason} " if wait.reason else ""
            return ToolResult(status=status, text="", code=code, hint=f"{reason}{hint}")
        if step.state is StepState.STARTED:
            return self._cut_in_half(view, step, wait, allowed)
        if wait is None or wait.approval is None:
            return None
        return self._approved(view, step, wait, wait.approval, allowed)

    def refuse(self, deny: Deny) -> ToolResult:
        """The result of a call that will not run."""
        self.metrics.decisions.labels("deny", deny.reason.value).inc()
        bad = deny.reason in (DenyReason.INVALID_ARGUMENTS, DenyReason.UNKNOWN_TOOL)
        status = ResultStatus.ERROR if bad else ResultStatus.DENIED
        return ToolResult(status=status, text="", code=deny.reason.value, hint=deny.hint)

    # --- what was allowed ---------------------------------------------------------------------

    def _approved(
        self, view: TurnView, step: Step, wait: Wait, request: ApprovalRequest, allowed: Scopes
    ) -> Runnable | ToolResult:
        """Take the action from the approval, not from the transcript; re-check that the tool still exists here."""
        key = asking.action_key(request.action)
        if asking.action_sha(key, view.session.id, step.turn, step.n, request.requester) != request.action_sha:
            return not_approved()
        tool = self.registry.resolve(request.action.tool, view.session)
        if isinstance(tool, Deny):
            return self.refuse(tool)
        try:
            arguments = tool.arguments.model_validate(dict(request.action.arguments))
        except ValidationError:
            return self.refuse(
                Deny(reason=DenyReason.INVALID_ARGUMENTS, hint="The tool changed after it was asked; ask again.")
            )
        reach = self._reach(tool, arguments)
        if isinstance(reach, Deny):
            return self.refuse(reach)
        if reach is not None and (reach.risk, reach.scope) != (request.risk, request.scope):
            return not_approved()  # the card said something else than what it would cover now
        call = Prepared(
            view=view,
            step=step,
            tool=tool,
            arguments=arguments,
            action=request.action,
            action_sha=request.action_sha,
            reach=reach,
            scopes=_scopes(tool, view.session, reach, allowed),
        )
        return Runnable(call=call, wait=wait.id)

    def _cut_in_half(self, view: TurnView, step: Step, wait: Wait | None, allowed: Scopes) -> Runnable | ToolResult:
        """A call that an earlier holder started and never finished."""
        call = self._as_allowed(view, step, wait, allowed)
        if call is not None and call.tool.spec.effect in (Effect.PURE, Effect.IDEMPOTENT):
            return Runnable(call=call, wait=None)
        return outcome_unknown(step.started_at)

    def _as_allowed(self, view: TurnView, step: Step, wait: Wait | None, allowed: Scopes) -> Prepared | None:
        """The action that was allowed before; None when it would not be allowed now: settings change over a restart."""
        if wait is not None and wait.approval is not None:
            found = self._approved(view, step, wait, wait.approval, allowed)
            return found.call if isinstance(found, Runnable) else None
        call = self._prepare(view, step, allowed)
        if isinstance(call, Deny):
            return None
        return call if isinstance(_decided(call, allowed, askable=True), Allow) else None

    # --- what exactly would run ---------------------------------------------------------------

    def _prepare(self, view: TurnView, step: Step, allowed: Scopes) -> Prepared | Deny:
        """Resolve the tool, check the arguments and fix what exactly would run."""
        if step.call is None:
            raise DragomanError(f"Step {step.turn}/{step.n} is not a call.")
        most = self.limits.calls
        if sum(1 for other in view.steps if other.kind is StepKind.TOOL and other.n <= step.n) > most:
            return Deny(reason=DenyReason.CONFIGURED, hint=f"A turn may make {most} calls; this one is beyond.")
        tool = self.registry.resolve(step.call.tool, view.session)
        if isinstance(tool, Deny):
            return tool
        arguments = check_arguments(tool, step.call.arguments)
        if isinstance(arguments, Deny):
            return arguments
        reach = self._reach(tool, arguments)
        if isinstance(reach, Deny):
            return reach
        try:
            sandbox = self._sandbox(tool.policy.sandbox, view.session)
            cwd = str(self.workspaces.workspace(works_in(view.session)))
        except SandboxMissing as error:
            return Deny(reason=DenyReason.SANDBOX_MISSING, hint=str(error))
        except DragomanError as error:
            return Deny(reason=DenyReason.POLICY_ERROR, hint=str(error))
        action = Action(tool=tool.spec.name, arguments=_json_safe(arguments), cwd=cwd, sandbox=sandbox)
        sha = asking.action_sha(asking.action_key(action), view.session.id, step.turn, step.n, view.turn.principal)
        return Prepared(
            view=view,
            step=step,
            tool=tool,
            arguments=arguments,
            action=action,
            action_sha=sha,
            reach=reach,
            scopes=_scopes(tool, view.session, reach, allowed),
        )

    def _reach(self, tool: Tool, arguments: BaseModel) -> CallScope | Deny | None:
        """Ask the tool what a call reaches. What it does not have by the owner's settings is refused here already."""
        if tool.reach is None:
            return None
        try:
            reach = tool.reach(arguments)
            return refused(reach) or reach
        except Exception:  # noqa: BLE001 - a decision that fails is a refusal, and so a result (house rules 3, 9)
            self._log.exception("reach failed", tool=tool.spec.name)
            hint = f"{tool.spec.name} could not say what this call reaches, so the answer is no."
            return Deny(reason=DenyReason.POLICY_ERROR, hint=hint)

    def _sandbox(self, wanted: SandboxPolicy | None, session: Session) -> SandboxMode | None:
        """The containment of a call; a child's is at least basic, whatever its root's."""
        if wanted is None:
            return None
        return choose(wanted, session.kind is SessionKind.MAIN, self.containment)

    def _request(self, view: TurnView, call: Prepared, repeated: int) -> Asked | ToolResult:
        # Only what is configured: what merely looks like a secret is a part of what will run.
        # Before it is written down, which may change how one is written, and behind it, where keys are texts, too.
        arguments, within = self.redactor.known_in(dict(call.action.arguments))
        action = replace(call.action, arguments=arguments)
        shown, hidden = self.redactor.known(asking.render_action(action, call.tool.spec.shows))
        hidden += within
        if len(shown.encode()) > ACTION_BYTES:
            return self.refuse(
                Deny(
                    reason=DenyReason.TOO_LONG_TO_SHOW,
                    hint="It is longer than 64 KiB as shown, so nobody could read it before allowing it. "
                    "Make it shorter.",
                )
            )
        notes: list[str] = []
        if call.action.sandbox is SandboxMode.OFF:
            notes.append("No sandbox: this runs on the host with the daemon's rights.")
        if repeated >= ASK_FROM:
            notes.append(f"The same call was made {repeated} times before in this turn.")
        if hidden:
            notes.append(
                f"{'A secret is' if hidden == 1 else f'{hidden} secrets are'} hidden here, and used as written."
            )
        request = ApprovalRequest(
            action=call.action,
            risk=call.reach.risk if call.reach else call.tool.spec.risk,
            action_key=asking.action_key(call.action),
            action_sha=call.action_sha,
            requester=view.turn.principal,
            rendered=shown,
            escaped=asking.needs_escape(call.action),
            note=" ".join(notes),
            scope=call.reach.scope if call.reach else "",
        )
        return Asked(step=call.step, request=request)


def _decided(call: Prepared, allowed: Scopes, *, askable: bool) -> Decision:
    """What the policy says of a call, with what people allowed before."""
    name = call.tool.spec.name
    permitted = frozenset(scope for tool, scope in allowed if tool == name)
    spec, policy, session = call.tool.spec, call.tool.policy, call.view.session
    return decide(spec, policy, session, askable=askable, reach=call.reach, permitted=permitted)


def _scopes(tool: Tool, session: Session, reach: CallScope | None, allowed: Scopes) -> frozenset[str]:
    """What the tool may use of what was allowed before, and this call's own; everything where nobody is asked."""
    found = {scope for name, scope in allowed if name == tool.spec.name}
    if reach is not None and reach.scope:
        found.add(reach.scope)
    if default_approval(tool.spec, tool.policy, session) is ApprovalMode.ALLOW:
        found.add(EVERY_SCOPE)
    return frozenset(found)


def not_approved() -> ToolResult:
    """The result of a call whose approval does not hold."""
    hint = "Its approval is for another action, or was withdrawn; nothing was run."
    return ToolResult(status=ResultStatus.DENIED, text="", code="not_approved", hint=hint)


def too_many_open(most: int) -> Deny:
    """Return the refusal of a call that would open more approvals of one person in a session than `most`."""
    waiting = "One call of yours waits" if most == 1 else f"{most} calls of yours wait"
    hint = (
        f"Not asked, and nothing was run: {waiting} for a decision in this session, and no more may. "
        "Ask again when one of them is decided, or withdraw them with /stop."
    )
    return Deny(reason=DenyReason.TOO_MANY_OPEN, hint=hint)


def after_a_wait(tool: str) -> ToolResult:
    """The result of a call that came behind one of the same tool which waits: what that one does is not known yet."""
    hint = (
        f"Not run: the call of {tool} before it waits for a decision, and its calls run in order. "
        "Make it again when you have the result of that one, if it is still right."
    )
    return ToolResult(status=ResultStatus.CANCELLED, text="", code="behind_a_wait", hint=hint)


def _of_child(wait: Wait) -> ToolResult:
    """The one result of a call that spawned a child and waited for it."""
    if wait.state in _CHILD_CUT:
        status, code, hint = _CHILD_CUT[wait.state]
        return ToolResult(status=status, text="", code=code, hint=hint)
    end = ChildEnd.of(wait)
    if end is None:
        hint = "The sub-session ended in a way that is not known."
        return ToolResult(status=ResultStatus.ERROR, text="", code="child_failed", hint=hint)
    status, code, hint = _CHILD_ENDED[end.state]
    text, dropped = head_and_tail_bytes(end.text, CHILD_BYTES)
    if dropped:
        hint = f"{hint} The middle is left out; the page shows all of it in {end.child}.".strip()
    elif not text:
        hint = f"{hint} It said nothing.".strip()
    # Whatever the child read, strangers' words too, may speak from what it answers.
    return ToolResult(
        status=status,
        text=text,
        code=code,
        hint=hint,
        duration_ms=end.active_ms,
        dropped_bytes=dropped,
        untrusted=bool(text),
    )


def _json_safe(arguments: BaseModel) -> Mapping[str, Any]:
    return arguments.model_dump(mode="json", by_alias=False)
