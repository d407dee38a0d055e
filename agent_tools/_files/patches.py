"""Patches in the envelope that models write (`*** Begin Patch`): parser, and their effect on files. Pure.

Every hunk is verified before anything changes. A line is compared as it is, then without spaces at its end, then
without spaces around it, then with plain quotes and dashes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agent_tools._files.replacing import closest
from gateway.errors import BadRequest

FILES_AT_MOST = 50
"""Files that one patch may change."""
WORK = 10_000_000
"""Comparisons of two lines that the hunks of one file may take: a few seconds."""
_BEGIN, _END, _END_OF_FILE = "*** Begin Patch", "*** End Patch", "*** End of File"
_ADD, _UPDATE, _DELETE, _MOVE = "*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "
_HEREDOC = re.compile(r"\A(?:cat\s+)?<<-?\s*(['\"]?)(\w+)\1\s*\n(.*?)\n\2\s*\Z", re.DOTALL)
_PLAIN = str.maketrans({
    "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-", "\u2014": "-", "\u2212": "-",
    "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u00a0": " ",
})  # fmt: skip
_FORM = "Write *** Begin Patch, then *** Add File:, *** Update File: or *** Delete File:, then *** End Patch."
_COMPARED: tuple[Callable[[str], str], ...] = (
    lambda line: line,
    str.rstrip,
    str.strip,
    lambda line: line.translate(_PLAIN).strip(),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """One change of a file: lines to be found, and lines in their place."""

    heading: str
    """Line above the change, from `@@ …`; empty: none."""
    old: tuple[str, ...]
    new: tuple[str, ...]
    at_end: bool = False
    """True when the change stands at the end of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePatch:
    """Change of one file."""

    path: str
    content: str | None = None
    """Whole text of a new file; None: it is changed or removed."""
    remove: bool = False
    move_to: str = ""
    hunks: tuple[Hunk, ...] = ()


@dataclass(slots=True)
class _Reader:
    lines: Sequence[str]
    at: int = 0

    def peek(self) -> str | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def take(self) -> str:
        self.at += 1
        return self.lines[self.at - 1]


def parse_patch(text: str) -> list[FilePatch]:
    """Return the changes of a patch, in order. Raises `BadRequest` that names the line at fault."""
    inner = _HEREDOC.match(text.strip())
    lines = (inner.group(3) if inner else text.strip()).replace("\r\n", "\n").split("\n")
    if lines[0].strip() != _BEGIN or lines[-1].strip() != _END:
        raise BadRequest("The patch has no begin or no end line.", cure=_FORM)
    reader, found = _Reader(lines[1:-1]), list[FilePatch]()
    while (line := reader.peek()) is not None:
        if not line.strip():
            reader.take()
            continue
        found.append(_file(reader))
    _check(found)
    return found


def _check(found: Sequence[FilePatch]) -> None:
    if not found:
        raise BadRequest("The patch changes no file.", cure=_FORM)
    if len(found) > FILES_AT_MOST:
        raise BadRequest(
            f"The patch changes {len(found)} files, at most {FILES_AT_MOST} are possible.", cure="Split it."
        )
    names = [name for one in found for name in (one.path, one.move_to) if name]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadRequest(f"The patch names `{twice}` twice.", cure="Write all changes of a file under one heading.")


def _file(reader: _Reader) -> FilePatch:
    head = reader.take()
    for start in (_ADD, _UPDATE, _DELETE):
        if head.startswith(start) and head[len(start) :].strip():
            path = head[len(start) :].strip()
            break
    else:
        raise BadRequest(f"Line {reader.at + 1} of the patch is no heading: {head[:80]!r}.", cure=_FORM)
    if start == _DELETE:
        return FilePatch(path=path, remove=True)
    if start == _ADD:
        return FilePatch(path=path, content=_content(reader))
    move_to = ""
    if (line := reader.peek()) is not None and line.startswith(_MOVE):
        move_to = reader.take()[len(_MOVE) :].strip()
    hunks = tuple(_hunks(reader))
    if not hunks and not move_to:
        raise BadRequest(f"The patch says nothing about how `{path}` changes.", cure="Add lines with -, + or a space.")
    return FilePatch(path=path, move_to=move_to, hunks=hunks)


