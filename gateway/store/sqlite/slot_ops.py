"""Slot operations of the SQLite store, shared by its transitions. The same as the memory store's."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.domain.ids import SessionId, SlotId, TurnId, WaitId, mint
from gateway.domain.slots import EDIT_IN_DOUBT, NewSlot, SlotKind, SlotState, shown_when_stored
from gateway.store.answer_rules import last_status, last_word
from gateway.store.codec import KEPT_FILE, MICROSECOND, dump_conversation, dump_json, load_conversation
from gateway.store.sqlite.rows import TurnColumns
from gateway.store.sqlite.tx import Tx, Values

NOT_EARLY, EARLY, STATUS = 0, 1, 2
"""Values of the column `early`: 1 for a draft, 2 for a status line until its turn ends."""


def add_slot(tx: Tx, new: NewSlot, session: SessionId | None, turn: TurnId | None, *, early: int = NOT_EARLY) -> None:
    """Store a new slot, due now; a slot of the page counts as sent once stored."""
    kept = shown_when_stored(new.conversation)
    rev = rev_of_slot(tx, session)
    place = dump_conversation(new.conversation)
    text = (session, turn, new.n, new.kind, new.text, dump_json(list(new.waits)))
    state = SlotState.SENT if kept else SlotState.DUE
    id_ = new.id or SlotId(mint("o"))
    file = None if new.file is None else KEPT_FILE.dump(new.file)
    tx.run("add_slot", rev, id_, place, new.conversation.channel, kept, *text, state, tx.now, early, file)
    if new.kind is SlotKind.CARD:
        ((seq, _),) = tx.run("slot_brief", id_)
        for wait in new.waits:
            tx.run("add_card", wait, seq)
    tx.touched.slots_due |= not kept


def show_anew(tx: Tx, wait: WaitId) -> None:
    """Give each card of this wait a new version."""
    for seq, session, state, kept in tx.run("cards_of_wait", wait):
        show_slot_anew(tx, seq, session, state, kept)


def show_given_up(tx: Tx, wait: WaitId) -> None:
    """Retry the dead cards of this wait: somebody pressed an outdated one."""
    for seq, session, state, kept in tx.run("cards_of_wait", wait):
        if state == SlotState.DEAD:
            show_slot_anew(tx, seq, session, state, kept)


def show_slot_anew(
    tx: Tx, seq: int, session: SessionId | None, state: str, kept: bool, *, once_more: bool = False
) -> None:
    """Give a slot a new version, due if the last one was sent, or is dead but visible.

    `once_more`: the text is unchanged, so a dead slot stays dead.
    """
    tx.run("show_anew", seq, rev_of_slot(tx, session), tx.now, once_more)
    tx.touched.slots_due |= not kept and state != SlotState.SENDING


def settled(tx: Tx) -> int:
    """Return when an edit in progress now has either arrived or been lost."""
    return tx.now + EDIT_IN_DOUBT // MICROSECOND


def rev_of_slot(tx: Tx, session: SessionId | None) -> int | None:
    """Return the revision of a changed slot; None for a slot without a session."""
    return None if session is None else tx.next_rev(session)


# --- slots of a turn ------------------------------------------------------------------------


def say(tx: Tx, row: TurnColumns, slots: Sequence[NewSlot], *, ends: bool = False) -> None:
    """Store a turn's slots; an existing slot of the turn takes the new text.

    Drafts without an answer are emptied, or take the last text of a turn that `ends`. A status line stays as it is
    until then.
    """
    found = tx.run("early_slots", row.id)
    if found and ends:
        slots = _last_slots(slots, found)
    left = {id_: (seq, n) for seq, id_, _, n, how in found if how == EARLY}
    for new in slots:
        known = None if new.id is None else tx.one("slot_of_turn", new.id, row.id)
        how = STATUS if new.kind is SlotKind.STATUS and not ends else NOT_EARLY
        if known is None:
            add_slot(tx, new, row.session, row.id, early=how)
        else:
            left.pop(new.id, None)
            rewrite(tx, row, known[0], new.text, new.n, early=how)
    for seq, n in left.values():
        rewrite(tx, row, seq, "", n, early=NOT_EARLY)


def _last_slots(slots: Sequence[NewSlot], found: Sequence[Values]) -> list[NewSlot]:
    places = {
        how: [(SlotId(id_), load_conversation(place)) for _, id_, place, _, at in found if at == how]
        for how in (EARLY, STATUS)
    }
    return last_status(last_word(slots, places[EARLY]), places[STATUS])


def say_early(tx: Tx, row: TurnColumns, new: NewSlot) -> bool:
    """Store a draft or a status line.

    Return False when the whole answer is stored: its beginning must not replace it.
    """
    known = None if new.id is None else tx.one("slot_of_turn", new.id, row.id)
    if known is None:
        add_slot(tx, new, row.session, row.id, early=STATUS if new.kind is SlotKind.STATUS else EARLY)
        return True
    seq, early, text = known
    if early and text != new.text:
        rewrite(tx, row, seq, new.text, new.n, early=early)
    return bool(early)


def rewrite(tx: Tx, row: TurnColumns, seq: int, text: str, n: int | None, *, early: int) -> None:
    """Replace the text of a turn's slot."""
    ((state, kept),) = tx.run("rewrite", seq, tx.next_rev(row.session), tx.now, text, n, early)
    tx.touched.slots_due |= not kept and state != SlotState.SENDING
