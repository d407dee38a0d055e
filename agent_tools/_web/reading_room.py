"""Reading room: one contained child without network, home and state, that turns foreign documents into text.

Used by `webfetch` and `read`. The child is started at the first document and kept for the next ones of its session.
It is ended when it was idle, before a document of another session, when a document exceeds its limits, and with the
daemon.
A document that takes over the child thus learns nothing of another session and cannot answer for it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import sysconfig
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter

from gateway.domain.tools import SandboxMode
from gateway.errors import BadRequest
from gateway.ports import ToolContext, ToolHost

IDLE_S = 300.0
"""Seconds without a document after which the child is ended."""
JOB_S = 20.0
"""Timeout in seconds for one document."""
ANSWER_BYTES = 8 * 2**20
"""Bytes of the longest answer of the child."""
PIECE = 2**20
_READER = Path(__file__).with_name("reader.py")
_ANSWER = TypeAdapter(dict[str, Any])
_ERRORS: Mapping[str, tuple[str, str]] = MappingProxyType({
    "not_installed": (
        "This is a PDF, and the reader of PDFs is not installed.", "The owner can install it: ./run add web.",
    ),
    "encrypted": (
        "The document is locked with a password.",
        "Ask for a copy without one; for a PDF, `qpdf --decrypt --password=…` in the shell makes it.",
    ),
    "ole": (
        "The document is locked with a password, or of an old format (.doc, .xls, .ppt).",
        "Ask for it without a password, as .docx, .xlsx, .pptx or PDF.",
    ),
    "no_document": (
        "The file is an archive, and no document.", "Look into it with the shell: `unzip -l`, then `unzip`.",
    ),
    "no_text": (
        "The PDF has no text: its pages are probably scanned pictures.",
        "Ask for pictures of the pages, or run `ocrmypdf` in the shell.",
    ),
    "too_much": (
        "The document unpacks to more than is read.", "Split it, or ask for the part that matters.",
    ),
    "broken": ("The document is damaged, or not what it seems to be.", "Ask for a new copy."),
})  # fmt: skip
"""Message and cure of each error that the child may name: what it writes itself is the document's."""


class ReadingRoom:
    """The one child, and the queue before it."""

    def __init__(self, host: ToolHost) -> None:
        """Take the tool's host. Nothing is started."""
        self._host = host
        self._one_at_a_time = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._child: asyncio.subprocess.Process | None = None
        self._for: tuple[str, SandboxMode | None] = ("", None)
        """Session and containment of the child."""
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

    async def read(self, ctx: ToolContext, kind: str, data: bytes, *, form: str, url: str) -> dict[str, Any]:
        """Return the child's answer to a document of this call: `text`, `title` and `note`.

        `kind`: `html`, `pdf` or `office`. Raises `BadRequest` when the document cannot be read, takes too much time or
        memory, or breaks the child. Raises `SandboxMissing` when the call has no containment and there is none.
        """
        job_id = secrets.token_hex(16)
        job = json.dumps({"id": job_id, "kind": kind, "size": len(data), "format": form, "url": url}).encode()
        async with self._one_at_a_time:
            self._used_at = self._host.clock.monotonic()
            try:
                async with asyncio.timeout(JOB_S):
                    child = await self._ready(ctx.kept_for, ctx.process.sandbox or SandboxMode.BASIC)
                    assert child.stdin is not None
                    assert child.stdout is not None
                    child.stdin.write(job + b"\n")
                    for at in range(0, len(data), PIECE):
                        child.stdin.write(memoryview(data)[at : at + PIECE])
                        await child.stdin.drain()
                    line = await child.stdout.readline()
                answer = _answer(line, job_id)
            except (TimeoutError, ValueError, OSError):
                await self._end()
                cure = "Split it, open it with the browser, or use another source."
                raise BadRequest("The document takes too much time or memory to read.", cure=cure) from None
            except BaseException:
                await self._end()
                raise
        if answer.get("error"):
            what, cure = _ERRORS.get(str(answer["error"]), _ERRORS["broken"])
            raise BadRequest(what, cure=cure)
        return answer

    async def _ready(self, kept_for: str, sandbox: SandboxMode | None) -> asyncio.subprocess.Process:
        """Return the running child of this session, contained as this call demands."""
        wanted = (kept_for, sandbox)
        if self._child is not None and self._child.returncode is None and self._for == wanted:
            return self._child
        await self._end()
        shown = [Path(sys.prefix), Path(sys.base_prefix), _READER.parent]
        session = await self._stack.enter_async_context(
            self._host.open_sandbox_session(Path(sys.executable), sandbox=sandbox, hosts=(), proxies=1, readable=shown)
        )
        self._for = wanted
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


def _answer(line: bytes, job_id: str) -> dict[str, Any]:
    """Return an answer to this job. Raises `ValueError` for any other line."""
    found = _ANSWER.validate_json(line)
    if found.get("id") != job_id:
        raise ValueError("no answer to this job")
    return found
