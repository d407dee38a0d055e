"""Evaluation of the owner's rules over the subjects of a call. Pure; used by `permission`.

A shell script is compared part by part (`gateway.policy.shell`). A deny or ask rule matches any reading of a part, so
it may match too much, never too little. An allow rule covers a script when each part of it is allowed or only reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from gateway.domain.patterns import fits
from gateway.domain.rules import Rule, Verdict
from gateway.domain.sessions import SessionKind
from gateway.domain.tools import CallScope, SubjectKind
from gateway.policy.rule_index import WILDCARD, Allows, Placed, RuleIndex, indexed
from gateway.policy.shell import PartKind, Script, ScriptPart, WorkingFolder, changes_nothing, is_secret, parse, readers
from gateway.policy.shell.folders import (
    file_words,
    is_above,
    named_folders,
    starts_elsewhere,
)
from gateway.policy.shell.git_options import configures_git
from gateway.policy.shell.places import SHARED, as_pattern, is_outside, overlap, paths_in, resolved
from gateway.policy.shell.reading import ANYWHERE, is_standard
from gateway.policy.shell.taking import takes
from gateway.policy.shell.walking import prints_names_only

ANY_NAME = "\0"
"""Name that no file has: a rule that fits it in a folder fits all that is there."""
_COMMAND = f"{SubjectKind.COMMAND}:"
BLURRED_AT_MOST = 500
"""Characters of a command with expansions that are compared with rules; a longer one may be about any of them."""


def evaluate(rules: Sequence[Rule], subjects: Sequence[str], kind: str, place: WorkingFolder = ANYWHERE) -> Rule | None:
    """Return the rule that decides a call, or None when the default of its risk does.

    `rules`: those of the tool, in the order of `layers.rules_of_call`. `subjects`: as in `CallScope`. `place`: where
    its commands run. A locked deny comes first, then any deny, then any ask. A call is allowed when each of its
    subjects is. A grant decides only about a subject that the other rules ask about, or say nothing of.
    """
    if not rules:
        return None
    index, found = indexed(rules, kind), list[Rule | None]()
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


def written_outside(rules: Sequence[Rule], subjects: Sequence[str], kind: str, place: WorkingFolder = ANYWHERE) -> str:
    """Return the first file outside the workspace that a redirect writes and no rule is about; empty for none."""
    index = indexed(rules, kind)
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


def files_taken(rules: Sequence[Rule], call_scope: CallScope, kind: str) -> tuple[str, tuple[str, ...]]:
    """Return the first program that may take along or print files that deny or ask rules are about, and their patterns.

    Both are empty when there is none. The patterns are those of all programs.
    """
    index, place = indexed(rules, kind), place_of(call_scope)
    texts = (one[len(_COMMAND) :] for one in call_scope.subjects if one.startswith(_COMMAND))
    parts = (part for text in texts for part in parse(text).parts)
    found = [(part.words[0], rule.pattern) for part in parts for rule in _rules_taken(index, part, place)]
    return (found[0][0] if found else ""), tuple(dict.fromkeys(pattern for _, pattern in found))


def place_of(call_scope: CallScope) -> WorkingFolder:
    """Return the folder in which the commands of a call run."""
    return WorkingFolder(workspace=call_scope.workspace, folder=call_scope.folder)


def only_reads(call_scope: CallScope) -> bool:
    """Return whether a call does nothing but run commands that only read inside the workspace."""
    texts, place = _commands_alone(call_scope), place_of(call_scope)
    return bool(texts) and all(found and all(found) for found in (readers(text, place) for text in texts))


def only_looks(call_scope: CallScope) -> bool:
    """Return whether a call does nothing but run commands that change nothing, though they may print secrets."""
    texts, place = _commands_alone(call_scope), place_of(call_scope)
    return bool(texts) and all(changes_nothing(text, place) for text in texts)


def _commands_alone(call_scope: CallScope) -> Sequence[str]:
    """Return the commands of a call that has no other subjects; none of another call."""
    texts = [one[len(_COMMAND) :] for one in call_scope.subjects if one.startswith(_COMMAND)]
    return texts if len(texts) == len(call_scope.subjects) else ()


def some_part_reads(call_scope: CallScope, rule: Rule) -> bool:
    """Return whether a rule allows a command only together with parts that need no rule, since they only read."""
    texts = [one[len(_COMMAND) :] for one in call_scope.subjects if one.startswith(_COMMAND)]
    place = place_of(call_scope)
    return any(text != rule.pattern and any(readers(text, place)) for text in texts)


def denied_outright(rules: Sequence[Rule], kind: str) -> Rule | None:
    """Return the rule that denies every call of a tool, or None. A later rule that allows or asks keeps it visible."""
    return indexed(rules, kind).outright


def _is_locked(rule: Rule) -> bool:
    return rule.locked


def _denies(rule: Rule) -> bool:
    return rule.decision is Verdict.DENY


def _asks(rule: Rule) -> bool:
    return rule.decision is Verdict.ASK


def _rule(found: Placed | None) -> Rule | None:
    return None if found is None else found.rule


def _last(index: RuleIndex, subject: str) -> Placed | None:
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


def _everything(index: RuleIndex) -> Placed | None:
    """Return the rule that decides about a call without subjects: its pattern is `*`."""
    buckets = (index.locked, index.blocks, index.allows.rules, index.grants.rules)
    locked, block, allow, grant = (
        next((one for one in bucket.any_word if one.rule.pattern == "*"), None) for bucket in buckets
    )
    if locked is not None:
        return locked
    found = max(allow, block, key=_after)
    return (grant if _may_be_granted(found) else None) or found


def _may_be_granted(found: Placed | None) -> bool:
    return found is None or found.rule.decision is Verdict.ASK


def _after(found: Placed | None) -> int:
    return -1 if found is None else found.at


# --- scripts ----------------------------------------------------------------------------------------------------------


def _script(index: RuleIndex, script: Script, kind: str, place: WorkingFolder) -> list[Rule | None]:
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


def _lifts(found: Placed | None, whole: Placed) -> bool:
    """Return whether a part is allowed by a rule after the one about the whole script."""
    return found is not None and found.rule.decision is Verdict.ALLOW and found.at > whole.at and not whole.rule.locked


def _sternest(index: RuleIndex) -> Rule:
    """Return the rule that decides about a script that cannot be compared: a deny, if there is one."""
    return next((rule for rule in index.restricting if rule.decision is Verdict.DENY), index.restricting[0])


def _whole(index: RuleIndex, script: Script) -> Placed | None:
    """Return the last rule that denies a script as it is written, or asks about it."""
    return _last_block(index, (script.text, *(script.loose or ())))


def _last_block(index: RuleIndex, texts: Iterable[str], above: int = -1) -> Placed | None:
    """Return a locked deny that fits one of the texts, else the last deny or ask after the position `above`."""
    best: Placed | None = None
    for text in texts:
        if index.locks and (locked := index.locked.last(text)) is not None:
            return locked
        best = index.blocks.last(text, max(above, _after(best))) or best
    return best


def _part(index: RuleIndex, script: Script, part: ScriptPart, place: WorkingFolder) -> Placed | None:
    """Return the rule that decides about a part of a script."""
    exact = index.allows.exact.get(script.text)
    block = _last_block(index, chain(part.forms, _paths(part, place)), _after(exact))
    named = named_folders(part, place) if index.begins or index.anywhere else ()
    block = _later(block, _block_beneath(index, named, max(_after(exact), _after(block))))
    if block is not None and block.rule.locked:
        return block
    known = script.plain and not script.why_ask
    allow = _allow(index.allows, part, place, max(_after(exact), _after(block))) if known else None
    found, hidden = allow or block or exact, None
    if index.restricting and (found is None or found is allow):
        hidden = (
            _hidden(index, part) or _rule_below(index, part, named, place) or _rule_taken(index, part, place, allow)
        )
    if hidden is not None:
        found = _asking(hidden)
    granted = _allow(index.grants, part, place) if known and _may_be_granted(found) else None
    if granted is not None and hidden is not None and WILDCARD.search(granted.rule.pattern):
        granted = None  # as wide as an allow, which does not cover this either
    return granted or found


def _block_beneath(index: RuleIndex, folders: Iterable[str], above: int) -> Placed | None:
    """Return the rule that denies or asks about all that is in one of the folders; a locked deny, if there is one."""
    best: Placed | None = None
    for folder in folders:
        if not (index.anywhere or f"{folder}/".startswith(index.begins)):
            continue
        for found in index.beneath.fitting(f"{folder}/{ANY_NAME}"):
            if found.rule.locked:
                return found
            best = found if found.at > max(above, _after(best)) else best
    return best


def _later(one: Placed | None, other: Placed | None) -> Placed | None:
    """Return the rule that decides of two: a locked deny, else the later one."""
    if one is None or other is None:
        return one or other
    return one if one.rule.locked or (one.at > other.at and not other.rule.locked) else other


def _rule_below(index: RuleIndex, part: ScriptPart, named: Sequence[str], place: WorkingFolder) -> Rule | None:
    """Return a deny or ask rule about something below a folder that a part names. It may read all that is there."""
    if not (named and index.folders) or part.kind is not PartKind.COMMAND or prints_names_only(part.words):
        return None
    if "." in named:
        here = (rule for folder, rule in index.folders if _lies_below(folder, place))
        return next(here, None)
    above = tuple(f"{path}/" for path in named)
    return next(
        (
            rule
            for folder, rule in index.folders
            if folder.startswith(above) or (part.globs and any(is_above(path, folder[:-1]) for path in above))
        ),
        None,
    )


def _rule_taken(index: RuleIndex, part: ScriptPart, place: WorkingFolder, allow: Placed | None) -> Rule | None:
    """Return a deny or ask rule about files that a command may take along, unless a rule allows this very command."""
    if allow is not None and not WILDCARD.search(allow.rule.pattern):
        return None
    return next(iter(_rules_taken(index, part, place)), None)


def _rules_taken(index: RuleIndex, part: ScriptPart, place: WorkingFolder) -> Sequence[Rule]:
    texts = takes(part, place) if index.files else ()
    return () if texts is not None and not texts else index.taken(texts, place.workspace)


def _lies_below(folder: str, place: WorkingFolder) -> bool:
    """Return whether a folder that a rule names lies in the workspace."""
    return not is_outside(folder) or (place.workspace != "" and folder.startswith(f"{place.workspace}/"))


def _asking(rule: Rule) -> Placed:
    """Return a deny or ask rule as one that asks, since a part may be about it."""
    return Placed(replace(rule, decision=Verdict.ASK, locked=False))


def _paths(part: ScriptPart, place: WorkingFolder) -> Iterator[str]:
    """Yield the paths that a part names, in the form of `path:` subjects. For deny and ask rules."""
    if part.kind is PartKind.FUNCTION:
        return
    elsewhere = starts_elsewhere(part, place)
    for word in file_words(part, place):
        if elsewhere or "/" in word or "." in word:
            for path in paths_in(word):
                yield from resolved(path, part.folders, place) or ()


def _allow(allows: Allows, part: ScriptPart, place: WorkingFolder, above: int = -1) -> Placed | None:
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
    if part.kind is PartKind.COMMAND and configures_git(part.words):
        found = [one for one in found if not WILDCARD.search(one.rule.pattern)]
    for one in sorted(found, key=lambda one: -one.at):
        if _names_all(one.rule.pattern, words, part, place):
            return one
    return None


def _as_allowed(part: ScriptPart) -> tuple[str, ...]:
    """Return the readings of a command that an allow rule is compared with. A program given by a path is another one,
    except in the folders of the system.
    """
    words = part.words[1:]
    written = " ".join([part.program, *words])
    if part.program == part.words[0] or not is_standard(part.program):
        return (written,)
    return (written, " ".join(part.words))


def _names_all(pattern: str, words: Iterable[str], part: ScriptPart, place: WorkingFolder) -> bool:
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
    begin = WILDCARD.split(token)[0]
    return begin.startswith(("/", "..")) and len(begin) > 1 and path.startswith(begin)


def _hidden(index: RuleIndex, part: ScriptPart) -> Rule | None:
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
