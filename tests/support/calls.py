"""Base of every test's `ToolContext`: a tool can use nothing of it until the test provides it."""

from __future__ import annotations

from pathlib import Path

from gateway.domain.tools import Artifact, Picture, SandboxMode


class BareCall:
    """The part of a `ToolContext` that most tools leave alone; those that do not, notice."""

    kept_for = "main-ann-0-of-a-test"
    sandbox = SandboxMode.BASIC
    scopes: frozenset[str] = frozenset()

    async def picture(self, data: bytes, media_type: str) -> Picture:
        raise AssertionError("this tool makes no picture")

    async def keep(self, path: Path, name: str, media_type: str) -> Artifact:
        raise AssertionError("this tool keeps no file")
