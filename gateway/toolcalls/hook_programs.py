"""Programs of the owner that answer a question in JSON. Used by `hooks`; nothing else starts a program of the owner.

A program has the daemon's rights, but a constructed environment and an empty folder of its own. However it ends, its
whole process tree has ended before the answer is used.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.domain.tools import SandboxMode
from gateway.errors import DragomanError
from gateway.sandbox import Confinement, Containment, ProcessLimits, run_contained

ANSWER_BYTES = 4 * 2**20
"""Largest answer in bytes."""
TROUBLE_BYTES = 2_000
"""Bytes of a failed program's error output that are logged."""
_QUESTION, _TROUBLE = "call.json", "trouble.txt"
_SCRIPT = f'exec "$@" <{_QUESTION} 2>{_TROUBLE}'


class HookFailed(Exception):
    """A hook gave no valid answer. The text says why, in a few words for people."""

    def __init__(self, why: str, detail: str = "") -> None:
        """Take the reason, and a detail for the log alone: text of a program."""
        super().__init__(why)
        self.why, self.detail = why, detail


class _Answer:
    """`ports.Output` that keeps an answer, and calls `too_long` once when it is longer than allowed."""

    def __init__(self, too_long: Callable[[], None]) -> None:
        self.data = bytearray()
        self._too_long = too_long

    def write(self, data: bytes) -> None:
        if len(self.data) > ANSWER_BYTES:
            return
        self.data += data
        if len(self.data) > ANSWER_BYTES:
            self._too_long()


async def ask_program(
    argv: Sequence[str], question: Mapping[str, Any], *, containment: Containment, limits: ProcessLimits
) -> object:
    """Return the JSON value that a program prints when it reads `question` as JSON on its standard input.

    There is no timeout here: cancel instead. Raises `HookFailed`.
    """
    with tempfile.TemporaryDirectory(prefix="dragoman-hook-") as name:
        folder = Path(name)
        (folder / _QUESTION).write_text(json.dumps(question))
        scope = asyncio.timeout(None)
        try:
            async with scope:
                answer = _Answer(lambda: scope.reschedule(0))
                end = await run_contained(
                    ["/bin/sh", "-c", _SCRIPT, "sh", *argv],
                    within=Confinement(mode=SandboxMode.OFF),
                    workspace=folder,
                    cwd=folder,
                    output=answer,
                    containment=containment,
                    limits=limits,
                )
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise HookFailed(f"it printed more than {ANSWER_BYTES // 2**20} MiB") from error
        except DragomanError as error:
            raise HookFailed("it could not be started", str(error)) from error
        if end.exit_code:
            raise HookFailed(f"it ended with exit code {end.exit_code}", _trouble(folder))
        return _read(bytes(answer.data), folder)


def _read(data: bytes, folder: Path) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise HookFailed("it printed no JSON" if data.strip() else "it printed nothing", _trouble(folder)) from error


def _trouble(folder: Path) -> str:
    try:
        with (folder / _TROUBLE).open("rb") as file:
            return file.read(TROUBLE_BYTES).decode(errors="replace")
    except OSError:  # the program may remove it
        return ""
