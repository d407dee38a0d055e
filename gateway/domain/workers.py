"""File of an own tool as its contained workers get it. Used by `ports` and `toolcalls`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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
