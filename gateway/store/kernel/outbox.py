"""Transitions of the outbox: claims and results of sending slots. A backend's index names the claimable ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from gateway.domain.ids import NodeId, OwnerName, Principal, SlotId
from gateway.domain.messages import latest_chat, owner_page
from gateway.domain.posts import Post
from gateway.domain.routes import main_route
from gateway.domain.slots import NewSlot, Slot, SlotKind, SlotState
from gateway.domain.turns import LEASE_LASTS, NamedLease
from gateway.errors import NotFound
from gateway.store.kernel.facts import SENDERS, is_held, person_of
from gateway.store.kernel.messages import PEOPLE, use_session
from gateway.store.kernel.part import AccountKey, FactKey, Part
from gateway.store.kernel.rows import Early, Fact, SlotRow, changed
from gateway.store.kernel.slots import add_slot, edit_in_doubt, may_be_overwritten, show_anew

EDITED = frozenset({SlotKind.ANSWER, SlotKind.STATUS})
"""Slot kinds that live edits change, outside of the outbox, while their turn runs."""
SENDER_RENEWED = timedelta(seconds=10)
"""With less left of its lease, a sender's claim renews it."""
TOLD_EVERY = timedelta(hours=1)
"""Minimum interval between identical notices to the owners."""
TOLD = "told"
"""Namespace of facts: notices to the owners. They expire when the same notice may be sent again."""


def claim_slots(part: Part, node: NodeId, channels: Sequence[str], limit: int) -> list[Slot]:
    """Mark due slots as being sent by a node, of the accounts whose only sender it is, or becomes."""
    taken: list[Slot] = []
    for slot in _sendable(part, node, channels, limit):
        before = part.slots[slot].slot
        of_slot: dict[str, object] = {
            "state": SlotState.SENDING,
            "attempts": before.attempts + 1,
            "fence": part.next_fence(before.fence),
        }
        if before.post is not None and before.post.slot is not None:
            of_slot["post"] = _about(part, before.post, before.post.slot)
        taken.append(part.set_slot(slot, of_slot=of_slot, node=node, sending_since=part.now).slot)
    return taken


def _about(part: Part, post: Post, slot: SlotId) -> Post:
    """Return a post with the platform's id of the first message of the slot that it is about; empty while none is."""
    known = part.slots.get(slot)
    return changed(post, message="" if known is None else next(iter(known.slot.message_ids), ""))


def _sendable(part: Part, node: NodeId, channels: Sequence[str], limit: int) -> Sequence[SlotId]:
    """Return claimable slots of accounts that no other node sends for; the node is their sender from now on."""
    others = set[AccountKey]()
    while True:
        found = part.index.claimable_slots(part.now, channels, limit, sorted(others))
        places = {part.slots[slot].slot.conversation for slot in found}
        accounts = {(place.channel, place.account) for place in places}
        held = {one for one in accounts if _is_held_by_another(part, node, one)}
        if not held:
            break
        others |= held
    for account in accounts:
        known = part.facts.get(_sender_of(account))
        if known is None or known.value != node or known.until is None or known.until - part.now < SENDER_RENEWED:
            part.facts.put(_sender_of(account), Fact(node, part.now + LEASE_LASTS))
    return found


def _is_held_by_another(part: Part, node: NodeId, account: AccountKey) -> bool:
    """Return whether a node of another machine is the sender. A machine's earlier life sends nothing any more."""
    known = part.facts.get(_sender_of(account))
    if known is None or known.until is None or known.until <= part.now:
        return False
    return known.value.rpartition("#")[0] != node.rpartition("#")[0]


def _sender_of(account: AccountKey) -> FactKey:
    return SENDERS, "/".join(account)


def slot_sent(part: Part, sent: Slot, message_ids: tuple[str, ...], *, unsettled: bool) -> None:
    """Record the version that is shown."""
    row, version = _claimed(part, sent), sent.version
    if row is None:
        return
    newer, changes = row.slot.version > version, dict[str, object]()
    if unsettled or (row.shown_by is not None and row.node is not None and row.shown_by != row.node):
        changes = may_be_overwritten(part, row, version - 1)
    edited = row.early is not Early.NO or (newer and row.slot.kind in EDITED)
    of_slot = {
        "state": SlotState.DUE if newer else SlotState.SENT,
        "sent_version": max(version, row.slot.sent_version),
        "message_ids": message_ids,
        "attempts": 0,
        "uncertain": False,
        "due_at": part.now,
    }
    shown_by = (row.node or row.shown_by) if edited else None
    part.set_slot(sent.id, of_slot=of_slot, shown_by=shown_by, node=None, sending_since=None, **changes)


def slot_part(part: Part, slot: Slot, message_ids: tuple[str, ...]) -> None:
    """Record the messages shown so far."""
    if _claimed(part, slot) is not None:
        part.set_slot(slot.id, of_slot={"message_ids": message_ids, "uncertain": False})


def slot_retry(part: Part, slot: Slot, delay: timedelta, *, uncertain: bool, unsettled: bool, counted: bool) -> None:
    """Schedule a retry."""
    row = _claimed(part, slot)
    if row is None:
        return
    of_slot = {
        "state": SlotState.DUE,
        "attempts": row.slot.attempts if counted else max(0, row.slot.attempts - 1),
        "uncertain": row.slot.uncertain or uncertain,
        "due_at": part.now + delay,
    }
    doubt = edit_in_doubt(part, row) if unsettled else {}
    part.set_slot(slot.id, of_slot=of_slot, node=None, sending_since=None, **doubt)


def slot_dead(part: Part, slot: Slot, why: str) -> None:
    """Mark it dead, unless it changed meanwhile."""
    row = _claimed(part, slot)
    if row is None:
        return
    state = SlotState.DUE if row.slot.version > slot.version else SlotState.DEAD
    of_slot = {"state": state, "attempts": 0, "due_at": part.now}
    part.set_slot(slot.id, of_slot=of_slot, node=None, sending_since=None, why_dead=why)


def slot_overwritten(part: Part, slot: SlotId, version: int) -> bool:
    """Send the newer version once more."""
    row = part.slots.get(slot)
    if row is None or row.slot.version <= version:
        return False
    if row.slot.state in (SlotState.SENDING, SlotState.SENT):
        show_anew(part, slot, once_more=True)
    return True


def tell_owners(
    part: Part, key: str, text: str, owners: Mapping[OwnerName, Sequence[Principal]], under: NamedLease | None
) -> bool:
    """Notify every owner, at most once an hour per key; not under a lease that another node took."""
    if under is not None and not is_held(part, under):
        return False
    last = part.facts.get((TOLD, key))
    if last is not None and last.until is not None and last.until > part.now:
        return False
    part.facts.put((TOLD, key), Fact("", part.now + TOLD_EVERY))
    for owner, principals in owners.items():
        way = main_route(owner)
        use_session(part, way)
        add_slot(part, NewSlot(conversation=owner_page(owner), kind=SlotKind.REPLY, text=text), way.session, None)
        found = (part.facts.get((PEOPLE, who)) for who in principals)
        chat = latest_chat(person_of(fact) for fact in found if fact is not None)
        if chat is not None:
            # No session: its page shows the other slot.
            add_slot(part, NewSlot(conversation=chat, kind=SlotKind.REPLY, text=text), None, None)
    return True


def _claimed(part: Part, slot: Slot) -> SlotRow | None:
    """Return the row of a slot; None when it was claimed again since, so that the result is a stale one's."""
    row = part.slots.get(slot.id)
    if row is None:
        raise NotFound(f"There is no slot {slot.id}.")
    return row if row.slot.fence == slot.fence else None
