"""Markdown for Slack: unchanged text, broken mentions, cuts, plain text."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from channels.slack.markup import WORD_JOINER, SlackMarkup, safe
from channels.slack.plain import clean
from gateway.domain.text import visible
from tests.support.proof import examples

MARKUP = SlackMarkup()
RINGS = re.compile(r"<[@!#][A-Za-z]+[\w^|@-]*>")
TEXT = st.text(st.characters(exclude_categories=()), max_size=400)
PLAIN_WORDS = st.text("abcdefg hij,;?éßж😀", min_size=1, max_size=200).filter(lambda text: text.strip() == text)
PIECES = [
    "word ", "**b** ", "`c<d` ", "\n", "\n\n", "- item\n", "```\n", "```py\n", "> ", "# h\n", "<@U0BB> ", "1. one\n",
    "    ", "~~~\n", "| a | b |\n|---|---|\n", "[x](https://a.example) ", "&lt;!here&gt; ",
    "[x](slack://open) ", "[y](\n", "<file:x> ", "[z]: data&colon;x ",
]  # fmt: skip
MARKED = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)


@pytest.mark.parametrize(
    "text",
    [
        "<@U0BB>", "<@U0BB|bob>", "<@W0BB>", "<!channel>", "<!here>", "<!everyone>", "<!subteam^S0AA>", "<!group>",
        "<#C0CC|hall>", "&lt;!channel&gt;", "&#60;@U0BB&#62;", "&#x3c;!here&#x3E;", "<\\@U0BB>", "\\<!channel>",
        "`<!channel>`", "<&#64;U0BB>", "&lt&commat;U0BB>",
    ],
)  # fmt: skip
def test_nobody_is_rung_however_the_name_is_escaped(text: str) -> None:
    found = safe(f"ask {text} now")
    assert found.replace(WORD_JOINER, "") == f"ask {text} now"
    read = MarkdownIt().renderInline(found).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    for seen in (found, read, read.replace("&lt;", "<").replace("&gt;", ">")):
        assert not RINGS.search(seen)


@pytest.mark.parametrize(
    "text", ["<!DOCTYPE html>", "<!-- note -->", "a < b", "List<@NonNull String>", "<b>", "# h", "a & b"]
)
def test_harmless_text_stays_unchanged(text: str) -> None:
    assert safe(text) == text


class Trusting(MarkdownIt):
    """A reader that makes links of whatever looks like one."""

    def validateLink(self, url: str) -> bool:
        return True


@pytest.mark.parametrize(
    "text",
    [
        "[x](javascript:alert(1))", "[x](slack://open?team=T0AA)", "[x]( file:///etc/passwd)",
        "[x](<data:text/html,y>)", "[x](\njavascript:alert)", "![x](ftp://a.example)", "<vbscript:x>",
        "[x]: javascript:alert\n\n[x]",
        "[x](java&#115;cript:alert)", "[x](javascript&colon;alert)", "[x](javascript&#58;alert)", "[x](https&#58;//a)",
        "[x](javascript\\:alert)", "[x](JavaScript:alert)", "[x](xhttps://a.example)", "``` a ` [x](javascript:alert)",
        "```\ncode\n```\n[x](javascript:alert)", "```\ncode\n``\n````\n[x](javascript:alert)",
        "```\ncode\n```\t\n[x](javascript:alert)", "- a\n  ```\n  code\n\n[x](javascript:alert)",
    ],
)  # fmt: skip
def test_a_link_leads_to_the_web_or_to_a_mailbox(text: str) -> None:
    found = safe(text)
    assert found.replace(WORD_JOINER, "") == text
    seen = re.findall(r'(?:href|src)="([^"]*)"', Trusting("commonmark", {"html": False}).render(found))
    assert not [url for url in seen if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", unquote(url))]


@pytest.mark.parametrize(
    "text",
    [
        "[x](https://a.example/b:c)", "[x](HTTP://a.example)", "[x](mailto:ann@a.example)", "<https://a.example>",
        "[x](page/a:b)", "note: a[0] (b: c)", "a <b> c: d", "```swift\nf[0](name: 1)\n```", "~~~\nf[0](name: 1)",
        "```\n~~~\nf[0](lambda: 1)\n```\n[x](https://a.example)",
    ],
)  # fmt: skip
def test_other_text_is_no_link(text: str) -> None:
    assert safe(text) == text


@given(MARKED | TEXT, st.integers(0, 400))
def test_prefix_of_a_text_shows_a_prefix_of_its_markup(text: str, at: int) -> None:
    assert safe(text).startswith(safe(text[:at]).removesuffix("\n"))


@given(MARKED | TEXT)
def test_safe_adds_nothing_to_what_is_seen(text: str) -> None:
    assert safe(text).replace(WORD_JOINER, "") == clean(text).replace(WORD_JOINER, "")
    assert safe(safe(text)).replace(WORD_JOINER, "") == safe(text).replace(WORD_JOINER, "")
    safe(text).encode()


# --- cutting --------------------------------------------------------------------------------------


def shown(markdown: str) -> str:
    """The letters that a text shows, in order, whatever their formatting."""
    return re.sub(r"\s+", "", MARKUP.plain(markdown))


@settings(max_examples=examples(200), deadline=None)
@given(MARKED, st.integers(200, 400))
def test_pieces_fit(text: str, room: int) -> None:
    pieces = list(MARKUP.split(text * 8, room))
    assert all(0 < len(piece) <= room for piece in pieces)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30)), min_size=1, max_size=8), st.integers(200, 400))
def test_code_stays_code_and_words_stay_words(blocks: list[tuple[bool, int]], room: int) -> None:
    parts: list[str] = []
    for n, (is_code, count) in enumerate(blocks):
        lines = "\n".join(f"{'code' if is_code else 'word'} {n}.{m} <x> *y*" for m in range(count))
        parts.append(f"```py\n{lines}\n```" if is_code else lines)
    text = "\n\n".join(parts)
    pieces = list(MARKUP.split(text, room))
    assert all(len(piece) <= room for piece in pieces)
    assert "".join(shown(piece) for piece in pieces) == shown(text)
    for piece in pieces:
        fenced = "\n".join(re.findall(r"^```py\n(.*?)^```$", piece, re.MULTILINE | re.DOTALL))
        assert fenced.count("code ") == piece.count("code ")
        assert "word " not in fenced


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Zs")), max_size=400), st.integers(200, 400))
def test_without_code_nothing_visible_is_lost(text: str, room: int) -> None:
    """A piece of fillers alone is left out, since Slack refuses a message of blanks."""
    plain = clean(text).replace("`", "").replace("~", "") * 10
    assert list(filter(visible, "".join(MARKUP.split(plain, room)))) == list(filter(visible, plain))


def test_text_is_cut_between_paragraphs_where_possible() -> None:
    text = "\n\n".join(f"paragraph {n} " + "word " * 20 for n in range(10))
    assert all(piece.startswith("paragraph ") for piece in MARKUP.split(text, 300))


def test_open_markup_is_closed_at_the_end() -> None:
    assert list(MARKUP.split("so:\n```py\nx = 1", 200)) == ["so:\n```py\nx = 1\n```"]
    assert list(MARKUP.split("> ```\n> x", 200)) == ["> ```\n> x\n> ```"]


def test_a_line_that_is_too_long_by_itself_is_cut_behind_a_word() -> None:
    pieces = list(MARKUP.split("word " * 100, 203))
    assert all(piece.rstrip().endswith("word") for piece in pieces)
    assert [len(piece) for piece in MARKUP.split("x" * 500, 200)] == [199, 199, 102]


# --- without formatting ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("markdown", "plain"),
    [
        ("**b** *i* ~~s~~ `c<d`", "b i s c<d"),
        ("# Title\ntext", "Title\ntext"),
        ("[x](https://a.example/?b=1&c=2)", "x (https://a.example/?b=1&c=2)"),
        ("[x](javascript:alert)", "[x](javascript:alert)"),
        ("[x](ftp://a.example)", "x (ftp://a.example)"),
        ("[https://a.b](https://c.d)", "https://a.b (https://c.d)"),
        ("![alt](https://a.example/i.png)", "alt (https://a.example/i.png)"),
        ("- a\n- b\n  1. c\n  2. d", "• a\n• b\n  1. c\n  2. d"),
        ("3. a\n4. b", "3. a\n4. b"),
        ("> q\n> r", "q\nr"),
        ("```py\nx < 1\n```", "x < 1"),
        ("| a | b |\n|---|---|\n| **1** | 2 |", "a | b\n1 | 2"),
        ("---", "───"),
        ("<!channel> & <@U0BB>", "<!channel> & <@U0BB>"),
    ],
)
def test_markdown_becomes_what_it_says(markdown: str, plain: str) -> None:
    assert MARKUP.plain(markdown) == plain


@given(PLAIN_WORDS)
def test_text_without_formatting_comes_out_as_it_went_in(text: str) -> None:
    assert MARKUP.plain(text) == text
    assert safe(text) == text


@settings(max_examples=examples(200), deadline=None)
@given(MARKED | TEXT)
def test_plain_text_of_any_markup_can_be_encoded(text: str) -> None:
    MARKUP.plain(text).encode()
