"""Rules of grants: which calls are offered one, what it matches, where it holds, and what it cannot lift."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gateway.domain.approvers import OWNERS_DECIDE, ApproverRules
from gateway.domain.children import Lineage, SpawnMode
from gateway.domain.decisions import Allow, Ask, Deny
from gateway.domain.grants import CallPlace, Grant, GrantKind, GrantOffer, GrantPlace
from gateway.domain.ids import GrantId, Principal, SessionId, TurnId, WaitId
from gateway.domain.messages import Conversation
from gateway.domain.routes import Route, empty_session
from gateway.domain.rules import Rule, Verdict
from gateway.domain.sessions import Origin, Session, SessionKind
from gateway.domain.tools import ApprovalMode, Availability, CallScope, Effect, Risk, ToolPolicy, ToolSpec
from gateway.policy.grants import (
    OFFERED_CHARS,
    covering,
    covers,
    holds,
    is_grantable_command,
    is_live,
    of_history,
    offer,
    scopes_of,
)
from gateway.policy.permission import decide
from gateway.store.codec import EPOCH

CHAT = Conversation(channel="telegram", account="main", chat="1001")
OTHER = Conversation(channel="telegram", account="main", chat="-1002")
ANN, BOB = Principal("telegram:1001"), Principal("telegram:2002")
MAIN, GROUP = SessionId("main:ann"), SessionId("chat:g")
NOW = EPOCH + timedelta(days=1)
KEY = "ab" * 32
SPEC = ToolSpec(name="shell", description="", risk=Risk.EXECUTE, effect=Effect.UNSAFE, availability=Availability.ALWAYS)
POLICY = ToolPolicy(availability=Availability.ALWAYS, approval={}, timeout_s=1, actions={}, sandbox=None)


LINEAGE = Lineage(
    parent=MAIN,
    turn=TurnId("t1"),
    n=1,
    root=MAIN,
    root_turn=TurnId("t1"),
    conversation=CHAT,
    depth=1,
    mode=SpawnMode.RUN,
    active_s=60,
    tokens=0,
)


def session(kind: SessionKind = SessionKind.MAIN) -> Session:
    route = Route(session=MAIN, kind=kind, origin=Origin.DIRECT, owner=None, title="")
    return empty_session(route, EPOCH)


def grant(
    place: GrantPlace = GrantPlace.SESSION, kind: GrantKind = GrantKind.ACTION, matches: tuple[str, ...] = (KEY,)
) -> Grant:
    return Grant(
        id=GrantId("g1"),
        tool="shell",
        kind=kind,
        matches=matches,
        risk=Risk.EXECUTE,
        place=place,
        session=MAIN,
        epoch=2,
        root_kind=SessionKind.MAIN,
        conversation=CHAT,
        principal=ANN,
        shown="shell git status",
        wait=WaitId("w1"),
        granted_by=ANN,
        granted_at=EPOCH,
        expires_at=EPOCH + timedelta(days=30),
    )


HERE = CallPlace(histories=((MAIN, 2),), root_kind=SessionKind.MAIN, conversation=CHAT, principal=ANN)
CHILD = replace(HERE, histories=((SessionId("child:t1.1"), 0), (MAIN, 2)))


# --- what is offered --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "is_grantable"),
    [
        ("git status", True),
        ("git log --oneline -5", True),
        ("/usr/bin/git status", True),
        ("make test", True),
        ("ls", True),
        # Wrappers and interpreters run whatever their arguments say.
        ("sudo git status", False),
        ("sudo git push origin a:b", False),
        ("env git status", False),
        ("xargs rm", False),
        ("bash -c date", False),
        ("/bin/bash x", False),
        ("python -m pytest", False),
        ("python3.11 x.py", False),
        ("perl5 x", False),
        ("node x", False),
        ("find . -delete", False),
        ("timeout 5 date", False),
        # Files of the workspace can be replaced.
        ("./run test", False),
        ("bin/tool", False),
        ("deploy.sh", False),
        # Dynamic words, and anything that is more than one plain command.
        ("echo $HOME", False),
        ("echo `date`", False),
        ("$(echo rm) x", False),
        ("rm *", False),
        ("rm ~/x", False),
        ("sudo a; b", False),
        ("a && b $x", False),
        # Several parts are one exact text.
        ("a; b", True),
        ("a && b", True),
        ("a | b", True),
        ("git status > x", True),
        ("echo 'x'", True),
        ('echo "x"', True),
        # Secrets, and paths outside.
        ("cat .env", False),
        ("cat /etc/passwd", False),
        ("git status > ../x", False),
        ("git -C x status", False),
        ("a\\b", True),
        ("git status\nrm x", False),
        ("FOO=1 make", False),
        ("a\u200bb", False),
        ("", False),
        ("  ", False),
    ],
)
def test_only_known_commands_may_be_granted(command: str, is_grantable: bool) -> None:
    assert is_grantable_command(command) is is_grantable
    found = offer("shell", KEY, scope_of(command), session(), command)
    assert (found is not None) is is_grantable


def scope_of(command: str) -> CallScope:
    return CallScope(risk=Risk.EXECUTE, subjects=(f"command:{command}",))


def test_a_command_is_offered_by_its_action_key() -> None:
    found = offer("shell", KEY, scope_of("git status"), session(), "git  status")
    assert found == offered(GrantKind.ACTION, (KEY,), "shell git status")
    found = offer("shell", KEY, scope_of("git status"), session(), "x" * OFFERED_CHARS)
    assert found == offered(GrantKind.ACTION, (KEY,), f"shell {'x' * OFFERED_CHARS}")


def offered(kind: GrantKind, matches: tuple[str, ...], shown: str) -> GrantOffer:
    return GrantOffer(kind=kind, matches=matches, places=(GrantPlace.CHAT, GrantPlace.SESSION), shown=shown)


@pytest.mark.parametrize(
    ("subjects", "shown"),
    [
        (("path:2026:11.md", "host:example.org:8080"), "2026:11.md, example.org:8080"),
        (("host:example.org:8080",), "example.org:8080"),
    ],
)
def test_paths_and_hosts_are_offered_by_their_subjects(subjects: tuple[str, ...], shown: str) -> None:
    scope = CallScope(risk=Risk.WRITE, subjects=subjects, sends=("example.org:8080",))
    found = offer("save", KEY, scope, session(), "notes.md", prepared=True)
    assert found == offered(GrantKind.SUBJECTS, subjects, f"save that may change {shown}")


def test_a_scope_is_offered_by_itself() -> None:
    scope = CallScope(risk=Risk.NETWORK, scope="example.org", subjects=("host:example.org",))
    found = offer("browser", KEY, scope, session(), "open example.org", in_order=True)
    assert found == offered(GrantKind.SCOPE, ("example.org",), "browser with example.org")


@pytest.mark.parametrize(
    ("scope", "rendered", "in_order", "prepared"),
    [
        (scope_of("git status"), "", False, False),
        (scope_of("git status"), "x" * (OFFERED_CHARS + 1), False, False),
        (CallScope(risk=Risk.EXECUTE), "evaluate", True, False),
        (CallScope(risk=Risk.NETWORK, subjects=("path:secret",)), "upload", True, False),
        (CallScope(risk=Risk.WRITE), "a diff", False, True),
        (CallScope(risk=Risk.WRITE, subjects=("path:a",), sends=("example.org",)), "a", False, False),
        (CallScope(risk=Risk.EXECUTE, subjects=("command:bash x", "path:a")), "bash x", False, False),
    ],
    ids=["nothing shown", "long", "page script", "upload", "prepared", "unnamed receiver", "wrapper beside a path"],
)
def test_call_not_shown_whole_is_not_offered_a_grant(
    scope: CallScope, rendered: str, in_order: bool, prepared: bool
) -> None:
    assert offer("tool", KEY, scope, session(), rendered, in_order=in_order, prepared=prepared) is None


@pytest.mark.parametrize(
    ("kind", "places"),
    [
        (SessionKind.MAIN, (GrantPlace.CHAT, GrantPlace.SESSION)),
        (SessionKind.DM, (GrantPlace.CHAT, GrantPlace.SESSION, GrantPlace.PERSON)),
        (SessionKind.NON_MAIN, (GrantPlace.CHAT, GrantPlace.SESSION, GrantPlace.PERSON)),
    ],
)
def test_places_fit_the_kind_of_session(kind: SessionKind, places: tuple[GrantPlace, ...]) -> None:
    found = offer("shell", KEY, scope_of("ls"), session(kind), "ls")
    assert found is not None
    assert found.places == places


@pytest.mark.parametrize(
    ("kind", "places"),
    [
        (SessionKind.MAIN, (GrantPlace.CHAT,)),
        (SessionKind.NON_MAIN, (GrantPlace.CHAT, GrantPlace.PERSON)),
    ],
)
def test_nothing_is_granted_for_a_sub_session_alone(kind: SessionKind, places: tuple[GrantPlace, ...]) -> None:
    child = replace(session(kind), lineage=LINEAGE)
    found = offer("shell", KEY, scope_of("make"), child, "make")
    assert found is not None
    assert found.places == places


# --- where it holds ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "here", "is_held"),
    [
        (GrantPlace.SESSION, HERE, True),
        (GrantPlace.SESSION, CHILD, True),
        (GrantPlace.SESSION, replace(HERE, conversation=OTHER, principal=BOB), True),
        (GrantPlace.SESSION, replace(HERE, histories=((MAIN, 3),)), False),
        (GrantPlace.SESSION, replace(HERE, histories=((GROUP, 2),)), False),
        (GrantPlace.CHAT, HERE, True),
        (GrantPlace.CHAT, CHILD, True),
        (GrantPlace.CHAT, replace(HERE, histories=((MAIN, 3),)), True),
        (GrantPlace.CHAT, replace(HERE, conversation=OTHER), False),
        (GrantPlace.CHAT, replace(HERE, root_kind=SessionKind.DM), False),
        (GrantPlace.PERSON, HERE, True),
        (GrantPlace.PERSON, replace(HERE, conversation=OTHER, histories=((GROUP, 0),)), True),
        (GrantPlace.PERSON, replace(HERE, principal=BOB), False),
        (GrantPlace.PERSON, replace(HERE, root_kind=SessionKind.NON_MAIN), False),
    ],
)
def test_a_grant_holds_in_its_place_only(place: GrantPlace, here: CallPlace, is_held: bool) -> None:
    assert holds(grant(place), here, NOW) is is_held


@pytest.mark.parametrize(
    ("changes", "after", "is_alive"),
    [
        ({}, timedelta(0), True),
        ({}, timedelta(days=29, hours=23), True),
        ({}, timedelta(days=30), False),
        ({}, timedelta(days=400), False),
        ({"revoked_at": EPOCH}, timedelta(0), False),
        ({"expired": True}, timedelta(0), False),
        ({"expired": True}, timedelta(days=-40), False),
    ],
)
def test_a_grant_ends_by_time_and_by_revocation(changes: dict[str, object], after: timedelta, is_alive: bool) -> None:
    one = replace(grant(), **changes)
    assert is_live(one, EPOCH + after) is is_alive
    assert holds(one, HERE, EPOCH + after) is is_alive


# --- what it matches --------------------------------------------------------------------------

PATHS = grant(kind=GrantKind.SUBJECTS, matches=("path:a*", "path:b", "host:example.org"))
HOST = grant(kind=GrantKind.SCOPE, matches=("example.org",))


@pytest.mark.parametrize(
    ("one", "tool", "key", "scope", "is_covered"),
    [
        (grant(), "shell", KEY, scope_of("git status"), True),
        (grant(), "shell", "cd" * 32, scope_of("git status"), False),
        (grant(), "other", KEY, scope_of("git status"), False),
        (PATHS, "shell", "", CallScope(risk=Risk.EXECUTE, subjects=("path:b",)), True),
        (PATHS, "shell", "", CallScope(risk=Risk.EXECUTE, subjects=("path:b", "path:a*", "host:example.org")), True),
        (PATHS, "shell", "", CallScope(risk=Risk.EXECUTE, subjects=("path:b", "path:c")), False),
        (PATHS, "shell", "", CallScope(risk=Risk.EXECUTE, subjects=("path:ab",)), False),
        (PATHS, "shell", "", CallScope(risk=Risk.WRITE, subjects=("path:b",)), False),
        (PATHS, "shell", "", CallScope(risk=Risk.EXECUTE), False),
        (PATHS, "shell", "", CallScope(risk=Risk.EXECUTE, subjects=("path:b",), sends=("example.org",)), True),
        (PATHS, "shell", "", CallScope(risk=Risk.EXECUTE, subjects=("path:b",), sends=("example.net",)), False),
        (HOST, "shell", KEY, CallScope(risk=Risk.NETWORK, scope="example.org"), True),
        (HOST, "shell", KEY, CallScope(risk=Risk.NETWORK, scope="example.net"), False),
        (HOST, "shell", KEY, CallScope(risk=Risk.NETWORK), False),
    ],
)
def test_a_grant_matches_exactly(one: Grant, tool: str, key: str, scope: CallScope, is_covered: bool) -> None:
    assert covers(one, tool, key, scope) is is_covered
    assert covering([one], tool, key, scope) is (one if is_covered else None)


@pytest.mark.parametrize(
    ("changes", "is_kept"),
    [
        ({}, True),
        ({"session": GROUP}, False),
        ({"epoch": 1}, False),
        ({"root_kind": SessionKind.NON_MAIN}, False),
    ],
)
def test_a_history_has_its_own_grants(changes: dict[str, object], is_kept: bool) -> None:
    found = of_history([replace(grant(), **changes)], replace(session(), epoch=2))
    assert bool(found) is is_kept


def test_scopes_are_those_of_the_tool() -> None:
    assert scopes_of([HOST, grant(), PATHS], "shell") == {"example.org"}
    assert scopes_of([HOST], "browser") == frozenset()


# --- what it lifts ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("approval", "verdict", "locked", "expected"),
    [
        (None, None, False, Allow),
        (ApprovalMode.ASK, None, False, Allow),
        (ApprovalMode.DENY, None, False, Deny),
        (None, Verdict.ASK, False, Allow),
        (None, Verdict.ALLOW, False, Allow),
        (None, Verdict.DENY, False, Deny),
        (None, Verdict.DENY, True, Deny),
        (ApprovalMode.ALLOW, Verdict.DENY, False, Deny),
    ],
)
@pytest.mark.parametrize("askable", [True, False])
def test_a_grant_lifts_an_ask_and_never_a_deny(
    approval: ApprovalMode | None, verdict: Verdict | None, locked: bool, askable: bool, expected: type
) -> None:
    rules = [] if verdict is None else [rule(verdict, locked=locked)]
    policy = replace(POLICY, approval={} if approval is None else {"main": approval}, rules=tuple(rules))
    found = decide(SPEC, policy, session(), scope_of("git push"), askable=askable, grant=grant())

    assert type(found) is expected
    if isinstance(found, Allow) and verdict is not Verdict.ALLOW:
        assert found.grant == "g1"


def rule(verdict: Verdict, *, locked: bool = False) -> Rule:
    return Rule(tool="shell", pattern="git *", decision=verdict, kinds=frozenset(["main"]), locked=locked)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (grant(), Ask),
        (grant(GrantPlace.CHAT, GrantKind.SCOPE, ("x.org",)), Ask),
        (grant(GrantPlace.SESSION, GrantKind.SCOPE, ("x.org",)), Ask),
        (replace(grant(GrantPlace.CHAT, GrantKind.SCOPE, ("x.org",)), quorum=2, by_another=True), Ask),
        (replace(grant(GrantPlace.SESSION, GrantKind.SCOPE, ("x.org",)), quorum=2, by_another=True), Allow),
    ],
)
@pytest.mark.parametrize(
    "deciding", [replace(OWNERS_DECIDE, quorum=2), replace(OWNERS_DECIDE, requester_may_approve=False)]
)
def test_grant_of_one_person_counts_for_one(one: Grant, expected: type, deciding: ApproverRules) -> None:
    policy = replace(POLICY, deciding=deciding)
    assert type(decide(SPEC, policy, session(), scope_of("git push"), askable=True, grant=one)) is expected


def test_a_tool_that_is_not_here_stays_away() -> None:
    policy = replace(POLICY, availability=Availability.BLOCKED)
    assert isinstance(decide(SPEC, policy, session(), scope_of("ls"), askable=True, grant=grant()), Deny)


def test_without_a_grant_it_is_asked() -> None:
    assert isinstance(decide(SPEC, POLICY, session(), scope_of("make"), askable=True), Ask)
