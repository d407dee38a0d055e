"""What the memory store's transitions of intake share: which event it is, its session, its message."""

from __future__ import annotations

from dataclasses import replace

from gateway.domain.ids import InboundId, TurnId, mint
from gateway.domain.messages import Inbound, Press, Received
from gateway.domain.routes import Route
from gateway.domain.sessions import Session
from gateway.domain.slots import shown_when_stored
from gateway.store.memory.turn_ops import TurnOps


class InboundOps(TurnOps):
    """What several transitions of intake do with what arrived."""

    def begin(self, route: Route, message: Inbound) -> Session:
        """Make the session, or mark it active. A direct message's place is where its person can be reached."""
        now, row = self.clock.now(), self.use_session(route)
        row.session = replace(row.session, active_at=now, title=route.title)
        if message.direct:
            self.people[message.principal] = (message.conversation, now)
            if route.owner is not None and not shown_when_stored(message.conversation):
                self.owner_chats[route.owner] = message.conversation
        return row.session

    def receive(
        self, session: Session, message: Inbound, turn: TurnId | None, *, context: bool = False, continues: bool = False
    ) -> Received:
        """Store a message."""
        received = Received(
            id=InboundId(mint("i")),
            turn=turn,
            message=replace(message, follows="", album=""),  # of use on arrival only; no store keeps them
            given=None,
            received_at=self.clock.now(),
            context=context,
            continues=continues,
        )
        self.put_received(session.id, received)
        return received


def event_of(event: Inbound | Press) -> tuple[str, str, str]:
    """What an event is known by."""
    return (event.conversation.channel, event.conversation.account, event.event_key)
