"""A folder of own tools with its source and workers, for the tests of own tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from config.own_files import OwnFile
from config.own_folder import OwnFolder
from gateway.app.own_tools import PACKAGE, FolderSource, worker_file
from gateway.domain.tools import SandboxMode
from gateway.domain.workers import WorkerCall
from gateway.ports import Output, ProcessEnd
from gateway.sandbox import Confinement, Containment, ProcessLimits, probe, run_contained
from gateway.toolcalls.workers import Workers

HEAD = "from agent_tools.own import tool\nimport os, sys, time\n"
ADD = f"""{HEAD}
@tool(risk="read", effect="pure")
def add(a: int, b: int = 2) -> int:
    'Add.'
    return a + b
"""
BASIC = Confinement(mode=SandboxMode.BASIC)


def after(code: str) -> str:
    """A tool's file that does something when it is imported."""
    return f'{HEAD}{code}\n@tool\ndef run(a: int = 1):\n    """Run."""\n'


@dataclass
class Printed:
    """`ports.Output` that keeps all."""

    data: bytes = b""

    def write(self, data: bytes) -> None:
        self.data += data


@dataclass
class Place:
    """A folder of tools, its source, and its workers."""

    folder: OwnFolder
    workers: Workers
    containment: Containment
    workspace: Path
    source: FolderSource
    printed: Printed = field(default_factory=Printed)
    told: list[str] = field(default_factory=list[str])
    """Lines of progress."""

    def save(self, name: str, text: str) -> None:
        (self.folder.path / name).write_text(text)

    def why(self) -> Mapping[str, str]:
        return {tool.spec.name: tool.missing for tool in self.source.snapshot()}

    def file(self, stem: str) -> OwnFile:
        return next(one for one in self.folder.files() if one.path.stem == stem)

    async def call(self, stem: str, given: Mapping[str, Any], *, of: str = "s", within: Confinement = BASIC) -> str:
        async def run(argv: list[str], output: Output, shown: list[Path], fd: int) -> ProcessEnd:
            return await run_contained(
                argv, within=within, workspace=self.workspace, cwd=self.workspace, output=output,
                containment=self.containment, limits=self.workers.limits, readable=shown, lent=[fd],
            )  # fmt: skip

        file = self.file(stem)
        one = file.tools[0]
        return await self.workers.call(
            worker_file(file),
            WorkerCall(function=one.function, arguments=given, context=one.context, session="main:ann"),
            within=within,
            of=of,
            run=run,
            output=self.printed,
            progress=self.told.append,
        )


@asynccontextmanager
async def place(tmp_path: Path, containment: Containment | None = None, **folder: Any) -> AsyncGenerator[Place]:
    (tmp_path / "tools").mkdir()
    (tmp_path / "workspace").mkdir()
    found = containment or await probe()
    own = OwnFolder(path=tmp_path / "tools", **folder)
    workers = Workers(containment=found, limits=ProcessLimits(), package=PACKAGE)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(workers.run())
        await asyncio.sleep(0)
        source = FolderSource(own, taken=["shell"], workers=workers, containment=found)
        yield Place(own, workers, found, tmp_path / "workspace", source)
        running.cancel()
