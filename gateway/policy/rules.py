"""Evaluation of the owner's rules over the subjects of a call. Pure; used by `permission`.

A shell script is compared part by part (`gateway.policy.shell`). A deny or ask rule matches any reading of a part, so
it may match too much, never too little. An allow rule covers a script when each part of it is allowed or only reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from operator import is_

from gateway.domain.patterns import expression, fits
from gateway.domain.rules import Layer, Rule, Verdict
from gateway.domain.sessions import SessionKind
from gateway.domain.tools import CallScope, SubjectKind
from gateway.policy.shell import Part, PartKind, Place, Script, is_secret, parse, readers
from gateway.policy.shell.folders import folder_of, is_above, named_folders
from gateway.policy.shell.places import SHARED, as_pattern, is_outside, overlap, paths_in, resolved
from gateway.policy.shell.reading import ANYWHERE, is_standard

_WILDCARD = re.compile(r"[*?]")
_GIT_VALUED = frozenset({"-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--attr-source"})
_NAMES_ONLY = frozenset({"cd", "ls", "dir", "stat", "du", "tree", "echo", "printf", "git"})
"""Programs that do not read what is in the folders that they are given; `git` reads what was committed."""
ANY_NAME = "\0"
"""Name that no file has: a rule that fits it in a folder fits all that is there."""
_COMMAND = f"{SubjectKind.COMMAND}:"
BLURRED_AT_MOST = 500
"""Characters of a command with expansions that are compared with rules; a longer one may be about any of them."""


def _unmatched(_: str) -> None:
    """Fit no text: a rule that was found, and is not compared again."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """Rule with its position in the order."""

    rule: Rule
    at: int = -1
    match: Callable[[str], object] = _unmatched
    """Match of the rule's pattern with a whole text; None when it does not fit."""


@dataclass(slots=True)
class _Bucket:
    """Rules by the first word of their pattern; those with a wildcard in it stand apart. The last rule is first."""

    by_word: dict[str, list[_Placed]] = field(default_factory=dict[str, list[_Placed]])
    any_word: list[_Placed] = field(default_factory=list[_Placed])

    def add(self, one: _Placed) -> None:
        """Add the next rule."""
        first = one.rule.pattern.replace("\\", "/").partition(" ")[0]
        if _WILDCARD.search(first):
            self.any_word.insert(0, one)
        else:
            self.by_word.setdefault(first, []).insert(0, one)

    def last(self, text: str, above: int = -1) -> _Placed | None:
        """Return the last rule that fits a text, when it stands after the position `above`."""
        best: _Placed | None = None
        for rules in (self.by_word.get(text.partition(" ")[0], ()), self.any_word):
            for one in rules:
                if one.at <= above:
                    break
                if one.match(text) is not None:
                    best, above = one, one.at
                    break
        return best

    def fitting(self, text: str, above: int = -1) -> list[_Placed]:
        """Return all rules after the position `above` that fit a text."""
        near = (*self.by_word.get(text.partition(" ")[0], ()), *self.any_word)
        return [one for one in near if one.at > above and one.match(text) is not None]


@dataclass(slots=True)
class _Allows:
    """Rules that allow."""

    rules: _Bucket = field(default_factory=_Bucket)
    exact: dict[str, _Placed] = field(default_factory=dict[str, _Placed])
    """Those without wildcards, by their pattern as written; the last one of each."""


@dataclass(slots=True)
class _Index:
    """Rules that hold in one kind of session, ready to be compared."""

    outright: Rule | None = None
    """Rule that denies every call."""
    locks: bool = False
    """True when there are locked denies."""
    locked: _Bucket = field(default_factory=_Bucket)
    blocks: _Bucket = field(default_factory=_Bucket)
    """Rules that deny or ask."""
    allows: _Allows = field(default_factory=_Allows)
    grants: _Allows = field(default_factory=_Allows)
    folders: list[tuple[str, Rule]] = field(default_factory=list[tuple[str, Rule]])
    """Folders that the patterns of such rules name, each with its rule."""
    begins: set[str] = field(default_factory=set[str])
    """Begins of the paths that such rules fit."""
    anywhere: bool = False
    """True when one of them fits paths in any folder."""
    beneath: _Bucket = field(default_factory=_Bucket)
    """Those of them about paths in folders."""
    restricting: list[Rule] = field(default_factory=list[Rule])
    """Rules that deny or ask, the last one first."""


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


