"""Intake transitions in SQLite: messages, refusals, control commands, presses."""

from __future__ import annotations

from datetime import timedelta

from gateway.model.ids import InboundId, SessionId, TurnId, WaitId, mint
from gateway.model.messages import Inbound, Press
from gateway.model.sessions import Accepted, Drop, Route, TurnKind, TurnState
from gateway.model.slots import NewSlot, SlotKind, shown_when_stored
from gateway.model.waits import Pressed, PressResult, Verdict, Wait, WaitKind, WaitState
from gateway.ports import Control, ControlEffect
from gateway.store.codec import MICROSECOND, dump_conversation, to_us
from gateway.store.sqlite import moves
from gateway.store.sqlite.base import SqliteBase
from gateway.store.sqlite.rows import HELD, TurnRow, wait_of
from gateway.store.sqlite.tx import Tx

REFUSAL_EVERY_US = timedelta(hours=24) // MICROSECOND


class SqliteIntake(SqliteBase):
    """`ports.Intake`."""

    async def accept(
        self, route: Route, message: Inbound, kind: TurnKind, *, steer: bool, say_if_waiting: str
    ) -> Accepted:
        """Store the message and its turn."""
        return await self.write(lambda tx: _accept(tx, route, message, kind, steer=steer, say=say_if_waiting))

    async def drop(self, message: Inbound, drop: Drop, refusal: str) -> bool:
        """Store why a message starts nothing."""
        return await self.write(lambda tx: _drop(tx, message, drop, refusal))

    async def control(self, route: Route, message: Inbound, control: Control) -> int | None:
        """Store a control command with its effect and reply."""
        return await self.write(lambda tx: _control(tx, route, message, control))

    async def press(self, press: Press, wait: WaitId | None, verdict: Verdict) -> Pressed:
        """Store a press and decide its wait, once."""
        return await self.write(lambda tx: _press(tx, press, wait, verdict))


def _accept(tx: Tx, route: Route, message: Inbound, kind: TurnKind, *, steer: bool, say: str) -> Accepted:
    known = _known(tx, message)
    if known is not None:
        return known
    inbound = InboundId(mint("i"))
    place, epoch = dump_conversation(message.conversation), _use_session(tx, route)
    _saw(tx, route, message, place)
    head = _lane_head(tx, route.session) if kind is TurnKind.MODEL else None
    active = head if head is not None and head.started_at is not None else None
    parked = active is not None and active.state == TurnState.PARKED
    joined = active if steer and active is not None and _may_steer(active, message, place) else None
    if joined is None:
        turn = _add_turn(tx, route.session, epoch, message, place, kind, first=head is None)
    else:
        turn = joined.id
        moves.offer(tx, joined)
        tx.touched.turns.add(turn)
    _is_new(tx, message, f"{inbound} {turn}")
    _add_message(tx, route.session, turn, inbound, message, place)
    if parked and say:
        reply = NewSlot(conversation=message.conversation, kind=SlotKind.REPLY, text=say)
        moves.add_slot(tx, reply, route.session, None)
    return Accepted(inbound=inbound, turn=turn, steered=joined is not None, waiting=parked)


def _drop(tx: Tx, message: Inbound, drop: Drop, refusal: str) -> bool:
    if not _is_new(tx, message, f"drop:{drop.reason}"):
        return False
    last = tx.one("refused_at", message.principal)
    if drop.refuse and refusal and (last is None or tx.now - last[0] >= REFUSAL_EVERY_US):
        tx.run("refuse", message.principal, tx.now)
        moves.add_slot(tx, NewSlot(conversation=message.conversation, kind=SlotKind.REPLY, text=refusal), None, None)
    return True


def _control(tx: Tx, route: Route, message: Inbound, control: Control) -> int | None:
    inbound = InboundId(mint("i"))
    if not _is_new(tx, message, inbound):
        return None
    place = dump_conversation(message.conversation)
    _use_session(tx, route)
    _saw(tx, route, message, place)
    _add_message(tx, route.session, None, inbound, message, place)
    stopped = 0 if control.effect is ControlEffect.NONE else _stop(tx, route.session, control)
    if control.effect is ControlEffect.RESET:
        _reset(tx, route.session)
    idle = control.effect is ControlEffect.STOP and stopped == 0
    text = (control.idle if idle else control.reply).replace("{n}", str(stopped))
    reply = NewSlot(conversation=message.conversation, kind=SlotKind.REPLY, text=text)
    moves.add_slot(tx, reply, route.session, None)
    return stopped


def _press(tx: Tx, press: Press, wait: WaitId | None, verdict: Verdict) -> Pressed:
    found = _find_wait(tx, wait)
    result = _verdict(found, verdict, tx)
    if not _is_new(tx, press, f"press:{result}"):
        return Pressed(result=PressResult.DUPLICATE, wait=found)
    if found is None or result not in (PressResult.APPROVED, PressResult.DENIED):
        return Pressed(result=result, wait=found)
    rev = tx.next_rev(found.session)
    tx.run("decide_wait", verdict.state, press.principal, tx.now, press.reason[:1000], rev, found.id)
    moves.show_anew(tx, found.id)
    row = moves.stored_turn(tx, found.turn)
    if verdict.withdraw_siblings:
        step = tx.one("step", found.turn, found.n)
        answer_n = step[2] if step is not None else None
        siblings = tx.run("open_siblings", found.turn, answer_n)
        moves.cancel_waits(tx, row, (other for (other,) in siblings))
    moves.wake(tx, row)
    return Pressed(result=result, wait=_find_wait(tx, wait))


