"""Markdown as shown in Telegram, and its division into messages."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.telegram.formatted_text import WORD_JOINER, FormattedText, Json, Span, entities, finish, split, units
from channels.telegram.limits import ENTITIES, TEXT_UNITS
from channels.telegram.markdown_scan import closed, output
from channels.telegram.markup import TelegramMarkup, linkable
from gateway.domain.text import visible
from tests.support.proof import examples

MARKUP = TelegramMarkup()
EMOJI = "👍🏽"
FAMILY = "👨‍👩‍👧‍👦"
FLAGS = "🇩🇪🇫🇷"

PIECES = st.sampled_from(
    [
        *(
            "**",
            "*",
            "_",
            "__",
            "~~",
            "`",
            "```",
            "```py\n",
            "~~~",
            "\n",
            "\n\n",
            "  \n",
            "\\\n",
            " ",
            "    ",
            "\t",
            "\r\n",
        ),
        *(
            "# ",
            "## ",
            "> ",
            "> > ",
            "- ",
            "* ",
            "1. ",
            "10) ",
            "- [ ] ",
            "- [x] ",
            "---\n",
            "| a | b |\n|-|:-:|\n| 1 |",
        ),
        *(
            "[a](http://a.b/c)",
            "[",
            "](",
            ")",
            "![i](x)",
            "<http://x.org>",
            "<b>",
            "&amp;",
            "&#x202e;",
            "&#0;",
            "@name",
        ),
        *(EMOJI, FAMILY, FLAGS, "e\u0301", "\ud800", "\udc00", "\0", "\x1b[1m", "\u202e", "\u200b", "\u2060", "\u2028"),
        *("word", "سلام", "漢字", "\U0001f468", "\u200d", "\ufe0f", "a" * 30, "[x]: http://a.b", "\x85", "\u3164"),
    ]
)
MARKDOWN = st.one_of(
    st.lists(PIECES, max_size=40).map("".join),
    st.text(st.characters(exclude_categories=()), max_size=200),
    st.lists(st.one_of(PIECES, st.text(st.characters(exclude_categories=()), max_size=5)), max_size=30).map("".join),
)


def said(markdown: str, *, quiet: bool = False) -> tuple[str, list[tuple[str, str]]]:
    """The text, and each piece of formatting with what it covers."""
    formatted = MARKUP.formatted(markdown, quiet=quiet)
    return formatted.text, [(span.kind, formatted.text[span.start : span.end]) for span in formatted.spans]


def check(formatted: FormattedText) -> None:
    """Everything that Telegram asks of a text and its entities."""
    raw = formatted.text.encode("utf-16-le")  # fails for a lone surrogate
    assert formatted.text == formatted.text.rstrip()
    found = entities(formatted)
    assert found == sorted(found, key=lambda e: (e["offset"], -e["length"], e["type"]))
    for entity in found:
        begin, end = 2 * entity["offset"], 2 * (entity["offset"] + entity["length"])
        assert 0 <= begin < end <= len(raw)
        covered = raw[begin:end].decode("utf-16-le")  # fails for half a surrogate pair
        assert visible(covered)
        assert entity["type"] == "pre" or covered == covered.strip()
        assert entity["type"] != "text_link" or linkable(entity["url"])
    check_nesting(found)


def check_nesting(found: list[Json]) -> None:
    for n, outer in enumerate(found):
        for inner in found[n + 1 :]:
            if inner["offset"] >= outer["offset"] + outer["length"]:
                continue
            assert inner["offset"] + inner["length"] <= outer["offset"] + outer["length"], "they cross"
            assert not {outer["type"], inner["type"]} & {"code", "pre"}, "code is in or around something"
            assert outer["type"] != inner["type"], "something is in its own kind"


def bare(text: str) -> str:
    """A text without what may go at a cut: blanks, and what nobody sees."""
    return "".join(char for char in text if visible(char))


# --- what Markdown says ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("markdown", "text", "spans"),
    [
        ("", "", []),
        (" \n\n ", "", []),
        ("plain words", "plain words", []),
        ("**b** *i* ~~s~~ `c`", "b i s c", [("bold", "b"), ("italic", "i"), ("strikethrough", "s"), ("code", "c")]),
        ("***both***", "both", [("bold", "both"), ("italic", "both")]),
        ("**a __b__ c**", "a b c", [("bold", "a b c")]),
        ("**a `b` c**", "a b c", [("bold", "a"), ("code", "b"), ("bold", "c")]),
        ("**over\ntwo lines**", "over\ntwo lines", [("bold", "over\ntwo lines")]),
        ("# Head **bold** `c`\ntext", "Head bold c\ntext", [("bold", "Head bold"), ("code", "c")]),
        ("soft\nhard  \nslash\\\nend", "soft\nhard\nslash\nend", []),
        ("one\n\n\n\ntwo", "one\n\ntwo", []),
        ("one\n- two\n\n# Three\n\n1. four", "one\n• two\n\nThree\n\n1. four", [("bold", "Three")]),
        ("a\n---\nb", "a\n──────────\nb", []),
        ("```py\nx = 1\n```", "x = 1", [("pre", "x = 1")]),
        ("```\n  kept\n    more\n```", "  kept\n    more", [("pre", "  kept\n    more")]),
        ("```\n```", "", []),
        ("```\nnever closed **x**", "never closed **x**", [("pre", "never closed **x**")]),
        ("    indented\n\ntext", "indented\n\ntext", [("pre", "indented")]),
        ("- a\n- b\n  - c\n    - d\n- e", "• a\n• b\n   ◦ c\n      ▪ d\n• e", []),
        ("3. a\n4. b\n   - c", "3. a\n4. b\n   ◦ c", []),
        ("0. a\n1. b", "0. a\n1. b", []),
        ("- [ ] open\n- [x] **done**", "☐ open\n☑ done", [("bold", "done")]),
        ("-\n- b", "•\n• b", []),
        ("1. a\n   ```sh\n   ls\n   ```\n2. b", "1. a\nls\n2. b", [("pre", "ls")]),
        ("> q1\n> q2\n\nafter", "q1\nq2\n\nafter", [("blockquote", "q1\nq2")]),
        ("> a\n> > b", "a\n> b", [("blockquote", "a\n> b")]),
        ("> see `c`", "see `c`", [("blockquote", "see `c`")]),
        ("> a\n> ```\n> c\n> ```\n> b", "a\nc\nb", [("blockquote", "a"), ("pre", "c"), ("blockquote", "b")]),
        ("- > q", "• q", [("blockquote", "q")]),
        ("<b>raw</b> &lt;i&gt; <br>", "<b>raw</b> <i> <br>", []),
        ("<div>\n**x**\n</div>", "<div>\nx\n</div>", [("bold", "x")]),
        ("a\\*b\\* \\`c\\`", "a*b* `c`", []),
        ("snake_case_name 2*3*4", "snake_case_name 234", [("italic", "3")]),
        ("bell\x07 \x1b[1m", "bell   [1m", []),
        ("\u202edesrever", "desrever", []),
        ("&#x202e;x &#7;y", "x \ufffdy", []),
        ("half \ud83d pair", "half \ufffd pair", []),
        ("\r\na\r\n\r\nb\r", "a\n\nb", []),
    ],
)
def test_markdown_becomes_text_and_formatting(markdown: str, text: str, spans: list[tuple[str, str]]) -> None:
    assert said(markdown) == (text, spans)


def test_a_paragraph_of_many_lines_keeps_its_formatting() -> None:
    text, spans = said("\n".join(f"line {n} is **bold**" for n in range(500)))
    assert text == "\n".join(f"line {n} is bold" for n in range(500))
    assert spans == [("bold", "bold")] * 500


def test_a_table_is_set_out_in_columns() -> None:
    markdown = "| name | size | ok |\n|---|---:|:-:|\n| `a.txt` | 12 | **y** |\n| 漢字 | 3 | no |"
    lines = ["name  | size | ok", "------+------+---", "a.txt |   12 | y", "漢字  |    3 | no"]
    assert said(markdown) == ("\n".join(lines), [("pre", "\n".join(lines))])


def test_code_keeps_its_language_when_it_is_one() -> None:
    assert entities(MARKUP.formatted("```py title=x\n1\n```")) == [
        {"type": "pre", "offset": 0, "length": 1, "language": "py"}
    ]
    assert "language" not in entities(MARKUP.formatted("```<script>\n1\n```"))[0]


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("[ERROR]: timeout", "[ERROR]: timeout"),
        ("Log:\n\n[ERROR]: timeout\n[WARN]: slow\n\nDone.", "Log:\n\n[ERROR]: timeout\n[WARN]: slow\n\nDone."),
        ("- [^1]: a note", "• [^1]: a note"),
        ("```rm -rf / --no-preserve-root\nls\n```", "rm -rf / --no-preserve-root\nls"),
        ("```{.py}\n1\n```", "{.py}\n1"),
        ("```text", "text"),
        ("~~~ a b c ~~~", "a b c ~~~"),
        ("a | b\n--|--\n1 | 2 | 3 | 4", "a | b\n--+----------\n1 | 2 | 3 | 4"),
        ("| a | b |\n|---|---|\n| `ls | wc -l` | counts |", "a   | b\n----+----------------\n`ls | wc -l` | counts"),
    ],
)
def test_markdown_that_would_vanish_is_shown(markdown: str, text: str) -> None:
    assert MARKUP.formatted(markdown).text == text


def test_offsets_count_utf16_units() -> None:
    assert units(EMOJI) == 4
    assert entities(MARKUP.formatted(f"{EMOJI} **{EMOJI}** `x`")) == [
        {"type": "bold", "offset": 5, "length": 4},
        {"type": "code", "offset": 10, "length": 1},
    ]


@pytest.mark.parametrize(
    ("markdown", "text", "link"),
    [
        ("[a](https://a.example/x?y=1#z)", "a", "https://a.example/x?y=1#z"),
        ("[`a`](http://a.example)", "a", "http://a.example"),
        ("![alt *x*](https://a.example/p.png)", "alt x", "https://a.example/p.png"),
        ("![](https://a.example/p.png)", "image", "https://a.example/p.png"),
        ("[![alt](http://i.example/i.png)](http://a.example)", "alt", "http://a.example"),
        ("[https://a.example/page](https://a.example/other)", "https://a.example/page", "https://a.example/other"),
        ("[a][r]\n\n[r]: https://a.example", "a", "https://a.example"),
        ("[a][r]\n\n[ R ]: <https://a.example> 'Title'\n[r]: https://b.example", "a", "https://a.example"),
        ("[r][]\n\n[r]: https://a.example", "r", "https://a.example"),
        ("so [r].\n\n[r]: https://a.example\n\nend", "so r.\n\nend", "https://a.example"),
        ("- [*a*][r]\n\n[r]: https://a.example", "• a", "https://a.example"),
        ("![alt][r]\n\n[r]: https://a.example/p.png", "alt", "https://a.example/p.png"),
        ("[a][r]\n\n[r]: http://localhost", "a (http://localhost)", None),
        ("[www.bank.example][r]\n\n[r]: https://evil.example", "www.bank.example (https://evil.example)", None),
        ("[a][q]\n\n[r]: timeout", "[a][q]\n\n[r]: timeout", None),
        ("[a][r]\n\n```\n[r]: https://a.example\n```", "[a][r]\n[r]: https://a.example", None),
        ("`[a][r]`\n\n[r]: javascript:x", "[a][r]\n\n[r]: javascript:x", None),
        ("[bank.example](https://user@evil.example)", "bank.example (https://user@evil.example)", None),
        ("[https://bank.example](https://evil.example)", "https://bank.example (https://evil.example)", None),
        ("[www.bank.example](https://evil.example)", "www.bank.example (https://evil.example)", None),
        ("[page](http://localhost:8470/x)", "page (http://localhost:8470/x)", None),
        ("[page](http://a.example:99999)", "page (http://a.example:99999)", None),
        ("[](http://localhost)", "http://localhost", None),
        ("[nothing]()", "nothing", None),
        ("[mail](mailto:ann@a.example)", "mail (ann@a.example)", None),
        ("<ann@a.example>", "ann@a.example", None),
        ("[me](tg://user?id=1001)", "me (tg://user?id=1001)", None),
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))", None),
        ("[x](data:text/html,hi)", "[x](data:text/html,hi)", None),
        ("[x](vbscript:x) [y](file:///etc/passwd)", "[x](vbscript:x) [y](file:///etc/passwd)", None),
    ],
)
def test_a_link_goes_where_it_says_or_shows_where_it_goes(markdown: str, text: str, link: str | None) -> None:
    formatted = MARKUP.formatted(markdown)
    assert formatted.text == text
    assert [span.url for span in formatted.spans if span.url] == ([link] if link else [])


@pytest.mark.parametrize(
    "markdown",
    [
        "[r]: https://a.example",
        "`[a][r]`\n\n[r]: https://a.example",
        "[a][r]\n\n[r]: https://a.example\n[q]: https://b.example",
        "[a][r]\n\n[r]: https://a.example and more",
        "|[a][r]|\n|-|\n\n[r]: https://a.example",
    ],
)
def test_a_definition_is_shown_where_no_link_took_it(markdown: str) -> None:
    """So that no address is lost: a table has no links, and code none either."""
    assert "https://a.example" in MARKUP.formatted(markdown).text


def test_a_link_may_be_defined_in_what_follows() -> None:
    formatted, _ = MARKUP.beginning("[a][r]", rest="more\n\n[r]: https://a.example")
    assert [(formatted.text, span.url) for span in formatted.spans] == [("a", "https://a.example")]


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("@name and **@name**", f"@{WORD_JOINER}name and @{WORD_JOINER}name"),
        ("@**name**", f"@{WORD_JOINER}name"),
        ("(@name)", f"(@{WORD_JOINER}name)"),
        ("`@name` and a@b.example", "@name and a@b.example"),
        ("```\n@name\n```", "@name"),
        ("https://a.example/@name", "https://a.example/@name"),
        ("x/@name", f"x/@{WORD_JOINER}name"),
    ],
)
def test_names_in_a_group_ring_nobody(markdown: str, text: str) -> None:
    formatted = MARKUP.formatted(markdown, quiet=True)
    assert formatted.text == text
    check(formatted)
    assert WORD_JOINER not in MARKUP.formatted(markdown).text


@settings(max_examples=examples(400), deadline=None)
@given(MARKDOWN, st.booleans())
def test_any_text_becomes_what_telegram_takes(markdown: str, quiet: bool) -> None:
    formatted = MARKUP.formatted(markdown, quiet=quiet)
    check(formatted)
    assert all(span.kind == "pre" or not formatted.text[:1].isspace() for span in formatted.spans[:1])


@settings(max_examples=examples(200), deadline=None)
@given(MARKDOWN)
def test_the_beginning_of_any_text_can_be_shown(markdown: str) -> None:
    for end in range(0, len(markdown), 7):
        check(MARKUP.formatted(closed(markdown[:end])))


@pytest.mark.parametrize(
    ("beginning", "text", "spans"),
    [
        ("a **bo", "a bo", [("bold", "bo")]),
        ("a *it", "a it", [("italic", "it")]),
        ("a ~~st", "a st", [("strikethrough", "st")]),
        ("a `co", "a co", [("code", "co")]),
        ("a **", "a", []),
        ("a [label](https://a.exa", "a label", []),
        ("a [lab", "a lab", []),
        ("a [label][re", "a label", []),
        ("a **b** c", "a b c", [("bold", "b")]),
        ("```py\nx = [1", "x = [1", [("pre", "x = [1")]),
        ("text\n\n## ", "text", []),
        ("`a` *b* and `c", "a b and c", [("code", "a"), ("italic", "b"), ("code", "c")]),
    ],
)
def test_half_written_markdown_reads_well(beginning: str, text: str, spans: list[tuple[str, str]]) -> None:
    assert said(closed(beginning)) == (text, spans)


@pytest.mark.parametrize(
    ("markdown", "found"),
    [
        ("```\nabc\n```", ("abc", "")),
        ("```sh\na\n\nb\n```\nexit 0 · 0.1 s", ("a\n\nb", "exit 0 · 0.1 s")),
        ("````\n```\n````", ("```", "")),
        ("```\nabc", None),
        ("text\n```\nabc\n```", None),
        ("```\na\n```\n```\nb\n```", None),
        ("```\na\n```\n" + "x" * 500, None),
        ("> ```\n> a\n> ```", None),
        ("", None),
    ],
)
def test_output_of_a_command_is_recognised(markdown: str, found: tuple[str, str] | None) -> None:
    assert output(markdown) == found


HOSTILE = [
    *("[" * 16_000, "![" * 8_000, "[a](" * 4_000, "*a " * 5_000, "**a" * 5_000, "`" * 16_000, ">" * 16_000),
    *("- " * 8_000, "<a " * 5_000, "&" * 16_000, "a" + " " * 16_000 + "b", "```\n" + "\n" * 16_000, "_a_" * 5_000),
    *(
        ("![" * 2_000 + "\n\n") * 4,
        "".join("`" * n + " " for n in range(1, 170)),
        "\n".join(["#"] * 8_000),
        "@a" * 8_000,
    ),
    *("|a" * 8_000 + "\n" + "|-" * 8_000, "http://" * 2_000, "[a]: x\n" * 2_000, "~" * 16_000, "\\" * 16_000),
    *("[a]: http://b.c\n" * 1_000, "[a]: http://" + "b" * 16_000, "[a]: http://b.c" + " " * 16_000 + "d"),
    *("[a][b]\n" * 2_000 + "\n[b]: http://b.c", "[" * 2_000 + "a" + "]" * 2_000 + "\n\n[a]: http://b.c"),
    "[a]: http://b.c (" + "(" * 16_000,
]


ORDINARY = "A paragraph with **bold** and `code` in it, and a [link](https://example.org/a).\n\n" * 50


def cpu_s(text: str) -> float:
    """Seconds of CPU that the first four messages of a text take."""
    begun = time.process_time()
    for _ in zip(range(4), split(MARKUP.formatted(closed(text), quiet=True)), strict=False):
        pass
    return time.process_time() - begun


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_takes_little_time(text: str) -> None:
    # Beside ordinary text, so that a slow machine or a tracer counts for both. A growth with the square is thousands.
    # The least of several, on both sides: what else the machine does only adds.
    assert min(cpu_s(text) for _ in range(2)) < 60 * min(cpu_s(ORDINARY) for _ in range(3))


# --- cutting --------------------------------------------------------------------------------------


def cut(text: str, limit: int, *spans: Span) -> list[FormattedText]:
    return list(split(finish(text, spans), limit))


@pytest.mark.parametrize(
    ("text", "limit", "parts"),
    [
        ("", 10, []),
        ("aaaa", 4, ["aaaa"]),
        ("aaaaa", 4, ["aaaa", "a"]),
        ("aaaa bbbb", 4, ["aaaa", "bbbb"]),
        ("aaa bbb ccc", 8, ["aaa bbb", "ccc"]),
        ("aaa bb\ncc ddd", 10, ["aaa bb", "cc ddd"]),
        ("aaa\n\nbb\ncc dd", 6, ["aaa", "bb\ncc", "dd"]),
        ("aaaa\n\n\n\nbbbb", 6, ["aaaa", "bbbb"]),
        ("a bbbbbbbbbb", 8, ["a bbbbbb", "bbbb"]),
        ("😀😀😀", 4, ["😀😀", "😀"]),
        ("😀😀😀", 5, ["😀😀", "😀"]),
        ("a😀😀", 4, ["a😀", "😀"]),
        ("a" + EMOJI, 4, ["a", EMOJI]),
        ("aa" + FAMILY, 11, ["aa", FAMILY]),
        ("aaae\u0301", 4, ["aaa", "e\u0301"]),
        ("aa❤\ufe0f", 3, ["aa", "❤\ufe0f"]),
        (FLAGS, 6, ["🇩🇪", "🇫🇷"]),
        ("a" + "\u0301" * 100, 80, ["a" + "\u0301" * 79]),
        ("a\u200b" + " " * 10 + "b", 4, ["a\u200b", "b"]),
    ],
)
def test_text_is_cut_at_its_limit(text: str, limit: int, parts: list[str]) -> None:
    assert [part.text for part in cut(text, limit)] == parts


@pytest.mark.parametrize("char", ["a", "é", "漢", "😀"])
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_message_holds_exactly_so_much(char: str, extra: int) -> None:
    text = char * ((TEXT_UNITS - 2) // units(char)) + "bb"
    text = text[: len(text) + min(extra, 0)] + "b" * max(extra, 0)
    parts = cut(text, TEXT_UNITS)
    assert [units(part.text) for part in parts] == ([TEXT_UNITS, 1] if extra > 0 else [TEXT_UNITS + extra])
    assert "".join(part.text for part in parts) == text


def test_formatting_over_a_cut_is_closed_and_opened_again() -> None:
    first, second = cut("aaaa bbbb", 5, Span(kind="bold", start=2, end=7), Span(kind="italic", start=2, end=4))
    assert entities(first) == [{"type": "bold", "offset": 2, "length": 2}, {"type": "italic", "offset": 2, "length": 2}]
    assert entities(second) == [{"type": "bold", "offset": 0, "length": 2}]


def test_code_over_a_cut_keeps_language_and_indentation() -> None:
    formatted = MARKUP.formatted("```py\ndef f():\n    return 1\n\n\n    # end\n```")
    parts = list(split(formatted, 14))
    assert [part.text for part in parts] == ["def f():", "    return 1", "    # end"]
    assert {(span.kind, span.language) for part in parts for span in part.spans} == {("pre", "py")}
    assert [(span.start, span.end) for part in parts for span in part.spans] == [(0, len(part.text)) for part in parts]


def test_a_message_has_no_more_formatting_than_telegram_shows() -> None:
    formatted = MARKUP.formatted("\n".join("`x` **y**" for _ in range(150)))
    parts = list(split(formatted))
    assert all(len(part.spans) <= ENTITIES for part in parts)
    assert sum(len(part.spans) for part in parts) == len(formatted.spans) == 300


@settings(max_examples=examples(300), deadline=None)
@given(MARKDOWN, st.integers(2, 60))
def test_any_text_is_cut_into_parts_that_are_all_of_it(markdown: str, limit: int) -> None:
    formatted = MARKUP.formatted(markdown)
    parts = list(split(formatted, limit))
    for part in parts:
        check(part)
        assert visible(part.text)
        assert units(part.text) <= limit
    assert bare("".join(part.text for part in parts)) == bare(formatted.text)
    assert {span.kind for part in parts for span in part.spans} == {span.kind for span in formatted.spans}


@settings(max_examples=examples(40), deadline=None)
@given(st.sampled_from(["a", "ab ", "😀", FAMILY, "e\u0301", "line\n"]), st.integers(-1, 1), st.integers(50, 80))
def test_cut_near_the_limit_loses_nothing_and_keeps_emoji_whole(piece: str, extra: int, limit: int) -> None:
    text = "x" * (limit + extra - units(piece)) + piece + "y" * 3
    parts = cut(text, limit)
    assert all(0 < units(part.text) <= limit for part in parts)
    assert bare("".join(part.text for part in parts)) == bare(text)
    for first, second in pairwise(parts):
        assert not second.text.startswith(("\u200d", "\u0301"))
        assert not first.text.endswith("\u200d")


def test_a_box_that_is_escaped_is_none() -> None:
    assert MARKUP.formatted("- \\[ ] not to do\n- [x] done").text == "• [ ] not to do\n☑ done"


def test_a_mention_is_quiet_up_to_the_very_edge_of_code() -> None:
    found = MARKUP.formatted("@ann `@bob` @`carl` `to @`dora", quiet=True).text
    assert found == f"@{WORD_JOINER}ann @bob @{WORD_JOINER}carl to @{WORD_JOINER}dora"


def test_bold_around_code_covers_the_text_between() -> None:
    formatted = MARKUP.formatted("`z` **a `b` c `d` e** `f`")
    bold = [formatted.text[span.start : span.end] for span in formatted.spans if span.kind == "bold"]
    assert bold == ["a", "c", "e"]


@pytest.mark.parametrize("end", ['"', "<", ">", ")"])
def test_a_name_behind_the_end_of_an_address_is_quiet(end: str) -> None:
    found = MARKUP.formatted(f"https://example.org/@not{end}@ann", quiet=True).text
    assert found == f"https://example.org/@not{end}@\u2060ann"
