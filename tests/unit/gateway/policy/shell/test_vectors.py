"""Test vectors of shell commands, measured on another agent: what the gateway decides for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gateway.domain.decisions import Allow, Ask, Decision, Deny
from gateway.domain.rules import Rule, Verdict
from gateway.domain.sessions import SessionKind
from gateway.domain.tools import CallScope, Risk
from gateway.policy.layers import EVERYWHERE
from gateway.policy.permission import decide
from gateway.policy.shell import parse, rule_for_always
from tests.unit.gateway.policy.test_permission import POLICY, SPEC, session

NO_RM = Rule(tool="shell", pattern="rm *", decision=Verdict.DENY, kinds=EVERYWHERE, where="rules[0]")
GIT_STATUS = replace(NO_RM, pattern="git status *", decision=Verdict.ALLOW)


def decided(command: str, *rules: Rule, kind: SessionKind = SessionKind.MAIN) -> Decision:
    scope = CallScope(risk=Risk.EXECUTE, subjects=(f"command:{command}",), workspace="/w/ann")
    return decide(SPEC, replace(POLICY, rules=rules), session(kind), scope, askable=True)


@pytest.mark.parametrize(
    ("command", "expected", "always"),
    [
        ("git status", Allow, True),
        ("git log --oneline -5 | head", Allow, True),
        ("cd /tmp && ls", Ask, False),
        ("cd /tmp", Ask, False),
        ("echo hi > /etc/xx", Deny, False),
        ("> /tmp/zzz", Ask, False),
        ("X=1", Allow, True),
        ("cat .env", Ask, False),
        ("$(echo rm) -rf x", Ask, False),
        ("echo `whoami`", Ask, False),
        ("if true; then rm a; fi", Ask, True),
        ("(rm a)", Ask, True),
        ("! rm a", Ask, True),
        ("cat $HOME/.ssh/id", Ask, False),
        ("cp a.txt ../b.txt", Ask, False),
        ("git -C /tmp status", Ask, False),
        ("git -C x status", Ask, False),
        ("git --no-pager log", Allow, False),
        ("ls\npwd", Allow, False),
        ("ls -la", Allow, True),
        ("make -C x", Ask, True),
        ("FOO=1 make", Ask, False),
        ("timeout 5 make", Ask, False),
        ("f() { ls; }", Ask, False),
        ("make *", Ask, False),
        ("make {a,b}", Ask, False),
        ("make 'a*'", Ask, False),
        ("echo 'a?'", Allow, False),
        ("make größe", Ask, False),
        ("./make", Ask, False),
        ("make.sh", Ask, False),
        ("cat < .env", Ask, False),
        ("make > ../x", Deny, False),
        ("make --x=/y", Ask, False),
        ("git status > /tmp/x", Ask, False),
    ],
)
def test_vector_in_main(command: str, expected: type[Decision], always: bool) -> None:
    assert isinstance(decided(command), expected)
    assert (rule_for_always(parse(command)) is not None) is always


@pytest.mark.parametrize("kind", [SessionKind.DM, SessionKind.NON_MAIN])
@pytest.mark.parametrize("command", ["git status", "git log --oneline -5 | head", "X=1", "ls"])
def test_readers_are_asked_about_elsewhere(command: str, kind: SessionKind) -> None:
    assert isinstance(decided(command, kind=kind), Ask)


@pytest.mark.parametrize(
    "command",
    [
        "FOO=1 rm -rf x",
        "env rm x",
        "command rm x",
        "sudo rm x",
        "timeout 5 rm x",
        "xargs rm",
        'bash -c "rm x"',
        "\\rm x",
        "/bin/rm x",
        'r""m x',
        "find . -delete",
        "ls; rm x",
        "if true; then rm a; fi",
        "(rm a)",
        "! rm a",
    ],
)
def test_vector_is_denied_where_rm_is(command: str) -> None:
    assert isinstance(decided(command, NO_RM), Deny)
    assert isinstance(decided(command, NO_RM, replace(GIT_STATUS, pattern="ls *")), Deny)


@pytest.mark.parametrize("command", ["$(echo rm) -rf x", "echo `whoami`", "`echo rm` x", "r$X x"])
def test_vector_known_only_later_is_asked_about(command: str) -> None:
    everything = replace(GIT_STATUS, pattern="*")
    assert isinstance(decided(command, everything), Ask)
    assert isinstance(decided(command, everything, NO_RM), Ask)


def test_allowed_command_allows_no_redirect() -> None:
    assert isinstance(decided("git status", GIT_STATUS), Allow)
    assert isinstance(decided("git status > /tmp/x", GIT_STATUS), Ask)
    assert isinstance(decided("git status > x", GIT_STATUS), Ask)
    assert isinstance(decided("git status > /etc/x", GIT_STATUS), Deny)


@pytest.mark.parametrize(
    ("rules", "command", "expected"),
    [
        (["*: deny", "git *: allow"], "git status", Allow),
        (["*: deny", "git *: allow"], "git", Allow),
        (["*: deny", "git *: allow"], "rm", Deny),
        ([], "rm", Ask),
    ],
)
def test_permission_vector(rules: Sequence[str], command: str, expected: type[Decision]) -> None:
    made = [one.split(": ") for one in rules]
    written = [replace(NO_RM, pattern=pattern, decision=Verdict(decision)) for pattern, decision in made]
    assert isinstance(decided(command, *written), expected)


@pytest.mark.parametrize("kind", [SessionKind.MAIN, SessionKind.DM])
def test_write_outside_the_workspace_needs_a_rule(kind: SessionKind) -> None:
    found = decided("echo hi > /etc/xx", kind=kind)
    assert isinstance(found, Deny)
    assert "'/etc/xx' is outside the workspace" in found.hint
    allowed = decided("echo hi > /etc/xx", replace(GIT_STATUS, pattern="> /etc/*"), kind=kind)
    assert isinstance(allowed, Allow if kind is SessionKind.MAIN else Ask), "echo is a reader in main only"
    assert isinstance(decided("echo hi > /w/ann/x", kind=kind), Ask)
    assert isinstance(decided("echo hi > /w/bob/x", kind=kind), Deny)


def test_rule_for_a_write_outside_allows_it() -> None:
    rules = [replace(GIT_STATUS, pattern=pattern) for pattern in ("> /srv/out/*", "git status *")]
    assert isinstance(decided("git status > /srv/out/x", *rules), Allow)
    assert isinstance(decided("git status > /srv/out/../x", *rules), Deny)
    assert isinstance(decided("git status > /srv/x", *rules), Deny)


def test_without_a_sandbox_a_reader_is_asked_about() -> None:
    scope = CallScope(risk=Risk.EXECUTE, subjects=("command:ls",))
    assert isinstance(decide(SPEC, POLICY, session(), scope, askable=True, contained=False), Ask)
    assert isinstance(decide(SPEC, POLICY, session(), scope, askable=True), Allow)


def test_sub_session_of_main_is_asked_about() -> None:
    scope = CallScope(risk=Risk.EXECUTE, subjects=("command:ls",))
    child = replace(session(), kind=SessionKind.NON_MAIN)
    assert isinstance(decide(SPEC, POLICY, child, scope, askable=True), Ask)
