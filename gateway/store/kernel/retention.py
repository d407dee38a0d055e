"""Transitions of retention: old turns of a session are removed with all their rows, a bounded number at once.

A turn goes from its last rows to its first: each transition leaves it whole as far as it still exists, and the next one
goes on. What a removed turn leaves beside the store is named by a fact until it is removed too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from gateway.domain.ids import GrantId, InboundId, SessionId, SlotId, TurnId
from gateway.domain.messages import Received
from gateway.domain.retention import Keep, LostFiles, Stays, Trimmed, TurnFacts
from gateway.domain.sessions import works_in
from gateway.domain.slots import Slot, SlotState
from gateway.domain.steps import StepKind
from gateway.domain.turns import ENDED
from gateway.policy import retention
from gateway.store.codec import dump_json, load_json, to_us
from gateway.store.constants import UNDECIDED
from gateway.store.kernel.messages import event_of
from gateway.store.kernel.part import Part, Table
from gateway.store.kernel.rows import Fact, SessionRow, SlotRow, TurnRow
from gateway.store.kernel.task_lists import key_of

REMOVED, LOST = "removed", "lost-files"
"""Namespaces of facts: how many turns of a session were removed, and files of removed turns."""
ROWS_AT_ONCE = 60
"""Rows that one transition removes at most: a writer that waits for it waits a few milliseconds."""
TURNS_AT_ONCE = 8
"""Old turns that one transition reads."""
FAMILY = 200
"""Turns of a sub-session that are read. A sub-session with more is kept."""
LOST_FOR = timedelta(days=30)
"""Retention of the names of removed turns' files. A node that was away for longer keeps its files."""
EVENTS_KEPT = timedelta(days=15)
"""Minimum lifetime of an event's deduplication key; platforms repeat an event within days."""
EVERY_PLACE = 1 << 62


class _Room:
    """Number of rows that may still be removed in this transition."""

    def __init__(self, rows: int) -> None:
        self.left = rows
        self.used = 0
        self.turns = 0

    def take(self, wanted: int) -> int:
        """Return how many of these rows may be removed now."""
        taken = max(0, min(wanted, self.left))
        self.left -= taken
        self.used += taken
        return taken


def trim(part: Part, session: SessionId, keep: Keep, passed: int) -> Trimmed:
    """Remove old turns of a root session, behind those that stay anyway (`passed`), and old rows of no turn."""
    row = part.sessions.get(session)
    if row is None or row.session.lineage is not None or keep.is_everything:
        return Trimmed()
    last, room, stayed = keep.turns or 0, _Room(ROWS_AT_ONCE), 0
    old = part.index.ended_turns(session, last, passed, TURNS_AT_ONCE)
    outside = frozenset(part.index.ended_turns(session, max(last, keep.window), passed, TURNS_AT_ONCE))
    for turn in old:
        if part.turns.get(turn) is None:  # another node removed it
            continue
        why = _stays(part, row, turn, keep, in_window=turn not in outside)
        if why in (Stays.YOUNG, Stays.WINDOW):  # so does each later one
            break
        if why is not None:
            stayed += 1
        elif not _remove_turn(part, turn, room):
            if not room.left:
                return Trimmed(rows=room.used, turns=room.turns, passed=passed + stayed)
            stayed += 1  # something below it is not settled
    else:
        if len(old) == TURNS_AT_ONCE:
            return Trimmed(rows=room.used, turns=room.turns, passed=passed + stayed)
    _remove_loose(part, row, keep, room)
    return Trimmed(rows=room.used, turns=room.turns, passed=None if room.left else passed + stayed)


# --- what stays -----------------------------------------------------------------------------


def _stays(part: Part, session: SessionRow, turn: TurnId, keep: Keep, *, in_window: bool) -> Stays | None:
    row = part.turns[turn]
    present = row.turn.epoch == session.session.epoch and (row.ended_rev or 0) > session.summary_rev
    facts = TurnFacts(
        ended_at=row.turn.ended_at if row.turn.state in ENDED else None,
        is_last=False,  # the index left these out
        in_window=present and in_window,
        waits=_has_waits(part, row),
        slots=any(not is_settled(part.slots[one]) for one in row.slots),
        children=any(_child_stays(part, turn, task) for task in row.tasks),
        grants=_has_grants(part, row),
    )
    return retention.stays(facts, keep, part.now)


def _has_waits(part: Part, row: TurnRow) -> bool:
    return any(part.waits[one].wait.state in UNDECIDED for one in row.waits)


def is_settled(row: SlotRow) -> bool:
    """Return whether nothing of a slot is to be sent any more."""
    return row.slot.state in (SlotState.SENT, SlotState.DEAD) and row.again_at is None


