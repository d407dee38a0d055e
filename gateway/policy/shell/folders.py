"""Folders that a command names or walks, and those that rules are about. Pure; used by `gateway.policy.rules`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gateway.policy.shell.places import as_pattern, overlap, paths_in, resolved
from gateway.policy.shell.script import PartKind, ScriptPart, WorkingFolder
from gateway.policy.shell.walking import walks_here

_WILDCARD = re.compile(r"[*?]")
_COMMAND = re.compile(
    r"(?:rm|cp|mv|ln|chmod|chown|curl|wget|ssh|scp|rsync|sudo|kubectl|npm) .*|.* -.*|.*://.*", re.DOTALL
)
"""Patterns that are surely about commands: no folder is called so."""
_FLAGS_ONLY = frozenset({
    "ls", "dir", "vdir", "pwd", "cd", "stat", "df", "wc", "cat", "tac", "head", "tail", "nl", "uniq", "echo", "printf",
    "test", "[", "id", "uname", "ps", "free", "which", "type",
})  # fmt: skip
"""Programs whose groups of short options hold no name of a file."""
_FILTERS = frozenset({"jq", "yq"})
"""Programs for which a dot is a filter, and never a folder."""


def named_folders(part: ScriptPart, place: WorkingFolder) -> tuple[str, ...]:
    """Return possible folders named by a part, in the form of `path:` subjects, and the folder that it walks."""
    if part.kind is PartKind.FUNCTION:
        return ()
    paths = [path for word in file_words(part, place) for path in paths_in(word)]
    if part.kind is PartKind.COMMAND and walks_here(part.words):
        paths.append(".")
    return tuple(one for path in paths for one in resolved(path, part.folders, place) or ())


def file_words(part: ScriptPart, place: WorkingFolder) -> Iterator[str]:
    """Yield the words of a part that may name files.

    In the workspace itself each one may. In a folder, a group of short options counts unless its program is known to
    take no file there. A rule about all files of the folder fits any letters.
    """
    if part.kind is not PartKind.COMMAND:
        yield from part.words
        return
    skips = starts_elsewhere(part, place) and part.words[0] in _FLAGS_ONLY
    for word in part.words[1:]:
        if word == "." and part.words[0] in _FILTERS:
            continue
        if not skips or word[:1] != "-" or word[:2] == "--":
            yield word


def starts_elsewhere(part: ScriptPart, place: WorkingFolder) -> bool:
    """Return whether a part may run in another folder than the workspace."""
    return place.folder != "" or part.folders != ("",)


def is_above(path: str, folder: str) -> bool:
    """Return whether a path, which may have wildcards of a shell, is a folder or above it."""
    return overlap(as_pattern(path), "/".join(folder.split("/")[: path.count("/")]) + "/")


def folder_of(pattern: str) -> str:
    """Return the folder that a pattern names before its first wildcard; empty when there is none."""
    return _WILDCARD.split(pattern.replace("\\", "/"))[0].rpartition("/")[0]


def is_about_command(pattern: str) -> bool:
    """Return whether a pattern with a slash is about a command, and not about what is in a folder."""
    return _COMMAND.fullmatch(pattern) is not None
