"""Turn queue and turn journal transitions in SQLite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from gateway.domain.audit import StartRecord
from gateway.domain.ids import InboundId, NodeId, Principal, WaitId
from gateway.domain.messages import FetchedFile
from gateway.domain.sessions import LEASE_LASTS
from gateway.domain.slots import NewSlot
from gateway.domain.steps import Answer, StepState
from gateway.domain.tools import ToolResult
from gateway.domain.turns import Lease, TurnKind, TurnState
from gateway.domain.views import Claimed, TurnView
from gateway.domain.waits import NewWait, StartOutcome, Wait, WaitState
from gateway.errors import LeaseLost, NotFound
from gateway.store.answer_rules import cost_of
from gateway.store.call_rules import audit_row, limit_approvals, may_consume
from gateway.store.child_rules import last_words
from gateway.store.codec import ANSWER, BROUGHT, CALL, MICROSECOND, from_us
from gateway.store.constants import COMMANDS_AT_ONCE
from gateway.store.sqlite import slot_ops, turn_ops
from gateway.store.sqlite.base import SqliteBase
from gateway.store.sqlite.queries import history_of, new_view, places_of_ended, turn_view, views_of
from gateway.store.sqlite.records import add_audit_row, add_spent
from gateway.store.sqlite.rows import Columns, TurnColumns, wait_of
from gateway.store.sqlite.tx import Tx

LEASE_US = LEASE_LASTS // MICROSECOND
UNREAD_AT_MOST = 3
"""Ended turns that a claim reads at most for its history: more would block all writers. Beyond that the turn's runner
reads them itself."""
History: TypeAlias = Callable[[Tx, TurnView], Sequence[TurnView] | None]


class SqliteEngine(SqliteBase):
    """`ports.TurnQueue` and `ports.TurnJournal`."""

    async def claim(self, node: NodeId, limit: int = 1, *, wait_s: float = 0, history: int = 0) -> Sequence[Claimed]:
        """Lease turns that may run, the longest waiting first."""
        read: dict[int, TurnView] = {}

        def history_of_turn(tx: Tx, view: TurnView) -> Sequence[TurnView] | None:
            if not history or view.turn.kind is not TurnKind.MODEL:
                return None
            places = places_of_ended(tx, view.session.id, view.turn.epoch, history)
            if self.ended.unknown(places) > UNREAD_AT_MOST:
                return None
            return history_of(tx, view.session, places, self.ended, read)

        claimed = await self.writer.claim_turns(lambda tx: _claim(tx, node, limit, history_of_turn), limit, wait_s)
        self.ended.keep(read)
        return claimed

    async def renew(self, lease: Lease) -> TurnState:
        """Extend the lease."""
        return await self.write(lambda tx: _renew(tx, lease))

    async def park(self, lease: Lease) -> bool:
        """Release the lease until a wait is decided."""
        return await self.write(lambda tx: _park(tx, lease))

    async def finish_turn(
        self,
        lease: Lease,
        state: TurnState,
        *,
        answer: Answer | None,
        given: Sequence[InboundId],
        slots: Sequence[NewSlot],
        timers: Sequence[NewWait],
    ) -> bool:
        """End the turn with its last answer."""
        return await self.write(
            partial(_finish_turn, lease=lease, state=state, answer=answer, given=given, slots=slots, timers=timers)
        )

    async def release(self, lease: Lease) -> None:
        """Return the turn to the queue."""
        await self.write(lambda tx: _release(tx, lease))

    async def plan(
        self, lease: Lease, answer: Answer, *, given: Sequence[InboundId], slots: Sequence[NewSlot]
    ) -> TurnView:
        """Store an answer with its calls planned."""
        return await self.write(lambda tx: _plan(tx, lease, answer, given, slots))

    async def open_slot(self, lease: Lease, slot: NewSlot) -> bool:
        """Store the slot of an answer being written or of a status line, or its newer text."""
        return await self.write(lambda tx: _open_slot(tx, lease, slot))

    async def open_waits(
        self, lease: Lease, waits: Sequence[NewWait], slots: Sequence[NewSlot], *, most: int | None = None
    ) -> int | None:
        """Open waits on planned steps, with their cards."""
        return await self.write(lambda tx: _open_waits(tx, lease, waits, slots, most))

    async def start_step(self, lease: Lease, n: int, wait: WaitId | None, beginning: StartRecord) -> StartOutcome:
        """Record that a call's effect may begin, with its audit row; consume its approval."""
        return await self.write(lambda tx: _start_step(tx, lease, n, wait, beginning))

    async def finish_step(
        self, lease: Lease, n: int, result: ToolResult, slots: Sequence[NewSlot] = ()
    ) -> TurnView | None:
        """Store a call's one result and the slots that show it."""
        return await self.write(lambda tx: _finish_step(tx, lease, n, result, slots))

    async def brought(self, lease: Lease, message: InboundId, files: Sequence[FetchedFile]) -> None:
        """Store the outcome of fetching a message's attachments."""
        await self.write(lambda tx: _brought(tx, lease, message, files))


