"""Programs of one call: run to their end, or started as jobs. The part `process` of a tool's context."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from socket import socket
from typing import Any

from gateway.domain.ids import Principal, SessionId
from gateway.domain.jobs import JobState
from gateway.domain.tools import Action, NetworkMode, SandboxMode, ToolPolicy, ToolSpec
from gateway.domain.workers import WorkerCall, WorkerFile
from gateway.egress import Egress
from gateway.errors import SandboxMissing
from gateway.ports import EgressProxy, Output, ProcessEnd, ProcessText
from gateway.sandbox import Confinement, Containment, ProcessLimits, Terminal, run_contained
from gateway.toolcalls.jobs import Jobs, NewJob
from gateway.toolcalls.output import OnText, OutputBuffer
from gateway.toolcalls.workers import Workers


def limit_s(spec: ToolSpec, policy: ToolPolicy, arguments: Mapping[str, Any]) -> float:
    """Return the timeout of this call in seconds: that of `tool.action`, else that of `tool`.

    An argument `timeout` lowers it, or raises it up to the tool's maximum. It cannot raise a timeout the owner has set.
    One set for `tool` also caps the defaults of its actions.
    """
    named = arguments.get("action")
    action = named if isinstance(named, str) and named in policy.actions else None
    base = policy.timeout_of(spec.name, action)
    asked = arguments.get("timeout")
    if not isinstance(asked, int | float) or isinstance(asked, bool) or not asked > 0:  # NaN is not
        return base
    is_ceiling = spec.name in policy.ceilings or action in policy.ceilings
    return min(float(asked), base if is_ceiling else max(base, spec.max_timeout_s or base))


def job_limit_s(spec: ToolSpec, policy: ToolPolicy, asked: float | None) -> float:
    """Return the timeout of a job in seconds: the most that a call may ask for, unless less is asked."""
    most = policy.timeout_s if spec.name in policy.ceilings else max(policy.timeout_s, spec.max_timeout_s or 0)
    return most if asked is None else min(asked, most)


def confinement(action: Action) -> Confinement:
    """Return the rights of the programs of a decided call. Raises `SandboxMissing` when its tool starts none."""
    if action.sandbox is None:
        raise SandboxMissing("This tool was not planned to start a process.")
    return Confinement(mode=action.sandbox, network=action.network or NetworkMode.NONE, read_only=action.read_only)


_TROUBLE = re.compile(
    r"could not resolve|temporary failure in name resolution|name or service not known|no address associated"
    r"|network is unreachable|connection refused|failed to connect",
    re.IGNORECASE,
)
_WITHOUT_NETWORK = (
    "It ran without a network. A press in an owner's own session gives one, unless the sandbox is `full`; the owner's "
    "key `network` of the tool decides for the rest."
)


def network_hint(action: Action, failed_with: str) -> str:
    """Return why a failed call could reach nothing, when its output looks like that; else empty."""
    return _WITHOUT_NETWORK if action.network is NetworkMode.NONE and _TROUBLE.search(failed_with) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessHost:
    """Shared means of the programs of all calls."""

    containment: Containment
    limits: ProcessLimits
    hidden: Sequence[Path]
    """Folders of the daemon that no sandbox shows."""
    egress: Egress
    jobs: Jobs
    workers: Workers | None = None

    async def run(
        self,
        argv: Sequence[str],
        action: Action,
        workspace: Path,
        cwd: Path | None,
        output: Output,
        terminal: Terminal | None = None,
        *,
        readable: Sequence[Path] = (),
        lent: Sequence[int] = (),
        limits: ProcessLimits | None = None,
    ) -> ProcessEnd:
        """Run a program of a decided call to its end."""
        return await run_contained(
            argv,
            within=confinement(action),
            workspace=workspace,
            cwd=cwd or workspace,
            output=output,
            containment=self.containment,
            limits=limits or self.limits,
            hide=self.hidden,
            serve=partial(_serve, self.egress),
            terminal=terminal,
            readable=readable,
            lent=lent,
        )


def _serve(egress: Egress, sock: socket, address: str) -> AbstractAsyncContextManager[EgressProxy]:
    return egress.serve(sock, hosts=(), address=address)


class Beginning:
    """`ports.Output` that keeps the beginning."""

    def __init__(self, most: int) -> None:
        """Keep `most` bytes."""
        self._most = most
        self.data = bytearray()
        self.cut = False

    def write(self, data: bytes) -> None:
        """Append what there is room for."""
        room = self._most - len(self.data)
        self.data += data[:room]
        self.cut = self.cut or len(data) > room


def _unseen(_: str) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallProcess:
    """`ports.Process` of one call."""

    host: ProcessHost
    action: Action
    workspace: Path
    output: Output
    root: SessionId
    """Root session, to whose family jobs belong."""
    by: Principal
    buffer: Callable[[OnText], OutputBuffer]
    """Make the output buffer of a job."""
    within: frozenset[SessionId] = frozenset()
    """Sub-session of this call, and its parent if that is one too."""
    job_s: Callable[[float | None], float]
    """Return the timeout of a job in seconds, by what was asked for."""
    kept_for: str = ""
    """History of the session, which workers are kept for."""
    session: str = ""
    """Session of the call."""
    progress: Callable[[str], None] = _unseen
    """Show a line of progress."""

    @property
    def sandbox(self) -> SandboxMode | None:
        """Sandbox of this call's programs."""
        return self.action.sandbox

    async def run(self, argv: Sequence[str], *, cwd: Path | None = None, terminal: bool = False) -> ProcessEnd:
        """Run a program in this call's sandbox."""
        return await self.host.run(
            argv, self.action, self.workspace, cwd, self.output, Terminal() if terminal else None
        )

    async def read(self, argv: Sequence[str], most: int, *, cwd: Path | None = None) -> ProcessText:
        """Run a program in this call's sandbox, and return the beginning of its output."""
        output, readable = Beginning(most), [Path(argv[0])] if argv[0].startswith("/") else ()
        ended = await self.host.run(argv, self.action, self.workspace, cwd, output, readable=readable)
        return ProcessText(exit_code=ended.exit_code, data=bytes(output.data), cut=output.cut)

    async def start(
        self, argv: Sequence[str], *, cwd: Path | None = None, terminal: bool = False,
        timeout_s: float | None = None,
    ) -> JobState:  # fmt: skip
        """Start a program as a job, in this call's sandbox and network."""
        confinement(self.action)

        async def run(output: Output, terminal: Terminal | None) -> ProcessEnd:
            return await self.host.run(argv, self.action, self.workspace, cwd, output, terminal)

        new = NewJob(
            root=self.root,
            by=self.by,
            within=self.within,
            seconds=self.job_s(timeout_s),
            buffer=self.buffer,
            terminal=Terminal() if terminal else None,
        )
        return await self.host.jobs.start(new, run)

    async def poll(self, job: str, *, typed: str = "", wait_s: float = 0.0) -> JobState:
        """Return the state of a job of this family."""
        return await self.host.jobs.poll(self.root, job, typed, wait_s)

    async def kill(self, job: str) -> JobState:
        """End a job of this family."""
        return await self.host.jobs.kill(self.root, job)

    async def call(self, file: WorkerFile, function: str, arguments: Mapping[str, Any], *, context: str = "") -> str:
        """Call a function in a worker of this call's sandbox."""
        within, workers = confinement(self.action), self.host.workers
        if workers is None:
            raise SandboxMissing("This daemon has no workers.")

        async def run(argv: list[str], output: Output, shown: list[Path], fd: int) -> ProcessEnd:
            return await self.host.run(
                argv, self.action, self.workspace, None, output, readable=shown, lent=[fd], limits=workers.limits
            )

        return await workers.call(
            file,
            WorkerCall(function=function, arguments=arguments, context=context, session=self.session),
            within=within,
            of=(self.kept_for, self.workspace),
            run=run,
            output=self.output,
            progress=self.progress,
        )
