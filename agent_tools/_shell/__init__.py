"""Results of calls about a job, for `shell`, `shell_poll` and `shell_kill`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gateway.domain.jobs import JobEnd, JobState
from gateway.domain.tools import ResultStatus, ToolResult

_STATUS: Mapping[JobEnd, ResultStatus] = MappingProxyType(
    {
        JobEnd.TIMEOUT: ResultStatus.TIMEOUT,
        JobEnd.STOPPED: ResultStatus.CANCELLED,
        JobEnd.FAILED: ResultStatus.ERROR,
        JobEnd.LOST: ResultStatus.UNKNOWN,
    }
)


def result_of(job: JobState) -> ToolResult:
    """Return the state of a job as a result: its new output, and in the hint how it is."""
    more = f" All its output is in {job.output_path}." if job.output_path else ""
    if job.end is JobEnd.RUNNING and job.why:
        return ToolResult(status=ResultStatus.OK, text="", code="running", hint=f"The job {job.id} goes on. {job.why}")
    if job.end is JobEnd.RUNNING:
        hint = (
            f"The job {job.id} has run for {job.seconds:.0f} s. Look again with shell_poll, or end it with shell_kill, "
            f'by tools: {{"call": {{"name": "shell_poll", "arguments": {{"job": "{job.id}"}}}}}}.'
        )
        return ToolResult(status=ResultStatus.OK, text=job.output, code="running", hint=hint)
    if job.end is JobEnd.EXITED:
        status = ResultStatus.ERROR if job.exit_code else ResultStatus.OK
        hint = f"The job {job.id} ended after {job.seconds:.0f} s.{more}"
        code = "exit" if job.exit_code else ""
        return ToolResult(status=status, text=job.output, code=code, hint=hint, exit_code=job.exit_code)
    hint = f"The job {job.id} is over. {job.why}{more}"
    return ToolResult(status=_STATUS[job.end], text=job.output, code=f"job_{job.end}", hint=hint)
