"""Commands that read the folder they run in, and all below it, without naming it. Pure.

Used by `folders` and `gathering`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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
    """Long options of that kind."""
    globs: tuple[str, ...] = ()
    """Options whose value is a pattern of names: with one of them it reads no file of another name."""
    types: tuple[str, ...] = ()
    """Options whose value stands for such patterns (`_TYPES`)."""
    widens: tuple[str, ...] = ()
    """Options with which such values are not what they seem."""
    flags: tuple[str, ...] | None = ()
    """Long options without a value. What is behind another one may be its value; None: no option is known."""


_GREP_LONG = (
    "--after-context", "--before-context", "--context", "--max-count", "--exclude", "--include", "--exclude-dir",
    "--exclude-from", "--label", "--binary-files", "--devices", "--directories", "--regexp", "--file",
    "--group-separator", "--max-depth", "--threads",
)  # fmt: skip
_GREP_FLAGS = (
    "--ignore-case", "--no-ignore-case", "--invert-match", "--word-regexp", "--line-regexp", "--count", "--color",
    "--colour", "--files-without-match", "--files-with-matches", "--only-matching", "--quiet", "--silent",
    "--no-messages", "--byte-offset", "--with-filename", "--no-filename", "--line-number", "--initial-tab", "--null",
    "--text", "--recursive", "--dereference-recursive", "--fixed-strings", "--extended-regexp", "--basic-regexp",
    "--perl-regexp", "--line-buffered", "--no-group-separator", "--null-data", "--no-color",
)  # fmt: skip
_RG_FLAGS = (
    *_GREP_FLAGS,
    "--smart-case", "--case-sensitive", "--no-line-number", "--count-matches", "--files", "--hidden", "--no-hidden",
    "--no-ignore", "--no-ignore-vcs", "--no-ignore-parent", "--no-ignore-dot", "--no-config", "--heading",
    "--no-heading", "--json", "--stats", "--multiline", "--multiline-dotall", "--pcre2", "--follow", "--vimgrep",
    "--column", "--trim", "--pretty", "--passthru", "--crlf", "--one-file-system", "--search-zip", "--unrestricted",
    "--type-list", "--glob-case-insensitive",
)  # fmt: skip
_GIT_GREP_FLAGS = (
    *_GREP_FLAGS,
    "--cached", "--untracked", "--no-index", "--exclude-standard", "--no-exclude-standard", "--full-name",
    "--name-only", "--heading", "--break", "--column", "--show-function", "--function-context", "--all-match", "--and",
    "--or", "--not", "--recurse-submodules", "--no-recurse-submodules", "--textconv", "--no-textconv",
)  # fmt: skip
_RG_LONG = (
    *_GREP_LONG,
    "--glob", "--iglob", "--type", "--type-not", "--replace", "--sort", "--maxdepth",
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
    flags=_GREP_FLAGS,
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
        "rgrep": replace(_GREP, letters=None),
        "rg": Walker(
            patterns=1,
            instead="ef",
            instead_long=("--regexp", "--file", "--files"),
            valued="ABCEMTdefgjmrt",
            valued_long=_RG_LONG,
            globs=("-g", "--glob"),
            types=("-t", "--type"),
            widens=("--iglob", "--glob-case-insensitive", "--type-add", "--type-clear"),
            flags=_RG_FLAGS,
        ),
        **dict.fromkeys(("ag", "ack", "ugrep", "ug"), Walker(patterns=1, flags=None)),
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
_GIT_GREP = replace(_GREP, letters=None, valued="ABCefm", flags=_GIT_GREP_FLAGS)
_GIT_FILES = frozenset({"blame", "annotate", "grep", "archive"})
"""Subcommands that print contents of what they are given."""
_LISTERS = frozenset({"ls", "dir", "vdir", "du"})
_NAMES_ONLY = frozenset({"cd", "stat", "echo", "printf", "df"})


def walks_here(words: Sequence[str]) -> bool:
    """Return whether a command with these words, its program first, walks the folder that it runs in."""
    if words[0] == "find":
        return _find_walks(words[1:])
    walker = _WALKERS.get(words[0])
    return walker is not None and _walks(walker, words[1:]) and not _folders(walker, words[1:])


def operands_read(words: Sequence[str]) -> Sequence[str]:
    """Return the paths in which a search reads files, `.` when it names none; none for other commands."""
    walker = _WALKERS[words[0]] if words[0] in _SEARCHERS else None
    if walker is None or "--files" in words or not _walks(walker, words[1:]):
        return ()
    return _folders(walker, words[1:]) or (".",)


def operands_of_git_grep(words: Sequence[str]) -> Sequence[str]:
    """Return the paths in which `git grep` reads files, by the words behind it; `.` when it names none."""
    return _folders(_GIT_GREP, words) or (".",)


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
        return not (args and (args[0] in _GIT_FILES or may_print_secrets(args[0], args[1:])))
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


def _folders(walker: Walker, args: Sequence[str]) -> Sequence[str]:
    """Return the operands of a program that searches or lists; none when one of them may be an option's value."""
    if walker.flags is None:
        return ()
    vague = walker.flags and any(
        option.startswith("--") and not begins_one(option, (*walker.flags, *walker.valued_long))
        for option, _ in _parsed(walker, args)
    )
    return () if vague else _operands(walker, args)


def _parsed(walker: Walker, args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each option with its value, or empty, and each operand as the value of no option.

    Of a group of short options there is one, that with a value, or all of them as one.
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
            letter, value = _valued(walker, word[1:])
            yield f"-{letter}", next(words, "") if value is None else value


def _valued(walker: Walker, letters: str) -> tuple[str, str | None]:
    """Return the option of a group that takes a value, and this value; None: it is the next word."""
    for at, letter in enumerate(letters):
        if letter in walker.valued:
            return letter, letters[at + 1 :] or None
    return letters, ""


def _is_one(option: str, options: Sequence[str]) -> bool:
    return option in options or (option.startswith("--") and begins_one(option, options))


def _find_walks(args: Sequence[str]) -> bool:
    """Return whether `find` is given no path: these stand in front of its expression."""
    first = next((word for word in args if word not in ("-H", "-L", "-P")), "")
    return first == "" or first[0] in "-(!)"
