"""The tools `shell`, `shell_poll` and `shell_kill` about jobs and terminals, over real programs in the sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agent_tools import shell, shell_kill, shell_poll
from agent_tools._shell import result_of
from gateway.approvals.action import render_action
from gateway.domain.ids import NodeId, Principal, SessionId
from gateway.domain.jobs import JobEnd, JobState
from gateway.domain.tools import (
    Action,
    ApprovalMode,
    Availability,
    CallScope,
    Effect,
    NetworkMode,
    ResultStatus,
    Risk,
    SandboxMode,
    ToolResult,
)
from gateway.egress import Egress
from gateway.policy.permission import DEFAULT_APPROVAL
from gateway.sandbox import Containment, ProcessLimits, probe
from gateway.store import open_store
from gateway.system.clock import SystemClock
from gateway.system.redaction import Redactor
from gateway.toolcalls.arguments import ModelArguments
from gateway.toolcalls.jobs import Jobs
from gateway.toolcalls.output import OnText, OutputBuffer
from gateway.toolcalls.processes import CallProcess, ProcessHost
from tests.support.calls import BareCall
from tests.support.patience import PATIENCE_S


class Call(BareCall):
    """A `ToolContext` whose part `process` is the daemon's."""

    def __init__(self, workspace: Path, containment: Containment, jobs: Jobs) -> None:
        super().__init__(workspace)
        self.output = OutputBuffer(workspace.parent / "output", "step.txt", SystemClock(), Redactor())
        action = Action(tool="shell", arguments={}, cwd=str(workspace), sandbox=SandboxMode.BASIC,
                        network=NetworkMode.NONE)  # fmt: skip
        host = ProcessHost(containment=containment, limits=ProcessLimits(), hidden=[workspace.parent / "state"],
                           egress=Egress(), jobs=jobs)  # fmt: skip
        self._process = CallProcess(
            host=host, action=action, workspace=workspace, output=self.output, root=SessionId("main:ann"),
            by=Principal("telegram:1001"), buffer=self._buffer, job_s=lambda asked: min(asked or 600, 600),
        )  # fmt: skip

    @property
    def process(self) -> Any:
        return self._process

    def _buffer(self, on_text: OnText) -> OutputBuffer:
        return OutputBuffer(self.cwd.parent / "output", "job.txt", SystemClock(), Redactor(), on_text)

    async def shell(self, command: str, **more: Any) -> ToolResult:
        return await shell.run(self, shell.Args.model_validate({"command": command, **more}))

    async def polled(self, job: str, **more: Any) -> ToolResult:
        return await shell_poll.run(self, shell_poll.Args.model_validate({"job": job, **more}))

    async def killed(self, job: str) -> ToolResult:
        return await shell_kill.run(self, shell_kill.Args(job=job))


@pytest.fixture(scope="module")
def machine() -> Containment:
    return asyncio.run(probe())


@asynccontextmanager
async def a_call(folder: Path, machine: Containment) -> AsyncGenerator[Call]:
    store = open_store("memory://", SystemClock())
    jobs = Jobs(key_value=store, events=store.event_bus, clock=SystemClock(), node=NodeId("here#1"), nodes=store)
    workspace = folder / "workspace"
    workspace.mkdir()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        task = group.create_task(jobs.run())
        await asyncio.sleep(0)
        yield Call(workspace, machine, jobs)
        task.cancel()
    await store.close()


def job_in(result: ToolResult) -> str:
    words = result.hint.split()
    return words[words.index("job") + 1]


async def test_a_command_in_the_background_is_polled_and_killed(tmp_path: Path, machine: Containment) -> None:
    async with a_call(tmp_path, machine) as call:
        began = await call.shell("echo up; sleep 99", background=True, timeout=60)
        job = job_in(began)
        assert (began.status, began.code, began.text) == (ResultStatus.OK, "running", "up\n")
        looked = await call.polled(job, wait=0)
        assert (looked.status, looked.text) == (ResultStatus.OK, "")
        killed = await call.killed(job)
        assert (killed.status, killed.hint) == (
            ResultStatus.OK, f"The job {job} is over. It was ended by shell_kill."
        )  # fmt: skip
        assert (await call.polled(job)).status is ResultStatus.CANCELLED


