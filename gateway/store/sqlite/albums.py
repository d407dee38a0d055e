"""Albums in the SQLite store's intake transitions: each picture arrives as a separate message.

The album's row of `events` names the turn of its messages, or the places of the overheard ones.
"""

from __future__ import annotations

from gateway.domain.ids import InboundId, SessionId, TurnId, mint
from gateway.domain.messages import Inbound
from gateway.domain.turns import TurnKind, TurnState
from gateway.store import message_parts
from gateway.store.codec import dump_conversation, from_us, to_us
from gateway.store.sqlite import inbound_ops, turn_ops
from gateway.store.sqlite.rows import TurnColumns
from gateway.store.sqlite.tx import Tx

TURN, HEARD = "turn ", "heard "


def joined(tx: Tx, session: SessionId, message: Inbound, kind: TurnKind) -> tuple[InboundId, TurnColumns] | None:
    """Store a message in the turn of its album, if there is one that takes it. Return its id and that turn."""
    where = _where(tx, message)
    row = turn_ops.find_turn(tx, where.removeprefix(TURN)) if where.startswith(TURN) else None
    if row is None or not _is_theirs(row, session, message):
        return None
    begun = row.started_at is not None
    fate = message_parts.fate(kind, TurnKind(row.kind), TurnState(row.state), begun=begun)
    if fate is message_parts.Fate.APART:
        return None
    inbound = InboundId(mint("i"))
    inbound_ops.is_new(tx, message, f"{inbound} {row.id}")
    if fate is message_parts.Fate.JOINS:
        _hold(tx, row, message)
    else:
        turn_ops.offer(tx, row)
        tx.touched.turns.add(row.id)
    inbound_ops.add_message(tx, session, row.id, inbound, message, continues=True)
    return inbound, row


def begins(tx: Tx, session: SessionId, message: Inbound, turn: TurnId) -> bool:
    """Record the turn that further messages of the album join, and give it those overheard before.

    Return whether there were any.
    """
    if not message.album:
        return False
    where, taken = _where(tx, message), 0
    for ord_ in where.removeprefix(HEARD).split() if where.startswith(HEARD) else ():
        rev = tx.next_rev(session)
        taken += tx.count("take_heard", turn, taken > 0, rev, int(ord_), session, message.principal)
    _note(tx, message, f"{TURN}{turn}")
    if taken:
        _hold(tx, turn_ops.stored_turn(tx, turn), message)
    return taken > 0


def heard(tx: Tx, message: Inbound, ord_: int) -> None:
    """Record the place of an overheard message: a later one of its album may address the bot."""
    if not message.album:
        return
    where = _where(tx, message)
    if not where.startswith(TURN):
        _note(tx, message, f"{where or HEARD}{ord_} ")


def held_until(tx: Tx, message: Inbound, *, part: int, first_at: int) -> int | None:
    """Return until when a turn waits for more of a message; None: it is due."""
    until = message_parts.held_until(message, part=part, first_at=from_us(first_at), now=tx.moment)
    return None if until is None else to_us(until)


def _hold(tx: Tx, row: TurnColumns, message: Inbound) -> None:
    parts = tx.run("parts", row.id)
    until = held_until(tx, message, part=len(parts) + 1, first_at=parts[0][0])
    tx.run("hold_turn", until, row.ord)
    if until is None:
        turn_ops.offer(tx, row)


def _where(tx: Tx, message: Inbound) -> str:
    """Return the stored location of a message's album; empty without an album or for an unknown one."""
    return (inbound_ops.outcome_of(tx, message.conversation, _key(message)) or "") if message.album else ""


def _note(tx: Tx, message: Inbound, where: str) -> None:
    tx.run("note_album", message.conversation.channel, message.conversation.account, _key(message), where)


def _key(message: Inbound) -> str:
    """Return the key of the album's row. It has a space, which no channel's event key has."""
    return f"album {message.album}"


def _is_theirs(row: TurnColumns, session: SessionId, message: Inbound) -> bool:
    place = dump_conversation(message.conversation)
    return (row.session, row.principal, row.conversation) == (session, message.principal, place)
