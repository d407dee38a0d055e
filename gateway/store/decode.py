"""Conversion of stored columns to domain types. Each `*_of` takes columns in the order of SQLite's SELECTs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from typing import Any, TypeVar

from gateway.domain.audit import AuditRow, StartBasis
from gateway.domain.grants import Grant, GrantKind, GrantPlace
from gateway.domain.ids import GrantId, InboundId, NodeId, OwnerName, Principal, SessionId, SlotId, TurnId, WaitId
from gateway.domain.messages import Inbound, Received
from gateway.domain.sessions import Origin, Session, SessionKind
from gateway.domain.slots import Slot, SlotKind, SlotState
from gateway.domain.steps import Step, StepKind, StepState, Usage
from gateway.domain.text import one_line
from gateway.domain.tools import Risk
from gateway.domain.turns import Turn, TurnKind, TurnState
from gateway.domain.views import Spent
from gateway.domain.waits import Wait, WaitKind, WaitState
from gateway.errors import StoreError
from gateway.store.codec import (
    ANSWER,
    APPROVAL,
    ATTACHMENTS,
    BROUGHT,
    CALL,
    HOOK_OUTCOME,
    KEPT_FILE,
    LINEAGE,
    POST,
    RESULT,
    from_us,
    load_conversation,
    load_json,
    load_message_ids,
)
from gateway.system.logging_setup import log

Columns = tuple[Any, ...]
T = TypeVar("T")
_LOG = log("store")


UNREADABLE = (ValueError, TypeError, LookupError, OverflowError, RecursionError)
"""Exceptions of reading damaged columns; pydantic's `ValidationError` is a `ValueError`."""


def readable(make: Callable[[Columns], T], rows: Iterable[Columns], what: str) -> list[T]:
    """Convert the readable rows of a list. An unreadable row is left out and named in the log.

    The first column is the row's name.
    """
    made: list[T] = []
    for columns in rows:
        try:
            made.append(make(columns))
        except UNREADABLE as error:
            name = one_line(str(columns[0]), 100)
            _LOG.error("a row cannot be read and is left out", what=what, row=name, why=type(error).__name__)
    return made


NOWHERE = '["","","",""]'
"""Stands in for the conversation of a damaged row."""
BARE_TURN: Mapping[int, Any] = {5: NOWHERE, 7: 0, 8: None, 9: None}
BARE_MESSAGE: Mapping[int, Any] = {3: 0, 5: NOWHERE, 11: 0, 18: None, 19: None}
BARE_STEP: Mapping[int, Any] = {4: None, 5: None, 7: None, 9: None, 10: None, 11: None}
BARE_WAIT: Mapping[int, Any] = {6: None, 7: "{}"}
"""Stand-ins for the payloads of damaged rows, by their places in the columns that make one."""


def whole_or_bare(make: Callable[[Columns], T], columns: Columns, bare: Mapping[int, Any]) -> tuple[T, bool]:
    """Convert a row, or without its damaged payloads: a transition must be able to end what it cannot read.

    `bare`: stand-ins for the payloads by position. Return whether the row is whole.
    """
    try:
        return make(columns), True
    except UNREADABLE as error:
        _LOG.error("a row cannot be read whole", row=one_line(str(columns[0]), 100), why=type(error).__name__)
        return make(tuple(bare.get(at, value) for at, value in enumerate(columns))), False


def moment(us: int | None) -> datetime | None:
    """Return the stored time as a datetime, if there is one."""
    return None if us is None else from_us(us)


def session_of(columns: Columns) -> Session:
    """Return a session."""
    id_, kind, origin, owner, title, epoch, root_kind, tools, created_at, active_at, lineage, *rest = columns
    preset, preset_before, presets_above, tools_off, summary = rest
    return Session(
        id=SessionId(id_),
        kind=SessionKind(kind),
        origin=Origin(origin),
        owner=None if owner is None else OwnerName(owner),
        title=title,
        epoch=epoch,
        root_kind=SessionKind(root_kind),
        tools=None if tools is None else tuple(load_json(tools)),
        created_at=from_us(created_at),
        active_at=from_us(active_at),
        lineage=None if lineage is None else LINEAGE.load(lineage),
        preset=preset,
        preset_before=preset_before,
        presets_above=tuple(load_json(presets_above)),
        tools_off=tuple(load_json(tools_off)),
        summary=summary,
    )


def turn_of(columns: Columns) -> Turn:
    """Return a turn."""
    id_, session, epoch, kind, state, conversation, principal, created_at, started_at, ended_at, active_ms, said = (
        columns
    )
    return Turn(
        id=TurnId(id_),
        session=SessionId(session),
        epoch=epoch,
        kind=TurnKind(kind),
        state=TurnState(state),
        conversation=load_conversation(conversation),
        principal=Principal(principal),
        created_at=from_us(created_at),
        started_at=moment(started_at),
        ended_at=moment(ended_at),
        active_ms=active_ms,
        stopped_text=said or "",
    )


def received_of(columns: Columns) -> Received:
    """Return a stored message."""
    id_, turn, given, received_at, event_key, place, principal, name, direct, addressed, text, sent_at, *rest = columns
    quoted, reply_to, unread, cut, context, continues, attachments, files = rest
    message = Inbound(
        event_key=event_key,
        conversation=load_conversation(place),
        principal=Principal(principal),
        name=name,
        direct=bool(direct),
        addressed=bool(addressed),
        text=text,
        sent_at=from_us(sent_at),
        quoted=quoted,
        reply_to=reply_to,
        unread=unread,
        attachments=() if attachments is None else ATTACHMENTS.load(attachments),
        cut=bool(cut),
    )
    return Received(
        id=InboundId(id_),
        turn=None if turn is None else TurnId(turn),
        message=message,
        given=given,
        received_at=from_us(received_at),
        files=None if files is None else BROUGHT.load(files),
        context=bool(context),
        continues=bool(continues),
    )


