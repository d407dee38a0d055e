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
"""What a status line says of a turn that ended without a word for it."""


def last_word(slots: Sequence[NewSlot], early: Sequence[tuple[SlotId, Conversation]]) -> list[NewSlot]:
    """Return a turn's last slots, the last answer among them in an early slot's place when one is left over there.

    `early`: the turn's early slots, oldest first. One that `slots` name is taken over already, and an answer that names
    one stays as it is.
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
    """Return a turn's last slots with a word for each of its status lines, `status`, that they do not name."""
    named = {new.id for new in slots}
    left = [(id_, place) for id_, place in status if id_ not in named]
    return [
        *slots,
        *(NewSlot(conversation=place, kind=SlotKind.STATUS, text=STATUS_LEFT, id=id_) for id_, place in left),
    ]


NOTHING = Usage()


def cost_of(answer: Answer, principal: Principal, now: datetime) -> Spent | None:
    """What this answer costs the person whose turn it is; None when its model gave no figures."""
    if answer.usage == NOTHING:
        return None
    day = now.astimezone(UTC).date()
    return Spent(day=day, principal=principal, model=answer.model, answers=1, usage=answer.usage)


def together(one: Spent, other: Spent) -> Spent:
    """The sum of two of the same day, person and model."""
    return replace(one, answers=one.answers + other.answers, usage=one.usage + other.usage)
