"""Slot steps of the transitions: new slots, new versions, the slots of a turn."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.domain.ids import SessionId, SlotId, TurnId, WaitId
from gateway.domain.messages import Conversation
from gateway.domain.slots import EDIT_IN_DOUBT, NewSlot, Slot, SlotKind, SlotState, shown_when_stored
from gateway.store.answer_rules import last_status, last_word
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import Early, SlotRow, TurnRow


def add_slot(
    part: Part, new: NewSlot, session: SessionId | None, turn: TurnId | None, *, early: Early = Early.NO
) -> SlotId:
    """Store a new slot, due now; a slot of the page counts as sent once stored."""
    kept = shown_when_stored(new.conversation)
    slot = Slot(
        id=new.id or SlotId(part.mint("o")),
        conversation=new.conversation,
        session=session,
        turn=turn,
        n=new.n,
        kind=new.kind,
        text=new.text,
        waits=new.waits,
        file=new.file,
        version=1,
        sent_version=1 if kept else 0,
        message_ids=(),
        state=SlotState.SENT if kept else SlotState.DUE,
        attempts=0,
        uncertain=False,
        due_at=part.now,
        created_at=part.now,
        post=new.post,
    )
    seq = part.next_rev(session)
    ord_ = None if session is None else seq
    part.slots.put(slot.id, SlotRow(slot=slot, seq=seq, ord=ord_, rev=ord_, early=early))
    part.slot_moved(slot)
    if turn is not None:
        part.relink_turn(turn, slots=(*part.turns[turn].slots, slot.id))
    if new.kind is SlotKind.CARD:
        for wait in new.waits:
            part.cards.put(wait, (*(part.cards.get(wait) or ()), slot.id))
    return slot.id


def post(part: Part, new: NewSlot, session: SessionId, turn: TurnId) -> None:
    """Store a call's slot. A post that names an earlier one of its session changes the text of that one."""
    known = None if new.id is None else part.slots.get(new.id)
    if new.id is None or known is None:
        add_slot(part, new, session, turn)
    elif known.slot.session == session and known.slot.kind is SlotKind.POST is new.kind:
        rewrite(part, new.id, new.text, known.slot.n, early=Early.NO)


def rewrite(part: Part, slot: SlotId, text: str, n: int | None, *, early: Early) -> None:
    """Replace a slot's text. A dead slot is retried, since its text is new."""
    state = part.slots[slot].slot.state
    state = SlotState.SENT if state is SlotState.DEAD else state
    _show_version(part, slot, {"text": text, "n": n, "state": state}, early=early)


def show_anew(part: Part, slot: SlotId, *, once_more: bool = False) -> None:
    """Give a slot a new version, due if the last one was sent, or is dead but visible.

    `once_more`: the text is unchanged, so a dead slot stays dead.
    """
    _show_version(part, slot, {"once_more": once_more})


def _show_version(part: Part, slot: SlotId, changes: dict[str, object], *, early: Early | None = None) -> None:
    row = part.slots[slot]
    old, state = row.slot, changes.get("state", row.slot.state)
    once_more = bool(changes.get("once_more"))
    again = state is SlotState.DEAD and bool(old.message_ids) and not once_more
    changes |= {"version": old.version + 1, "attempts": 0, "once_more": once_more}
    if shown_when_stored(old.conversation):
        changes["sent_version"] = old.version + 1
    elif state is SlotState.SENT or again:
        changes |= {"state": SlotState.DUE, "due_at": part.now}
    part.set_slot(slot, of_slot=changes, early=row.early if early is None else early)


def show_cards_anew(part: Part, wait: WaitId) -> None:
    """Give the cards that show this wait a new version."""
    for card in part.cards.get(wait) or ():
        show_anew(part, card)


def show_given_up(part: Part, wait: WaitId) -> None:
    """Retry the dead cards of this wait: somebody pressed an outdated one."""
    for card in part.cards.get(wait) or ():
        if part.slots[card].slot.state is SlotState.DEAD:
            show_anew(part, card)


def edit_in_doubt(part: Part, row: SlotRow) -> dict[str, object]:
    """Return the changes that record that an edit in progress, if there was one, may still arrive."""
    if row.slot.version > 1 and row.slot.message_ids:
        return may_be_overwritten(part, row, row.slot.sent_version + 1)
    return {}


def may_be_overwritten(part: Part, row: SlotRow, by: int) -> dict[str, object]:
    """Return the changes that record that an edit to version `by` may still arrive.

    A newer version is then shown once more.
    """
    over = by if row.again_at is None or row.again_over is None else min(row.again_over, by)
    return {"again_over": over, "again_at": part.now + EDIT_IN_DOUBT}


# --- slots of a turn ------------------------------------------------------------------------


def say(part: Part, turn: TurnId, slots: Sequence[NewSlot], *, ends: bool = False) -> None:
    """Store a turn's slots; an existing slot of the turn takes the new text.

    Drafts without an answer are emptied, or take the last text of a turn that `ends`. A status line stays as it is
    until then.
    """
    row = part.turns[turn]
    if ends:
        slots = last_status(last_word(slots, _places(part, row.drafts)), _places(part, row.status))
    left, status = list(row.drafts), list(row.status)
    for new in slots:
        early = Early.STATUS if new.kind is SlotKind.STATUS and not ends else Early.NO
        known = None if new.id is None else part.slots.get(new.id)
        if known is not None and known.slot.turn == turn:
            if known.slot.id in left:
                left.remove(known.slot.id)
            rewrite(part, known.slot.id, new.text, new.n, early=early)
        else:
            id_ = add_slot(part, new, row.turn.session, turn, early=early)
            if early is Early.STATUS:
                status.append(id_)
    for draft in left:
        rewrite(part, draft, "", part.slots[draft].slot.n, early=Early.NO)
    status = [] if ends else status
    if row.drafts or tuple(status) != row.status:
        part.relink_turn(turn, drafts=(), status=tuple(status))


def say_early(part: Part, row: TurnRow, new: NewSlot) -> bool:
    """Store a draft or a status line, or its newer text.

    Return False when the whole answer is stored: its beginning must not replace it.
    """
    known = None if new.id is None else part.slots.get(new.id)
    if known is not None:
        if known.early and known.slot.text != new.text:
            rewrite(part, known.slot.id, new.text, new.n, early=known.early)
        return bool(known.early)
    is_status = new.kind is SlotKind.STATUS
    id_ = add_slot(part, new, row.turn.session, row.turn.id, early=Early.STATUS if is_status else Early.DRAFT)
    if is_status:
        part.relink_turn(row.turn.id, status=(*row.status, id_))
    else:
        part.relink_turn(row.turn.id, drafts=(*row.drafts, id_))
    return True


def _places(part: Part, slots: Sequence[SlotId]) -> list[tuple[SlotId, Conversation]]:
    return [(id_, part.slots[id_].slot.conversation) for id_ in slots]
