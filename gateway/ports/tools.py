"""What a running tool may use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gateway.model.ids import SessionId
from gateway.model.sessions import ChildLine, SpawnMode
from gateway.model.tools import Park, Picture, ToolResult


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a call asks of a new sub-session. What is None or empty is as its parent has it."""

    text: str
    agent: str = ""
    model: str = ""
    tools: Sequence[str] | None = None
    mode: SpawnMode = SpawnMode.RUN
    timeout_s: float | None = None
    """Seconds of work at most."""


class Family(Protocol):
    """The sub-sessions of the session that a call belongs to."""

    async def spawn(self, task: Task) -> ToolResult | Park:
        """Begin one; the rights of the session are checked here, whatever the call says. Idempotent by the step.

        RUN: `Park`. SESSION: a result with its id. A refusal is a result.
        """
        ...

    async def members(self) -> Sequence[ChildLine]:
        """All below this session, live ones first."""
        ...

    async def stop(self, child: SessionId) -> int:
        """Stop one of them with all below it; return how many turns were stopped.

        Raises `NotFound`, and `Forbidden` for what somebody else asked for in a conversation of several people.
        """
        ...


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

    @property
    def family(self) -> Family:
        """The sub-sessions of this session."""
        ...

    async def picture(self, data: bytes, media_type: str) -> Picture:
        """Keep a picture beside the output, at most 10 MB; put it into `ToolResult.pictures`."""
        ...

    async def spawn(self, argv: Sequence[str], *, cwd: Path | None = None) -> Ended:
        """Run a program in this call's sandbox, its output into `output`, stdin closed; return when it ended.

        On cancellation the whole process tree is gone before `CancelledError` goes on.
        """
        ...