# --- lanes ----------------------------------------------------------------------------------


def _claim(tx: Tx, node: NodeId, limit: int, history: History) -> list[Claimed]:
    until = tx.now + LEASE_US
    claimed: list[Claimed] = []
    while len(claimed) < limit:
        found = tx.one("claim_next", tx.rev + 1, node, tx.now, until, COMMANDS_AT_ONCE)
        if found is None:
            break
        fence, turn, session, *_ = found
        tx.next_rev(session)
        lease = Lease(turn=turn, session=session, node=node, fence=fence, expires_at=from_us(until))
        claimed.append(_claimed(tx, lease, found[1:], history))
    return claimed


def _claimed(tx: Tx, lease: Lease, columns: Columns, history: History) -> Claimed:
    """Return the turn and its history, read with the claim: a separate read of each costs 0.3 to 0.5 ms of CPU."""
    try:
        view = new_view(tx, columns) if lease.fence == 1 else views_of(tx, [columns])[0]
        return Claimed(lease=lease, view=view, history=history(tx, view))
    except (ValueError, TypeError, LookupError):  # the next read raises it
        return Claimed(lease=lease, view=None)


def _renew(tx: Tx, lease: Lease) -> TurnState:
    found = tx.one("renew", tx.now, tx.now + LEASE_US, lease.turn, lease.fence)
    if found is None:
        raise LeaseLost
    return TurnState(found[0])


def _park(tx: Tx, lease: Lease) -> bool:
    row = turn_ops.held(tx, lease)
    if row.state != TurnState.RUNNING or not _only_waits(tx, row):
        return False
    turn_ops.park(tx, row)
    return True


def _only_waits(tx: Tx, row: TurnColumns) -> bool:
    """Return whether a wait is open, and every call without a result waits: nothing runs or can run."""
    open_steps = {n for _, n, _, state in tx.run("undecided_of_turn", row.id) if state == WaitState.OPEN}
    return bool(open_steps) and {n for n, *_ in tx.run("unfinished_steps", row.id)} <= open_steps


def _finish_turn(
    tx: Tx,
    *,
    lease: Lease,
    state: TurnState,
    answer: Answer | None,
    given: Sequence[InboundId],
    slots: Sequence[NewSlot],
    timers: Sequence[NewWait],
) -> bool:
    row = turn_ops.held(tx, lease)
    ungiven = dict(tx.run("ungiven", row.id))
    if state is TurnState.DONE and (row.state == TurnState.STOPPING or not ungiven.keys() <= set(given)):
        return False
    if answer is not None:
        _add_answer(tx, row, answer, given, ungiven)
    slot_ops.say(tx, row, slots, ends=True)
    turn_ops.end_turn(tx, row, state, last_words(answer, slots))
    # Opened after the end, which withdraws every wait: these outlive the turn.
    for timer in timers:
        turn_ops.open_wait(tx, row, timer)
    return True


def _release(tx: Tx, lease: Lease) -> None:
    try:
        row = turn_ops.held(tx, lease)
    except LeaseLost:
        return
    if row.state == TurnState.STOPPING:
        turn_ops.end_stopped(tx, row)
    else:
        turn_ops.queue(tx, row)


# --- steps ----------------------------------------------------------------------------------


def _plan(tx: Tx, lease: Lease, answer: Answer, given: Sequence[InboundId], slots: Sequence[NewSlot]) -> TurnView:
    row = turn_ops.held(tx, lease)
    if row.state == TurnState.STOPPING:
        raise LeaseLost("The turn was stopped.")
    answer_n = _add_answer(tx, row, answer, given, dict(tx.run("ungiven", row.id)) if given else {})
    for n, call in enumerate(answer.calls, answer_n + 1):
        tx.run("add_call", tx.next_rev(row.session), row.id, n, row.session, CALL.dump(call), answer_n)
    slot_ops.say(tx, row, slots)
    return turn_view(tx, row.id)


def _open_slot(tx: Tx, lease: Lease, slot: NewSlot) -> bool:
    row = turn_ops.held(tx, lease)
    return row.state != TurnState.STOPPING and slot_ops.say_early(tx, row, slot)


