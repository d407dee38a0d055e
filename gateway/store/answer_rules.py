"""Rules for answers in every store: draft slots, status lines and usage. Pure; used where a turn speaks or ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from gateway.domain.ids import Principal, SlotId
from gateway.domain.messages import Conversation
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import Answer, Usage
from gateway.domain.views import Spent

STATUS_LEFT = "Ended."
"""Text of a status line whose turn ended without a text for it."""


def last_word(slots: Sequence[NewSlot], early: Sequence[tuple[SlotId, Conversation]]) -> list[NewSlot]:
    """Return a turn's last slots; the last answer takes the place of a leftover draft in the same conversation.

    `early`: the turn's draft slots, oldest first. A draft named in `slots` is taken already; an answer that names a
    draft stays as it is.
    """
    said, open_ = list(slots), dict(early)
    answers = [at for at, new in enumerate(said) if new.kind is SlotKind.ANSWER]
    if not answers or said[answers[-1]].id in open_:
        return said
    last, named = said[answers[-1]], {new.id for new in said}
    for id_ in reversed(open_):
        if id_ not in named and open_[id_] == last.conversation:
            said[answers[-1]] = replace(last, id=id_)
            break
    return said


def last_status(slots: Sequence[NewSlot], status: Sequence[tuple[SlotId, Conversation]]) -> list[NewSlot]:
    """Return a turn's last slots, plus a final text for each status line in `status` that they do not name.

    A text for a line that was never opened is left out: what was not shown needs no last word.
    """
    opened, named = {id_ for id_, _ in status}, {new.id for new in slots}
    left = [(id_, place) for id_, place in status if id_ not in named]
    return [
        *(new for new in slots if new.kind is not SlotKind.STATUS or new.id in opened),
        *(NewSlot(conversation=place, kind=SlotKind.STATUS, text=STATUS_LEFT, id=id_) for id_, place in left),
    ]


NOTHING = Usage()


def cost_of(answer: Answer, principal: Principal, now: datetime) -> Spent | None:
    """Return the usage of this answer, on the turn's person; None when its model gave no figures."""
    if answer.usage == NOTHING:
        return None
    day = now.astimezone(UTC).date()
    return Spent(day=day, principal=principal, model=answer.model, answers=1, usage=answer.usage)


def together(one: Spent, other: Spent) -> Spent:
    """Return the sum of two records of the same day, person and model."""
    return replace(one, answers=one.answers + other.answers, usage=one.usage + other.usage)
