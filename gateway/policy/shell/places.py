"""Paths of a script: which ones lead out of the workspace, and which may name secrets. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from gateway.domain.secret_paths import SECRET_GLOBS, is_secret_path
from gateway.policy.shell.script import WorkingFolder

NOTHING = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
"""Files that keep nothing."""
OF_THE_SYSTEM = frozenset({
    "/etc/os-release", "/etc/lsb-release", "/etc/debian_version", "/proc/cpuinfo", "/proc/meminfo", "/proc/version",
    "/proc/uptime", "/proc/loadavg",
})  # fmt: skip
"""Files outside the workspace that everybody may read: they describe the machine."""
SHARED = ("/tmp/", "/var/tmp/", "/dev/")  # noqa: S108 - names in commands, not files of ours
"""Folders outside the workspace in which a write is asked about, not refused."""
NAME_AT_MOST = 255
"""Characters of a file's name."""
_KEYS = ("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_xmss", "id_*.bak", "id_*.old")
"""Private keys and their copies, as wildcards of commands mean them: `*.txt` is not asked about for `id_rsa.txt`."""
_CREDENTIALS = "credentials"
"""Name of a file with secrets for commands alone: honest files of a project have it, too."""
_SECRET_GLOBS = (*(glob for glob in SECRET_GLOBS if not glob.startswith("id_")), *_KEYS, _CREDENTIALS, ".git")
_HISTORY = re.compile(r"(?:^|/)\.git(?:/(?:objects|config|modules|lfs|worktrees).*)?\Z", re.IGNORECASE | re.DOTALL)
_PIECES = re.compile(r"[=:,@]")
_WILD = re.compile(r"[*?\[]")
_PATHSPEC_SIGNS = re.compile(r"[*?\[\\]")
_SOURCES = re.compile(
    r"(?:[\w-][\w.-]*/)*+(?:\*\*/)?+[\w*-]++"
    r"\.(?:c|cc|cpp|css|csv|go|h|html|java|js|jsx|log|md|py|rs|sh|ts|tsx|txt)"
)
"""Patterns of files with source text or records, below folders that are named."""
_FILE = re.compile(
    r"(?:.*/)?(?:[\w*-][\w.*-]*\.(?!d\Z)[A-Za-z]\w{0,9}|\.git(?:ignore|attributes|keep)|\.dockerignore|\.editorconfig"
    r"|(?:Make|Docker|Gem|Pip|Just|Proc)file|LICENSE|README|NOTICE|AUTHORS|CHANGELOG|CODEOWNERS)"
)
"""Paths that surely name files and no folder: `main.py`, `src/*.py`, `.gitignore`, `Makefile`."""
_SET = re.compile(r"\[[^/]*\]")
"""Sets of characters in a part of a path, from the first bracket to the last one: a set may have brackets in it."""
OPTIONS_AT_MOST = 64
"""Letters in a group of short options that are read."""


def is_secret(path: str) -> bool:
    """Return whether a path names a file with secrets, or something in a folder of them."""
    return is_secret_path(path) or _CREDENTIALS in path.lower().split("/")


def is_history(path: str) -> bool:
    """Return whether a path names what `git` keeps of committed files, or its settings, which may have passwords."""
    return _HISTORY.search(posixpath.normpath(path)) is not None


def may_be_secret(path: str) -> bool:
    """Return whether a path with wildcards of a shell may stand for a file with secrets."""
    return any(_part_may_be_secret(part) for part in path.split("/"))


def may_name_secrets(words: Sequence[str]) -> bool:
    """Return whether patterns of paths that `git` reads itself may stand for files with secrets."""
    operands = (word for word in words if not word.startswith("-"))
    return any(":(" in word or (_PATHSPEC_SIGNS.search(word) and not names_sources(word)) for word in operands)


def names_sources(pattern: str) -> bool:
    """Return whether a pattern that crosses folders and finds hidden files stands only for source text or records."""
    return _SOURCES.fullmatch(pattern) is not None


