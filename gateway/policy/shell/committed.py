"""Contents of committed files that `git` prints: when these may be secrets. Pure; used by `reading`.

A sandbox masks secret files of the workspace, not what the history holds of them. So a command that prints contents of
commits only reads when its words limit it to files with source text or records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from gateway.policy.shell.places import names_sources

_PATCHES = re.compile(
    r"-[A-Za-z0-9]*[puUcmLWSG].*"
    r"|--(?:p|pa|pat|patc|patch.*|u|un|uni|unif|unifi|unified.*|cc|che|chec|check|bi|bin|bina|binar|binary|dd"
    r"|diff-m.*|rem|reme|remer|remerg|remerge.*|pickaxe.*)(?:=.*)?",
    re.DOTALL,
)
"""Options with which a list of commits prints changes of files, or searches them for a text."""
_BEYOND = ("--follow", "--full-diff")
"""Options with which paths do not limit what is printed."""
_FIGURES = re.compile(
    r"-s|--(?:stat|numstat|shortstat|dirstat|compact-summary|name-only|name-status|summary|raw|no-patch|quiet)(?:=.*)?"
)
"""Options that print names and figures in place of changes."""
_SIMPLE = re.compile(
    r"-[puwbRz]|-\d+|-[UMC]\d*|--(?:patch|cached|staged|oneline|graph|all|no-merges|no-color|no-renames|no-ext-diff"
    r"|no-textconv|abbrev-commit|minimal|histogram|patience|ignore-all-space|merge-base)"
    r"|--(?:color|pretty|format|unified|diff-filter|max-count|since|until|author|grep|date)=.*",
    re.DOTALL,
)
"""Options that take no value from the next word."""
_GREP_VALUED = re.compile(r"-[nilwchqoHEFGP]*[ABCm]")
_GREP_PATTERN = re.compile(r"-[nilwchqoHEFGP]*e|--and|--or|--not|-[nilwchqoHEFGP]+|--[a-z-]+(?:=.*)?|-[ABCm]\d+")
_HEAD = re.compile(r"(?:HEAD|@)(?:[~^]\d*)*")
_FILE_OF_COMMIT = re.compile(r"[\w@][\w.@/~^-]*:[\w.].*", re.DOTALL)
_KINDS_ONLY = frozenset({"-t", "-s", "-e"})
_CONTENTS = re.compile(r"%\(\*?(?:raw|contents|body)\b")
_HASH = re.compile(r"(?:.*-g)?[0-9A-Fa-f]{4,64}")
_REVISION_SIGNS = re.compile(r"\.{2,3}|[\^~@:{}]")


def may_print_secrets(subcommand: str, words: Sequence[str]) -> bool:
    """Return whether a subcommand of `git` with these words may print committed contents of secret files.

    Paths that name secrets are refused elsewhere; this is about commands that name none.
    """
    if subcommand == "stash" and words:
        subcommand, words = f"stash {words[0]}", words[1:]
    judge = _JUDGES.get(subcommand)
    return judge is not None and judge(words)


def _list_may(words: Sequence[str]) -> bool:
    """Judge a list of commits: it prints contents only with an option."""
    return any(_PATCHES.fullmatch(word) for word in words) and not _limited(words)


def _change_may(words: Sequence[str]) -> bool:
    """Judge a command that prints changes, unless an option limits it to their figures."""
    if any(_PATCHES.fullmatch(word) for word in words) or not _prints_figures(words):
        return not _limited(words)
    return False


def _object_may(words: Sequence[str]) -> bool:
    """Judge a command that prints an object, with any further arguments: a hash may be that of a secret file."""
    operands = [word for word in words if not word.startswith("-")]
    if _names_hash(words):
        return True
    if operands and len(operands) == len(words) and all(map(_FILE_OF_COMMIT.fullmatch, operands)):
        return False
    return _change_may(words)


def _raw_object_may(words: Sequence[str]) -> bool:
    return not (words and words[0] in _KINDS_ONLY) and _names_hash(words)


def _search_may(words: Sequence[str]) -> bool:
    """Judge a search: in the files of the workspace, where secret ones are masked, or in commits."""
    if any(word.startswith(("--ca", "--recurse")) for word in words):
        return True
    before, _, _ = _split(words)
    operands, given, skips = list[str](), False, False
    for word in before:
        if skips:
            skips = False
        elif _GREP_VALUED.fullmatch(word):
            skips = True
        elif word.startswith("-") and word != "-":
            if not _GREP_PATTERN.fullmatch(word):
                return True
            skips = word.endswith("e") and not word.startswith("--")
            given = given or skips
        else:
            operands.append(word)
    if not (given or operands):
        return True  # the pattern stands after the end of options, and commits may follow it
    return not all(names_sources(word) for word in operands[0 if given else 1 :])


def _status_may(words: Sequence[str]) -> bool:
    return any(re.fullmatch(r"-[A-Za-z]*v.*|--v.*", word) for word in words)


def _refs_may(words: Sequence[str]) -> bool:
    """Judge a list of references, each of which may be to a file."""
    return any(_CONTENTS.search(word) for word in words)


def _prints_figures(words: Sequence[str]) -> bool:
    """Return whether an option for figures stands where it cannot be the value of another option."""
    for word in _split(words)[0]:
        if _FIGURES.fullmatch(word):
            return True
        if word.startswith("-") and not _SIMPLE.fullmatch(word):
            return False
    return False


def _limited(words: Sequence[str]) -> bool:
    """Return whether paths limit a command to files with source text or records."""
    if any(word[:2] == "--" and len(word) > 2 and any(one.startswith(word) for one in _BEYOND) for word in words):
        return False
    before, has_end, paths = _split(words)
    if _names_hash(before):
        return False
    if has_end:
        return bool(paths) and all(map(names_sources, paths))
    if any(word.startswith("-") and not (_SIMPLE.fullmatch(word) or _FIGURES.fullmatch(word)) for word in before):
        return False
    operands = [word for word in before if not word.startswith("-")]
    paths = [word for word in operands if not _HEAD.fullmatch(word)]
    return bool(paths) and all(map(names_sources, paths))


def _names_hash(words: Sequence[str]) -> bool:
    """Return whether a word may be the hash of an object, of which nobody can say what it holds."""
    operands = (word for word in words if not word.startswith("-"))
    return any(_HASH.fullmatch(piece) for word in operands for piece in _REVISION_SIGNS.split(word))


def _split(words: Sequence[str]) -> tuple[Sequence[str], bool, Sequence[str]]:
    """Return the words before the end of options, whether there is one, and the words after it."""
    if "--" not in words:
        return words, False, ()
    at = list(words).index("--")
    return words[:at], True, words[at + 1 :]


_LISTS = (
    "log", "whatchanged", "diff-tree", "diff-index", "diff-files", "rev-list", "cherry", "shortlog", "reflog",
    "stash list",
)  # fmt: skip
_CHANGES = ("diff", "range-diff", "stash show")
_JUDGES: Mapping[str, Callable[[Sequence[str]], bool]] = MappingProxyType(
    {
        **dict.fromkeys(_LISTS, _list_may),
        **dict.fromkeys(_CHANGES, _change_may),
        "show": _object_may,
        "cat-file": _raw_object_may,
        "grep": _search_may,
        "status": _status_may,
        "for-each-ref": _refs_may,
    }
)
"""Judges by subcommand. `blame` names one file, and the table knows it."""
