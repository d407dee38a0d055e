"""Turn and wait operations of the SQLite store, shared by its transitions. The same as the memory store's."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.domain.ids import SYSTEM_CHILD, InboundId, Principal, SessionId, TurnId, WaitId, child_session, mint
from gateway.domain.messages import Inbound
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import StepState, Usage
from gateway.domain.tools import ToolResult, outcome_unknown
from gateway.domain.turns import ENDED, STOPPED_TEXT, Lease, TurnKind, TurnState
from gateway.domain.waits import NewWait, WaitKind, WaitState
from gateway.errors import LeaseLost
from gateway.store import child_rules
from gateway.store.codec import APPROVAL, LINEAGE, RESULT, dump_conversation, dump_json, load_conversation, to_us
from gateway.store.constants import CANCELLED, COMMANDS_AT_ONCE, HELD
from gateway.store.sqlite import inbound_ops, slot_ops
from gateway.store.sqlite.rows import TurnColumns, moment
from gateway.store.sqlite.slot_ops import show_anew
from gateway.store.sqlite.tx import Tx

# --- turns ----------------------------------------------------------------------------------


def held(tx: Tx, lease: Lease) -> TurnColumns:
    """Return the leased turn; raise `LeaseLost` when this lease does not hold it."""
    row = find_turn(tx, lease.turn)
    if row is None or row.fence != lease.fence or row.state not in HELD:
        raise LeaseLost
    return row


def find_turn(tx: Tx, turn: str) -> TurnColumns | None:
    """Return the turn, if there is one."""
    columns = tx.one("turn_row", turn)
    return None if columns is None else TurnColumns(*columns)


def stored_turn(tx: Tx, turn: str) -> TurnColumns:
    """Return the turn that a stored row refers to."""
    row = find_turn(tx, turn)
    assert row is not None, "foreign keys hold"
    return row


def offer(tx: Tx, row: TurnColumns) -> None:
    """Wake claims when this queued turn may run now."""
    if row.state == TurnState.QUEUED and (row.head if row.kind == TurnKind.MODEL else _has_room(tx, row)):
        tx.touched.turns_due = True


def queue(tx: Tx, row: TurnColumns) -> None:
    """Make a turn claimable, behind those already queued."""
    tx.rev += 1
    queued_rev, row.state = tx.rev, TurnState.QUEUED
    tx.run("queue_turn", _active_ms(tx, row), tx.now, queued_rev, tx.next_rev(row.session), row.ord)
    if row.kind == TurnKind.MODEL:
        offer(tx, row)
    else:
        _offer_commands(tx, row)


def park(tx: Tx, row: TurnColumns) -> None:
    """Release a turn from its holder until it is woken."""
    tx.run("park_turn", _active_ms(tx, row), tx.next_rev(row.session), row.ord)
    if row.kind == TurnKind.COMMAND:
        _offer_commands(tx, row)


def wake(tx: Tx, row: TurnColumns) -> None:
    """Queue a parked turn after a decision; otherwise notify its holder."""
    if row.state == TurnState.PARKED:
        queue(tx, row)
    else:
        tx.touched.turns.add(row.id)


def end_turn(tx: Tx, row: TurnColumns, state: TurnState, words: str) -> None:
    """End a turn: every call gets its one result, waits are withdrawn, messages count as given.

    `words`: its last text. A child's end is reported to its parent.
    """
    _cancel_calls(tx, row, started_too=True)
    ungiven = tx.run("ungiven", row.id)
    if ungiven:
        n = step_count(tx, row)
        for _, ord_ in ungiven:
            tx.run("give", n, tx.next_rev(row.session), ord_)
    active_ms = _active_ms(tx, row)
    tx.run("end_turn", row.ord, state, active_ms, tx.now, tx.next_rev(row.session))
    if row.kind == TurnKind.MODEL:
        for next_state, held_until in tx.run("move_head", row.session):
            tx.touched.turns_due |= next_state == TurnState.QUEUED and (held_until or 0) <= tx.now
    else:
        _offer_commands(tx, row)
    tx.touched.turns.add(row.id)
    if row.session.startswith(child_rules.CHILDREN):
        _notify_parent(tx, row, state, active_ms, words)


def stop(tx: Tx, row: TurnColumns, text: str) -> None:
    """Stop a turn: its holder may only write results from now on; without a holder it ends here."""
    row.stopped_text = text
    if row.state in HELD:
        tx.run("mark_stopping", text, tx.next_rev(row.session), row.ord)
        _cancel_calls(tx, row, started_too=False)
        tx.touched.turns.add(row.id)
    else:
        end_stopped(tx, row)


def end_stopped(tx: Tx, row: TurnColumns) -> None:
    """End a stopped turn that nobody holds, and show its text where it began."""
    text = stopped_text(row)
    end_turn(tx, row, TurnState.STOPPED, text)
    said = NewSlot(conversation=load_conversation(row.conversation), kind=SlotKind.ANSWER, text=text)
    slot_ops.say(tx, row, [said] if text else [], ends=True)


def stopped_text(row: TurnColumns) -> str:
    """Return the text shown after a stop when no holder is left to end the turn."""
    return STOPPED_TEXT if row.stopped_text is None else row.stopped_text


def step_count(tx: Tx, row: TurnColumns) -> int:
    """Return the number of the turn's next step."""
    ((count,),) = tx.run("step_count", row.id)
    return int(count)


