"""Decisions about calls: run, ask for approval, or finish with a result. Used by `scheduler`, before any call runs.

Reads the stored turn and what the call touches, and writes nothing; `scheduler` acts on the outcome. The pure decision
is `policy.permission.decide`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from gateway import approvals as asking
from gateway.domain.decisions import Allow, Ask, Decision, Deny, DenyReason, place_of
from gateway.domain.ids import GrantId, WaitId
from gateway.domain.sessions import Session, works_in
from gateway.domain.steps import Step, StepKind, StepState
from gateway.domain.tools import (
    ACTION_BYTES,
    Action,
    Effect,
    Preview,
    ResultStatus,
    SandboxMode,
    ToolResult,
    outcome_unknown,
)
from gateway.domain.turns import TurnLimits
from gateway.domain.views import TurnView
from gateway.domain.waits import ApprovalRequest, Wait, WaitKind, WaitState
from gateway.errors import DragomanError, SandboxMissing
from gateway.policy.permission import decide, hides
from gateway.ports import FileChanges, FileReader
from gateway.sandbox import Containment
from gateway.system.logging_setup import log
from gateway.system.metrics import Metrics
from gateway.system.redaction import Redactor
from gateway.toolcalls.arguments import InvalidArguments
from gateway.toolcalls.confinement import action_of, allowed_again, as_allowed, floor_of, is_contained, is_tightened
from gateway.toolcalls.files import WorkspaceFiles
from gateway.toolcalls.grants import Granted, offer_for, scopes_for
from gateway.toolcalls.loop_guard import ASK_FROM, checked, repeats, same_call
from gateway.toolcalls.prepared import Prepared
from gateway.toolcalls.resolution import decide_action, resolve_call, resolve_scope
from gateway.toolcalls.tool_index import TOOLS, answered
from gateway.toolcalls.tool_set import Tool, ToolSet
from gateway.toolcalls.wait_results import (
    changed_since_asked,
    files_elsewhere,
    not_approved,
    of_child,
    of_decision,
    of_question,
)
from gateway.toolcalls.workspaces import Workspaces

COMPARED_AT_MOST = 65_536
"""Characters of arguments that the loop guard parses as JSON; longer ones are compared as text."""
PREPARED_WITHIN_S = 10.0
"""Timeout in seconds for a tool's check of the workspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Call that needs a decision, with the content of its card."""

    step: Step
    request: ApprovalRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Runnable:
    """Call that may start now."""

    call: Prepared
    wait: WaitId | None
    grant: GrantId | None = None
    """As in `Allow.grant`: it must still hold when the call starts."""
    rule: str = ""
    """Place of the rule that allows it; empty when none does."""


