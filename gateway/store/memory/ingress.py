"""Intake transitions in memory: messages, refusals, control commands, presses."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from gateway.model.ids import InboundId, Principal, TurnId, WaitId, mint
from gateway.model.messages import Inbound, Press, Received
from gateway.model.sessions import Accepted, Drop, Route, Session, Turn, TurnKind, TurnState
from gateway.model.slots import NewSlot, SlotKind, shown_when_stored
from gateway.model.waits import Pressed, PressResult, Verdict, Wait, WaitKind, WaitState
from gateway.ports import Control, ControlEffect
from gateway.store.memory.rows import HELD, SessionRow, TurnRow
from gateway.store.memory.turns import Turns

REFUSAL_EVERY = timedelta(hours=24)


class MemoryIntake(Turns):
    """`ports.Intake`."""

    async def accept(
        self, route: Route, message: Inbound, kind: TurnKind, *, steer: bool, say_if_waiting: str
    ) -> Accepted:
        """Store the message and its turn."""
        with self.transition() as now:
            known = self.events.get(_key(message))
            if known is not None:
                received = self.inbounds.get(InboundId(known))
                turn = received.turn if received and received.turn else TurnId("")
                return Accepted(inbound=received.id if received else InboundId(""), turn=turn, duplicate=True)
            session = self._session(route, now)
            self._saw(route, message, now)
            active = self._active(session) if kind is TurnKind.MODEL else None
            parked = active is not None and active.turn.state is TurnState.PARKED
            joined = active if steer and active is not None and _may_steer(active.turn, message) else None
            row = joined or self.add_turn(_new_turn(session, message, kind, now))
            received = self._receive(session, message, row.turn.id, now)
            row.inputs.append(received.id)
            self.offer(row)
            if joined is not None:
                self.touched.turns.add(row.turn.id)
            if parked and say_if_waiting:
                reply = NewSlot(conversation=message.conversation, kind=SlotKind.REPLY, text=say_if_waiting)
                self.add_slot(reply, session.id, None)
            return Accepted(inbound=received.id, turn=row.turn.id, steered=joined is not None, waiting=parked)

    async def drop(self, message: Inbound, drop: Drop, refusal: str) -> bool:
        """Store why a message starts nothing."""
        with self.transition() as now:
            if _key(message) in self.events:
                return False
            self.events[_key(message)] = f"drop:{drop.reason}"
            last = self.refused_at.get(message.principal)
            if drop.refuse and refusal and (last is None or now - last >= REFUSAL_EVERY):
                self.refused_at[message.principal] = now
                self.add_slot(NewSlot(conversation=message.conversation, kind=SlotKind.REPLY, text=refusal), None, None)
            return True

    async def control(self, route: Route, message: Inbound, control: Control) -> int | None:
        """Store a control command with its effect and reply."""
        with self.transition() as now:
            if _key(message) in self.events:
                return None
            session = self._session(route, now)
            self._saw(route, message, now)
            self._receive(session, message, None, now)
            stopped = 0 if control.effect is ControlEffect.NONE else self._stop(session, control)
            if control.effect is ControlEffect.RESET:
                self._reset(session)
            idle = control.effect is ControlEffect.STOP and stopped == 0
            text = (control.idle if idle else control.reply).replace("{n}", str(stopped))
            self.add_slot(NewSlot(conversation=message.conversation, kind=SlotKind.REPLY, text=text), session.id, None)
            return stopped

    async def press(self, press: Press, wait: WaitId | None, verdict: Verdict) -> Pressed:
        """Store a press and decide its wait, once."""
        with self.transition() as now:
            found = self.waits.get(wait) if wait is not None else None
            if _key(press) in self.events:
                return Pressed(result=PressResult.DUPLICATE, wait=found)
            result = self._decide(press, found, verdict, now)
            self.events[_key(press)] = f"press:{result}"
            return Pressed(result=result, wait=self.waits.get(wait) if wait is not None else None)

    def _decide(self, press: Press, wait: Wait | None, verdict: Verdict, now: datetime) -> PressResult:
        if verdict.refusal is not None or wait is None or wait.kind is not WaitKind.APPROVAL:
            return verdict.refusal or PressResult.NOT_VALID
        if wait.state in (WaitState.EXPIRED, WaitState.SUPERSEDED):
            return PressResult.EXPIRED
        if wait.state is not WaitState.OPEN:
            return PressResult.ALREADY
        if wait.expires_at <= now:
            return PressResult.EXPIRED
        decided = replace(
            wait, state=verdict.state, decided_by=press.principal, decided_at=now, reason=press.reason[:1000]
        )
        self.put_wait(decided)
        row = self.turns[wait.turn]
        if verdict.withdraw_siblings:
            answer_n = row.steps[wait.n].answer_n
            others = [self.waits[w] for w in row.waits if row.steps[self.waits[w].n].answer_n == answer_n]
            self.cancel_waits(w for w in others if w.state is WaitState.OPEN)
        self.wake(row)
        return PressResult.APPROVED if verdict.state is WaitState.APPROVED else PressResult.DENIED

    def _session(self, route: Route, now: datetime) -> Session:
        row = self.all_sessions.get(route.session)
        if row is None:
            session = Session(
                id=route.session,
                kind=route.kind,
                origin=route.origin,
                owner=route.owner,
                title=route.title,
                epoch=0,
                root_kind=route.kind,
                created_at=now,
                active_at=now,
            )
            row = self.all_sessions[route.session] = SessionRow(session, 0)
        row.session = replace(row.session, active_at=now, title=route.title)
        return row.session

    def _saw(self, route: Route, message: Inbound, now: datetime) -> None:
        if not message.direct:
            return
        self.people[message.principal] = (message.conversation, now)
        if route.owner is not None and not shown_when_stored(message.conversation):
            self.owner_chats[route.owner] = message.conversation

    def _active(self, session: Session) -> TurnRow | None:
        """The session's model turn that was started and not ended: only the oldest can be it."""
        row = next(iter(self.lane(session.id, TurnKind.MODEL).turns.values()), None)
        return row if row is not None and row.turn.started_at is not None else None

    def _receive(self, session: Session, message: Inbound, turn: TurnId | None, now: datetime) -> Received:
        received = Received(id=InboundId(mint("i")), turn=turn, message=message, given=None, received_at=now)
        self.events[_key(message)] = received.id
        self.put_received(session.id, received)
        return received

    def _stop(self, session: Session, control: Control) -> int:
        stopped = [row for row in self._unended(session) if _is_under_way(row.turn, control.only)]
        for row in stopped:
            self.stop(row, control.stopped_text)
        return len(stopped)

    def _reset(self, session: Session) -> None:
        row = self.all_sessions[session.id]
        row.session = replace(row.session, epoch=row.session.epoch + 1)
        for turn_row in self._unended(session):
            if turn_row.turn.state not in HELD:
                self.put_turn(turn_row, replace(turn_row.turn, epoch=row.session.epoch))

    def _unended(self, session: Session) -> list[TurnRow]:
        return [row for kind in TurnKind for row in self.lane(session.id, kind).turns.values()]


def _key(event: Inbound | Press) -> tuple[str, str, str]:
    return (event.conversation.channel, event.conversation.account, event.event_key)


def _may_steer(turn: Turn, message: Inbound) -> bool:
    return (
        turn.principal == message.principal
        and turn.conversation == message.conversation
        and turn.state is not TurnState.STOPPING
    )


def _is_under_way(turn: Turn, only: Principal | None) -> bool:
    theirs = only is None or turn.principal == only
    return theirs and turn.started_at is not None and turn.state is not TurnState.STOPPING


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