def _part_may_be_secret(part: str) -> bool:
    if not _WILD.search(part):
        return is_secret(part)
    if len(part) > NAME_AT_MOST:
        return True
    seen = as_pattern(part.lower())
    # A wildcard stands for no dot at the beginning of a name.
    return any(not (secret[0] == "." and seen[0] in "*?") and overlap(seen, secret) for secret in _SECRET_GLOBS)


@lru_cache(maxsize=1024)
def overlap(one: str, other: str) -> bool:
    """Return whether some text fits both patterns of `*` and `?`."""
    if not _may_overlap(one, other):
        return False
    reach = {0}
    for char in [*one, ""]:
        reach = _closed(reach, other)
        if char == "":
            return len(other) in reach
        if char == "*":
            reach = set(range(min(reach, default=len(other) + 1), len(other) + 1))
            continue
        step: set[int] = set()
        for at in reach:
            if at < len(other) and other[at] == "*":
                step.add(at)
            elif at < len(other) and (char in ("?", other[at]) or other[at] == "?"):
                step.add(at + 1)
        reach = step
    return False


def _may_overlap(one: str, other: str) -> bool:
    """Return whether the texts before the first wildcards agree, and those after the last ones."""
    first, second = _WILD.split(one)[0], _WILD.split(other)[0]
    most = min(len(first), len(second))
    return first[:most] == second[:most]


def _closed(reach: set[int], other: str) -> set[int]:
    """Return the positions with those that a `*` of the other pattern lets pass."""
    found = set(reach)
    for at in sorted(reach):
        while at < len(other) and other[at] == "*":
            at += 1
            found.add(at)
    return found


def as_pattern(word: str) -> str:
    """Return a word with wildcards of a shell as a pattern of a rule, in which a set may stand for any text."""
    return _SET.sub("*", word)


def files_of(path: str) -> list[str]:
    """Return patterns of the files that a path stands for: also those in it, unless it is surely no folder."""
    return [path] if _FILE.fullmatch(path) else [path, f"{path}/*"]


def paths_in(word: str) -> Iterator[str]:
    """Yield possible paths in a word: the word, the value of an option, and the parts of `a=b` and `a:b`.

    The value of a short option may begin after any letter of its group.
    """
    if word.startswith("-"):
        if word.startswith("--"):
            word = word.partition("=")[2]
        else:
            yield from _ends_of_group(word)
            return
    if word:
        yield word
        for piece in _PIECES.split(word)[1:]:
            if piece:
                yield piece


def _ends_of_group(word: str) -> Iterator[str]:
    for at in range(2, min(len(word), OPTIONS_AT_MOST + 2)):
        yield word[at:]
        if not word[at].isalnum():
            break
    yield from (piece for piece in _PIECES.split(word[2:])[1:] if piece)


def resolved(path: str, folders: Sequence[str] | None, place: WorkingFolder) -> tuple[str, ...] | None:
    """Return the forms of a path that rules know: relative to the workspace; None when its folder is not known.

    A path outside stays absolute, or begins with `..`.
    """
    if path.startswith("/"):
        return (_within(posixpath.normpath(path), place),)
    if path.startswith("~"):
        return (path,)
    if folders is None:
        return None
    return tuple(_within(posixpath.normpath(posixpath.join(place.folder, one, path)), place) for one in folders)


def _within(path: str, place: WorkingFolder) -> str:
    if place.workspace and path.startswith(f"{place.workspace}/"):
        return path[len(place.workspace) + 1 :]
    return "." if path == place.workspace else path


def is_outside(path: str) -> bool:
    """Return whether a resolved path leads out of the workspace."""
    return path.startswith(("/", "~")) or path == ".." or path.startswith("../")


def leaves(path: str, folders: Sequence[str] | None, place: WorkingFolder) -> bool:
    """Return whether a path may lead out of the workspace."""
    if "/" not in path and path != ".." and not path.startswith("~") and folders == ("",):
        return False
    found = resolved(path, folders, place)
    return found is None or any(is_outside(one) for one in found if one not in NOTHING)
