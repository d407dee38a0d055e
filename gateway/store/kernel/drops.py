"""Transitions of ingress that start no turn: refusals, overheard messages, edits, unreadable events."""

from __future__ import annotations

from datetime import timedelta

from gateway.domain.ids import InboundId
from gateway.domain.messages import Inbound, Refused, RefusedReason
from gateway.domain.routes import Drop, DropReason, Route
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import StepState
from gateway.domain.turns import TurnKind, TurnState
from gateway.store.codec import head, to_us
from gateway.store.kernel import messages
from gateway.store.kernel.messages import event_of
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import Fact, MessageRow, TurnRow, changed
from gateway.store.kernel.slots import add_slot

REFUSAL_EVERY = timedelta(hours=24)
"""Minimum interval between refusals shown to one stranger."""
TOO_FAST_EVERY = timedelta(minutes=1)
"""Minimum interval between refusals shown to one person who writes too fast."""
REFUSED = "refused"
"""Namespace of facts: when a stranger was refused with words. It expires when the next refusal may be shown."""
TOO_FAST = "too-fast"
"""Namespace of facts: time of the last reply to a too fast sender. It expires as above."""
HEARD = f"drop:{DropReason.CONTEXT} "
"""Prefix of the outcome of an overheard event; its message follows, since an edit may come."""


def drop(part: Part, message: Inbound, drop: Drop, refusal: str) -> bool:
    """Store the reason why a message starts nothing."""
    if part.events.get(event_of(message)) is not None:
        return False
    if drop.reason is DropReason.CONTEXT and drop.route is not None:
        _store_overheard(part, drop.route, message)
    else:
        part.events.put(event_of(message), f"drop:{drop.reason}")
    if refusal and _is_notified(part, message, drop):
        of_the_allowed = drop.reason in (DropReason.UNREADABLE, DropReason.TOO_FAST)
        kind = SlotKind.REPLY if of_the_allowed else SlotKind.REFUSAL
        add_slot(part, NewSlot(conversation=message.conversation, kind=kind, text=refusal), None, None)
    return True


def _store_overheard(part: Part, route: Route, message: Inbound) -> None:
    """Store an overheard message for the session's next model turn, or for its album's turn."""
    messages.begin(part, route, message)
    if messages.join_album(part, route.session, message, TurnKind.MODEL) is not None:
        return
    received = messages.receive(part, route.session, message, None, context=True)
    messages.overhear(part, route.session, received)
    part.events.put(event_of(message), f"{HEARD}{received.id}")
    messages.record_overheard(part, message, received)


def _is_notified(part: Part, message: Inbound, drop: Drop) -> bool:
    """Return whether to notify the sender now.

    Each time for unreadable events, once a minute for those who write too fast, once a day for the rest.
    """
    if drop.reason is DropReason.UNREADABLE:
        return True
    if not drop.told:
        return False
    too_fast = drop.reason is DropReason.TOO_FAST
    key = (TOO_FAST if too_fast else REFUSED, message.principal)
    last = part.facts.get(key)
    if last is not None and last.until is not None and last.until > part.now:
        return False
    every = TOO_FAST_EVERY if too_fast else REFUSAL_EVERY
    part.facts.put(key, Fact(str(to_us(part.now)), part.now + every))
    return True


def amend(part: Part, message: Inbound) -> bool:
    """Store the new text of a message that no model has read."""
    if part.events.get(event_of(message)) is not None:
        return True
    found = _amendable(part, message)
    if found is None:
        part.events.put(event_of(message), f"drop:{DropReason.EDITED_LATE}")
        return False
    part.events.put(event_of(message), f"edit:{found.received.id}")
    part.set_message(found.received.id, message=changed(found.received.message, text=message.text))
    return True


def _amendable(part: Part, message: Inbound) -> MessageRow | None:
    """Return the message that this edits, while no model has read it."""
    place = message.conversation
    outcome = part.events.get((place.channel, place.account, message.edits)) or ""
    heard = outcome.startswith(HEARD)
    inbound = InboundId(outcome.removeprefix(HEARD)) if heard else messages.message_of(outcome)[0]
    found = part.messages.get(inbound) if inbound else None
    if found is None:
        return None
    said = found.received.message
    if (said.principal, said.conversation) != (message.principal, place):
        return None
    turn = found.received.turn
    return found if _is_unread(part, found, None if turn is None else part.turns[turn]) else None


def _is_unread(part: Part, found: MessageRow, row: TurnRow | None) -> bool:
    """Return whether no model has read it: no request that is under way has it, and no answer came.

    An overheard message may have no turn yet.
    """
    if row is None:
        return found.received.context
    if row.turn.kind is not TurnKind.MODEL or not _is_unasked(part, row, found):
        return False
    return not row.steps if found.received.context else found.received.given is None


def _is_unasked(part: Part, row: TurnRow, found: MessageRow) -> bool:
    """Return whether no request to a model that is under way can contain the message.

    The next request has it if nobody holds its turn, if a call has no result, or if the message came after the last
    result and the claim. If the holder read it all the same, its answer says so (`journal`).
    """
    if row.turn.state is not TurnState.RUNNING:
        return row.turn.state in (TurnState.QUEUED, TurnState.PARKED)
    steps = [part.steps[row.turn.id, n] for n in range(row.steps)]
    is_open = any(one.step.state is not StepState.FINISHED for one in steps)
    return is_open or found.ord > max([row.rev, *(one.rev for one in steps)])


def refuse(part: Part, refused: Refused) -> bool:
    """Store an event that is no message."""
    key = (refused.channel, refused.account, refused.event_key)
    if part.events.get(key) is not None:
        return False
    part.events.put(key, f"drop:{refused.reason}")
    if refused.reason is RefusedReason.POISON:
        part.poison.append((key, head(refused.raw), refused.detail))
    return True
