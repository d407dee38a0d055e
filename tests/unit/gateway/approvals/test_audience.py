"""Audience of approvals, and the messages that show a card."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from gateway.approvals.audience import NOBODY, Audience, Contact, audience, card_slots, is_shown_by
from gateway.domain.children import child_place
from gateway.domain.ids import Principal, SlotId, WaitId
from gateway.domain.messages import Conversation
from gateway.domain.sessions import SessionKind
from gateway.domain.slots import ROWS_A_CARD, Slot, SlotKind, SlotState
from gateway.domain.views import LastContact
from tests.support.fakes import ANN_PAGE, BOB_CHAT, CLEO_CHAT, CLEO_TELEGRAM, GROUP
from tests.support.makers import ANN_SLACK, ANN_TELEGRAM, CHAT, EPOCH, OTHER_CHAT
from tests.unit.gateway.approvals.rig import WAIT, child, session, turn

ANN_WEB, CLEO_WEB = Principal("web:ann"), Principal("web:cleo")
DAY = timedelta(days=1)


def reach(*direct: tuple[Principal, Conversation, datetime], page: datetime | None = None) -> LastContact:
    return LastContact(direct={who: (where, at) for who, where, at in direct}, page_seen_at=page)


@pytest.mark.parametrize(
    ("kind", "where", "reaches", "asked", "page"),
    [
        (SessionKind.MAIN, CHAT, [reach()], [CHAT], False),
        (SessionKind.MAIN, ANN_PAGE, [reach(page=EPOCH)], [ANN_PAGE], True),
        (SessionKind.DM, BOB_CHAT, [reach((ANN_TELEGRAM, CHAT, EPOCH))], [CHAT], False),
        # Each approver's last direct conversation, not all of them.
        (
            SessionKind.NON_MAIN,
            GROUP,
            [
                reach((ANN_TELEGRAM, CHAT, EPOCH), (ANN_SLACK, OTHER_CHAT, EPOCH + DAY)),
                reach((CLEO_TELEGRAM, CLEO_CHAT, EPOCH)),
            ],
            [OTHER_CHAT, CLEO_CHAT],
            False,
        ),
        # A page that somebody used is no place where a card would be seen; whether it is open counts.
        (
            SessionKind.DM,
            BOB_CHAT,
            [reach((ANN_TELEGRAM, CHAT, EPOCH), (ANN_WEB, ANN_PAGE, EPOCH + DAY)), reach((CLEO_WEB, ANN_PAGE, EPOCH))],
            [CHAT],
            False,
        ),
        (SessionKind.NON_MAIN, GROUP, [reach(), reach()], [], False),
        (SessionKind.NON_MAIN, GROUP, [reach(page=EPOCH - 7 * DAY)], [], True),
        (SessionKind.NON_MAIN, GROUP, [reach(page=EPOCH - 7 * DAY - timedelta(seconds=1))], [], False),
    ],
)
def test_audience_of_an_approval(
    kind: SessionKind, where: Conversation, reaches: list[LastContact], asked: list[Conversation], page: bool
) -> None:
    here = kind is SessionKind.MAIN
    found = audience(session(kind), turn(where), [Contact(seen=one, here=here) for one in reaches], EPOCH)

    assert (list(found.conversations), found.page) == (asked, page)
    assert found.anybody == bool(asked or page)


IN_CHAT, ON_PAGE = Contact(seen=reach((CLEO_TELEGRAM, CLEO_CHAT, EPOCH))), Contact(seen=reach(page=EPOCH))
AWAY = Contact(seen=reach())
OF_ANOTHER = Contact(seen=reach(page=EPOCH), sees_page=False)
HERE = Contact(seen=reach(), here=True)


@pytest.mark.parametrize(
    ("contacts", "quorum", "asked"),
    [
        ([HERE, IN_CHAT], 2, [CHAT, CLEO_CHAT]),
        ([HERE, ON_PAGE], 2, [CHAT]),
        ([HERE, AWAY], 2, None),
        ([HERE, OF_ANOTHER], 2, None),  # the page of another owner does not show this session
        ([HERE, IN_CHAT, AWAY], 2, [CHAT, CLEO_CHAT]),
        ([HERE, IN_CHAT, AWAY], 3, None),
        ([], 1, None),
    ],
)
def test_fewer_within_reach_than_must_allow_it_are_nobody(
    contacts: list[Contact], quorum: int, asked: list[Conversation] | None
) -> None:
    found = audience(session(), turn(CHAT), contacts, EPOCH, quorum)

    assert found == NOBODY if asked is None else list(found.conversations) == asked


def test_an_owner_who_may_not_decide_gets_the_note() -> None:
    place = Audience(conversations=(CLEO_CHAT,), page=False, asked="An approver")
    slots = card_slots([WAIT], ["t"], place, session(), turn(CHAT))

    assert [(slot.conversation, slot.kind) for slot in slots] == [(CLEO_CHAT, SlotKind.CARD), (CHAT, SlotKind.NOTE)]
    assert slots[-1].text.startswith("An approver was asked to allow this")


@pytest.mark.parametrize(("asked", "sizes"), [(1, [1]), (8, [8]), (9, [8, 1]), (17, [8, 8, 1])])
def test_a_card_has_eight_rows_at_most(asked: int, sizes: list[int]) -> None:
    waits = [WaitId(f"w{n}") for n in range(asked)]
    place = Audience(conversations=(CHAT,), page=False)
    slots = card_slots(waits, ["shell wants to run"] * asked, place, session(), turn())

    assert [len(slot.waits) for slot in slots] == sizes
    assert [w for slot in slots for w in slot.waits] == waits
    assert ROWS_A_CARD == 8


def test_approvers_get_cards_and_the_chat_a_plain_note() -> None:
    place = Audience(conversations=(CHAT, CLEO_CHAT), page=False)
    slots = card_slots([WAIT], ["shell wants to run"], place, session(SessionKind.NON_MAIN), turn(GROUP))

    assert [(slot.conversation, slot.kind) for slot in slots] == [
        (CHAT, SlotKind.CARD),
        (CLEO_CHAT, SlotKind.CARD),
        (GROUP, SlotKind.NOTE),
    ]
    assert slots[-1].text == "An owner was asked to allow this: shell wants to run. It goes on when they decide."


def test_the_note_names_each_thing_once() -> None:
    place = Audience(conversations=(CHAT,), page=False)
    titles = ["shell wants to run", "shell wants to run", "web wants to use the network"]
    slots = card_slots([WAIT] * 3, titles, place, session(SessionKind.NON_MAIN), turn(GROUP))

    assert "allow this: shell wants to run, web wants to use the network. It" in slots[-1].text


def test_approver_asking_in_a_direct_chat_gets_no_note() -> None:
    place = Audience(conversations=(BOB_CHAT,), page=False)
    slots = card_slots([WAIT], ["t"], place, session(SessionKind.DM), turn(BOB_CHAT))

    assert [slot.kind for slot in slots] == [SlotKind.CARD]


def test_child_of_main_asks_where_its_turn_began() -> None:
    below = child(SessionKind.MAIN, OTHER_CHAT)
    inside = turn(child_place(below.id))
    found = audience(below, inside, [Contact(seen=reach((ANN_TELEGRAM, CHAT, EPOCH)), here=True)], EPOCH)

    assert found.conversations == (OTHER_CHAT,)
    assert [slot.kind for slot in card_slots([WAIT], ["t"], found, below, inside)] == [SlotKind.CARD]


def test_child_below_a_group_asks_approvers_and_notes_the_group() -> None:
    below = child(SessionKind.NON_MAIN, GROUP)
    inside = turn(child_place(below.id))
    found = audience(below, inside, [Contact(seen=reach((ANN_TELEGRAM, CHAT, EPOCH)))], EPOCH)
    slots = card_slots([WAIT], ["t"], found, below, inside)

    assert [(slot.kind, slot.conversation) for slot in slots] == [(SlotKind.CARD, CHAT), (SlotKind.NOTE, GROUP)]


@pytest.mark.parametrize(
    ("message_ids", "where", "message", "shows"),
    [
        (("101",), CHAT, "101", True),
        (("101", "102"), CHAT, "102", True),
        (("101", "102"), CHAT, "10", False),
        (("101", "102"), CHAT, "101,102", False),
        (("101",), OTHER_CHAT, "101", False),
        ((), CHAT, "", False),
        (("101",), CHAT, "", False),
    ],
)
def test_a_card_is_shown_by_each_of_its_messages_in_its_own_chat(
    message_ids: tuple[str, ...], where: Conversation, message: str, shows: bool
) -> None:
    slot = Slot(
        id=SlotId("s1"),
        conversation=CHAT,
        session=None,
        turn=None,
        n=None,
        kind=SlotKind.CARD,
        text="",
        waits=(WAIT,),
        file=None,
        version=1,
        sent_version=1,
        message_ids=message_ids,
        state=SlotState.SENT,
        attempts=1,
        uncertain=False,
        due_at=EPOCH,
        created_at=EPOCH,
    )

    assert is_shown_by(slot, where, message) is shows
