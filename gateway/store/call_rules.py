"""Rules for calls in every store: approvals opened, pressed, used for a start; turns that `/stop` ends. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gateway.domain.audit import AuditRow, StartBasis, StartRecord
from gateway.domain.ids import NodeId, Principal, TurnId
from gateway.domain.messages import Conversation
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import StepState
from gateway.domain.tools import ResultStatus, ToolResult
from gateway.domain.turns import Lease, TurnKind, TurnState
from gateway.domain.waits import (
    DECISION_GOOD_FOR_S,
    TOO_LATE,
    NewWait,
    PressResult,
    PressVerdict,
    StartOutcome,
    Vote,
    Wait,
    WaitKind,
    WaitState,
)
from gateway.store.codec import storable

DECISION_GOOD_FOR = timedelta(seconds=DECISION_GOOD_FOR_S)
CANCELLED = ToolResult(
    status=ResultStatus.CANCELLED, text="", code="cancelled", hint="The turn ended before this call ran."
)
"""Result of a call that was planned when its turn ended."""


def limit_approvals(
    waits: Sequence[NewWait], slots: Sequence[NewSlot], already: int, most: int | None
) -> tuple[Sequence[NewWait], Sequence[NewSlot]]:
    """Return the first waits within the limit, and the slots without rows of the others.

    `already`: the requester's open approvals in the session. `most`: the limit; None is no limit.
    """
    if most is None or not any(wait.kind is WaitKind.APPROVAL for wait in waits):
        return waits, slots
    room = max(0, most - already)
    opened = waits[:room]
    left_out = frozenset(wait.id for wait in waits[room:])
    rest = [replace(slot, waits=tuple(wait for wait in slot.waits if wait not in left_out)) for slot in slots]
    kept = [slot for slot in rest if slot.waits or slot.kind is not SlotKind.CARD]
    return opened, kept if opened else ()


def result_of_press(wait: Wait | None, verdict: PressVerdict, now: datetime) -> PressResult:
    """Return the result of a press that was not handled before.

    Only APPROVED and DENIED decide the wait; COUNTED stores a vote.
    """
    if verdict.refusal is not None or wait is None or wait.kind is not WaitKind.APPROVAL:
        return verdict.refusal or PressResult.NOT_VALID
    if wait.state in (WaitState.EXPIRED, WaitState.SUPERSEDED):
        return PressResult.EXPIRED
    if wait.state is not WaitState.OPEN:
        return PressResult.ALREADY
    if wait.expires_at <= now:
        return PressResult.EXPIRED
    if verdict.question is not None or verdict.grant is not None:
        return _about_a_grant(wait, verdict)
    if verdict.state is not WaitState.APPROVED:
        return PressResult.DENIED
    return PressResult.APPROVED if _is_quorum(wait, verdict) else PressResult.COUNTED


def _is_quorum(wait: Wait, verdict: PressVerdict) -> bool:
    """Return whether enough different persons allow this, the one who presses included.

    Only votes of those who may still decide count.
    """
    if verdict.quorum <= 1:
        return True
    persons = {vote.person for vote in Vote.of(wait)} & verdict.among
    return len(persons | ({verdict.person} & verdict.among)) >= verdict.quorum


def _about_a_grant(wait: Wait, verdict: PressVerdict) -> PressResult:
    """Return the result of a press about the second question. A grant is given only while that question is open."""
    offer = None if wait.approval is None else wait.approval.always
    if offer is None:
        return PressResult.NOT_VALID
    if verdict.question is not None:
        return PressResult.ASK_ALWAYS if verdict.question else PressResult.BACK
    confirmed = wait.asks_always and verdict.grant is not None and verdict.grant.place in offer.places
    return PressResult.APPROVED if confirmed and verdict.state is WaitState.APPROVED else PressResult.NOT_VALID


def stays_a_message(result: PressResult, verdict: PressVerdict) -> bool:
    """Return whether a press leaves no record: its event belongs to a message, which is accepted next."""
    return verdict.written and result in TOO_LATE


def stop_words(words: str, place: Conversation, told: Collection[Conversation]) -> str:
    """Return a stopped turn's text for its `place`: empty where the stop is announced already."""
    return "" if place in told else words


def is_stopped_by(
    only: Principal | None, turn: TurnId, whose: str, state: str, *, begun: bool, unheard: Collection[TurnId]
) -> bool:
    """Return whether `/stop` ends a turn: it has begun, or would only report ended children, which nobody asked for.

    `only`: the person to whose turns the stop is limited. `unheard`: the turns that only report ended children.
    """
    theirs = only is None or whose == only
    return theirs and (begun or turn in unheard) and state != TurnState.STOPPING


def may_consume(wait: Wait, lease: Lease, n: int, action_sha: str, now: datetime) -> StartOutcome:
    """Return STARTED if the approval lets this step of the leased turn start, else why not. TOO_OLD means expired."""
    if wait.state is not WaitState.APPROVED or (wait.turn, wait.n) != (lease.turn, n):
        return StartOutcome.NOT_APPROVED
    if wait.approval is None or wait.approval.action_sha != action_sha or wait.decided_at is None:
        return StartOutcome.NOT_APPROVED
    if now - wait.decided_at > DECISION_GOOD_FOR:
        return StartOutcome.TOO_OLD
    return StartOutcome.STARTED


def audit_row(
    lease: Lease, n: int, lane: TurnKind, state: StepState, wait: Wait | None, beginning: StartRecord, now: datetime
) -> AuditRow:
    """Return the audit row, without place and hashes. `state`: the step's before; `wait`: the approval it uses."""
    return AuditRow(
        seq=0,
        at=now,
        session=lease.session,
        turn=lease.turn,
        n=n,
        lane=lane,
        tool=beginning.tool,
        action_sha=beginning.action_sha,
        basis=_basis(state, wait, beginning),
        wait=None if wait is None else wait.id,
        grant=beginning.grant if wait is None else None,
        rule=storable(beginning.rule) if wait is None and beginning.grant is None else "",
        decided_by=None if wait is None else wait.decided_by,
        sandbox="" if beginning.sandbox is None else beginning.sandbox.value,
        node=NodeId(storable(lease.node)),
        prev_hash="",
        hash="",
    )


def _basis(state: StepState, wait: Wait | None, beginning: StartRecord) -> StartBasis:
    if wait is not None:
        return StartBasis.APPROVAL
    if state is StepState.STARTED:
        return StartBasis.AGAIN
    if beginning.grant is not None:
        return StartBasis.GRANT
    return StartBasis.RULE if beginning.rule else StartBasis.SETTINGS
