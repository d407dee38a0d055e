from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from gateway.approvals import (
    ROWS_A_CARD,
    Approvals,
    Audience,
    Handles,
    approvers,
    asks_reason,
    audience,
    card_slots,
    cards_at,
    is_shown_by,
    may_resolve,
    name_of,
    page_card,
    page_principals,
    payload,
)
from gateway.model.ids import OwnerName, Principal, SessionId, SlotId, TurnId, WaitId, main_session
from gateway.model.messages import Conversation
from gateway.model.sessions import (
    Lineage,
    Origin,
    Session,
    SessionKind,
    SpawnMode,
    Turn,
    TurnKind,
    TurnState,
    WhileRunning,
    child_place,
)
from gateway.model.slots import Slot, SlotKind, SlotState
from gateway.model.views import Whereabouts
from gateway.model.waits import PRESSED_TEXT, PressResult, Verb, Verdict, WaitKind, WaitState
from gateway.store.memory import MemoryStore
from tests.support.clock import FakeClock
from tests.support.fakes import ANN_PAGE, BOB_CHAT, CLEO, CLEO_CHAT, CLEO_TELEGRAM, GROUP, KEY, PEOPLE
from tests.support.makers import (
    ANN,
    ANN_SLACK,
    ANN_TELEGRAM,
    BOB,
    CHAT,
    EPOCH,
    OTHER_CHAT,
    approval,
    inbound,
    press,
    route,
)
from tests.unit.gateway.approvals_rig import WAIT, wait

ANN_WEB, CLEO_WEB = Principal("web:ann"), Principal("web:cleo")
MEMBER = Principal("telegram:9009")
DAY = timedelta(days=1)
DENY_ALL = Verdict(refusal=None, state=WaitState.DENIED, withdraw_siblings=True)


def session(kind: SessionKind = SessionKind.MAIN, owner: OwnerName | None = ANN) -> Session:
    return Session(
        id=main_session(ANN) if kind is SessionKind.MAIN else SessionId("chat:x"),
        kind=kind,
        origin=Origin.DIRECT,
        owner=owner if kind is SessionKind.MAIN else None,
        title="",
        epoch=0,
        root_kind=kind,
        created_at=EPOCH,
        active_at=EPOCH,
    )


def turn(where: Conversation = CHAT, who: Principal = ANN_TELEGRAM) -> Turn:
    return Turn(
        id=TurnId("t1"),
        session=main_session(ANN),
        epoch=0,
        kind=TurnKind.MODEL,
        state=TurnState.RUNNING,
        conversation=where,
        principal=who,
        created_at=EPOCH,
        started_at=EPOCH,
        ended_at=None,
        active_ms=0,
    )


# --- who may decide -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "owner", "who"),
    [
        (SessionKind.MAIN, ANN, {ANN_WEB, ANN_TELEGRAM, ANN_SLACK}),
        (SessionKind.MAIN, CLEO, {CLEO_WEB, CLEO_TELEGRAM}),
        (SessionKind.MAIN, OwnerName("gone"), set[Principal]()),
        (SessionKind.DM, None, {ANN_WEB, ANN_TELEGRAM, ANN_SLACK, CLEO_WEB, CLEO_TELEGRAM}),
        (SessionKind.NON_MAIN, None, {ANN_WEB, ANN_TELEGRAM, ANN_SLACK, CLEO_WEB, CLEO_TELEGRAM}),
    ],
)
def test_approvers_are_the_owner_in_main_and_all_owners_elsewhere(
    kind: SessionKind, owner: OwnerName | None, who: set[Principal]
) -> None:
    assert approvers(session(kind, owner), PEOPLE) == who


APPROVED = Verdict(refusal=None, state=WaitState.APPROVED)
DENIED = Verdict(refusal=None, state=WaitState.DENIED)
WITHDRAWN = Verdict(refusal=None, state=WaitState.DENIED, withdraw_siblings=True)
REFUSED = Verdict(refusal=PressResult.NOT_ALLOWED)


