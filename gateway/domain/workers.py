"""File of an own tool as its contained workers get it, and a call of it. Used by `ports` and `toolcalls`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFile:
    """Python file whose functions a contained worker runs."""

    name: str
    """Name of the file, for people."""
    source: str
    """Its whole text, so that a worker runs what was read and not what is there now."""
    sha: str
    """Differs when the text does, or another file that it may import."""
    folder: Path
    """Its folder, which a worker sees read-only: other files of it can be imported."""
    functions: frozenset[str]
    """Names of the functions that it should have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCall:
    """Call of one function of such a file."""

    function: str
    arguments: Mapping[str, Any]
    context: str = ""
    """Name of the parameter that gets the context of the call; empty for none."""
    session: str = ""
    """Session of the call."""
