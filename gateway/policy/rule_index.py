"""Index of an owner's rules, made once for the same list of them. Pure; used by `rules`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import is_

from gateway.domain.patterns import expression
from gateway.domain.rules import Layer, Rule, Verdict
from gateway.policy.shell.folders import folder_of, is_about_command
from gateway.policy.shell.places import is_outside, overlap
from gateway.policy.shell.taking import is_about_files

WILDCARD = re.compile(r"[*?]")
_WORKSPACES_KEPT = 16
"""Workspaces for which an index keeps its rules about files."""


def _unmatched(_: str) -> None:
    """Fit no text: a rule that was found, and is not compared again."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Rule with its position in the order."""

    rule: Rule
    at: int = -1
    match: Callable[[str], object] = _unmatched
    """Match of the rule's pattern with a whole text; None when it does not fit."""


@dataclass(slots=True)
class Bucket:
    """Rules by the first word of their pattern; those with a wildcard in it stand apart. The last rule is first."""

    by_word: dict[str, list[Placed]] = field(default_factory=dict[str, list[Placed]])
    any_word: list[Placed] = field(default_factory=list[Placed])

    def add(self, one: Placed) -> None:
        """Add the next rule."""
        first = one.rule.pattern.replace("\\", "/").partition(" ")[0]
        if WILDCARD.search(first):
            self.any_word.insert(0, one)
        else:
            self.by_word.setdefault(first, []).insert(0, one)

    def last(self, text: str, above: int = -1) -> Placed | None:
        """Return the last rule that fits a text, when it stands after the position `above`."""
        best: Placed | None = None
        for rules in (self.by_word.get(text.partition(" ")[0], ()), self.any_word):
            for one in rules:
                if one.at <= above:
                    break
                if one.match(text) is not None:
                    best, above = one, one.at
                    break
        return best

    def fitting(self, text: str, above: int = -1) -> list[Placed]:
        """Return all rules after the position `above` that fit a text."""
        near = (*self.by_word.get(text.partition(" ")[0], ()), *self.any_word)
        return [one for one in near if one.at > above and one.match(text) is not None]


@dataclass(frozen=True, slots=True)
class FileRule:
    """Rule about files of a workspace."""

    rule: Rule
    pattern: str
    """Pattern of paths relative to the workspace."""
    begin: str
    """Literal prefix of the pattern, up to its first wildcard."""
    match: Callable[[str], object]
    """Match of the pattern with a whole path."""


@dataclass(frozen=True, slots=True)
class FileRules:
    """Rules about files of a workspace, the last one first."""

    rules: Sequence[FileRule]
    by_letter: Mapping[str, Sequence[int]]
    """Positions by the first letter of the pattern; empty: those that begin with a wildcard."""

    def near(self, text: str) -> Iterator[int]:
        """Yield the positions of the rules that may fit a file that a pattern stands for."""
        begin = WILDCARD.split(text)[0]
        places = (*self.by_letter.get(begin[:1], ()), *self.by_letter.get("", ())) if begin else range(len(self.rules))
        for at in places:
            one = self.rules[at]
            if begin == text:
                if text.startswith(one.begin) and one.match(text) is not None:
                    yield at
            elif (begin.startswith(one.begin) or one.begin.startswith(begin)) and overlap(one.pattern, text):
                yield at


@dataclass(slots=True)
class Allows:
    """Rules that allow."""

    rules: Bucket = field(default_factory=Bucket)
    exact: dict[str, Placed] = field(default_factory=dict[str, Placed])
    """Those without wildcards, by their pattern as written; the last one of each."""


