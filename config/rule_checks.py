"""Checks of the owner's rules at load: warnings about those that never decide, contradict, or allow too much."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from gateway.domain.patterns import covers
from gateway.domain.rules import Rule, Verdict
from gateway.domain.tools import SubjectKind, ToolSpec

_SHELL = "shell"
_NAME_OF_HOST = re.compile(r"[A-Za-z0-9*?-]+(\.[A-Za-z0-9*?-]+)+")
_HOST = re.compile(r"[a-z0-9*?._:\[\]-]+")
_WIDE_HOST = re.compile(r"\*+\.?[^.*?]*")
"""Pattern of hosts that names at most one label: `*`, `*.com`, `*com`."""


def rule_warnings(
    rules: Sequence[Rule], specs: Mapping[str, ToolSpec], of_tool: Mapping[str, Sequence[Rule]]
) -> Iterator[str]:
    """Yield a sentence with place and cure for each rule that is likely a mistake, in the order of the rules.

    `of_tool`: by tool, the rules about it.
    """
    for n, rule in enumerate(rules):
        about = [specs[name] for name, some in of_tool.items() if any(one is rule for one in some)]
        never = _without_match(rule, about) or _behind_lock(rule, n, rules) or _covered(rule, rules[n + 1 :])
        if never:
            yield never
            continue
        yield from _in_capitals(rule, about)
        if rule.decision is Verdict.ALLOW:
            yield from _wide(rule, about)
        yield from _contradicted(rule, rules[n + 1 :])


def _covered(rule: Rule, later: Sequence[Rule]) -> str:
    """Return that a later rule matches all that this one does; empty when none does."""
    for one in later:
        # An allow of the shell matches fewer commands than its pattern says.
        reaches = one.decision is not Verdict.ALLOW or rule.decision is Verdict.ALLOW
        if reaches and not rule.locked and _holds_for(one, rule) and covers(one.pattern, rule.pattern):
            cure = "Remove it, or move it below that one."
            return (
                f"{rule.where} has no effect: {one.where} matches all that it does, and the last match decides. {cure}"
            )
    return ""


def _behind_lock(rule: Rule, n: int, rules: Sequence[Rule]) -> str:
    """Return that a locked deny matches all that the rule at `n` does; empty when none does."""
    for m, one in enumerate(rules):
        is_first = m < n or not rule.locked  # of two alike the later one is named
        if one.locked and m != n and is_first and _holds_for(one, rule) and covers(one.pattern, rule.pattern):
            return f"{rule.where} has no effect: the locked deny {one.where} comes first. Remove one of them."
    return ""


def _contradicted(rule: Rule, later: Sequence[Rule]) -> Iterator[str]:
    """Yield that a later rule says something else about the same calls, in a part of the kinds of session."""
    for one in later:
        same = (one.tool, one.pattern) == (rule.tool, rule.pattern) and one.decision is not rule.decision
        both = rule.kinds & one.kinds
        if same and both and not (rule.locked or one.locked):
            where = ", ".join(sorted(both))
            says = (
                f"{rule.where} says {rule.decision.value} and {one.where} says {one.decision.value} for the same calls"
            )
            yield f"{says} in {where}, where the later one decides. Remove one, or give them different `kinds`."


def _holds_for(wide: Rule, narrow: Rule) -> bool:
    return wide.tool in ("*", narrow.tool) and narrow.kinds <= wide.kinds


def _wide(rule: Rule, about: Sequence[ToolSpec]) -> Iterator[str]:
    everything = rule.pattern.strip("* ") == ""
    if everything and (rule.tool == _SHELL or not rule.tool.isidentifier()):
        what = "every plain command of the shell" if rule.tool == _SHELL else f"every call of {rule.tool}"
        what = "every tool" if rule.tool == "*" else what
        yield f"{rule.where} allows {what} without asking anyone; write what is really needed."
    elif _WIDE_HOST.fullmatch(rule.pattern) and any(_touches(spec, SubjectKind.HOST) for spec in about):
        hosts = "every host" if everything else f"every host that ends in {rule.pattern.lstrip('*')}"
        yield f'{rule.where} allows {hosts}; name hosts whole: "example.org", and "*.example.org" for those below it.'


def _in_capitals(rule: Rule, about: Sequence[ToolSpec]) -> Iterator[str]:
    """Yield that a rule with capitals matches files only, where a host seems to be meant."""
    pattern = rule.pattern
    of_hosts = rule.tool.isidentifier() and any(_touches(spec, SubjectKind.HOST) for spec in about)
    if of_hosts and pattern != pattern.lower() and _NAME_OF_HOST.fullmatch(pattern):
        cure = f'Write "{pattern.lower()[:100]}", unless a file is meant.'
        yield f"{rule.where} matches no host: hosts are in lower case. {cure}"


def _touches(spec: ToolSpec, kind: SubjectKind) -> bool:
    return spec.subjects is not None and kind in spec.subjects


# --- patterns that match nothing ------------------------------------------------------------------


def _without_match(rule: Rule, about: Sequence[ToolSpec]) -> str:
    """Return that no call of its tools can match a rule; empty when one can, or when that is not known."""
    reasons: list[str] = []
    for spec in about:
        if spec.subjects is None or rule.pattern == "*":
            return ""
        found = [_why_not(rule.pattern, kind) for kind in sorted(spec.subjects)]
        if not all(found):
            return ""
        reasons += found or [f'a call of {spec.name} touches nothing that a pattern could match. Write "*"']
    return f"{rule.where} has no effect: {reasons[-1]}." if reasons else ""


def _why_not(pattern: str, kind: SubjectKind) -> str:
    """Return why a pattern matches no subject of this kind, with the cure; empty when it may."""
    match kind:
        case SubjectKind.PATH if pattern.startswith("/"):
            return f'paths are relative to the workspace. Write "{pattern.lstrip("/")[:100] or "*"}"'
        case SubjectKind.PATH if ".." in pattern.replace("\\", "/").split("/"):
            return "paths have no `..`. Write the path from the workspace on"
        case SubjectKind.PATH if pattern.startswith("./"):
            return f'paths begin without `./`. Write "{pattern[2:][:100]}"'
        case SubjectKind.PATH if "//" in pattern:
            return 'paths have no `//`, and hosts no scheme. Write, for instance, "example.org"'
        case SubjectKind.HOST if pattern != pattern.lower():
            return f'hosts are in lower case. Write "{pattern.lower()[:100]}"'
        case SubjectKind.HOST if not _HOST.fullmatch(pattern):
            return 'a host has no scheme, path or spaces. Write, for instance, "example.org"'
        case _:
            return ""
