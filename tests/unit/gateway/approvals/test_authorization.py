"""Authorization of presses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.approvals.authorization import approvers, approving_owners, asks_reason, may_resolve
from gateway.domain.ids import OwnerName, Principal
from gateway.domain.sessions import SessionKind
from gateway.domain.waits import PressResult, PressVerdict, Verb, WaitState
from tests.support.fakes import CLEO, CLEO_TELEGRAM, PEOPLE
from tests.support.makers import ANN, ANN_SLACK, ANN_TELEGRAM, BOB, press
from tests.unit.gateway.approvals.rig import APPROVED, DENIED, REFUSED, WITHDRAWN, session, wait

ANN_WEB, CLEO_WEB = Principal("web:ann"), Principal("web:cleo")
MEMBER = Principal("telegram:9009")
DENY_ALL = PressVerdict(refusal=None, state=WaitState.DENIED, withdraw_siblings=True)


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


def test_whoever_decides_is_asked_by_name() -> None:
    assert approving_owners(session(SessionKind.MAIN, CLEO), PEOPLE) == (CLEO,)
    assert approving_owners(session(SessionKind.MAIN, OwnerName("gone")), PEOPLE) == ()
    assert approving_owners(session(SessionKind.DM), PEOPLE) == (ANN, CLEO)


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
def test_what_a_press_may_do(who: Principal, verb: Verb, verdict: PressVerdict) -> None:
    assert may_resolve(verb, who, BOB, frozenset([ANN_TELEGRAM])) == verdict


def test_with_nobody_allowed_nobody_approves() -> None:
    assert may_resolve(Verb.ONCE, ANN_TELEGRAM, ANN_TELEGRAM, frozenset()) == REFUSED


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
        (PressVerdict(refusal=None, state=WaitState.DENIED), WaitState.OPEN, True, "", False, False),
        (PressVerdict(refusal=None, state=WaitState.APPROVED), WaitState.OPEN, True, "", False, False),
        (PressVerdict(refusal=PressResult.NOT_ALLOWED), WaitState.OPEN, True, "", False, False),
        (PressVerdict(refusal=PressResult.NOT_VALID), WaitState.OPEN, True, "", False, False),
    ],
)
def test_a_reason_is_asked_for_by_who_may_deny_what_can_still_be_denied(
    verdict: PressVerdict, state: WaitState, can_ask: bool, reason: str, late: bool, asks: bool
) -> None:
    one = wait(state)
    pressed = replace(press(reason=reason), can_ask_reason=can_ask)
    now = one.expires_at if late else one.opened_at

    assert asks_reason(verdict, pressed, one, now) is asks
