"""What a running tool may use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Output(Protocol):
    """Where a running tool's output goes: shown live, kept head and tail, and whole in a file when long."""

    def write(self, data: bytes) -> None:
        """Take some output. Cheap; never fails for size."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended."""

    exit_code: int
    """128 + signal when a signal ended it."""


class ToolContext(Protocol):
    """What a tool may use. One for each call."""

    @property
    def cwd(self) -> Path:
        """The session's workspace folder."""
        ...

    @property
    def output(self) -> Output:
        """Where output goes. It becomes the result's text when `ToolResult.text` is empty."""
        ...

    @property
    def step_key(self) -> str:
        """The step's id: the same when the call is run again after a crash."""
        ...

    async def spawn(self, argv: Sequence[str], *, cwd: Path | None = None) -> Ended:
        """Run a program in this call's sandbox, its output into `output`, stdin closed; return when it ended.

        On cancellation the whole process tree is gone before `CancelledError` goes on.
        """
        ...
