"""Transitions that time makes due: expiry, timers, recovery after a restart. A backend's indexes name the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from gateway.domain.ids import NodeId, OwnerName, SlotId, TurnId
from gateway.domain.messages import NEXT_PART_WITHIN
from gateway.domain.slots import NewSlot, Slot, SlotKind, SlotState, shown_when_stored
from gateway.domain.steps import StepState
from gateway.domain.turns import LEASE_LASTS, TurnState
from gateway.domain.waits import Wait, WaitKind, WaitState, escalates
from gateway.ports import ApproversOf
from gateway.store.call_rules import DECISION_GOOD_FOR
from gateway.store.child_rules import NOBODY_WAITS
from gateway.store.codec import from_us, load_conversation, to_us
from gateway.store.constants import AT_ONCE, HELD, UNDECIDED
from gateway.store.kernel import turns
from gateway.store.kernel.escalation import escalate
from gateway.store.kernel.facts import ALIVE, NODES, PAGES, SENDERS, alive, free_holds
from gateway.store.kernel.messages import OWNER_CHATS
from gateway.store.kernel.nodes import MEMBERS
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import Early, changed
from gateway.store.kernel.slots import add_slot, edit_in_doubt, show_anew


def expire_waits(part: Part) -> int:
    """Expire waits that nobody decided or used in time."""
    expired = 0
    for id_ in part.index.expired_waits(part.now, part.now - DECISION_GOOD_FOR, AT_ONCE):
        wait = part.waits[id_].wait
        if not _expired(part, wait):
            continue  # of a child that an earlier one of the loop stopped
        expired += 1
        turns.set_wait(part, id_, state=WaitState.EXPIRED)
        if wait.kind is WaitKind.CHILD:
            turns.wait_no_longer(part, wait)
        turns.wake(part, wait.turn)
    return expired


def _expired(part: Part, wait: Wait) -> bool:
    if wait.state is WaitState.OPEN:
        return wait.expires_at <= part.now and wait.kind is not WaitKind.TIMER
    decided_at = wait.decided_at or wait.opened_at
    unused = wait.state in UNDECIDED and part.now - decided_at > DECISION_GOOD_FOR
    return unused and part.turns[wait.turn].turn.state not in HELD


def reclaim(part: Part) -> int:
    """Take back turns and slots of dead holders, and stop live children that nobody waits for.

    Holders that were cut off have the time of a lease to renew theirs, once the backend's server is back.
    """
    if part.back_since is not None and part.now < part.back_since + LEASE_LASTS:
        return 0
    held = [turn for turn, _ in part.index.held_turns(lapsed=part.now)[:AT_ONCE]]
    sending = [slot for slot, _ in part.index.sending_slots(lapsed=part.now)[: AT_ONCE - len(held)]]
    orphans = part.index.orphans(AT_ONCE - len(held) - len(sending))
    for orphan in orphans:
        turns.stop_below(part, orphan, NOBODY_WAITS)
    return take_back(part, held, sending) + len(orphans)


def void_leases(part: Part, machine: str) -> int:
    """Void the leases of this machine's earlier processes."""
    for turn in part.index.gathering_turns():
        row = part.turns[turn]
        if row.turn.state is TurnState.QUEUED and row.turn.started_at is None:
            part.relink_turn(turn, gathers_until=part.now + NEXT_PART_WITHIN)
    free_holds(part, lambda holder: is_of(holder, machine))
    held = [turn for turn, node in part.index.held_turns() if is_of(node, machine)][:AT_ONCE]
    sending = [slot for slot, node in part.index.sending_slots() if is_of(node, machine)][: AT_ONCE - len(held)]
    return take_back(part, held, sending)


def begin_life(part: Part) -> int:
    """Void what every node of an earlier life holds, and forget those nodes. Return how many; call it until 0."""
    free_holds(part, lambda holder: holder != "")
    for namespace in (MEMBERS, SENDERS):
        for key, _ in part.facts_in(namespace):
            part.facts.delete((namespace, key))
    held = [turn for turn, _ in part.index.held_turns()][:AT_ONCE]
    sending = [slot for slot, _ in part.index.sending_slots()][: AT_ONCE - len(held)]
    return take_back(part, held, sending)


def void_approvals(part: Part) -> int:
    """Void approvals that were given and not used; their calls are asked again. Return how many; call it until 0.

    For a store that lost what came after them. No turn is held, and no wait is past its time.
    """
    void = 0
    for id_ in part.index.expired_waits(part.now, part.now + timedelta(seconds=1), AT_ONCE):
        wait = part.waits[id_].wait
        if wait.state not in UNDECIDED or wait.state is WaitState.OPEN:
            continue
        void += 1
        turns.set_wait(part, id_, state=WaitState.SUPERSEDED)
        part.set_step(wait.turn, wait.n, state=StepState.PLANNED, asked_anew=True)
        turns.wake(part, wait.turn)
    return void


def is_of(node: str | None, machine: str) -> bool:
    """Return whether a node is a process of this machine."""
    return node is not None and node.rpartition("#")[0] == machine


