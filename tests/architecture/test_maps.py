"""Maps of requirements to the tests that keep them: `tests/traps.toml` and `tests/scenario/sentences.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
TRAPS: dict[str, dict[str, Any]] = tomllib.loads((TESTS / "traps.toml").read_text(encoding="utf-8"))
SENTENCES: dict[str, dict[str, Any]] = tomllib.loads(
    (TESTS / "scenario" / "sentences.toml").read_text(encoding="utf-8")
)
CHANNELS = ("telegram", "slack", "page")


def test_every_trap_is_listed() -> None:
    rows = [name for name in TRAPS if name.startswith("D")]
    assert rows == [f"D{n:02}" for n in range(1, 66)]


def test_every_trap_has_a_test_or_a_reason() -> None:
    bare = [
        name
        for name, row in TRAPS.items()
        if not row["trap"] or bool(row.get("tests")) == bool(row.get("why")) or row.keys() - {"trap", "tests", "why"}
    ]
    assert bare == []


def test_every_sentence_is_said_on_each_channel() -> None:
    bare = [name for name, row in SENTENCES.items() if not all(row.get(key) for key in ("says", "killed", *CHANNELS))]
    assert bare == []


def named() -> Iterator[tuple[str, str]]:
    """Yield each row with a test that it names."""
    for name, row in {**TRAPS, **SENTENCES}.items():
        for key in ("tests", *CHANNELS):
            yield from ((name, test) for test in row.get(key, ()))


def test_every_test_of_a_map_exists() -> None:
    missing = list[str]()
    for name, test in named():
        file, _, function = test.partition("::")
        path = TESTS / file
        if not path.is_file() or not re.search(rf"^(?:async )?def {function}\(", path.read_text(), re.MULTILINE):
            missing.append(f"{name}: {test}")
    assert missing == []
