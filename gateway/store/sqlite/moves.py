"""What several transitions of the SQLite store do to turns and waits. The same moves as the memory store's."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.errors import LeaseLost
from gateway.model.ids import SessionId, WaitId
from gateway.model.sessions import Lease, TurnKind, TurnState
from gateway.model.slots import NewSlot, SlotKind
from gateway.model.tools import StepState, ToolResult
from gateway.model.waits import NewWait, WaitState
from gateway.store.codec import APPROVAL, RESULT, dump_json, load_conversation, to_us
from gateway.store.sqlite import outgoing
from gateway.store.sqlite.outgoing import show_anew
from gateway.store.sqlite.rows import CANCELLED, HELD, STOPPED_TEXT, UNKNOWN, TurnRow
from gateway.store.sqlite.tx import Tx

LEASE_US = 15_000_000
COMMANDS_AT_ONCE = 4


# --- turns ----------------------------------------------------------------------------------


def held(tx: Tx, lease: Lease) -> TurnRow:
    """Return the leased turn; raise `LeaseLost` when this lease does not hold it."""
    row = find_turn(tx, lease.turn)
    if row is None or row.fence != lease.fence or row.state not in HELD:
        raise LeaseLost
    return row


def find_turn(tx: Tx, turn: str) -> TurnRow | None:
    """Return the turn, if there is one."""
    columns = tx.one("turn_row", turn)
    return None if columns is None else TurnRow(*columns)


def stored_turn(tx: Tx, turn: str) -> TurnRow:
    """Return the turn that a stored row names."""
    row = find_turn(tx, turn)
    assert row is not None, "foreign keys hold"
    return row


def offer(tx: Tx, row: TurnRow) -> None:
    """Wake whoever claims when this queued turn may run now."""
    if row.state == TurnState.QUEUED and (row.head if row.kind == TurnKind.MODEL else _has_room(tx, row)):
        tx.touched.turns_due = True


def queue(tx: Tx, row: TurnRow) -> None:
    """Make a turn claimable, behind those that wait already."""
    tx.rev += 1
    queued_rev, row.state = tx.rev, TurnState.QUEUED
    tx.run("queue_turn", _active_ms(tx, row), tx.now, queued_rev, tx.next_rev(row.session), row.ord)
    if row.kind == TurnKind.MODEL:
        offer(tx, row)
    else:
        _offer_commands(tx, row)


def park(tx: Tx, row: TurnRow) -> None:
    """Take a turn out of its holder's hands until it is woken."""
    tx.run("park_turn", _active_ms(tx, row), tx.next_rev(row.session), row.ord)
    if row.kind == TurnKind.COMMAND:
        _offer_commands(tx, row)


def wake(tx: Tx, row: TurnRow) -> None:
    """Something was decided for this turn: queue it when it is parked, tell its holder otherwise."""
    if row.state == TurnState.PARKED:
        queue(tx, row)
    else:
        tx.touched.turns.add(row.id)


def end_turn(tx: Tx, row: TurnRow, state: TurnState) -> None:
    """End a turn: every call gets its one result, waits are withdrawn, messages count as given."""
    _cancel_calls(tx, row, started_too=True)
    ungiven = tx.run("ungiven", row.id)
    if ungiven:
        n = step_count(tx, row)
        for _, ord_ in ungiven:
            tx.run("give", n, tx.next_rev(row.session), ord_)
    tx.run("end_turn", row.ord, state, _active_ms(tx, row), tx.now, tx.next_rev(row.session))
    if row.kind == TurnKind.MODEL:
        for next_state, held_until in tx.run("move_head", row.session):
            tx.touched.turns_due |= next_state == TurnState.QUEUED and (held_until or 0) <= tx.now
    else:
        _offer_commands(tx, row)
    tx.touched.turns.add(row.id)


def stop(tx: Tx, row: TurnRow, text: str) -> None:
    """Stop a turn: its holder may only write results from now on; with no holder it ends here."""
    row.stopped_text = text
    if row.state in HELD:
        tx.run("mark_stopping", text, tx.next_rev(row.session), row.ord)
        _cancel_calls(tx, row, started_too=False)
        tx.touched.turns.add(row.id)
    else:
        end_stopped(tx, row)


def end_stopped(tx: Tx, row: TurnRow) -> None:
    """End a stopped turn that nobody holds, and say so where it began."""
    end_turn(tx, row, TurnState.STOPPED)
    text = STOPPED_TEXT if row.stopped_text is None else row.stopped_text
    said = NewSlot(conversation=load_conversation(row.conversation), kind=SlotKind.ANSWER, text=text)
    outgoing.say(tx, row, [said], ends=True)


def step_count(tx: Tx, row: TurnRow) -> int:
    """Return the number that the turn's next step gets."""
    ((count,),) = tx.run("step_count", row.id)
    return int(count)


def finish_step(tx: Tx, row: TurnRow, n: int, result: ToolResult) -> None:
    """Give a step its result."""
    tx.run("finish_step", RESULT.dump(result), tx.now, tx.next_rev(row.session), row.id, n)


def _cancel_calls(tx: Tx, row: TurnRow, *, started_too: bool) -> None:
    cancel_waits(tx, row, (wait for wait, *_ in tx.run("undecided_of_turn", row.id)))
    for n, state in tx.run("unfinished_steps", row.id):
        if state != StepState.STARTED:
            finish_step(tx, row, n, CANCELLED)
        elif started_too:
            # Nobody knows how far it came: CANCELLED would claim that it never ran.
            finish_step(tx, row, n, UNKNOWN)


def _active_ms(tx: Tx, row: TurnRow) -> int:
    """Milliseconds the turn was held, with those since it was claimed."""
    if row.held_since is None:
        return row.active_ms
    return row.active_ms + max(0, round((tx.now - row.held_since) / 1_000_000 * 1000))


def _has_room(tx: Tx, row: TurnRow) -> bool:
    ((at_work, _),) = tx.run("lane_counts", row.session, row.kind)
    return at_work < COMMANDS_AT_ONCE


def _offer_commands(tx: Tx, row: TurnRow) -> None:
    """A command turn was let go: the next one of its session may have room now."""
    ((at_work, queued),) = tx.run("lane_counts", row.session, row.kind)
    tx.touched.turns_due |= queued > 0 and at_work < COMMANDS_AT_ONCE


# --- waits ----------------------------------------------------------------------------------


def open_wait(tx: Tx, row: TurnRow, new: NewWait) -> None:
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
    """Move a wait on; the cards that show it get a new version."""
    tx.run("set_wait_state", state, tx.next_rev(session), wait)
    show_anew(tx, wait)


def cancel_waits(tx: Tx, row: TurnRow, waits: Iterable[WaitId]) -> None:
    """Withdraw these waits of a turn."""
    for wait in list(waits):
        set_wait(tx, row.session, wait, WaitState.CANCELLED)