@pytest.mark.parametrize(
    ("who", "verb", "verdict"),
    [
        (ANN_TELEGRAM, Verb.ONCE, APPROVED),
        (ANN_TELEGRAM, Verb.DENY, DENIED),
        (ANN_TELEGRAM, Verb.DENY_REASON, WITHDRAWN),
        (BOB, Verb.ONCE, REFUSED),  # he asked: he may take it back, never allow it
        (BOB, Verb.DENY, DENIED),
        (BOB, Verb.DENY_REASON, WITHDRAWN),
        (MEMBER, Verb.ONCE, REFUSED),
        (MEMBER, Verb.DENY, REFUSED),
        (MEMBER, Verb.DENY_REASON, REFUSED),
    ],
)
def test_what_a_press_may_do(who: Principal, verb: Verb, verdict: Verdict) -> None:
    assert may_resolve(verb, who, BOB, frozenset([ANN_TELEGRAM])) == verdict


def test_with_nobody_allowed_nobody_approves() -> None:
    assert may_resolve(Verb.ONCE, ANN_TELEGRAM, ANN_TELEGRAM, frozenset()) == REFUSED


# --- where it is asked --------------------------------------------------------------------------


def reach(*direct: tuple[Principal, Conversation, datetime], page: datetime | None = None) -> Whereabouts:
    return Whereabouts(direct={who: (where, at) for who, where, at in direct}, page_seen_at=page)


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
        (SessionKind.NON_MAIN, GROUP, [reach(), reach()], [], False),
        (SessionKind.NON_MAIN, GROUP, [reach(page=EPOCH - 7 * DAY)], [], True),
        (SessionKind.NON_MAIN, GROUP, [reach(page=EPOCH - 7 * DAY - timedelta(seconds=1))], [], False),
    ],
)
def test_where_it_is_asked(
    kind: SessionKind, where: Conversation, reaches: list[Whereabouts], asked: list[Conversation], page: bool
) -> None:
    found = audience(session(kind), turn(where), reaches, EPOCH)

    assert (list(found.conversations), found.page) == (asked, page)
    assert found.anybody == bool(asked or page)


@pytest.mark.parametrize(("asked", "sizes"), [(1, [1]), (8, [8]), (9, [8, 1]), (17, [8, 8, 1])])
def test_a_card_has_eight_rows_at_most(asked: int, sizes: list[int]) -> None:
    waits = [WaitId(f"w{n}") for n in range(asked)]
    place = Audience(conversations=(CHAT,), page=False)
    slots = card_slots(waits, ["shell wants to run"] * asked, place, session(), turn())

    assert [len(slot.waits) for slot in slots] == sizes
    assert [w for slot in slots for w in slot.waits] == waits
    assert ROWS_A_CARD == 8


def test_elsewhere_each_approver_gets_the_cards_and_the_chat_a_note_without_the_command() -> None:
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


def test_an_approver_who_asked_in_a_direct_chat_gets_no_note_beside_the_card() -> None:
    place = Audience(conversations=(BOB_CHAT,), page=False)
    slots = card_slots([WAIT], ["t"], place, session(SessionKind.DM), turn(BOB_CHAT))

    assert [slot.kind for slot in slots] == [SlotKind.CARD]


def child(root: SessionKind, where: Conversation) -> Session:
    """A sub-session whose root's turn began there."""
    lineage = Lineage(
        parent=main_session(ANN),
        turn=TurnId("t0"),
        n=1,
        root=main_session(ANN),
        root_turn=TurnId("t0"),
        conversation=where,
        depth=1,
        mode=SpawnMode.RUN,
        active_s=60,
        tokens=0,
    )
    return replace(
        session(SessionKind.NON_MAIN), id=SessionId("child:t0.1"), title="count `it`", root_kind=root, lineage=lineage
    )


def test_below_a_main_session_it_is_asked_where_that_turn_began() -> None:
    below = child(SessionKind.MAIN, OTHER_CHAT)
    inside = turn(child_place(below.id))
    found = audience(below, inside, [reach((ANN_TELEGRAM, CHAT, EPOCH))], EPOCH)

    assert found.conversations == (OTHER_CHAT,)
    assert [slot.kind for slot in card_slots([WAIT], ["t"], found, below, inside)] == [SlotKind.CARD]


def test_below_a_group_the_approvers_are_asked_and_the_group_gets_the_note() -> None:
    below = child(SessionKind.NON_MAIN, GROUP)
    inside = turn(child_place(below.id))
    found = audience(below, inside, [reach((ANN_TELEGRAM, CHAT, EPOCH))], EPOCH)
    slots = card_slots([WAIT], ["t"], found, below, inside)

    assert [(slot.kind, slot.conversation) for slot in slots] == [(SlotKind.CARD, CHAT), (SlotKind.NOTE, GROUP)]


