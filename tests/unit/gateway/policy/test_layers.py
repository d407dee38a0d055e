"""Layers of rules: their order, what a grant may lift, and the limits of a preset."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.decisions import Allow, Ask, Decision, Deny, DenyReason
from gateway.domain.presets import Ceiling, Preset, Presets
from gateway.domain.rules import Layer, Rule, Verdict
from gateway.domain.sessions import SessionKind
from gateway.domain.tool_groups import GROUPS, NEWEST, generation_of, groups_of
from gateway.domain.tools import CallScope, Effect, Risk, ToolSpec
from gateway.policy.layers import in_force, rules_of_call
from gateway.policy.permission import decide, withheld
from tests.unit.gateway.policy.test_permission import POLICY, SPEC, session

HERE = session()
EVERYWHERE = frozenset(kind.value for kind in SessionKind)
ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY
PLAN = Ceiling(preset="plan", risks=frozenset({Risk.NONE, Risk.READ}), writes=("plans/*.md",))
WRITER = replace(SPEC, name="edit", risk=Risk.WRITE)


def rule(layer: Layer, decision: Verdict, pattern: str = "git *", *, locked: bool = False, tool: str = "shell") -> Rule:
    return Rule(
        tool=tool, pattern=pattern, decision=decision, kinds=EVERYWHERE, locked=locked, where=layer.value, layer=layer
    )


def decided(*rules: Rule, command: str = "git push", askable: bool = True) -> Decision:
    """Decide a command under rules of several layers, given in any order."""
    preset = Preset(name="p", rules=tuple(one for one in rules if one.layer is Layer.PRESET))
    policy = replace(POLICY, rules=tuple(one for one in rules if one.layer is Layer.CONFIGURATION))
    granted = [one for one in rules if one.layer is Layer.GRANT]
    scope = CallScope(risk=Risk.EXECUTE, subjects=(f"command:{command}",))
    return decide(SPEC, policy, session(), scope, askable=askable, preset=preset, granted=granted)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ((rule(Layer.PRESET, DENY), rule(Layer.CONFIGURATION, ALLOW)), Allow),
        ((rule(Layer.PRESET, ALLOW), rule(Layer.CONFIGURATION, DENY)), Deny),
        ((rule(Layer.PRESET, DENY, locked=True), rule(Layer.CONFIGURATION, ALLOW)), Deny),
        ((rule(Layer.PRESET, DENY, locked=True), rule(Layer.GRANT, ALLOW)), Deny),
        ((rule(Layer.PRESET, DENY), rule(Layer.GRANT, ALLOW)), Deny),
        ((rule(Layer.CONFIGURATION, DENY), rule(Layer.GRANT, ALLOW)), Deny),
        ((rule(Layer.CONFIGURATION, ASK), rule(Layer.GRANT, ALLOW)), Allow),
        ((rule(Layer.GRANT, ALLOW),), Allow),
        ((rule(Layer.GRANT, ALLOW, "ls *"),), Ask),
    ],
)
def test_layers_decide_in_order(rules: tuple[Rule, ...], expected: type[Decision]) -> None:
    assert isinstance(decided(*rules), expected)


def test_tool_switched_off_is_denied_and_hidden() -> None:
    off = replace(session(), tools_off=("shell",))
    scope = CallScope(risk=Risk.EXECUTE, subjects=("command:git status",))
    granted = [rule(Layer.GRANT, ALLOW)]

    found = decide(SPEC, POLICY, off, scope, askable=True, granted=granted)

    assert isinstance(found, Deny)
    assert "/tools off shell" in found.hint
    assert withheld(SPEC, POLICY, off) == found


@pytest.mark.parametrize(
    ("subjects", "risk", "expected"),
    [
        (("path:plans/a.md",), Risk.WRITE, Ask),
        (("path:src/a.py",), Risk.WRITE, Deny),
        (("path:plans/a.md", "path:src/a.py"), Risk.WRITE, Deny),
        ((), Risk.WRITE, Deny),
        (("host:plans/a.md",), Risk.WRITE, Deny),
        (("path:plans/a.md",), Risk.EXECUTE, Deny),
        (("path:src/a.py",), Risk.READ, Allow),
    ],
)
def test_ceiling_limits_each_call(subjects: tuple[str, ...], risk: Risk, expected: type[Decision]) -> None:
    preset = Preset(name="plan", ceilings=(PLAN,))

    found = decide(WRITER, POLICY, HERE, CallScope(risk=risk, subjects=subjects), askable=True, preset=preset)

    assert isinstance(found, expected)


def test_ceiling_is_not_lifted_by_a_rule_or_a_grant() -> None:
    preset = Preset(name="plan", ceilings=(PLAN,), rules=(rule(Layer.PRESET, ALLOW, "*", tool="edit"),))
    policy = replace(POLICY, rules=(rule(Layer.CONFIGURATION, ALLOW, "*", tool="edit"),))
    scope = CallScope(risk=Risk.WRITE, subjects=("path:src/a.py",))
    granted = [rule(Layer.GRANT, ALLOW, "*", tool="edit")]

    found = decide(WRITER, policy, HERE, scope, askable=True, preset=preset, granted=granted)

    assert isinstance(found, Deny)
    assert found.reason is DenyReason.CONFIGURED
    assert "plans/*.md" in found.hint


def test_generation_hides_newer_tools() -> None:
    spec = replace(SPEC, name="sessions_spawn", risk=Risk.NONE)

    assert withheld(spec, POLICY, HERE, Preset(name="small", generation=6)) is not None
    assert withheld(spec, POLICY, HERE, Preset(name="small", generation=7)) is None


def test_rules_name_groups_and_sources() -> None:
    spec = ToolSpec(
        name="edit", description="", risk=Risk.WRITE, effect=Effect.UNSAFE, availability=POLICY.availability
    )
    preset = Preset(
        name="p", rules=tuple(rule(Layer.PRESET, DENY, tool=one) for one in ("group:edit", "acme:*", "group:search"))
    )

    found = rules_of_call(spec, replace(POLICY, source="acme"), HERE, preset)

    assert [one.tool for one in found] == ["group:edit", "acme:*"]


def test_session_of_a_removed_preset_may_call_nothing() -> None:
    preset = in_force(Presets(by_name={}, defaults={}), replace(session(), preset="mine"))

    found = withheld(SPEC, POLICY, HERE, preset)

    assert found is not None
    assert "/preset" in found.hint


def test_every_tool_group_has_a_generation_of_the_ladder() -> None:
    assert {group.generation for group in GROUPS.values()} == set(range(1, NEWEST + 1))
    assert generation_of("unheard_of") == NEWEST
    assert groups_of("edit") == {"files", "edit"}
