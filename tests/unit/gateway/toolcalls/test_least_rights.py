"""Least rights: an empty list grants nothing, and a contained tool runs contained or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.decisions import DenyReason
from gateway.domain.tools import Availability, Risk, SandboxMode, SandboxPolicy
from gateway.errors import BadRequest, SandboxMissing
from gateway.policy.permission import available
from gateway.sandbox import Confinement, Containment, ProcessLimits, probe, run_contained
from gateway.sandbox.plan import environment, holder_for
from tests.support.engine import Engine
from tests.support.fakes import FakeTool
from tests.support.turns import lineage, session
from tests.unit.gateway.toolcalls.subsession_rig import a_child, answered, call, planned, spawning


class Printed:
    """Output that keeps everything."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


WITH_BUBBLEWRAP = Containment(can_bwrap=True, can_pid_namespace=True)


def test_a_child_that_was_given_no_tools_has_none() -> None:
    child = replace(session(of=lineage()), tools=())
    refused = available("shell", Availability.ALWAYS, child)

    assert refused is not None
    assert refused.reason is DenyReason.NOT_GRANTED


async def asked_sandbox(engine: Engine) -> list[SandboxMode | None]:
    """Return the sandbox modes of calls that wait for approval."""
    waits = await engine.store.open_approvals()
    return [wait.approval.action.sandbox for wait in waits if wait.approval is not None]


async def test_unsandboxed_tool_of_main_is_contained_in_a_child(tmp_path: Path) -> None:
    shell = FakeTool(name="shell", risk=Risk.EXECUTE, sandbox=SandboxPolicy.OFF)

    engine = spawning(tmp_path / "main", [shell], containment=WITH_BUBBLEWRAP)
    await engine.settle(await planned(engine, call("shell")))
    assert await asked_sandbox(engine) == [SandboxMode.OFF]

    engine = spawning(tmp_path / "child", [shell], containment=WITH_BUBBLEWRAP)
    _, child = await a_child(engine)
    await answered(engine, child, call("shell"))
    await engine.settle(child)
    assert await asked_sandbox(engine) == [SandboxMode.BASIC]


@pytest.mark.parametrize("namespaces", [True, False])
def test_without_bubblewrap_nothing_else_takes_its_place(namespaces: bool) -> None:
    with pytest.raises(SandboxMissing):
        holder_for(SandboxMode.BASIC, Containment(can_bwrap=False, can_pid_namespace=namespaces))


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "LD_DEBUG_OUTPUT"])
def test_no_variable_of_the_dynamic_linker_reaches_the_holder(name: str) -> None:
    with pytest.raises(BadRequest, match=name):
        environment(Path("/home/ann"), {name: "/tmp/workspace/evil.so"})


def everything_in(folder: Path) -> list[str]:
    """Return all files and folders, recursively."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


async def test_sandboxed_program_sees_only_its_own_workspace(tmp_path: Path) -> None:
    mine, theirs, printed = tmp_path / "mine", tmp_path / "theirs", Printed()
    mine.mkdir()
    theirs.mkdir()
    (theirs / "note").write_text("for them alone")
    ended = await run_contained(
        ["/bin/bash", "-c", "cat ../theirs/note; echo x > ../theirs/new; echo x > ../new; echo x > own && echo end"],
        within=Confinement(mode=SandboxMode.BASIC),
        workspace=mine,
        cwd=mine,
        output=printed,
        containment=await probe(),
        limits=ProcessLimits(),
    )

    assert ended.exit_code == 0
    assert printed.data.endswith(b"end\n")
    assert b"for them alone" not in printed.data
    assert everything_in(tmp_path) == ["mine", "mine/own", "theirs", "theirs/note"]