def test_a_card_names_the_sub_session_that_asks(asking: Approvals) -> None:
    kept = payload(child(SessionKind.MAIN, CHAT))

    assert payload(session()) == {}
    assert ("Sub-session", "count `it`") in asking.row(replace(wait(), payload=kept), "o1").facts
    evil = replace(wait(), payload={"sub_session": "\u202e\n# done"})
    assert ("Sub-session", "\\u{202E}⏎\n# done") in asking.row(evil, "o1").facts


# --- the class ----------------------------------------------------------------------------------


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def handles() -> Handles:
    return Handles(KEY)


@pytest.fixture
def asking(clock: FakeClock, handles: Handles) -> Approvals:
    return Approvals(PEOPLE, MemoryStore(clock), handles)


async def test_an_owner_who_never_wrote_cannot_be_asked_elsewhere_and_can_after_opening_the_page(
    clock: FakeClock, handles: Handles
) -> None:
    store = MemoryStore(clock)
    asking = Approvals(PEOPLE, store, handles)

    assert not (await asking.audience(session(SessionKind.DM), turn(BOB_CHAT), clock.now())).anybody
    await store.saw_page(CLEO)
    assert (await asking.audience(session(SessionKind.DM), turn(BOB_CHAT), clock.now())).page
    # Another owner's page is no place to ask about Ann's main session; her own chat is.
    main = await asking.audience(session(), turn(), clock.now())
    assert (main.conversations, main.page) == ((CHAT,), False)


async def test_elsewhere_every_owner_is_asked_in_the_own_last_direct_chat(clock: FakeClock, handles: Handles) -> None:
    store = MemoryStore(clock)
    for who, where, owner in [(ANN_TELEGRAM, CHAT, ANN), (CLEO_TELEGRAM, CLEO_CHAT, CLEO)]:
        message = inbound(who=who, where=where)
        await store.accept(route(owner=owner), message, TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
    asking = Approvals(PEOPLE, store, handles)

    found = await asking.audience(session(SessionKind.NON_MAIN), turn(GROUP), clock.now())
    assert set(found.conversations) == {CHAT, CLEO_CHAT}


def test_an_owner_is_who_the_configuration_names(asking: Approvals) -> None:
    assert [asking.is_owner(name) for name in (ANN, CLEO, OwnerName("gone"), OwnerName(""))] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("who", "kind", "verdict"),
    [
        (ANN_TELEGRAM, SessionKind.MAIN, WITHDRAWN),
        (CLEO_TELEGRAM, SessionKind.MAIN, REFUSED),
        (CLEO_TELEGRAM, SessionKind.DM, WITHDRAWN),
        (BOB, SessionKind.DM, WITHDRAWN),  # he asked
        (MEMBER, SessionKind.DM, REFUSED),
    ],
)
def test_a_reason_given_later_denies_when_its_author_may_deny_now(
    asking: Approvals, who: Principal, kind: SessionKind, verdict: Verdict
) -> None:
    asked = replace(wait(), approval=replace(approval(1), requester=BOB))

    assert asking.denial(asked, who, session(kind)) == verdict


def test_a_reason_for_what_is_no_approval_denies_nothing(asking: Approvals) -> None:
    timer = replace(wait(), kind=WaitKind.TIMER, approval=None)

    assert asking.denial(timer, ANN_TELEGRAM, session()) == Verdict(refusal=PressResult.NOT_VALID)


@pytest.mark.parametrize(("verb", "verdict"), [(Verb.ONCE, REFUSED), (Verb.DENY, DENIED)])
def test_who_asked_may_press_no_but_not_yes(asking: Approvals, handles: Handles, verb: Verb, verdict: Verdict) -> None:
    asked = replace(wait(), approval=replace(approval(1), requester=BOB))

    assert asking.verdict(handles.make(WAIT, "o1", verb), asked, ["o1"], BOB, session(SessionKind.DM)) == verdict


