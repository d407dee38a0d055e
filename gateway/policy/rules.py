"""Evaluation of the owner's rules over the subjects of a call. Pure; used by `permission`.

Shell commands are not parsed here. An allow rule matches a plain command only: one program with plain words. A deny or
ask rule matches every reading of a command that its text permits, so it may match too much, never too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice

from gateway.domain.patterns import fits
from gateway.domain.rules import Layer, Rule, Verdict
from gateway.domain.tools import SubjectKind

PARTS_AT_MOST = 200
"""Readings of one command that are compared; a longer command is never allowed by a rule, and is asked about."""
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./ -]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SEPARATOR = re.compile(r"[;|&\n(){}<>`$!]+")
_WILDCARD = re.compile(r"[*?]")
_EXPANSION = re.compile(r"[$`*?\[{]")
_QUOTES = re.compile(r"""["'\\]""")
WRAPPERS = frozenset({
    ".", "awk", "bash", "builtin", "busybox", "chroot", "command", "csh", "dash", "doas", "env", "eval", "exec",
    "find", "fish", "gawk", "ionice", "ksh", "nice", "node", "nohup", "nsenter", "parallel", "perl", "php",
    "python", "ruby", "script", "setsid", "sh", "source", "ssh", "stdbuf", "su", "sudo", "time", "timeout",
    "unshare", "watch", "xargs", "zsh",
})  # fmt: skip
"""Programs that run other programs: a pattern with a wildcard never allows them."""


def evaluate(rules: Sequence[Rule], subjects: Sequence[str], kind: str) -> Rule | None:
    """Return the rule that decides a call, or None when the default of its risk does.

    `rules`: those of the tool, in the order of `layers.rules_of_call`. `subjects`: as in `CallScope`. A locked deny
    comes first, then any deny, then any ask. A call is allowed when each of its subjects is. A grant decides only about
    a subject that the other rules ask about, or say nothing of.
    """
    there = [rule for rule in rules if kind in rule.kinds]
    here = [rule for rule in there if rule.layer is not Layer.GRANT]
    granted = [rule for rule in there if rule.layer is Layer.GRANT]
    texts = list(subjects) or [""]
    for rule in here:
        if rule.locked and any(_matches(rule, text) for text in texts):
            return rule
    found = [_granted(_last(here, text), granted, text) for text in texts]
    for verdict in (Verdict.DENY, Verdict.ASK):
        for rule in found:
            if rule is not None and rule.decision is verdict:
                return rule
    return None if None in found else found[-1]


def _granted(found: Rule | None, granted: Sequence[Rule], subject: str) -> Rule | None:
    """Return the grant that covers a subject in place of the rule found, unless that one allows or denies."""
    if found is not None and found.decision is not Verdict.ASK:
        return found
    return next((rule for rule in reversed(granted) if _matches(rule, subject)), found)


def _last(rules: Sequence[Rule], subject: str) -> Rule | None:
    """Return the last rule that matches a subject. An expansion that no rule matches may hide what one is about."""
    found = next((rule for rule in reversed(rules) if _matches(rule, subject)), None)
    if found is not None or not _EXPANSION.search(subject) or not subject.startswith(f"{SubjectKind.COMMAND}:"):
        return found
    hidden = next((rule for rule in reversed(rules) if rule.decision is not Verdict.ALLOW), None)
    return None if hidden is None else replace(hidden, decision=Verdict.ASK)


def denied_outright(rules: Sequence[Rule], kind: str) -> Rule | None:
    """Return the rule that denies every call of a tool, or None. A later rule that allows or asks keeps it visible."""
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


def _matches(rule: Rule, subject: str) -> bool:
    if rule.pattern == "*" and not subject:
        return True
    kind, _, text = subject.partition(":")
    if kind != SubjectKind.COMMAND:
        return bool(subject) and fits(rule.pattern, text.replace("\\", "/"))
    if rule.decision is Verdict.ALLOW:
        return _is_allowed_by(rule.pattern, text)
    readings = _bounded_readings(text)
    return len(readings) > PARTS_AT_MOST or any(fits(rule.pattern, one) for one in readings)


def _is_allowed_by(pattern: str, command: str) -> bool:
    """Return whether an allow rule covers a command: this very text, or a plain one whose program runs no other."""
    if pattern == command and not _WILDCARD.search(pattern):
        return True
    words = command.split()
    if not words or not _PLAIN.fullmatch(command) or _ASSIGNMENT.match(words[0]):
        return False
    program = words[0].rpartition("/")[2]
    if program in WRAPPERS or re.fullmatch(r"python[\d.]*", program):
        return False
    return fits(pattern, " ".join(words))


@lru_cache(maxsize=16)
def _bounded_readings(command: str) -> tuple[str, ...]:
    """Return the readings of a command, at most one more than are compared: all rules look at the same command."""
    return tuple(islice(_readings(command), PARTS_AT_MOST + 1))


def _readings(command: str) -> Iterator[str]:
    """Yield the command as written, and each run of words in it that may be a command: `rm x` in `sudo /bin/rm x`."""
    yield command
    for part in _SEPARATOR.split(_QUOTES.sub("", command.replace("\\\n", ""))):
        words = part.split()[: PARTS_AT_MOST + 1]
        for n in range(len(words)):
            rest = words[n:]
            yield " ".join(rest)
            if "/" in rest[0]:
                yield " ".join([rest[0].rpartition("/")[2], *rest[1:]])
