"""The note of the store that a node worked on last."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.app.store_note import NOTE, forget_store, note_store, noted_store
from gateway.domain.durability import Reached
from gateway.errors import StartError

URL = "redis://ann:secret@one:6379/0"
BROKEN = '{"url": "redis://one:6379/0", "store": "s1", "life": "2"}'


def test_a_store_is_noted_with_its_address(tmp_path: Path) -> None:
    """Without the password; a changed password changes nothing, and another address is another store."""
    assert noted_store(tmp_path, URL).store == ""
    note_store(tmp_path, URL, "s1")
    assert "secret" not in (file := tmp_path / NOTE).read_text()
    assert (file.stat().st_mode & 0o777, [one.name for one in tmp_path.iterdir()]) == (0o600, [NOTE])
    found = noted_store(tmp_path, URL.replace("secret", "other"))
    assert (found.store, found.note) == ("s1", str(file))
    assert noted_store(tmp_path, URL.replace("one", "two")).store == ""


def test_a_note_says_how_far_its_store_was(tmp_path: Path) -> None:
    """One of an earlier version does not."""
    note_store(tmp_path, URL, "s1")
    assert noted_store(tmp_path, URL).reached == Reached()
    note_store(tmp_path, URL, "s1", Reached(life=2, revision=2_000_345))
    assert noted_store(tmp_path, URL).reached == Reached(life=2, revision=2_000_345)
    (tmp_path / NOTE).write_text('{"url": "redis://one:6379/0", "store": "s1"}')
    assert noted_store(tmp_path, URL).reached == Reached()


def test_a_note_is_written_when_it_is_news(tmp_path: Path) -> None:
    note_store(tmp_path, URL, "s1")
    before = (tmp_path / NOTE).stat().st_ino
    note_store(tmp_path, URL, "s1")
    assert (tmp_path / NOTE).stat().st_ino == before
    note_store(tmp_path, URL, "s2")
    assert noted_store(tmp_path, URL).store == "s2"
    forget_store(tmp_path)
    forget_store(tmp_path)
    assert noted_store(tmp_path, URL).store == ""


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"url": 3, "store": "s1"}', f'{{"url": "{URL}", "store": ""}}', BROKEN]
)
def test_a_note_that_cannot_be_read_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / NOTE).write_text(text)
    with pytest.raises(StartError, match=r"store\.json cannot be read") as refused:
        noted_store(tmp_path, URL)
    assert "Remove it" in refused.value.cure


def test_a_note_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / f"{NOTE}.partial").mkdir()
    with pytest.raises(StartError, match=r"store\.json cannot be written"):
        note_store(tmp_path, URL, "s1")
