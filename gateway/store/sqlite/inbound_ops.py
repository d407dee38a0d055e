"""Shared steps of the SQLite store's intake transitions: events, sessions, messages."""

from __future__ import annotations

from gateway.domain.ids import InboundId, SessionId, TurnId
from gateway.domain.messages import Conversation, Inbound, Press
from gateway.domain.routes import Accepted, Route
from gateway.domain.slots import shown_when_stored
from gateway.store.codec import ATTACHMENTS, dump_conversation, to_us
from gateway.store.sqlite.tx import Tx


def is_new(tx: Tx, event: Inbound | Press, outcome: str) -> bool:
    """Store the event. Return False, and write nothing, when it was stored before."""
    place = event.conversation
    return tx.count("add_event", place.channel, place.account, event.event_key, outcome) > 0


def known(tx: Tx, message: Inbound) -> Accepted | None:
    """Return the outcome for a message whose event was stored before, as a message or otherwise."""
    place = message.conversation
    outcome = outcome_of(tx, place, message.event_key)
    if outcome is None:
        return None
    inbound, turn = message_of(outcome)
    return Accepted(inbound=inbound, turn=turn, duplicate=True)


def outcome_of(tx: Tx, place: Conversation, event_key: str) -> str | None:
    """Return the outcome of an event of the place's account, if it was stored."""
    found = tx.one("event_outcome", place.channel, place.account, event_key)
    return None if found is None else str(found[0])


def message_of(outcome: str) -> tuple[InboundId, TurnId]:
    """Return the message that an event became and its turn; empty ids when it became none."""
    inbound, _, turn = outcome.partition(" ")
    return (InboundId(""), TurnId("")) if ":" in inbound else (InboundId(inbound), TurnId(turn))


def begin(tx: Tx, route: Route, message: Inbound) -> tuple[int, int]:
    """Create the session, or mark it active. Record a direct conversation as where its person can be reached.

    Return the session's epoch, and the place of the first overheard message to give to the model; 0: none.
    """
    way = (route.session, route.kind, route.origin, route.owner, route.title)
    ((epoch, context_from),) = tx.run("use_session", *way, tx.now)
    if message.direct:
        place = dump_conversation(message.conversation)
        tx.run("saw_person", message.principal, place, tx.now)
        if route.owner is not None and not shown_when_stored(message.conversation):
            tx.run("saw_owner_chat", route.owner, place)
    return epoch, context_from


def add_message(
    tx: Tx,
    session: SessionId,
    turn: TurnId | None,
    inbound: InboundId,
    message: Inbound,
    *,
    context: bool = False,
    continues: bool = False,
) -> int:
    """Store a message. Return its place in the session."""
    stored = (inbound, session, turn, tx.now, message.event_key, dump_conversation(message.conversation))
    who = (message.principal, message.name, message.direct, message.addressed)
    what = (message.text, to_us(message.sent_at), message.quoted, message.reply_to, message.unread, message.cut)
    attachments = ATTACHMENTS.dump(message.attachments) if message.attachments else None
    ord_ = tx.next_rev(session)
    tx.run("add_message", ord_, *stored, *who, *what, attachments, context, continues)
    return ord_
