"""Layers of rules: the one ordered list that filter and decision share, and the presets in force. Pure functions.

The order is preset, configuration, session, grants. Locked denies of every layer come first, which `rules.evaluate`
does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gateway.domain.decisions import Deny, DenyReason
from gateway.domain.patterns import fits
from gateway.domain.presets import BUILD, Ceiling, Preset, PresetMode, Presets
from gateway.domain.rules import Layer, Rule, Verdict
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.tools import CallScope, Risk, SandboxPolicy, SubjectKind, ToolPolicy, ToolSpec
from gateway.policy.rules import only_looks

EVERYWHERE = frozenset(kind.value for kind in SessionKind)
UNDER_LIMITS = "You can read and look things up, and cannot change anything; nor can the session above you."
"""Part of the system prompt for a child without one of its own, below a read-only preset."""
NO_PRESET = Preset(name=BUILD)
"""Preset without any rule or limit."""


def rules_of_call(
    spec: ToolSpec, policy: ToolPolicy, session: Session, preset: Preset = NO_PRESET, granted: Sequence[Rule] = ()
) -> tuple[Rule, ...]:
    """Return the rules about a tool in a session, in the order of their layers.

    `preset`: the one in force, as `in_force` returns it. `granted`: rules that the grants of people stand for.
    """
    if not preset.rules and not granted and spec.name not in session.tools_off:
        return policy.rules  # the same list each time, whose index is kept
    groups = spec.groups
    of_preset = (rule for rule in preset.rules if rule.is_for(spec.name, policy.source, groups))
    of_grants = (rule for rule in granted if rule.is_for(spec.name, policy.source, groups))
    return (*of_preset, *policy.rules, *_of_session(spec.name, session), *of_grants)


def rules_above(spec: ToolSpec, policy: ToolPolicy, preset: Preset) -> list[tuple[Rule, ...]]:
    """Return the rules about a tool in each session above a sub-session, in the order of their layers."""
    if not preset.above:
        return []
    groups = spec.groups
    lists = (tuple(rule for rule in rules if rule.is_for(spec.name, policy.source, groups)) for rules in preset.above)
    return [(*rules, *policy.rules) for rules in lists if rules]


def _of_session(tool: str, session: Session) -> tuple[Rule, ...]:
    """Return the rules that people gave this session: tools that they switched off."""
    if tool not in session.tools_off:
        return ()
    where = f"/tools off {tool} in this session"
    off = Rule(tool=tool, pattern="*", decision=Verdict.DENY, kinds=EVERYWHERE, where=where, layer=Layer.SESSION)
    return (off,)


def in_force(presets: Presets, session: Session) -> Preset:
    """Return the preset of a session, with the limits of those above it: a child is never freer than its parent.

    A session whose preset is no longer there may call no tool.
    """
    kind = session.root_kind
    default = presets.defaults.get(kind, BUILD)
    own = _named(presets, session.preset or (default if session.lineage is None else BUILD))
    above = [_named(presets, name or (BUILD if n else default)) for n, name in enumerate(session.presets_above)]
    generation = min(one.generation for one in (own, *above))
    generation = min(generation, presets.generations.get(kind, generation))
    if not above and generation == own.generation:
        return own
    locked = (rule for one in above for rule in one.rules if rule.locked)
    return replace(
        own,
        rules=(*locked, *own.rules),
        above=tuple(one.rules for one in above if one.rules),
        ceilings=tuple(ceiling for one in (*above, own) for ceiling in one.ceilings),
        sandbox=strictest(one.sandbox for one in (own, *above)),
        generation=generation,
        prompt=own.prompt or next((UNDER_LIMITS for one in above if one.read_only), ""),
    )


def _named(presets: Presets, name: str) -> Preset:
    return presets.by_name.get(name) or _gone(name)


def strictest(policies: Iterable[SandboxPolicy | None]) -> SandboxPolicy | None:
    """Return the containment that satisfies all of these; None when none is named."""
    known = [one for one in policies if one is not None]
    return max(known, key=list(SandboxPolicy).index, default=None)


def _gone(name: str) -> Preset:
    """Return the preset in place of one that was removed from the configuration. It denies every call."""
    where = f"preset {name}, which is not configured any more; choose another one with /preset"
    rule = Rule(
        tool="*", pattern="*", decision=Verdict.DENY, kinds=EVERYWHERE, locked=True, where=where, layer=Layer.PRESET
    )
    return Preset(name=name, rules=(rule,))


def withheld_by(preset: Preset, spec: ToolSpec, session: Session) -> Deny | None:
    """Return the reason why a preset permits no call of a tool; None when it permits some."""
    needed = spec.generation
    if needed > preset.generation:
        hint = f"{spec.name} is of generation {needed}; here tools go up to generation {preset.generation}."
        return Deny(reason=DenyReason.CONFIGURED, hint=hint)
    if spec.leaves_plan and not (preset.read_only and preset.mode is PresetMode.PRIMARY and session.lineage is None):
        hint = f"There is no plan to leave: {spec.name} is for sessions whose preset plans. /plan begins planning."
        return Deny(reason=DenyReason.CONFIGURED, hint=hint)
    if spec.enters_plan and (preset.read_only or session.lineage is not None):
        hint = f"{spec.name} is for sessions of people that may change something. This one plans, or looks only."
        return Deny(reason=DenyReason.CONFIGURED, hint=hint)
    for ceiling in preset.ceilings:
        if spec.risk not in ceiling.risks and not _excepts(ceiling, spec):
            return _beyond(ceiling, spec, spec.risk)
    return None


def _excepts(ceiling: Ceiling, spec: ToolSpec) -> bool:
    """Return whether a tool beyond a ceiling has calls that are not: excepted paths, commands that only read."""
    if spec.risk is Risk.WRITE:
        return bool(ceiling.writes)
    commands = spec.subjects is not None and SubjectKind.COMMAND in spec.subjects
    return spec.risk is Risk.EXECUTE and commands and Risk.READ in ceiling.risks


def beyond(preset: Preset, spec: ToolSpec, call_scope: CallScope) -> Deny | None:
    """Return the reason why a preset never permits this call; None when it does."""
    for ceiling in preset.ceilings:
        if call_scope.risk in ceiling.risks:
            continue
        if not _is_excepted(ceiling, call_scope):
            return _beyond(ceiling, spec, call_scope.risk)
    return None


def _is_excepted(ceiling: Ceiling, call_scope: CallScope) -> bool:
    match call_scope.risk:
        case Risk.WRITE:
            return _writes_only(ceiling, call_scope)
        case Risk.EXECUTE:
            return Risk.READ in ceiling.risks and only_looks(call_scope)
        case _:
            return False


def _writes_only(ceiling: Ceiling, call_scope: CallScope) -> bool:
    """Return whether a call touches nothing but paths that the ceiling excepts."""
    kinds = {subject.partition(":")[0] for subject in call_scope.subjects}
    paths = [subject.partition(":")[2] for subject in call_scope.subjects]
    return kinds == {SubjectKind.PATH} and all(any(fits(one, path) for one in ceiling.writes) for path in paths)


def _beyond(ceiling: Ceiling, spec: ToolSpec, risk: Risk) -> Deny:
    only = f" It may write {' and '.join(ceiling.writes)} only." if ceiling.writes and risk is Risk.WRITE else ""
    if risk is Risk.EXECUTE and Risk.READ in ceiling.risks:
        only = " Commands that only read files of the workspace are permitted."
    hint = f"The preset {ceiling.preset} does not permit {spec.name} here, since its risk is {risk.value}.{only}"
    return Deny(reason=DenyReason.CONFIGURED, hint=hint)
