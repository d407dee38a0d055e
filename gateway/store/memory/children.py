"""Sub-session transitions in memory: spawn, stop, list. Their end is reported in `turn_ops`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gateway.domain.children import Lineage, NewChild, SpawnMode, SpawnRefusal
from gateway.domain.ids import Principal, SessionId, TurnId, WaitId, mint
from gateway.domain.sessions import Origin, Session, SessionKind
from gateway.domain.steps import StepState
from gateway.domain.turns import Lease, TurnState
from gateway.domain.views import ChildLine
from gateway.domain.waits import NewWait, WaitKind, WaitState
from gateway.errors import NotFound
from gateway.store import child_rules
from gateway.store.memory.rows import SessionRow, TurnRow
from gateway.store.memory.turn_ops import TurnOps


class MemoryChildren(TurnOps):
    """`ports.Children`."""

    async def spawn(self, lease: Lease, n: int, child: NewChild) -> WaitId | SpawnRefusal | None:
        """Store a child with its task, and in mode RUN the wait of the step that spawned it."""
        with self.transition():
            row = self.held(lease)
            child_rules.expect_of_step(lease, n, child.session)
            known = self.all_sessions.get(child.session)
            if known is not None:
                return known.parent_wait
            if row.turn.state is TurnState.STOPPING:
                return SpawnRefusal.STOPPING
            if not self._started(row, n):
                raise child_rules.not_started(lease, n)
            parent = self.all_sessions[row.turn.session].session
            lineage = child_rules.lineage_below(parent, lease, n, row.turn.conversation, child)
            refused = self._refusal(lineage)
            if refused is not None:
                return refused
            self._begin_child(row, child, parent, lineage)
            return self._wait_for(row, n, child) if lineage.mode is SpawnMode.RUN else None

    def _started(self, row: TurnRow, n: int) -> bool:
        known = 0 <= n < len(row.steps) and row.steps[n].state is StepState.STARTED
        return known and row.started_under[n] == row.fence

    def _refusal(self, lineage: Lineage) -> SpawnRefusal | None:
        siblings = [self.all_sessions[one].session.lineage for one in self.children.get(lineage.parent, ())]
        living = [row.session.lineage for row in self.live_children.values()]
        return child_rules.refusal(
            lineage.depth,
            in_turn=sum(1 for one in siblings if one is not None and one.turn == lineage.turn),
            live=sum(1 for one in living if one is not None and one.root == lineage.root),
        )

    def _begin_child(self, row: TurnRow, child: NewChild, parent: Session, lineage: Lineage) -> None:
        now = self.clock.now()
        session = Session(
            id=child.session,
            kind=SessionKind.NON_MAIN,
            origin=Origin.CHILD,
            owner=parent.owner,
            title=child.title,
            epoch=0,
            root_kind=parent.root_kind,
            tools=child.tools,
            created_at=now,
            active_at=now,
            lineage=lineage,
        )
        known = SessionRow(session, 0)
        self.all_sessions[session.id] = self.live_children[session.id] = known
        self.children.setdefault(parent.id, []).append(session.id)
        known.task = self.begin_turn(session, row.turn.principal, child_rules.first_message(child, now)).turn.id

    def _wait_for(self, row: TurnRow, n: int, child: NewChild) -> WaitId:
        wait = self.all_sessions[child.session].parent_wait = WaitId(mint("w"))
        self.put_step(row, replace(row.steps[n], state=StepState.ASKED))
        payload = {"child": child.session}
        new = NewWait(id=wait, kind=WaitKind.CHILD, n=n, approval=None, payload=payload, expires_at=child.expires_at)
        self.open_wait(row, new)
        return wait

    async def stop_child(self, parent: SessionId, child: SessionId, text: str, only: Principal | None = None) -> int:
        """Stop a child and all below it."""
        with self.transition():
            if child not in self.below(parent):
                raise NotFound(f"There is no sub-session {child} below {parent}.")
            task = self.all_sessions[child].task
            if only is not None and task is not None and self.turns[task].turn.principal != only:
                raise child_rules.of_another(child)
            return self.stop_below(child, text)

    async def family(self, session: SessionId, limit: int = 50) -> Sequence[ChildLine]:
        """Return the children below a session, live ones first."""
        family = [self._child_rows(self.all_sessions[child]) for child in self.below(session)]
        return [self._child_line(self.all_sessions[child]) for child in child_rules.in_order(family)[: max(0, limit)]]

    async def children_of(self, turn: TurnId) -> Sequence[ChildLine]:
        """Return the children that a turn spawned itself, in the order of its steps."""
        row = self.turns.get(turn)
        below = [] if row is None else [self.all_sessions[one] for one in self.children.get(row.turn.session, ())]
        own = [one for one in below if one.session.lineage is not None and one.session.lineage.turn == turn]
        return sorted(map(self._child_line, own), key=child_rules.step_of)

    def _child_rows(self, row: SessionRow) -> child_rules.ChildRows:
        assert row.session.lineage is not None
        assert row.task is not None
        id_, task = row.session.id, self.rows[row.session.id]["turn", row.task]
        live = id_ in self.live_children
        ended = 0 if live else task.rev
        return child_rules.ChildRows(
            session=id_, parent=row.session.lineage.parent, live=live, born=task.ord, ended=ended
        )

    def _child_line(self, row: SessionRow) -> ChildLine:
        assert row.task is not None
        task = self.turns[row.task]
        usages = [step.answer.usage for step in task.steps if step.answer is not None]
        waits = [wait for wait in self.undecided.values() if wait.session == row.session.id]
        return ChildLine(
            session=replace(row.session, summary=""),
            turn=task.turn,
            waiting=sum(1 for wait in waits if (wait.kind, wait.state) == (WaitKind.APPROVAL, WaitState.OPEN)),
            input_tokens=sum(usage.input_tokens for usage in usages),
            output_tokens=sum(usage.output_tokens for usage in usages),
        )
