"""Hosts of stateful tools: a folder, and sandbox sessions with egress proxies for programs. Used by `app.core`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from typing import Any

from gateway.domain.tools import SandboxMode, ToolPolicy
from gateway.egress import Egress
from gateway.errors import SandboxMissing
from gateway.ports import Clock, EgressProxy, SandboxSession
from gateway.sandbox import Containment, ProcessLimits, open_sandbox_session, session_limits

NO_SETTINGS = ProcessLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonToolHost:
    """The daemon's implementation of `ToolHost`."""

    settings: Any
    folder: Path
    clock: Clock
    containment: Containment
    egress: Egress
    limits: ProcessLimits = NO_SETTINGS
    """Limits of each program of a tool; a session's follow from them."""

    @asynccontextmanager
    async def open_sandbox_session(
        self,
        program: Path,
        *,
        sandbox: SandboxMode | None,
        hosts: Sequence[str],
        proxies: int,
        readable: Sequence[Path] = (),
    ) -> AsyncGenerator[SandboxSession]:
        """Open a sandbox session for one run of a program. Raises `SandboxMissing`."""
        if sandbox is None:
            raise SandboxMissing("This tool was not planned to start a program.")

        def serve(sock: socket, address: str) -> AbstractAsyncContextManager[EgressProxy]:
            return self.egress.serve(sock, hosts=hosts, address=address)

        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        async with open_sandbox_session(
            program,
            mode=sandbox,
            parent=self.folder,
            proxies=proxies,
            serve=serve,
            containment=self.containment,
            readable=readable,
            limits=session_limits(self.limits),
        ) as session:
            yield session


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolHosts:
    """Factory of tool hosts, one for each tool."""

    state: Path
    clock: Clock
    containment: Containment
    egress: Egress
    limits: ProcessLimits = NO_SETTINGS

    def of(self, name: str, policy: ToolPolicy) -> DaemonToolHost:
        """Return the host of a tool. Its folder is made when its first program starts."""
        return DaemonToolHost(
            settings=policy.settings,
            folder=self.state / "tools" / name,
            clock=self.clock,
            containment=self.containment,
            egress=self.egress,
            limits=self.limits,
        )
