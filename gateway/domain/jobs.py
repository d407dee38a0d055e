"""Jobs: states of programs that go on after the call that started them. Made by `gateway.toolcalls.jobs`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class JobEnd(StrEnum):
    """End of a job, or RUNNING."""

    RUNNING = "running"
    EXITED = "exited"
    """It ended on its own, with an exit code."""
    TIMEOUT = "timeout"
    STOPPED = "stopped"
    """It was stopped by a person, a call, or the daemon's shutdown."""
    FAILED = "failed"
    """It could not be started, or the daemon failed to run it."""
    LOST = "lost"
    """The daemon was killed while it ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """State of a job at one moment, with the output that nobody had seen."""

    id: str
    end: JobEnd
    exit_code: int | None
    """128 + signal number when a signal ended it; None unless it exited."""
    output: str
    """Redacted text since the last look, its beginning left out when it is long."""
    why: str
    """Reason of its end in one sentence, or why nothing is known but that it runs; else empty."""
    seconds: float
    """Time since its start; 0 when unknown."""
    output_path: str
    """Path of the whole output, relative to the workspace; empty while it runs, and when it was short."""