def _verdict(wait: Wait | None, verdict: Verdict, tx: Tx) -> PressResult:
    """What comes of the press if it is the first of its kind; the writer runs alone, so that nothing can change."""
    if verdict.refusal is not None or wait is None or wait.kind is not WaitKind.APPROVAL:
        return verdict.refusal or PressResult.NOT_VALID
    if wait.state in (WaitState.EXPIRED, WaitState.SUPERSEDED):
        return PressResult.EXPIRED
    if wait.state is not WaitState.OPEN:
        return PressResult.ALREADY
    if wait.expires_at <= tx.moment:
        return PressResult.EXPIRED
    return PressResult.APPROVED if verdict.state is WaitState.APPROVED else PressResult.DENIED


# --- what these share -----------------------------------------------------------------------


def _is_new(tx: Tx, event: Inbound | Press, outcome: str) -> bool:
    """Store the event; False when it was stored before, and then nothing is written."""
    place = event.conversation
    return tx.count("add_event", place.channel, place.account, event.event_key, outcome) > 0


def _known(tx: Tx, message: Inbound) -> Accepted | None:
    """What to say to a message that was stored before, or to one whose event was something else."""
    place = message.conversation
    found = tx.one("event_outcome", place.channel, place.account, message.event_key)
    if found is None:
        return None
    inbound, _, turn = found[0].partition(" ")
    is_message = ":" not in inbound
    return Accepted(inbound=InboundId(inbound if is_message else ""), turn=TurnId(turn), duplicate=True)


def _use_session(tx: Tx, route: Route) -> int:
    """Make the session, or mark it active. Return its epoch."""
    ((epoch,),) = tx.run("use_session", route.session, route.kind, route.origin, route.owner, route.title, tx.now)
    return int(epoch)


def _saw(tx: Tx, route: Route, message: Inbound, place: str) -> None:
    if not message.direct:
        return
    tx.run("saw_person", message.principal, place, tx.now)
    if route.owner is not None and not shown_when_stored(message.conversation):
        tx.run("saw_owner_chat", route.owner, place)


def _lane_head(tx: Tx, session: SessionId) -> TurnRow | None:
    columns = tx.one("lane_head", session, TurnKind.MODEL)
    return None if columns is None else TurnRow(*columns)


def _add_turn(
    tx: Tx, session: SessionId, epoch: int, message: Inbound, place: str, kind: TurnKind, *, first: bool
) -> TurnId:
    turn = TurnId(mint("t"))
    tx.rev += 1
    queued_rev, rev = tx.rev, tx.next_rev(session)
    head = first or kind is TurnKind.COMMAND
    tx.run("add_turn", rev, turn, session, epoch, kind, place, message.principal, tx.now, head, queued_rev)
    if kind is TurnKind.COMMAND:
        row = moves.stored_turn(tx, turn)
        moves.offer(tx, row)
    else:
        tx.touched.turns_due |= first
    return turn


def _add_message(
    tx: Tx, session: SessionId, turn: TurnId | None, inbound: InboundId, message: Inbound, place: str
) -> None:
    who = (message.principal, message.name, message.direct, message.addressed)
    stored = (inbound, session, turn, tx.now, message.event_key, place)
    tx.run("add_message", tx.next_rev(session), *stored, *who, message.text, to_us(message.sent_at))


def _may_steer(turn: TurnRow, message: Inbound, place: str) -> bool:
    same = turn.principal == message.principal and turn.conversation == place
    return same and turn.state != TurnState.STOPPING


def _unended(tx: Tx, session: SessionId) -> list[TurnRow]:
    return [TurnRow(*columns) for kind in TurnKind for columns in tx.run("lane", session, kind)]


def _stop(tx: Tx, session: SessionId, control: Control) -> int:
    stopped = [row for row in _unended(tx, session) if _is_under_way(row, control)]
    for row in stopped:
        moves.stop(tx, row, control.stopped_text)
    return len(stopped)


def _is_under_way(row: TurnRow, control: Control) -> bool:
    theirs = control.only is None or row.principal == control.only
    return theirs and row.started_at is not None and row.state != TurnState.STOPPING


def _reset(tx: Tx, session: SessionId) -> None:
    ((epoch,),) = tx.run("raise_epoch", session)
    for row in _unended(tx, session):
        if row.state not in HELD:
            tx.run("set_turn_epoch", epoch, tx.next_rev(session), row.ord)


def _find_wait(tx: Tx, wait: WaitId | None) -> Wait | None:
    columns = None if wait is None else tx.one("wait", wait)
    return None if columns is None else wait_of(columns)
