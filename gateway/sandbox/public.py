"""Network `public` of one program: no network but an egress proxy, which its environment names. Used by `run`.

`gateway.sandbox.inside` makes the proxy's socket in the program's network namespace and sends it here. The program
starts once the proxy serves it.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from gateway.ports import EgressProxy, Output
from gateway.sandbox import inside
from gateway.sandbox.folders import above, visible

Serve: TypeAlias = Callable[[socket.socket, str], AbstractAsyncContextManager[EgressProxy]]
"""Serve connections to a listening socket, given with its address inside; the callee closes the socket."""
REFUSALS_TOLD = 5
"""Refused destinations that the program's output names."""


class PublicNetwork:
    """Way out of one program."""

    def __init__(self, serve: Serve, output: Output) -> None:
        """Open the socket on which the proxy's own is handed over. Call `close` at the end."""
        self._serve = serve
        self._output = output
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._handed = above(theirs.fileno())
        self._ours.setblocking(False)

    @property
    def given(self) -> list[int]:
        """Descriptors that the program's start must pass on."""
        return [self._handed]

    def argv(self, argv: Sequence[str], lent: Sequence[int] = ()) -> list[str]:
        """Return the command line that opens the proxy's socket before it runs `argv` with the descriptors `lent`."""
        python = [str(Path(sys.executable).resolve()), "-I", "-S", inside.__file__]
        kept = ",".join(f"{fd}={fd}" for fd in lent)
        return [*python, str(self._handed), "1", kept, inside.TOLD, *argv]

    @staticmethod
    def readable(workspace: Path) -> tuple[Path, ...]:
        """Return the paths that the sandbox must show for that: Python and one script. Raises `BadRequest`."""
        return visible(Path(sys.executable).resolve(), (), workspace)

    @asynccontextmanager
    async def served(self) -> AsyncGenerator[None]:
        """Serve the proxy while the body runs. At its end, the output names what was refused."""
        failure: BaseException | None = None
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(self._serve_it(), name="public network")
            try:
                yield
            except Exception as error:  # noqa: BLE001 - raised again below: a TaskGroup would wrap it
                failure = error
            finally:
                serving.cancel()
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Close what is open. Idempotent."""
        self._ours.close()
        inside_end, self._handed = self._handed, -1
        if inside_end >= 0:
            socket.close(inside_end)

    def started(self) -> None:
        """Close our copy of the end that the program has: only then its death is seen here."""
        inside_end, self._handed = self._handed, -1
        socket.close(inside_end)

    async def _serve_it(self) -> None:
        ready = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._ours, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._ours)
        message, received, _, _ = socket.recv_fds(self._ours, 16, 1, socket.MSG_CMSG_CLOEXEC)
        if not message or not received:
            return  # it did not start
        with socket.socket(fileno=received[0]) as listening:
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            async with self._serve(listening, address) as proxy:
                self._ours.send(b"\n")
                try:
                    await asyncio.Event().wait()
                finally:
                    for turned in list(proxy.turned_away())[-REFUSALS_TOLD:]:
                        self._output.write(f"\n[network: {turned.host} is refused. {turned.why}]\n".encode())
