"""Builders of stored approvals with their session and turn. Used by the tests of approvals."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from gateway.domain.children import Lineage, SpawnMode
from gateway.domain.ids import OwnerName, Principal, SessionId, TurnId, WaitId, main_session
from gateway.domain.messages import Conversation
from gateway.domain.sessions import Origin, Session, SessionKind
from gateway.domain.turns import Turn, TurnKind, TurnState
from gateway.domain.waits import PressResult, PressVerdict, Wait, WaitKind, WaitState
from tests.support.makers import ANN, ANN_TELEGRAM, CHAT, EPOCH, approval

WAIT = WaitId("w0123456789abcdef")
APPROVED = PressVerdict(refusal=None, state=WaitState.APPROVED)
DENIED = PressVerdict(refusal=None, state=WaitState.DENIED)
WITHDRAWN = PressVerdict(refusal=None, state=WaitState.DENIED, withdraw_siblings=True)
REFUSED = PressVerdict(refusal=PressResult.NOT_ALLOWED)


def wait(state: WaitState = WaitState.OPEN, *, who: Principal | None = None, reason: str = "") -> Wait:
    """Return an approval wait that is open for an hour."""
    return Wait(
        id=WAIT,
        kind=WaitKind.APPROVAL,
        session=main_session(ANN),
        turn=TurnId("t1"),
        n=1,
        state=state,
        approval=approval(1),
        payload={},
        opened_at=EPOCH,
        expires_at=EPOCH + timedelta(hours=1),
        decided_by=who,
        decided_at=EPOCH if who else None,
        reason=reason,
    )


def session(kind: SessionKind = SessionKind.MAIN, owner: OwnerName | None = ANN) -> Session:
    return Session(
        id=main_session(ANN) if kind is SessionKind.MAIN else SessionId("chat:x"),
        kind=kind,
        origin=Origin.DIRECT,
        owner=owner if kind is SessionKind.MAIN else None,
        title="",
        epoch=0,
        root_kind=kind,
        created_at=EPOCH,
        active_at=EPOCH,
    )


def turn(where: Conversation = CHAT, who: Principal = ANN_TELEGRAM) -> Turn:
    return Turn(
        id=TurnId("t1"),
        session=main_session(ANN),
        epoch=0,
        kind=TurnKind.MODEL,
        state=TurnState.RUNNING,
        conversation=where,
        principal=who,
        created_at=EPOCH,
        started_at=EPOCH,
        ended_at=None,
        active_ms=0,
    )


def child(root: SessionKind, where: Conversation) -> Session:
    """Return a sub-session whose root's turn began in that conversation."""
    lineage = Lineage(
        parent=main_session(ANN),
        turn=TurnId("t0"),
        n=1,
        root=main_session(ANN),
        root_turn=TurnId("t0"),
        conversation=where,
        depth=1,
        mode=SpawnMode.RUN,
        active_s=60,
        tokens=0,
    )
    return replace(
        session(SessionKind.NON_MAIN), id=SessionId("child:t0.1"), title="count `it`", root_kind=root, lineage=lineage
    )
