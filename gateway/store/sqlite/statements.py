"""Loader of the SQLite store's SQL: named statements and numbered migrations, read once at open."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

FOLDER = Path(__file__).parent.parent / "sql"

_NAME = re.compile(r"^-- name: *(\w+) *$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaMigration:
    """One step of the schema. Its last statement stamps the file with `number`."""

    number: int
    name: str
    statements: tuple[str, ...]


def load_statements(folder: Path = FOLDER) -> Mapping[str, str]:
    """Read all `-- name: x` statements of the folder's files, without their comments. Names are unique."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.sql")):
        _, *pairs = _NAME.split(path.read_text(encoding="utf-8"))
        for name, text in zip(pairs[::2], pairs[1::2], strict=True):
            if name in found:
                raise ValueError(f"{path.name}: the statement {name} exists already")
            found[name] = "\n".join(line for line in text.splitlines() if line and not line.startswith("--"))
    return MappingProxyType(found)


def load_migrations(folder: Path = FOLDER / "migrations") -> tuple[SchemaMigration, ...]:
    """Read the migrations in order. They are numbered 1, 2, 3, …"""
    migrations = tuple(_migration(path) for path in sorted(folder.glob("*.sql")))
    if [one.number for one in migrations] != list(range(1, len(migrations) + 1)):
        raise ValueError(f"the migrations in {folder.name}/ are not numbered 1, 2, 3, …")
    return migrations


def _migration(path: Path) -> SchemaMigration:
    number, _, name = path.stem.partition("_")
    return SchemaMigration(number=int(number), name=name, statements=tuple(split(path.read_text(encoding="utf-8"))))


def split(script: str) -> Iterator[str]:
    """Yield the statements of a script one by one."""
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(text):
            yield text.strip()
            text = ""
    if any(line and not line.startswith("--") for line in text.splitlines()):
        raise ValueError(f"a statement has no end: {text.strip()[:80]}")
