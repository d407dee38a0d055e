"""Intake transitions in SQLite that take effect: messages, control commands, presses."""

from __future__ import annotations

from collections.abc import Collection

from gateway.domain.ids import SYSTEM_CHILD, InboundId, SessionId, TurnId, WaitId, mint
from gateway.domain.messages import CONTEXT_KEPT, REASON_AT_MOST, Conversation, Inbound, Press
from gateway.domain.routes import Accepted, Route, WhileRunning
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.turns import TurnKind, TurnState
from gateway.domain.waits import TOO_LATE, Pressed, PressResult, PressVerdict, Wait, WaitKind, WaitState
from gateway.ports import Control, ControlEffect, Waiting
from gateway.store import message_parts
from gateway.store.call_rules import is_stopped_by, result_of_press, stays_a_message, stop_words
from gateway.store.codec import dump_conversation, load_conversation
from gateway.store.constants import HELD, INTERRUPTED_TEXT
from gateway.store.sqlite import albums, inbound_ops, slot_ops, turn_ops
from gateway.store.sqlite.base import SqliteBase
from gateway.store.sqlite.rows import TurnColumns, wait_of
from gateway.store.sqlite.tx import Tx


class SqliteIntake(SqliteBase):
    """`ports.Intake`: `accept`, `control` and `press`."""

    async def accept(
        self, route: Route, message: Inbound, kind: TurnKind, *, running: WhileRunning, say_if_waiting: Waiting | None
    ) -> Accepted:
        """Store the message and its turn."""
        return await self.write(lambda tx: _accept(tx, route, message, kind, running, say_if_waiting))

    async def control(self, route: Route, message: Inbound, control: Control) -> int | None:
        """Store a control command with its effect and reply."""
        return await self.write(lambda tx: _control(tx, route, message, control))

    async def press(self, press: Press, wait: WaitId | None, verdict: PressVerdict) -> Pressed:
        """Store a press and decide its wait, once."""
        return await self.write(lambda tx: _press(tx, press, wait, verdict))


def _accept(
    tx: Tx, route: Route, message: Inbound, kind: TurnKind, running: WhileRunning, say: Waiting | None
) -> Accepted:
    known = inbound_ops.known(tx, message)
    if known is not None:
        return known
    place, (epoch, context_from) = dump_conversation(message.conversation), inbound_ops.begin(tx, route, message)
    album = albums.joined(tx, route.session, message, kind)
    if album is not None:
        return _joined(tx, *album)
    continued = _continued(tx, route.session, message, kind, place)
    kind = kind if continued is None else TurnKind(continued.kind)
    head = _lane_head(tx, route.session) if kind is TurnKind.MODEL else None
    active = head if head is not None and head.started_at is not None else None
    same = active if active is not None and _may_steer(active, message, place) else None
    if same is not None and running is WhileRunning.INTERRUPT and continued is None:
        turn_ops.stop(tx, same, INTERRUPTED_TEXT)
        active, head = None, _lane_head(tx, route.session)
    parked = active if active is not None and active.state == TurnState.PARKED else None
    joined = same if running is WhileRunning.STEER and not message.album else None
    continues = continued is not None
    if continued is not None:
        turn = continued.id
    elif joined is not None:
        turn = joined.id
        turn_ops.offer(tx, joined)
        tx.touched.turns.add(turn)
    else:
        turn = _add_turn(tx, route.session, epoch, message, place, kind, first=head is None)
        continues = albums.begins(tx, route.session, message, turn)
        if context_from and kind is TurnKind.MODEL:
            _give_context(tx, route.session, turn, context_from)
    inbound = InboundId(mint("i"))
    inbound_ops.is_new(tx, message, f"{inbound} {turn}")
    inbound_ops.add_message(tx, route.session, turn, inbound, message, continues=continues)
    if parked is not None and say is not None and continued is None:
        _reply_that_it_waits(tx, route, message, parked, say)
    steered = continued is None and joined is not None
    return Accepted(inbound=inbound, turn=turn, steered=steered, waiting=parked is not None)


def _joined(tx: Tx, inbound: InboundId, row: TurnColumns) -> Accepted:
    """Return the outcome for a message that joined the turn of its album."""
    head = _lane_head(tx, row.session) if row.kind == TurnKind.MODEL else None
    active = head if head is not None and head.started_at is not None else None
    waiting = active is not None and active.state == TurnState.PARKED
    return Accepted(inbound=inbound, turn=row.id, steered=row.started_at is not None, waiting=waiting)


def _reply_that_it_waits(tx: Tx, route: Route, message: Inbound, parked: TurnColumns, say: Waiting) -> None:
    undecided = tx.run("undecided_of_turn", parked.id)
    text = say.text([WaitKind(kind) for _, _, kind, state in undecided if state == WaitState.OPEN])
    if text:
        reply = NewSlot(conversation=message.conversation, kind=SlotKind.REPLY, text=text)
        slot_ops.add_slot(tx, reply, route.session, None)


def _continued(tx: Tx, session: SessionId, message: Inbound, kind: TurnKind, place: str) -> TurnColumns | None:
    """Return the turn that waits for this continuation. If the message is none, that turn waits no longer."""
    columns = tx.one("held_turn", session, tx.now, message.principal, place)
    if columns is None:
        return None
    row, parts = TurnColumns(*columns), tx.run("parts", columns[1])
    joins = message_parts.goes_on(message, kind, parts[-1][1], was_cut=bool(parts[-1][2]))
    until = albums.held_until(tx, message, part=len(parts) + 1, first_at=parts[0][0]) if joins else None
    tx.run("hold_turn", until, row.ord)
    if until is None:
        turn_ops.offer(tx, row)
    return row if joins else None


