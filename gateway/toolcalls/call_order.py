"""Order of the calls of stateful tools within one pass over a turn. Used by `scheduler`."""

from __future__ import annotations

from gateway.domain.tools import ToolResult
from gateway.toolcalls.decide import Found, Runnable


class CallOrder:
    """Tools with calls in order whose earlier call runs or waits, for one pass over a turn. `""` names no such tool."""

    def __init__(self) -> None:
        """Start empty."""
        self._run: set[str] = set()
        self._wait: set[str] = set()

    def waits_for_end(self, tool: str, *, runs: bool) -> bool:
        """Return True when a call must not be decided now: it runs, or an earlier one runs or is about to."""
        if runs and tool:
            self._run.add(tool)
        return runs or tool in self._run

    def is_behind_a_wait(self, tool: str) -> bool:
        """Return True when an earlier call waits."""
        return tool in self._wait

    def found(self, tool: str, found: Found | None) -> None:
        """Record the outcome of a call."""
        if tool and not isinstance(found, ToolResult):
            (self._run if isinstance(found, Runnable) else self._wait).add(tool)
