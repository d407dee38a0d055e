"""Files that a command takes along, or prints, without naming each. Pure; used by `gateway.policy.rules`.

`git` takes them into its index, its history, or to a remote. Other commands are in `gathering`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gateway.policy.shell.committed import may_print_secrets
from gateway.policy.shell.folders import folder_of, is_about_command
from gateway.policy.shell.gathering import gathered
from gateway.policy.shell.git_options import goes_elsewhere, subcommand_of
from gateway.policy.shell.places import as_pattern, files_of, is_outside, is_secret, resolved
from gateway.policy.shell.script import PartKind, ScriptPart, WorkingFolder
from gateway.policy.shell.walking import begins_one, operands_of_git_grep

_WILDCARDS = re.compile(r"[*?]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Taker:
    """Subcommand that takes the paths that it is given, or more."""

    valued: str = ""
    """Short options that take a value."""
    ends: str = ""
    """Short options whose value, if any, follows at once."""
    valued_long: tuple[str, ...] = ()
    wide: str = ""
    """Short options with which it takes any file."""
    wide_long: tuple[str, ...] = ("--pathspec-from-file",)
    """Long options of that kind. Any beginning of them counts."""
    alone: bool = False
    """True when it takes any file without a path, too."""


_ADD = Taker(valued_long=("--chmod",), alone=True)
_STASH = Taker(valued="m", valued_long=("--message",), alone=True)
_TAKERS: Mapping[str, Taker] = MappingProxyType(
    {
        "add": _ADD,
        "stage": _ADD,
        "commit": Taker(
            valued="mFCct",
            ends="uS",
            valued_long=(
                "--message", "--file", "--reuse-message", "--reedit-message", "--template", "--author", "--date",
                "--fixup", "--squash", "--cleanup", "--trailer",
            ),
            wide="ap",
            wide_long=("--all", "--patch", "--interactive", "--pathspec-from-file"),
        ),
        "stash": _STASH,
        "stash push": _STASH,
        "update-index": Taker(wide_long=("--stdin", "--index-info", "--again"), valued_long=("--cacheinfo", "--chmod")),
    }
)  # fmt: skip
_TAKE_ALL = frozenset({
    "push", "send-pack", "http-push", "format-patch", "send-email", "fast-export", "archive", "checkout-index",
    "bundle create", "stash save", "stash create", "worktree add", "lfs push", "subtree push", "subtree split",
    "svn dcommit",
})  # fmt: skip
_PAIRS = frozenset({"bundle", "stash", "worktree", "lfs", "subtree", "svn"})
"""Subcommands that have subcommands of their own."""


def takes(part: ScriptPart, place: WorkingFolder) -> Sequence[str] | None:
    """Return patterns of the files that a command may take, relative to the workspace; None: any of its files."""
    if part.kind is not PartKind.COMMAND:
        return ()
    if part.words[0] != "git":
        return gathered(part, place)
    found = _taken(part.words[1:])
    return _as_texts(found, part, place) if found else found


def is_about_files(pattern: str) -> bool:
    """Return whether a pattern of a rule is about files: it has a folder, or one word like a file's name."""
    pattern = pattern.replace("\\", "/")
    if "/" in pattern and folder_of(pattern):
        return not is_about_command(pattern)
    if any(char.isspace() for char in pattern):
        return False
    name = _WILDCARDS.sub("", pattern)
    return "." in name or "/" in name or is_secret(name)


def _taken(args: Sequence[str]) -> Sequence[str] | None:
    """Return the paths that `git` takes files of; None: any path."""
    rest = subcommand_of(args)
    if not rest:
        return ()
    name, words = rest[0], rest[1:]
    if may_print_secrets(name, words):
        return None
    if name in _PAIRS and words and not words[0].startswith("-"):
        name, words = f"{name} {words[0]}", words[1:]
    if name in _TAKE_ALL or (name == "clone" and _clones_here(words)):
        return None
    if name == "grep":
        return None if goes_elsewhere(args) else operands_of_git_grep(words)
    taker = _TAKERS.get(name)
    found = () if taker is None else _operands(taker, words)
    return None if found and goes_elsewhere(args) else found


def _clones_here(words: Sequence[str]) -> bool:
    """Return whether what is cloned is a folder of this machine."""
    first = next((word for word in words if not word.startswith("-")), None)
    return first is not None and ":" not in first


def _operands(taker: Taker, words: Sequence[str]) -> Sequence[str] | None:
    """Return the paths in the words of a subcommand; None when it takes any path."""
    found = list[str]()
    skips = ended = False
    for word in words:
        if skips:
            skips = False
        elif ended or not word.startswith("-"):
            found.append(word)
        elif word == "--":
            ended = True
        elif word.startswith("--"):
            if begins_one(word, taker.wide_long):
                return None
            skips = "=" not in word and begins_one(word, taker.valued_long)
        else:
            flags, skips = _flags(taker, word[1:])
            if any(letter in taker.wide for letter in flags):
                return None
    return found or (None if taker.alone else ())


def _flags(taker: Taker, group: str) -> tuple[str, bool]:
    """Return the options of a group in front of a value, and whether this value is the next word."""
    for at, letter in enumerate(group):
        if letter in taker.valued:
            return group[:at], at == len(group) - 1
        if letter in taker.ends:
            return group[:at], False
    return group, False


def _as_texts(paths: Sequence[str], part: ScriptPart, place: WorkingFolder) -> list[str] | None:
    """Return patterns of all files that paths of `git` may stand for; None: any file of the workspace."""
    texts = list[str]()
    for path in paths:
        found = None if path.startswith(":") or "\\" in path else resolved(path, part.folders, place)
        if found is None or any(one == "." or is_outside(one) for one in found):
            return None
        for one in map(as_pattern, found):
            texts += files_of(one)
    return texts