def take_back(part: Part, held: Iterable[TurnId], sending: Iterable[SlotId]) -> int:
    """Queue turns of dead holders, or end those that were stopped; make their slots due. Return how many."""
    count = 0
    for turn in held:
        count += 1
        part.touched.turns.add(turn)  # a holder that is only late checks at once, and stops
        if part.turns[turn].turn.state is TurnState.STOPPING:
            turns.end_stopped(part, turn)
        else:
            turns.queue(part, turn)
    for slot in sending:
        count += 1
        row = part.slots[slot]
        # The sender is gone and may have shown it: a create is uncertain now.
        create = row.slot.sent_version == 0
        again = {"state": SlotState.DUE, "uncertain": row.slot.uncertain or create, "due_at": part.now}
        part.set_slot(slot, of_slot=again, node=None, sending_since=None, **edit_in_doubt(part, row))
    return count


def fire_timers(part: Part, approvers: ApproversOf) -> int:
    """Copy answers that nobody saw, escalate approvals, and resend slots that a late edit may have hidden."""
    timers = part.index.due_timers(part.now, AT_ONCE)
    again = part.index.doubtful_slots(part.now, AT_ONCE - len(timers))
    for id_ in timers:
        wait = part.waits[id_].wait
        if escalates(wait):
            fired = escalate(part, wait, approvers)
            turns.set_wait(part, id_, state=WaitState.ANSWERED if fired else WaitState.CANCELLED)
            continue  # no turn waits for it
        fired = "copy_of" not in wait.payload or _copy(part, wait)
        turns.set_wait(part, id_, state=WaitState.ANSWERED if fired else WaitState.CANCELLED)
        turns.wake(part, wait.turn)
    for slot in again:
        row = part.slots[slot]
        newer = row.again_over is not None and row.slot.version > row.again_over
        part.slots.put(slot, changed(row, again_at=None, again_over=None))
        if newer and row.early is Early.NO and row.slot.state in (SlotState.SENDING, SlotState.SENT):
            show_anew(part, slot, once_more=True)
    return len(timers) + len(again)


def _copy(part: Part, wait: Wait) -> bool:
    owner = OwnerName(str(wait.payload["owner"]))
    seen, place = part.facts.get((PAGES, owner)), part.facts.get((OWNER_CHATS, owner))
    original = part.slots.get(SlotId(str(wait.payload["copy_of"])))
    if place is None or original is None or (seen is not None and int(seen.value) >= to_us(wait.opened_at)):
        return False
    copy = NewSlot(
        conversation=load_conversation(place.value), kind=SlotKind.COPY, text=original.slot.text, n=original.slot.n
    )
    add_slot(part, copy, wait.session, wait.turn)
    return True


def begin(part: Part, node: NodeId, downtime: timedelta) -> int:
    """Record that this node starts. When none lived for so long, offer again what people were asked.

    In one transition: of several nodes that start, one offers, and a crash takes back both.
    """
    last = part.facts.get((NODES, ALIVE))
    alive(part, node)
    if last is None or part.now - from_us(int(last.value)) <= downtime:
        return 0
    return _offer_again(part)


def _offer_again(part: Part) -> int:
    """Show open cards again after a downtime; ask again what expired meanwhile."""
    asked = [*part.index.asked_waits(), *part.index.open_questions()]
    waits = [_in_time(part, part.waits[one].wait) for one in asked]
    expired = [wait for wait in waits if wait.expires_at <= part.now]
    again = _shown(part, [wait for wait in waits if wait.expires_at > part.now])
    for wait in expired:
        _ask_anew(part, wait)
    for slot in again:
        new = NewSlot(conversation=slot.conversation, kind=SlotKind.CARD, waits=slot.waits)
        add_slot(part, new, slot.session, slot.turn)
    return len(expired) + len(again)


def _shown(part: Part, waits: Sequence[Wait]) -> list[Slot]:
    """Return the cards that show one of these in a chat: one for each place, however often it was offered before.

    A card that was never shown is left out: it is still due.
    """
    cards = [part.slots[slot].slot for wait in waits for slot in part.cards.get(wait.id) or ()]
    shown = [slot for slot in cards if slot.sent_version > 0 and not shown_when_stored(slot.conversation)]
    return list({(slot.conversation, slot.waits): slot for slot in shown}.values())


def _in_time(part: Part, wait: Wait) -> Wait:
    """Give a question that expired in a downtime its time once more; its answers so far and its buttons stay good."""
    late = wait.kind is WaitKind.QUESTION and wait.expires_at <= part.now
    if not late or part.steps[wait.turn, wait.n].step.asked_anew:
        return wait
    part.set_step(wait.turn, wait.n, asked_anew=True)
    return turns.set_wait(part, wait.id, expires_at=part.now + (wait.expires_at - wait.opened_at))


def _ask_anew(part: Part, wait: Wait) -> None:
    if part.steps[wait.turn, wait.n].step.asked_anew:
        turns.set_wait(part, wait.id, state=WaitState.EXPIRED)
    else:
        turns.set_wait(part, wait.id, state=WaitState.SUPERSEDED)
        part.set_step(wait.turn, wait.n, state=StepState.PLANNED, asked_anew=True)
    turns.wake(part, wait.turn)