def _give_context(tx: Tx, session: SessionId, turn: TurnId, since: int) -> None:
    """Give a new turn the last overheard messages; older ones are never given."""
    for (ord_,) in reversed(tx.run("context", session, since, CONTEXT_KEPT)):
        tx.run("give_context", turn, tx.next_rev(session), ord_)
    tx.run("forget_context", session)


def _control(tx: Tx, route: Route, message: Inbound, control: Control) -> int | None:
    inbound = InboundId(mint("i"))
    if not inbound_ops.is_new(tx, message, inbound):
        return None
    inbound_ops.begin(tx, route, message)
    inbound_ops.add_message(tx, route.session, None, inbound, message)
    stopped = 0 if control.effect is ControlEffect.NONE else _stop(tx, route.session, control, message.conversation)
    if control.effect is ControlEffect.RESET:
        _reset(tx, route.session)
    idle = control.effect is ControlEffect.STOP and stopped == 0
    text = control.idle if idle else control.reply
    reply = NewSlot(conversation=message.conversation, kind=SlotKind.REPLY, text=text)
    slot_ops.add_slot(tx, reply, route.session, None)
    return stopped


def _press(tx: Tx, press: Press, wait: WaitId | None, verdict: PressVerdict) -> Pressed:
    found = _find_wait(tx, wait)
    result = result_of_press(found, verdict, tx.moment)  # the one writer thread: nothing changes meanwhile
    if stays_a_message(result, verdict):
        return Pressed(result=result, wait=found)
    if not inbound_ops.is_new(tx, press, f"press:{result}"):
        return Pressed(result=PressResult.DUPLICATE, wait=found)
    if found is not None and result in TOO_LATE:
        slot_ops.show_given_up(tx, found.id)
    if found is None or result not in (PressResult.APPROVED, PressResult.DENIED):
        return Pressed(result=result, wait=found)
    rev = tx.next_rev(found.session)
    tx.run("decide_wait", verdict.state, press.principal, tx.now, press.reason[:REASON_AT_MOST], rev, found.id)
    slot_ops.show_anew(tx, found.id)
    row = turn_ops.stored_turn(tx, found.turn)
    if verdict.withdraw_siblings:
        step = tx.one("step", found.turn, found.n)
        answer_n = step[2] if step is not None else None
        siblings = tx.run("open_siblings", found.turn, answer_n)
        turn_ops.cancel_waits(tx, row, ((other, n, kind) for other, n, kind in siblings))
    turn_ops.wake(tx, row)
    return Pressed(result=result, wait=_find_wait(tx, wait))


# --- shared ---------------------------------------------------------------------------------


def _lane_head(tx: Tx, session: SessionId) -> TurnColumns | None:
    columns = tx.one("lane_head", session, TurnKind.MODEL)
    return None if columns is None else TurnColumns(*columns)


def _add_turn(
    tx: Tx, session: SessionId, epoch: int, message: Inbound, place: str, kind: TurnKind, *, first: bool
) -> TurnId:
    turn = TurnId(mint("t"))
    tx.rev += 1
    queued_rev, rev = tx.rev, tx.next_rev(session)
    head = first or kind is TurnKind.COMMAND
    held_until = albums.held_until(tx, message, part=1, first_at=tx.now)
    tx.run("add_turn", rev, turn, session, epoch, kind, place, message.principal, tx.now, head, queued_rev, held_until)
    if held_until is not None:
        return turn
    if kind is TurnKind.COMMAND:
        row = turn_ops.stored_turn(tx, turn)
        turn_ops.offer(tx, row)
    else:
        tx.touched.turns_due |= first
    return turn


def _may_steer(turn: TurnColumns, message: Inbound, place: str) -> bool:
    same = turn.principal == message.principal and turn.conversation == place
    return same and turn.state != TurnState.STOPPING


def _unended(tx: Tx, session: SessionId) -> list[TurnColumns]:
    return [TurnColumns(*columns) for kind in TurnKind for columns in tx.run("lane", session, kind)]


def _stop(tx: Tx, session: SessionId, control: Control, here: Conversation) -> int:
    """Stop the session's running turns, its reports of ended children, and all turns below. Return how many.

    `here`: the conversation of the command's reply; turns there need no text of their own.
    """
    unheard = {turn for turn, *_ in tx.run("unheard_ends", session, SYSTEM_CHILD)}
    rows = [row for row in _unended(tx, session) if _is_stopped(row, control, unheard)]
    stopped = {row.id for row in rows} | set(turn_ops.unended_below(tx, session, control.only))
    for row in rows:
        turn_ops.stop(tx, row, stop_words(control.stopped_text, load_conversation(row.conversation), here))
    turn_ops.stop_below(tx, session, control.stopped_text, control.only)
    return len(stopped)


def _is_stopped(row: TurnColumns, control: Control, unheard: Collection[TurnId]) -> bool:
    begun = row.started_at is not None
    return is_stopped_by(control.only, row.id, row.principal, row.state, begun=begun, unheard=unheard)


def _reset(tx: Tx, session: SessionId) -> None:
    ((epoch,),) = tx.run("raise_epoch", session)
    for row in _unended(tx, session):
        if row.state not in HELD:
            tx.run("set_turn_epoch", epoch, tx.next_rev(session), row.ord)


def _find_wait(tx: Tx, wait: WaitId | None) -> Wait | None:
    columns = None if wait is None else tx.one("wait", wait)
    return None if columns is None else wait_of(columns)
