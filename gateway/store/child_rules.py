"""Rules for sub-sessions: limits on spawning, messages of start and end, order of a family. Pure.

Shared by every store; their transitions read and write the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gateway.domain.children import (
    CHILDREN_A_TURN,
    LIVE_BELOW_A_ROOT,
    MAX_DEPTH,
    MAX_HOPS,
    Lineage,
    NewChild,
    NewMessage,
    SpawnMode,
    SpawnRefusal,
    child_place,
)
from gateway.domain.ids import SYSTEM_CHILD, SYSTEM_PARENT, SessionId, TurnId, child_session, step_session
from gateway.domain.messages import Conversation, Inbound
from gateway.domain.sessions import Session
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import Answer, Usage
from gateway.domain.turns import Lease, TurnState
from gateway.domain.waits import ChildEnd
from gateway.errors import Forbidden, NotFound

TASK_NAME = "task"
NAME = "sub-session"
WORDS_KEPT = 200_000
"""Characters of a child's last text that its parent receives."""
NOBODY_WAITS = "Stopped: nobody waits for it any longer."
"""Text of a child whose parent stopped waiting or is gone."""


# --- the beginning --------------------------------------------------------------------------


def expect_of_step(lease: Lease, n: int, child: SessionId) -> None:
    """Raise `NotFound` unless this is the id of the child of step `n`."""
    if child != child_session(lease.turn, n):
        raise NotFound(f"The session {child} is not the one that step {n} of the turn {lease.turn} spawns.")


def expect_of_workflow(lease: Lease, n: int, place: int, child: SessionId) -> None:
    """Raise `NotFound` unless this is the id of the child at this place of the workflow of step `n`."""
    if child != step_session(lease.turn, n, place):
        raise NotFound(f"The session {child} is not the one at place {place} of the workflow of step {n}.")


def not_started(lease: Lease, n: int) -> NotFound:
    """Return the error for a spawning step that was not started under this lease."""
    return NotFound(f"The turn {lease.turn} has no step {n} that was started under this lease.")


def of_another(child: SessionId) -> Forbidden:
    """Return the error for stopping or asking a child that works for another person."""
    cure = "Its requester can stop it, or ask it again."
    return Forbidden(f"The sub-session {child} is of somebody else's turn.", cure=cure)


def no_child(child: SessionId, parent: SessionId) -> NotFound:
    """Return the error for a message to a session that the sender did not spawn itself."""
    return NotFound(f"{parent} spawned no sub-session {child}.")


def no_parent(session: SessionId) -> NotFound:
    """Return the error for a message to the parent of a session that has none, or whose task is over."""
    return NotFound(f"{session} works for no other session.")


def lineage_below(parent: Session, turn: TurnId, n: int, began: Conversation, child: NewChild) -> Lineage:
    """Return a child's lineage, which limits count by. `began`: the conversation where the turn `turn` began."""
    above = parent.lineage
    return Lineage(
        parent=parent.id,
        turn=turn,
        n=n,
        root=above.root if above else parent.id,
        root_turn=above.root_turn if above else turn,
        conversation=above.conversation if above else began,
        depth=above.depth + 1 if above else 1,
        mode=child.mode,
        agent=child.agent,
        model=child.model,
        active_s=child.active_s,
        tokens=child.tokens,
    )


def lineage_anew(child: Lineage, parent: Session, turn: TurnId, n: int, began: Conversation) -> Lineage:
    """Return a child's lineage when step `n` of a turn of its parent waits for it from now on, or sends it a task."""
    above = parent.lineage
    return replace(
        child,
        turn=turn,
        n=n,
        root_turn=above.root_turn if above else turn,
        conversation=above.conversation if above else began,
    )


def with_limits(lineage: Lineage, new: NewMessage) -> Lineage:
    """Return a child's lineage for a further task."""
    mode = SpawnMode.SESSION if new.waits is None else SpawnMode.RUN
    return replace(lineage, mode=mode, active_s=new.active_s, tokens=new.tokens)


def refusal_of_message(hops: int, task: TurnState, *, live_child: bool, in_turn: int, live: int) -> SpawnRefusal | None:
    """Return why no message goes to a child. `hops`: those before it; `task`: state of the child's present task."""
    if hops >= MAX_HOPS:
        return SpawnRefusal.TOO_MANY_HOPS
    if live_child:
        return SpawnRefusal.ENDING if task is TurnState.STOPPING else None
    return refusal(0, in_turn=in_turn, live=live)