def evaluate(rules: Sequence[Rule], subjects: Sequence[str], kind: str, place: Place = ANYWHERE) -> Rule | None:
    """Return the rule that decides a call, or None when the default of its risk does.

    `rules`: those of the tool, in the order of `layers.rules_of_call`. `subjects`: as in `CallScope`. `place`: where
    its commands run. A locked deny comes first, then any deny, then any ask. A call is allowed when each of its
    subjects is. A grant decides only about a subject that the other rules ask about, or say nothing of.
    """
    if not rules:
        return None
    index, found = _indexed(rules, kind), list[Rule | None]()
    for subject in subjects or ("",):
        if subject.startswith(_COMMAND):
            found.extend(_script(index, parse(subject[len(_COMMAND) :]), kind, place))
        else:
            found.append(_rule(_last(index, subject)))
    for decides in (_is_locked, _denies, _asks):
        for rule in found:
            if rule is not None and decides(rule):
                return rule
    return None if None in found else found[-1]


def written_outside(rules: Sequence[Rule], subjects: Sequence[str], kind: str, place: Place = ANYWHERE) -> str:
    """Return the first file outside the workspace that a redirect writes and no rule is about; empty for none."""
    index = _indexed(rules, kind)
    for subject in subjects:
        if not subject.startswith(_COMMAND):
            continue
        script = parse(subject[len(_COMMAND) :])
        for part in script.parts:
            if part.kind is not PartKind.WRITE or part.why_ask:
                continue
            outside = [one for one in resolved(part.words[0], part.folders, place) or () if is_outside(one)]
            if outside and not outside[0].startswith(SHARED) and _part(index, script, part, place) is None:
                return part.words[0]
    return ""


def place_of(call_scope: CallScope) -> Place:
    """Return where the commands of a call run."""
    return Place(workspace=call_scope.workspace, folder=call_scope.folder)


def only_reads(call_scope: CallScope) -> bool:
    """Return whether a call does nothing but run commands that only read inside the workspace."""
    texts = [one[len(_COMMAND) :] for one in call_scope.subjects if one.startswith(_COMMAND)]
    if not texts or len(texts) != len(call_scope.subjects):
        return False
    place = place_of(call_scope)
    return all(found and all(found) for found in (readers(text, place) for text in texts))


def some_part_reads(call_scope: CallScope, rule: Rule) -> bool:
    """Return whether a rule allows a command only together with parts that need no rule, since they only read."""
    texts = [one[len(_COMMAND) :] for one in call_scope.subjects if one.startswith(_COMMAND)]
    place = place_of(call_scope)
    return any(text != rule.pattern and any(readers(text, place)) for text in texts)


def denied_outright(rules: Sequence[Rule], kind: str) -> Rule | None:
    """Return the rule that denies every call of a tool, or None. A later rule that allows or asks keeps it visible."""
    return _indexed(rules, kind).outright


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


def _is_locked(rule: Rule) -> bool:
    return rule.locked


def _denies(rule: Rule) -> bool:
    return rule.decision is Verdict.DENY


def _asks(rule: Rule) -> bool:
    return rule.decision is Verdict.ASK


# --- an index of rules ------------------------------------------------------------------------------------------------


def _indexed(rules: Sequence[Rule], kind: str) -> _Index:
    """Return the index of a list of rules, made once for the same rules."""
    return _index(_Same(tuple(rules)), kind)


@lru_cache(maxsize=64)
def _index(rules: _Same, kind: str) -> _Index:
    index = _Index(outright=_outright(rules.rules, kind))
    for at, rule in enumerate(rules.rules):
        if kind not in rule.kinds:
            continue
        one = _Placed(rule, at, expression(rule.pattern).fullmatch)
        if rule.layer is Layer.GRANT or rule.decision is Verdict.ALLOW:
            allows = index.grants if rule.layer is Layer.GRANT else index.allows
            allows.rules.add(one)
            if not _WILDCARD.search(rule.pattern):
                allows.exact[rule.pattern] = one
            continue
        index.blocks.add(one)
        if "/" in rule.pattern.replace("\\", "/"):
            index.beneath.add(one)
            index.folders.append((folder_of(rule.pattern), rule))
            index.begins.add(f"{folder_of(rule.pattern)}/")
            index.anywhere |= not folder_of(rule.pattern)
        index.restricting.insert(0, rule)
        if rule.locked:
            index.locked.add(one)
            index.locks = True
    return index


def _rule(found: _Placed | None) -> Rule | None:
    return None if found is None else found.rule


def _last(index: _Index, subject: str) -> _Placed | None:
    """Return the rule that decides about a subject which is no command, or about a call without subjects."""
    kind, _, text = subject.partition(":")
    text = text.replace("\\", "/")
    if not kind:
        return _everything(index)
    found = index.locked.last(text)
    if found is not None:
        return found
    found = index.blocks.last(text)
    found = index.allows.rules.last(text, _after(found)) or found
    return (index.grants.rules.last(text) if _may_be_granted(found) else None) or found


