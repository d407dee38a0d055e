"""Sweep transitions in SQLite: expiry, timers, recovery after a restart."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from gateway.domain.ids import SessionId, TurnId, WaitId, child_session
from gateway.domain.messages import NEXT_PART_WITHIN
from gateway.domain.slots import NewSlot, SlotKind, SlotState
from gateway.domain.turns import TurnState
from gateway.domain.waits import DECISION_GOOD_FOR_S, WaitKind, WaitState
from gateway.store import child_rules
from gateway.store.codec import MICROSECOND, load_conversation, load_json, to_us
from gateway.store.constants import AT_ONCE, FILE_SENDING_AT_MOST, SENDING_AT_MOST
from gateway.store.sqlite import slot_ops, turn_ops
from gateway.store.sqlite.base import SqliteBase
from gateway.store.sqlite.tx import Tx

DECISION_GOOD_FOR_US = timedelta(seconds=DECISION_GOOD_FOR_S) // MICROSECOND


class SqliteSweeps(SqliteBase):
    """`ports.Sweeps`."""

    async def expire_waits(self) -> int:
        """Expire waits that nobody decided or used in time."""
        return await self.write(_expire_waits)

    async def reclaim(self) -> int:
        """Take back turns and slots of dead holders, and stop orphans."""
        return await self.write(_reclaim)

    async def fire_timers(self) -> int:
        """Copy answers to a chat when nobody had the page open, and resend slots that a late edit may have hidden."""
        return await self.write(_fire_timers)

    async def offer_again(self) -> int:
        """Show open cards again after a downtime; ask again for approvals that expired meanwhile."""
        return await self.write(_offer_again)

    async def void_leases(self, machine: str) -> int:
        """Void the leases of this machine's earlier processes."""
        return await self.write(lambda tx: _void_leases(tx, machine))


def _expire_waits(tx: Tx) -> int:
    expired = 0
    for wait, turn, n, kind in tx.run("expired_waits", tx.now, tx.now - DECISION_GOOD_FOR_US, AT_ONCE):
        if tx.one("undecided_wait", wait) is None:
            continue  # of a child that an earlier one of the loop stopped
        row, expired = turn_ops.stored_turn(tx, turn), expired + 1
        turn_ops.set_wait(tx, row.session, wait, WaitState.EXPIRED)
        if kind == WaitKind.CHILD:
            turn_ops.stop_below(tx, child_session(turn, n), child_rules.NOBODY_WAITS)
        turn_ops.wake(tx, row)
    return expired


