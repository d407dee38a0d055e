"""Copies of long outputs in the workspace: programs can read them, and searches do not find their own output."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path

import pytest

from gateway.domain.ids import SessionId
from gateway.system.redaction import Redactor
from gateway.toolcalls.output import OutputBuffer
from gateway.toolcalls.workspaces import READABLE, READABLE_AT_MOST, READABLE_BYTES, Workspaces
from tests.support.clock import FakeClock

SESSION = SessionId("main:ann")
LINES = 4_000
LINE = "a line of data with foo in it\n"


@pytest.fixture
def spaces(tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path)


@pytest.fixture
def workspace(spaces: Workspaces) -> Path:
    folder = spaces.workspace(SESSION)
    (folder / "data.txt").write_text(LINE * LINES)
    return folder


def run(spaces: Workspaces, command: str, name: str = "t1-1.txt") -> OutputBuffer:
    """Run a command in the workspace with its output in a buffer, piece by piece as it comes."""
    copy = partial(spaces.readable_output, SESSION)
    out = OutputBuffer(spaces.outputs(SESSION), name, FakeClock(), Redactor(), copy=copy)
    argv = ["/bin/sh", "-c", command]
    with subprocess.Popen(argv, cwd=spaces.workspace(SESSION), stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        while data := os.read(program.stdout.fileno(), 65_536):
            out.write(data)
    out.close()
    return out


def test_a_search_is_not_fed_by_its_own_copy(spaces: Workspaces, workspace: Path) -> None:
    out = run(spaces, "cat data.txt; grep -rh foo .")

    assert out.has_copy
    assert (workspace / READABLE / "t1-1.txt").read_text() == LINE * 2 * LINES


def test_searches_that_heed_ignore_files_skip_copies(spaces: Workspaces, workspace: Path) -> None:
    run(spaces, "cat data.txt")
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    seen = subprocess.run(
        ["git", "status", "--short", "-uall"], cwd=workspace, capture_output=True, text=True, check=True
    )

    assert seen.stdout == "?? data.txt\n"
    assert (workspace / ".dragoman/.ignore").read_text() == "*\n"


def test_an_ignore_file_of_a_tool_is_left_alone(spaces: Workspaces, workspace: Path) -> None:
    (workspace / ".dragoman").mkdir()
    (workspace / ".dragoman/.ignore").write_text("mine")
    (workspace / ".dragoman/.gitignore").symlink_to(workspace / "gone")
    out = run(spaces, "cat data.txt")

    assert out.has_copy
    assert (workspace / ".dragoman/.ignore").read_text() == "mine"
    assert not (workspace / "gone").exists()


def test_the_newest_copies_stay(spaces: Workspaces, workspace: Path) -> None:
    """Long outputs of a hundred calls are worth more than the disk that a few large ones would take."""
    folder = workspace / READABLE
    folder.mkdir(parents=True)
    for n in range(READABLE_AT_MOST + 2):
        (folder / f"t1-{n:03}.txt").touch()
        os.utime(folder / f"t1-{n:03}.txt", (n, n))
    run(spaces, "cat data.txt", "t2-0.txt")
    left = [f"t1-{n:03}.txt" for n in range(3, READABLE_AT_MOST + 2)]
    assert sorted(os.listdir(folder)) == [*left, "t2-0.txt"]
    os.truncate(folder / left[-1], READABLE_BYTES // 2)
    os.truncate(folder / left[-2], READABLE_BYTES // 2 + 1)
    for n, name in enumerate(left):
        os.utime(folder / name, (n, n))
    os.utime(folder / "t2-0.txt", (len(left), len(left)))
    run(spaces, "echo " + "x" * 10, "t2-1.txt")
    assert sorted(os.listdir(folder))[-2:] == [left[-1], "t2-0.txt"]
