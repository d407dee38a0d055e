"""Second question before a grant: when it is offered, who may press it, and how its presses are checked."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gateway.approvals import Approvals, ButtonTokens
from gateway.approvals.action import outcome_line
from gateway.domain.approvers import OWNERS_DECIDE, ApproverRules
from gateway.domain.grants import GRANT_LASTS, GrantKind, GrantOffer, GrantPlace, NewGrant
from gateway.domain.ids import Handle, Principal
from gateway.domain.slots import CardRow
from gateway.domain.waits import ALWAYS_ASKED, GRANTED, GRANTS, PressResult, PressVerdict, Verb, Wait, WaitState
from gateway.policy.routing import AllowedPeople
from gateway.store.memory import MemoryStore
from tests.support.clock import FakeClock
from tests.support.fakes import KEY, PEOPLE
from tests.support.makers import ANN_SLACK, ANN_TELEGRAM, BOB, EPOCH, approval
from tests.unit.gateway.approvals.rig import WAIT, session, wait

OFFER = GrantOffer(
    kind=GrantKind.ACTION,
    matches=("key",),
    places=(GrantPlace.CHAT, GrantPlace.SESSION),
    shown="shell git status",
)
ABOUT_A_GRANT = [Verb.ALWAYS, Verb.BACK, *GRANTS]
HANDLES = ButtonTokens(KEY)
NOT_VALID = PressVerdict(refusal=PressResult.NOT_VALID)
NOT_ALLOWED = PressVerdict(refusal=PressResult.NOT_ALLOWED)


def asking(rules: ApproverRules = OWNERS_DECIDE, people: AllowedPeople = PEOPLE) -> Approvals:
    return Approvals(people, MemoryStore(FakeClock()), HANDLES, lambda _: rules, timedelta(days=30))


def offered(offer: GrantOffer | None = OFFER, *, asks: bool = False) -> Wait:
    """An open approval; `asks`: its second question is open."""
    return replace(wait(), approval=replace(approval(1), always=offer), payload={ALWAYS_ASKED: True} if asks else {})


def labels(row: CardRow) -> list[str]:
    return [button.label for button in row.buttons]


def pressed(
    verb: Verb,
    one: Wait,
    *,
    who: Principal = ANN_TELEGRAM,
    card: str = "o1",
    at: str = "o1",
    by: Approvals | None = None,
) -> PressVerdict:
    """Return the verdict on a button of `card` that is pressed where `at` is shown."""
    return (by or asking()).verdict(HANDLES.make(WAIT, card, verb), one, [at], who, session())


# --- the card -------------------------------------------------------------------------------------


def test_always_stands_beside_once_where_it_is_offered() -> None:
    assert labels(asking().row(offered(), "o1")) == ["Once", "Always…", "Deny", "Deny with reason"]
    assert labels(asking().row(offered(None), "o1")) == ["Once", "Deny", "Deny with reason"]
    assert asking().row(offered(), "o1").question == ""


@pytest.mark.parametrize(
    "rules", [replace(OWNERS_DECIDE, quorum=2), replace(OWNERS_DECIDE, requester_may_approve=False)]
)
def test_nobody_grants_alone_what_needs_another_person(rules: ApproverRules) -> None:
    by = asking(rules)
    assert labels(by.row(offered(), "o1")) == ["Once", "Deny", "Deny with reason"]
    for verb in ABOUT_A_GRANT:
        assert pressed(verb, offered(asks=True), who=ANN_SLACK, by=by).refusal is not None


def test_the_question_shows_all_of_it_and_offers_its_places() -> None:
    row = asking().row(offered(asks=True), "o1")
    assert row.question == (
        "Always allow “shell git status” for 30 days? With these arguments, this folder and this sandbox, nothing else."
    )
    assert labels(row) == ["Just once", "Back", "In this chat", "In this session"]
    assert all(HANDLES.verb(b.handle, WAIT, ["o1"]) is b.verb for b in row.buttons)
    everywhere = replace(OFFER, places=tuple(GrantPlace))
    assert labels(asking().row(offered(everywhere, asks=True), "o1"))[-1] == "For this person"


def test_a_double_tap_on_always_meets_back() -> None:
    first, second = (asking().row(offered(asks=asks), "o1").buttons for asks in (False, True))
    assert (first[1].verb, second[1].verb) == (Verb.ALWAYS, Verb.BACK)


@pytest.mark.parametrize(
    ("offer", "question"),
    [
        (replace(OFFER, shown="shell " + "x" * 200), "Always allow exactly the call above for 30 days? "),
        (
            GrantOffer(
                kind=GrantKind.SUBJECTS,
                matches=("path:a", "path:b", "host:c", "path:d"),
                places=(GrantPlace.CHAT,),
                shown="save that may change a, b, c, d",
            ),
            "Always allow “save that may change a, b, c, d” for 30 days, whatever else the call says? Examples: a, b",
        ),
        (
            GrantOffer(kind=GrantKind.SCOPE, matches=("x.org",), places=(GrantPlace.CHAT,), shown="browser with x.org"),
            "Always allow “browser with x.org” for 30 days? ",
        ),
        (
            GrantOffer(
                kind=GrantKind.SCOPE, matches=("x.org",), places=(GrantPlace.CHAT,), shown="browser with " + "x" * 200
            ),
            "Always allow the host above for 30 days? ",
        ),
        (replace(OFFER, shown="shell \u202e"), "Always allow “shell \\u{202E}” for 30 days? "),
    ],
)
def test_a_question_is_short_and_names_what_it_matches(offer: GrantOffer, question: str) -> None:
    found = asking().row(offered(offer, asks=True), "o1").question
    assert found.startswith(question)
    assert len(found) <= 300


@pytest.mark.parametrize("state", [state for state in WaitState if state is not WaitState.OPEN])
def test_a_decided_row_asks_nothing(state: WaitState) -> None:
    row = asking().row(replace(offered(asks=True), state=state), "o1")
    assert (row.buttons, row.question) == ((), "")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("chat", "ann allowed always in this chat, 00:00 UTC"),
        ("session", "ann allowed always in this session, 00:00 UTC"),
        ("person", "ann allowed always for the person who asked, 00:00 UTC"),
        ("elsewhere", "ann allowed once, 00:00 UTC"),
    ],
)
def test_the_outcome_says_where_it_was_granted(place: str, words: str) -> None:
    decided = replace(wait(WaitState.APPROVED, who=ANN_TELEGRAM), payload={GRANTED: place})
    assert outcome_line(decided, PEOPLE) == words


# --- the press ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "verdict"),
    [
        (Verb.ALWAYS, PressVerdict(refusal=None, question=True)),
        (Verb.BACK, PressVerdict(refusal=None, question=False)),
        (
            Verb.GRANT_CHAT,
            PressVerdict(
                refusal=None, state=WaitState.APPROVED, grant=NewGrant(place=GrantPlace.CHAT, lasts=GRANT_LASTS)
            ),
        ),
        (
            Verb.GRANT_SESSION,
            PressVerdict(
                refusal=None, state=WaitState.APPROVED, grant=NewGrant(place=GrantPlace.SESSION, lasts=GRANT_LASTS)
            ),
        ),
        (Verb.ONCE, PressVerdict(refusal=None, state=WaitState.APPROVED)),
        (Verb.DENY, PressVerdict(refusal=None, state=WaitState.DENIED)),
    ],
)
def test_an_approver_may_ask_confirm_and_go_back(verb: Verb, verdict: PressVerdict) -> None:
    assert pressed(verb, offered(asks=True)) == verdict


@pytest.mark.parametrize("verb", ABOUT_A_GRANT)
def test_presses_about_a_grant_are_checked_like_all_others(verb: Verb) -> None:
    one = offered(asks=True)
    assert pressed(verb, one, who=BOB) == NOT_ALLOWED
    assert pressed(verb, one, card="o2") == NOT_VALID
    assert pressed(verb, one, card="page:ann") == NOT_VALID
    assert pressed(verb, offered(None, asks=True)) == NOT_VALID
    forged = Handle(HANDLES.make(WAIT, "o1", verb)[:-1] + "_")
    assert asking().verdict(forged, one, ["o1"], ANN_TELEGRAM, session()).refusal is PressResult.NOT_VALID


@pytest.mark.parametrize("verb", ABOUT_A_GRANT)
def test_a_requester_who_is_no_approver_grants_nothing(verb: Verb) -> None:
    asked_by_bob = offered(asks=True)
    assert asked_by_bob.approval is not None
    one = replace(asked_by_bob, approval=replace(asked_by_bob.approval, requester=BOB))
    assert pressed(verb, one, who=BOB) == NOT_ALLOWED
    assert pressed(Verb.DENY, one, who=BOB).state is WaitState.DENIED


@pytest.mark.parametrize("verb", ABOUT_A_GRANT)
def test_an_approver_removed_after_the_card_grants_nothing(verb: Verb) -> None:
    nobody = AllowedPeople(owners={})
    assert pressed(verb, offered(asks=True), by=asking(people=nobody)) == NOT_ALLOWED


def test_each_verb_has_its_own_handle() -> None:
    assert len({HANDLES.make(WAIT, "o1", verb) for verb in Verb}) == len(Verb)
    assert all(len(HANDLES.make(WAIT, "o1", verb).encode()) <= 64 for verb in Verb)
    assert EPOCH < EPOCH + GRANT_LASTS
