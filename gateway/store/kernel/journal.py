"""Transitions of the turn journal: every act of a turn that a node holds, up to its end. `leases` has the claim."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.domain.audit import StartRecord
from gateway.domain.hooks import HookOutcome
from gateway.domain.ids import InboundId, TurnId, WaitId
from gateway.domain.messages import FetchedFile, Received
from gateway.domain.sessions import works_in
from gateway.domain.slots import NewSlot
from gateway.domain.steps import Answer, Step, StepKind, StepState
from gateway.domain.tools import ToolResult
from gateway.domain.turns import Lease, TurnState
from gateway.domain.views import TurnView
from gateway.domain.waits import NewWait, StartOutcome, Wait, WaitState, escalates
from gateway.errors import LeaseLost, NotFound, RowDamaged, StoreError
from gateway.store.answer_rules import cost_of
from gateway.store.call_rules import audit_row, limit_approvals, may_consume
from gateway.store.child_rules import last_words
from gateway.store.kernel import grants, homes, turns
from gateway.store.kernel.budgets import settle
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import StepRow, TurnRow, changed
from gateway.store.kernel.slots import add_slot, post, say, say_early


def finish_turn(
    part: Part,
    lease: Lease,
    state: TurnState,
    answer: Answer | None,
    given: Sequence[Received],
    slots: Sequence[NewSlot],
    timers: Sequence[NewWait],
) -> bool:
    """End the turn with its last answer."""
    row = turns.held(part, lease)
    read = {received.id for received in given}
    ungiven = [one for one in row.inputs if part.messages[one].received.given is None and one not in read]
    if state is TurnState.DONE and (ungiven or row.turn.state is TurnState.STOPPING):
        return False
    if answer is not None:
        _add_answer(part, row, answer, given)
    _settle_files(part, lease, slots)
    say(part, lease.turn, slots, ends=True)
    turns.end_turn(part, lease.turn, state, last_words(answer, slots))
    _settle(part, row, answer)
    # Opened after the end, which withdraws every wait: these outlive the turn.
    for timer in timers:
        turns.open_wait(part, row, timer)
    return True


def plan(part: Part, lease: Lease, answer: Answer, given: Sequence[Received], slots: Sequence[NewSlot]) -> TurnView:
    """Store an answer with its calls planned."""
    row = turns.held(part, lease)
    if row.turn.state is TurnState.STOPPING:
        raise LeaseLost("The turn was stopped.")
    answer_n = _add_answer(part, row, answer, given)
    for n, call in enumerate(answer.calls, answer_n + 1):
        step = Step(turn=lease.turn, n=n, kind=StepKind.TOOL, state=StepState.PLANNED, call=call, answer_n=answer_n)
        turns.add_step(part, row, step)
    _settle_files(part, lease, slots)
    say(part, lease.turn, slots)
    _settle(part, row, answer)
    return turns.view_of(part, lease.turn)


def _add_answer(part: Part, row: TurnRow, answer: Answer, given: Sequence[Received]) -> int:
    """Store a finished model step; the given messages count as given before it, as the model read them.

    Return its number.
    """
    n = row.steps
    for received in given:
        found = part.messages.get(received.id)
        if found is not None and found.received.turn == row.turn.id and found.received.given is None:
            part.set_message(received.id, given=n)
            if found.received.message.text != received.message.text:
                part.set_message(received.id, message=changed(found.received.message, text=received.message.text))
    turns.add_step(
        part,
        row,
        Step(turn=row.turn.id, n=n, kind=StepKind.MODEL, state=StepState.FINISHED, answer=answer, ended_at=part.now),
    )
    cost = cost_of(answer, row.turn.principal, part.now)
    if cost is not None:
        part.spent.append(cost)
    return n


def _settle_files(part: Part, lease: Lease, slots: Sequence[NewSlot]) -> None:
    """Bind the family to this place when an answer leaves a file here."""
    if any(slot.file is not None for slot in slots):
        homes.settle(part, lease)


def _settle(part: Part, row: TurnRow, answer: Answer | None) -> None:
    """Settle the budgets of an answer, after it is shown; a note about them is of the root's session."""
    if answer is not None:
        settle(part, row.turn.id, answer.usage, works_in(part.sessions[row.turn.session].session))


def open_slot(part: Part, lease: Lease, slot: NewSlot) -> bool:
    """Store or update the slot of a streaming answer or of a status line."""
    row = turns.held(part, lease)
    return row.turn.state is not TurnState.STOPPING and say_early(part, row, slot)


