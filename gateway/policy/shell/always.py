"""Texts that an "always" may remember for a script: the exact commands, or none."""

from __future__ import annotations

import re

from gateway.policy.shell.places import is_secret, leaves, paths_in
from gateway.policy.shell.reading import ANYWHERE, is_standard
from gateway.policy.shell.script import PartKind, Script, ScriptPart, WorkingFolder

_SCRIPT = re.compile(r"\.(?:sh|bash|py|pl|rb|js|ts|php)$")
_SIGNS = frozenset("*?")
"""Characters that a rule would read as wildcards."""


def rule_for_always(script: Script, place: WorkingFolder = ANYWHERE) -> tuple[str, ...] | None:
    """Return the exact text of a script, for a rule that allows it from now on; None when none is to be offered.

    None for wrappers, interpreters, functions, and words that are known only when it runs. None for paths that leave
    the workspace or name secrets, and for text that a rule would read as a pattern.
    """
    if script.why_ask or not script.plain or not script.text.isascii() or _SIGNS.intersection(script.text):
        return None
    text = script.text.strip()
    if "\n" in text or not all(_may_be_remembered(part, place) for part in script.parts):
        return None
    return (text,)


def _may_be_remembered(part: ScriptPart, place: WorkingFolder) -> bool:
    if part.wrapped or part.expands or part.globs or part.exported or part.kind is PartKind.FUNCTION:
        return False
    if part.kind is PartKind.COMMAND and (not is_standard(part.program) or _SCRIPT.search(part.program)):
        return False  # a file that a later call may replace
    if part.kind is PartKind.COMMAND and " ".join(part.words).startswith("git -"):
        return False  # its options change what the subcommand does, and where
    paths = [path for word in part.words for path in paths_in(word)]
    return not any(is_secret(path) or leaves(path, part.folders, place) for path in paths)