def refusal(depth: int, *, in_turn: int, live: int) -> SpawnRefusal | None:
    """Return why no child may begin at this depth. `in_turn`: tasks given by the turn; `live`: live below the root."""
    if depth > MAX_DEPTH:
        return SpawnRefusal.TOO_DEEP
    if in_turn >= CHILDREN_A_TURN:
        return SpawnRefusal.TOO_MANY_IN_TURN
    return SpawnRefusal.TOO_MANY_LIVE if live >= LIVE_BELOW_A_ROOT else None


def first_message(child: NewChild, now: datetime, quoted: str = "") -> Inbound:
    """Return the task as the first message of a child. `quoted`: results of other children that it is given."""
    return replace(_from_parent(child.session, "spawn", child.task, now), quoted=quoted)


def message_to(new: NewMessage, lease: Lease, n: int, now: datetime) -> Inbound:
    """Return a message to a child that is there already. Its key is that of its step, so that it arrives once."""
    return _from_parent(new.child, f"{lease.turn}.{n}/send", new.text, now)


def _from_parent(child: SessionId, key: str, text: str, now: datetime) -> Inbound:
    return Inbound(
        event_key=f"child/{child}/{key}",
        conversation=child_place(child),
        principal=SYSTEM_PARENT,
        name=TASK_NAME,
        direct=True,
        addressed=True,
        text=text,
        sent_at=now,
    )


def message_up(child: Session, task: TurnId, n: int, text: str, place: Conversation, now: datetime) -> Inbound:
    """Return a message of a child at work to its parent. Its key is that of its step; its text is `quoted`: data."""
    return _from_child(child.id, f"{task}.{n}/said", f"The sub-session `{child.id}` is at work.", text, place, now)


def refusal_of_message_up(hops: int, *, stopping: bool, awaited: bool) -> SpawnRefusal | None:
    """Return why a child may not write to its parent now. `hops`: those before the message."""
    if stopping:
        return SpawnRefusal.STOPPING
    if awaited:
        return SpawnRefusal.AWAITED
    return SpawnRefusal.TOO_MANY_HOPS if hops >= MAX_HOPS else None


# --- the end --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """End of a child's task: state and last text."""

    child: SessionId
    task: TurnId
    """Turn of the task."""
    title: str
    state: TurnState
    words: str
    """Its last text, whole."""


def last_words(answer: Answer | None, slots: Sequence[NewSlot]) -> str:
    """Return a turn's last text: its answer, or the text shown instead of one."""
    if answer is not None and answer.text:
        return answer.text
    return next((slot.text for slot in slots if slot.text and slot.kind is not SlotKind.STATUS), "")


def answer_of(end: End, active_ms: int, spent: Usage) -> dict[str, Any]:
    """Return the payload of a wait on a child that has ended."""
    words = end.words[:WORDS_KEPT]
    return ChildEnd(child=end.child, state=end.state, text=words, active_ms=active_ms, usage=spent).as_payload()


def end_message(end: End, place: Conversation, now: datetime) -> Inbound:
    """Return the message that reports a child's end to its parent. Model text is `quoted`: data, not instructions."""
    title = f"Task: {end.title}" if end.title else ""
    text = f"The sub-session `{end.child}` has ended: {end.state.value}."
    said = "\n\n".join(filter(None, [title, end.words[:WORDS_KEPT]]))
    return _from_child(end.child, f"{end.task}/end", text, said, place, now)


def _from_child(child: SessionId, key: str, text: str, said: str, place: Conversation, now: datetime) -> Inbound:
    return Inbound(
        event_key=f"child/{child}/{key}",
        conversation=place,
        principal=SYSTEM_CHILD,
        name=NAME,
        direct=False,
        addressed=True,
        text=text,
        sent_at=now,
        quoted=said,
    )


# --- lists ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRows:
    """Sort key fields of a child in a list."""

    session: SessionId
    parent: SessionId
    live: bool
    born: int
    """Increases with each child created."""
    ended: int
    """Increases with each task that ends; 0 while live."""


def in_order(family: Sequence[ChildRows]) -> list[SessionId]:
    """Return live children first, in order of creation, then ended ones, the latest first.

    Each parent precedes its own children: an ended parent is sorted by its most recent child.
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