def open_waits(
    part: Part, lease: Lease, waits: Sequence[NewWait], slots: Sequence[NewSlot], most: int | None
) -> int | None:
    """Open waits on planned steps, with their cards."""
    row = turns.held(part, lease)
    timers, waits = [new for new in waits if escalates(new)], [new for new in waits if not escalates(new)]
    planned = all(_step(part, row, new.n).step.state is StepState.PLANNED for new in waits)
    if row.turn.state is TurnState.STOPPING or not planned:
        return None
    if waits:
        homes.settle(part, lease)
    already = 0 if most is None else turns.approvals_asked_by(part, row.turn.session, row.turn.principal)
    waits, slots = limit_approvals(waits, slots, already, most)
    for new in waits:
        part.set_step(lease.turn, new.n, state=StepState.ASKED)
        turns.open_wait(part, row, new)
    for timer in timers if waits else ():
        turns.open_wait(part, row, timer)
    for slot in slots:
        add_slot(part, slot, row.turn.session, lease.turn)
    return len(waits)


def store_hook_outcome(part: Part, lease: Lease, n: int, outcome: HookOutcome) -> None:
    """Store the outcome of the hooks before a planned call, once."""
    row = turns.held(part, lease)
    step = _step(part, row, n).step
    if step.state is StepState.PLANNED and step.hook_outcome is None:
        part.set_step(lease.turn, n, hook_outcome=outcome)


def start_step(part: Part, lease: Lease, n: int, wait: WaitId | None, beginning: StartRecord) -> StartOutcome:
    """Record that a call's effect may begin, with its audit row; consume its approval or count its grant."""
    row = turns.held(part, lease)
    if row.turn.state is TurnState.STOPPING:
        return StartOutcome.STOPPING
    homes.settle(part, lease)
    found = _step(part, row, n)
    used: Wait | None = None
    if wait is not None:
        known = part.waits.get(wait)
        if known is None:
            return StartOutcome.NOT_APPROVED
        used = known.wait
        start = may_consume(used, lease, n, beginning.action_sha, part.now)
        if start is not StartOutcome.STARTED:
            if start is StartOutcome.TOO_OLD:
                turns.set_wait(part, wait, state=WaitState.EXPIRED)
            return start
        turns.set_wait(part, wait, state=WaitState.CONSUMED)
        grants.give_scope(part, used, beginning.grant_lasts)
    elif not _may_start(row, found):
        return StartOutcome.NOT_APPROVED
    elif beginning.grant is not None and not grants.use(part, beginning.grant, beginning.tool, row.turn):
        return StartOutcome.NOT_GRANTED
    seq = part.add_audit_row(audit_row(lease, n, row.turn.kind, found.step.state, used, beginning, part.now))
    part.set_step(lease.turn, n, state=StepState.STARTED, started_at=part.now, fence=row.fence, audit=seq)
    return StartOutcome.STARTED


def _may_start(row: TurnRow, found: StepRow) -> bool:
    """Return whether no decision is needed: never asked, or started by a holder that is gone."""
    again = found.step.state is StepState.STARTED and found.fence < row.fence
    return found.step.state is StepState.PLANNED or again


def finish_step(part: Part, lease: Lease, n: int, result: ToolResult, slots: Sequence[NewSlot]) -> TurnView | None:
    """Store a call's one result and the slots that show it."""
    row = turns.held(part, lease)
    if _step(part, row, n).step.state is StepState.FINISHED:
        return None
    own = [wait for wait in turns.waits_of(part, row) if wait.n == n]
    turns.cancel_waits(part, own, turns.stopped_text(row))
    turns.finish_call(part, lease.turn, n, result)
    for slot in () if row.turn.state is TurnState.STOPPING else slots:
        post(part, slot, row.turn.session, lease.turn)
    ended = all(step.state is StepState.FINISHED for step in turns.steps_of(part, row))
    return _view_if_whole(part, lease.turn) if ended else None


def _view_if_whole(part: Part, turn: TurnId) -> TurnView | None:
    """Return the turn; None when it cannot be read, which undoes nothing: the next read raises."""
    try:
        return turns.view_of(part, turn)
    except (StoreError, RowDamaged, MemoryError):
        return None


def record_fetched(
    part: Part, lease: Lease, message: InboundId, files: Sequence[FetchedFile], slots: Sequence[NewSlot]
) -> None:
    """Store the outcome of fetching a message's attachments, and the slots that show it, once."""
    row = turns.held(part, lease)
    if message not in row.inputs:
        raise NotFound(f"The turn {lease.turn} has no message {message}.")
    if part.messages[message].received.files is not None:
        return
    if any(one.path for one in files):
        homes.settle(part, lease)
    part.set_message(message, files=tuple(files))
    for slot in () if row.turn.state is TurnState.STOPPING else slots:
        add_slot(part, slot, row.turn.session, lease.turn)


def _step(part: Part, row: TurnRow, n: int) -> StepRow:
    found = part.steps.get((row.turn.id, n))
    if found is None:
        raise NotFound(f"The turn {row.turn.id} has no step {n}.")
    return found
