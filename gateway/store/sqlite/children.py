"""Reads of sub-sessions in SQLite: families and their lines."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.domain.ids import SessionId, TurnId
from gateway.domain.views import ChildLine
from gateway.store import child_rules
from gateway.store.codec import dump_json
from gateway.store.decode import Columns, readable, session_of, turn_of
from gateway.store.sqlite.tx import ReadTx

SESSION_COLUMNS = 16
"""Number of columns that `session_of` takes."""


def family(reader: ReadTx, session: SessionId, limit: int) -> list[ChildLine]:
    """Return the children below a session, live ones first."""
    family = [
        child_rules.ChildRows(session=id_, parent=parent, live=bool(live), born=born, ended=ended)
        for id_, parent, live, born, ended in reader.run("family", session, max(0, limit))
    ]
    return _lines(reader, child_rules.in_order(family)[: max(0, limit)])


def children_of(reader: ReadTx, turn: TurnId) -> list[ChildLine]:
    """Return the tasks that a turn gave itself, in the order of its steps."""
    return readable(_line, reader.run("task_lines", turn), "sub-session")


def _lines(reader: ReadTx, children: Sequence[SessionId]) -> list[ChildLine]:
    lines = readable(_line, reader.run("child_lines", dump_json(list(children))), "sub-session")
    by_id = {line.session.id: line for line in lines}
    return [by_id[id_] for id_ in children if id_ in by_id]


def _line(columns: Columns) -> ChildLine:
    *rest, waiting, input_tokens, output_tokens, n = columns
    return ChildLine(
        session=session_of(tuple(rest[:SESSION_COLUMNS])),
        turn=turn_of(tuple(rest[SESSION_COLUMNS:])),
        waiting=waiting,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        n=n,
    )
