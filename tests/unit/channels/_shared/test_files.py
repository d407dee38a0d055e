"""Files made from text: their digest and how they are cut."""

from __future__ import annotations

from pathlib import Path

from channels._shared.files import RESENT, FilePart, size_of, text_file, too_large


def test_a_mark_makes_no_other_content() -> None:
    part = FilePart(name="a.txt", data=b"abc", caption="All of it")
    again = part.sent_again()
    assert (part.said, again.said) == ("All of it", f"{RESENT} All of it")
    assert again.digest == part.digest == "60d5746e4e5e0af0", "the same in every process"
    others = [FilePart(name="a.txt", data=b"abd", caption="All of it"), FilePart(name="a.txt", data=b"abc", caption="")]
    assert len({part.digest, *(other.digest for other in others)}) == 3
    assert part.size == 3


def test_a_text_that_is_too_long_is_cut_and_says_so() -> None:
    assert text_file("äb", 3, "Somewhere") == "äb".encode()
    cut = text_file("ä" * 200, 101, "Somewhere")
    assert len(cut) <= 101
    assert cut.decode().endswith("ä\n\n… cut here: the file would be too large for Somewhere\n")
    assert text_file("a\ud83d", 9, "Somewhere") == b"a?"
    assert too_large("Somewhere") == "(the file is too large for Somewhere)"


def test_missing_file_has_no_size(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert size_of(tmp_path / "a") == 3
    assert [size_of(path) for path in (None, tmp_path, tmp_path / "b", tmp_path / "a" / "b")] == [-1, -1, -1, -1]
