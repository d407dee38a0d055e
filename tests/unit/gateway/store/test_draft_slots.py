"""Rules for draft slots and status lines at the end of their turn."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gateway.domain.ids import SlotId
from gateway.domain.messages import Conversation
from gateway.domain.slots import NewSlot, SlotKind
from gateway.store.answer_rules import last_status, last_word
from tests.support.makers import CHAT, OTHER_CHAT

ANSWER, NOTE, STATUS, FILE = SlotKind.ANSWER, SlotKind.NOTE, SlotKind.STATUS, SlotKind.FILE


def slot(kind: SlotKind, text: str = "", *, id: str = "", where: Conversation = CHAT) -> NewSlot:
    return NewSlot(conversation=where, kind=kind, text=text, id=SlotId(id) if id else None)


@pytest.mark.parametrize(
    ("slots", "early", "ids"),
    [
        ([], ["e1"], []),
        ([slot(NOTE)], ["e1"], [""]),
        ([slot(ANSWER)], [], [""]),
        ([slot(ANSWER)], ["e1"], ["e1"]),
        ([slot(ANSWER)], ["e1", "e2"], ["e2"]),  # the newest that is left over
        ([slot(ANSWER, id="e1")], ["e1", "e2"], ["e1"]),  # the answer says itself where it stands
        ([slot(ANSWER, id="o9")], ["e1"], ["e1"]),
        ([slot(ANSWER, id="e2"), slot(ANSWER)], ["e1", "e2"], ["e2", "e1"]),
        ([slot(ANSWER), slot(ANSWER), slot(FILE)], ["e1"], ["", "e1", ""]),  # the last answer, whatever follows it
        ([slot(ANSWER, where=OTHER_CHAT)], ["e1"], [""]),  # another place
    ],
)
def test_the_last_answer_stands_where_one_was_begun(
    slots: Sequence[NewSlot], early: Sequence[str], ids: Sequence[str]
) -> None:
    found = last_word(slots, [(SlotId(id), CHAT) for id in early])

    assert [one.id or "" for one in found] == ids
    assert [(one.kind, one.conversation) for one in found] == [(one.kind, one.conversation) for one in slots]


def test_older_draft_in_the_right_place_beats_a_newer_elsewhere() -> None:
    early = [(SlotId("e1"), CHAT), (SlotId("e2"), OTHER_CHAT)]

    assert [one.id for one in last_word([slot(ANSWER)], early)] == ["e1"]


def test_a_status_line_that_is_not_named_ends_with_a_word() -> None:
    named = slot(STATUS, "", id="s1")
    status = [(SlotId("s1"), CHAT), (SlotId("s2"), OTHER_CHAT)]

    assert last_status([named], status) == [named, slot(STATUS, "Ended.", id="s2", where=OTHER_CHAT)]
    assert last_status([named, slot(ANSWER)], []) == [slot(ANSWER)]
