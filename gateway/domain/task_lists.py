"""Task list types: the steps of a session's work, shown as one message that is edited as they are done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

TASKS_AT_MOST = 50
"""Items of one list: a person reads it in one message."""
TASK_CHARS = 200
"""Characters of an item."""


class TaskState(StrEnum):
    """State of an item."""

    OPEN = "open"
    DOING = "doing"
    DONE = "done"
    DROPPED = "dropped"
    """Not to be done any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskItem:
    """One step of the work."""

    text: str
    state: TaskState


MARKS = MappingProxyType({TaskState.OPEN: "☐", TaskState.DOING: "◐", TaskState.DONE: "☑", TaskState.DROPPED: "☒"})
OVER = frozenset({TaskState.DONE, TaskState.DROPPED})


def is_finished(items: Sequence[TaskItem]) -> bool:
    """Return whether nothing of a list is left to do."""
    return all(item.state in OVER for item in items)


def checklist(items: Sequence[TaskItem]) -> str:
    """Return a list as Markdown; an empty text for an empty list."""
    if not items:
        return ""
    done = sum(item.state in OVER for item in items)
    lines = [f"- {MARKS[item.state]} {_shown(item)}" for item in items]
    return "\n".join([f"**Tasks: {done} of {len(items)} done**", "", *lines])


def _shown(item: TaskItem) -> str:
    return f"~~{item.text}~~" if item.state is TaskState.DROPPED else item.text
