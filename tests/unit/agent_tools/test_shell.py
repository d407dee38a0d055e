"""The tool `shell`, over real processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agent_tools import shell
from gateway.domain.tools import (
    Availability,
    Effect,
    NetworkMode,
    ResultStatus,
    Risk,
    SandboxMode,
    SandboxPolicy,
    ToolResult,
)
from gateway.errors import SandboxMissing
from gateway.ports import ProcessEnd
from gateway.sandbox import Confinement, Containment, ProcessLimits, probe, run_contained
from gateway.system.redaction import Redactor
from gateway.toolcalls.output import OutputBuffer
from tests.support.calls import BareCall
from tests.support.clock import FakeClock


class Call(BareCall):
    """A `ToolContext` as a call gets it, over the real sandbox."""

    def __init__(self, workspace: Path, containment: Containment) -> None:
        super().__init__(workspace)
        self.output = OutputBuffer(workspace.parent / "output", "step.txt", FakeClock(), Redactor())
        self._containment = containment

    async def run(self, argv: Sequence[str], *, cwd: Path | None = None, terminal: bool = False) -> ProcessEnd:
        within = Confinement(mode=SandboxMode.BASIC, network=NetworkMode.HOST)
        return await run_contained(
            argv, within=within, workspace=self.cwd, cwd=cwd or self.cwd, output=self.output,
            containment=self._containment, limits=ProcessLimits(),
        )  # fmt: skip

    async def shell(self, command: str, **more: Any) -> ToolResult:
        return await shell.run(self, shell.Args.model_validate({"command": command, **more}))


@pytest.fixture(scope="module")
def machine() -> Containment:
    return asyncio.run(probe())


@pytest.fixture
def call(tmp_path: Path, machine: Containment) -> Call:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Call(workspace, machine)


def test_spec_of_the_shell() -> None:
    spec = shell.SPEC
    assert (spec.name, spec.availability, spec.risk, spec.effect) == (
        "shell", Availability.MAIN, Risk.EXECUTE, Effect.UNSAFE
    )  # fmt: skip
    assert (spec.timeout_s, spec.max_timeout_s, spec.sandbox) == (120, 600, SandboxPolicy.AUTO)
    assert (spec.positional, spec.shows) == ("command", "command")


async def test_a_command_that_works(call: Call) -> None:
    result = await call.shell("echo one; echo two >&2; pwd")
    assert result == ToolResult(status=ResultStatus.OK, text="", exit_code=0)
    assert call.output.text() == f"one\ntwo\n{call.cwd}\n"


@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("no-such-command", 127)])
async def test_a_command_that_fails(call: Call, command: str, code: int) -> None:
    result = await call.shell(command)
    assert (result.status, result.code, result.exit_code) == (ResultStatus.ERROR, "exit", code)


async def test_bash_reads_no_start_files_and_no_input(call: Call) -> None:
    (call.cwd / ".bashrc").write_text("echo rc\n")
    (call.cwd / ".bash_profile").write_text("echo profile\n")
    assert (await call.shell("cat; read line || echo 'no input'")).status is ResultStatus.OK
    assert call.output.text() == "no input\n"


@pytest.mark.parametrize("name", ["workdir", "directory"])
@pytest.mark.parametrize("given", ["sub", "./sub/../sub", "inner-link", "{workspace}/sub"])
async def test_a_folder_of_the_workspace(call: Call, name: str, given: str) -> None:
    (call.cwd / "sub").mkdir()
    (call.cwd / "inner-link").symlink_to("sub")
    assert (await call.shell("pwd", **{name: given.format(workspace=call.cwd)})).status is ResultStatus.OK
    assert call.output.text() == f"{call.cwd}/sub\n"


@pytest.mark.parametrize(
    "given", ["..", "sub/../..", "/", "/etc", "outer-link", "outer-link/deeper", "../workspace-2", "~", "gone", "file"]
)
async def test_a_folder_that_is_refused(call: Call, given: str) -> None:
    (call.cwd / "sub").mkdir()
    (call.cwd / "file").write_text("")
    (call.cwd.parent / "workspace-2" / "deeper").mkdir(parents=True)
    (call.cwd / "outer-link").symlink_to(call.cwd.parent / "workspace-2")
    result = await call.shell("touch ran", workdir=given)
    assert (result.status, result.code, result.exit_code) == (ResultStatus.ERROR, "workdir", None)
    assert f"`{given}`" in result.text
    assert "beneath the workspace" in result.hint or "Create it" in result.hint
    assert not list(call.cwd.parent.rglob("ran"))


async def test_a_folder_that_cannot_be_looked_at(call: Call) -> None:
    (call.cwd / "loop").symlink_to("loop")
    assert (await call.shell("true", workdir="loop")).code == "workdir"
    assert (await call.shell("true", workdir="x" * 4000)).code == "workdir"


async def test_a_workspace_that_is_reached_by_a_link(call: Call) -> None:
    (call.cwd / "sub").mkdir()
    link = call.cwd.parent / "link"
    link.symlink_to(call.cwd)
    call.cwd = link
    assert (await call.shell("pwd", workdir="sub")).status is ResultStatus.OK


async def test_a_stopped_command_keeps_what_it_printed(call: Call) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await call.shell("echo begun; sleep 3600")
    assert call.output.text() == "begun\n"


async def test_a_long_output_is_cut_in_the_middle(call: Call) -> None:
    assert (await call.shell("seq 1000000")).status is ResultStatus.OK
    call.output.close()
    assert call.output.text().startswith("1\n2\n")
    assert call.output.text().endswith("999999\n1000000\n")
    assert (call.cwd.parent / "output" / call.output.full_output).stat().st_size == 6_888_896


async def test_the_longest_command_runs(call: Call) -> None:
    result = await call.shell(": " + "x" * (shell.MAX_COMMAND - 2))
    assert result.status is ResultStatus.OK


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "Field required"),
        ({"command": ""}, "at least 1 character"),
        ({"command": " \n"}, "is empty"),
        ({"command": "echo a\0b"}, "NUL character"),
        ({"command": "echo \ud800"}, "as a unicode string"),
        ({"command": "x" * 65_537}, "at most 65536"),
        ({"command": "é" * 40_000}, "put it into a file"),
        ({"command": "ls", "timeout": 0}, "greater than or equal to 1"),
        ({"command": "ls", "timeout": 120_000}, "less than or equal to 600"),
        ({"command": "ls", "timeout": float("nan")}, "less than or equal to 600"),
        ({"command": "ls", "workdir": "a\0b"}, "NUL character"),
        ({"command": "ls", "sudo": True}, "Extra inputs"),
        ({"command": "ls", "workdir": "a", "directory": "b"}, "Extra inputs"),
    ],
)
def test_arguments_that_are_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        shell.Args.model_validate(arguments)


def test_arguments_survive_being_stored() -> None:
    args = shell.Args.model_validate({"command": "ls", "timeout_s": 5, "directory": "sub", "description": "list"})
    assert (args.timeout, args.workdir) == (5, "sub")
    assert shell.Args.model_validate(json.loads(json.dumps(args.model_dump()))) == args


def test_a_model_sees_one_name_for_each_argument() -> None:
    schema = shell.Args.model_json_schema()
    assert list(schema["properties"]) == ["command", "timeout", "workdir", "pty", "background", "description"]
    assert schema["required"] == ["command"]
    assert schema["additionalProperties"] is False


async def test_without_bubblewrap_nothing_is_run(call: Call, machine: Containment) -> None:
    bare = Call(call.cwd, replace(machine, can_bwrap=False))
    with pytest.raises(SandboxMissing, match="Install bubblewrap"):
        await bare.shell("touch ran")
    assert not (call.cwd / "ran").exists()