def _everything(index: _Index) -> _Placed | None:
    """Return the rule that decides about a call without subjects: its pattern is `*`."""
    buckets = (index.locked, index.blocks, index.allows.rules, index.grants.rules)
    locked, block, allow, grant = (
        next((one for one in bucket.any_word if one.rule.pattern == "*"), None) for bucket in buckets
    )
    if locked is not None:
        return locked
    found = max(allow, block, key=_after)
    return (grant if _may_be_granted(found) else None) or found


def _may_be_granted(found: _Placed | None) -> bool:
    return found is None or found.rule.decision is Verdict.ASK


def _after(found: _Placed | None) -> int:
    return -1 if found is None else found.at


# --- scripts ----------------------------------------------------------------------------------------------------------


def _script(index: _Index, script: Script, kind: str, place: Place) -> list[Rule | None]:
    """Return the deciding rules of a script, one for each part that needs one; None where no rule decides."""
    if script.loose is None and index.restricting:
        return [_sternest(index)]
    found = [_part(index, script, part, place) for part in script.parts]
    reads = readers(script.text, place) if kind == SessionKind.MAIN else (False,) * len(found)
    needed = [one for at, one in enumerate(found) if one is not None or not reads[at]]
    if not script.parts:
        needed.append(index.allows.exact.get(script.text))
    whole = _whole(index, script)
    if whole is not None and not (found and all(_lifts(one, whole) for one in found)):
        needed.append(whole)
    granted = index.grants.exact.get(script.text)
    if granted is not None:
        needed = [granted if _may_be_granted(one) else one for one in needed]
    doubt = _asking(index.restricting[0]) if script.loose and index.restricting else None
    return [_rule(one or doubt) for one in needed] or [None]


def _lifts(found: _Placed | None, whole: _Placed) -> bool:
    """Return whether a part is allowed by a rule after the one about the whole script."""
    return found is not None and found.rule.decision is Verdict.ALLOW and found.at > whole.at and not whole.rule.locked


def _sternest(index: _Index) -> Rule:
    """Return the rule that decides about a script that cannot be compared: a deny, if there is one."""
    return next((rule for rule in index.restricting if rule.decision is Verdict.DENY), index.restricting[0])


def _whole(index: _Index, script: Script) -> _Placed | None:
    """Return the last rule that denies a script as it is written, or asks about it."""
    return _last_block(index, (script.text, *(script.loose or ())))


def _last_block(index: _Index, texts: Iterable[str], above: int = -1) -> _Placed | None:
    """Return a locked deny that fits one of the texts, else the last deny or ask after the position `above`."""
    best: _Placed | None = None
    for text in texts:
        if index.locks and (locked := index.locked.last(text)) is not None:
            return locked
        best = index.blocks.last(text, max(above, _after(best))) or best
    return best


def _part(index: _Index, script: Script, part: Part, place: Place) -> _Placed | None:
    """Return the rule that decides about a part of a script."""
    exact = index.allows.exact.get(script.text)
    block = _last_block(index, chain(part.forms, _paths(part, place)), _after(exact))
    named = named_folders(part, place) if index.folders else ()
    block = _later(block, _block_beneath(index, named, max(_after(exact), _after(block))))
    if block is not None and block.rule.locked:
        return block
    known = script.plain and not script.why_ask
    allow = _allow(index.allows, part, place, max(_after(exact), _after(block))) if known else None
    found = allow or block or exact
    if (
        index.restricting
        and (found is None or found is allow)
        and (hidden := _hidden(index, part) or _rule_below(index, part, named)) is not None
    ):
        found = _asking(hidden)
    granted = _allow(index.grants, part, place) if known and _may_be_granted(found) else None
    return granted or found


def _block_beneath(index: _Index, folders: Iterable[str], above: int) -> _Placed | None:
    """Return the rule that denies or asks about all that is in one of the folders; a locked deny, if there is one."""
    best: _Placed | None = None
    for folder in folders:
        if not (index.anywhere or f"{folder}/".startswith(tuple(index.begins))):
            continue
        for found in index.beneath.fitting(f"{folder}/{ANY_NAME}"):
            if found.rule.locked:
                return found
            best = found if found.at > max(above, _after(best)) else best
    return best


def _later(one: _Placed | None, other: _Placed | None) -> _Placed | None:
    """Return the rule that decides of two: a locked deny, else the later one."""
    if one is None or other is None:
        return one or other
    return one if one.rule.locked or (one.at > other.at and not other.rule.locked) else other


