"""Reading room: one contained child without network, home and state, that turns foreign documents into text.

Used by `webfetch`. The child is started at the first document, kept for the next ones, and ended when it was idle, when
a document exceeds its limits, and with the daemon.
"""

from __future__ import annotations

import asyncio
import json
import sys
import sysconfig
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from agent_tools._web import reader
from gateway.domain.tools import SandboxMode
from gateway.errors import BadRequest
from gateway.ports import ToolHost

IDLE_S = 300.0
"""Seconds without a document after which the child is ended."""
JOB_S = 20.0
"""Timeout in seconds for one document."""
ANSWER_BYTES = 8 * 2**20
"""Bytes of the longest answer of the child."""
_READER = Path(reader.__file__)


class ReadingRoom:
    """The one child, and the queue before it."""

    def __init__(self, host: ToolHost) -> None:
        """Take the tool's host. Nothing is started."""
        self._host = host
        self._one_at_a_time = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._child: asyncio.subprocess.Process | None = None
        self._mode: SandboxMode | None = None
        self._used_at = 0.0

    async def serve(self) -> None:
        """End the child when it is idle, until cancelled; then at once."""
        try:
            while True:
                await asyncio.sleep(IDLE_S / 10)
                idle = self._host.clock.monotonic() - self._used_at
                if self._child is not None and idle > IDLE_S and not self._one_at_a_time.locked():
                    async with self._one_at_a_time:
                        await self._end()
        finally:
            await self._end()

    async def read(self, kind: str, data: bytes, *, form: str, url: str, sandbox: SandboxMode | None) -> dict[str, Any]:
        """Return the child's answer: `text`, `title` and `note`, or `error`.

        Raises `BadRequest` when the document takes too much time or memory, or breaks the child.
        """
        job = json.dumps({"kind": kind, "size": len(data), "format": form, "url": url}).encode()
        async with self._one_at_a_time:
            self._used_at = self._host.clock.monotonic()
            try:
                async with asyncio.timeout(JOB_S):
                    child = await self._ready(sandbox)
                    assert child.stdin is not None
                    assert child.stdout is not None
                    child.stdin.write(job + b"\n" + data)
                    await child.stdin.drain()
                    line = await child.stdout.readline()
                return json.loads(line)
            except (TimeoutError, ValueError, OSError):
                await self._end()
                cure = "Open it with the browser, or use another source."
                raise BadRequest("The document takes too much time or memory to read.", cure=cure) from None
            except BaseException:
                await self._end()
                raise

    async def _ready(self, sandbox: SandboxMode | None) -> asyncio.subprocess.Process:
        """Return the running child, contained as this call demands."""
        if self._child is not None and self._child.returncode is None and self._mode is sandbox:
            return self._child
        await self._end()
        shown = [Path(sys.prefix), Path(sys.base_prefix), _READER.parent]
        session = await self._stack.enter_async_context(
            self._host.enclose(Path(sys.executable), sandbox=sandbox, hosts=(), gates=1, readable=shown)
        )
        self._mode = sandbox
        packages = sysconfig.get_path("purelib")
        self._child = await asyncio.create_subprocess_exec(
            session.launcher, "-I", str(_READER), packages, stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, limit=ANSWER_BYTES,
        )  # fmt: skip
        return self._child

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None and child.returncode is None:
            child.kill()
            await child.wait()
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()
