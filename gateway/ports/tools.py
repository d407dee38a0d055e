"""What a running tool may use."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gateway.domain.children import SpawnMode
from gateway.domain.ids import SessionId
from gateway.domain.tools import Artifact, Park, Picture, SandboxMode, ToolResult
from gateway.domain.views import ChildLine
from gateway.ports.clock import Clock


class Output(Protocol):
    """Where a running tool's output goes: shown live, kept head and tail, and whole in a file when long."""

    def write(self, data: bytes) -> None:
        """Take some output. Cheap; never fails for size."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnd:
    """How a process ended."""

    exit_code: int
    """128 + signal when a signal ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a call asks of a new sub-session. What is None or empty is as its parent has it."""

    text: str
    agent: str = ""
    model: str = ""
    tools: Sequence[str] | None = None
    mode: SpawnMode = SpawnMode.RUN
    timeout_s: float | None = None
    """Seconds of work at most."""


class Subsessions(Protocol):
    """The sub-sessions of the session that a call belongs to."""

    async def spawn(self, task: Task) -> ToolResult | Park:
        """Begin one; the rights of the session are checked here, whatever the call says. Idempotent by the step.

        RUN: `Park`. SESSION: a result with its id. A refusal is a result.
        """
        ...

    async def members(self) -> Sequence[ChildLine]:
        """All below this session, live ones first."""
        ...

    async def stop(self, child: SessionId) -> int:
        """Stop one of them with all below it; return how many turns were stopped.

        Raises `NotFound`, and `Forbidden` for what somebody else asked for in a conversation of several people.
        """
        ...


class ToolContext(Protocol):
    """What a tool may use. One for each call."""

    @property
    def cwd(self) -> Path:
        """The session's workspace folder."""
        ...

    @property
    def output(self) -> Output:
        """Where output goes. It becomes the result's text when `ToolResult.text` is empty."""
        ...

    @property
    def step_key(self) -> str:
        """The step's id: the same when the call is run again after a crash."""
        ...

    @property
    def kept_for(self) -> str:
        """The name that a tool keeps things under between calls: one text for one history of a session, another as soon
        as it begins anew. Only letters, digits, `-` and `_`."""
        ...

    @property
    def sandbox(self) -> SandboxMode | None:
        """How this call's programs are contained; None: it starts none."""
        ...

    @property
    def scopes(self) -> frozenset[str]:
        """What people allowed this tool for longer than one call (`CallScope.scope`), this call's own with it; also
        `EVERY_SCOPE` where the configuration asks nobody."""
        ...

    @property
    def subsessions(self) -> Subsessions:
        """The sub-sessions of this session."""
        ...

    async def picture(self, data: bytes, media_type: str) -> Picture:
        """Keep a picture beside the output, at most 10 MB; put it into `ToolResult.pictures`."""
        ...

    async def keep(self, path: Path, name: str, media_type: str) -> Artifact:
        """Copy a file of the workspace beside the output, at most 50 MB; put it into `ToolResult.files`.

        Raises `BadRequest` for what is no regular file in the workspace, or too large.
        """
        ...

    async def spawn(self, argv: Sequence[str], *, cwd: Path | None = None) -> ProcessEnd:
        """Run a program in this call's sandbox, its output into `output`, stdin closed; return when it ended.

        On cancellation the whole process tree is gone before `CancelledError` goes on.
        """
        ...


# --- tools that keep something between calls ------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedAway:
    """One address that a gate refused."""

    host: str
    """As it was asked for, with its port: `10.0.0.1:80`."""
    why: str
    """One sentence."""


class EgressProxy(Protocol):
    """The one way out of an enclosure for one user of it: an HTTP proxy that goes to vetted addresses only."""

    @property
    def address(self) -> str:
        """As the program in the enclosure reaches it: `http://127.0.0.1:40001`."""
        ...

    def let(self, scopes: Collection[str]) -> None:
        """Restrict the proxy to these hosts of the sandbox session, written as `CallScope.scope` of a browser call.

        A host is `host`, or `host:port` where the port is not 80 or 443, without `www.`. Before the first call all
        hosts of the session pass.
        """
        ...

    def turned_away(self) -> Sequence[TurnedAway]:
        """What was refused since this was last asked, oldest first, the last 20."""
        ...


class SandboxSession(Protocol):
    """A closed place for a program that outlives a call. All that runs in it is gone when it is closed."""

    @property
    def launcher(self) -> Path:
        """Start this in place of the program: it takes the program's arguments, and passes descriptors 0 to 4 on."""
        ...

    @property
    def folder(self) -> Path:
        """Private, empty at first, writable from both sides under the same path; removed when it is closed."""
        ...

    def gate(self) -> AbstractAsyncContextManager[EgressProxy]:
        """Open a way out. Waits for the program to run first; raises `SandboxMissing` when it does not within 20 s,
        and `DragomanError` when all of its gates are in use."""
        ...


class ToolHost(Protocol):
    """What a tool that keeps something is made with, once in a daemon's life."""

    @property
    def settings(self) -> Any:
        """Its `Settings`, as configured."""
        ...

    @property
    def folder(self) -> Path:
        """Its own, private, kept over restarts."""
        ...

    @property
    def clock(self) -> Clock:
        """The daemon's clock."""
        ...

    def enclose(
        self,
        program: Path,
        *,
        sandbox: SandboxMode | None,
        hosts: Sequence[str],
        gates: int,
        readable: Sequence[Path] = (),
    ) -> AbstractAsyncContextManager[SandboxSession]:
        """Make a place for one run of a program.

        `sandbox` is the call's. `basic`: its own view of the files and no network but `gates` gates; `off`: on the
        host, whose gates it must be told to use. Its environment is constructed. `hosts`: `host[:port]`, also `*.host`,
        that gates let through although their addresses are private; without a port 80 and 443 are meant. `readable`:
        absolute paths that `basic` shows besides the system and the program's own folder; what is not there is left
        out. Raises `SandboxMissing` (also when `sandbox` is None), `NotFound` (the program), `BadRequest` (what cannot
        be shown).
        """
        ...


class StatefulTool(Protocol):
    """A tool that keeps something between calls. Its module has `keep(place) -> KeptTool` in place of `run`."""

    async def run(self, ctx: ToolContext, args: Any) -> ToolResult | Park:
        """Do one call, as a module's `run` does."""
        ...

    async def serve(self) -> None:
        """Look after what is kept, until cancelled; nothing of it is left then. Runs beside the calls."""
        ...