@pytest.mark.parametrize(
    ("who", "cards", "verb", "verdict"),
    [
        (ANN_TELEGRAM, ["o1"], Verb.ONCE, APPROVED),
        (ANN_TELEGRAM, ["o0", "o1"], Verb.ONCE, APPROVED),
        (ANN_SLACK, ["o1"], Verb.DENY, DENIED),
        (CLEO_TELEGRAM, ["o1"], Verb.ONCE, REFUSED),  # another owner, in Ann's main session
        (BOB, ["o1"], Verb.ONCE, REFUSED),
        (ANN_TELEGRAM, ["o2"], Verb.ONCE, Verdict(refusal=PressResult.NOT_VALID)),
        (ANN_TELEGRAM, [], Verb.ONCE, Verdict(refusal=PressResult.NOT_VALID)),
    ],
)
def test_a_press_is_judged_by_who_and_where(
    asking: Approvals, handles: Handles, who: Principal, cards: Iterable[str], verb: Verb, verdict: Verdict
) -> None:
    handle = handles.make(WAIT, "o1", verb)

    assert asking.verdict(handle, wait(), cards, who, session()) == verdict


def test_a_wait_that_is_no_approval_cannot_be_pressed_or_shown(asking: Approvals, handles: Handles) -> None:
    timer = replace(wait(), kind=WaitKind.TIMER, approval=None)
    handle = handles.make(WAIT, "o1", Verb.ONCE)

    verdict = asking.verdict(handle, timer, ["o1"], ANN_TELEGRAM, session())
    assert verdict.refusal is PressResult.NOT_VALID
    with pytest.raises(ValueError, match="not an approval"):
        asking.row(timer, "o1")


@pytest.mark.parametrize(
    ("verdict", "state", "can_ask", "reason", "late", "asks"),
    [
        (DENY_ALL, WaitState.OPEN, True, "", False, True),
        (DENY_ALL, WaitState.OPEN, True, "  ", False, True),
        (DENY_ALL, WaitState.OPEN, False, "", False, False),  # the platform's buttons carry a text: none was given
        (DENY_ALL, WaitState.OPEN, True, "no", False, False),
        (DENY_ALL, WaitState.OPEN, True, "", True, False),
        (DENY_ALL, WaitState.APPROVED, True, "", False, False),
        (DENY_ALL, WaitState.DENIED, True, "", False, False),
        (Verdict(refusal=None, state=WaitState.DENIED), WaitState.OPEN, True, "", False, False),
        (Verdict(refusal=None, state=WaitState.APPROVED), WaitState.OPEN, True, "", False, False),
        (Verdict(refusal=PressResult.NOT_ALLOWED), WaitState.OPEN, True, "", False, False),
        (Verdict(refusal=PressResult.NOT_VALID), WaitState.OPEN, True, "", False, False),
    ],
)
def test_a_reason_is_asked_for_by_who_may_deny_what_can_still_be_denied(
    verdict: Verdict, state: WaitState, can_ask: bool, reason: str, late: bool, asks: bool
) -> None:
    one = wait(state)
    pressed = replace(press(reason=reason), can_ask_reason=can_ask)
    now = one.expires_at if late else one.opened_at

    assert asks_reason(verdict, pressed, one, now) is asks


@pytest.mark.parametrize(
    ("platform_id", "where", "message", "shows"),
    [
        ("101", CHAT, "101", True),
        ("101,102", CHAT, "102", True),
        ("101,102", CHAT, "10", False),
        ("101,102", CHAT, "101,102", False),
        ("101", OTHER_CHAT, "101", False),
        ("", CHAT, "", False),
        ("101,", CHAT, "", False),
    ],
)
def test_a_card_is_shown_by_each_of_its_messages_in_its_own_chat(
    platform_id: str, where: Conversation, message: str, shows: bool
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
        platform_id=platform_id,
        state=SlotState.SENT,
        attempts=1,
        uncertain=False,
        due_at=EPOCH,
        created_at=EPOCH,
    )

    assert is_shown_by(slot, where, message) is shows


def test_every_outcome_of_a_press_has_words() -> None:
    assert set(PRESSED_TEXT) == set(PressResult)
    assert name_of(None, PEOPLE) == "Nobody"


def test_the_cards_of_a_place_are_those_shown_there_and_the_page_is_one() -> None:
    shown = [(SlotId("o1"), CHAT), (SlotId("o2"), OTHER_CHAT), (SlotId("o3"), CHAT)]

    assert cards_at(CHAT, shown) == ["o1", "o3"]
    assert cards_at(GROUP, shown) == []
    assert cards_at(ANN_PAGE, shown) == ["page:ann"] == [page_card(ANN)]
    assert page_principals(PEOPLE) == {ANN: ANN_WEB, CLEO: CLEO_WEB}
