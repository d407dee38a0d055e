"""Text of an approval on its card: the row while it is open, the outcome afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.approvals import Approvals, ButtonTokens, title
from gateway.approvals.action import outcome_line
from gateway.domain.approvers import OWNERS_DECIDE, ApproverRules
from gateway.domain.ids import Person, Principal, SessionId
from gateway.domain.tools import NetworkMode, Risk, SandboxMode
from gateway.domain.waits import VOTES, Verb, Vote, WaitState
from gateway.store.memory import MemoryStore
from tests.support.clock import FakeClock
from tests.support.fakes import CLEO_TELEGRAM, KEY, PEOPLE
from tests.support.makers import (
    ANN_SLACK,
    ANN_TELEGRAM,
    BOB,
    EPOCH,
    approval,
)
from tests.unit.gateway.approvals.rig import WAIT, wait


@pytest.fixture
def handles() -> ButtonTokens:
    return ButtonTokens(KEY)


@pytest.fixture
def asking(handles: ButtonTokens) -> Approvals:
    return Approvals(PEOPLE, MemoryStore(FakeClock()), handles)


def test_a_row_has_buttons_while_it_is_open_and_an_outcome_after(asking: Approvals, handles: ButtonTokens) -> None:
    row = asking.row(wait(), "o1")

    assert row.wait == wait()
    assert [button.verb for button in row.buttons] == [Verb.ONCE, Verb.DENY, Verb.DENY_REASON]
    assert [button.label for button in row.buttons] == ["Once", "Deny", "Deny with reason"]
    assert all(handles.verb(b.handle, WAIT, ["o1"]) is b.verb for b in row.buttons)
    assert row.outcome == ""
    for state in WaitState:
        if state is not WaitState.OPEN:
            assert asking.row(wait(state), "o1").buttons == ()
    assert asking.row(wait(WaitState.DENIED, who=ANN_SLACK), "o1").outcome == "ann denied, 00:00 UTC"


def test_card_lists_its_facts_in_order(asking: Approvals) -> None:
    row = asking.row(wait(), "o1")

    assert row.title == "shell wants to run"
    assert row.facts == (
        ("Risk", "execute"),
        ("Folder", "/w"),
        ("Sandbox", "basic"),
        ("Asked by", "ann"),
        ("Session", "main:ann"),
        ("Answer by", "2026-01-01 01:00 UTC"),
        ("Check", "sha-1"),
    )


def test_a_card_names_the_node_that_has_the_files(asking: Approvals) -> None:
    one = wait()
    assert one.approval is not None
    row = asking.row(replace(one, approval=replace(one.approval, node="node-1")), "o1")
    assert row.facts[1:3] == (("Node", "node-1"), ("Folder", "/w"))


@pytest.mark.parametrize(
    ("sandbox", "words"),
    [
        (SandboxMode.BASIC, "basic"),
        (SandboxMode.FULL, "full: secret files are hidden"),
        (SandboxMode.OFF, "none: it runs on the host"),
        (None, "none needed"),
    ],
)
def test_a_card_says_what_contains_the_action(asking: Approvals, sandbox: SandboxMode | None, words: str) -> None:
    request = approval(1)
    request = replace(request, action=replace(request.action, sandbox=sandbox))

    assert ("Sandbox", words) in asking.row(replace(wait(), approval=request), "o1").facts


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (NetworkMode.NONE, [("Network", "none")]),
        (NetworkMode.PUBLIC, [("Network", "public hosts only")]),
        (NetworkMode.HOST, [("Network", "the host's, with private networks")]),
        (None, []),
    ],
)
def test_a_card_says_what_the_action_reaches(
    asking: Approvals, network: NetworkMode | None, words: list[tuple[str, str]]
) -> None:
    request = approval(1)
    request = replace(request, action=replace(request.action, network=network, read_only=True))
    facts = asking.row(replace(wait(), approval=request), "o1").facts

    assert [fact for fact in facts if fact[0] == "Network"] == words
    assert ("Sandbox", "basic; it cannot write here") in facts


def test_a_card_shows_the_first_eight_digits_of_what_it_binds(asking: Approvals) -> None:
    request = replace(approval(1), action_sha="0123456789abcdef" * 4)

    assert ("Check", "01234567") in asking.row(replace(wait(), approval=request), "o1").facts


def test_facts_are_escaped_like_the_command(asking: Approvals) -> None:
    request = approval(1)
    request = replace(request, requester=Principal("x:\u202eevil"), action=replace(request.action, cwd="/w\r/x"))
    facts = dict(asking.row(replace(wait(), approval=request, session=SessionId("chat:\u200b")), "o1").facts)

    assert facts["Asked by"] == r"x:\u{202E}evil"
    assert facts["Folder"] == r"/w\u{D}/x"
    assert facts["Session"] == r"chat:\u{200B}"


@pytest.mark.parametrize(
    ("state", "who", "reason", "line"),
    [
        (WaitState.OPEN, None, "", ""),
        (WaitState.APPROVED, ANN_TELEGRAM, "", "ann allowed once, 00:00 UTC"),
        (WaitState.CONSUMED, Principal("web:cleo"), "", "cleo allowed once, 00:00 UTC"),
        (WaitState.DENIED, BOB, "", "telegram:2002 denied, 00:00 UTC"),
        (WaitState.DENIED, ANN_SLACK, "not today", "ann denied, 00:00 UTC: not today"),
        (WaitState.DENIED, None, "", "Nobody denied"),
        (WaitState.EXPIRED, None, "", "Expired; nothing was run"),
        (WaitState.CANCELLED, None, "", "Withdrawn; nothing was run"),
        (WaitState.SUPERSEDED, None, "", "Expired while Dragoman was down; it is asked again"),
        (WaitState.ANSWERED, None, "", ""),
    ],
)
def test_the_outcome_is_reported_in_one_line(state: WaitState, who: Principal | None, reason: str, line: str) -> None:
    assert outcome_line(wait(state, who=who, reason=reason), PEOPLE) == line


VOTES_OF = {
    0: [],
    1: [Vote(person=Person("cleo"), principal=CLEO_TELEGRAM, at=EPOCH)],
    2: [
        Vote(person=Person("cleo"), principal=CLEO_TELEGRAM, at=EPOCH),
        Vote(person=Person("x:\u202e"), principal=Principal("x:\u202e"), at=EPOCH),
    ],
}


@pytest.mark.parametrize(
    ("quorum", "votes", "state", "said"),
    [
        (1, 0, WaitState.OPEN, None),
        (2, 0, WaitState.OPEN, "0 of 2"),
        (2, 1, WaitState.OPEN, "1 of 2: cleo"),
        (3, 2, WaitState.OPEN, "2 of 3: cleo, x:\\u{202E}"),
        (2, 1, WaitState.APPROVED, None),
    ],
)
def test_card_says_who_allowed_so_far(
    handles: ButtonTokens, quorum: int, votes: int, state: WaitState, said: str | None
) -> None:
    def rules_of(tool: str) -> ApproverRules:
        assert tool == "shell"
        return replace(OWNERS_DECIDE, quorum=quorum)

    asking = Approvals(PEOPLE, MemoryStore(FakeClock()), handles, rules_of)
    payload = {VOTES: [vote.as_payload() for vote in VOTES_OF[votes]]}
    facts = dict(asking.row(replace(wait(state), payload=payload), "o1").facts)
    assert facts.get("Allowed by") == said


def test_outcome_names_all_who_allowed() -> None:
    votes = [*VOTES_OF[1], Vote(person=Person("ann"), principal=ANN_SLACK, at=EPOCH)]
    found = replace(wait(WaitState.APPROVED, who=ANN_SLACK), payload={VOTES: [vote.as_payload() for vote in votes]})
    assert outcome_line(found, PEOPLE) == "cleo and ann allowed once, 00:00 UTC"


def test_a_card_says_what_an_approval_covers_beyond_this_call(asking: Approvals) -> None:
    scoped = replace(wait(), approval=replace(approval(1), scope="example.org\u202e:8080"))
    row = asking.row(scoped, "o1")

    assert row.facts[1] == ("Covers", r"example.org\u{202E}:8080, until /new")
    assert [button.label for button in row.buttons] == ["Allow", "Deny", "Deny with reason"]
    assert [button.verb for button in row.buttons] == [button.verb for button in asking.row(wait(), "o1").buttons]
    assert [button.handle for button in row.buttons] == [button.handle for button in asking.row(wait(), "o1").buttons]


@pytest.mark.parametrize("state", [WaitState.APPROVED, WaitState.CONSUMED])
def test_outcome_of_an_allowed_scope_names_the_session(state: WaitState) -> None:
    scoped = replace(wait(state, who=ANN_TELEGRAM), approval=replace(approval(1), scope="example.org"))

    assert outcome_line(scoped, PEOPLE) == "ann allowed for this session, 00:00 UTC"


@pytest.mark.parametrize(
    ("risk", "words"),
    [
        (Risk.NONE, "shell wants to act"),
        (Risk.READ, "shell wants to read"),
        (Risk.WRITE, "shell wants to change something"),
        (Risk.EXECUTE, "shell wants to run"),
        (Risk.NETWORK, "shell wants to use the network"),
    ],
)
def test_a_card_says_what_the_tool_wants(risk: Risk, words: str) -> None:
    assert title(replace(approval(1), risk=risk)) == words


@pytest.mark.parametrize("state", WaitState)
def test_a_decided_card_wants_nothing_any_more(asking: Approvals, state: WaitState) -> None:
    one = wait(state, who=ANN_TELEGRAM)
    assert one.approval is not None
    row = asking.row(replace(one, approval=replace(one.approval, summary="the disk")), "o1")
    assert row.heading == ("shell wants to run: the disk" if state is WaitState.OPEN else "shell: the disk")
    assert len(row.subject) <= len(row.title)
