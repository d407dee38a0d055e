"""Where tools that keep something between calls live: their folder, and enclosures with gates for their programs."""

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
from gateway.sandbox import Containment, enclosed


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonToolHost:
    """A `ToolHost`."""

    settings: Any
    folder: Path
    clock: Clock
    containment: Containment
    egress: Egress

    @asynccontextmanager
    async def enclose(
        self,
        program: Path,
        *,
        sandbox: SandboxMode | None,
        hosts: Sequence[str],
        gates: int,
        readable: Sequence[Path] = (),
    ) -> AsyncGenerator[SandboxSession]:
        """Make a place for one run of a program."""
        if sandbox is None:
            raise SandboxMissing("This tool was not planned to start a program.")

        def serve(sock: socket, address: str) -> AbstractAsyncContextManager[EgressProxy]:
            return self.egress.gate(sock, hosts=hosts, address=address)

        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        async with enclosed(
            program,
            mode=sandbox,
            parent=self.folder,
            gates=gates,
            serve=serve,
            containment=self.containment,
            readable=readable,
        ) as enclosure:
            yield enclosure


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolHosts:
    """Gives each tool its own."""

    state: Path
    clock: Clock
    containment: Containment
    egress: Egress

    def of(self, name: str, policy: ToolPolicy) -> DaemonToolHost:
        """The place of a tool. Nothing is made on the disk before a program is started."""
        return DaemonToolHost(
            settings=policy.settings,
            folder=self.state / "tools" / name,
            clock=self.clock,
            containment=self.containment,
            egress=self.egress,
        )
