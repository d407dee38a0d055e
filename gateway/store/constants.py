"""Limits, intervals and fixed texts shared by all stores."""

from __future__ import annotations

from datetime import timedelta

from gateway.domain.tools import ResultStatus, ToolResult
from gateway.domain.turns import TurnState
from gateway.domain.waits import WaitState
from gateway.errors import Forbidden

COMMANDS_AT_ONCE = 4
"""Command turns of one session that run concurrently."""
AT_ONCE = 500
"""Rows per call of a sweep."""
SENDING_AT_MOST = timedelta(seconds=60)
"""Timeout of sending a slot; then it is taken back from its sender."""
FILE_SENDING_AT_MOST = timedelta(minutes=15)
"""The same for a slot with a file, whose upload may take as long as `file_may_take_s` returns."""
REFUSAL_EVERY = timedelta(hours=24)
"""Minimum interval between refusals shown to one stranger."""
TOO_FAST_EVERY = timedelta(minutes=1)
"""Minimum interval between refusals shown to one person who writes too fast."""
TOLD_EVERY = timedelta(hours=1)
"""Minimum interval between identical notices to the owners."""
CLOCKS_DIFFER_AT_MOST = timedelta(seconds=5)
"""Most that clocks of two nodes differ by. A time further ahead is of a clock that was wrong: it orders nothing."""
FAILURES_KEPT = timedelta(minutes=15)
"""Age limit of recorded failed sign-ins."""
FAILURES_ALLOWED = 10
"""Failed sign-ins of one source within `FAILURES_KEPT`; further attempts are refused unread."""

HELD = frozenset({TurnState.RUNNING, TurnState.STOPPING})
UNDECIDED = frozenset({WaitState.OPEN, WaitState.APPROVED})

CANCELLED = ToolResult(
    status=ResultStatus.CANCELLED, text="", code="cancelled", hint="The turn ended before this call ran."
)


def too_many_failures() -> Forbidden:
    """Return the refusal of a source that failed to sign in too often."""
    return Forbidden(
        "Too many failed sign-ins from this address.",
        cure="Run `dragoman link` (in a clone `./run link`) and open the new link: it works at once.",
    )
