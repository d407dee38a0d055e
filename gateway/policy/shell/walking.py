"""Commands that read the folder they run in, and all below it, without naming it. Pure.

Used by `folders` and `gathering`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    globs: tuple[str, ...] = ()
    """Options whose value is a pattern of names: with one of them it reads no file of another name."""
    types: tuple[str, ...] = ()
    """Options whose value stands for such patterns (`_TYPES`)."""
    widens: tuple[str, ...] = ()
    """Options with which such values are not what they seem."""


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
    globs=("--include",),
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
            globs=("-g", "--glob"),
            types=("-t", "--type"),
            widens=("--iglob", "--glob-case-insensitive", "--type-add", "--type-clear"),
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
_ANY = ("*",)
_TYPES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "css": ("*.css", "*.scss"),
        "go": ("*.go",),
        "html": ("*.htm", "*.html", "*.ejs"),
        "js": ("*.js", "*.jsx", "*.vue", "*.cjs", "*.mjs"),
        "md": ("*.markdown", "*.md", "*.mdown", "*.mdwn", "*.mkd", "*.mkdn", "*.mdx"),
        "py": ("*.py", "*.pyi"),
        "rust": ("*.rs",),
        "ts": ("*.ts", "*.tsx", "*.cts", "*.mts"),
        "yaml": ("*.yaml", "*.yml"),
    }
)
"""Types of files that `rg` knows, with the patterns of all its versions; any other type may have other names."""
_GIT_GREP = replace(_GREP, letters=None, valued="ABCefm")
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
    walker = _WALKERS.get(words[0])
    if walker is None:
        return _ANY
    found = list[str]()
    for option, value in _parsed(walker, words[1:]):
        if _is_one(option, walker.globs):
            found.append(value)
        elif _is_one(option, walker.types):
            found += _TYPES.get(value, _ANY)
        elif _is_one(option, walker.widens):
            return _ANY
    return found if found and "*" not in found and all(_PLAIN_GLOB.fullmatch(one) for one in found) else _ANY


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
    patterns = walker.patterns
    for option, value in _parsed(walker, args):
        if not option:
            found.append(value)
        elif _has(option, walker.instead, walker.instead_long):
            patterns = 0
    return found[patterns:]


def _parsed(walker: Walker, args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each option with its value, or empty, and each operand as the value of no option.

    As programs do, take what follows an option with a value as this value, even when it looks like an option.
    """
    words = iter(args)
    for word in words:
        if word == "--":
            yield from (("", rest) for rest in words)
        elif not word.startswith("-") or word == "-":
            yield "", word
        elif word.startswith("--"):
            name, equals, value = word.partition("=")
            takes_next = not equals and begins_one(name, walker.valued_long)
            yield name, next(words, "") if takes_next else value
        else:
            flags, value = _group(walker, word[1:])
            yield from ((f"-{letter}", "") for letter in flags[:-1])
            yield f"-{flags[-1]}", next(words, "") if value is None else value


def _group(walker: Walker, letters: str) -> tuple[str, str | None]:
    """Return the options of a group up to one that takes a value, and this value; None: it is the next word."""
    for at, letter in enumerate(letters):
        if letter in walker.valued:
            return letters[: at + 1], letters[at + 1 :] or None
    return letters, ""


def _is_one(option: str, options: Sequence[str]) -> bool:
    return option in options or (option.startswith("--") and begins_one(option, options))


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