def _add_answer(
    tx: Tx, row: TurnColumns, answer: Answer, given: Sequence[InboundId], ungiven: Mapping[InboundId, int]
) -> int:
    """Store a finished model step; the given messages count as given before it. Return its number.

    `ungiven`: the places of the messages that were not given yet.
    """
    n = turn_ops.step_count(tx, row)
    for inbound in dict.fromkeys(given):
        ord_ = ungiven.get(inbound)
        if ord_ is not None:
            tx.run("give", n, tx.next_rev(row.session), ord_)
    tx.run("add_answer", tx.next_rev(row.session), row.id, n, row.session, ANSWER.dump(answer), tx.now)
    cost = cost_of(answer, Principal(row.principal), tx.moment)
    if cost is not None:
        add_spent(tx, cost)
    return n


def _open_waits(
    tx: Tx, lease: Lease, waits: Sequence[NewWait], slots: Sequence[NewSlot], most: int | None
) -> int | None:
    row = turn_ops.held(tx, lease)
    if row.state == TurnState.STOPPING or not all(_is_planned(tx, row, new.n) for new in waits):
        return None
    already = 0 if most is None else int(tx.run("approvals_asked_by", row.session, row.principal)[0][0])
    waits, slots = limit_approvals(waits, slots, already, most)
    for new in waits:
        tx.run("ask_step", tx.next_rev(row.session), row.id, new.n)
        turn_ops.open_wait(tx, row, new)
    for slot in slots:
        slot_ops.add_slot(tx, slot, row.session, row.id)
    return len(waits)


def _is_planned(tx: Tx, row: TurnColumns, n: int) -> bool:
    return _step_state(tx, row, n)[0] == StepState.PLANNED


def _start_step(tx: Tx, lease: Lease, n: int, wait: WaitId | None, beginning: StartRecord) -> StartOutcome:
    row = turn_ops.held(tx, lease)
    if row.state == TurnState.STOPPING:
        return StartOutcome.STOPPING
    state, fence = _step_state(tx, row, n)
    used: Wait | None = None
    if wait is not None:
        columns = tx.one("wait", wait)
        if columns is None:
            return StartOutcome.NOT_APPROVED
        used = wait_of(columns)
        start = may_consume(used, lease, n, beginning.action_sha, tx.moment)
        if start is not StartOutcome.STARTED:
            if start is StartOutcome.TOO_OLD:
                turn_ops.set_wait(tx, row.session, wait, WaitState.EXPIRED)
            return start
        turn_ops.set_wait(tx, row.session, wait, WaitState.CONSUMED)
    # No decision is needed: never asked, or started by a holder that is gone.
    elif state != StepState.PLANNED and not (state == StepState.STARTED and fence < row.fence):
        return StartOutcome.NOT_APPROVED
    seq = add_audit_row(tx, audit_row(lease, n, TurnKind(row.kind), StepState(state), used, beginning, tx.moment))
    tx.run("start_step", tx.now, row.fence, seq, tx.next_rev(row.session), row.id, n)
    return StartOutcome.STARTED


def _finish_step(tx: Tx, lease: Lease, n: int, result: ToolResult, slots: Sequence[NewSlot]) -> TurnView | None:
    row = turn_ops.held(tx, lease)
    if _step_state(tx, row, n)[0] == StepState.FINISHED:
        return None
    undecided = tx.run("undecided_of_turn", row.id)
    turn_ops.cancel_waits(tx, row, ((wait, step, kind) for wait, step, kind, _ in undecided if step == n))
    turn_ops.finish_step(tx, row, n, result)
    for slot in () if row.state == TurnState.STOPPING else slots:
        slot_ops.add_slot(tx, slot, row.session, row.id)
    return None if tx.run("unfinished_steps", row.id) else _as_it_stands(tx, row)


def _as_it_stands(tx: Tx, row: TurnColumns) -> TurnView | None:
    """Return the turn with the rows just written; None when it cannot be read, which undoes nothing."""
    try:
        return turn_view(tx, row.id)
    except Exception:  # damage elsewhere in the turn, or no memory: keep the result; the next read raises
        if not tx.db.in_transaction:
            raise
        return None


def _brought(tx: Tx, lease: Lease, message: InboundId, files: Sequence[FetchedFile]) -> None:
    row = turn_ops.held(tx, lease)
    found = tx.one("files_of_message", row.id, message)
    if found is None:
        raise NotFound(f"The turn {row.id} has no message {message}.")
    ord_, known = found
    if known is None:
        tx.run("brought", BROUGHT.dump(tuple(files)), tx.next_rev(row.session), ord_)


def _step_state(tx: Tx, row: TurnColumns, n: int) -> tuple[str, int]:
    """Return a step's state and the fence of its last start. Raises `NotFound`."""
    found = tx.one("step", row.id, n)
    if found is None:
        raise NotFound(f"The turn {row.id} has no step {n}.")
    return found[1], found[3]
