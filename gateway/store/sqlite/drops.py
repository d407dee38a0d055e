"""Intake transitions in SQLite that start no turn: refusals, overheard messages, edits, unreadable events."""

from __future__ import annotations

from gateway.domain.ids import InboundId, SessionId, mint
from gateway.domain.messages import Inbound, Refused, RefusedReason
from gateway.domain.routes import Drop, DropReason, Route
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.turns import TurnKind
from gateway.store.codec import MICROSECOND, dump_conversation, head
from gateway.store.constants import REFUSAL_EVERY
from gateway.store.sqlite import albums, inbound_ops, slot_ops
from gateway.store.sqlite.base import SqliteBase
from gateway.store.sqlite.tx import Tx

REFUSAL_EVERY_US = REFUSAL_EVERY // MICROSECOND
HEARD = f"drop:{DropReason.CONTEXT} "
"""Prefix of the outcome of an overheard event; the place of its message follows, since an edit may come."""


class SqliteDrops(SqliteBase):
    """`ports.Intake`: `drop`, `amend` and `refuse`."""

    async def drop(self, message: Inbound, drop: Drop, refusal: str) -> bool:
        """Store why a message starts nothing."""
        return await self.write(lambda tx: _drop(tx, message, drop, refusal))

    async def amend(self, message: Inbound) -> bool:
        """Store the new text of a message that no model has read."""
        return await self.write(lambda tx: _amend(tx, message))

    async def refuse(self, refused: Refused) -> bool:
        """Store an event that is no message."""
        return await self.write(lambda tx: _refuse(tx, refused))


def _drop(tx: Tx, message: Inbound, drop: Drop, refusal: str) -> bool:
    if inbound_ops.outcome_of(tx, message.conversation, message.event_key) is not None:
        return False
    if drop.reason is DropReason.CONTEXT and drop.route is not None:
        _store_overheard(tx, drop.route, message)
    else:
        inbound_ops.is_new(tx, message, f"drop:{drop.reason}")
    if refusal and _is_notified(tx, message, drop):
        kind = SlotKind.REPLY if drop.reason is DropReason.UNREADABLE else SlotKind.REFUSAL
        slot_ops.add_slot(tx, NewSlot(conversation=message.conversation, kind=kind, text=refusal), None, None)
    return True


def _store_overheard(tx: Tx, route: Route, message: Inbound) -> None:
    """Store an overheard message for the session's next model turn, or for its album's turn."""
    inbound_ops.begin(tx, route, message)
    if albums.joined(tx, route.session, message, TurnKind.MODEL) is not None:
        return
    ord_ = inbound_ops.add_message(tx, route.session, None, InboundId(mint("i")), message, context=True)
    tx.run("heard", ord_, route.session)
    inbound_ops.is_new(tx, message, f"{HEARD}{ord_}")
    albums.heard(tx, message, ord_)


def _is_notified(tx: Tx, message: Inbound, drop: Drop) -> bool:
    """Return whether to notify the sender now: each time for unreadable events, once a day for the rest."""
    if drop.reason is DropReason.UNREADABLE:
        return True
    last = tx.one("refused_at", message.principal) if drop.told else None
    if not drop.told or (last is not None and tx.now - last[0] < REFUSAL_EVERY_US):
        return False
    tx.run("refuse", message.principal, tx.now)
    return True


def _amend(tx: Tx, message: Inbound) -> bool:
    if inbound_ops.outcome_of(tx, message.conversation, message.event_key) is not None:
        return True
    found = _amendable(tx, message)
    if found is None:
        inbound_ops.is_new(tx, message, f"drop:{DropReason.EDITED_LATE}")
        return False
    ord_, session = found
    inbound_ops.is_new(tx, message, f"edit:{ord_}")
    tx.run("amend", message.text, tx.next_rev(session), ord_)
    return True


def _amendable(tx: Tx, message: Inbound) -> tuple[int, SessionId] | None:
    """Return the place of the message that this edits, and its session, while no model has read it."""
    place = message.conversation
    outcome = inbound_ops.outcome_of(tx, place, message.edits) or ""
    if outcome.startswith(HEARD):
        found = tx.one("amendable_heard", int(outcome.removeprefix(HEARD)))
    else:
        inbound, turn = inbound_ops.message_of(outcome)
        found = tx.one("amendable", turn, inbound)
    if found is None:
        return None
    ord_, session, principal, conversation = found
    theirs = (principal, conversation) == (message.principal, dump_conversation(place))
    return (ord_, session) if theirs else None


def _refuse(tx: Tx, refused: Refused) -> bool:
    event = (refused.channel, refused.account, refused.event_key)
    if not tx.count("add_event", *event, f"drop:{refused.reason}"):
        return False
    if refused.reason is RefusedReason.POISON:
        tx.run("add_poison", *event, head(refused.raw), refused.detail, tx.now)
    return True