def finish_step(tx: Tx, row: TurnColumns, n: int, result: ToolResult) -> None:
    """Give a step its result."""
    tx.run("finish_step", RESULT.dump(result), tx.now, tx.next_rev(row.session), row.id, n)


def _cancel_calls(tx: Tx, row: TurnColumns, *, started_too: bool) -> None:
    undecided = tx.run("undecided_of_turn", row.id)
    cancel_waits(tx, row, ((wait, n, kind) for wait, n, kind, _ in undecided))
    for n, state, started_at in tx.run("unfinished_steps", row.id):
        if state != StepState.STARTED:
            finish_step(tx, row, n, CANCELLED)
        elif started_too:
            # Its outcome is unknown: CANCELLED would claim that it never ran.
            finish_step(tx, row, n, outcome_unknown(moment(started_at)))


def _active_ms(tx: Tx, row: TurnColumns) -> int:
    """Return the milliseconds the turn was held, including the current lease up to its expiry."""
    if row.held_since is None or row.lease_until is None:
        return row.active_ms
    return row.active_ms + max(0, round((min(tx.now, row.lease_until) - row.held_since) / 1000))


def _has_room(tx: Tx, row: TurnColumns) -> bool:
    ((at_work, _),) = tx.run("lane_counts", row.session, row.kind)
    return at_work < COMMANDS_AT_ONCE


def _offer_commands(tx: Tx, row: TurnColumns) -> None:
    """Wake claims after the release of a command turn: the next one of its session may have room."""
    ((at_work, queued),) = tx.run("lane_counts", row.session, row.kind)
    tx.touched.turns_due |= queued > 0 and at_work < COMMANDS_AT_ONCE


# --- waits ----------------------------------------------------------------------------------


def open_wait(tx: Tx, row: TurnColumns, new: NewWait) -> None:
    """Store a new wait of a turn."""
    approval = None if new.approval is None else APPROVAL.dump(new.approval)
    place = (new.id, new.kind, row.session, row.id, new.n)
    tx.run(
        "add_wait",
        tx.next_rev(row.session),
        *place,
        approval,
        dump_json(new.payload),
        tx.now,
        to_us(new.expires_at),
    )
    show_anew(tx, new.id)


def set_wait(tx: Tx, session: SessionId, wait: WaitId, state: WaitState) -> None:
    """Set a wait's state; its cards get a new version."""
    tx.run("set_wait_state", state, tx.next_rev(session), wait)
    show_anew(tx, wait)


def cancel_waits(tx: Tx, row: TurnColumns, waits: Iterable[tuple[WaitId, int, str]]) -> None:
    """Withdraw these waits of a turn, each with its step and kind. Withdrawing a wait on a child stops the child."""
    for wait, n, kind in list(waits):
        set_wait(tx, row.session, wait, WaitState.CANCELLED)
        if kind == WaitKind.CHILD:
            stop_below(tx, child_session(row.id, n), stopped_text(row))


