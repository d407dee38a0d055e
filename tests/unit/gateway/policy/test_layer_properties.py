"""Properties of layered rules over random rules, presets and calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain.decisions import Allow, Ask, Decision, Deny
from gateway.domain.presets import Ceiling, Preset, PresetMode, Presets
from gateway.domain.rules import Layer, Rule, Verdict
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.tools import CallScope, Risk
from gateway.policy.layers import in_force, rules_of_call
from gateway.policy.permission import decide, withheld
from tests.support.proof import examples
from tests.support.turns import lineage
from tests.unit.gateway.policy.test_permission import POLICY, SPEC, session

RANK = {Deny: 0, Ask: 1, Allow: 2}
OWNERS = (Layer.PRESET, Layer.CONFIGURATION, Layer.SESSION)
EDIT = replace(SPEC, name="edit", risk=Risk.WRITE)
kinds = st.sampled_from([kind.value for kind in SessionKind])
patterns = st.sampled_from(["*", "a", "a/*", "a/b", "b", "*b", "?", "git *", "rm *", "git status"])
subjects = st.sampled_from(
    [
        "path:a",
        "path:a/b",
        "path:b",
        "host:a",
        "command:git status",
        "command:rm a",
        "command:git log && rm b",
        "command:rm $x",
    ]
)
risks = st.sampled_from(list(Risk))


@st.composite
def rules(draw: st.DrawFn, layers: Sequence[Layer] = (*OWNERS, Layer.GRANT)) -> Rule:
    layer = draw(st.sampled_from(layers))
    verdict = Verdict.ALLOW if layer is Layer.GRANT else draw(st.sampled_from(list(Verdict)))
    return Rule(
        tool="edit",
        pattern=draw(patterns),
        decision=verdict,
        kinds=frozenset(draw(st.lists(kinds, min_size=1))),
        locked=verdict is Verdict.DENY and draw(st.booleans()),
        where=layer.value,
        layer=layer,
    )


ceilings = st.builds(Ceiling, preset=st.just("p"), risks=st.frozensets(risks), writes=st.tuples(patterns, patterns))
scopes = st.builds(
    CallScope, risk=risks, subjects=st.one_of(st.just(()), st.tuples(subjects), st.tuples(subjects, subjects))
)


def session_of(kind: str, off: tuple[str, ...]) -> Session:
    return replace(session(SessionKind(kind)), tools_off=off)


def preset_of(found: list[Rule], limits: list[Ceiling], mode: PresetMode, generation: int) -> Preset:
    return Preset(name="p", rules=tuple(found), ceilings=tuple(limits), mode=mode, generation=generation)


off: Sequence[tuple[str, ...]] = [(), (), ("edit",), ("other",)]
sessions = st.builds(session_of, kinds, st.sampled_from(off))
presets = st.builds(
    preset_of,
    st.lists(rules([Layer.PRESET]), max_size=3),
    st.lists(ceilings, max_size=1),
    st.sampled_from(list(PresetMode)),
    st.integers(1, 8),
)


def decided(found: Sequence[Rule], where: Session, scope: CallScope, preset: Preset | None = None) -> Decision:
    """Decide under rules of any layer, each put where its layer takes it."""
    preset = preset or Preset(name="p")
    preset = replace(preset, rules=(*preset.rules, *(one for one in found if one.layer is Layer.PRESET)))
    policy = replace(POLICY, rules=tuple(one for one in found if one.layer in (Layer.CONFIGURATION, Layer.SESSION)))
    granted = tuple(one for one in found if one.layer is Layer.GRANT)
    return decide(EDIT, policy, where, scope, askable=True, preset=preset, granted=granted)


def rank(found: Decision) -> int:
    return RANK[type(found)]


@given(st.lists(rules(), max_size=6), rules(OWNERS), st.integers(0, 6), sessions, scopes)
@settings(max_examples=examples(100), deadline=None)
def test_one_more_deny_never_allows_more(
    found: list[Rule], more: Rule, at: int, where: Session, scope: CallScope
) -> None:
    deny = replace(more, decision=Verdict.DENY)
    with_deny = [*found[:at], deny, *found[at:]]

    assert rank(decided(with_deny, where, scope)) <= rank(decided(found, where, scope))


@given(st.lists(rules(), max_size=6), ceilings, presets, sessions, scopes)
@settings(max_examples=examples(100), deadline=None)
def test_one_more_ceiling_never_allows_more(
    found: list[Rule], ceiling: Ceiling, preset: Preset, where: Session, scope: CallScope
) -> None:
    tighter = replace(preset, ceilings=(*preset.ceilings, ceiling))

    assert rank(decided(found, where, scope, tighter)) <= rank(decided(found, where, scope, preset))


@given(st.lists(rules(OWNERS), max_size=6), st.lists(rules([Layer.GRANT]), max_size=3), sessions, scopes)
@settings(max_examples=examples(100), deadline=None)
def test_grants_lift_an_ask_and_never_a_deny(
    found: list[Rule], granted: list[Rule], where: Session, scope: CallScope
) -> None:
    before, after = decided(found, where, scope), decided([*found, *granted], where, scope)

    assert rank(after) >= rank(before)
    assert isinstance(after, Deny) is isinstance(before, Deny)


@given(st.lists(rules(), max_size=6), presets, sessions, st.lists(scopes, min_size=1, max_size=4))
@settings(max_examples=examples(100), deadline=None)
def test_hidden_tool_has_no_permitted_call(
    found: list[Rule], preset: Preset, where: Session, tried: list[CallScope]
) -> None:
    preset = replace(preset, rules=(*preset.rules, *(one for one in found if one.layer is Layer.PRESET)))
    policy = replace(POLICY, rules=tuple(one for one in found if one.layer in (Layer.CONFIGURATION, Layer.SESSION)))
    granted = tuple(one for one in found if one.layer is Layer.GRANT)
    if withheld(EDIT, policy, where, preset) is None:
        return

    for scope in tried:
        assert isinstance(decide(EDIT, policy, where, scope, askable=True, preset=preset, granted=granted), Deny)


@given(st.permutations([Layer.PRESET, Layer.CONFIGURATION, Layer.GRANT]))
def test_layers_have_one_order(shuffled: list[Layer]) -> None:
    """However the rules came in, a later layer stands behind an earlier one."""
    made = [
        Rule(tool="edit", pattern="*", decision=Verdict.ALLOW, kinds=frozenset({"main"}), layer=layer)
        for layer in shuffled
    ]
    preset = Preset(name="p", rules=tuple(one for one in made if one.layer is Layer.PRESET))
    policy = replace(POLICY, rules=tuple(one for one in made if one.layer is Layer.CONFIGURATION))
    granted = [one for one in made if one.layer is Layer.GRANT]

    found = rules_of_call(EDIT, policy, replace(session(), tools_off=("edit",)), preset, granted)

    assert [one.layer for one in found] == [Layer.PRESET, Layer.CONFIGURATION, Layer.SESSION, Layer.GRANT]


@given(presets, presets, presets, st.lists(rules([Layer.CONFIGURATION]), max_size=3), scopes, kinds)
@settings(max_examples=examples(100), deadline=None)
def test_child_is_never_freer_than_its_parent(
    above: Preset, own: Preset, default: Preset, found: list[Rule], scope: CallScope, kind: str
) -> None:
    """I12: whatever the preset of a child is, what the limits of its parent refuse is refused."""
    locked = replace(
        above, name="above", rules=tuple(replace(one, decision=Verdict.DENY, locked=True) for one in above.rules)
    )
    known = Presets(by_name={"above": locked, "own": own, "build": default})
    parent = replace(session(SessionKind(kind)), preset="above")
    child = replace(
        session(SessionKind.NON_MAIN, root=SessionKind(kind), tools=("edit",)),
        preset="own",
        presets_above=("above",),
        lineage=lineage(),
    )
    policy = replace(POLICY, rules=tuple(found))
    limits = replace(in_force(known, parent), rules=locked.rules)

    parents = decide(EDIT, replace(policy, rules=()), parent, scope, askable=True, preset=limits)
    childs = decide(EDIT, policy, child, scope, askable=True, preset=in_force(known, child))

    if isinstance(parents, Deny):
        assert isinstance(childs, Deny)
