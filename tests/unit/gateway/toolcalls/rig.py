"""Rig for tests of the decider: the decider alone, and steps and waits for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from gateway.domain.ids import CallId, TurnId, WaitId, main_session
from gateway.domain.steps import Step, StepKind, StepState
from gateway.domain.tools import CallScope, Effect, Risk, ToolCall
from gateway.domain.turns import TurnLimits
from gateway.domain.views import TurnView
from gateway.domain.waits import ApprovalRequest, Wait, WaitKind, WaitState
from gateway.store.memory import MemoryStore
from gateway.system.metrics import Metrics
from gateway.system.redaction import Redactor
from gateway.toolcalls.decide import Asked, CallDecider, Found, SameCalls
from gateway.toolcalls.file_changes import CallFileChanges
from gateway.toolcalls.tool_set import Tool, ToolSet
from gateway.toolcalls.workspaces import Workspaces
from tests.support.clock import FakeClock
from tests.support.fakes import NO_SANDBOX, FakeTool, Text
from tests.support.makers import ANN, EPOCH
from tests.support.turns import turn_view

SECRET = "123456789:AAExampleExampleExample"
LIST = '{"text": "ls"}'


def step(n: int = 1, tool: str = "shell", arguments: str = LIST, *, state: StepState = StepState.PLANNED) -> Step:
    call = ToolCall(id=CallId(f"c{n}"), tool=tool, arguments=arguments)
    return Step(turn=TurnId("t"), n=n, kind=StepKind.TOOL, state=state, call=call, answer_n=0)


def tool(risk: Risk = Risk.EXECUTE, effect: Effect = Effect.UNSAFE, **given: Any) -> Tool:
    return FakeTool(name="shell", risk=risk, effect=effect, **given).tool()


def reaching(what: CallScope) -> Tool:
    """Return a tool all of whose calls have this scope."""

    def call_scope(_: Text) -> CallScope:
        return what

    made = tool()
    return replace(made, call_scope=call_scope, spec=replace(made.spec, in_order=True))


def deciding(
    folder: Path, *tools: Tool, limits: TurnLimits | None = None, secrets: Sequence[str] = (SECRET,)
) -> CallDecider:
    return CallDecider(
        tools=ToolSet(tools or [tool()], sandboxed=False),
        workspaces=Workspaces(folder),
        containment=NO_SANDBOX,
        limits=limits or TurnLimits(),
        metrics=Metrics(),
        redactor=Redactor(secrets),
        changes=partial(_changes, MemoryStore(FakeClock()), folder),
    )


def _changes(store: MemoryStore, folder: Path, view: TurnView, n: int, workspace: Path) -> CallFileChanges:
    return CallFileChanges(
        key_value=store, workspace=workspace, folder=folder / "changes", session=view.session.id,
        epoch=view.turn.epoch, turn=view.turn.id, n=n,
    )  # fmt: skip


def first(by: CallDecider, one: Step, view: TurnView | None = None, *, askable: bool = True) -> Found:
    return by.first(view or turn_view(steps=[one]), one, SameCalls(), askable=askable)


def counted(by: CallDecider, decision: str, reason: str = "") -> float | None:
    labels = {"decision": decision, "reason": reason}
    return by.metrics.registry.get_sample_value("dragoman_decisions_total", labels)


def waiting(
    state: WaitState,
    *,
    kind: WaitKind = WaitKind.APPROVAL,
    approval: ApprovalRequest | None = None,
    payload: Mapping[str, Any] | None = None,
    reason: str = "",
    decided: bool = False,
) -> Wait:
    return Wait(
        id=WaitId("w0123456789abcdef"),
        kind=kind,
        session=main_session(ANN),
        turn=TurnId("t"),
        n=1,
        state=state,
        approval=approval,
        payload=payload or {},
        opened_at=EPOCH,
        expires_at=EPOCH + timedelta(hours=1),
        decided_at=EPOCH if decided else None,
        reason=reason,
    )


def asked(by: CallDecider, one: Step) -> ApprovalRequest:
    """Return the approval request of a call."""
    found = first(by, one)
    assert isinstance(found, Asked)
    return found.request
