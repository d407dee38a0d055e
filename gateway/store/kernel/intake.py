"""Transitions of ingress that take effect: messages, control commands, presses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

from gateway.domain.ids import InboundId, SessionId, TurnId, WaitId
from gateway.domain.messages import REASON_AT_MOST, Conversation, Inbound, Press
from gateway.domain.questions import Pick
from gateway.domain.routes import Accepted, Route, WhileRunning
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.turns import INTERRUPTED_TEXT, Turn, TurnKind, TurnState
from gateway.domain.waits import (
    ALWAYS_ASKED,
    DECIDED_BY,
    GRANTED,
    TOO_LATE,
    VOTES,
    Pressed,
    PressResult,
    PressVerdict,
    Vote,
    Wait,
    WaitKind,
    WaitState,
    escalates,
)
from gateway.ports import Control, ControlEffect, Waiting
from gateway.store import message_parts
from gateway.store.call_rules import is_stopped_by, result_of_press, stays_a_message, stop_words
from gateway.store.constants import HELD
from gateway.store.kernel import grants, messages, questions, sessions, turns
from gateway.store.kernel.messages import event_of
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import SessionRow, TurnRow, changed
from gateway.store.kernel.slots import add_slot, show_given_up

GATHERING_AMONG = 20
"""Newest turns of each lane that are searched for one that still waits for the rest of a message."""


def accept(
    part: Part, route: Route, message: Inbound, kind: TurnKind, running: WhileRunning, say: Waiting | None
) -> Accepted:
    """Store the message and its turn."""
    known = part.events.get(event_of(message))
    if known is not None:
        inbound, turn = messages.message_of(known)
        return Accepted(inbound=inbound, turn=turn, duplicate=True)
    session = messages.begin(part, route, message)
    album = messages.join_album(part, session.session.id, message, kind)
    if album is not None:
        return _joined(part, *album)
    continued = _continued(part, session, message, kind)
    kind = kind if continued is None else continued.turn.kind
    active = _active(part, route.session) if kind is TurnKind.MODEL else None
    same = active if active is not None and _may_steer(active.turn, message) else None
    if kind is TurnKind.MODEL and continued is None:
        asking = [row for row in (same, *_commands(part, session, message)) if row is not None]
        if answered := questions.answered_by(part, session, asking, message):
            return _answer(part, route, message, *answered)
    if same is not None and running is WhileRunning.INTERRUPT and continued is None:
        turns.stop(part, same.turn.id, INTERRUPTED_TEXT)
        active = None
    parked = active if active is not None and active.turn.state is TurnState.PARKED else None
    joined = same if running is WhileRunning.STEER and not message.album else None
    target, beside = continued or joined, False
    if target is None:
        target, beside = _begin_turn(part, route.session, message, kind)
    turn = target.turn.id
    received = messages.receive(part, route.session, message, turn, continues=continued is not None or beside)
    part.events.put(event_of(message), f"{received.id} {turn}")
    if continued is None and joined is not None:
        part.touched.turns.add(turn)
    else:
        messages.gather_more(part, turn, message)
    turns.offer(part, turn)
    if parked is not None and say is not None and continued is None:
        _reply_that_it_waits(part, route.session, message, parked, say)
    steered = continued is None and joined is not None
    return Accepted(inbound=received.id, turn=turn, steered=steered, waiting=parked is not None)


def _answer(part: Part, route: Route, message: Inbound, wait: Wait, pick: Pick) -> Accepted:
    """Store a message that answers a question. No turn is given it: the call's result has its text."""
    received = messages.receive(part, route.session, message, None)
    part.events.put(event_of(message), f"{received.id} {wait.turn}")
    questions.answer(part, wait, pick, message.principal)
    return Accepted(inbound=received.id, turn=wait.turn, answers=True)


def _joined(part: Part, inbound: InboundId, row: TurnRow) -> Accepted:
    """Return the outcome for a message that joined the turn of its album."""
    active = _active(part, row.turn.session) if row.turn.kind is TurnKind.MODEL else None
    waiting = active is not None and active.turn.state is TurnState.PARKED
    steered = row.turn.started_at is not None
    return Accepted(inbound=inbound, turn=row.turn.id, steered=steered, waiting=waiting)


def _reply_that_it_waits(part: Part, session: SessionId, message: Inbound, parked: TurnRow, say: Waiting) -> None:
    open_waits = [wait for wait in turns.waits_of(part, parked) if wait.state is WaitState.OPEN]
    text = say.text([wait.kind for wait in open_waits if not escalates(wait)])
    if text:
        add_slot(part, NewSlot(conversation=message.conversation, kind=SlotKind.REPLY, text=text), session, None)


