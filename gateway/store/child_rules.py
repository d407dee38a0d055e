"""Beside the path of a sub-session: when none is begun, what its end says, in which order a family is listed. Pure.

Shared by every store, whose transitions read and write the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gateway.domain.children import (
    CHILDREN_A_TURN,
    LIVE_BELOW_A_ROOT,
    MAX_DEPTH,
    Lineage,
    NewChild,
    SpawnRefusal,
    child_place,
)
from gateway.domain.ids import SYSTEM_CHILD, SYSTEM_PARENT, SessionId, child_session
from gateway.domain.messages import Conversation, Inbound
from gateway.domain.sessions import Session
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import Answer, Usage
from gateway.domain.turns import Lease, TurnState
from gateway.domain.views import ChildLine
from gateway.domain.waits import ChildEnd
from gateway.errors import Forbidden, NotFound

CHILDREN = "child:"
"""What the id of every child begins with, and of no other session: its end is told to somebody."""
TASK_NAME = "task"
NAME = "sub-session"
WORDS_KEPT = 200_000
"""Characters of a child's last words that its parent is told."""
NOBODY_WAITS = "Stopped: nobody waits for it any longer."
"""What a child says whose parent gave up waiting, or is gone."""


# --- the beginning --------------------------------------------------------------------------


def expect_of_step(lease: Lease, n: int, child: SessionId) -> None:
    """Raise `NotFound` when this is not the id of the child of step `n`: it would be another step's, or no child's."""
    if child != child_session(lease.turn, n):
        raise NotFound(f"The session {child} is not the one that step {n} of the turn {lease.turn} spawns.")


def not_started(lease: Lease, n: int) -> NotFound:
    """What is raised when the step that spawns was not started under this lease."""
    return NotFound(f"The turn {lease.turn} has no step {n} that was started under this lease.")


def of_another(child: SessionId) -> Forbidden:
    """What is raised when somebody would stop a child that works for somebody else."""
    return Forbidden(f"The sub-session {child} is of somebody else's turn.", cure="Whoever asked for it can stop it.")


def lineage_below(parent: Session, lease: Lease, n: int, began: Conversation, child: NewChild) -> Lineage:
    """Where a child comes from: limits count by it. `began` is where the leased turn did."""
    above = parent.lineage
    return Lineage(
        parent=parent.id,
        turn=lease.turn,
        n=n,
        root=above.root if above else parent.id,
        root_turn=above.root_turn if above else lease.turn,
        conversation=above.conversation if above else began,
        depth=above.depth + 1 if above else 1,
        mode=child.mode,
        agent=child.agent,
        model=child.model,
        active_s=child.active_s,
        tokens=child.tokens,
    )


def refusal(depth: int, *, in_turn: int, live: int) -> SpawnRefusal | None:
    """Why no child is begun at this depth. `in_turn`: how many the turn spawned; `live`: those below the root."""
    if depth > MAX_DEPTH:
        return SpawnRefusal.TOO_DEEP
    if in_turn >= CHILDREN_A_TURN:
        return SpawnRefusal.TOO_MANY_IN_TURN
    return SpawnRefusal.TOO_MANY_LIVE if live >= LIVE_BELOW_A_ROOT else None


def first_message(child: NewChild, now: datetime) -> Inbound:
    """The task, as the first message of a child."""
    return Inbound(
        event_key=f"child/{child.session}/spawn",
        conversation=child_place(child.session),
        principal=SYSTEM_PARENT,
        name=TASK_NAME,
        direct=True,
        addressed=True,
        text=child.task,
        sent_at=now,
    )


# --- the end --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How the turn of a child's task ended."""

    child: SessionId
    title: str
    state: TurnState
    words: str
    """Its last ones, whole."""


def last_words(answer: Answer | None, slots: Sequence[NewSlot]) -> str:
    """What a turn says last: its answer, or what it shows instead of one."""
    if answer is not None and answer.text:
        return answer.text
    return next((slot.text for slot in slots if slot.text and slot.kind is not SlotKind.STATUS), "")


def answer_of(end: End, active_ms: int, spent: Usage) -> dict[str, Any]:
    """The payload of a wait on a child that has ended."""
    words = end.words[:WORDS_KEPT]
    return ChildEnd(child=end.child, state=end.state, text=words, active_ms=active_ms, usage=spent).as_payload()


def end_message(end: End, place: Conversation, now: datetime) -> Inbound:
    """The message that tells a parent of a child's end. What models wrote is `quoted`: data, whatever it says."""
    title = f"Task: {end.title}" if end.title else ""
    return Inbound(
        event_key=f"child/{end.child}/end",
        conversation=place,
        principal=SYSTEM_CHILD,
        name=NAME,
        direct=False,
        addressed=True,
        text=f"The sub-session `{end.child}` has ended: {end.state.value}.",
        sent_at=now,
        quoted="\n\n".join(filter(None, [title, end.words[:WORDS_KEPT]])),
    )


# --- lists ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRows:
    """A child as far as the order of a list goes."""

    session: SessionId
    parent: SessionId
    live: bool
    born: int
    """Grows with each child made."""
    ended: int
    """Grows with each task that ends; 0 while it has not."""


def step_of(line: ChildLine) -> int:
    """Return which step of its parent's turn spawned a child."""
    assert line.session.lineage is not None
    return line.session.lineage.n


def in_order(family: Sequence[ChildRows]) -> list[SessionId]:
    """Live ones first, in the order they were made, then those that ended last.

    Each parent stands before its own children: one that has ended goes where its liveliest child goes.
    """
    live = {one.session: one.live for one in family}
    ended = {one.session: one.ended for one in family}
    for one in sorted(family, key=lambda one: one.born, reverse=True):  # children before their parents
        if one.parent in live:
            live[one.parent] |= live[one.session]
            ended[one.parent] = max(ended[one.parent], ended[one.session])

    def place(one: ChildRows) -> tuple[bool, int, int]:
        return (not live[one.session], 0 if live[one.session] else -ended[one.session], one.born)

    return [one.session for one in sorted(family, key=place)]
