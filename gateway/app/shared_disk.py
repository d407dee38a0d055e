"""Probe of a shared workspace disk between nodes: finds nodes with one id and different files.

Used by `app.membership`. The asking node makes a file for each other node, which writes into it if it finds it. So both
see the other's text on a network disk too: opening a file reads it again, while a missing file is remembered.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.errors import StartError

NODES = ".nodes"
"""Folder beside the workspaces with the questions. It is there while one is asked."""
ANSWER = b"here"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDisk:
    """The place of a node's workspaces, which other nodes may have too."""

    workspaces: Path
    """Folder that holds them."""

    @asynccontextmanager
    async def ask(self, question: str, names: Sequence[str]) -> AsyncGenerator[None]:
        """Put a question to these nodes, and take it back at the end. Raises `StartError` when it cannot be written."""
        try:
            await asyncio.to_thread(self._write, question, names)
            yield
        except OSError as error:
            raise StartError(f"{self.workspaces / NODES} cannot be used: {error}.", cure="Repair this disk.") from error
        finally:
            await asyncio.to_thread(self._remove, question, names)

    async def answers(self, question: str, names: Sequence[str]) -> frozenset[str]:
        """Return which of these nodes answered."""
        return await asyncio.to_thread(self._read, question, names)

    async def answer(self, own: str, asking: Mapping[str, str]) -> frozenset[str]:
        """Answer these questions, each of a node of this name. Return the names of those who asked on this disk."""
        return await asyncio.to_thread(self._answer, own, asking)

    def _file(self, question: str, name: str) -> Path:
        return self.workspaces / NODES / f"{question}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"

    def _write(self, question: str, names: Sequence[str]) -> None:
        (self.workspaces / NODES).mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in names:
            os.close(os.open(self._file(question, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))

    def _remove(self, question: str, names: Sequence[str]) -> None:
        with suppress(OSError):
            for name in names:
                self._file(question, name).unlink(missing_ok=True)
            (self.workspaces / NODES).rmdir()

    def _read(self, question: str, names: Sequence[str]) -> frozenset[str]:
        return frozenset(name for name in names if self._file(question, name).read_bytes() == ANSWER)

    def _answer(self, own: str, asking: Mapping[str, str]) -> frozenset[str]:
        found = set[str]()
        for question, name in asking.items():
            with suppress(OSError):
                file = os.open(self._file(question, own), os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                with open(file, "wb") as answer:
                    answer.write(ANSWER)
                found.add(name)
        return frozenset(found)
