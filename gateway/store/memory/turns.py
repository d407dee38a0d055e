"""The memory store's moves of turns: into the queue, out of a lease, to their end. Shared by its transitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from heapq import heappop, heappush

from gateway.errors import LeaseLost, NotFound
from gateway.model.ids import TurnId
from gateway.model.sessions import ENDED, Lease, TurnKind, TurnState
from gateway.model.slots import NewSlot, SlotKind
from gateway.model.tools import Step, StepState, ToolResult
from gateway.model.views import TurnView
from gateway.model.waits import Wait, WaitState
from gateway.store.early import last_word
from gateway.store.memory.rows import CANCELLED, COMMANDS_AT_ONCE, HELD, UNDECIDED, UNKNOWN, TurnRow
from gateway.store.memory.tables import Tables


class Turns(Tables):
    """What several transitions do to a turn."""

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
        """The turn with everything stored of it."""
        return TurnView(
            turn=row.turn,
            session=self.all_sessions[row.turn.session].session,
            inputs=tuple(self.inbounds[i] for i in row.inputs),
            steps=tuple(row.steps),
            waits=tuple(self.waits[w] for w in row.waits),
        )

    # --- the queue --------------------------------------------------------------------------

    def may_run(self, row: TurnRow) -> bool:
        """Whether its lane lets this queued turn run now."""
        lane = self.lane(row.turn.session, row.turn.kind)
        if row.turn.kind is TurnKind.MODEL:
            return next(iter(lane.turns)) == row.turn.id
        return lane.held < COMMANDS_AT_ONCE

    def offer(self, row: TurnRow) -> None:
        """Put a turn before `claim` when it is queued and may run now. Twice is harmless: `next_ready` looks again."""
        if row.turn.state is TurnState.QUEUED and self.may_run(row):
            heappush(self.ready, (row.queued_rev, row.turn.id))
            self.touched.turns_due |= not self._is_held_back(row)

    def next_ready(self) -> TurnRow | None:
        """Take the turn that was queued first of those that may run."""
        held_back: list[tuple[int, TurnId]] = []
        found: TurnRow | None = None
        while self.ready and found is None:
            rev, turn = heappop(self.ready)
            row = self.turns[turn]
            # A command whose lane filled up meanwhile is left out here; the next place in its lane offers it again.
            if row.turn.state is TurnState.QUEUED and row.queued_rev == rev and self.may_run(row):
                if self._is_held_back(row):
                    held_back.append((rev, turn))
                else:
                    found = row
        for entry in held_back:
            heappush(self.ready, entry)
        return found

    def hold_back(self, row: TurnRow, until: datetime | None) -> None:
        """Let nobody claim this new turn before `until`; None: from now on."""
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
        """Make a turn claimable, behind those that wait already."""
        self.rev += 1
        row.queued_at, row.queued_rev = self.clock.now(), self.rev
        self.let_go(row, TurnState.QUEUED)

    def wake(self, row: TurnRow) -> None:
        """Something was decided for this turn: queue it when it is parked, tell its holder otherwise."""
        if row.turn.state is TurnState.PARKED:
            self.queue(row)
        else:
            self.touched.turns.add(row.turn.id)

    def let_go(self, row: TurnRow, state: TurnState) -> None:
        """Move a turn out of its holder's hands; whoever may run now because of it is offered."""
        now, active = self.clock.now(), row.turn.active_ms
        if row.held_since is not None:
            active += max(0, round((now - row.held_since).total_seconds() * 1000))
        row.node, row.lease_until, row.held_since = None, None, None
        ended = now if state in ENDED else None
        self.put_turn(row, replace(row.turn, state=state, active_ms=active, ended_at=ended))
        self._lane_moved(row)

    # --- the end ----------------------------------------------------------------------------

    def end_turn(self, row: TurnRow, state: TurnState) -> None:
        """End a turn: every call gets its one result, waits are withdrawn, messages count as given."""
        self._cancel_calls(row, started_too=True)
        for received in [self.inbounds[i] for i in row.inputs]:
            if received.given is None:
                self.put_received(row.turn.session, replace(received, given=len(row.steps)))
        self.let_go(row, state)
        self.touched.turns.add(row.turn.id)

    def stop(self, row: TurnRow, text: str) -> None:
        """Stop a turn: its holder may only write results from now on; with no holder it ends here."""
        row.stopped_text = text
        if row.turn.state in HELD:
            self.put_turn(row, replace(row.turn, state=TurnState.STOPPING))
            self._cancel_calls(row, started_too=False)
            self.touched.turns.add(row.turn.id)
        else:
            self.end_stopped(row)

    def end_stopped(self, row: TurnRow) -> None:
        """End a stopped turn that nobody holds, and say so where it began."""
        turn = row.turn
        self.end_turn(row, TurnState.STOPPED)
        said = NewSlot(conversation=turn.conversation, kind=SlotKind.ANSWER, text=row.stopped_text)
        self.say(row, self.last_word(row, [said]))

    # --- what it says -----------------------------------------------------------------------

    def say(self, row: TurnRow, slots: Sequence[NewSlot]) -> None:
        """Store what a turn says; a slot of its own that is there already takes the new text.

        What was shown of an answer that never came is taken away.
        """
        for new in slots:
            known = None if new.id is None else self.slots.get(new.id)
            if known is not None and known.slot.turn == row.turn.id:
                row.early.pop(known.slot.id, None)
                self.rewrite(known, new.text, new.n)
            else:
                self.add_slot(new, row.turn.session, row.turn.id)
        for left in row.early.values():
            self.rewrite(left, "", left.slot.n)
        row.early.clear()

    def last_word(self, row: TurnRow, slots: Sequence[NewSlot]) -> list[NewSlot]:
        """The last slots of a turn, in the place of an answer that never came."""
        return last_word(slots, [(id_, early.slot.conversation) for id_, early in row.early.items()])

    def _cancel_calls(self, row: TurnRow, *, started_too: bool) -> None:
        self.cancel_waits(self.waits[wait] for wait in row.waits)
        for step in list(row.steps):
            if step.state in (StepState.PLANNED, StepState.ASKED):
                self.finish(row, step, CANCELLED)
            elif step.state is StepState.STARTED and started_too:
                # Nobody knows how far it came: CANCELLED would claim that it never ran.
                self.finish(row, step, UNKNOWN)

    def finish(self, row: TurnRow, step: Step, result: ToolResult) -> None:
        """Give a step its result."""
        self.put_step(row, replace(step, state=StepState.FINISHED, result=result, ended_at=self.clock.now()))

    def cancel_waits(self, waits: Iterable[Wait]) -> None:
        """Withdraw what is open or approved and not used."""
        for wait in list(waits):
            if wait.state in UNDECIDED:
                self.put_wait(replace(wait, state=WaitState.CANCELLED))
