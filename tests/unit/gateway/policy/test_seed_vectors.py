"""Vectors and traps of the systems that this one learned from: each test names its row (S, D) of the requirements."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from config.load import Loaded, load
from config.plugins import tool_specs
from gateway.domain.decisions import Allow, Ask, Deny, DenyReason
from gateway.domain.presets import Preset
from gateway.domain.rules import Layer, Rule, Verdict
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.tools import ApprovalMode, Availability, CallScope, Risk, SubjectKind, ToolSpec
from gateway.errors import ConfigError
from gateway.policy.layers import NO_PRESET, in_force
from gateway.policy.permission import available, decide, withheld
from gateway.toolcalls.tool_aliases import ALIASES, repaired
from tests.support.turns import lineage
from tests.unit.gateway.policy.test_permission import POLICY, SPEC, session

ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY
LETTERS = {Allow: "allow", Ask: "ask", Deny: "deny"}
EDIT, READ = replace(SPEC, name="edit", risk=Risk.WRITE), replace(SPEC, name="read", risk=Risk.READ)
MAIN, DM, GROUP = session(), session(SessionKind.DM), session(SessionKind.NON_MAIN)


def rules(*given: tuple[str, Verdict], layer: Layer = Layer.CONFIGURATION, locked: bool = False) -> tuple[Rule, ...]:
    everywhere = frozenset(kind.value for kind in SessionKind)
    return tuple(
        Rule(tool="*", pattern=pattern, decision=verdict, kinds=everywhere, locked=locked, layer=layer)
        for pattern, verdict in given
    )


def decided(
    spec: ToolSpec,
    found: Sequence[Rule],
    subject: str,
    where: Session = MAIN,
    *,
    preset: Preset = NO_PRESET,
    granted: Sequence[Rule] = (),
) -> str:
    scope = CallScope(risk=spec.risk, subjects=(subject,))
    policy = replace(POLICY, rules=tuple(found))
    made = decide(spec, policy, where, scope, askable=True, preset=preset, granted=granted)
    return LETTERS[type(made)]


# --- permission vectors ---------------------------------------------------------------------

PLAN_FILE = rules(("*", ALLOW), ("*", DENY), (".opencode/plans/*.md", ALLOW))
GIT_ONLY = rules(("*", DENY), ("git *", ALLOW))
ENV = rules(("*", ALLOW), ("*.env", ASK), ("*.env.example", ALLOW))


@pytest.mark.parametrize(
    ("spec", "found", "subject", "decision"),
    [
        (EDIT, PLAN_FILE, "path:a.txt", "deny"),
        (EDIT, PLAN_FILE, "path:.opencode/plans/one.md", "allow"),
        (SPEC, GIT_ONLY, "command:git status", "allow"),
        (SPEC, GIT_ONLY, "command:git", "allow"),
        (SPEC, GIT_ONLY, "command:rm", "deny"),
        (SPEC, (), "command:rm", "ask"),
        (READ, ENV, "path:a/b/.env", "ask"),
        (READ, ENV, "path:.env.local", "allow"),
        (READ, ENV, "path:.env.example", "allow"),
    ],
)
def test_permission_vectors(spec: ToolSpec, found: Sequence[Rule], subject: str, decision: str) -> None:
    """S076 to S079, and the measured vectors of §5."""
    assert decided(spec, found, subject) == decision


@pytest.mark.parametrize(("spec", "found"), [(EDIT, PLAN_FILE), (SPEC, GIT_ONLY)])
def test_narrower_allow_keeps_a_tool_visible(spec: ToolSpec, found: Sequence[Rule]) -> None:
    """D09, S044: the last rule about the tool decides, and hides it only as a deny of everything."""
    policy = replace(POLICY, rules=tuple(found))

    assert withheld(spec, policy, MAIN) is None
    assert withheld(spec, replace(policy, rules=(*found, *rules(("*", DENY)))), MAIN) is not None


def test_deny_and_a_saved_allow_is_a_deny() -> None:
    """D14: grants are never above a deny, whichever layer it is of."""
    granted = rules(("*", ALLOW), layer=Layer.GRANT)
    preset = Preset(name="plan", rules=rules(("*", DENY), layer=Layer.PRESET))

    assert decided(EDIT, rules(("*", DENY)), "path:a", granted=granted) == "deny"
    assert decided(EDIT, (), "path:a", granted=granted, preset=preset) == "deny"
    assert decided(EDIT, (), "path:a", granted=granted) == "allow"


def test_configuration_does_not_loosen_a_read_only_preset() -> None:
    """D15: the owner's `"*" allow` or `ask` comes after the preset, and lifts no locked deny."""
    preset = Preset(name="plan", rules=rules(("*", DENY), layer=Layer.PRESET, locked=True))

    for verdict in (ALLOW, ASK):
        assert decided(EDIT, rules(("*", verdict)), "path:a", preset=preset) == "deny"
        assert withheld(EDIT, replace(POLICY, rules=rules(("*", verdict))), MAIN, preset) is not None


