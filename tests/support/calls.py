"""Base of every test's `ToolContext`: a tool can use nothing of it until the test provides it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.domain.ids import SessionId
from gateway.domain.jobs import JobState
from gateway.domain.scopes import Scopes
from gateway.domain.tools import Artifact, Picture, SandboxMode
from gateway.domain.workers import WorkerFile
from gateway.ports import FileChanges, Messages, Net, People, ProcessEnd, ProcessText, Subsessions
from gateway.toolcalls.files import WorkspaceFiles


class BareCall:
    """The parts of a `ToolContext` that most tools leave alone; those that do not, notice.

    It is its own `process` and `artifacts`: a test overrides the methods that its tool needs.
    """

    kept_for = "main-ann-0-of-a-test"
    step_key = "t1/1"
    session = SessionId("main:ann")
    sandbox: SandboxMode | None = SandboxMode.BASIC
    scopes: Scopes = Scopes()
    prepared: Mapping[str, Any] = {}

    def __init__(self, workspace: Path) -> None:
        """Take the workspace."""
        self.cwd = workspace
        self.told: list[str] = []
        self.files = WorkspaceFiles(workspace)

    def progress(self, text: str) -> None:
        """Keep the line."""
        self.told.append(text)

    @property
    def process(self) -> BareCall:
        """The call itself."""
        return self

    @property
    def artifacts(self) -> BareCall:
        """The call itself."""
        return self

    @property
    def changes(self) -> FileChanges:
        """None, unless a test says so."""
        raise AssertionError("this tool changes no file")

    @property
    def sessions(self) -> Subsessions:
        """None, unless a test says so."""
        raise AssertionError("this tool spawns no session")

    @property
    def messages(self) -> Messages:
        """None, unless a test says so."""
        raise AssertionError("this tool sends no message")

    @property
    def people(self) -> People:
        """None, unless a test says so."""
        raise AssertionError("this tool asks nobody")

    @property
    def net(self) -> Net:
        """None, unless a test says so."""
        raise AssertionError("this tool makes no request")

    async def run(self, argv: Sequence[str], *, cwd: Path | None = None, terminal: bool = False) -> ProcessEnd:
        """Run nothing."""
        raise AssertionError("this tool starts no process")

    async def read(self, argv: Sequence[str], most: int, *, cwd: Path | None = None) -> ProcessText:
        """Read nothing."""
        raise AssertionError("this tool reads no process")

    async def start(
        self, argv: Sequence[str], *, cwd: Path | None = None, terminal: bool = False,
        timeout_s: float | None = None,
    ) -> JobState:  # fmt: skip
        """Start nothing."""
        raise AssertionError("this tool starts no job")

    async def poll(self, job: str, *, typed: str = "", wait_s: float = 0.0) -> JobState:
        """Look at nothing."""
        raise AssertionError("this tool looks at no job")

    async def kill(self, job: str) -> JobState:
        """End nothing."""
        raise AssertionError("this tool ends no job")

    async def call(self, file: WorkerFile, function: str, arguments: Mapping[str, Any], *, context: str = "") -> str:
        """Call nothing."""
        raise AssertionError("this tool has no worker")

    async def picture(self, data: bytes, media_type: str) -> Picture:
        """Make nothing."""
        raise AssertionError("this tool makes no picture")

    async def file(self, path: Path, name: str, media_type: str) -> Artifact:
        """Keep nothing."""
        raise AssertionError("this tool keeps no file")
