"""Transitions of questions: ask, and answer by a press or a message. Used by `intake` and the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from gateway.domain.ids import Principal, WaitId
from gateway.domain.messages import Inbound
from gateway.domain.questions import Inquiry, Pick
from gateway.domain.slots import NewSlot
from gateway.domain.steps import StepState
from gateway.domain.turns import ENDED, Lease, TurnState
from gateway.domain.waits import NewWait, PressResult, PressVerdict, Wait, WaitKind, WaitState, inquiry_of
from gateway.errors import NotFound
from gateway.store.kernel import turns
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import SessionRow, TurnRow
from gateway.store.kernel.slots import add_slot


def ask(part: Part, lease: Lease, new: NewWait, slots: Sequence[NewSlot]) -> WaitId | None:
    """Open the wait of a started step with its cards; None when the turn is STOPPING."""
    row = turns.held(part, lease)
    known = [wait for wait in turns.waits_of(part, row) if (wait.n, wait.kind) == (new.n, WaitKind.QUESTION)]
    if known:
        return known[-1].id
    if row.turn.state is TurnState.STOPPING:
        return None
    step = part.steps.get((lease.turn, new.n))
    if step is None or step.step.state is not StepState.STARTED or step.fence != row.fence:
        raise NotFound(f"The turn {lease.turn} has no step {new.n} that was started under this lease.")
    part.set_step(lease.turn, new.n, state=StepState.ASKED)
    turns.open_wait(part, row, new)
    for slot in slots:
        add_slot(part, slot, row.turn.session, lease.turn)
    return new.id


def result_of(wait: Wait, verdict: PressVerdict, part: Part) -> PressResult:
    """Return the result of a press on a question that was not handled before. CHOSEN and ANSWERED change it."""
    inquiry = inquiry_of(wait)
    if inquiry is None or verdict.pick is None:
        return PressResult.NOT_VALID
    if wait.state is WaitState.ANSWERED:
        return PressResult.ALREADY
    if wait.state is not WaitState.OPEN or wait.expires_at <= part.now:
        return PressResult.LATE
    after = inquiry.with_pick(verdict.pick)
    if after is None:
        return PressResult.ALREADY
    return PressResult.ANSWERED if after.current is None else PressResult.CHOSEN


def answer(part: Part, wait: Wait, pick: Pick, who: Principal) -> Wait:
    """Store a pick of an open question; its last answer ends the wait and wakes the turn."""
    inquiry = inquiry_of(wait)
    after = None if inquiry is None else inquiry.with_pick(pick)
    if after is None:
        return wait
    if after.current is not None:
        return turns.set_wait(part, wait.id, payload=after.as_payload())
    ended = turns.set_wait(
        part,
        wait.id,
        payload=after.as_payload(),
        state=WaitState.ANSWERED,
        decided_by=who,
        decided_at=part.now,
    )
    turns.wake(part, wait.turn)
    return ended


def answered_by(
    part: Part, session: SessionRow, asking: Sequence[TurnRow], message: Inbound
) -> tuple[Wait, Pick] | None:
    """Return the open question that a message answers. `asking`: the turns of its person in its conversation.

    The oldest one of the first such turn and of the sub-sessions that it spawned. For a reply it is the one of its
    card, also of a sub-session that works on after its parent's turn. Only a text answers. Another reply is a message.
    """
    forwarded = bool(message.quoted) and not message.reply_to
    if forwarded or not message.text.strip() or message.attachments or message.unread:
        return None
    asked = (found for row in asking if (found := _first_open(part, row)))
    if message.reply_to:
        asked = (one for one in chain(asked, _below(part, session, message)) if _is_about(part, *one, message))
    found = next(asked, None)
    if found is None:
        return None
    wait, inquiry = found
    return wait, Pick(question=inquiry.current or 0, text=message.text.strip())


def _below(part: Part, session: SessionRow, message: Inbound) -> Iterator[tuple[Wait, Inquiry]]:
    """Yield the open questions of live sub-sessions that were asked of this person, in this conversation."""
    for child in session.live_below:
        task = part.sessions[child].task
        row = None if task is None else part.turns[task]
        if row is None or row.turn.principal != message.principal:
            continue
        found = _first_open(part, row)
        lineage = part.sessions[child].session.lineage
        if found is not None and lineage is not None and lineage.conversation == message.conversation:
            yield found


def _is_about(part: Part, wait: Wait, inquiry: Inquiry, reply: Inbound) -> bool:
    """Return whether a message replies to the question's card, or quotes it: a card may stand there twice."""
    shown = [part.slots[slot].slot.message_ids for slot in part.cards.get(wait.id) or ()]
    quoted = any(question.text in reply.quoted for question in inquiry.questions)
    return quoted or any(reply.reply_to in ids for ids in shown)


def _first_open(part: Part, row: TurnRow) -> tuple[Wait, Inquiry] | None:
    """Return the oldest question of a turn, else of the sub-sessions that it spawned, that can be answered now."""
    for wait in turns.waits_of(part, row):
        inquiry = inquiry_of(wait)
        if wait.state is WaitState.OPEN and wait.expires_at > part.now and inquiry and inquiry.current is not None:
            return wait, inquiry
    for below in (part.turns[task] for task in row.tasks):
        if below.turn.state not in ENDED and (found := _first_open(part, below)):
            return found
    return None
