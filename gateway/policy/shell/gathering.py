"""Files that a command reads or copies from whole folders without naming each: `rg x`, `tar c .`, `cp -r`. Pure.

Used by `taking`. Commands that print names alone, such as `find` and `ls -R`, are not among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gateway.policy.shell.places import as_pattern, files_of, is_outside, resolved
from gateway.policy.shell.script import ScriptPart, WorkingFolder
from gateway.policy.shell.walking import begins_one, names_read, operands_read

HERE = "."


@dataclass(frozen=True, slots=True, kw_only=True)
class Gatherer:
    """Program that takes along all that is in the folders among its operands."""

    letters: str | None = None
    """Short options with which it does; None: it always does."""
    long: tuple[str, ...] = ()
    """Long options with which it does. Any beginning of them counts."""
    bare: bool = False
    """True when its first word is a group of short options, with or without a dash."""
    skips: int = 0
    """Operands at the end that it writes to, when there are others."""
    any: str = ""
    """Short options with which it takes any file."""
    any_long: tuple[str, ...] = ()
    """Long options of that kind."""


_COPY = Gatherer(letters="rRa", long=("--recursive", "--archive"), skips=1, any="t", any_long=("--target-directory",))
_TAR = Gatherer(
    letters="cruA",
    long=("--create", "--append", "--update", "--concatenate", "--catenate"),
    bare=True,
    any="CT",
    any_long=("--directory", "--files-from"),
)
_ZIP = Gatherer(letters="rR@", long=("--recurse-paths", "--recurse-patterns", "--names-stdin"), any="@R")
_SEVEN = Gatherer(any="i")
_GATHERERS: Mapping[str, Gatherer] = MappingProxyType(
    {
        **dict.fromkeys(("cp", "gcp"), _COPY),
        **dict.fromkeys(("tar", "gtar", "bsdtar"), _TAR),
        "zip": _ZIP,
        **dict.fromkeys(("7z", "7za", "7zz", "7zr", "rar"), _SEVEN),
        **dict.fromkeys(("mksquashfs", "genisoimage", "mkisofs"), Gatherer()),
        "jar": Gatherer(letters="cu", long=("--create", "--update"), bare=True, any="C"),
        "rclone": Gatherer(skips=1),
        "rsync": Gatherer(letters="ra", long=("--recursive", "--archive"), skips=1, any_long=("--files-from",)),
        "scp": Gatherer(letters="r", skips=1),
        "pax": Gatherer(letters="w", long=("--write",)),
        "cpio": Gatherer(letters="op", long=("--create", "--pass-through"), any="op", any_long=("--create", "--pass")),
        "diff": Gatherer(),
    }
)


def gathered(part: ScriptPart, place: WorkingFolder) -> Sequence[str] | None:
    """Return patterns of all files in the folders that a command reads or copies; None: any file of the workspace."""
    paths = _paths(part.words)
    if paths is None:
        return None
    texts, names = list[str](), names_read(part.words) if paths else ()
    for path in paths:
        found = resolved(path, part.folders, place)
        if found is None or any(_is_around(one, place) for one in found):
            if names == ("*",):
                return None
            texts += [f"*{name}" for name in names]
            continue
        for one in map(as_pattern, found):
            whole = files_of(one)
            texts += whole if len(whole) == 1 or names == ("*",) else [one, *(f"{one}/*{name}" for name in names)]
    return texts


def _is_around(path: str, place: WorkingFolder) -> bool:
    """Return whether a resolved path is the workspace, or a folder above it."""
    if path in (HERE, "/", "~") or set(path.split("/")) == {".."}:
        return True
    return is_outside(path) and place.workspace.startswith(f"{path}/")


def _paths(words: Sequence[str]) -> Sequence[str] | None:
    """Return the operands that a command gathers from; None when it gathers from anywhere."""
    gatherer = _GATHERERS.get(words[0])
    if gatherer is None:
        return operands_read(words)
    options, operands = _split(gatherer, words[1:])
    if gatherer.letters is not None and not _has(options, gatherer.letters, gatherer.long):
        return ()
    if _has(options, gatherer.any, gatherer.any_long):
        return None
    return operands[: -gatherer.skips] if gatherer.skips and len(operands) > 1 else operands


def _split(gatherer: Gatherer, args: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the options and the operands. Values of options count as operands."""
    options, operands, ended = list[str](), list[str](), False
    for at, word in enumerate(args):
        if not ended and word == "--":
            ended = True
        elif not ended and word.startswith("-") and word != "-":
            options.append(word)
        elif at == 0 and gatherer.bare:
            options.append(f"-{word}")
        else:
            operands.append(word)
    return options, operands


def _has(options: Sequence[str], letters: str, long: Sequence[str]) -> bool:
    """Return whether one of the options is among these. A letter counts anywhere in its group."""
    return any(
        begins_one(word, long) if word.startswith("--") else any(letter in letters for letter in word[1:])
        for word in options
    )
