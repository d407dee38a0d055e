"""Who has to be woken after a transition, in every store: sessions that changed, turns, and what can be taken now."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.domain.ids import SessionId, TurnId
from gateway.domain.live import (
    SESSIONS,
    SLOTS,
    TURNS,
    Changed,
    SlotsDue,
    TurnsDue,
    TurnWoken,
    session_topic,
    turn_topic,
)
from gateway.ports import EventBus


@dataclass(slots=True)
class Notifications:
    """What a transition changed, for the wake-ups after it."""

    sessions: set[SessionId] = field(default_factory=set[SessionId])
    turns: set[TurnId] = field(default_factory=set[TurnId])
    turns_due: bool = False
    slots_due: bool = False

    def publish(self, events: EventBus) -> None:
        """Wake whoever must know. Called in the event loop, after the commit."""
        for session in self.sessions:
            changed = Changed(session=session)
            events.publish(session_topic(session), changed)
            events.publish(SESSIONS, changed)
        for turn in self.turns:
            events.publish(turn_topic(turn), TurnWoken(turn=turn))
        if self.turns_due:
            events.publish(TURNS, TurnsDue())
        if self.slots_due:
            events.publish(SLOTS, SlotsDue())