# --- children -------------------------------------------------------------------------------


def add_turn(
    tx: Tx, turn: TurnId, session: SessionId, epoch: int, principal: Principal, message: Inbound, *, head: bool
) -> None:
    """Queue a model turn for a message that came from no channel, in the message's conversation."""
    tx.rev += 1
    queued_rev, place = tx.rev, dump_conversation(message.conversation)
    about = (turn, session, epoch, TurnKind.MODEL, place, principal, tx.now, head, queued_rev, None)
    tx.run("add_turn", tx.next_rev(session), *about)
    inbound_ops.add_message(tx, session, turn, InboundId(mint("i")), message)
    tx.touched.turns_due |= head


def unended_below(tx: Tx, session: SessionId, only: Principal | None = None) -> list[TurnId]:
    """Return the stoppable turns of a child and all below it, or of all below a root, parents' first."""
    return [turn for turn, whose in tx.run("unended_below", session) if only is None or whose == only]


def stop_below(tx: Tx, session: SessionId, text: str, only: Principal | None = None) -> int:
    """Stop a child and all below it, or all below a root. Return how many turns were stopped."""
    found = unended_below(tx, session, only)
    for turn in found:
        row = stored_turn(tx, turn)  # the stop of its parent may have ended it
        if row.state not in ENDED and row.state != TurnState.STOPPING:
            stop(tx, row, text)
    return len(found)


def _notify_parent(tx: Tx, row: TurnColumns, state: TurnState, active_ms: int, words: str) -> None:
    """Report the end of a child's task to its parent, and stop all turns left below, since nobody reads them."""
    found = tx.one("child", row.session)
    if found is None:
        return
    lineage, title, task, parent_wait, live = found
    if task != row.id or not live:
        return
    tx.run("end_child", row.session)
    said = words or (stopped_text(row) if state is TurnState.STOPPED else "")
    end = child_rules.End(child=row.session, title=title, state=state, words=said)
    if parent_wait is not None:
        _answer_parent(tx, row, parent_wait, end, active_ms)
    elif state is not TurnState.STOPPED and row.state != TurnState.STOPPING:
        _message_parent(tx, LINEAGE.load(lineage).turn, end)
    stop_below(tx, row.session, stopped_text(row) if state is TurnState.STOPPED else child_rules.NOBODY_WAITS)


def _answer_parent(tx: Tx, row: TurnColumns, wait: WaitId, end: child_rules.End, active_ms: int) -> None:
    parent = tx.one("open_wait", wait)
    if parent is None:
        return
    session, turn = parent
    ((read, written, cost),) = tx.run("spent_by_turn", row.id)
    spent = Usage(input_tokens=read, output_tokens=written, cost_micros=cost)
    payload = dump_json(child_rules.answer_of(end, active_ms, spent))
    tx.run("answer_wait", payload, tx.next_rev(session), wait)
    wake(tx, stored_turn(tx, turn))


def _message_parent(tx: Tx, spawning: TurnId, end: child_rules.End) -> None:
    """Report a child's end where the spawning turn began. A child as parent gets it only until its task ends."""
    ((session, place, principal, epoch, epoch_now),) = tx.run("spawning_turn", spawning)
    above = tx.one("child", session)
    if epoch != epoch_now or (above is not None and not above[4]):
        return
    tx.run("session_active", tx.now, session)
    message = child_rules.end_message(end, load_conversation(place), tx.moment)
    joined = _unheard_end(tx, session, place, principal) if above is None else above[2]
    if joined is not None:
        inbound_ops.add_message(tx, session, joined, InboundId(mint("i")), message)
        tx.touched.turns.add(joined)
        return
    head = tx.one("lane_head", session, TurnKind.MODEL) is None
    add_turn(tx, TurnId(mint("t")), session, epoch, principal, message, head=head)


def _unheard_end(tx: Tx, session: SessionId, place: str, whose: str) -> TurnId | None:
    """Return the unstarted turn that reports other ends here: several ends make one prompt."""
    found = tx.run("unheard_ends", session, SYSTEM_CHILD)
    return next((turn for turn, at, who in found if (at, who) == (place, whose)), None)
