"""Folders that a command names, and those that rules are about. Pure; used by `gateway.policy.rules`."""

from __future__ import annotations

import re

from gateway.policy.shell.places import as_pattern, overlap, paths_in, resolved
from gateway.policy.shell.script import Part, PartKind, Place

_WILDCARD = re.compile(r"[*?]")


def named_folders(part: Part, place: Place) -> tuple[str, ...]:
    """Return what a part names that may be folders, in the form of `path:` subjects."""
    if part.kind is PartKind.FUNCTION:
        return ()
    words = part.words[1:] if part.kind is PartKind.COMMAND else part.words
    elsewhere = place.folder != "" or part.folders != ("",)
    paths = (path for word in words if not (elsewhere and word.startswith("-")) for path in paths_in(word))
    return tuple(one for path in paths for one in resolved(path, part.folders, place) or ())


def is_above(path: str, folder: str) -> bool:
    """Return whether a path, which may have wildcards of a shell, is a folder or above it."""
    return overlap(as_pattern(path), "/".join(folder.split("/")[: path.count("/")]) + "/")


def folder_of(pattern: str) -> str:
    """Return the folder that a pattern names before its first wildcard; empty when there is none."""
    return _WILDCARD.split(pattern.replace("\\", "/"), maxsplit=1)[0].rpartition("/")[0]
