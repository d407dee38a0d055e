"""Protocols of tools with state between calls, and of the host that such a tool is made with."""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gateway.domain.tools import Park, SandboxMode, ToolResult
from gateway.ports.clock import Clock
from gateway.ports.tools import ToolContext


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedAway:
    """Destination that an egress proxy refused."""

    host: str
    """Requested host with its port: `10.0.0.1:80`."""
    why: str
    """Reason in one sentence."""


class EgressProxy(Protocol):
    """HTTP proxy that is one user's only way out of a sandbox session. It connects to vetted addresses only."""

    @property
    def address(self) -> str:
        """URL of the proxy as seen by the program in the sandbox session: `http://127.0.0.1:40001`."""
        ...

    def let(self, scopes: Container[str]) -> None:
        """Restrict the proxy to these hosts of the sandbox session, written as `CallScope.scope` of a browser call.

        A host is `host`, or `host:port` where the port is not 80 or 443, without `www.`. Before the first call all
        hosts of the session pass.
        """
        ...

    def turned_away(self) -> Sequence[TurnedAway]:
        """Return the refused destinations since the previous call, oldest first, at most the last 20."""
        ...


class SandboxSession(Protocol):
    """Sandbox of a program that outlives a call. Closing it ends every process in it."""

    @property
    def launcher(self) -> Path:
        """Executable to start in place of the program. It takes the program's arguments and passes descriptors 0 to 4
        on.
        """
        ...

    @property
    def folder(self) -> Path:
        """Private folder, empty at first, writable under the same path from both sides. Removed on close."""
        ...

    def egress_proxy(self) -> AbstractAsyncContextManager[EgressProxy]:
        """Open an egress proxy. Waits until the program runs.

        Raises `SandboxMissing` when it does not run within 20 s, and `DragomanError` when all proxies are in use.
        """
        ...


class ToolHost(Protocol):
    """Constructor argument of a stateful tool, made once in a daemon's life."""

    @property
    def settings(self) -> Any:
        """The tool's `Settings`, as configured."""
        ...

    @property
    def folder(self) -> Path:
        """The tool's private folder. It outlives restarts."""
        ...

    @property
    def clock(self) -> Clock:
        """The daemon's clock."""
        ...

    def open_sandbox_session(
        self,
        program: Path,
        *,
        sandbox: SandboxMode | None,
        hosts: Sequence[str],
        proxies: int,
        readable: Sequence[Path] = (),
    ) -> AbstractAsyncContextManager[SandboxSession]:
        """Open a sandbox session for one run of a program.

        `sandbox` is the call's. `basic`: an own view of the files, and no network except `proxies` egress proxies.
        `off`: on the host; the program must be configured to use the proxies. The environment is constructed in both.

        `hosts`: `host[:port]`, also `*.host`, that the proxies let through although their addresses are private;
        without a port 80 and 443 are meant. `readable`: absolute paths that `basic` shows besides the system and the
        program's own folder; missing paths are left out.

        Raises `SandboxMissing` (also when `sandbox` is None), `NotFound` (the program) and `BadRequest` (a path that
        cannot be shown).
        """
        ...


class StatefulTool(Protocol):
    """Tool with state between calls. Its module has `create(host) -> StatefulTool` in place of `run`."""

    async def run(self, ctx: ToolContext, args: Any) -> ToolResult | Park:
        """Run one call, as a module's `run` does."""
        ...

    async def serve(self) -> None:
        """Maintain the state until cancelled, then drop all of it. Runs concurrently with the calls."""
        ...