def _content(reader: _Reader) -> str:
    lines: list[str] = []
    while (line := reader.peek()) is not None and not line.startswith("*** "):
        if line and not line.startswith("+"):
            raise BadRequest(
                f"Line {reader.at + 2} of the patch does not begin with +.", cure="Begin each line with +."
            )
        lines.append(reader.take()[1:])
    return "\n".join([*lines, ""]) if lines else ""


@dataclass(slots=True)
class _Open:
    heading: str = ""
    old: list[str] = field(default_factory=list[str])
    new: list[str] = field(default_factory=list[str])

    def closed(self, *, at_end: bool = False) -> Hunk:
        return Hunk(heading=self.heading, old=tuple(self.old), new=tuple(self.new), at_end=at_end)


def _hunks(reader: _Reader) -> list[Hunk]:
    found, hunk = list[Hunk](), _Open()
    while (line := reader.peek()) is not None and (not line.startswith("*** ") or line.strip() == _END_OF_FILE):
        reader.take()
        mark, rest = line[:1], line[1:]
        if line.strip() == _END_OF_FILE:
            found.append(hunk.closed(at_end=True))
            hunk = _Open()
        elif line.startswith("@@"):
            if hunk.old or hunk.new:
                found.append(hunk.closed())
            hunk = _Open(heading=line[2:].strip().removesuffix("@@").strip())
        elif mark in ("", " "):
            hunk.old.append(rest)
            hunk.new.append(rest)
        elif mark == "-":
            hunk.old.append(rest)
        elif mark == "+":
            hunk.new.append(rest)
        else:
            cure = "Begin each line with a space, - or +."
            raise BadRequest(f"Line {reader.at + 1} of the patch begins with {mark!r}.", cure=cure)
    if hunk.old or hunk.new:
        found.append(hunk.closed())
    return found


@dataclass(slots=True)
class _Work:
    """Comparisons that are left for one file."""

    path: str
    left: int = WORK

    def spend(self, comparisons: int) -> None:
        """Take note of comparisons that come. Raises `BadRequest` when they are too many."""
        self.left -= comparisons
        if self.left < 0:
            raise BadRequest(f"The hunks of `{self.path}` fit in too many places.", cure="Split the patch.")


def patched(path: str, text: str, hunks: Sequence[Hunk]) -> str:
    """Return a file's text after all hunks, in order. Raises `BadRequest` for the first that does not fit."""
    ends = text.endswith("\n") or not text
    lines = text.removesuffix("\n").split("\n") if text else []
    at, work = 0, _Work(path)
    for n, hunk in enumerate(hunks, 1):
        work.spend(len(lines) // 100)  # the lines behind it move
        if hunk.heading:
            above = _position(lines, (hunk.heading,), at, work)
            if above is None:
                nearest = closest(text, hunk.heading)
                raise BadRequest(f"`{path}`, hunk {n}: there is no line {hunk.heading!r}. {nearest}", cure=_AGAIN)
            at = above + 1
        if not hunk.old:
            at = len(lines) if hunk.at_end or not hunk.heading else at
        else:
            found = _position(lines, hunk.old, at, work, at_end=hunk.at_end)
            if found is None:
                nearest = closest(text, "\n".join(hunk.old))
                raise BadRequest(f"`{path}`, hunk {n}: its old lines are not there. {nearest}", cure=_AGAIN)
            at = found
        lines[at : at + len(hunk.old)] = hunk.new
        at += len(hunk.new)
    return "\n".join(lines) + ("\n" if ends and lines else "")


_AGAIN = "Read the file again, and write the hunk with lines as they are."


def _position(
    lines: Sequence[str], wanted: Sequence[str], begin: int, work: _Work, *, at_end: bool = False
) -> int | None:
    """Return the index of lines, from `begin` on, by the strictest comparison that finds them."""
    count = len(wanted)
    for shape in _COMPARED:
        shaped = [shape(line) for line in wanted]
        starts = [len(lines) - count] if at_end else range(begin, len(lines) - count + 1)
        work.spend(len(starts))
        for start in starts:
            if start < begin or shape(lines[start]) != shaped[0]:
                continue
            work.spend(count)
            if all(shape(lines[start + k]) == shaped[k] for k in range(count)):
                work.left += starts[-1] - start  # what was not looked at
                return start
    return None
