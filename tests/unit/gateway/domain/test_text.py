"""Sanitising and cutting of text chosen by others."""

from __future__ import annotations

import sys
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.text import (
    FILLERS,
    as_quote,
    cut,
    head_and_tail,
    head_and_tail_bytes,
    media_type,
    mended,
    one_line,
    plain,
    visible,
)

LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
TURNS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
HIDES = "\u00ad\u180e\u200b\u200c\u200d\u2060\u2061\u2064\ufeff\ufff9\ufffa\ufffb"
SPACES = "\u00a0\u1680\u2000\u200a\u202f\u205f\u3000\t "
TAGS = "".join(map(chr, range(0xE0000, 0xE0080)))
SHAPELESS = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180f\u2800\u3164\uffa0\ufffc\ufe00\ufe0d\U000e0100\U000e01ef"
SHORTEST = 200
NO_TEXT = "\x00\x07\x1b\x7f\x9b\ud800\udfff\ue000\ufdd0\uffff\U0010ffff"


def test_plain_replaces_invisible_characters_by_spaces() -> None:
    for char in sorted({*LINE_ENDS, *TURNS, *HIDES, *SPACES, *TAGS, *SHAPELESS, *NO_TEXT}):
        assert plain(f"{char}Allowed{char}by{char * 3}Ann{char}") == "Allowed by Ann", ascii(char)
        assert plain(char) == "", ascii(char)


def test_plain_leaves_no_control_or_line_break_of_unicode() -> None:
    left = plain(" ".join(map(chr, range(sys.maxunicode + 1))))
    assert left.splitlines() == [left]
    assert {unicodedata.category(char) for char in left} & {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"} == set()
    assert [char for char in left if char.isspace() and char != " "] == []
    assert FILLERS.isdisjoint(left)


@pytest.mark.parametrize(
    "text", ["", "a", "Ann Ødegård", "Анна (Москва)", "張三", "cafe\u0301", "❤\ufe0f", "**bold** `code` <b>", '"[x]"']
)
def test_plain_keeps_visible_text(text: str) -> None:
    assert plain(text) == text


def test_cut_ends_with_an_ellipsis() -> None:
    assert cut("twelve chars", 12) == "twelve chars"
    assert cut("twelve chars", 11) == "twelve cha…"
    assert cut("twelve chars", 8) == "twelve…"  # no space before the ellipsis
    assert cut("ab", 1) == "…"
    assert cut("", 5) == ""


def test_one_line_keeps_the_beginning_of_a_long_text() -> None:
    assert one_line("one\ntwo\u2028three", 20) == "one two three"
    assert one_line("one\ntwo\u2028three", 8) == "one two…"
    assert one_line("ab" + " " * 100 + "cd", 5) == "ab"  # ten times five characters are read
    assert one_line("ab" + " " * 40 + "cd", 5) == "ab cd"
    assert one_line("ab" + " " * 40 + "cd", 4) == "ab"


@given(st.text(max_size=3_000), st.integers(SHORTEST, 3_000))
def test_head_and_tail_fit_the_limit(text: str, chars: int) -> None:
    found = head_and_tail(text, chars)

    assert len(found) <= max(chars, 0)
    assert (found == text) == (len(text) <= chars)
    assert found[:50] == text[:50]
    assert found[-50:] == text[-50:]


@pytest.mark.parametrize(
    ("text", "most", "shown", "dropped"),
    [
        ("", 4, "", 0),
        ("abcd", 4, "abcd", 0),
        ("abcde", 4, "ab\n[… 1 bytes left out …]\nde", 1),
        ("a" * 2_000, 4, "aa\n[… 1,996 bytes left out …]\naa", 1_996),
        ("ééé", 6, "ééé", 0),
        ("éééé", 6, "é\n[… 2 bytes left out …]\né", 2),  # no partial characters
        ("\ud800", 4, "\ud800", 0),
        ("\ud800bcdef", 4, "?b\n[… 2 bytes left out …]\nef", 2),
    ],
)
def test_head_and_tail_in_bytes(text: str, most: int, shown: str, dropped: int) -> None:
    assert head_and_tail_bytes(text, most) == (shown, dropped)


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        ("application/json", "application/json"),
        ("Text/HTML; charset=utf-8", "text/html"),
        ("", ""),
        (";h*", ""),
        ("text/x\u202ehtml", "text/x html"),
    ],
)
def test_media_type_parses_any_content_type(header: str, kind: str) -> None:
    assert media_type(header) == kind


# --- visibility ----------------------------------------------------------------------------------


BLANKS = [
    "",
    " \n\t",
    "\u200b\u200d",
    "\u00ad\u034f\u180e",
    "\u115f\u1160\u17b4\u17b5",
    "\u2800\u3164\uffa0\ufffc",
    "\u0301\x07",
]


@pytest.mark.parametrize("blank", BLANKS)
def test_visible_is_false_for_blanks(blank: str) -> None:
    assert not visible(blank)
    assert visible(f"{blank}.")


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", ""),
        ("plain ü 😀 \ufffd", "plain ü 😀 \ufffd"),
        ("\ud83d\ude00", "😀"),
        ('a\ud83d"\ude00\n', 'a\ufffd"\ufffd\n'),
        ("\ude00\ud83d\ud83d\ude00", "\ufffd\ufffd😀"),
        ("\ufffd\ufffd\ufffd\ud800", "\ufffd" * 4),
    ],
)
def test_mended_joins_or_replaces_surrogates(text: str, whole: str) -> None:
    assert mended(text) == whole


@given(st.text(st.characters(codec=None) | st.sampled_from("\ud83d\ude00")))
def test_mended_agrees_with_a_utf16_decoder(text: str) -> None:
    assert mended(text) == text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def test_mended_takes_little_time() -> None:
    text = "\ud83d\ude00" * 5_000_000
    began = time.thread_time()
    assert len(mended(text)) == 5_000_000
    assert time.thread_time() - began < 1  # two seconds with a decoder; a tenth of a second now


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("", 9, ""),
        ("one", 9, "> one"),
        ("one\n\n# two\r\nthree", 90, "> one\n>\n> # two\n> three"),
        ("a\u2028b\x0bc\x85d", 90, "> a\n> b\n> c\n> d"),
    ],
)
def test_quote_marks_each_line(text: str, most: int, shown: str) -> None:
    assert as_quote(text, most) == shown


@given(st.text(alphabet="ab\n\u2028é", max_size=400), st.integers(60, 300))
def test_quote_is_cut_and_every_line_is_marked(text: str, most: int) -> None:
    found = as_quote(text, most)
    assert all(line.startswith(">") for line in found.splitlines())
    assert len(found.encode()) <= 4 * most + 200