def step_of(columns: Columns) -> Step:
    """Return a step."""
    turn, n, kind, state, answer, call, answer_n, result, asked_anew, started_at, ended_at, hooks = columns
    return Step(
        turn=TurnId(turn),
        n=n,
        kind=StepKind(kind),
        state=StepState(state),
        answer=None if answer is None else ANSWER.load(answer),
        call=None if call is None else CALL.load(call),
        answer_n=answer_n,
        result=None if result is None else RESULT.load(result),
        asked_anew=bool(asked_anew),
        started_at=moment(started_at),
        ended_at=moment(ended_at),
        hook_outcome=None if hooks is None else HOOK_OUTCOME.load(hooks),
    )


def wait_of(columns: Columns) -> Wait:
    """Return a wait."""
    id_, kind, session, turn, n, state, approval, payload, opened_at, expires_at, by, decided_at, reason = columns
    return Wait(
        id=WaitId(id_),
        kind=WaitKind(kind),
        session=SessionId(session),
        turn=TurnId(turn),
        n=n,
        state=WaitState(state),
        approval=None if approval is None else APPROVAL.load(approval),
        payload=load_json(payload),
        opened_at=from_us(opened_at),
        expires_at=from_us(expires_at),
        decided_by=None if by is None else Principal(by),
        decided_at=moment(decided_at),
        reason=reason,
    )


def grant_of(columns: Columns) -> Grant:
    """Return a grant."""
    id_, tool, kind, matches, risk, place, session, epoch, root_kind, conversation, principal, shown, *rest = columns
    (
        wait,
        granted_by,
        quorum,
        by_another,
        granted_at,
        expires_at,
        used,
        last_used_at,
        revoked_at,
        revoked_by,
        expired,
    ) = rest
    return Grant(
        id=GrantId(id_),
        tool=tool,
        kind=GrantKind(kind),
        matches=tuple(load_json(matches)),
        risk=Risk(risk),
        place=GrantPlace(place),
        session=SessionId(session),
        epoch=epoch,
        root_kind=SessionKind(root_kind),
        conversation=load_conversation(conversation),
        principal=Principal(principal),
        shown=shown,
        wait=WaitId(wait),
        granted_by=Principal(granted_by),
        quorum=quorum,
        by_another=bool(by_another),
        granted_at=from_us(granted_at),
        expires_at=from_us(expires_at),
        used=used,
        last_used_at=moment(last_used_at),
        revoked_at=moment(revoked_at),
        revoked_by=None if revoked_by is None else Principal(revoked_by),
        expired=bool(expired),
    )


def slot_of(columns: Columns) -> Slot:
    """Return a slot."""
    (id_, place, session, turn, n, kind, text, waits, version, sent_version, platform_id, state, *rest) = columns
    attempts, uncertain, due_at, created_at, file, once_more, fence, post = rest
    return Slot(
        id=SlotId(id_),
        conversation=load_conversation(place),
        session=None if session is None else SessionId(session),
        turn=None if turn is None else TurnId(turn),
        n=n,
        kind=SlotKind(kind),
        text=text,
        waits=tuple(load_json(waits)),
        file=None if file is None else KEPT_FILE.load(file),
        version=version,
        sent_version=sent_version,
        message_ids=load_message_ids(platform_id),
        state=SlotState(state),
        attempts=attempts,
        uncertain=bool(uncertain),
        due_at=from_us(due_at),
        created_at=from_us(created_at),
        once_more=bool(once_more),
        fence=fence,
        post=None if post is None else POST.load(post),
    )


def spent_of(columns: Columns) -> Spent:
    """Return the usage of a day, person and model."""
    day, principal, model, answers, input_tokens, output_tokens, cached_tokens, cost_micros = columns
    usage = Usage(
        input_tokens=input_tokens, output_tokens=output_tokens, cached_tokens=cached_tokens, cost_micros=cost_micros
    )
    return Spent(day=date.fromisoformat(day), principal=Principal(principal), model=model, answers=answers, usage=usage)


def audit_row_of(columns: Columns) -> AuditRow:
    """Return a row of the audit. Raises `StoreError` when it cannot be read."""
    seq, at, session, turn, n, lane, tool, sha, basis, wait, grant, rule, by, *rest = columns
    sandbox, node, prev_hash, hash_ = rest
    try:
        return AuditRow(
            seq=seq,
            at=from_us(at),
            session=SessionId(session),
            turn=TurnId(turn),
            n=n,
            lane=TurnKind(lane),
            tool=tool,
            action_sha=sha,
            basis=StartBasis(basis),
            wait=None if wait is None else WaitId(wait),
            grant=None if grant is None else GrantId(grant),
            rule=rule,
            decided_by=None if by is None else Principal(by),
            sandbox=sandbox,
            node=NodeId(node),
            prev_hash=prev_hash,
            hash=hash_,
        )
    except (ValueError, TypeError, OverflowError):
        raise StoreError(
            f"Row {seq} of the audit cannot be read: it is not what was written.",
            cure="deploy/RUNBOOK.md (Was anything run that nobody allowed?) has the next steps.",
        ) from None
