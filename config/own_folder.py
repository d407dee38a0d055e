"""The owner's folder of tools: which files it has, which are trusted, and the policies of their tools.

Read by `config.load`, and again between turns by `gateway.app.own_tools`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from config.own_files import DeclaredTool, OwnFile, read_file
from config.settings import ToolSettings
from gateway.domain.rules import Rule
from gateway.domain.text import cut, plain
from gateway.domain.tools import Availability, Effect, Risk, ToolPolicy, ToolSpec

FOLDER_SOURCE = "folder"
"""Name of the source of its tools."""
FILES_AT_MOST = 200
"""Files that are read; the others are left out."""

Stamp = tuple[tuple[str, int, int, int], ...]
"""Name, inode, time of change and size of each file: it differs when one of them changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFolder:
    """Folder of the owner's tools, as the configuration names it."""

    path: Path
    trusted: frozenset[str] = frozenset()
    """Names of files, without `.py`, that run in the daemon."""
    trusts_all: bool = False
    troubles: Mapping[str, str] = field(default_factory=dict[str, str])
    """Faults of trusted modules that have a `SPEC`, by file name. They are imported once, at the start."""
    workers: frozenset[str] = frozenset()
    """Names of the tools that ran in workers at the start."""
    settings: ToolSettings | None = None
    """Settings of `[tools."folder:*"]`."""
    own_settings: Mapping[str, ToolSettings] = field(default_factory=dict[str, ToolSettings])
    """Settings by tool name."""
    timeouts: Mapping[str, timedelta] = field(default_factory=dict[str, timedelta])
    rules: tuple[Rule, ...] = ()
    """All rules of the configuration."""

    def stamp(self) -> Stamp:
        """Return a stamp that changes when a file is added, changed or removed. Raises `OSError`."""
        found: list[tuple[str, int, int, int]] = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    seen = os.stat(entry.path) if os.path.exists(entry.path) else entry.stat(follow_symlinks=False)
                    found.append((entry.name, seen.st_ino, seen.st_mtime_ns, seen.st_size))
        return tuple(sorted(found))

    def stems(self) -> frozenset[str]:
        """Return the names of the tools' files without `.py`; empty when the folder is gone."""
        return frozenset(name.removesuffix(".py") for name, *_ in self._stamp() if not name.startswith("_"))

    def files(self) -> Sequence[OwnFile]:
        """Read every tools' file, in order of their names; none when the folder is gone. Runs nothing of them.

        Files that begin with `_` are helpers, which the others can import: their change is one of every file.
        """
        helpers = [one for one in self._stamp() if one[0].startswith("_")]
        names = sorted(f"{stem}.py" for stem in self.stems())[:FILES_AT_MOST]
        return [self._read(self.path / name, repr(helpers)) for name in names]

    def _stamp(self) -> Stamp:
        try:
            return self.stamp()
        except OSError:
            return ()

    def trusts(self, stem: str) -> bool:
        """Return whether the owner trusts a file."""
        return self.trusts_all or stem in self.trusted

    def _read(self, path: Path, helpers: str) -> OwnFile:
        read = read_file(path, trusted=self.trusts(path.stem))
        read = replace(read, sha=hashlib.sha256(f"{helpers}\n{read.sha}".encode()).hexdigest())
        trouble = self.troubles.get(path.name, "")
        return replace(read, problem=trouble) if trouble and not read.problem else read


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLine:
    """One tool of the folder, or one file that cannot be used."""

    file: OwnFile
    spec: ToolSpec
    declared: DeclaredTool | None
    problem: str = ""
    """Why it cannot be used, as a sentence with the cure; empty when it can."""


def lines_of(files: Sequence[OwnFile], taken: Collection[str]) -> Iterator[OwnLine]:
    """Yield a line for each tool, and one for each file that cannot be used. `taken`: names of other tools."""
    names = set(taken)
    for file in files:
        problem = file.problem or taken_names(file, names)
        if problem:
            spec = _unusable(file, names)
            told = f"{plain(file.path.name)} cannot be used: {cut(plain(problem), 600)}."
            yield OwnLine(file=file, spec=spec, declared=None, problem=told)
            names.add(spec.name)
            continue
        for one in file.tools:
            yield OwnLine(file=file, spec=one.spec, declared=one)
            names.add(one.spec.name)


def taken_names(file: OwnFile, taken: Collection[str]) -> str:
    """Return why a file's tools cannot join tools of these names; empty when they can."""
    for one in file.tools:
        if one.spec.name in taken or one.spec.name == "tools":
            return f"there is a tool {one.spec.name!r} already. Rename the file or its function"
    return ""


def _unusable(file: OwnFile, taken: Collection[str]) -> ToolSpec:
    """Return the specification of a line for a file that cannot be used, with a name of its own."""
    letters = "".join(one if one.isascii() and (one.islower() or one.isdigit()) else "_" for one in file.path.stem)
    stem = f"file_{letters}"[:56]
    free = (stem if n == 1 else f"{stem}_{n}" for n in range(1, FILES_AT_MOST + 2))
    name = next((one for one in free if one not in taken), stem)
    return ToolSpec(
        name=name,
        description="A file of the tools folder that cannot be used.",
        risk=Risk.EXECUTE,
        effect=Effect.UNSAFE,
        availability=Availability.MAIN,
        indexed=True,
    )


def closed_policy(spec: ToolSpec) -> ToolPolicy:
    """Return the policy of a line that cannot be used."""
    return ToolPolicy(
        availability=spec.availability, approval={}, timeout_s=spec.timeout_s, actions={}, sandbox=spec.sandbox
    )
