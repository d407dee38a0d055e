"""Layers of rules: their order, what a grant may lift, and the limits of a preset."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.decisions import Allow, Ask, Decision, Deny, DenyReason
from gateway.domain.presets import Ceiling, Preset, PresetMode, Presets
from gateway.domain.rules import Layer, Rule, Verdict
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.tool_groups import GROUPS, NEWEST, generation_of, groups_of
from gateway.domain.tools import CallScope, Effect, Risk, SandboxPolicy, SubjectKind, ToolSpec
from gateway.policy.layers import UNDER_LIMITS, beyond, in_force, rules_above, rules_of_call, strictest
from gateway.policy.permission import decide, hides, refused, withheld
from tests.support.turns import lineage
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
    assert [(one.tool, one.layer) for one in rules_of_call(SPEC, POLICY, off)] == [("shell", Layer.SESSION)]


@pytest.mark.parametrize(
    ("subjects", "risk", "expected"),
    [
        (("path:plans/a.md",), Risk.WRITE, Ask),
        (("path:src/a.py",), Risk.WRITE, Deny),
        (("path:plans/a.md", "path:src/a.py"), Risk.WRITE, Deny),
        ((), Risk.WRITE, Deny),
        (("host:plans/a.md",), Risk.WRITE, Deny),
        (("path:plans/a.md",), Risk.EXECUTE, Deny),
        (("path:plans/a:b.md",), Risk.WRITE, Ask),
        (("path:src:plans/a.md",), Risk.WRITE, Deny),
        (("path:plans/a.md",), Risk.NETWORK, Deny),
        (("path:src/a.py",), Risk.READ, Allow),
    ],
)
def test_ceiling_limits_each_call(subjects: tuple[str, ...], risk: Risk, expected: type[Decision]) -> None:
    scope = CallScope(risk=risk, subjects=subjects)
    for ceilings in ((PLAN,), (Ceiling(preset="free", risks=frozenset(Risk)), PLAN)):
        found = decide(WRITER, POLICY, HERE, scope, askable=True, preset=Preset(name="plan", ceilings=ceilings))
        assert isinstance(found, expected)


@pytest.mark.parametrize(
    ("risk", "risks", "more"),
    [
        (Risk.WRITE, {Risk.READ}, " It may write plans/*.md and notes/* only."),
        (Risk.NETWORK, {Risk.READ}, ""),
        (Risk.EXECUTE, {Risk.READ}, " Commands that only read files of the workspace are permitted."),
        (Risk.EXECUTE, {Risk.NONE}, ""),
    ],
)
def test_refusal_by_a_ceiling_says_what_is_permitted(risk: Risk, risks: set[Risk], more: str) -> None:
    ceiling = Ceiling(preset="plan", risks=frozenset(risks), writes=("plans/*.md", "notes/*"))
    found = beyond(Preset(name="plan", ceilings=(ceiling,)), WRITER, CallScope(risk=risk))
    text = f"The preset plan does not permit edit here, since its risk is {risk.value}.{more}"
    assert found == Deny(reason=DenyReason.CONFIGURED, hint=text)


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

    assert withheld(spec, POLICY, HERE, Preset(name="small", generation=6)) == Deny(
        reason=DenyReason.CONFIGURED,
        hint="sessions_spawn is of generation 7; here tools go up to generation 6.",
    )
    assert withheld(spec, POLICY, HERE, Preset(name="small", generation=7)) is None


def test_rules_name_groups_and_sources() -> None:
    spec = ToolSpec(
        name="edit", description="", risk=Risk.WRITE, effect=Effect.UNSAFE, availability=POLICY.availability
    )
    preset = Preset(
        name="p", rules=tuple(rule(Layer.PRESET, DENY, tool=one) for one in ("group:edit", "acme:*", "group:search"))
    )

    policy = replace(POLICY, source="acme")
    own, granted = rules_of_call(spec, policy, HERE, preset), rules_of_call(spec, policy, HERE, granted=preset.rules)
    (above,) = rules_above(spec, policy, Preset(name="child", above=(preset.rules,)))

    for found in (own, granted, above):
        assert [one.tool for one in found] == ["group:edit", "acme:*"]


def test_session_of_a_removed_preset_may_call_nothing() -> None:
    preset = in_force(Presets(by_name={}, defaults={}), replace(session(), preset="mine"))

    policy = replace(POLICY, rules=(rule(Layer.CONFIGURATION, ALLOW, "*"),))
    found = withheld(SPEC, policy, HERE, preset)

    assert found is not None
    assert "preset mine, which is not configured any more" in found.hint
    assert (preset.name, [one.layer for one in preset.rules]) == ("mine", [Layer.PRESET])
    assert isinstance(decided(preset.rules[0], *policy.rules), Deny)


def test_every_tool_group_has_a_generation_of_the_ladder() -> None:
    assert {group.generation for group in GROUPS.values()} == set(range(1, NEWEST + 1))
    assert generation_of("unheard_of") == NEWEST
    assert groups_of("edit") == {"files", "edit"}


def test_tool_of_others_names_its_group() -> None:
    spec = replace(SPEC, name="stars", group="network")
    preset = Preset(name="p", generation=4, rules=(rule(Layer.PRESET, DENY, "*", tool="group:network"),))

    assert (spec.groups, spec.generation) == ({"network"}, 4)
    assert replace(spec, group="").generation == NEWEST
    assert rules_of_call(spec, POLICY, HERE, preset) == preset.rules


SHELL = replace(SPEC, subjects=frozenset({SubjectKind.COMMAND}))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ls", Ask),
        ("git status", Ask),
        ("cat notes.md | head -3", Ask),
        ("git diff", Ask),
        ("git diff --cached HEAD~1 | head", Ask),
        ("git log -p", Ask),
        ("git show", Ask),
        ("/usr/bin/git show HEAD", Ask),
        ("git stash show -p", Ask),
        ("git grep x HEAD", Ask),
        ("grep -rn TODO .", Ask),
        ("git diff > a.patch", Deny),
        ("git diff --output=a.patch", Deny),
        ("git diff --ext-diff", Deny),
        ("git diff -- .env", Deny),
        ("git diff -- '.e*'", Deny),
        ("git log -p --format=%GS", Deny),
        ("git diff $x", Deny),
        ("git diff *", Deny),
        ("./git diff", Deny),
        ("git -C /srv diff", Deny),
        ("git -c core.pager=x diff", Deny),
        ("git diff; git stash", Deny),
        ("git stash", Deny),
        ("git add .", Deny),
        ("git push", Deny),
        ("grep -rn TODO /srv", Deny),
        ("grep -rn TODO . .env", Deny),
        ("find . -delete", Deny),
        ("rm -rf .", Deny),
        ("ls > list.txt", Deny),
        ("curl https://example.org", Deny),
        ("echo $(rm x)", Deny),
        ("ls; touch x", Deny),
        ("cat .env", Deny),
        ("python -c 'print(1)'", Deny),
        ("ls $x", Deny),
    ],
)
def test_read_only_is_read_only_through_the_shell(command: str, expected: type[Decision]) -> None:
    """D16: not even an allow of everything lifts the limit of a read-only preset."""
    preset = Preset(name="plan", ceilings=(PLAN,))
    scope = CallScope(risk=Risk.EXECUTE, subjects=(f"command:{command}",), workspace="/work")
    granted = [rule(Layer.GRANT, ALLOW, "*")]
    policy = replace(POLICY, rules=(rule(Layer.CONFIGURATION, ALLOW, "*"),))

    for rules, grants in ((POLICY, ()), (policy, granted)):
        found = decide(SHELL, rules, HERE, scope, askable=True, preset=preset, granted=grants)
        assert isinstance(found, Deny) is (expected is Deny)


@pytest.mark.parametrize("command", ["git diff", "git log -p -1", "grep -rn TODO ."])
def test_read_only_preset_asks_about_what_may_print_secrets(command: str) -> None:
    """As without a preset: it changes nothing, and an allow of the owner lets it run."""
    scope = CallScope(risk=Risk.EXECUTE, subjects=(f"command:{command}",), workspace="/work")
    allowing = replace(POLICY, rules=(rule(Layer.CONFIGURATION, ALLOW, "*"),))
    for preset in (Preset(name="build"), Preset(name="plan", ceilings=(PLAN,))):
        assert isinstance(decide(SHELL, POLICY, HERE, scope, askable=True, preset=preset), Ask)
        assert isinstance(decide(SHELL, POLICY, HERE, scope, askable=False, preset=preset), Deny)
        assert isinstance(decide(SHELL, allowing, HERE, scope, askable=True, preset=preset), Allow)


@pytest.mark.parametrize("subjects", [(), ("path:a.md",), ("command:git diff", "path:a.md"), ("command:",)])
def test_read_only_preset_permits_commands_alone(subjects: tuple[str, ...]) -> None:
    scope = CallScope(risk=Risk.EXECUTE, subjects=subjects, workspace="/work")
    assert isinstance(beyond(Preset(name="plan", ceilings=(PLAN,)), SHELL, scope), Deny)


def test_shell_stays_visible_where_some_commands_are_permitted() -> None:
    preset = Preset(name="plan", ceilings=(PLAN,))

    assert withheld(SHELL, POLICY, HERE, preset) is None
    assert withheld(replace(SHELL, subjects=None), POLICY, HERE, preset) is not None


@pytest.mark.parametrize("path", [".env", "deploy/.env/prod", "id_rsa", "tls/server.pem"])
def test_no_tool_touches_a_secret_file(path: str) -> None:
    """D18: the policy of secrets is apart from rules, which cannot lift it."""
    found = refused(CallScope(risk=Risk.READ, subjects=("path:notes", f"path:{path}")))
    assert found is not None
    assert found.reason is DenyReason.CONFIGURED
    assert "holds secrets" in found.hint


# --- presets in force -----------------------------------------------------------------------

KNOWN = Presets(
    by_name={
        "build": Preset(name="build"),
        "plan": Preset(name="plan", ceilings=(PLAN,), sandbox=SandboxPolicy.FULL, mode=PresetMode.PRIMARY),
        "small": Preset(
            name="small",
            generation=3,
            sandbox=SandboxPolicy.BASIC,
            rules=(rule(Layer.PRESET, DENY, "rm *", locked=True), rule(Layer.PRESET, ALLOW, "ls")),
        ),
    },
    defaults={"dm": "small"},
    generations={"non-main": 4},
)


def child(preset: str = "", *above: str, root: SessionKind = SessionKind.MAIN) -> Session:
    made = session(SessionKind.NON_MAIN, root=root, tools=("shell",))
    return replace(made, preset=preset, presets_above=above, lineage=lineage())


@pytest.mark.parametrize(
    ("where", "name", "generation", "sandbox", "ceilings"),
    [
        (session(), "build", 8, None, ()),
        (session(SessionKind.DM), "small", 3, SandboxPolicy.BASIC, ()),
        (session(SessionKind.NON_MAIN), "build", 4, None, ()),
        (replace(session(SessionKind.DM), preset="build"), "build", 8, None, ()),
        (replace(session(), preset="plan"), "plan", 8, SandboxPolicy.FULL, (PLAN,)),
        (child("", ""), "build", 8, None, ()),
        (child("", "plan"), "build", 8, SandboxPolicy.FULL, (PLAN,)),
        (child("small", "plan"), "small", 3, SandboxPolicy.FULL, (PLAN,)),
        (child("", "plan", "small"), "build", 3, SandboxPolicy.FULL, (PLAN,)),
        (child("", "", root=SessionKind.DM), "build", 3, SandboxPolicy.BASIC, ()),
        (child("build", "small"), "build", 3, SandboxPolicy.BASIC, ()),
    ],
)
def test_preset_in_force_has_the_limits_of_all_above(
    where: Session, name: str, generation: int, sandbox: SandboxPolicy | None, ceilings: tuple[Ceiling, ...]
) -> None:
    found = in_force(KNOWN, where)

    assert (found.name, found.generation, found.sandbox, found.ceilings) == (name, generation, sandbox, ceilings)


def test_child_of_a_plan_is_told_of_its_limits() -> None:
    own, plain = in_force(KNOWN, replace(child("small", "plan"))), in_force(KNOWN, child("", ""))

    assert (own.prompt, plain.prompt) == (UNDER_LIMITS, "")


def test_child_inherits_locked_denies_alone() -> None:
    for where in (child("build", "small"), child("", "", "", root=SessionKind.DM)):
        found = in_force(KNOWN, where)
        assert [(one.pattern, one.locked) for one in found.rules] == [("rm *", True)]
        assert found.above == (KNOWN.by_name["small"].rules,)


def test_strictest_containment_is_the_tightest_one() -> None:
    assert strictest([SandboxPolicy.OFF, None, SandboxPolicy.FULL, SandboxPolicy.BASIC]) is SandboxPolicy.FULL
    assert strictest([SandboxPolicy.BASIC, SandboxPolicy.OFF]) is SandboxPolicy.BASIC
    assert strictest([None]) is None


def test_way_out_of_a_plan_is_for_sessions_of_people() -> None:
    spec = replace(SPEC, name="plan_exit", risk=Risk.NONE, leaves_plan=True)
    plan, explore = KNOWN.by_name["plan"], Preset(name="explore", ceilings=(PLAN,))

    assert withheld(spec, POLICY, HERE, plan) is None
    assert withheld(spec, POLICY, HERE, explore) is not None
    assert withheld(spec, POLICY, HERE) == Deny(
        reason=DenyReason.CONFIGURED,
        hint="There is no plan to leave: plan_exit is for sessions whose preset plans. /plan begins planning.",
    )
    assert withheld(spec, POLICY, child("plan"), plan) is not None


def test_no_rule_leaves_a_plan_without_a_person() -> None:
    spec = replace(SPEC, name="plan_exit", risk=Risk.NONE, leaves_plan=True)
    policy = replace(POLICY, rules=(rule(Layer.CONFIGURATION, ALLOW, "*", tool="plan_exit"),))
    granted = [rule(Layer.GRANT, ALLOW, "*", tool="plan_exit")]
    scope = CallScope(risk=Risk.NONE)

    for askable, expected in ((True, Ask), (False, Deny)):
        found = decide(spec, policy, HERE, scope, askable=askable, preset=KNOWN.by_name["plan"], granted=granted)
        assert isinstance(found, expected)


def test_child_is_as_strict_as_the_presets_above_it() -> None:
    """A deny or ask of a parent's preset is no looser in its child, whose own preset says nothing of it."""
    above = (rule(Layer.PRESET, ALLOW, "*"), rule(Layer.PRESET, ASK, "push"), rule(Layer.PRESET, DENY, "rm"))
    preset = Preset(name="build", rules=(rule(Layer.PRESET, ALLOW, "*"),), above=(above,))

    def decided(subject: str) -> str:
        scope = CallScope(risk=Risk.WRITE, subjects=(f"path:{subject}",))
        return type(decide(SPEC, POLICY, HERE, scope, askable=True, preset=preset)).__name__

    assert [decided(one) for one in ("status", "push", "rm")] == ["Allow", "Ask", "Deny"]


def test_a_denied_path_is_hidden_from_searches() -> None:
    policy = replace(POLICY, rules=(rule(Layer.CONFIGURATION, DENY, "secrets/*", tool="*"),))
    hidden = hides(SPEC, policy, HERE, Preset(name="build"))
    assert [hidden(path) for path in ("secrets/pw", "notes", "secrets")] == [True, False, False]


@pytest.mark.parametrize(
    ("command", "masked"),
    [("make test", False), ("make test && cat notes", True), ("cat notes && make all", True)],
)
def test_reading_parts_beside_an_allowed_one_see_no_secrets(command: str, masked: bool) -> None:
    policy = replace(POLICY, rules=(rule(Layer.CONFIGURATION, ALLOW, "make *"),))
    found = decide(SPEC, policy, HERE, CallScope(risk=Risk.EXECUTE, subjects=(f"command:{command}",)), askable=True)
    assert isinstance(found, Allow)
    assert found.masked == masked