async def test_a_program_in_a_terminal_is_typed_to(tmp_path: Path, machine: Containment) -> None:
    async with a_call(tmp_path, machine) as call:
        began = await call.shell("python3 -q", pty=True, background=True)
        job = job_in(began)
        text = began.text
        while not text.endswith(">>> "):
            text += (await call.polled(job)).text
        answer = await call.polled(job, input="6 * 7\n", wait=10)
        assert answer.text == "6 * 7\n42\n>>> "
        ended = await call.polled(job, input="exit(3)\n", wait=10)
        assert (ended.status, ended.code, ended.exit_code) == (ResultStatus.ERROR, "exit", 3)


async def test_a_command_in_a_terminal_runs_to_its_end(tmp_path: Path, machine: Containment) -> None:
    async with a_call(tmp_path, machine) as call:
        result = await call.shell("test -t 0 && test -t 1 && stty size", pty=True)
    assert (result.status, call.output.text()) == (ResultStatus.OK, "40 120\n")


@pytest.mark.parametrize(
    ("end", "code", "status"),
    [
        (JobEnd.TIMEOUT, "job_timeout", ResultStatus.TIMEOUT),
        (JobEnd.FAILED, "job_failed", ResultStatus.ERROR),
        (JobEnd.LOST, "job_lost", ResultStatus.UNKNOWN),
        (JobEnd.STOPPED, "job_stopped", ResultStatus.CANCELLED),
    ],
)
def test_result_names_the_end_of_a_job(end: JobEnd, code: str, status: ResultStatus) -> None:
    job = JobState(id="j1", end=end, exit_code=None, output="x", why="Because.", seconds=3, output_path=".d/o.txt")
    result = result_of(job)
    assert (result.status, result.code, result.text) == (status, code, "x")
    assert result.hint == "The job j1 is over. Because. All its output is in .d/o.txt."


def test_specs_of_the_job_tools() -> None:
    for module, risk, effect in (
        (shell_poll, Risk.READ, Effect.UNSAFE),
        (shell_kill, Risk.NONE, Effect.IDEMPOTENT),
    ):
        spec = module.SPEC
        assert (spec.risk, spec.effect, spec.availability, spec.timeout_s, spec.sandbox) == (
            risk, effect, Availability.MAIN, 30, None
        )  # fmt: skip


def test_poll_is_a_read_and_typing_is_asked() -> None:
    """Typed text reaches a program that one press started: it may do as much as a command of its own."""
    args = shell_poll.Args.model_validate
    assert shell_poll.scope(args({"job": "j1"}), None) == CallScope(risk=Risk.READ)
    typed = shell_poll.scope(args({"job": "j1", "input": "rm -rf ~\n"}), None)
    assert (typed.risk, typed.subjects, typed.summary) == (Risk.EXECUTE, (), "type into the job j1")
    assert DEFAULT_APPROVAL[typed.risk] is ApprovalMode.ASK


@pytest.mark.parametrize(
    ("module", "given", "field", "value"),
    [
        (shell, {"command": "x", "tty": True}, "pty", True),
        (shell, {"command": "x", "run_in_background": True}, "background", True),
        (shell_poll, {"id": "j1"}, "job", "j1"),
        (shell_poll, {"job_id": "j1", "text": "y\n"}, "input", "y\n"),
        (shell_kill, {"id": "j1"}, "job", "j1"),
    ],
)
def test_arguments_have_other_names(module: Any, given: dict[str, Any], field: str, value: object) -> None:
    assert getattr(module.Args.model_validate(given), field) == value


def test_a_card_lists_only_what_is_asked_for() -> None:
    arguments = ModelArguments(shell.Args)
    for given, shown in (({"pty": False, "background": False}, "ls"), ({"background": True}, "ls\nbackground = true")):
        dumped = arguments.dump(shell.Args.model_validate({"command": "ls", **given}))
        action = Action(tool="shell", arguments=dumped, cwd="/w", sandbox=SandboxMode.BASIC)
        assert render_action(action, "command") == shown


@pytest.mark.parametrize(
    "given", [{}, {"job": ""}, {"job": "j" * 41}, {"job": "j1", "wait": 26}, {"job": "j1", "input": "x" * 2001}]
)
def test_arguments_that_cannot_be_used(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        shell_poll.Args.model_validate(given)


def test_a_job_elsewhere_is_reported_as_it_stands() -> None:
    """Nobody here knows for how long it has run."""
    job = JobState(id="j1", end=JobEnd.RUNNING, exit_code=None, output="", why="It is far.", seconds=0, output_path="")
    assert result_of(job).hint == "The job j1 goes on. It is far."
