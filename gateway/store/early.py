"""Beside the path of an answer: what becomes of slots that were made while it was still being written. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gateway.model.ids import SlotId
from gateway.model.messages import Conversation
from gateway.model.slots import NewSlot, SlotKind


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