@dataclass(slots=True)
class RuleIndex:
    """Rules that hold in one kind of session, ready to be compared."""

    outright: Rule | None = None
    """Rule that denies every call."""
    locks: bool = False
    """True when there are locked denies."""
    locked: Bucket = field(default_factory=Bucket)
    blocks: Bucket = field(default_factory=Bucket)
    """Rules that deny or ask."""
    allows: Allows = field(default_factory=Allows)
    grants: Allows = field(default_factory=Allows)
    folders: list[tuple[str, Rule]] = field(default_factory=list[tuple[str, Rule]])
    """Folders that the patterns of such rules name, each with a slash and its rule."""
    begins: tuple[str, ...] = ()
    """Begins of the paths that such rules fit."""
    anywhere: bool = False
    """True when one of them fits paths in any folder."""
    beneath: Bucket = field(default_factory=Bucket)
    """Those of them about paths in folders."""
    restricting: list[Rule] = field(default_factory=list[Rule])
    """Rules that deny or ask, the last one first."""
    files: list[Rule] = field(default_factory=list[Rule])
    """Those of them about files."""
    _files_in: dict[str, FileRules] = field(default_factory=dict[str, FileRules])

    def taken(self, texts: Sequence[str] | None, workspace: str) -> list[Rule]:
        """Return the rules about files that fit one of the patterns, the last one first. None: about any file."""
        files = self._of_workspace(workspace)
        if texts is None:
            return [one.rule for one in files.rules]
        found = {at for text in texts for at in files.near(text)}
        return [files.rules[at].rule for at in sorted(found)]

    def _of_workspace(self, workspace: str) -> FileRules:
        if (known := self._files_in.get(workspace)) is not None:
            return known
        if len(self._files_in) >= _WORKSPACES_KEPT:
            self._files_in.clear()
        rules, by_letter = [one for rule in self.files for one in _file_rules(rule, workspace)], dict[str, list[int]]()
        for at, one in enumerate(rules):
            by_letter.setdefault(one.begin[:1], []).append(at)
        made = self._files_in[workspace] = FileRules(rules, by_letter)
        return made

    def beneath_folder(self, rule: Rule) -> None:
        """Add the folder that a rule's pattern names."""
        folder = f"{folder_of(rule.pattern)}/"
        if folder == "/":
            self.anywhere = True
            return
        if folder not in self.begins:
            self.begins += (folder,)
        if not is_about_command(rule.pattern):
            self.folders.append((folder, rule))


def _file_rules(rule: Rule, workspace: str) -> Iterator[FileRule]:
    """Yield a rule as one about files of a workspace; nothing when it is about files elsewhere."""
    pattern = rule.pattern.replace("\\", "/")
    if workspace:
        pattern = pattern.removeprefix(f"{workspace}/")
    if pattern and not is_outside(pattern):
        begin = WILDCARD.split(pattern)[0]
        yield FileRule(rule, pattern, begin, expression(pattern).fullmatch)


class _Same:
    """Key of a list of rules, equal for lists of the very same rules."""

    __slots__ = ("rules",)

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules

    def __hash__(self) -> int:
        return hash((len(self.rules), id(self.rules[0]), id(self.rules[-1]))) if self.rules else 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and (self.rules is other.rules or self._has_all_of(other.rules))

    def _has_all_of(self, rules: Sequence[Rule]) -> bool:
        return len(self.rules) == len(rules) and all(map(is_, self.rules, rules))


def indexed(rules: Sequence[Rule], kind: str) -> RuleIndex:
    """Return the index of a list of rules, made once for the same rules."""
    return _index(_Same(tuple(rules)), kind)


@lru_cache(maxsize=64)
def _index(rules: _Same, kind: str) -> RuleIndex:
    index = RuleIndex(outright=_outright(rules.rules, kind))
    for at, rule in enumerate(rules.rules):
        if kind not in rule.kinds:
            continue
        one = Placed(rule, at, expression(rule.pattern).fullmatch)
        if rule.layer is Layer.GRANT or rule.decision is Verdict.ALLOW:
            allows = index.grants if rule.layer is Layer.GRANT else index.allows
            allows.rules.add(one)
            if not WILDCARD.search(rule.pattern):
                allows.exact[rule.pattern] = one
            continue
        index.blocks.add(one)
        if "/" in rule.pattern.replace("\\", "/"):
            index.beneath.add(one)
            index.beneath_folder(rule)
        index.restricting.insert(0, rule)
        if is_about_files(rule.pattern):
            index.files.insert(0, rule)
        if rule.locked:
            index.locked.add(one)
            index.locks = True
    return index


def _outright(rules: Sequence[Rule], kind: str) -> Rule | None:
    here = [rule for rule in rules if kind in rule.kinds and rule.layer is not Layer.GRANT]
    locked = next((rule for rule in here if rule.locked and rule.pattern == "*"), None)
    if locked is not None:
        return locked
    for rule in reversed(here):
        if rule.decision is not Verdict.DENY:
            return None
        if rule.pattern == "*":
            return rule
    return None
