"""What all stores go by: how long, how many, and what is said where nobody is left to say it. In no path itself."""

from __future__ import annotations

from datetime import timedelta

from gateway.domain.tools import ResultStatus, ToolResult
from gateway.domain.turns import TurnState
from gateway.domain.waits import WaitState
from gateway.errors import Forbidden

COMMANDS_AT_ONCE = 4
"""Command turns of one session that run side by side."""
AT_ONCE = 500
"""Rows that one call of a sweep takes."""
SENDING_AT_MOST = timedelta(seconds=60)
"""A slot that was taken so long ago is taken back from its sender."""
FILE_SENDING_AT_MOST = timedelta(minutes=15)
"""The same for one with a file, which may be under way for as long as `file_may_take_s` says."""
REFUSAL_EVERY = timedelta(hours=24)
"""A stranger is refused in words no more often."""
TOLD_EVERY = timedelta(hours=1)
"""How often the same thing is said to the owners."""
FAILURES_KEPT = timedelta(minutes=15)
FAILURES_ALLOWED = 10
"""Failed sign-ins of one source within that time; a further one is not looked at."""

HELD = frozenset({TurnState.RUNNING, TurnState.STOPPING})
UNDECIDED = frozenset({WaitState.OPEN, WaitState.APPROVED})

INTERRUPTED_TEXT = "Interrupted."
CANCELLED = ToolResult(
    status=ResultStatus.CANCELLED, text="", code="cancelled", hint="The turn ended before this call ran."
)


def too_many_failures() -> Forbidden:
    """Return the refusal of a source that failed to sign in too often."""
    return Forbidden(
        "Too many failed sign-ins from this address.",
        cure="Run `dragoman link` (in a clone `./run link`) and open the new link: it works at once.",
    )