def test_rules_keep_the_order_of_their_file(tmp_path: Path) -> None:
    """D17: a list is never merged by key, so a narrow rule cannot land before a wide one."""
    found = configured(
        tmp_path,
        '[[rules]]\ntool = "shell"\npattern = "*"\ndecision = "ask"\n'
        '[[rules]]\ntool = "shell"\npattern = "git *"\ndecision = "allow"\n'
        '[[rules]]\ntool = "shell"\npattern = "git push *"\ndecision = "deny"\n',
    )

    assert [one.pattern for one in found.tools["shell"].rules] == ["*", "git *", "git push *"]


def test_automatic_approval_never_overrides_a_deny() -> None:
    """D46: `approval = "allow"` is the default before any rule, and covers only the tool's own risk."""
    policy = replace(POLICY, approval={"main": ApprovalMode.ALLOW}, rules=rules(("secret/*", DENY)))
    secret = CallScope(risk=Risk.WRITE, subjects=("path:secret/a",))

    assert isinstance(decide(EDIT, policy, MAIN, secret, askable=True), Deny)
    assert isinstance(decide(EDIT, policy, MAIN, CallScope(risk=Risk.WRITE), askable=True), Allow)
    assert isinstance(decide(EDIT, policy, MAIN, CallScope(risk=Risk.EXECUTE), askable=True), Ask)
    assert isinstance(decide(EDIT, policy, DM, CallScope(risk=Risk.WRITE), askable=True), Ask)


def test_risk_alone_decides_the_default(tmp_path: Path) -> None:
    """D47: no second field can contradict it; the configuration knows none."""
    with pytest.raises(ConfigError, match="requires_permission"):
        configured(tmp_path, "[tools.shell]\nrequires_permission = false\n")


def test_spawning_gives_no_right_that_the_parent_lacks() -> None:
    """D48: a child has its own tools only, under the rules of its root's kind and the denies of its parent's preset."""
    parent_preset = Preset(name="plan", rules=rules(("*", DENY), layer=Layer.PRESET, locked=True))
    child = replace(session(SessionKind.NON_MAIN, root=SessionKind.DM, tools=("edit",)), lineage=lineage())

    assert decided(SPEC, (), "command:ls", child) == "deny"
    assert decided(EDIT, (), "path:a", child, preset=parent_preset) == "deny"
    assert available("edit", Availability.MAIN, child) is not None


@pytest.mark.parametrize("name", [*ALIASES, "Shell", "READ", "Read_File"])
def test_names_of_other_systems_reach_their_tool(name: str) -> None:
    """D49: the canonical name is in the table of tools, an alias never is."""
    known = {*ALIASES.values(), "read"}

    assert repaired(name, known) in known
    assert not known & set(ALIASES)
    assert repaired(name, {"other"}) == name


def test_session_deny_hides_as_it_denies() -> None:
    """D62, D63: what people switch off is one rule for the filter and for the decision."""
    off = replace(MAIN, tools_off=("edit",))

    assert withheld(EDIT, POLICY, off) is not None
    assert decided(EDIT, rules(("*", ALLOW)), "path:a", off) == "deny"
    assert withheld(READ, POLICY, off) is None


