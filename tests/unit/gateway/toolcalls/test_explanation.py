"""Explanation of a decision: every stage says what it found, and what is explained is what is decided."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.domain.grants import Grant, GrantKind, GrantPlace
from gateway.domain.ids import GrantId, WaitId, main_session
from gateway.domain.presets import Ceiling, Preset, Presets
from gateway.domain.rules import Layer, Rule, Verdict
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.tools import ApprovalMode, Availability, CallScope, Risk, SandboxPolicy
from gateway.toolcalls.decide import Asked, Runnable, SameCalls
from gateway.toolcalls.explanation import Explainer, Explanation
from gateway.toolcalls.tool_set import Tool, ToolSet
from tests.support.fakes import NO_SANDBOX, FakeTool, Text
from tests.support.makers import ANN, ANN_TELEGRAM, CHAT, EPOCH
from tests.support.turns import turn_view
from tests.unit.gateway.toolcalls.rig import deciding, step

PATTERNS = ("*", "git *", "git push *", "ls", "*.env", "rm *")
TEXTS = ("ls", "git status", "git push", "rm -rf x; ls", "cat prod.env", "make > out", "echo $x", "sudo git push", "{")
SUBJECTS = ("command:{}", "path:{}", "")


def tool(
    rules: Sequence[Rule] = (),
    *,
    subject: str = "command:{}",
    risk: Risk = Risk.EXECUTE,
    own: Risk = Risk.EXECUTE,
    availability: Availability = Availability.ALWAYS,
    approval: dict[str, ApprovalMode] | None = None,
    sandbox: SandboxPolicy | None = None,
) -> Tool:
    fake = FakeTool(name="shell", risk=own, availability=availability, approval=approval or {}, sandbox=sandbox)
    made = fake.tool()

    def scope(args: Text) -> CallScope:
        return CallScope(risk=risk, subjects=(subject.format(args.text),) if subject else ())

    return replace(made, call_scope=scope, policy=replace(made.policy, rules=tuple(rules)))


def rule(pattern: str, decision: Verdict, *, locked: bool = False, layer: Layer = Layer.CONFIGURATION) -> Rule:
    kinds = frozenset(kind.value for kind in SessionKind)
    return Rule(
        tool="shell", pattern=pattern, decision=decision, kinds=kinds, locked=locked, where=f"here:{pattern}",
        layer=layer,
    )  # fmt: skip


def a_session(kind: SessionKind = SessionKind.MAIN) -> Session:
    return replace(turn_view(steps=[]).session, kind=kind, root_kind=kind)


def explained(
    folder: Path,
    one: Tool,
    text: str,
    *,
    session: Session | None = None,
    presets: Presets | None = None,
    grants: Sequence[Grant] = (),
    askable: bool = True,
) -> Explanation:
    tools = ToolSet([one], sandboxed=False) if presets is None else ToolSet([one], sandboxed=False, presets=presets)
    by = Explainer(
        tools=tools,
        session=session or a_session(),
        containment=NO_SANDBOX,
        workspace=lambda: str(folder),
        grants=grants,
        askable=askable,
    )
    return by.explain("shell", text)


def granted(kind: GrantKind, *matches: str) -> Grant:
    return Grant(
        id=GrantId("g1"), tool="shell", kind=kind, matches=matches, risk=Risk.EXECUTE, place=GrantPlace.SESSION,
        session=main_session(ANN), epoch=0, root_kind=SessionKind.MAIN, conversation=CHAT, principal=ANN_TELEGRAM,
        shown="it", wait=WaitId("w1"), granted_by=ANN_TELEGRAM, granted_at=EPOCH, expires_at=EPOCH + timedelta(days=1),
    )  # fmt: skip


READ_ONLY = Preset(name="plan", ceilings=(Ceiling(preset="plan", risks=frozenset({Risk.NONE, Risk.READ})),))
IN_PLAN = Presets(by_name={"plan": READ_ONLY}, defaults={"main": "plan"})
BEGIN = ("available: always", "arguments: valid")
TOUCHES = (*BEGIN, "scope: execute, command:make")
SCOPE = (*TOUCHES, "preset: build")
ONE, NONE = "layers: 1 of configuration", ("layers: no rules", "rules: none of 0 matches every subject")
HIDDEN = "settings: refused, invalid_arguments"


@pytest.mark.parametrize(
    ("one", "given", "decision", "order"),
    [
        (tool(availability=Availability.BLOCKED), {}, "deny", ("available: refused, blocked",)),
        (tool(approval={"main": ApprovalMode.DENY}), {}, "deny", ("available: refused, configured",)),
        (tool(subject="path:../{}"), {}, "deny", (*BEGIN, "scope: execute, path:../make", HIDDEN)),
        (tool(sandbox=SandboxPolicy.BASIC), {}, "deny", (*TOUCHES, "sandbox: refused, sandbox_missing")),
        (tool(own=Risk.READ), {"presets": IN_PLAN}, "deny", (*TOUCHES, "preset: plan, refused")),
        (
            tool([rule("*", Verdict.ALLOW), rule("make", Verdict.DENY, locked=True), rule("make", Verdict.ALLOW)]),
            {},
            "deny",
            (*SCOPE, "layers: 1 locked, 2 of configuration", "rules: here:make: deny shell 'make' (locked)"),
        ),
        (tool([rule("make", Verdict.ALLOW)]), {}, "allow", (*SCOPE, ONE, "rules: here:make: allow shell 'make'")),
        (tool([rule("make", Verdict.ASK)]), {}, "ask", (*SCOPE, ONE, "rules: here:make: ask shell 'make'")),
        (
            tool([rule("ls", Verdict.DENY)]),
            {},
            "ask",
            (*SCOPE, ONE, "rules: none of 1 matches every subject", "default for execute in main: ask"),
        ),
        (
            tool(approval={"main": ApprovalMode.ALLOW}),
            {},
            "allow",
            (*SCOPE, *NONE, "default for execute in main: allow"),
        ),
        (
            tool(),
            {"grants": [granted(GrantKind.SUBJECTS, "command:make")]},
            "allow",
            (*SCOPE, *NONE, "default for execute in main: ask", "grants: g1 allows it"),
        ),
        (
            tool(),
            {"askable": False},
            "deny",
            (*SCOPE, *NONE, "default for execute in main: ask", "approvers: nobody can be asked"),
        ),
    ],
)
def test_each_stage_says_what_it_found(
    tmp_path: Path, one: Tool, given: dict[str, Any], decision: str, order: tuple[str, ...]
) -> None:
    found = explained(tmp_path, one, "make", **given)
    assert (found.decision, found.order) == (decision, order)


def test_arguments_that_are_not_valid_end_the_order(tmp_path: Path) -> None:
    found = explained(tmp_path, tool(), '{"txet": 5}')
    assert (found.decision, found.order) == ("deny", ("available: always", "arguments: not valid"))


def test_a_deciding_grant_is_named_like_a_rule(tmp_path: Path) -> None:
    found = explained(tmp_path, tool(), "make", grants=[granted(GrantKind.SUBJECTS, "command:make")])
    assert (found.rule, found.because) == ("grant g1", "grant g1 allows it")
    assert explained(tmp_path, tool([rule("make", Verdict.ALLOW)]), "make").rule == "here:make"


RULES = st.builds(
    rule,
    st.sampled_from(PATTERNS),
    st.sampled_from(Verdict),
    layer=st.sampled_from([Layer.CONFIGURATION, Layer.SESSION]),
)
LOCKED = st.builds(rule, st.sampled_from(PATTERNS), st.just(Verdict.DENY), locked=st.just(True))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rules=st.lists(st.one_of(RULES, LOCKED), max_size=5),
    text=st.sampled_from(TEXTS),
    subject=st.sampled_from(SUBJECTS),
    risk=st.sampled_from(Risk),
    kind=st.sampled_from(SessionKind),
    availability=st.sampled_from(Availability),
    approval=st.dictionaries(st.sampled_from(["main", "dm", "non-main"]), st.sampled_from(ApprovalMode)),
    sandbox=st.sampled_from([None, SandboxPolicy.OFF, SandboxPolicy.AUTO, SandboxPolicy.BASIC]),
    grants=st.lists(st.sampled_from([granted(GrantKind.SUBJECTS, "command:ls"), granted(GrantKind.SCOPE, "x")])),
    askable=st.booleans(),
)
def test_explanation_agrees_with_the_decision(
    tmp_path: Path,
    rules: list[Rule],
    text: str,
    subject: str,
    risk: Risk,
    kind: SessionKind,
    availability: Availability,
    approval: dict[str, ApprovalMode],
    sandbox: SandboxPolicy | None,
    grants: list[Grant],
    askable: bool,
) -> None:
    one = tool(rules, subject=subject, risk=risk, availability=availability, approval=approval, sandbox=sandbox)
    session = a_session(kind)
    call = step(arguments=f'{{"text": {json.dumps(text)}}}')
    view = replace(turn_view(steps=[call]), session=session)

    found = deciding(tmp_path, one).first(view, call, SameCalls(), grants, askable=askable)
    said = explained(tmp_path, one, call.arguments, session=session, grants=grants, askable=askable)

    decided = "allow" if isinstance(found, Runnable) else "ask" if isinstance(found, Asked) else "deny"
    assert said.decision == decided, (said, found)
    if isinstance(found, Runnable):
        assert said.rule in (found.rule, f"grant {found.grant}")
    elif not isinstance(found, Asked):
        assert found.hint == said.because
