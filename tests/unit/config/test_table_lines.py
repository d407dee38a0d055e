"""Lines of `[[rules]]` in a file: whatever else stands there, each is that of the table the parser read."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.table_lines import table_lines

ONE = '[[rules]]\ntool = "x"\n'
DISTRACTIONS = (
    "",
    "# [[rules]]\n",
    'text = "[[rules]]"\n',
    "text = '[[rules]] # \"'\n",
    'text = """\n[[rules]]\n"""\n',
    "text = '''\n[[rules]]\n'''\n",
    'text = """\n\\"""[[rules]]\n[[rules]]"""""\n',
    "text = '''\n[[rules]]\n'quoted'''''\n",
    "list = [\n  [[1], [2]],\n  # ]\n  [ 'a' ],\n]\n",
    "list = [\n[['rules']]\n]\n",
    "table = { rules = [ { a = 1 }, { b = 2 } ] }\n",
    "text = 'it''s'\n".replace("''", "_"),
)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", ()),
        (ONE, (1,)),
        (f"\n\n{ONE}\n{ONE}", (3, 6)),
        ("  [[ rules ]] # one\n", (1,)),
        ('[["rules"]]\n', (1,)),
        ("[['rules']]\n", (1,)),
        ("[[rules]]\r\n[[rules]]\r\n", (1, 2)),
        ("[[rules.more]]\n", ()),
        ("[[other]]\n[rules2]\n", ()),
        ("rules = [\n  { a = 1 },\n  { b = { c = 2 } }, { d = 3 },\n]\n", (2, 3, 3)),
        ("[tools]\nrules = [ { a = 1 } ]\n", ()),
        ("[[rules]]\nx = [[1],\n[2]]\n[[rules]]\n", (1, 4)),
    ],
)
def test_each_table_has_its_line(text: str, lines: tuple[int, ...]) -> None:
    assert table_lines(text, "rules") == lines


@given(st.lists(st.sampled_from(DISTRACTIONS), max_size=6))
def test_lines_agree_with_the_parser(parts: list[str]) -> None:
    text = "".join(f"{ONE}[[other]]\n{part.replace('text', f't{n}')}" for n, part in enumerate(parts))
    read = tomllib.loads(text).get("rules", [])

    lines = table_lines(text, "rules")

    assert len(lines) == len(read) == len(parts)
    assert all(text.split("\n")[line - 1] == "[[rules]]" for line in lines)


def test_a_long_file_is_read_at_once() -> None:
    assert len(table_lines('text = "' + "\\n" * 200_000 + '"\n' + ONE * 500, "rules")) == 500
    assert table_lines('text = """' + "\\a'''\n" * 100_000, "rules") == ()