def _has_grants(part: Part, row: TurnRow) -> bool:
    return any(not part.grants[one].ended for one in _grants_of(part, row))


def _grants_of(part: Part, row: TurnRow) -> list[GrantId]:
    approvals = (one for one in row.waits if part.waits[one].wait.approval is not None)
    return [grant for one in approvals for grant in part.index.grants_from(one) if part.grants.get(grant) is not None]


def _child_stays(part: Part, giver: TurnId, task: TurnId) -> bool:
    """Return whether a task that a turn gave, or what goes with it, stays."""
    found = part.turns.get(task)
    if found is None:
        return False
    child = part.sessions[found.turn.session]
    if child.live:
        return True
    turns = _turns_of_child(part, child, giver, task)
    return len(turns) >= FAMILY or any(_is_needed(part, one) for one in turns)


def _is_needed(part: Part, turn: TurnId) -> bool:
    row = part.turns[turn]
    slots = (part.slots[one] for one in row.slots)
    needed = row.turn.state not in ENDED or _has_waits(part, row) or not all(map(is_settled, slots))
    return needed or _has_grants(part, row) or any(_child_stays(part, turn, task) for task in row.tasks)


def _turns_of_child(part: Part, child: SessionRow, giver: TurnId, task: TurnId) -> list[TurnId]:
    """Return the turns of a sub-session that go with a task: all of them, unless a later turn gave it its last task."""
    if not _goes_with(child, giver):
        return [task]
    ended = part.index.ended_turns(child.session.id, 0, 0, FAMILY)
    return [*(one for one in ended if part.turns.get(one) is not None), *child.turns, *child.commands]


def _goes_with(child: SessionRow, giver: TurnId) -> bool:
    return child.session.lineage is not None and child.session.lineage.turn == giver


# --- removal of a turn ----------------------------------------------------------------------


def _remove_turn(part: Part, turn: TurnId, room: _Room) -> bool:
    """Remove rows of a turn, its sub-sessions first. Return whether it is gone."""
    row = part.turns[turn]
    for place, task in enumerate(row.tasks, 1):
        if not _remove_child(part, turn, task, room):
            return False
        part.relink_turn(turn, tasks=row.tasks[place:])
    row = part.turns[turn]
    for wait in row.waits:
        if part.cards.get(wait):
            part.cards.delete(wait)
        for grant in _grants_of(part, row):
            part.grants.delete(grant)
    _remove_rows(part, row, room)
    row = part.turns[turn]
    if row.slots or row.waits or row.steps or row.inputs or not room.take(1):
        return False
    part.turns.delete(turn)
    _count(part, row)
    room.turns += 1
    return True


def _remove_rows(part: Part, row: TurnRow, room: _Room) -> None:
    """Remove the last rows of a turn, as many as there is room for."""
    turn = row.turn.id
    slots, waits = _cut(part.slots, row.slots, room), _cut(part.waits, row.waits, room)
    steps = row.steps - room.take(row.steps)
    gone = [part.steps[turn, n].step for n in range(steps, row.steps)]
    for step in gone:
        part.steps.delete((turn, step.n))
    inputs = row.inputs[: len(row.inputs) - room.take(len(row.inputs))]
    read = [part.messages[one].received for one in row.inputs[len(inputs) :]]
    for received in read:
        _remove_message(part, received)
    spoken = any(part_of.file is not None for part_of in slots)
    if spoken or any(step.kind is StepKind.TOOL for step in gone) or any(one.files for one in read):
        _note_files(part, row, read)
    kept_slots, kept_waits = row.slots[: len(row.slots) - len(slots)], row.waits[: len(row.waits) - len(waits)]
    drafts = tuple(one for one in row.drafts if one in kept_slots)
    status = tuple(one for one in row.status if one in kept_slots)
    lists = {"slots": kept_slots, "waits": kept_waits, "inputs": inputs, "drafts": drafts, "status": status}
    part.relink_turn(turn, steps=steps, **lists)


def _cut(table: Table[Any, Any], ids: Sequence[Any], room: _Room) -> list[Any]:
    """Remove the last of these rows, and return what they were: slots, or waits."""
    gone = ids[len(ids) - room.take(len(ids)) :]
    rows = [table[one] for one in gone]
    for one in gone:
        table.delete(one)
    return [row.slot if isinstance(row, SlotRow) else row.wait for row in rows]


def _remove_message(part: Part, received: Received) -> None:
    """Remove a message; its event too, once no platform repeats it any more."""
    part.messages.delete(received.id)
    event = event_of(received.message)
    if part.now - received.received_at > EVENTS_KEPT and part.events.get(event) is not None:
        part.events.delete(event)


