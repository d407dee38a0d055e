"""Relations between sessions and their tasks: who is below whom, who gave a task, how far a message has come."""

from __future__ import annotations

from gateway.domain.ids import SYSTEM_CHILD, SYSTEM_HOME, SYSTEM_PARENT, SessionId, TurnId
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import SessionRow

_NOBODY = frozenset({SYSTEM_PARENT, SYSTEM_CHILD, SYSTEM_HOME})
"""Authors of messages that are no person's."""


def is_below(part: Part, session: SessionId, above: SessionId) -> bool:
    """Return whether a session is a child, at any depth, of another one."""
    row = part.sessions.get(session)
    while row is not None and row.session.lineage is not None:
        if row.session.lineage.parent == above:
            return True
        row = part.sessions.get(row.session.lineage.parent)
    return False


def home_of(part: Part, row: SessionRow) -> str:
    """Return the place that holds the files of a session: that of its root. Empty while there is none."""
    lineage = row.session.lineage
    homes = (row if lineage is None else part.sessions[lineage.root]).homes
    return homes[-1] if homes else ""


def give(part: Part, turn: TurnId, n: int, task: TurnId) -> None:
    """Record that step `n` of a turn gave the task of a child, in place of the turn that gave it before, if any.

    What the task uses counts for that turn from now on.
    """
    before = part.turns[task]
    if before.given_by is not None:
        others = tuple(one for one in part.turns[before.given_by].tasks if one != task)
        part.relink_turn(before.given_by, tasks=others)
    part.relink_turn(task, given_by=turn, given_n=n, hops=max(before.hops, hops_of(part, turn)))
    tasks = (*part.turns[turn].tasks, task)
    if before.given_by is not None:  # a new task is the last one, and none of the others need be loaded
        tasks = tuple(sorted(tasks, key=lambda one: part.turns[one].ord))
    part.relink_turn(turn, tasks=tasks)


def hops_of(part: Part, turn: TurnId) -> int:
    """Return the number of messages in a row between sessions that led to a turn: 0 once a person writes in it."""
    row = part.turns[turn]
    said = (part.messages[one].received for one in row.inputs)
    return row.hops if all(one.context or one.message.principal in _NOBODY for one in said) else 0
