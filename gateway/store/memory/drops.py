"""Intake transitions in memory of what starts nothing: refusals, talk beside the bot, edits, what cannot be read."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from gateway.model.ids import InboundId
from gateway.model.messages import Inbound, Received, Refused, RefusedReason
from gateway.model.sessions import Drop, DropReason, TurnKind
from gateway.model.slots import NewSlot, SlotKind
from gateway.store.codec import head
from gateway.store.memory.arrivals import Arrivals, event_of

REFUSAL_EVERY = timedelta(hours=24)


class MemoryDrops(Arrivals):
    """`ports.Intake`: `drop`, `amend` and `refuse`."""

    async def drop(self, message: Inbound, drop: Drop, refusal: str) -> bool:
        """Store why a message starts nothing."""
        with self.transition():
            if event_of(message) in self.events:
                return False
            self.events[event_of(message)] = f"drop:{drop.reason}"
            if drop.reason is DropReason.CONTEXT and drop.route is not None:
                session = self.begin(drop.route, message)
                received = self.receive(session, message, None, context=True)
                self.all_sessions[session.id].context.append(received.id)
            if refusal and self._is_told(message, drop):
                kind = SlotKind.REPLY if drop.reason is DropReason.UNREADABLE else SlotKind.REFUSAL
                self.add_slot(NewSlot(conversation=message.conversation, kind=kind, text=refusal), None, None)
            return True

    def _is_told(self, message: Inbound, drop: Drop) -> bool:
        """Whether the sender is told now: of what cannot be read each time, of everything else once a day."""
        if drop.reason is DropReason.UNREADABLE:
            return True
        now, last = self.clock.now(), self.refused_at.get(message.principal)
        if not drop.refuse or (last is not None and now - last < REFUSAL_EVERY):
            return False
        self.refused_at[message.principal] = now
        return True

    async def amend(self, message: Inbound) -> bool:
        """Store the new text of a message that was not given yet."""
        with self.transition():
            if event_of(message) in self.events:
                return True
            received = self._amendable(message)
            if received is None:
                self.events[event_of(message)] = f"drop:{DropReason.EDITED_LATE}"
                return False
            self.events[event_of(message)] = f"edit:{received.id}"
            row = self.turns[received.turn] if received.turn is not None else None
            assert row is not None, "only a message of a turn can be amended"
            amended = replace(received, message=replace(received.message, text=message.text))
            self.put_received(row.turn.session, amended)
            return True

    def _amendable(self, message: Inbound) -> Received | None:
        """The message that this is a new text of, while its turn was not given it."""
        place = message.conversation
        known = self.events.get((place.channel, place.account, message.edits), "")
        received = self.inbounds.get(InboundId(known))
        if received is None or received.turn is None or received.given is not None:
            return None
        theirs = (received.message.principal, received.message.conversation) == (message.principal, place)
        return received if theirs and self.turns[received.turn].turn.kind is TurnKind.MODEL else None

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
