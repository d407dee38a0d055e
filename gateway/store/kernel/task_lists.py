"""Transitions of task lists: write a session's list, with the message that shows it. Used by the store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from gateway.domain.ids import SessionId, SlotId
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import StepState
from gateway.domain.task_lists import TaskItem, TaskState, checklist, is_finished
from gateway.domain.turns import Lease, TurnState
from gateway.errors import NotFound
from gateway.store.kernel import turns
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import Early, Fact
from gateway.store.kernel.slots import add_slot, rewrite

TASKS = "tasks"
"""Namespace of facts: the task list of each session's history."""


def write_list(part: Part, lease: Lease, n: int, items: Sequence[TaskItem]) -> None:
    """Store the list of the leased turn's session. An unfinished list keeps its message in a conversation."""
    row = turns.held(part, lease)
    if row.turn.state is TurnState.STOPPING:
        return
    step = part.steps.get((lease.turn, n))
    if step is None or step.step.state is not StepState.STARTED:
        raise NotFound(f"The turn {lease.turn} has no step {n} that was started under this lease.")
    session, epoch, place = row.turn.session, row.turn.epoch, row.turn.conversation
    fact = part.facts.get((TASKS, session))
    before, shown = _read(fact, epoch)
    if is_finished(before) and list(items) != before:
        shown = {}
    text, known = checklist(items), part.slots.get(SlotId(shown.get(place.key, "")))
    if known is not None:
        if known.slot.text != text:
            rewrite(part, known.slot.id, text, None, early=Early.NO)
    elif items:
        slot = add_slot(part, NewSlot(conversation=place, kind=SlotKind.CHECKLIST, text=text), session, lease.turn)
        shown = {**shown, place.key: slot}
    stored = {"epoch": epoch, "items": [[one.text, one.state.value] for one in items], "shown": shown}
    part.facts.put((TASKS, session), Fact(json.dumps(stored)))


def items_of(fact: Fact | None, epoch: int) -> list[TaskItem]:
    """Return the items of a stored list; none for another history's, and for a damaged one."""
    return _read(fact, epoch)[0]


def key_of(session: SessionId) -> tuple[str, str]:
    """Return the key of a session's list among the facts."""
    return (TASKS, session)


def _read(fact: Fact | None, epoch: int) -> tuple[list[TaskItem], dict[str, str]]:
    try:
        found: Any = json.loads(fact.value) if fact is not None else {}
        if not isinstance(found, dict) or cast("dict[str, Any]", found).get("epoch") != epoch:
            return [], {}
        table = cast("dict[str, Any]", found)
        items = [TaskItem(text=str(text), state=TaskState(state)) for text, state in table["items"]]
        return items, {str(place): str(slot) for place, slot in table["shown"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return [], {}
