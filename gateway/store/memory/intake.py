"""Intake transitions in memory that take effect: messages, control commands, presses."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from gateway.domain.ids import InboundId, Principal, TurnId, WaitId, mint
from gateway.domain.messages import REASON_AT_MOST, Conversation, Inbound, Press
from gateway.domain.routes import Accepted, Route, WhileRunning
from gateway.domain.sessions import Session
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.turns import Turn, TurnKind, TurnState
from gateway.domain.waits import TOO_LATE, Pressed, PressResult, PressVerdict, Wait, WaitState
from gateway.ports import Control, ControlEffect, Waiting
from gateway.store import message_parts
from gateway.store.call_rules import is_stopped_by, result_of_press, stays_a_message, stop_words
from gateway.store.constants import HELD, INTERRUPTED_TEXT
from gateway.store.memory.inbound_ops import InboundOps, event_of
from gateway.store.memory.rows import TurnRow


class MemoryIntake(InboundOps):
    """`ports.Intake`: `accept`, `control` and `press`."""

    async def accept(
        self, route: Route, message: Inbound, kind: TurnKind, *, running: WhileRunning, say_if_waiting: Waiting | None
    ) -> Accepted:
        """Store the message and its turn."""
        with self.transition() as now:
            known = self.events.get(event_of(message))
            if known is not None:
                received = self.inbounds.get(InboundId(known))
                turn = received.turn if received and received.turn else TurnId("")
                return Accepted(inbound=received.id if received else InboundId(""), turn=turn, duplicate=True)
            session = self.begin(route, message)
            album = self.joined_to_album(session, message, kind, now)
            if album is not None:
                return self._joined(album, session)
            beside = self.beside(session, message)
            continued = self._continued(session, message, kind, now)
            kind = kind if continued is None else continued.turn.kind
            active = self._active(session) if kind is TurnKind.MODEL else None
            same = active if active is not None and _may_steer(active.turn, message) else None
            if same is not None and running is WhileRunning.INTERRUPT and continued is None:
                self.stop(same, INTERRUPTED_TEXT)
                active = None
            parked = active if active is not None and active.turn.state is TurnState.PARKED else None
            joined = same if running is WhileRunning.STEER and not message.album else None
            row = continued or joined or self._begin_turn(session, message, kind, now, beside)
            continues = continued is not None or bool(beside)
            received = self.receive(session, message, row.turn.id, continues=continues)
            self.events[event_of(message)] = received.id
            row.inputs.append(received.id)
            if row is not joined:
                self.hold_for_more(row, message, now)
            else:
                self.touched.turns.add(row.turn.id)
            self.offer(row)
            if parked is not None and say_if_waiting is not None and continued is None:
                self._reply_that_it_waits(session, message, parked, say_if_waiting)
            return Accepted(inbound=received.id, turn=row.turn.id, steered=row is joined, waiting=parked is not None)

    def _joined(self, row: TurnRow, session: Session) -> Accepted:
        """Return the outcome for a message that joined the turn of its album as its last one."""
        active = self._active(session) if row.turn.kind is TurnKind.MODEL else None
        waiting = active is not None and active.turn.state is TurnState.PARKED
        return Accepted(inbound=row.inputs[-1], turn=row.turn.id, steered=row is active, waiting=waiting)

    def _reply_that_it_waits(self, session: Session, message: Inbound, parked: TurnRow, say: Waiting) -> None:
        waits = [self.waits[one] for one in parked.waits]
        text = say.text([wait.kind for wait in waits if wait.state is WaitState.OPEN])
        if text:
            reply = NewSlot(conversation=message.conversation, kind=SlotKind.REPLY, text=text)
            self.add_slot(reply, session.id, None)

    def _continued(self, session: Session, message: Inbound, kind: TurnKind, now: datetime) -> TurnRow | None:
        """Return the turn that waits for this continuation. If the message is none, that turn waits no longer."""
        for row in reversed(self.holding.values()):
            turn, waits = row.turn, row.held_until is not None and row.held_until > now
            theirs = (turn.principal, turn.conversation) == (message.principal, message.conversation)
            if waits and theirs and turn.session == session.id:
                last = self.parts(row)[-1].message
                if message_parts.goes_on(message, kind, last.event_key, was_cut=last.cut):
                    return row
                self.hold_back(row, None)
                self.offer(row)
                return None
        return None

    def _begin_turn(
        self, session: Session, message: Inbound, kind: TurnKind, now: datetime, beside: Collection[InboundId]
    ) -> TurnRow:
        """Begin a turn. `beside`: overheard messages of the same album, which become part of it."""
        row = self.add_turn(_new_turn(session, message, kind, now))
        self.album_begins(message, row)
        heard = self.all_sessions[session.id].context
        taken = [*heard] if kind is TurnKind.MODEL else [one for one in heard if one in beside]
        for received in [self.inbounds[one] for one in taken]:
            if received.id in beside:
                first = not self.parts(row)
                given = replace(received, turn=row.turn.id, context=False, continues=not first)
            else:
                # Context counts as given before the first step, whatever that step names: nothing waits for it.
                given = replace(received, turn=row.turn.id, given=0)
            self.put_received(session.id, given)
            row.inputs.append(received.id)
            heard.remove(received.id)
        return row

    async def control(self, route: Route, message: Inbound, control: Control) -> int | None:
        """Store a control command with its effect and reply."""
        with self.transition():
            if event_of(message) in self.events:
                return None
            session = self.begin(route, message)
            self.events[event_of(message)] = self.receive(session, message, None).id
            stopped = 0 if control.effect is ControlEffect.NONE else self._stop(session, control, message.conversation)
            if control.effect is ControlEffect.RESET:
                self._reset(session)
            idle = control.effect is ControlEffect.STOP and stopped == 0
            text = control.idle if idle else control.reply
            self.add_slot(NewSlot(conversation=message.conversation, kind=SlotKind.REPLY, text=text), session.id, None)
            return stopped

    async def press(self, press: Press, wait: WaitId | None, verdict: PressVerdict) -> Pressed:
        """Store a press and decide its wait, once."""
        with self.transition() as now:
            found = self.waits.get(wait) if wait is not None else None
            result = result_of_press(found, verdict, now)
            if stays_a_message(result, verdict):
                return Pressed(result=result, wait=found)
            if event_of(press) in self.events:
                return Pressed(result=PressResult.DUPLICATE, wait=found)
            self.events[event_of(press)] = f"press:{result}"
            if found is not None and result in TOO_LATE:
                self.show_given_up(found.id)
            if found is None or result not in (PressResult.APPROVED, PressResult.DENIED):
                return Pressed(result=result, wait=found)
            self._decide(press, found, verdict, now)
            return Pressed(result=result, wait=self.waits[found.id])

    def _decide(self, press: Press, wait: Wait, verdict: PressVerdict, now: datetime) -> None:
        decided = replace(
            wait, state=verdict.state, decided_by=press.principal, decided_at=now, reason=press.reason[:REASON_AT_MOST]
        )
        self.put_wait(decided)
        row = self.turns[wait.turn]
        if verdict.withdraw_siblings:
            answer_n = row.steps[wait.n].answer_n
            others = [self.waits[w] for w in row.waits if row.steps[self.waits[w].n].answer_n == answer_n]
            self.cancel_waits(w for w in others if w.state is WaitState.OPEN)
        self.wake(row)

    def _active(self, session: Session) -> TurnRow | None:
        """Return the session's started and not ended model turn: only the oldest can be it."""
        row = next(iter(self.lane(session.id, TurnKind.MODEL).turns.values()), None)
        return row if row is not None and row.turn.started_at is not None else None

    def _stop(self, session: Session, control: Control, here: Conversation) -> int:
        """Stop the session's running turns, its reports of ended children, and all turns below. Return how many.

        `here`: the conversation of the command's reply; turns there need no text of their own.
        """
        unheard = {row.turn.id for row in self.unheard_ends(session.id)}
        rows = [row for row in self._unended(session) if self._is_stopped(row.turn, control.only, unheard)]
        stopped = {row.turn.id for row in [*rows, *self.unended_below(session.id, control.only)]}
        for row in rows:
            self.stop(row, stop_words(control.stopped_text, row.turn.conversation, here))
        self.stop_below(session.id, control.stopped_text, control.only)
        return len(stopped)

    def _is_stopped(self, turn: Turn, only: Principal | None, unheard: Collection[TurnId]) -> bool:
        begun = turn.started_at is not None
        return is_stopped_by(only, turn.id, turn.principal, turn.state, begun=begun, unheard=unheard)

    def _reset(self, session: Session) -> None:
        row = self.all_sessions[session.id]
        row.session, row.summed_up = replace(row.session, epoch=row.session.epoch + 1, summary=""), 0
        row.context.clear()
        for turn_row in self._unended(session):
            if turn_row.turn.state not in HELD:
                self.put_turn(turn_row, replace(turn_row.turn, epoch=row.session.epoch))

    def _unended(self, session: Session) -> list[TurnRow]:
        return [row for kind in TurnKind for row in self.lane(session.id, kind).turns.values()]


def _may_steer(turn: Turn, message: Inbound) -> bool:
    return (
        turn.principal == message.principal
        and turn.conversation == message.conversation
        and turn.state is not TurnState.STOPPING
    )


def _new_turn(session: Session, message: Inbound, kind: TurnKind, now: datetime) -> Turn:
    return Turn(
        id=TurnId(mint("t")),
        session=session.id,
        epoch=session.epoch,
        kind=kind,
        state=TurnState.QUEUED,
        conversation=message.conversation,
        principal=message.principal,
        created_at=now,
        started_at=None,
        ended_at=None,
        active_ms=0,
    )