def _continued(part: Part, session: SessionRow, message: Inbound, kind: TurnKind) -> TurnRow | None:
    """Return the turn that waits for this continuation. If the message is none, that turn waits no longer."""
    newest = (*session.turns[-GATHERING_AMONG:], *session.commands[-GATHERING_AMONG:])
    rows = [part.turns[turn] for turn in newest]
    for row in sorted(rows, key=lambda row: row.ord, reverse=True):
        waits = row.gathers_until is not None and row.gathers_until > part.now
        theirs = (row.turn.principal, row.turn.conversation) == (message.principal, message.conversation)
        if waits and theirs:
            last = messages.parts(part, row)[-1].message
            if message_parts.goes_on(message, kind, last.event_key, was_cut=last.cut):
                return row
            part.relink_turn(row.turn.id, gathers_until=None)
            turns.offer(part, row.turn.id)
            return None
    return None


def _begin_turn(part: Part, session: SessionId, message: Inbound, kind: TurnKind) -> tuple[TurnRow, bool]:
    """Begin a turn with the overheard messages before it. Return whether some of them are of the message's album."""
    beside = messages.beside(part, session, message)
    row = part.sessions[session]
    turn = turns.add_turn(part, turns.new_turn(row, kind, message, message.principal, part)).turn.id
    messages.begin_album(part, message, turn)
    taken = [one for one in row.context if kind is TurnKind.MODEL or one in beside]
    first = True
    for one in taken:
        if one in beside:
            part.set_message(one, turn=turn, context=False, continues=not first)
            first = False
        else:
            # Overheard messages are context: they count as given to the model before the first step.
            part.set_message(one, turn=turn, given=0)
        turns.add_input(part, turn, one)
    if taken:
        part.set_session(session, context=tuple(one for one in row.context if one not in taken))
    return part.turns[turn], bool(beside)


# --- control commands -----------------------------------------------------------------------


def control(part: Part, route: Route, message: Inbound, control: Control) -> int | None:
    """Store a control command with its effect and reply."""
    if part.events.get(event_of(message)) is not None:
        return None
    messages.begin(part, route, message)
    received = messages.receive(part, route.session, message, None)
    part.events.put(event_of(message), f"{received.id} ")
    quiet = control.effect is ControlEffect.NONE
    stopped = 0 if quiet else _stop(part, route.session, control, message.conversation)
    if control.effect is ControlEffect.RESET:
        _reset(part, route.session)
    if control.change is not None:
        sessions.change(part, route.session, control.change)
    idle = control.effect is ControlEffect.STOP and stopped == 0
    text = control.idle if idle else control.reply
    if control.revoke is not None:
        grants.revoke(part, control.revoke, message.principal)
    reply = NewSlot(conversation=message.conversation, kind=SlotKind.REPLY, text=text)
    add_slot(part, reply, route.session, None)
    return stopped


def _stop(part: Part, session: SessionId, control: Control, here: Conversation) -> int:
    """Stop the session's running turns, its reports of ended children, and all turns below. Return how many.

    `here`: the conversation of the command's reply. In every other one the first turn there announces the stop.
    """
    unheard = {row.turn.id for row in turns.unheard_ends(part, session)}
    rows = [part.turns[turn] for turn in turns.unended(part.sessions[session])]
    rows = [row for row in rows if _is_stopped(row.turn, control, unheard)]
    stopped = {row.turn.id for row in rows} | set(turns.unended_below(part, session, control.only))
    told = {here}
    for row in rows:
        text = stop_words(control.stopped_text, row.turn.conversation, told)
        told.add(row.turn.conversation)
        turns.stop(part, row.turn.id, text, below=control.stopped_text)
    turns.stop_below(part, session, control.stopped_text, control.only)
    return len(stopped)


def _is_stopped(turn: Turn, control: Control, unheard: Collection[TurnId]) -> bool:
    begun = turn.started_at is not None
    return is_stopped_by(control.only, turn.id, turn.principal, turn.state, begun=begun, unheard=unheard)


def _reset(part: Part, session: SessionId) -> None:
    row = part.sessions[session]
    epoch = row.session.epoch + 1
    row = part.set_session(session, session=changed(row.session, epoch=epoch, summary=""), summary_rev=0, context=())
    for turn in turns.unended(row):
        if part.turns[turn].turn.state not in HELD:
            part.set_turn(turn, of_turn={"epoch": epoch})


# --- presses --------------------------------------------------------------------------------


def press(part: Part, press: Press, wait: WaitId | None, verdict: PressVerdict) -> Pressed:
    """Store a press and decide its wait, once."""
    row = part.waits.get(wait) if wait is not None else None
    found = None if row is None else row.wait
    result = _result_of(part, found, verdict)
    if stays_a_message(result, verdict):
        return Pressed(result=result, wait=found)
    known = part.events.get(event_of(press))
    if known is not None:
        late = known == f"press:{PressResult.LATE}"  # its message may be missing: the caller repeats it
        return Pressed(result=PressResult.LATE if late else PressResult.DUPLICATE, wait=found)
    part.events.put(event_of(press), f"press:{result}")
    if found is not None and result in TOO_LATE:
        show_given_up(part, found.id)
    return Pressed(result=result, wait=None if found is None else _take_effect(part, press, found, verdict, result))


