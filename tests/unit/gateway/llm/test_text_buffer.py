"""Text buffer with pieces that split a character."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.text import mended
from gateway.llm.text_buffer import TextBuffer


def test_added_text_is_returned_for_each_piece() -> None:
    text = TextBuffer()
    assert [text.add(piece) for piece in ("a\ud83d", "", "\ude00b\ude00", "\ud83d")] == ["a", "", "😀b\ufffd", ""]
    assert (len(text), text.since(1), str(text)) == (2, "😀b\ufffd", "a😀b\ufffd")
    assert (text.end(), text.end()) == ("\ufffd", "")
    assert str(text) == "a😀b\ufffd\ufffd"


@given(st.lists(st.text(st.sampled_from("a\ud83d\ude00😀"))))
def test_text_is_the_same_for_any_split(pieces: list[str]) -> None:
    text = TextBuffer()
    added = "".join(text.add(piece) for piece in pieces) + text.end()
    assert added == str(text) == mended("".join(pieces))
