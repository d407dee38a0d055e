"""Lines of lists, made from rows. Used by the reads of backends that keep rows whole, not by transitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gateway.domain.grants import CallPlace
from gateway.domain.sessions import Session
from gateway.domain.turns import TurnState
from gateway.domain.views import ChildLine, SessionLine
from gateway.store.child_rules import ChildRows
from gateway.store.kernel.rows import SessionRow, StepRow, TurnRow


def session_line(row: SessionRow, unended: Iterable[TurnRow], *, rev: int, waiting: int) -> SessionLine:
    """Return a session as lists have it. `unended`: its turns. `rev`: its last one. `waiting`: open approvals."""
    states = [one.turn.state for one in unended]
    return SessionLine(
        session=replace(row.session, summary=""),
        rev=rev,
        waiting=waiting,
        running=states.count(TurnState.RUNNING) + states.count(TurnState.STOPPING),
        queued=states.count(TurnState.QUEUED),
    )


def child_rows(row: SessionRow, task: TurnRow, born: int) -> ChildRows:
    """Return the facts of a child for the order of its family. `born`: its place among all sessions."""
    assert row.session.lineage is not None, "it is a child"
    return ChildRows(
        session=row.session.id,
        parent=row.session.lineage.parent,
        live=row.live,
        born=born,
        ended=0 if row.live else task.rev,
    )


def child_line(row: SessionRow, task: TurnRow, steps: Iterable[StepRow], *, waiting: int) -> ChildLine:
    """Return a task of a child as lists have it. `steps`: those of the task; `waiting`: open approvals of the child."""
    usages = [one.step.answer.usage for one in steps if one.step.answer is not None]
    return ChildLine(
        session=replace(row.session, summary=""),
        turn=task.turn,
        waiting=waiting,
        input_tokens=sum(usage.input_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
        n=task.given_n,
    )


def call_place(turn: TurnRow, above: Sequence[Session]) -> CallPlace:
    """Return the place of a turn's calls, for grants. `above`: its session, and those above it in order."""
    session = above[0]
    return CallPlace(
        histories=tuple((one.id, one.epoch) for one in above),
        root_kind=session.root_kind,
        conversation=session.lineage.conversation if session.lineage else turn.turn.conversation,
        principal=turn.turn.principal,
    )