def _result_of(part: Part, wait: Wait | None, verdict: PressVerdict) -> PressResult:
    if wait is not None and wait.kind is WaitKind.QUESTION and verdict.refusal is None:
        return questions.result_of(wait, verdict, part)
    return result_of_press(wait, verdict, part.now)


def _take_effect(part: Part, press: Press, wait: Wait, verdict: PressVerdict, result: PressResult) -> Wait:
    """Change the wait as the result says, and return it."""
    match result:
        case PressResult.CHOSEN | PressResult.ANSWERED if verdict.pick is not None:
            return questions.answer(part, wait, verdict.pick, press.principal)
        case PressResult.ASK_ALWAYS | PressResult.BACK:
            return _ask_always(part, wait, asks=result is PressResult.ASK_ALWAYS)
        case PressResult.COUNTED:
            return _count(part, press, wait, verdict)
        case PressResult.APPROVED | PressResult.DENIED:
            return _decide(part, press, wait, verdict)
        case _:
            return wait


def _count(part: Part, press: Press, wait: Wait, verdict: PressVerdict) -> Wait:
    """Store a person's vote, once: further presses of the same person change nothing."""
    if verdict.person is None or any(vote.person == verdict.person for vote in Vote.of(wait)):
        return wait
    return turns.set_wait(part, wait.id, payload=_with_vote(wait, press, verdict, part.now))


def _with_vote(wait: Wait, press: Press, verdict: PressVerdict, now: datetime) -> Mapping[str, Any]:
    if verdict.state is not WaitState.APPROVED or verdict.person is None:
        return wait.payload
    known = Vote.of(wait)
    vote = Vote(person=verdict.person, principal=press.principal, at=now)
    votes = known if any(one.person == vote.person for one in known) else (*known, vote)
    return {**wait.payload, VOTES: [one.as_payload() for one in votes]}


def _ask_always(part: Part, wait: Wait, *, asks: bool) -> Wait:
    """Open or withdraw the second question of an open approval; its cards show it."""
    if wait.asks_always is asks:
        return wait
    return turns.set_wait(part, wait.id, payload={**wait.payload, ALWAYS_ASKED: asks})


def _after_the_question(payload: Mapping[str, Any], verdict: PressVerdict) -> Mapping[str, Any]:
    """Return the payload of a decided approval: without the second question, with the place of its grant."""
    payload = {key: value for key, value in payload.items() if key != ALWAYS_ASKED}
    if verdict.state is WaitState.APPROVED and (verdict.quorum > 1 or verdict.by_another):
        payload = {**payload, DECIDED_BY: [verdict.quorum, verdict.by_another]}
    return payload if verdict.grant is None else {**payload, GRANTED: verdict.grant.place.value}


def _decide(part: Part, press: Press, wait: Wait, verdict: PressVerdict) -> Wait:
    decided = turns.set_wait(
        part,
        wait.id,
        payload=_after_the_question(_with_vote(wait, press, verdict, part.now), verdict),
        state=verdict.state,
        decided_by=press.principal,
        decided_at=part.now,
        reason=press.reason[:REASON_AT_MOST],
    )
    request = wait.approval
    if verdict.grant is not None and request is not None and request.always is not None:
        grants.give(part, decided, request, request.always, verdict.grant)
    row = part.turns[wait.turn]
    if verdict.withdraw_siblings:
        answer_n = part.steps[wait.turn, wait.n].step.answer_n
        open_ = [one for one in turns.waits_of(part, row) if one.state is WaitState.OPEN]
        siblings = [one for one in open_ if part.steps[wait.turn, one.n].step.answer_n == answer_n]
        turns.cancel_waits(part, siblings, turns.stopped_text(row))
    turns.wake(part, wait.turn)
    return decided


# --- the active turn ------------------------------------------------------------------------


def _active(part: Part, session: SessionId) -> TurnRow | None:
    """Return the session's started and not ended model turn: only the oldest can be it."""
    lane = part.sessions[session].turns
    row = part.turns[lane[0]] if lane else None
    return row if row is not None and row.turn.started_at is not None else None


def _commands(part: Part, session: SessionRow, message: Inbound) -> Iterator[TurnRow]:
    """Yield the commands that this person gave here, the oldest first: a question that they ask is answered here."""
    rows = (part.turns[turn] for turn in session.commands[-GATHERING_AMONG:])
    yield from (row for row in rows if _may_steer(row.turn, message))


def _may_steer(turn: Turn, message: Inbound) -> bool:
    return (
        turn.principal == message.principal
        and turn.conversation == message.conversation
        and turn.state is not TurnState.STOPPING
    )
