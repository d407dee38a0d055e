"""Audience of a request and verdict on a press, by the current configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from gateway.approvals import Approvals, ButtonTokens, name_of, payload
from gateway.domain.approvers import NOBODY_DECIDES, ApproverRules
from gateway.domain.ids import OwnerName, Principal
from gateway.domain.routes import WhileRunning
from gateway.domain.sessions import SessionKind
from gateway.domain.turns import TurnKind
from gateway.domain.waits import PRESSED_TEXT, PressResult, PressVerdict, Verb, WaitKind
from gateway.store.memory import MemoryStore
from tests.support.clock import FakeClock
from tests.support.fakes import BOB_CHAT, CLEO, CLEO_CHAT, CLEO_TELEGRAM, GROUP, KEY, PEOPLE
from tests.support.makers import ANN, ANN_SLACK, ANN_TELEGRAM, BOB, CHAT, approval, inbound, route
from tests.unit.gateway.approvals.rig import APPROVED, DENIED, REFUSED, WAIT, WITHDRAWN, child, session, turn, wait

MEMBER = Principal("telegram:9009")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def handles() -> ButtonTokens:
    return ButtonTokens(KEY)


@pytest.fixture
def asking(clock: FakeClock, handles: ButtonTokens) -> Approvals:
    return Approvals(PEOPLE, MemoryStore(clock), handles)


async def test_owner_without_a_chat_is_asked_after_opening_the_page(clock: FakeClock, handles: ButtonTokens) -> None:
    store = MemoryStore(clock)
    asking = Approvals(PEOPLE, store, handles)

    assert not (await asking.audience(session(SessionKind.DM), turn(BOB_CHAT), "shell", clock.now())).anybody
    await store.saw_page(CLEO)
    assert (await asking.audience(session(SessionKind.DM), turn(BOB_CHAT), "shell", clock.now())).page
    # Another owner's page is no place to ask about Ann's main session; her own chat is.
    main = await asking.audience(session(), turn(), "shell", clock.now())
    assert (main.conversations, main.page) == ((CHAT,), False)


async def test_approvers_elsewhere_are_asked_in_their_last_direct_chat(clock: FakeClock, handles: ButtonTokens) -> None:
    store = MemoryStore(clock)
    for who, where, owner in [(ANN_TELEGRAM, CHAT, ANN), (CLEO_TELEGRAM, CLEO_CHAT, CLEO)]:
        message = inbound(who=who, where=where)
        await store.accept(route(owner=owner), message, TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
    asking = Approvals(PEOPLE, store, handles)

    found = await asking.audience(session(SessionKind.NON_MAIN), turn(GROUP), "shell", clock.now())
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
def test_later_reason_denies_when_its_author_may_deny_now(
    asking: Approvals, who: Principal, kind: SessionKind, verdict: PressVerdict
) -> None:
    asked = replace(wait(), approval=replace(approval(1), requester=BOB))

    assert asking.denial(asked, who, session(kind)) == verdict


def test_a_reason_for_what_is_no_approval_denies_nothing(asking: Approvals) -> None:
    timer = replace(wait(), kind=WaitKind.TIMER, approval=None)

    assert asking.denial(timer, ANN_TELEGRAM, session()) == PressVerdict(refusal=PressResult.NOT_VALID)


@pytest.mark.parametrize(("verb", "verdict"), [(Verb.ONCE, REFUSED), (Verb.DENY, DENIED)])
def test_requester_may_deny_but_not_allow(
    asking: Approvals, handles: ButtonTokens, verb: Verb, verdict: PressVerdict
) -> None:
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
        (ANN_TELEGRAM, ["o2"], Verb.ONCE, PressVerdict(refusal=PressResult.NOT_VALID)),
        (ANN_TELEGRAM, [], Verb.ONCE, PressVerdict(refusal=PressResult.NOT_VALID)),
    ],
)
def test_a_press_is_judged_by_who_and_where(
    asking: Approvals, handles: ButtonTokens, who: Principal, cards: Iterable[str], verb: Verb, verdict: PressVerdict
) -> None:
    handle = handles.make(WAIT, "o1", verb)

    assert asking.verdict(handle, wait(), cards, who, session()) == verdict


def test_a_wait_that_is_no_approval_cannot_be_pressed_or_shown(asking: Approvals, handles: ButtonTokens) -> None:
    timer = replace(wait(), kind=WaitKind.TIMER, approval=None)
    handle = handles.make(WAIT, "o1", Verb.ONCE)

    verdict = asking.verdict(handle, timer, ["o1"], ANN_TELEGRAM, session())
    assert verdict.refusal is PressResult.NOT_VALID
    with pytest.raises(ValueError, match="not an approval"):
        asking.row(timer, "o1")


def test_every_outcome_of_a_press_has_words() -> None:
    assert set(PRESSED_TEXT) == set(PressResult)
    assert name_of(None, PEOPLE) == "Nobody"


def test_a_card_names_the_sub_session_that_asks(asking: Approvals) -> None:
    kept = payload(child(SessionKind.MAIN, CHAT))

    assert payload(session()) == {}
    assert ("Sub-session", "count `it`") in asking.row(replace(wait(), payload=kept), "o1").facts
    evil = replace(wait(), payload={"sub_session": "\u202e\n# done"})
    assert ("Sub-session", "\\u{202E}⏎\n# done") in asking.row(evil, "o1").facts
    long = replace(wait(), payload={"sub_session": "look … in the cellar and…"})
    assert ("Sub-session", "look \\u{2026} in the cellar and…") in asking.row(long, "o1").facts


@pytest.mark.parametrize(("approvers", "asked"), [(None, "An owner"), (("ann", BOB), "An approver")])
async def test_audience_says_who_is_asked(
    clock: FakeClock, handles: ButtonTokens, approvers: tuple[str, ...] | None, asked: str
) -> None:
    rules = ApproverRules(approvers=approvers)
    asking = Approvals(PEOPLE, MemoryStore(clock), handles, lambda _: rules)
    assert (await asking.audience(session(), turn(), "shell", clock.now())).asked == asked


@pytest.mark.parametrize(
    ("rules", "of", "may"),
    [
        (ApproverRules(approvers=("ann",), escalate_to=()), SessionKind.NON_MAIN, {ANN}),
        (ApproverRules(approvers=("ann",)), SessionKind.NON_MAIN, {ANN, CLEO}),
        (ApproverRules(approvers=("ann",), requester_may_approve=False), SessionKind.NON_MAIN, {CLEO}),
        (ApproverRules(), SessionKind.MAIN, {ANN}),
    ],
)
def test_further_approvers_are_those_of_the_tool(
    handles: ButtonTokens, clock: FakeClock, rules: ApproverRules, of: SessionKind, may: set[OwnerName]
) -> None:
    """The request was made for Ann."""
    asking = Approvals(PEOPLE, MemoryStore(clock), handles, lambda tool: rules if tool == "shell" else NOBODY_DECIDES)
    found = asking.approvers_later(wait(), session(of))

    assert {owner for owner in PEOPLE.owners if {*PEOPLE.owners[owner]} & found} == may
    assert asking.approvers_later(replace(wait(), approval=None), session(of)) == frozenset()
