"""Shared steps of the memory store's intake transitions: sessions, messages, albums."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from gateway.domain.ids import InboundId, SessionId, TurnId, mint
from gateway.domain.messages import Inbound, Press, Received
from gateway.domain.routes import Route
from gateway.domain.sessions import Session
from gateway.domain.slots import shown_when_stored
from gateway.domain.turns import TurnKind
from gateway.store import message_parts
from gateway.store.memory.rows import TurnRow
from gateway.store.memory.turn_ops import TurnOps


class InboundOps(TurnOps):
    """Steps shared by the intake transitions."""

    def begin(self, route: Route, message: Inbound) -> Session:
        """Create the session, or mark it active. Record a direct conversation as where its person can be reached."""
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
            message=replace(message, follows="", album=""),  # used on arrival only, never stored
            given=None,
            received_at=self.clock.now(),
            context=context,
            continues=continues,
        )
        self.put_received(session.id, received)
        return received

    # --- albums -----------------------------------------------------------------------------

    def joined_to_album(self, session: Session, message: Inbound, kind: TurnKind, now: datetime) -> TurnRow | None:
        """Store a message in the turn of its album, if there is one that takes it. Return that turn."""
        row = self.turns.get(self.albums[_album(message)]) if _album(message) in self.albums else None
        if row is None or not _is_theirs(row, session.id, message):
            return None
        turn = row.turn
        fate = message_parts.fate(kind, turn.kind, turn.state, begun=turn.started_at is not None)
        if fate is message_parts.Fate.APART:
            return None
        received = self.receive(session, message, turn.id, continues=True)
        self.events[event_of(message)] = received.id
        row.inputs.append(received.id)
        if fate is message_parts.Fate.JOINS:
            self.hold_for_more(row, message, now)
        else:
            self.touched.turns.add(turn.id)
        self.offer(row)
        return row

    def album_begins(self, message: Inbound, row: TurnRow) -> None:
        """Record the turn that further messages of the album join."""
        if message.album:
            self.albums[_album(message)] = row.turn.id
            self.album_heard.pop(_album(message), None)

    def record_overheard(self, message: Inbound, received: Received) -> None:
        """Record an overheard message of an album: a later one may address the bot."""
        if message.album:
            self.album_heard.setdefault(_album(message), []).append(received.id)

    def beside(self, session: Session, message: Inbound) -> list[InboundId]:
        """Return the earlier overheard messages of this one's album, by the same person."""
        heard = [self.inbounds[one] for one in self.album_heard.get(_album(message), ())]
        context = self.all_sessions[session.id].context
        return [one.id for one in heard if one.message.principal == message.principal and one.id in context]

    def parts(self, row: TurnRow) -> list[Received]:
        """Return a turn's messages without the overheard ones."""
        return [one for one in (self.inbounds[i] for i in row.inputs) if not one.context]

    def hold_for_more(self, row: TurnRow, message: Inbound, now: datetime) -> None:
        """Hold the turn for more of its last message, or make it due."""
        parts = self.parts(row)
        self.hold_back(row, message_parts.held_until(message, part=len(parts), first_at=parts[0].received_at, now=now))


def event_of(event: Inbound | Press) -> tuple[str, str, str]:
    """Return the key that identifies an event."""
    return (event.conversation.channel, event.conversation.account, event.event_key)


def _album(message: Inbound) -> tuple[str, str, str]:
    return (message.conversation.channel, message.conversation.account, message.album)


def _is_theirs(row: TurnRow, session: SessionId, message: Inbound) -> bool:
    turn = row.turn
    same = (turn.principal, turn.conversation) == (message.principal, message.conversation)
    return same and turn.session == session
