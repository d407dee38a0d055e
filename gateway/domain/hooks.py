"""Hook types: programs and functions of the owner that see each call before it is decided, or its result after it ran.

Run by `gateway.toolcalls.hooks` alone. The outcome of the hooks before a call is stored with its step.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class HookEvent(StrEnum):
    """Moment at which a hook runs. Its configuration key is `event`."""

    BEFORE = "before_tool_call"
    """The call is valid and not decided yet. The hook may change its arguments, or refuse it."""
    AFTER = "after_tool_call"
    """The call ran. The hook may change the text of its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOutcome:
    """Outcome of the hooks before one call. They run once: a restart reads this in place of running them again."""

    by: str = ""
    """Names of the hooks that changed the arguments, or of the one that refused; empty when none did anything."""
    arguments: str | None = None
    """JSON text in place of the arguments that the model gave; None: those stay."""
    refused: str = ""
    """Reason of the refusal, for the model and the person; empty when no hook refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookConfig:
    """One `[[hooks]]` of the configuration: a program, or a function of an installed package."""

    name: str
    """Name for people: that of the program or of the package."""
    event: HookEvent
    tools: frozenset[str] = frozenset()
    """Tools whose calls it sees; empty: those of every tool."""
    command: tuple[str, ...] = ()
    """Program with its arguments, the program as an absolute path; empty for a function."""
    package: str = ""
    """Name of the package's entry point; empty for a program."""
