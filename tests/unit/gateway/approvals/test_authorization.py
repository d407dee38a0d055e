"""Authorization of presses: kind of session, approvers of tool and chat, quorum, requester."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.approvals.authorization import asks_reason, deciders, may_resolve
from gateway.domain.approvers import NOBODY_DECIDES, ApproverRules
from gateway.domain.ids import OwnerName, Person, Principal, SessionId
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.waits import PressResult, PressVerdict, Verb, WaitState
from gateway.policy.routing import AllowedPeople
from tests.support.fakes import CLEO, CLEO_TELEGRAM, PEOPLE
from tests.support.makers import ANN, ANN_SLACK, ANN_TELEGRAM, BOB, press
from tests.unit.gateway.approvals.rig import APPROVED, DENIED, REFUSED, WITHDRAWN, child, session, wait

ANN_WEB, CLEO_WEB = Principal("web:ann"), Principal("web:cleo")
MEMBER = Principal("telegram:9009")
DENY_ALL = PressVerdict(refusal=None, state=WaitState.DENIED, withdraw_siblings=True)
MAIN, DM, NON_MAIN = SessionKind.MAIN, SessionKind.DM, SessionKind.NON_MAIN
EVERYBODY = (ANN_WEB, ANN_TELEGRAM, ANN_SLACK, CLEO_WEB, CLEO_TELEGRAM, BOB, MEMBER)
ANNS, CLEOS = {ANN_WEB, ANN_TELEGRAM, ANN_SLACK}, {CLEO_WEB, CLEO_TELEGRAM}
GROUP_SESSION = SessionId("chat:telegram/default/-1003")
THREAD_SESSION = SessionId("chat:telegram/default/-1003/7")
SLACK_SESSION = SessionId("chat:slack/office/C0CC")
CHATS = {"telegram:-1003": ("telegram:2002",), "slack:T0AA/C0CC": ("cleo",)}


def rules(*approvers: str, quorum: int = 1, own: bool = True, escalate: tuple[str, ...] | None = None) -> ApproverRules:
    named = approvers or None
    return ApproverRules(approvers=named, quorum=quorum, requester_may_approve=own, escalate_to=escalate)


def people(chats: dict[str, tuple[str, ...]] | None = None) -> AllowedPeople:
    return replace(PEOPLE, approvers=chats or {})


def once(where: Session, given: ApproverRules, who: Principal, requester: Principal, known: AllowedPeople) -> bool:
    """Return whether a press of "once" is not refused."""
    found = deciders(where, known, given, requester)
    return may_resolve(Verb.ONCE, who, requester, found).refusal is None


@pytest.mark.parametrize(
    ("kind", "owner", "given", "chats", "may"),
    [
        # Nothing configured: a main session's owner, elsewhere every owner.
        (MAIN, ANN, rules(), {}, ANNS),
        (MAIN, CLEO, rules(), {}, CLEOS),
        (MAIN, OwnerName("gone"), rules(), {}, set[Principal]()),
        (DM, None, rules(), {}, ANNS | CLEOS),
        (NON_MAIN, None, rules(), {}, ANNS | CLEOS),
        # The tool names them: in every kind of session, and nobody else.
        (MAIN, ANN, rules("cleo"), {}, CLEOS),
        (MAIN, ANN, rules("telegram:2002"), {}, {BOB}),
        (DM, None, rules("ann"), {}, ANNS),
        (NON_MAIN, None, rules("ann", "telegram:2002"), {}, ANNS | {BOB}),
        (NON_MAIN, None, rules("telegram:1001"), {}, {ANN_TELEGRAM}),  # one account, not the owner
        (NON_MAIN, None, rules("gone"), {}, set[Principal]()),
        (MAIN, ANN, NOBODY_DECIDES, {}, set[Principal]()),
        (NON_MAIN, None, NOBODY_DECIDES, {}, set[Principal]()),
        # The chat names them; a tool's own list comes first, and a direct chat is no group.
        (NON_MAIN, None, rules(), CHATS, {BOB}),
        (NON_MAIN, None, rules("cleo"), CHATS, CLEOS),
        (DM, None, rules(), CHATS, ANNS | CLEOS),
        (MAIN, ANN, rules(), CHATS, ANNS),
        # Somebody else is needed: in a main session all owners decide, unless the session's owner is gone.
        (MAIN, ANN, rules(quorum=2), {}, ANNS | CLEOS),
        (MAIN, OwnerName("gone"), rules(quorum=2), {}, set[Principal]()),
        (MAIN, ANN, rules(own=False), {}, CLEOS),
        # The requester may not allow, by any account of theirs.
        (NON_MAIN, None, rules(own=False), {}, CLEOS),
        (NON_MAIN, None, rules("ann", "telegram:2002", own=False), {}, {BOB}),
        (NON_MAIN, None, rules("telegram:1001", own=False), {}, set[Principal]()),
    ],
)
def test_people_who_may_allow(
    kind: SessionKind, owner: OwnerName | None, given: ApproverRules, chats: dict[str, tuple[str, ...]], may: set[str]
) -> None:
    """Ann asks. Whoever may not allow is refused, by every account that we know."""
    where = replace(session(kind, owner), id=GROUP_SESSION if kind is NON_MAIN else session(kind).id)
    allowed = {who for who in EVERYBODY if once(where, given, who, ANN_TELEGRAM, people(chats))}

    assert allowed == may


@pytest.mark.parametrize(
    ("id", "requester", "may"),
    [
        (GROUP_SESSION, ANN_TELEGRAM, {BOB}),
        (THREAD_SESSION, ANN_TELEGRAM, {BOB}),  # threads are of their chat
        (SLACK_SESSION, Principal("slack:T0AA/U0ZZ"), CLEOS),
        (SLACK_SESSION, Principal("slack:T0BB/U0ZZ"), ANNS | CLEOS),  # another workspace's person: the owners decide
        (SessionId("chat:telegram/default/-10033"), ANN_TELEGRAM, ANNS | CLEOS),
        (SessionId("chat:telegram"), ANN_TELEGRAM, ANNS | CLEOS),
        (SessionId("dm:telegram/default/-1003"), ANN_TELEGRAM, ANNS | CLEOS),
    ],
)
def test_a_chat_is_found_by_its_name(id: SessionId, requester: Principal, may: set[Principal]) -> None:
    where = replace(session(NON_MAIN), id=id)
    allowed = {who for who in EVERYBODY if once(where, rules(), who, requester, people(CHATS))}

    assert allowed == may


def test_a_child_is_decided_about_as_its_root() -> None:
    below = child(NON_MAIN, press().conversation)
    assert below.lineage is not None
    below = replace(below, lineage=replace(below.lineage, root=GROUP_SESSION))

    assert {who for who in EVERYBODY if once(below, rules(), who, MEMBER, people(CHATS))} == {BOB}


@pytest.mark.parametrize(
    ("kind", "given", "before", "after"),
    [
        (NON_MAIN, rules("ann"), ANNS, ANNS | CLEOS),  # by default the other owners
        (NON_MAIN, rules("ann", escalate=()), ANNS, ANNS),
        (NON_MAIN, rules("ann", escalate=("telegram:2002",)), ANNS, ANNS | {BOB}),
        (MAIN, rules(), ANNS, ANNS),  # nobody else's, whatever happens
        (MAIN, rules(escalate=("cleo",)), ANNS, ANNS | CLEOS),
        (MAIN, rules("ann"), ANNS, ANNS | CLEOS),
        (NON_MAIN, NOBODY_DECIDES, set[Principal](), set[Principal]()),
    ],
)
def test_further_approvers_decide_after_they_were_asked(
    kind: SessionKind, given: ApproverRules, before: set[Principal], after: set[Principal]
) -> None:
    first = deciders(session(kind), PEOPLE, given, MEMBER)
    later = deciders(session(kind), PEOPLE, given, MEMBER, escalated=True)

    assert (set(first.denying), set(later.denying)) == (before, after)


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
def test_verdict_of_a_press(who: Principal, verb: Verb, verdict: PressVerdict) -> None:
    assert may_resolve(verb, who, BOB, deciders(session(DM), PEOPLE, rules("telegram:1001"), BOB)) == verdict


@pytest.mark.parametrize("who", [ANN_TELEGRAM, ANN_SLACK])
def test_a_requester_who_may_not_allow_may_deny(who: Principal) -> None:
    found = deciders(session(NON_MAIN), PEOPLE, rules("ann", own=False), ANN_TELEGRAM)

    assert may_resolve(Verb.DENY, who, ANN_TELEGRAM, found) == DENIED
    assert may_resolve(Verb.ONCE, who, ANN_TELEGRAM, found) == REFUSED


def test_a_vote_names_the_person_and_whose_votes_count() -> None:
    found = deciders(session(NON_MAIN), PEOPLE, rules("ann", "cleo", quorum=2), BOB)
    verdict = may_resolve(Verb.ONCE, ANN_SLACK, BOB, found)

    assert (verdict.refusal, verdict.state, verdict.quorum) == (None, WaitState.APPROVED, 2)
    assert (verdict.person, verdict.among) == (Person("ann"), {Person("ann"), Person("cleo")})


@pytest.mark.parametrize(("quorum", "own"), [(1, True), (1, False), (2, True), (2, False)])
def test_verdict_says_whether_another_must_allow(quorum: int, own: bool) -> None:
    found = deciders(session(NON_MAIN), PEOPLE, rules("ann", "cleo", quorum=quorum, own=own), BOB)
    assert (found.by_another, found.quorum) == (not own, quorum)
    assert may_resolve(Verb.ONCE, ANN_SLACK, BOB, found).by_another is not own
    assert not may_resolve(Verb.DENY, ANN_SLACK, BOB, found).by_another


@pytest.mark.parametrize(
    ("given", "requester", "enough"),
    [
        (rules(), BOB, True),
        (rules(quorum=2), BOB, True),
        (rules(quorum=3), BOB, False),
        (rules("ann", "telegram:1001", quorum=2), BOB, False),  # two names of one person
        (rules("ann", "telegram:2002", quorum=2), MEMBER, True),
        (rules("ann", "telegram:2002", quorum=2, own=False), BOB, False),
        (rules("ann", own=False), ANN_TELEGRAM, False),
    ],
)
def test_a_quorum_needs_as_many_persons(given: ApproverRules, requester: Principal, enough: bool) -> None:
    assert deciders(session(NON_MAIN), PEOPLE, given, requester).enough is enough


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
def test_reason_is_asked_only_from_people_who_may_still_deny(
    verdict: PressVerdict, state: WaitState, can_ask: bool, reason: str, late: bool, asks: bool
) -> None:
    one = wait(state)
    pressed = replace(press(reason=reason), can_ask_reason=can_ask)
    now = one.expires_at if late else one.opened_at

    assert asks_reason(verdict, pressed, one, now) is asks