def _rule_below(index: _Index, part: Part, named: Iterable[str]) -> Rule | None:
    """Return a deny or ask rule about something below a folder that a part names. It may read all that is there."""
    if part.kind is not PartKind.COMMAND or part.words[0] in _NAMES_ONLY:
        return None
    below = ((f"{path}/", f"{folder}/", rule) for path in named for folder, rule in index.folders if folder)
    return next(
        (
            rule
            for path, folder, rule in below
            if path == "./" or folder.startswith(path) or (part.globs and is_above(path, folder))
        ),
        None,
    )


def _asking(rule: Rule) -> _Placed:
    """Return a deny or ask rule as one that asks, since a part may be about it."""
    return _Placed(replace(rule, decision=Verdict.ASK, locked=False))


def _paths(part: Part, place: Place) -> Iterator[str]:
    """Yield the paths that a part names, in the form of `path:` subjects. For deny and ask rules."""
    if part.kind is PartKind.FUNCTION:
        return
    elsewhere = place.folder != "" or part.folders != ("",)
    for word in part.words[1:] if part.kind is PartKind.COMMAND else part.words:
        if "/" in word or "." in word or (elsewhere and not word.startswith("-")):
            for path in paths_in(word):
                yield from resolved(path, part.folders, place) or ()


def _allow(allows: _Allows, part: Part, place: Place, above: int = -1) -> _Placed | None:
    """Return the last allow rule that covers a part of a plain script, after the position `above`."""
    if part.expands or part.globs:
        return None
    if part.kind is PartKind.COMMAND:
        texts, words = _as_allowed(part), part.words[1:]
    elif part.kind in (PartKind.WRITE, PartKind.READ):
        texts, words = (part.forms[0], *(resolved(part.words[0], part.folders, place) or ())), part.words
    else:
        return None
    found = [one for text in texts for one in allows.rules.fitting(text, above)]
    if _configures_git(part):
        found = [one for one in found if not _WILDCARD.search(one.rule.pattern)]
    for one in sorted(found, key=lambda one: -one.at):
        if _names_all(one.rule.pattern, words, part, place):
            return one
    return None


def _configures_git(part: Part) -> bool:
    """Return whether a command gives `git` settings or programs of its own, with which any subcommand may do more."""
    if part.kind is not PartKind.COMMAND or part.words[0] != "git":
        return False
    words = iter(part.words[1:])
    for word in words:
        if not word.startswith("-"):
            return False
        if word == "-c" or word.startswith(("--config-env", "--exec-path")):
            return True
        if word in _GIT_VALUED:
            next(words, None)
    return False


def _as_allowed(part: Part) -> tuple[str, ...]:
    """Return the readings of a command that an allow rule is compared with. A program given by a path is another one,
    except in the folders of the system.
    """
    words = part.words[1:]
    written = " ".join([part.program, *words])
    if part.program == part.words[0] or not is_standard(part.program):
        return (written,)
    return (written, " ".join(part.words))


def _names_all(pattern: str, words: Iterable[str], part: Part, place: Place) -> bool:
    """Return whether a pattern names each secret and each path that leads out of the workspace, not by a wildcard."""
    tokens = pattern.replace("\\", "/").split()
    for path in (path for word in words for path in paths_in(word)):
        found = resolved(path, part.folders, place)
        if found is None:
            return False
        if is_secret(path) and not any(is_secret(token) and fits(token, path) for token in tokens):
            return False
        if any(is_outside(one) and not any(_leads_to(token, one) for token in tokens) for one in found):
            return False
    return True


def _leads_to(token: str, path: str) -> bool:
    """Return whether a word of a pattern begins with a folder outside the workspace in which a path lies."""
    begin = _WILDCARD.split(token)[0]
    return begin.startswith(("/", "..")) and len(begin) > 1 and path.startswith(begin)


def _hidden(index: _Index, part: Part) -> Rule | None:
    """Return a deny or ask rule that a part may be about, when that is known only as it runs."""
    for text in part.suspects:
        if (found := index.blocks.last(text)) is not None:
            return found.rule
    if not part.expands and not part.globs:
        return None
    if len(part.text) > BLURRED_AT_MOST:
        return index.restricting[0]
    words = ["*" if at in part.expands else as_pattern(word) for at, word in enumerate(part.words)]
    texts = [" ".join(words), *(words[at] for at in part.expands)]
    files = [words[at] for at in part.globs - part.expands]
    return next((rule for rule in index.restricting if _may_be_about(rule, texts, files)), None)


def _may_be_about(rule: Rule, texts: Sequence[str], files: Sequence[str]) -> bool:
    """Return whether a rule may fit one of the texts with wildcards. In `files` these stand for no `/`."""
    pattern = rule.pattern.replace("\\", "/")
    near = [*texts, *(one for one in files if pattern.count("/") <= one.count("/"))]
    return any(overlap(pattern, text) or overlap(pattern.removesuffix(" *"), text) for text in near)