# --- kind vectors ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "availability", "there"),
    [
        (MAIN, Availability.ALWAYS, True),
        (DM, Availability.ALWAYS, True),
        (MAIN, Availability.MAIN, True),
        (DM, Availability.MAIN, False),
        (GROUP, Availability.MAIN, False),
        (session(SessionKind.NON_MAIN, root=SessionKind.MAIN, tools=()), Availability.MAIN, False),
        (session(SessionKind.NON_MAIN, root=SessionKind.MAIN, tools=("edit",)), Availability.MAIN, True),
        (MAIN, Availability.NON_MAIN, False),
        (DM, Availability.NON_MAIN, True),
        *((where, Availability.BLOCKED, False) for where in (MAIN, DM, GROUP)),
    ],
)
def test_kind_vectors(where: Session, availability: Availability, there: bool) -> None:
    """S106 to S113: the table of §5; a sub-session has what its parent granted."""
    found = withheld(EDIT, replace(POLICY, availability=availability), where)

    assert (found is None) is there


def test_unknown_availability_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="permission"):
        configured(tmp_path, '[tools.shell]\npermission = "sometimes"\n')


def test_direct_chats_of_others_are_said_not_to_be_main() -> None:
    """S108."""
    found = withheld(EDIT, replace(POLICY, availability=Availability.MAIN), DM)

    assert found is not None
    assert (found.reason, "not main" in found.hint) == (DenyReason.ONLY_IN_MAIN, True)


def test_non_main_is_warned_of(tmp_path: Path) -> None:
    """D31: as a permission of a tool it hides the tool from the owner."""
    found = configured(tmp_path, '[tools.sessions_list]\npermission = "non-main"\n')

    assert any("sessions_list" in line and "hides it from the owners' own sessions" in line for line in found.warnings)


# --- visibility -----------------------------------------------------------------------------


def configured(folder: Path, text: str) -> Loaded:
    file = folder / "config.toml"
    file.write_text(text)
    return load(file, folder, {}, tool_specs())


@cache
def defaults() -> Loaded:
    """The configuration that says nothing, with Dragoman's own tools."""
    return load(None, "/nowhere", {"HOME": "/nowhere"}, tool_specs())


def probes(spec: ToolSpec) -> Iterator[CallScope]:
    """Yield calls of a tool, the most harmless ones among them."""
    texts = {
        SubjectKind.PATH: ["plans/a.md", "src/a.py"],
        SubjectKind.COMMAND: ["ls", "rm a"],
        SubjectKind.HOST: ["example.org"],
        SubjectKind.CHAT: ["-1003"],
    }
    kinds = spec.subjects if spec.subjects is not None else frozenset(SubjectKind)
    named = [(f"{kind.value}:{text}",) for kind in kinds for text in texts[kind]]
    for subjects, risk in itertools.product([(), *named], {Risk.NONE, Risk.READ, spec.risk}):
        yield CallScope(risk=risk, subjects=subjects, workspace="/work")


@pytest.mark.parametrize("name", sorted(tool_specs()))
@pytest.mark.parametrize("preset", ["build", "plan", "explore"])
@pytest.mark.parametrize("off", [False, True])
def test_offered_and_permitted_are_the_same(name: str, preset: str, off: bool) -> None:
    """D10, S042 to S045: each tool of Dragoman, in each kind of session, under each preset."""
    found = defaults()
    spec, policy = tool_specs()[name], found.tools[name]
    child = replace(session(SessionKind.NON_MAIN, root=SessionKind.MAIN, tools=(name,)), lineage=lineage())
    for where in (MAIN, DM, GROUP, child, replace(child, tools=())):
        here = replace(where, preset=preset, tools_off=(name,) if off else ())
        limits = in_force(found.presets, here)

        visible = withheld(spec, policy, here, limits) is None
        permitted = [
            not isinstance(decide(spec, policy, here, scope, askable=True, preset=limits), Deny)
            for scope in probes(spec)
        ]

        assert visible is any(permitted), (where, visible)


def test_plan_offers_reading_and_writing_of_plans() -> None:
    """S094, S096: a plan can look and write its plan, build can do everything that is configured."""
    found = defaults()

    def offered(preset: str) -> set[str]:
        here = replace(MAIN, preset=preset)
        limits = in_force(found.presets, here)
        return {name for name, spec in tool_specs().items() if withheld(spec, found.tools[name], here, limits) is None}

    assert {"read", "write", "edit", "shell", "plan_exit", "sessions_spawn"} <= offered("plan")
    assert "browser" not in offered("plan")
    assert offered("explore") == offered("plan") - {"plan_exit", "write", "edit", "multiedit", "apply_patch", "undo"}
    assert offered("build") == set(tool_specs()) - {"plan_exit"}
