"""Types of a parsed shell script: its parts, and why it cannot be known. Made by `gateway.policy.shell.parsing`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

NONE: frozenset[int] = frozenset()
"""No positions."""


class PartKind(StrEnum):
    """Kinds of parts."""

    COMMAND = "command"
    READ = "read"
    """Redirect that reads a file: `< x`."""
    WRITE = "write"
    """Redirect that writes a file: `> x`."""
    ASSIGNMENT = "assignment"
    FUNCTION = "function"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptPart:
    """One simple command, redirect, assignment or function definition of a script."""

    kind: PartKind
    text: str
    """The part as written."""
    words: tuple[str, ...] = ()
    """Words of the command that runs in the end, without quotes, wrappers and assignments; its program's base name
    first. A redirect has its target, an assignment its name and its value."""
    forms: tuple[str, ...] = ()
    """Readings that a deny or ask rule is compared with: the command in normal form and as written, with each wrapper
    and without."""
    suspects: tuple[str, ...] = ()
    """Readings of an unknown program's arguments as a command: it may run them."""
    expands: frozenset[int] = NONE
    """Positions of the words whose value is known only when it runs."""
    globs: frozenset[int] = NONE
    """Positions of the words that stand for names of files."""
    folders: tuple[str, ...] | None = ("",)
    """Folders in which its relative paths may stand, from where the script starts; None: any."""
    program: str = ""
    """Program as written, without quotes: `/bin/rm`, `./rm`."""
    wrapped: bool = False
    """True for a command that a wrapper such as `timeout` runs."""
    exported: bool = False
    """True for an assignment in front of a command: it changes the environment of that command."""
    why_ask: str = ""
    """Reason in one sentence why it is never allowed automatically; empty when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Script in parts, in the order in which they are written."""

    text: str
    parts: tuple[ScriptPart, ...] = ()
    why_ask: str = ""
    """Reason in one sentence why it is never allowed automatically: the first of its own and of its parts'."""
    plain: bool = False
    """True when two readers split it into the same words, and nothing in it expands to other words but file names."""
    loose: tuple[str, ...] | None = ()
    """Runs of words that may be commands, where the parts may not be all; None when there are too many to compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingFolder:
    """Folder in which a script runs."""

    workspace: str = ""
    """Absolute path of the workspace; empty when it is not known."""
    folder: str = ""
    """Folder of the workspace in which it starts, relative to it."""
