"""Rendered slots and rows of cards, made as the gateway makes them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import timedelta
from typing import Any

from gateway.approvals import Approvals, ButtonTokens, needs_escape, render_action
from gateway.domain.ids import Principal, SessionId, SlotId, TurnId, WaitId
from gateway.domain.messages import Conversation
from gateway.domain.slots import CardRow, Slot, SlotKind, SlotState
from gateway.domain.tools import Action, Risk, SandboxMode
from gateway.domain.waits import ApprovalRequest, Wait, WaitKind, WaitState
from gateway.policy.routing import AllowedPeople
from gateway.store.memory import MemoryStore
from tests.support.clock import FakeClock
from tests.support.makers import ANN, ANN_SLACK, ANN_TELEGRAM, EPOCH

APPROVALS = Approvals(
    AllowedPeople(owners={ANN: frozenset({ANN_SLACK, ANN_TELEGRAM})}),
    MemoryStore(FakeClock()),
    ButtonTokens(b"a state key for tests, 32 by"),
)


def slot(where: Conversation, kind: SlotKind = SlotKind.ANSWER, **fields: Any) -> Slot:
    """A slot that is about to be shown for the first time; `fields` are what the test is about."""
    made = Slot(
        id=SlotId("s1"),
        conversation=where,
        session=SessionId("main:ann"),
        turn=TurnId("t1"),
        n=1,
        kind=kind,
        text="",
        waits=(),
        file=None,
        version=1,
        sent_version=0,
        message_ids=(),
        state=SlotState.SENDING,
        attempts=1,
        uncertain=False,
        due_at=EPOCH,
        created_at=EPOCH,
    )
    return replace(made, **fields)


def card_row(
    command: str = "uptime",
    state: WaitState = WaitState.OPEN,
    *,
    who: Principal,
    n: int = 1,
    risk: Risk = Risk.EXECUTE,
    cwd: str = "/srv/work",
    note: str = "",
    reason: str = "",
    parts: tuple[str, ...] = (),
) -> CardRow:
    """A row of a card for a command of the shell, made by the gateway itself. `who` asked, and decided."""
    action = Action(tool="shell", arguments={"command": command}, cwd=cwd, sandbox=SandboxMode.BASIC)
    request = ApprovalRequest(
        action=action,
        risk=risk,
        action_key="key",
        action_sha=hashlib.sha256(command.encode(errors="replace")).hexdigest(),
        requester=who,
        rendered=render_action(action, "command"),
        escaped=needs_escape(action),
        note=note,
        parts=parts,
    )
    decided = state not in (WaitState.OPEN, WaitState.EXPIRED)
    wait = Wait(
        id=WaitId(f"w{n:016x}"),
        kind=WaitKind.APPROVAL,
        session=SessionId("main:ann"),
        turn=TurnId("t1"),
        n=n,
        state=state,
        approval=request,
        payload={},
        opened_at=EPOCH,
        expires_at=EPOCH + timedelta(hours=1),
        decided_by=who if decided else None,
        decided_at=EPOCH + timedelta(minutes=5) if decided else None,
        reason=reason,
    )
    return APPROVALS.row(wait, "s1")
