"""Intake transitions in memory that start no turn: refusals, overheard messages, edits, unreadable events."""

from __future__ import annotations

from dataclasses import replace

from gateway.domain.ids import InboundId, SessionId
from gateway.domain.messages import Inbound, Received, Refused, RefusedReason
from gateway.domain.routes import Drop, DropReason
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import StepState
from gateway.domain.turns import TurnKind, TurnState
from gateway.store.codec import head
from gateway.store.constants import REFUSAL_EVERY
from gateway.store.memory.inbound_ops import InboundOps, event_of
from gateway.store.memory.rows import TurnRow


class MemoryDrops(InboundOps):
    """`ports.Intake`: `drop`, `amend` and `refuse`."""

    async def drop(self, message: Inbound, drop: Drop, refusal: str) -> bool:
        """Store why a message starts nothing."""
        with self.transition() as now:
            if event_of(message) in self.events:
                return False
            self.events[event_of(message)] = f"drop:{drop.reason}"
            if drop.reason is DropReason.CONTEXT and drop.route is not None:
                session = self.begin(drop.route, message)
                if self.joined_to_album(session, message, TurnKind.MODEL, now) is not None:
                    return True
                received = self.receive(session, message, None, context=True)
                self.all_sessions[session.id].context.append(received.id)
                self.heard[event_of(message)] = (received.id, session.id)
                self.record_overheard(message, received)
            if refusal and self._is_notified(message, drop):
                kind = SlotKind.REPLY if drop.reason is DropReason.UNREADABLE else SlotKind.REFUSAL
                self.add_slot(NewSlot(conversation=message.conversation, kind=kind, text=refusal), None, None)
            return True

    def _is_notified(self, message: Inbound, drop: Drop) -> bool:
        """Return whether to notify the sender now: each time for unreadable events, once a day for the rest."""
        if drop.reason is DropReason.UNREADABLE:
            return True
        now, last = self.clock.now(), self.refused_at.get(message.principal)
        if not drop.told or (last is not None and now - last < REFUSAL_EVERY):
            return False
        self.refused_at[message.principal] = now
        return True

    async def amend(self, message: Inbound) -> bool:
        """Store the new text of a message that no model has read."""
        with self.transition():
            if event_of(message) in self.events:
                return True
            found = self._amendable(message)
            if found is None:
                self.events[event_of(message)] = f"drop:{DropReason.EDITED_LATE}"
                return False
            received, session = found
            self.events[event_of(message)] = f"edit:{received.id}"
            self.put_received(session, replace(received, message=replace(received.message, text=message.text)))
            return True

    def _amendable(self, message: Inbound) -> tuple[Received, SessionId] | None:
        """Return the message that this edits, and its session, while no model has read it."""
        place = message.conversation
        event = (place.channel, place.account, message.edits)
        heard, session = self.heard.get(event, (None, None))
        received = self.inbounds.get(heard or InboundId(self.events.get(event, "")))
        if received is None:
            return None
        row = None if received.turn is None else self.turns[received.turn]
        session = session if row is None else row.turn.session
        theirs = (received.message.principal, received.message.conversation) == (message.principal, place)
        return (received, session) if theirs and session is not None and _is_unread(received, row) else None

    async def refuse(self, refused: Refused) -> bool:
        """Store an event that is no message."""
        with self.transition() as now:
            key = (refused.channel, refused.account, refused.event_key)
            if key in self.events:
                return False
            self.events[key] = f"drop:{refused.reason}"
            if refused.reason is RefusedReason.POISON:
                self.poison[key] = (head(refused.raw), refused.detail, now)
            return True


def _is_unread(received: Received, row: TurnRow | None) -> bool:
    """Return whether no model has read it: none is being asked for its turn, and no answer came.

    An overheard message may have no turn yet.
    """
    if row is None:
        return received.context
    if row.turn.kind is not TurnKind.MODEL or not _is_unasked(row):
        return False
    return not row.steps if received.context else received.given is None


def _is_unasked(row: TurnRow) -> bool:
    """Return whether nobody holds the turn, or one of its calls has no result: until then no model is asked."""
    if row.turn.state is TurnState.RUNNING:
        return any(step.state is not StepState.FINISHED for step in row.steps)
    return row.turn.state in (TurnState.QUEUED, TurnState.PARKED)