def _reclaim(tx: Tx) -> int:
    turns = tx.run("lease_ran_out", tx.now, AT_ONCE)
    long_ago = [tx.now - at_most // MICROSECOND for at_most in (SENDING_AT_MOST, FILE_SENDING_AT_MOST)]
    slots = tx.run("sending_too_long", *long_ago, AT_ONCE - len(turns))
    orphans = tx.run("orphans", AT_ONCE - len(turns) - len(slots))
    for (orphan,) in orphans:
        turn_ops.stop_below(tx, orphan, child_rules.NOBODY_WAITS)
    return _take_back(tx, turns, slots) + len(orphans)


def _void_leases(tx: Tx, machine: str) -> int:
    for name, node in tx.run("all_holds"):
        if _is_of(node, machine):
            tx.run("let_go", name)
    tx.run("hold_anew", to_us(tx.moment + NEXT_PART_WITHIN))
    turns = [row for row in tx.run("leased") if _is_of(row[-1], machine)][:AT_ONCE]
    slots = [row for row in tx.run("sending") if _is_of(row[-1], machine)][: AT_ONCE - len(turns)]
    return _take_back(tx, turns, slots)


def _is_of(node: str, machine: str) -> bool:
    return node.rpartition("#")[0] == machine


def _take_back(tx: Tx, turns: list[tuple[Any, ...]], slots: list[tuple[Any, ...]]) -> int:
    for turn, *_ in turns:
        tx.touched.turns.add(turn)  # a holder that is only late checks at once, and stops
        row = turn_ops.stored_turn(tx, turn)
        if row.state == TurnState.STOPPING:
            turn_ops.end_stopped(tx, row)
        else:
            turn_ops.queue(tx, row)
    for seq, session, create, *_ in slots:
        # The sender is gone and may have shown it: a create is uncertain now.
        tx.run("slot_retry", seq, slot_ops.rev_of_slot(tx, session), create, tx.now, 0, slot_ops.settled(tx))
        tx.touched.slots_due = True
    return len(turns) + len(slots)


def _fire_timers(tx: Tx) -> int:
    due = tx.run("due_timers", tx.now, AT_ONCE)
    for wait, turn, session, payload, opened_at in due:
        fired = _fire(tx, session, turn, load_json(payload), opened_at)
        turn_ops.set_wait(tx, session, wait, WaitState.ANSWERED if fired else WaitState.CANCELLED)
        turn_ops.wake(tx, turn_ops.stored_turn(tx, turn))
    return len(due) + _show_again(tx, AT_ONCE - len(due))


def _show_again(tx: Tx, most: int) -> int:
    """Resend slots that a late edit may have overwritten. A slot due anyway is skipped: its send comes later."""
    found = tx.run("slots_again", tx.now, most)
    for seq, session, state, kept, early, newer in found:
        tx.run("slot_settled", seq)
        if newer and early == slot_ops.NOT_EARLY and state in (SlotState.SENDING, SlotState.SENT):
            slot_ops.show_slot_anew(tx, seq, session, state, kept, once_more=True)
    return len(found)


def _fire(tx: Tx, session: SessionId, turn: TurnId, payload: dict[str, Any], opened_at: int) -> bool:
    """Run a timer's action. Return False when there was no need or no place for it."""
    if "copy_of" not in payload:
        return True
    owner = str(payload["owner"])
    seen, place = tx.one("page_seen", owner), tx.one("owner_chat", owner)
    original = tx.one("text_of_slot", str(payload["copy_of"]))
    if place is None or original is None or (seen is not None and seen[0] >= opened_at):
        return False
    text, n = original
    copy = NewSlot(conversation=load_conversation(place[0]), kind=SlotKind.COPY, text=text, n=n)
    slot_ops.add_slot(tx, copy, session, turn)
    return True


def _offer_again(tx: Tx) -> int:
    asked = tx.run("asked_waits")
    expired = [(wait, turn, n) for wait, turn, n, expires_at in asked if expires_at <= tx.now]
    for wait, turn, n in expired:
        _ask_anew(tx, wait, turn, n)
    # One for each place, however often it was offered before.
    again: dict[tuple[str, str], tuple[SessionId | None, TurnId | None]] = {}
    for wait, _, _, expires_at in asked:
        if expires_at > tx.now:
            for place, waits, session, turn in tx.run("shown_cards", wait):
                again[place, waits] = (session, turn)
    for (place, waits), (session, turn) in again.items():
        card = NewSlot(
            conversation=load_conversation(place), kind=SlotKind.CARD, waits=tuple(map(WaitId, load_json(waits)))
        )
        slot_ops.add_slot(tx, card, session, turn)
    return len(expired) + len(again)


def _ask_anew(tx: Tx, wait: WaitId, turn: TurnId, n: int) -> None:
    row = turn_ops.stored_turn(tx, turn)
    step = tx.one("step", turn, n)
    asked_anew = step is None or bool(step[4])
    if asked_anew:
        turn_ops.set_wait(tx, row.session, wait, WaitState.EXPIRED)
    else:
        turn_ops.set_wait(tx, row.session, wait, WaitState.SUPERSEDED)
        tx.run("ask_step_anew", tx.next_rev(row.session), turn, n)
    turn_ops.wake(tx, row)
