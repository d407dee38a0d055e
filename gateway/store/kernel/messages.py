"""Steps of ingress's transitions: events, sessions, messages, albums."""

from __future__ import annotations

from datetime import datetime

from gateway.domain.ids import SYSTEM_HOME, InboundId, SessionId, TurnId
from gateway.domain.messages import CONTEXT_KEPT, Inbound, Press, Received
from gateway.domain.routes import Route, empty_session
from gateway.domain.slots import shown_when_stored
from gateway.domain.turns import TurnKind
from gateway.store import message_parts
from gateway.store.codec import dump_conversation, to_us
from gateway.store.kernel import turns
from gateway.store.kernel.part import EventKey, Part
from gateway.store.kernel.rows import Fact, SessionRow, TurnRow, changed

PEOPLE, OWNER_CHATS = "person", "owner-chat"
"""Namespaces of facts: the last direct conversation of a person, and the last one of an owner off the page."""
TURN, HEARD = "turn ", "heard "
"""Prefixes of an album's outcome: the turn of its messages, or its messages that were only overheard."""


def event_of(event: Inbound | Press) -> EventKey:
    """Return the key that identifies an event."""
    return (event.conversation.channel, event.conversation.account, event.event_key)


def message_of(outcome: str) -> tuple[InboundId, TurnId]:
    """Return the message that an event became and its turn; empty ids when it became none."""
    inbound, _, turn = outcome.partition(" ")
    return (InboundId(""), TurnId("")) if ":" in inbound else (InboundId(inbound), TurnId(turn))


def use_session(part: Part, route: Route) -> SessionRow:
    """Return the session, created when absent."""
    row = part.sessions.get(route.session)
    if row is None:
        row = SessionRow(session=empty_session(route, part.now))
        part.sessions.put(route.session, row)
    return row


def begin(part: Part, route: Route, message: Inbound) -> SessionRow:
    """Create the session, or mark it active. Record a direct conversation as where its person can be reached."""
    row = use_session(part, route)
    row = part.set_session(route.session, session=changed(row.session, active_at=part.now, title=route.title))
    if message.direct:
        place = dump_conversation(message.conversation)
        part.facts.put((PEOPLE, message.principal), Fact(f"{to_us(part.now)} {place}"))
        if route.owner is not None and not shown_when_stored(message.conversation):
            known = part.facts.get((OWNER_CHATS, route.owner))
            if known is None or known.value != place:
                part.facts.put((OWNER_CHATS, route.owner), Fact(place))
    return row


def receive(
    part: Part,
    session: SessionId,
    message: Inbound,
    turn: TurnId | None,
    *,
    context: bool = False,
    continues: bool = False,
) -> Received:
    """Store a message that arrived, without what is used on arrival only."""
    # Used on arrival only, never stored.
    stored = changed(message, follows="", album="") if message.follows or message.album else message
    return turns.receive(part, session, stored, turn, context=context, continues=continues)


def overhear(part: Part, session: SessionId, received: Received) -> None:
    """Keep a message for the next model turn; the oldest gives way, but for the gateway's notices."""
    row = part.sessions[session]
    context = (*row.context, received.id)
    trimmed = context[:-CONTEXT_KEPT]
    # Nothing else tells the model that its files are away. Only a family that moved can have a notice.
    notices = [one for one in trimmed if len(row.homes) > 1 and _is_notice(part, one)]
    part.set_session(session, context=(*notices, *context[-CONTEXT_KEPT:]))


def _is_notice(part: Part, message: InboundId) -> bool:
    found = part.messages.get(message)
    return found is not None and found.received.message.principal == SYSTEM_HOME


def parts(part: Part, row: TurnRow) -> list[Received]:
    """Return a turn's messages without the overheard ones."""
    found = (part.messages[one].received for one in row.inputs)
    return [one for one in found if not one.context]


def gather_more(part: Part, turn: TurnId, message: Inbound) -> None:
    """Let the turn wait for more of its last message, or make it due."""
    row = part.turns[turn]
    until: datetime | None = None
    if message.cut or message.album:
        known = parts(part, row)
        first_at = known[0].received_at
        until = message_parts.held_until(message, part=len(known), first_at=first_at, now=part.now)
    if until != row.gathers_until:
        part.relink_turn(turn, gathers_until=until)


# --- albums ---------------------------------------------------------------------------------


def join_album(part: Part, session: SessionId, message: Inbound, kind: TurnKind) -> tuple[InboundId, TurnRow] | None:
    """Store a message in the turn of its album, if there is one that takes it. Return its id and that turn."""
    where = _where(part, message)
    row = part.turns.get(TurnId(where.removeprefix(TURN))) if where.startswith(TURN) else None
    if row is None or not _is_theirs(row, session, message):
        return None
    turn = row.turn
    fate = message_parts.fate(kind, turn.kind, turn.state, begun=turn.started_at is not None)
    if fate is message_parts.Fate.APART:
        return None
    received = receive(part, session, message, turn.id, continues=True)
    part.events.put(event_of(message), f"{received.id} {turn.id}")
    if fate is message_parts.Fate.JOINS:
        gather_more(part, turn.id, message)
    else:
        part.touched.turns.add(turn.id)
    turns.offer(part, turn.id)
    return received.id, row


def begin_album(part: Part, message: Inbound, turn: TurnId) -> None:
    """Record the turn that further messages of the album join."""
    if message.album:
        part.events.put(_album(message), f"{TURN}{turn}")


def record_overheard(part: Part, message: Inbound, received: Received) -> None:
    """Record an overheard message of an album: a later one may address the bot."""
    where = _where(part, message)
    if message.album and not where.startswith(TURN):
        part.events.put(_album(message), f"{where or HEARD}{received.id} ")


def beside(part: Part, session: SessionId, message: Inbound) -> list[InboundId]:
    """Return the earlier overheard messages of this one's album, by the same person."""
    where = _where(part, message)
    if not where.startswith(HEARD):
        return []
    context = part.sessions[session].context
    ids = [InboundId(one) for one in where.removeprefix(HEARD).split() if one in context]
    return [one for one in ids if part.messages[one].received.message.principal == message.principal]


def _where(part: Part, message: Inbound) -> str:
    """Return the stored location of a message's album; empty without an album or for an unknown one."""
    return (part.events.get(_album(message)) or "") if message.album else ""


def _album(message: Inbound) -> EventKey:
    """Return the key of the album's event. It has a space, which no channel's event key has."""
    return (message.conversation.channel, message.conversation.account, f"album {message.album}")


def _is_theirs(row: TurnRow, session: SessionId, message: Inbound) -> bool:
    turn = row.turn
    same = (turn.principal, turn.conversation) == (message.principal, message.conversation)
    return same and turn.session == session
