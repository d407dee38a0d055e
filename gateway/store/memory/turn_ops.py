"""Turn operations of the memory store: queue, lease, end. Shared by its transitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from heapq import heappop, heappush

from gateway.domain.ids import SYSTEM_CHILD, InboundId, Principal, SessionId, SlotId, TurnId, child_session, mint
from gateway.domain.messages import Conversation, Inbound, Received
from gateway.domain.sessions import Session
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import Step, StepState, Usage
from gateway.domain.tools import ToolResult, outcome_unknown
from gateway.domain.turns import ENDED, Lease, Turn, TurnKind, TurnState
from gateway.domain.views import TurnView
from gateway.domain.waits import NewWait, Wait, WaitKind, WaitState
from gateway.errors import LeaseLost, NotFound
from gateway.store.answer_rules import last_status, last_word
from gateway.store.child_rules import CHILDREN, NOBODY_WAITS, End, answer_of, end_message
from gateway.store.constants import CANCELLED, COMMANDS_AT_ONCE, HELD, UNDECIDED
from gateway.store.memory.rows import SessionRow, SlotRow, TurnRow
from gateway.store.memory.tables import Tables


class TurnOps(Tables):
    """Turn operations shared by the transitions."""

    def turn_row(self, turn: TurnId) -> TurnRow:
        """Return the turn or raise `NotFound`."""
        row = self.turns.get(turn)
        if row is None:
            raise NotFound(f"There is no turn {turn}.")
        return row

    def held(self, lease: Lease) -> TurnRow:
        """Return the leased turn; raise `LeaseLost` when this lease does not hold it."""
        row = self.turns.get(lease.turn)
        if row is None or row.fence != lease.fence or row.turn.state not in HELD:
            raise LeaseLost
        return row

    def view_of(self, row: TurnRow) -> TurnView:
        """Return the turn with all its stored rows."""
        return TurnView(
            turn=row.turn,
            session=self.all_sessions[row.turn.session].session,
            inputs=tuple(self.inbounds[i] for i in row.inputs),
            steps=tuple(row.steps),
            waits=tuple(self.waits[w] for w in row.waits),
        )

    def history_of(self, session: SessionId, epoch: int, limit: int, *, oldest: bool = False) -> list[TurnView]:
        """Return the last, or first, ended turns of an epoch beyond its summary, in the order they ended."""
        known = self.all_sessions.get(session)
        begin = known.summed_up if known is not None and known.session.epoch == epoch else 0
        ended = [row for row in self.ended.get(session, [])[begin:] if row.turn.epoch == epoch]
        taken = ended[:limit] if oldest else ended[max(0, len(ended) - limit) :]
        return [self.view_of(row) for row in taken]

    # --- the queue --------------------------------------------------------------------------

    def may_run(self, row: TurnRow) -> bool:
        """Return whether its lane lets this queued turn run now."""
        lane = self.lane(row.turn.session, row.turn.kind)
        if row.turn.kind is TurnKind.MODEL:
            return next(iter(lane.turns)) == row.turn.id
        return lane.held < COMMANDS_AT_ONCE

    def offer(self, row: TurnRow) -> None:
        """Offer a turn to `claim` when it is queued and may run now. Idempotent: `next_ready` checks again."""
        if row.turn.state is TurnState.QUEUED and self.may_run(row):
            heappush(self.ready, (row.queued_rev, row.turn.id))
            self.touched.turns_due |= not self._is_held_back(row)

    def next_ready(self) -> TurnRow | None:
        """Pop the turn queued first of those that may run."""
        held_back: list[tuple[int, TurnId]] = []
        found: TurnRow | None = None
        while self.ready and found is None:
            rev, turn = heappop(self.ready)
            row = self.turns[turn]
            # A command whose lane filled up meanwhile is dropped here; the next free place in its lane offers it again.
            if row.turn.state is TurnState.QUEUED and row.queued_rev == rev and self.may_run(row):
                if self._is_held_back(row):
                    held_back.append((rev, turn))
                else:
                    found = row
        for entry in held_back:
            heappush(self.ready, entry)
        return found

    def hold_back(self, row: TurnRow, until: datetime | None) -> None:
        """Keep this new turn from being claimed before `until`; None: claimable now."""
        row.held_until = until
        if until is None:
            self.holding.pop(row.turn.id, None)
        else:
            self.holding[row.turn.id] = row

    def _is_held_back(self, row: TurnRow) -> bool:
        return row.held_until is not None and row.held_until > self.clock.now()

    def _lane_moved(self, row: TurnRow) -> None:
        lane = self.lane(row.turn.session, row.turn.kind)
        if row.turn.kind is TurnKind.MODEL:
            candidates = list(lane.turns.values())[:1]
        else:
            queued = (other for other in lane.turns.values() if other.turn.state is TurnState.QUEUED)
            free = max(0, COMMANDS_AT_ONCE - lane.held)
            candidates = sorted(queued, key=lambda other: other.queued_rev)[:free]
        for other in candidates:
            self.offer(other)

    def queue(self, row: TurnRow) -> None:
        """Make a turn claimable, behind those already queued."""
        self.rev += 1
        row.queued_at, row.queued_rev = self.clock.now(), self.rev
        self.let_go(row, TurnState.QUEUED)

    def wake(self, row: TurnRow) -> None:
        """Queue a parked turn after a decision; otherwise notify its holder."""
        if row.turn.state is TurnState.PARKED:
            self.queue(row)
        else:
            self.touched.turns.add(row.turn.id)

    def let_go(self, row: TurnRow, state: TurnState) -> None:
        """Release a turn from its holder and offer the turns that may run because of it."""
        now, active = self.clock.now(), row.turn.active_ms
        if row.held_since is not None and row.lease_until is not None:  # after expiry nobody works
            held = min(now, row.lease_until) - row.held_since
            active += max(0, round(held / timedelta(milliseconds=1)))
        row.node, row.lease_until, row.held_since = None, None, None
        ended = now if state in ENDED else None
        self.put_turn(row, replace(row.turn, state=state, active_ms=active, ended_at=ended))
        self._lane_moved(row)

    # --- the end ----------------------------------------------------------------------------

    def end_turn(self, row: TurnRow, state: TurnState, words: str) -> None:
        """End a turn: every call gets its one result, waits are withdrawn, messages count as given.

        `words`: its last text. A child's end is reported to its parent.
        """
        self._cancel_calls(row, started_too=True)
        for received in [self.inbounds[i] for i in row.inputs]:
            if received.given is None:
                self.put_received(row.turn.session, replace(received, given=len(row.steps)))
        stopping = row.turn.state is TurnState.STOPPING
        self.let_go(row, state)
        self.touched.turns.add(row.turn.id)
        child = self.live_children.get(row.turn.session)
        if child is not None and child.task == row.turn.id:
            self._notify_parent(child, row, words, stopping=stopping)

    def stop(self, row: TurnRow, text: str) -> None:
        """Stop a turn: its holder may only write results from now on; without a holder it ends here."""
        row.stopped_text = text
        if row.turn.state in HELD:
            self.put_turn(row, replace(row.turn, state=TurnState.STOPPING, stopped_text=text))
            self._cancel_calls(row, started_too=False)
            self.touched.turns.add(row.turn.id)
        else:
            self.end_stopped(row)

    def end_stopped(self, row: TurnRow) -> None:
        """End a stopped turn that nobody holds, and show its text where it began."""
        turn = row.turn
        self.end_turn(row, TurnState.STOPPED, row.stopped_text)
        said = NewSlot(conversation=turn.conversation, kind=SlotKind.ANSWER, text=row.stopped_text)
        self.say(row, [said] if said.text else [], ends=True)

    # --- its slots --------------------------------------------------------------------------

    def say(self, row: TurnRow, slots: Sequence[NewSlot], *, ends: bool = False) -> None:
        """Store a turn's slots; an existing slot of the turn takes the new text.

        Drafts without an answer are emptied, or take the last text of a turn that `ends`. A status line stays as it is
        until then.
        """
        if ends:
            slots = last_status(last_word(slots, _places(row.early)), _places(row.status))
        for new in slots:
            known = None if new.id is None else self.slots.get(new.id)
            if known is not None and known.slot.turn == row.turn.id:
                row.early.pop(known.slot.id, None)
                self.rewrite(known, new.text, new.n)
            else:
                id_ = self.add_slot(new, row.turn.session, row.turn.id)
                if new.kind is SlotKind.STATUS:
                    row.status[id_] = self.slots[id_]
        for left in row.early.values():
            self.rewrite(left, "", left.slot.n)
        row.early.clear()
        if ends:
            row.status.clear()

    def _cancel_calls(self, row: TurnRow, *, started_too: bool) -> None:
        self.cancel_waits(self.waits[wait] for wait in row.waits)
        for step in list(row.steps):
            if step.state in (StepState.PLANNED, StepState.ASKED):
                self.finish(row, step, CANCELLED)
            elif step.state is StepState.STARTED and started_too:
                # Its outcome is unknown: CANCELLED would claim that it never ran.
                self.finish(row, step, outcome_unknown(step.started_at))

    def finish(self, row: TurnRow, step: Step, result: ToolResult) -> None:
        """Give a step its result."""
        self.put_step(row, replace(step, state=StepState.FINISHED, result=result, ended_at=self.clock.now()))

    def cancel_waits(self, waits: Iterable[Wait]) -> None:
        """Withdraw waits that are open, or approved and unused."""
        for wait in list(waits):
            if wait.state in UNDECIDED:
                self.put_wait(replace(wait, state=WaitState.CANCELLED))
                if wait.kind is WaitKind.CHILD:
                    self.stop_below(child_session(wait.turn, wait.n), self.turns[wait.turn].stopped_text)

    def approvals_asked_by(self, session: SessionId, requester: Principal) -> int:
        """Return the number of open approvals of a session that this person requested."""
        turns = [row for kind in TurnKind for row in self.lane(session, kind).turns.values()]
        waits = [self.waits[wait] for row in turns if row.turn.principal == requester for wait in row.waits]
        return sum(wait.state is WaitState.OPEN and wait.kind is WaitKind.APPROVAL for wait in waits)

    def open_wait(self, row: TurnRow, new: NewWait) -> None:
        """Store a new wait of a turn."""
        self.put_wait(
            Wait(
                id=new.id,
                kind=new.kind,
                session=row.turn.session,
                turn=row.turn.id,
                n=new.n,
                state=WaitState.OPEN,
                approval=new.approval,
                payload=new.payload,
                opened_at=self.clock.now(),
                expires_at=new.expires_at,
            )
        )
        row.waits.append(new.id)

    # --- children ---------------------------------------------------------------------------

    def begin_turn(self, session: Session, principal: Principal, message: Inbound) -> TurnRow:
        """Queue a model turn for a message that came from no channel, in the message's conversation."""
        now = self.clock.now()
        turn = Turn(
            id=TurnId(mint("t")),
            session=session.id,
            epoch=session.epoch,
            kind=TurnKind.MODEL,
            state=TurnState.QUEUED,
            conversation=message.conversation,
            principal=principal,
            created_at=now,
            started_at=None,
            ended_at=None,
            active_ms=0,
        )
        row = self.add_turn(turn)
        self._add_message(row, message)
        self.offer(row)
        return row

    def _add_message(self, row: TurnRow, message: Inbound) -> None:
        id_, now = InboundId(mint("i")), self.clock.now()
        received = Received(id=id_, turn=row.turn.id, message=message, given=None, received_at=now)
        self.put_received(row.turn.session, received)
        row.inputs.append(id_)

    def below(self, session: SessionId) -> list[SessionId]:
        """Return all children below a session, parents before their own children."""
        found = list(self.children.get(session, ()))
        for child in found:
            found.extend(self.children.get(child, ()))
        return found

    def unended_below(self, session: SessionId, only: Principal | None = None) -> list[TurnRow]:
        """Return the stoppable turns of a child and all below it, or of all below a root, parents' first."""
        family = [session, *self.below(session)] if session.startswith(CHILDREN) else self.below(session)
        rows = [row for one in family for kind in TurnKind for row in self.lane(one, kind).turns.values()]
        can = [row for row in rows if row.turn.state is not TurnState.STOPPING and only in (None, row.turn.principal)]
        return sorted(can, key=lambda row: self.rows[row.turn.session]["turn", row.turn.id].ord)

    def stop_below(self, session: SessionId, text: str, only: Principal | None = None) -> int:
        """Stop a child and all below it, or all below a root. Return how many turns were stopped."""
        found = self.unended_below(session, only)
        for row in found:
            # The stop of its parent may have ended it.
            if row.turn.state not in ENDED and row.turn.state is not TurnState.STOPPING:
                self.stop(row, text)
        return len(found)

    def unheard_ends(self, session: SessionId) -> list[TurnRow]:
        """Return turns that nobody has started and that only report ended children, the newest first."""
        queued = [row for row in self.lane(session, TurnKind.MODEL).turns.values() if row.turn.started_at is None]
        said_by = [{self.inbounds[i].message.principal for i in row.inputs} for row in queued]
        return [row for row, who in reversed([*zip(queued, said_by, strict=True)]) if who == {SYSTEM_CHILD}]

    def _notify_parent(self, child: SessionRow, row: TurnRow, words: str, *, stopping: bool) -> None:
        """Report the end of a child's task to its parent, and stop all turns left below, since nobody reads them.

        `stopping`: whether it was stopping before.
        """
        session, state = child.session, row.turn.state
        del self.live_children[session.id]
        said = words or (row.stopped_text if state is TurnState.STOPPED else "")
        end = End(child=session.id, title=session.title, state=state, words=said)
        if child.parent_wait is not None:
            wait = self.waits[child.parent_wait]
            if wait.state is WaitState.OPEN:
                payload = answer_of(end, row.turn.active_ms, self._spent_by(row))
                self.put_wait(replace(wait, state=WaitState.ANSWERED, payload=payload))
                self.wake(self.turns[wait.turn])
        elif state is not TurnState.STOPPED and not stopping and session.lineage is not None:
            self._message_parent(self.turns[session.lineage.turn].turn, end)
        self.stop_below(session.id, row.stopped_text if state is TurnState.STOPPED else NOBODY_WAITS)

    def _message_parent(self, spawning: Turn, end: End) -> None:
        """Report a child's end where the spawning turn began. A child as parent gets it only until its task ends."""
        parent, now = self.all_sessions[spawning.session], self.clock.now()
        gone = parent.task is not None and spawning.session not in self.live_children
        if gone or parent.session.epoch != spawning.epoch:
            return
        parent.session = replace(parent.session, active_at=now)
        message = end_message(end, spawning.conversation, now)
        joined = self._unheard_end(spawning) if parent.task is None else self.turns[parent.task]
        if joined is None:
            self.begin_turn(parent.session, spawning.principal, message)
        else:
            self._add_message(joined, message)
            self.touched.turns.add(joined.turn.id)

    def _unheard_end(self, like: Turn) -> TurnRow | None:
        """Return the unstarted turn that reports other ends here: several ends make one prompt."""
        whose = (like.conversation, like.principal)
        found = self.unheard_ends(like.session)
        return next((row for row in found if (row.turn.conversation, row.turn.principal) == whose), None)

    def _spent_by(self, row: TurnRow) -> Usage:
        """Return the usage of its answers and of all descendants, whether awaited or not."""
        own = (step.answer.usage for step in row.steps if step.answer is not None)
        below = (self.all_sessions[child] for child in self.children.get(row.turn.session, ()))
        tasks = [one.task for one in below if one.session.lineage and one.session.lineage.turn == row.turn.id]
        return sum((self._spent_by(self.turns[task]) for task in tasks if task is not None), sum(own, Usage()))


def _places(slots: dict[SlotId, SlotRow]) -> list[tuple[SlotId, Conversation]]:
    return [(id_, row.slot.conversation) for id_, row in slots.items()]
