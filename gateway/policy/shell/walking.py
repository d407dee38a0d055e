"""Commands that read the folder they run in, and all below it, without naming it. Pure.

Used by `folders` and `gathering`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType

from gateway.policy.shell.committed import may_print_secrets
from gateway.policy.shell.git_options import subcommand_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Walker:
    """Program that walks its folder when no operand names another one."""

    letters: str | None = None
    """Short options with which it walks; None: it always does."""
    long: tuple[str, ...] = ()
    """Long options with which it walks. Any beginning of them counts."""
    patterns: int = 0
    """Operands in front of the paths."""
    instead: str = ""
    """Short options that give such a pattern."""
    instead_long: tuple[str, ...] = ()
    """Long options that give such a pattern, or need none."""
    valued: str = ""
    """Short options that take a value, which may be the next word."""
    valued_long: tuple[str, ...] = ()
    """Such long options."""


_GREP_LONG = (
    "--after-context", "--before-context", "--context", "--max-count", "--exclude", "--include", "--exclude-dir",
    "--exclude-from", "--label", "--binary-files", "--devices", "--directories", "--regexp", "--file",
)  # fmt: skip
_RG_LONG = (
    *_GREP_LONG,
    "--glob", "--iglob", "--type", "--type-not", "--replace", "--sort",
    "--sortr", "--color", "--colors", "--max-depth", "--max-columns", "--max-filesize",
    "--threads", "--encoding", "--engine", "--pre", "--pre-glob", "--ignore-file",
    "--type-add", "--type-clear", "--path-separator", "--context-separator", "--field-context-separator",
    "--field-match-separator", "--dfa-size-limit", "--regex-size-limit", "--hostname-bin", "--hyperlink-format",
    "--generate",
)  # fmt: skip
_GREP = Walker(
    letters="rRd",
    long=("--recursive", "--dereference-recursive", "--directories"),
    patterns=1,
    instead="ef",
    instead_long=("--regexp", "--file"),
    valued="ABCDdefm",
    valued_long=_GREP_LONG,
)
_LIST = Walker(letters="R", long=("--recursive",), valued="ITw", valued_long=("--ignore", "--hide", "--width"))
_SIZES = Walker(
    letters="a",
    long=("--all",),
    valued="dBtX",
    valued_long=("--max-depth", "--block-size", "--threshold", "--exclude"),
)
_FD = Walker(
    patterns=1,
    valued="deEtSoxXcjB",
    valued_long=("--max-depth", "--min-depth", "--type", "--extension", "--exclude", "--size", "--threads", "--color"),
)
_WALKERS: Mapping[str, Walker] = MappingProxyType(
    {
        **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep"), _GREP),
        "rgrep": Walker(patterns=1, instead="ef", instead_long=("--regexp", "--file"), valued="ABCDdefm"),
        "rg": Walker(
            patterns=1,
            instead="ef",
            instead_long=("--regexp", "--file", "--files"),
            valued="ABCEMTdefgjmrt",
            valued_long=_RG_LONG,
        ),
        **dict.fromkeys(("ag", "ack", "ugrep", "ug"), Walker(patterns=1, valued="ABCGm")),
        **dict.fromkeys(("fd", "fdfind"), _FD),
        **dict.fromkeys(("ls", "dir", "vdir"), _LIST),
        **dict.fromkeys(("exa", "eza", "lsd"), Walker(letters="RT", long=("--recurse", "--recursive", "--tree"))),
        "ctags": Walker(letters="R", long=("--recurse",), valued="fo"),
        "tree": Walker(valued="LPIo", valued_long=("--filelimit", "--charset")),
        "du": _SIZES,
    }
)
_SEARCHERS = frozenset({"grep", "egrep", "fgrep", "zgrep", "rgrep", "rg", "ag", "ack", "ugrep", "ug"})
"""Walkers that print contents of files."""
_PLAIN_GLOB = re.compile(r"[\w.*?-]+")
_GIT_GREP = replace(_GREP, letters=None, valued="ABCefmO")
_GIT_FILES = frozenset({"blame", "annotate", "grep", "archive"})
"""Subcommands that print contents of what they are given."""
_LISTERS = frozenset({"ls", "dir", "vdir", "du"})
_NAMES_ONLY = frozenset({"cd", "stat", "echo", "printf", "df"})


def walks_here(words: Sequence[str]) -> bool:
    """Return whether a command with these words, its program first, walks the folder that it runs in."""
    own = _OWN_RULES.get(words[0])
    if own is not None:
        return own(words[1:])
    walker = _WALKERS.get(words[0])
    return walker is not None and _walks(walker, words[1:]) and not _operands(walker, words[1:])


def operands_read(words: Sequence[str]) -> Sequence[str]:
    """Return the paths in which a search reads files, `.` when it names none; none for other commands."""
    walker = _WALKERS[words[0]] if words[0] in _SEARCHERS else None
    if walker is None or "--files" in words or not _walks(walker, words[1:]):
        return ()
    return _operands(walker, words[1:]) or (".",)


def names_read(words: Sequence[str]) -> Sequence[str]:
    """Return patterns of names, one of which each file has that a search reads in folders; `*` without any."""
    options = ("--include=",) if words[0] in ("grep", "egrep", "fgrep") else ("--glob=",) if words[0] == "rg" else ()
    found = [word.removeprefix(option) for word in words for option in options if word.startswith(option)]
    if words[0] == "rg":
        found += [value for option, value in pairwise(words) if option in ("-g", "--glob")]
    return found if found and all(_PLAIN_GLOB.fullmatch(one) for one in found) else ("*",)


def prints_names_only(words: Sequence[str]) -> bool:
    """Return whether a command prints names of a folder that it is given, and reads nothing in it or below it."""
    program, args = words[0], words[1:]
    if program == "git":
        args = subcommand_of(args)
        return not (args and args[0] in _GIT_FILES) and not _git_walks(args)
    if program in _LISTERS:
        return not _walks(_WALKERS[program], args)
    return program in _NAMES_ONLY


def begins_one(word: str, long: Sequence[str]) -> bool:
    """Return whether a word is one of the long options, or a beginning of one."""
    name = word.partition("=")[0]
    return len(name) > 2 and any(one.startswith(name) for one in long)


def _walks(walker: Walker, args: Sequence[str]) -> bool:
    if walker.letters is None:
        return True
    return any(_has(word, walker.letters, walker.long) for word in args)


def _has(word: str, letters: str, long: Sequence[str]) -> bool:
    """Return whether a word is one of the options. A letter counts anywhere in its group."""
    if word.startswith("--"):
        return begins_one(word, long)
    return word.startswith("-") and any(letter in letters for letter in word[1:])


def _operands(walker: Walker, args: Sequence[str]) -> Sequence[str]:
    """Return the operands that may be paths. A word after an option that takes a value is none."""
    found = list[str]()
    patterns, skips, ended = walker.patterns, False, False
    for word in args:
        if skips:
            skips = False
        elif ended or not word.startswith("-") or word == "-":
            found.append(word)
        elif word == "--":
            ended = True
        else:
            if _has(word, walker.instead, walker.instead_long):
                patterns = 0
            skips = _takes_next(walker, word)
    return found[patterns:]


def _takes_next(walker: Walker, word: str) -> bool:
    if word.startswith("--"):
        return "=" not in word and begins_one(word, walker.valued_long)
    return word[-1] in walker.valued


def _find_walks(args: Sequence[str]) -> bool:
    """Return whether `find` is given no path: these stand in front of its expression."""
    first = next((word for word in args if word not in ("-H", "-L", "-P")), "")
    return first == "" or first[0] in "-(!)"


def _git_walks(args: Sequence[str]) -> bool:
    """Return whether `git` may print contents of any file."""
    args = subcommand_of(args)
    if not args:
        return False
    if args[0] == "grep" and not _operands(_GIT_GREP, args[1:]):
        return True
    return args[0] == "archive" or may_print_secrets(args[0], args[1:])


_OWN_RULES: Mapping[str, Callable[[Sequence[str]], bool]] = MappingProxyType({"find": _find_walks, "git": _git_walks})