Found: TypeAlias = Runnable | Asked | ToolResult
Previewed: TypeAlias = Preview | ToolResult | None
"""Outcome of `CallDecider.preview`. A result: the call cannot work, and nobody is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepare:
    """`ports.PrepareContext` of one call."""

    files: FileReader
    changes: FileChanges


@dataclass(frozen=True, slots=True)
class RunAgain:
    """Outcome of `CallDecider.check`: nothing of the call has happened, or it can be completed."""


Checked: TypeAlias = ToolResult | RunAgain | None
"""Outcome of an interrupted call, from its tool. A result: it happened. None: the tool has no answer."""


class SameCalls:
    """Keys that equal calls share, computed once for each step. For one pass over a turn."""

    def __init__(self) -> None:
        """Start empty."""
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


def no_hooks(_: str) -> bool:
    """Return False: no hook sees any call."""
    return False


@dataclass(slots=True, kw_only=True)
class CallDecider:
    """Decider of calls, by their tools, configuration and stored state."""

    tools: ToolSet
    workspaces: Workspaces
    containment: Containment
    limits: TurnLimits
    metrics: Metrics
    redactor: Redactor
    changes: Callable[[TurnView, int, Path], FileChanges]
    """Return the changes of workspace files by one call."""
    hooked: Callable[[str], bool] = no_hooks
    """Return whether a hook must see the calls of a tool before they are decided."""
    node: str = ""
    """As in `ApprovalRequest.node`."""
    prepared_within_s: float = PREPARED_WITHIN_S
    _log: Any = field(default_factory=lambda: log("decide"))

    def ordered_tool(self, step: Step) -> str:
        """Return the step's tool when its calls run in order, such as a stateful one; else empty."""
        tool = None if step.call is None else self.tools.get(step.call.tool)
        return tool.spec.name if tool is not None and tool.in_order else ""

    def is_hooked(self, step: Step) -> bool:
        """Return whether a hook must see a call before it is decided."""
        tool = None if step.call is None else self.tools.get(step.call.tool)
        return tool is not None and self.hooked(tool.spec.name)

    def for_hooks(self, view: TurnView, step: Step) -> Prepared | None:
        """Return a planned call for the hooks before it; None when it is not valid, so that `first` refuses it."""
        try:
            call = self._prepare(view, step, ())
        except Exception:  # noqa: BLE001 - a tool's own code reads its arguments; `first` refuses a call that no hook saw
            self._log.exception("call not prepared", turn=step.turn, n=step.n)
            return None
        return None if isinstance(call, Deny) else call

    def _seen_by_hooks(self, call: Prepared | Deny, step: Step) -> Prepared | Deny:
        """Return the call; refuse one that a hook must see and has not seen."""
        if isinstance(call, Deny) or step.hook_outcome is not None or not self.is_hooked(step):
            return call
        return Deny(reason=DenyReason.HOOK, hint="A hook must see this call first, and could not; nothing was run.")

    async def preview(self, view: TurnView, step: Step) -> Previewed:
        """Let the tool of a valid call read the workspace, within 10 s. None: the tool does not. Never raises."""
        tool = None if step.call is None else self.tools.get(step.call.tool)
        if tool is None or tool.prepare is None:
            return None
        try:
            call = self._prepare(view, step, ())
            if isinstance(call, Deny):
                return None  # `first` refuses it
            async with asyncio.timeout(self.prepared_within_s):
                return await tool.prepare(self._context(view, step, call), call.arguments)
        except DragomanError as error:
            return ToolResult(status=ResultStatus.ERROR, text="", code="error", hint=str(error))
        except Exception:  # noqa: BLE001 - a failed decision is a refusal, and so a result (house rules 3, 9)
            self._log.exception("preview failed", tool=tool.spec.name, turn=step.turn, n=step.n)
            hint = f"{tool.spec.name} could not prepare this call, so nothing was run."
            return ToolResult(status=ResultStatus.ERROR, text="", code="crashed", hint=hint)

    def _context(self, view: TurnView, step: Step, call: Prepared) -> _Prepare:
        folder = Path(call.action.cwd)
        return _Prepare(files=WorkspaceFiles(folder), changes=self.changes(view, step.n, folder))

    async def check(self, view: TurnView, step: Step) -> Checked:
        """Ask the tool of an interrupted call for its outcome, within 10 s. Never raises."""
        tool = None if step.call is None else self.tools.get(step.call.tool)
        if tool is None or tool.check is None or tool.spec.effect is not Effect.CHECKABLE:
            return None
        try:
            call = self._prepare(view, step, ())
            if isinstance(call, Deny):
                return None
            async with asyncio.timeout(self.prepared_within_s):
                return await tool.check(self._context(view, step, call), call.arguments) or RunAgain()
        except Exception:  # noqa: BLE001 - without an answer the outcome is unknown (house rules 3, 9)
            self._log.exception("check failed", tool=tool.spec.name, turn=step.turn, n=step.n)
            return None

    def first(
        self,
        view: TurnView,
        step: Step,
        same: SameCalls,
        granted: Granted = (),
        *,
        askable: bool,
        previewed: Previewed = None,
    ) -> Found:
        """Decide a new call; `askable`: True when a person can be asked. Never raises."""
        if step.call is not None and step.call.tool == TOOLS:
            return answered(step.call.arguments, self.tools.offers(view.session))
        try:
            preview = previewed if isinstance(previewed, Preview) else None
            if preview is not None and not preview.exact:
                granted = ()
            call = self._seen_by_hooks(self._prepare(view, step, granted, preview), step)
            if isinstance(call, Deny):
                return self.refuse(call)
            if isinstance(previewed, ToolResult):
                return previewed
            repeated = repeats(view, step.n, same)
            match checked(self._decided(call, granted, askable=askable), repeated):
                case Allow() as allow:
                    return self._allowed(view, call, allow, repeated, askable=askable)
                case Deny() as deny:
                    return self.refuse(deny)
                case Ask() if not askable:  # the loop guard asks about calls that are otherwise allowed
                    hint = (
                        "The same call was made over and over in this turn, and nobody can be asked whether to go on."
                    )
                    return self.refuse(Deny(reason=DenyReason.LOOP, hint=hint))
                case Ask(warning=warning):
                    return self._request(view, call, repeated, warning)
        except Exception:  # noqa: BLE001 - a failed decision is a refusal, and so a result (house rules 3, 9)
            self._log.exception("decision failed", turn=step.turn, n=step.n)
            return self.refuse(Deny(reason=DenyReason.POLICY_ERROR, hint="The decision failed, so the answer is no."))

    def _allowed(
        self, view: TurnView, call: Prepared, allow: Allow, repeated: int, *, askable: bool
    ) -> Runnable | Asked | ToolResult:
        """Return the call as it may run; ask where its network cannot be closed as the decision wants it."""
        try:
            return Runnable(call=as_allowed(call, allow), wait=None, grant=allow.grant, rule=place_of(allow))
        except SandboxMissing as error:
            if allow.no_network and askable:
                return self._request(view, call, repeated)
            return self.refuse(Deny(reason=DenyReason.SANDBOX_MISSING, hint=str(error)))

    def later(
        self,
        view: TurnView,
        step: Step,
        wait: Wait | None,
        granted: Granted = (),
        previewed: Previewed = None,
        checked: Checked = None,
    ) -> Runnable | ToolResult | None:
        """Decide a call that was asked about or started before; None: it still waits. `wait`: the call's last one."""
        if wait is not None and wait.state is WaitState.OPEN:
            return None
        if wait is not None and wait.kind is WaitKind.CHILD:
            return of_child(wait)
        if wait is not None and wait.kind is WaitKind.QUESTION:
            return of_question(wait)
        if wait is not None and (ended := of_decision(wait)) is not None:
            return ended
        if step.state is StepState.STARTED:
            return self._interrupted(view, step, wait, granted, checked)
        if wait is None or wait.approval is None:
            return None
        found = self._approved(view, step, wait, wait.approval, granted)
        if isinstance(found, Runnable) and found.call.tool.prepare is not None:
            now = previewed.state if isinstance(previewed, Preview) else None
            if now is None or now != wait.approval.prepared:
                return changed_since_asked()
        return found

    def refuse(self, deny: Deny) -> ToolResult:
        """Return the result of a refused call, and count the refusal."""
        self.metrics.decisions.labels("deny", deny.reason.value).inc()
        bad = deny.reason in (DenyReason.INVALID_ARGUMENTS, DenyReason.UNKNOWN_TOOL)
        status = ResultStatus.ERROR if bad else ResultStatus.DENIED
        return ToolResult(status=status, text="", code=deny.reason.value, hint=deny.hint)

    # --- approved calls -----------------------------------------------------------------------

    def _approved(
        self, view: TurnView, step: Step, wait: Wait, request: ApprovalRequest, granted: Granted
    ) -> Runnable | ToolResult:
        """Return the call with the action of its approval, not of the transcript; check again that the tool exists."""
        bound = (view.session.id, step.turn, step.n, request.requester, request.prepared)
        here = self._is_here(request.action)
        if not here or asking.action_sha(asking.action_key(request.action), *bound) != request.action_sha:
            return not_approved() if here else files_elsewhere()
        tool = self.tools.resolve(request.action.tool, view.session)
        if isinstance(tool, Deny):
            return self.refuse(tool)
        try:
            arguments = tool.arguments.restore(request.action.arguments)
        except InvalidArguments:
            return self.refuse(
                Deny(reason=DenyReason.INVALID_ARGUMENTS, hint="The tool changed after it was asked; ask again.")
            )
        call_scope = resolve_scope(tool, arguments, self._workspace(view.session))
        if isinstance(call_scope, Deny):
            return self.refuse(call_scope)
        if (call_scope.risk, call_scope.scope) != (request.risk, request.scope):
            return not_approved()  # the scope differs from the one on the card
        preset = self.tools.preset_of(view.session)
        denied = decide(tool.spec, tool.policy, view.session, call_scope, askable=True, preset=preset)
        if isinstance(denied, Deny):  # a rule that is newer than the approval
            return self.refuse(denied)
        if isinstance(denied := self._confinement_now(view, tool, arguments, request.action), Deny):
            return self.refuse(denied)
        call = Prepared(
            view=view,
            step=step,
            tool=tool,
            arguments=arguments,
            action=request.action,
            action_sha=request.action_sha,
            call_scope=call_scope,
            scopes=scopes_for(tool, view.session, preset, call_scope, granted),
            prepared=request.prepared,
            hidden=hides(tool.spec, tool.policy, view.session, preset),
        )
        return Runnable(call=call, wait=wait.id)

    def _confinement_now(self, view: TurnView, tool: Tool, arguments: object, shown: Action) -> Deny | None:
        """Return the reason why a call must be contained more by now than its card showed; None when it need not."""
        preset = self.tools.preset_of(view.session)
        least = floor_of(preset)
        if not is_contained(shown, least):
            hint = f"The preset {preset.name} demands a stricter sandbox than the card showed. Ask again."
            return Deny(reason=DenyReason.CONFIGURED, hint=hint)
        try:
            now = action_of(tool, arguments, shown.cwd, view.session, self.containment, least)
        except SandboxMissing as error:
            return Deny(reason=DenyReason.SANDBOX_MISSING, hint=str(error))
        if is_tightened(shown, now):
            hint = f"The configuration contains {tool.spec.name} more strictly than the card showed. Ask again."
            return Deny(reason=DenyReason.CONFIGURED, hint=hint)
        return None

    def _is_here(self, action: Action) -> bool:
        """Return whether an action is for the files of this machine."""
        try:
            return action.home == self.workspaces.home()
        except DragomanError:
            return False

    def _interrupted(
        self, view: TurnView, step: Step, wait: Wait | None, granted: Granted, checked: Checked
    ) -> Runnable | ToolResult:
        """Decide a call that an earlier holder started and did not finish: run a repeatable one again."""
        if isinstance(checked, ToolResult):
            return checked
        found = self._as_allowed(view, step, wait, granted)
        if found is None:
            return outcome_unknown(step.started_at)
        if isinstance(checked, RunAgain):
            return found
        if found.call.tool.prepare is not None and found.call.prepared is None:
            return outcome_unknown(step.started_at)  # what it had seen is gone, so it cannot tell what it did
        if found.call.tool.spec.effect in (Effect.PURE, Effect.IDEMPOTENT):
            return found
        return outcome_unknown(step.started_at)

    def _as_allowed(self, view: TurnView, step: Step, wait: Wait | None, granted: Granted) -> Runnable | None:
        """Return the call allowed before; None when settings changed over a restart and it would not be allowed now."""
        if wait is not None and wait.approval is not None:
            found = self._approved(view, step, wait, wait.approval, granted)
            return replace(found, wait=None) if isinstance(found, Runnable) else None
        call = self._prepare(view, step, granted)
        if isinstance(call, Deny):
            return None
        decided = self._decided(call, granted, askable=True)
        again = allowed_again(call, decided)
        if again is None or not isinstance(decided, Allow):
            return None
        return Runnable(call=again, wait=None, grant=decided.grant, rule=place_of(decided))

    # --- the exact action ---------------------------------------------------------------------

    def _decided(self, call: Prepared, granted: Granted, *, askable: bool) -> Decision:
        """Return the policy's decision about a call, with the grants that hold for it."""
        return decide_action(
            self.tools, call.view.session, call.tool, call.call_scope, call.action, granted, askable=askable
        )

    def _prepare(self, view: TurnView, step: Step, granted: Granted, preview: Preview | None = None) -> Prepared | Deny:
        """Resolve the tool, check the arguments and fix the exact action."""
        if step.call is None:
            raise DragomanError(f"Step {step.turn}/{step.n} is not a call.")
        most = self.limits.calls
        if sum(1 for other in view.steps if other.kind is StepKind.TOOL and other.n <= step.n) > most:
            return Deny(reason=DenyReason.CONFIGURED, hint=f"A turn may make {most} calls; this one exceeds the limit.")
        given = step.arguments
        workspace = cache(self._workspace(view.session))  # one look: scope and action are about the same folder
        found = resolve_call(self.tools, view.session, step.call.tool, lambda _: given, workspace)
        if isinstance(found, Deny):
            if self.tools.is_hidden(step.call.tool, view.session):
                self._log.info("call of a tool that does not exist here", turn=step.turn, n=step.n)
            return found
        if (outcome := step.hook_outcome) is not None and outcome.refused:
            return Deny(reason=DenyReason.HOOK, hint=outcome.refused)
        tool, arguments, call_scope = found.tool, found.arguments, found.call_scope
        try:
            cwd, preset, home = workspace(), self.tools.preset_of(view.session), self.workspaces.home()
            least = floor_of(preset)
            action = action_of(tool, arguments, cwd, view.session, self.containment, least, home=home)
        except SandboxMissing as error:
            return Deny(reason=DenyReason.SANDBOX_MISSING, hint=str(error))
        except DragomanError as error:
            return Deny(reason=DenyReason.POLICY_ERROR, hint=str(error))
        key, prepared = asking.action_key(action), None if preview is None else preview.state
        sha = asking.action_sha(key, view.session.id, step.turn, step.n, view.turn.principal, prepared)
        return Prepared(
            view=view,
            step=step,
            tool=tool,
            arguments=arguments,
            action=action,
            action_sha=sha,
            call_scope=call_scope,
            scopes=scopes_for(tool, view.session, preset, call_scope, granted),
            prepared=prepared,
            preview="" if preview is None else preview.text,
            exact=preview is None or preview.exact,
            hidden=hides(tool.spec, tool.policy, view.session, preset),
        )

    def _workspace(self, session: Session) -> Callable[[], str]:
        return lambda: str(self.workspaces.workspace(works_in(session)))

    def _request(self, view: TurnView, call: Prepared, repeated: int, warning: str = "") -> Asked | ToolResult:
        # Redact configured secrets only: text that merely looks like a secret is part of the action.
        # Redact before rendering, which may escape a secret, and after it, where keys are text too.
        arguments, within = self.redactor.known_in(dict(call.action.arguments))
        action = replace(call.action, arguments=arguments)
        text = asking.render_action(action, call.tool.spec.shows, call.tool.spec.in_preview if call.preview else ())
        if call.preview:
            text = "\n".join(filter(None, [text, asking.render(call.preview)]))
        shown, hidden = self.redactor.known(text)
        hidden += within
        if len(shown.encode()) > ACTION_BYTES:
            return self.refuse(
                Deny(
                    reason=DenyReason.TOO_LONG_TO_SHOW,
                    hint="It is longer than 64 KiB as shown, too long to be read before a decision. Make it shorter.",
                )
            )
        notes = [warning] if warning else []
        if call.action.sandbox is SandboxMode.OFF:
            notes.append("No sandbox: this runs on the host with the daemon's rights.")
        if call.step.hook_outcome is not None and call.step.hook_outcome.arguments is not None:
            notes.append(f"Not as it was asked for: changed by {call.step.hook_outcome.by}, a hook.")
        if repeated >= ASK_FROM:
            notes.append(f"The same call was made {repeated} times before in this turn.")
        if hidden:
            notes.append(
                f"{'A secret is' if hidden == 1 else f'{hidden} secrets are'} hidden here, and used as written."
            )
        request = ApprovalRequest(
            action=call.action,
            risk=call.call_scope.risk,
            action_key=asking.action_key(call.action),
            action_sha=call.action_sha,
            requester=view.turn.principal,
            rendered=shown,
            escaped=asking.needs_escape(call.action, call.preview),
            note=" ".join(notes),
            scope=call.call_scope.scope,
            summary=self.redactor.text(call.call_scope.summary),
            parts=tuple(self.redactor.known(line)[0] for line in asking.part_lines(call.call_scope)),
            node=self.node,
            prepared=call.prepared,
            always=None if hidden or repeated >= ASK_FROM or not call.exact else offer_for(call, shown),
        )
        return Asked(step=call.step, request=request)
