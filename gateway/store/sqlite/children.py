"""Sub-session transitions in SQLite: spawn, stop, list. Their end is reported in `turn_ops`."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.domain.children import Lineage, NewChild, SpawnMode, SpawnRefusal
from gateway.domain.ids import Principal, SessionId, TurnId, WaitId, mint
from gateway.domain.sessions import Origin, SessionKind
from gateway.domain.steps import StepState
from gateway.domain.turns import Lease, TurnState
from gateway.domain.views import ChildLine
from gateway.domain.waits import NewWait, WaitKind
from gateway.errors import NotFound
from gateway.store import child_rules
from gateway.store.codec import LINEAGE, dump_json, load_conversation
from gateway.store.sqlite import turn_ops
from gateway.store.sqlite.base import SqliteBase
from gateway.store.sqlite.rows import Columns, TurnColumns, readable, session_of, turn_of
from gateway.store.sqlite.tx import ReadTx, Tx

SESSION_COLUMNS = 12
"""Number of columns that `session_of` takes."""


class SqliteChildren(SqliteBase):
    """`ports.Children`."""

    async def spawn(self, lease: Lease, n: int, child: NewChild) -> WaitId | SpawnRefusal | None:
        """Store a child with its task, and in mode RUN the wait of the step that spawned it."""
        return await self.write(lambda tx: _spawn(tx, lease, n, child))

    async def stop_child(self, parent: SessionId, child: SessionId, text: str, only: Principal | None = None) -> int:
        """Stop a child and all below it."""
        return await self.write(lambda tx: _stop_child(tx, parent, child, text, only))

    async def family(self, session: SessionId, limit: int = 50) -> Sequence[ChildLine]:
        """Return the children below a session, live ones first."""
        return await self.read(lambda reader: _family(reader, session, limit))

    async def children_of(self, turn: TurnId) -> Sequence[ChildLine]:
        """Return the children that a turn spawned itself, in the order of its steps."""
        return await self.read(lambda reader: _children_of(reader, turn))


def _spawn(tx: Tx, lease: Lease, n: int, child: NewChild) -> WaitId | SpawnRefusal | None:
    row = turn_ops.held(tx, lease)
    child_rules.expect_of_step(lease, n, child.session)
    known = tx.one("child", child.session)
    if known is not None:
        return known[3]
    if row.state == TurnState.STOPPING:
        return SpawnRefusal.STOPPING
    step = tx.one("step", row.id, n)
    if step is None or step[1] != StepState.STARTED or step[3] != row.fence:
        raise child_rules.not_started(lease, n)
    columns = tx.one("session", row.session)
    assert columns is not None, "foreign keys hold"
    parent = session_of(columns)
    lineage = child_rules.lineage_below(parent, lease, n, load_conversation(row.conversation), child)
    refused = _refusal(tx, row, lineage)
    if refused is not None:
        return refused
    wait = WaitId(mint("w")) if lineage.mode is SpawnMode.RUN else None
    turn = TurnId(mint("t"))
    what = (child.session, SessionKind.NON_MAIN, Origin.CHILD, parent.owner, child.title, parent.root_kind)
    line = (LINEAGE.dump(lineage), parent.id, lineage.root, turn, wait)
    tx.run("add_child", *what, dump_json(list(child.tools)), tx.now, *line)
    message = child_rules.first_message(child, tx.moment)
    turn_ops.add_turn(tx, turn, child.session, 0, Principal(row.principal), message, head=True)
    if wait is not None:
        _wait_for(tx, row, n, wait, child)
    return wait


def _refusal(tx: Tx, row: TurnColumns, lineage: Lineage) -> SpawnRefusal | None:
    ((live,),) = tx.run("live_below_root", lineage.root)
    return child_rules.refusal(lineage.depth, in_turn=len(_spawned(tx, TurnId(row.id))), live=live)


def _spawned(reader: ReadTx | Tx, turn: TurnId) -> list[SessionId]:
    return [
        id_
        for (id_,) in reader.run("children_of_turn", f"{child_rules.CHILDREN}{turn}.", f"{child_rules.CHILDREN}{turn}/")
    ]


def _wait_for(tx: Tx, row: TurnColumns, n: int, wait: WaitId, child: NewChild) -> None:
    tx.run("ask_step", tx.next_rev(row.session), row.id, n)
    payload = {"child": child.session}
    new = NewWait(id=wait, kind=WaitKind.CHILD, n=n, approval=None, payload=payload, expires_at=child.expires_at)
    turn_ops.open_wait(tx, row, new)


def _stop_child(tx: Tx, parent: SessionId, child: SessionId, text: str, only: Principal | None) -> int:
    found = tx.one("child", child)
    if found is None or tx.one("is_below", child, parent) is None:
        raise NotFound(f"There is no sub-session {child} below {parent}.")
    if only is not None and turn_ops.stored_turn(tx, found[2]).principal != only:
        raise child_rules.of_another(child)
    return turn_ops.stop_below(tx, child, text)


def _family(reader: ReadTx, session: SessionId, limit: int) -> list[ChildLine]:
    family = [
        child_rules.ChildRows(session=id_, parent=parent, live=bool(live), born=born, ended=ended)
        for id_, parent, live, born, ended in reader.run("family", session, max(0, limit))
    ]
    return _lines(reader, child_rules.in_order(family)[: max(0, limit)])


def _children_of(reader: ReadTx, turn: TurnId) -> list[ChildLine]:
    return sorted(_lines(reader, _spawned(reader, turn)), key=child_rules.step_of)


def _lines(reader: ReadTx, children: Sequence[SessionId]) -> list[ChildLine]:
    lines = readable(_line, reader.run("child_lines", dump_json(list(children))), "sub-session")
    by_id = {line.session.id: line for line in lines}
    return [by_id[id_] for id_ in children if id_ in by_id]


def _line(columns: Columns) -> ChildLine:
    *rest, waiting, input_tokens, output_tokens = columns
    return ChildLine(
        session=session_of(tuple(rest[:SESSION_COLUMNS])),
        turn=turn_of(tuple(rest[SESSION_COLUMNS:])),
        waiting=waiting,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )
