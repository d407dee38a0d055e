"""Rules about conversations: another one than that at hand is closed until a rule is about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gateway.domain.decisions import Allow, Ask, Deny
from gateway.domain.rules import Rule, Verdict
from gateway.domain.sessions import SessionKind
from gateway.domain.tools import (
    ApprovalMode,
    Availability,
    CallScope,
    Effect,
    Risk,
    SubjectKind,
    ToolPolicy,
    ToolSpec,
)
from gateway.policy.permission import decide, refused
from tests.unit.gateway.policy.test_permission import session

ALLOWED: dict[str, ApprovalMode] = dict.fromkeys(("main", "dm", "non-main"), ApprovalMode.ALLOW)
SPEC = ToolSpec(
    name="telegram",
    description="Posts.",
    risk=Risk.NETWORK,
    effect=Effect.IDEMPOTENT,
    availability=Availability.ALWAYS,
    approval=ALLOWED,
    subjects=frozenset({SubjectKind.CHAT, SubjectKind.PATH}),
)
POLICY = ToolPolicy(
    availability=Availability.ALWAYS, approval=ALLOWED, timeout_s=30, actions={}, sandbox=None, source="builtin"
)
HERE = ("main",)


def rule(pattern: str, decision: Verdict, kinds: Sequence[str] = HERE, *, locked: bool = False) -> Rule:
    where = "rules[0]"
    return Rule(tool="telegram", pattern=pattern, decision=decision, kinds=frozenset(kinds), locked=locked, where=where)


ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY
TABLE: list[tuple[list[Rule], tuple[str, ...], type]] = [
    ([], (), Allow),
    ([], ("path:notes",), Allow),
    ([], ("chat:-1003",), Deny),
    ([], ("chat:-1003", "path:notes"), Deny),
    ([rule("-1003", ALLOW)], ("chat:-1003",), Allow),
    ([rule("-1003", ALLOW)], ("chat:-10031",), Deny),
    ([rule("-1003", ALLOW)], ("chat:-1003", "path:notes"), Allow),
    ([rule("notes", ALLOW)], ("chat:-1003", "path:notes"), Deny),
    ([rule("-1003", ASK)], ("chat:-1003", "path:notes"), Ask),
    ([rule("-10*", ALLOW), rule("-1003", DENY)], ("chat:-1003",), Deny),
    ([rule("-1003", DENY), rule("-10*", ALLOW)], ("chat:-1003",), Allow),
    ([rule("-1003", DENY, locked=True), rule("*", ALLOW)], ("chat:-1003",), Deny),
    ([rule("*", ALLOW)], ("chat:-1003",), Allow),
    ([rule("T0AA/C0CC", ALLOW)], ("chat:T0AA/C0CC",), Allow),
    ([rule("T0AA/C0CC", ALLOW)], ("chat:T0AA/C0CD",), Deny),
    ([rule("-1003", ALLOW, ("dm",))], ("chat:-1003",), Deny),
    ([rule("-1003", ALLOW), rule("-1004", ALLOW)], ("chat:-1003", "chat:-1005"), Deny),
]


@pytest.mark.parametrize(("rules", "subjects", "expected"), TABLE)
def test_another_chat_is_closed_until_a_rule_is_about_it(
    rules: list[Rule], subjects: tuple[str, ...], expected: type
) -> None:
    policy = replace(POLICY, rules=tuple(rules))
    scope = CallScope(risk=Risk.NETWORK, subjects=subjects)
    found = decide(SPEC, policy, session(SessionKind.MAIN), scope, askable=True)
    assert type(found) is expected, found


def test_no_rule_is_reported_with_the_rule_to_write() -> None:
    notes: list[str] = []
    scope = CallScope(risk=Risk.NETWORK, subjects=("chat:-1003",))
    found = decide(SPEC, POLICY, session(), scope, askable=True, note=notes.append)
    assert isinstance(found, Deny)
    assert 'tool = "telegram", pattern = "-1003", decision = "ask"' in found.hint
    assert "chats: refused, no rule names it" in notes


def test_a_chat_without_a_name_is_no_subject() -> None:
    assert refused(CallScope(risk=Risk.NETWORK, subjects=("chat:",))) is not None
    assert refused(CallScope(risk=Risk.NETWORK, subjects=("chat:-1003",))) is None
