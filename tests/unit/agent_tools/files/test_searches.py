"""The tools `list`, `glob` and `grep` over real files and the real ripgrep in the real sandbox."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError

from agent_tools import glob, grep
from agent_tools import list as list_
from gateway.domain.secret_paths import SECRET_GLOBS, is_secret_name
from gateway.domain.tools import ResultStatus, SandboxMode, ToolResult
from gateway.errors import DragomanError
from gateway.ports import ProcessText
from gateway.sandbox import Confinement, Containment, ProcessLimits, probe, run_contained
from gateway.toolcalls.files import WorkspaceFiles
from gateway.toolcalls.processes import Beginning
from tests.unit.agent_tools.files.conftest import Bench, Call

SECRETS = ["deploy/.env", ".env.local", "keys/id_rsa", "site.pem", "site.key", ".netrc", ".npmrc"]


@pytest.fixture(scope="module")
def machine() -> Containment:
    return asyncio.run(probe())


class Searching(Call):
    """A call whose programs run in the sandbox."""

    containment: Containment

    async def read(self, argv: Sequence[str], most: int, *, cwd: Path | None = None) -> ProcessText:
        output = Beginning(most)
        ended = await run_contained(
            argv, within=Confinement(mode=SandboxMode.BASIC), workspace=self.cwd, cwd=cwd or self.cwd, output=output,
            containment=self.containment, limits=ProcessLimits(), readable=[Path(argv[0])],
        )  # fmt: skip
        return ProcessText(exit_code=ended.exit_code, data=bytes(output.data), cut=output.cut)


@pytest.fixture
def searching(bench: Bench, machine: Containment) -> Searching:
    call = Searching(bench.workspace, bench.changes(), {})
    call.containment = machine
    return call


@pytest.fixture
def tree(bench: Bench) -> Path:
    """A workspace with files, secrets, ignored files, links and what is no file."""
    texts = {"a.py": "timeout = 1\n", "src/b.py": "x\nTimeout = 2\n", "src/c.txt": "no\n", "build/d.py": "timeout\n"}
    texts |= dict.fromkeys(SECRETS, "timeout = secret\n") | {".gitignore": "build\n", ".git/config": "timeout\n"}
    for n, (name, text) in enumerate(texts.items()):
        bench.path(name).parent.mkdir(parents=True, exist_ok=True)
        bench.path(name).write_text(text)
        os.utime(bench.path(name), (n, n))
    (bench.workspace.parent / "outside").write_text("timeout\n")
    bench.path("link").symlink_to(bench.workspace.parent / "outside")
    bench.path("linked").symlink_to(bench.workspace.parent)
    os.mkfifo(bench.path("fifo"))
    return bench.workspace


async def call(ctx: Searching, tool: ModuleType, **arguments: Any) -> ToolResult:
    args = tool.Args.model_validate(arguments)
    assert tool.scope(args, None).subjects == (f"path:{args.path}",)
    return await tool.run(ctx, args)


@pytest.mark.usefixtures("tree")
async def test_grep_returns_path_line_and_text(searching: Searching) -> None:
    found = await call(searching, grep, pattern="(?i)timeout")
    assert found.text.split("\n") == ["a.py:1: timeout = 1", "src/b.py:2: Timeout = 2"]
    assert found.untrusted
    assert (await call(searching, grep, pattern="timeout", path="src/b.py")).text.startswith("Nothing matches.")
    assert "src/b.py:1: x" in (await call(searching, grep, pattern="^x", include="*.py")).text
    everything = await call(searching, grep, pattern="timeout", all=True)
    assert everything.text.split("\n") == ["a.py:1: timeout = 1", "build/d.py:1: timeout"]


@pytest.mark.usefixtures("tree")
async def test_glob_returns_the_newest_first(searching: Searching) -> None:
    assert (await call(searching, glob, pattern="*.py")).text == "src/b.py\na.py"
    assert (await call(searching, glob, pattern="*.py", path="src")).text == "src/b.py"
    assert (await call(searching, glob, pattern="*.py", all=True)).text == "build/d.py\nsrc/b.py\na.py"
    assert (await call(searching, glob, pattern="src/*")).text == "src/c.txt\nsrc/b.py"
    assert "env" not in (await call(searching, glob, pattern="**/*")).text
    assert "`all` includes them" in (await call(searching, glob, pattern="*.none")).text


@pytest.mark.usefixtures("tree")
async def test_list_shows_upper_levels_first(searching: Searching) -> None:
    found = await call(searching, list_)
    assert found.text.split("\n")[:4] == [".env.local (17 bytes)", ".git/", ".gitignore (6 bytes)", ".netrc (17 bytes)"]
    assert "src/b.py (14 bytes)" in found.text
    assert ".git/config" not in found.text
    assert "link" not in found.text
    assert (await call(searching, list_, path="src")).text == "src/b.py (14 bytes)\nsrc/c.txt (3 bytes)"


async def test_a_found_name_with_a_line_break_is_one_line(bench: Bench, searching: Searching) -> None:
    bench.path("a\nsecret: b").write_text("x\n")
    told = r"a\u{A}secret: b"
    assert (await call(searching, grep, pattern="x")).text == f"{told}:1: x"
    assert (await call(searching, glob, pattern="*")).text == told
    assert (await call(searching, list_)).text == f"{told} (2 bytes)"


async def test_searches_say_when_they_leave_something_out(bench: Bench, searching: Searching) -> None:
    for n in range(150):
        bench.path(f"f{n:03}").write_text("hit\n" * 3 + "x" * 3000 + "hit")
    assert "50 more are left out" in (await call(searching, list_)).text
    assert "50 older files are left out" in (await call(searching, glob, pattern="*")).text
    hits = (await call(searching, grep, pattern="hit")).text.split("\n")
    assert (len(hits), hits[-1]) == (101, "These are the first 100 hits; narrow the pattern or the path for others.")
    assert max(map(len, hits)) < 2100


@pytest.mark.parametrize("path", ["..", "/etc", "link", "linked", "linked/outside", "none", "fifo", "../outside"])
@pytest.mark.parametrize("tool", [list_, glob, grep])
@pytest.mark.usefixtures("tree")
async def test_searches_stay_in_the_workspace(searching: Searching, tool: ModuleType, path: str) -> None:
    arguments = {} if tool is list_ else {"pattern": "timeout" if tool is grep else "*"}
    with pytest.raises(DragomanError):
        await call(searching, tool, path=path, **arguments)


@pytest.mark.usefixtures("tree")
async def test_a_malformed_pattern_is_refused_with_the_reason(searching: Searching) -> None:
    with pytest.raises(DragomanError, match="unclosed group"):
        await call(searching, grep, pattern="(")
    with pytest.raises(DragomanError, match="The search failed"):
        await call(searching, glob, pattern="[")


async def test_configuration_of_the_workspace_is_not_read(bench: Bench, searching: Searching) -> None:
    bench.path(".ripgreprc").write_text("--files\n")
    bench.path("a").write_text("--hit\n")
    assert (await call(searching, grep, pattern="--hit")).text == "a:1: --hit"


async def test_many_matches_take_little_time(bench: Bench, searching: Searching) -> None:
    bench.path("many").write_text("hit\n" * 1_000_000)
    began = time.monotonic()
    assert (await call(searching, grep, pattern="hit")).status is ResultStatus.OK
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("arguments", [{}, {"pattern": ""}, {"pattern": "a\0"}, {"pattern": "a", "other": 1}])
@pytest.mark.parametrize("tool", [glob, grep])
def test_wrong_arguments_are_refused(tool: ModuleType, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        tool.Args.model_validate(arguments)


@pytest.mark.parametrize("name", SECRETS)
def test_globs_cover_every_secret_name(name: str) -> None:
    from fnmatch import fnmatch

    last = name.rpartition("/")[2]
    assert is_secret_name(last)
    assert any(fnmatch(last, glob_) for glob_ in SECRET_GLOBS)


@pytest.mark.usefixtures("tree")
async def test_searches_leave_out_what_a_rule_denies(searching: Searching) -> None:
    searching.files = WorkspaceFiles(searching.cwd, lambda path: path.startswith("src/"))
    assert (await call(searching, grep, pattern="(?i)timeout")).text == "a.py:1: timeout = 1"
    assert (await call(searching, grep, pattern="(?i)timeout", path="src")).text.startswith("Nothing matches.")
    assert (await call(searching, glob, pattern="*.py")).text == "a.py"
    assert "src/b.py" not in (await call(searching, list_)).text
