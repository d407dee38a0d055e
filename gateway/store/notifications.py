"""Wake-ups to publish after a transition, in every store: changed sessions, turns, work that can be claimed."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.domain.events import (
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
from gateway.domain.ids import SessionId, TurnId
from gateway.ports import EventBus


@dataclass(slots=True)
class Notifications:
    """Changes of one transition, collected for the wake-ups after it."""

    sessions: set[SessionId] = field(default_factory=set[SessionId])
    turns: set[TurnId] = field(default_factory=set[TurnId])
    turns_due: bool = False
    slots_due: bool = False

    def publish(self, events: EventBus) -> None:
        """Publish the wake-ups. Called in the event loop, after the commit."""
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
