"""Workspace with the file tools, as a call gets them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gateway.app.tool_hosts import DaemonToolHost
from gateway.domain.ids import SessionId, TurnId
from gateway.domain.tools import Picture, Preview, ToolResult
from gateway.egress import Egress
from gateway.store.memory import MemoryStore
from gateway.system.redaction import Redactor
from gateway.toolcalls.file_changes import CallFileChanges
from gateway.toolcalls.output import OutputBuffer
from tests.support.calls import BareCall
from tests.support.clock import FakeClock
from tests.support.fakes import NO_SANDBOX


class Call(BareCall):
    """A `ToolContext` with the real files and changes of one call."""

    def __init__(self, workspace: Path, changes: CallFileChanges, prepared: Mapping[str, Any]) -> None:
        super().__init__(workspace)
        self.output = OutputBuffer(workspace.parent / "output", "step.txt", FakeClock(), Redactor())
        self.prepared = prepared
        self._changes = changes
        self.pictures: list[bytes] = []

    @property
    def changes(self) -> CallFileChanges:
        return self._changes

    async def picture(self, data: bytes, media_type: str) -> Picture:
        self.pictures.append(data)
        return Picture(file="1.png", media_type=media_type)


class Bench:
    """A session's workspace, and its calls in one turn after the other."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.journals = folder / "changes"
        self.store = MemoryStore(FakeClock())
        self.turn = 1
        self.calls = 0

    def path(self, name: str) -> Path:
        return self.workspace / name

    def text(self, name: str) -> str:
        return self.path(name).read_text(encoding="utf-8")

    def changes(self) -> CallFileChanges:
        return CallFileChanges(
            key_value=self.store, workspace=self.workspace, folder=self.journals, session=SessionId("main:ann"),
            epoch=0, turn=TurnId(f"t{self.turn}"), n=self.calls,
        )  # fmt: skip

    def context(self, prepared: Mapping[str, Any] | None = None) -> Call:
        return Call(self.workspace, self.changes(), prepared or {})

    async def preview(self, tool: ModuleType, **arguments: Any) -> Preview | ToolResult:
        return await tool.prepare(self.context(), tool.Args.model_validate(arguments))

    async def call(self, tool: ModuleType, **arguments: Any) -> ToolResult:
        """Call a tool as the daemon does: its scope, its preview, then the call with what was seen."""
        args = tool.Args.model_validate(arguments)
        tool.scope(args, None)
        self.calls += 1
        prepared: Mapping[str, Any] = {}
        if hasattr(tool, "prepare"):
            previewed = await tool.prepare(self.context(), args)
            if isinstance(previewed, ToolResult):
                return previewed
            prepared = previewed.state
        return await self._runner(tool).run(self.context(prepared), args)

    def _runner(self, tool: ModuleType) -> Any:
        """Return the tool, or the stateful one that it makes."""
        if not hasattr(tool, "create"):
            return tool
        host = DaemonToolHost(
            settings=None, folder=self.journals / "tool", clock=FakeClock(), containment=NO_SANDBOX, egress=Egress()
        )
        return tool.create(host)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