def _remove_child(part: Part, giver: TurnId, task: TurnId, room: _Room) -> bool:
    """Remove a task that a turn gave, and its session when it was the last one there. Return whether it is gone."""
    found = part.turns.get(task)
    if found is None:
        return True
    child = part.sessions[found.turn.session]
    for one in _turns_of_child(part, child, giver, task):
        if one != task and not _remove_turn(part, one, room):
            return False
    if not _goes_with(child, giver):
        return _remove_turn(part, task, room)
    id_ = child.session.id
    if _remove_all_loose(part, child, room) or not _remove_turn(part, task, room):
        return False
    room.used += 1
    for fact in (key_of(id_), (REMOVED, id_)):
        if part.facts.get(fact) is not None:
            part.facts.delete(fact)
    part.sessions.delete(id_)
    return True


# --- rows of no turn ------------------------------------------------------------------------


def _remove_loose(part: Part, row: SessionRow, keep: Keep, room: _Room) -> None:
    """Remove what belongs to no turn and is older than every turn that stays, and than the time that is kept."""
    before = _first_place(part, row)
    if before is None and keep.age is None:
        return
    place = EVERY_PLACE if before is None else before
    messages, slots = part.index.loose_rows(row.session.id, place, room.left)
    old_messages = [one for one in messages if not retention.is_young(_received_at(part, one), keep, part.now)]
    old_slots = [one for one in slots if not retention.is_young(part.slots[one].slot.created_at, keep, part.now)]
    _remove_some(part, row, old_messages, old_slots, room)


def _remove_all_loose(part: Part, row: SessionRow, room: _Room) -> bool:
    """Remove what belongs to no turn of a session that goes. Return whether something is left."""
    messages, slots = part.index.loose_rows(row.session.id, EVERY_PLACE, room.left + 1)
    return _remove_some(part, row, messages, slots, room) < len(messages) + len(slots)


def _remove_some(
    part: Part, row: SessionRow, messages: Iterable[InboundId], slots: Iterable[SlotId], room: _Room
) -> int:
    removed = 0
    for message in messages:
        if message not in row.context and room.take(1):
            _remove_message(part, part.messages[message].received)
            removed += 1
    for slot in slots:
        found = part.slots[slot]
        if is_settled(found) and not _shows_card(part, found.slot) and room.take(1):
            part.slots.delete(slot)
            removed += 1
    return removed


def _shows_card(part: Part, slot: Slot) -> bool:
    return any(slot.id in (part.cards.get(wait) or ()) for wait in slot.waits)


def _received_at(part: Part, message: InboundId) -> Any:
    return part.messages[message].received.received_at


def _first_place(part: Part, row: SessionRow) -> int | None:
    """Return the place of the first turn that stays; None when there is none."""
    ended = part.index.ended_turns(row.session.id, 0, 0, TURNS_AT_ONCE + 1)
    rows = [row for row in map(part.turns.get, [*ended, *row.turns[:1], *row.commands[:1]]) if row is not None]
    return min((row.ord for row in rows), default=None)


# --- facts ----------------------------------------------------------------------------------


def _count(part: Part, row: TurnRow) -> None:
    """Count a removed turn of a session, for the page."""
    key = (REMOVED, row.turn.session)
    part.facts.put(key, Fact(dump_json([removed_in(part.facts.get(key)) + 1, to_us(part.now)])))


def removed_in(fact: Fact | None) -> int:
    """Return the number of removed turns, from its fact."""
    return 0 if fact is None else int(load_json(fact.value)[0])


def _note_files(part: Part, row: TurnRow, read: Iterable[Received]) -> None:
    """Note that a turn may have files, and those of these messages."""
    key = (LOST, row.turn.id)
    known = part.facts.get(key)
    inbox = [] if known is None else list(_lost(row.turn.id, known).inbox)
    inbox += [file.path for one in read for file in one.files or () if file.path]
    session = part.sessions[row.turn.session].session
    value = dump_json([session.id, works_in(session), inbox])
    part.facts.put(key, Fact(value, part.now + LOST_FOR))


def _lost(turn: TurnId, fact: Fact) -> LostFiles:
    session, folder, inbox = load_json(fact.value)
    return LostFiles(turn=turn, session=session, works_in=folder, inbox=tuple(inbox))


def lost_files(facts: Iterable[tuple[str, Fact]]) -> Iterator[LostFiles]:
    """Yield the files of removed turns, from their facts."""
    return (_lost(TurnId(turn), fact) for turn, fact in facts)


def forget_files(part: Part, turns: Sequence[TurnId]) -> None:
    """Forget the files of turns once they are removed."""
    for turn in turns:
        if part.facts.get((LOST, turn)) is not None:
            part.facts.delete((LOST, turn))
