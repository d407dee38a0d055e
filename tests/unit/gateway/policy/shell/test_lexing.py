"""Words of a script: split and without quotes, as bash has them."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy.shell.lexing import unquoted, word_spans


def words(script: str) -> list[str] | None:
    data = script.encode()
    spans = word_spans(data)
    return None if spans is None else [data[start:end].decode() for start, end in spans]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("a b", ["a", "b"]),
        ("a;b&&c||d|e&f\ng", ["a", "b", "c", "d", "e", "f", "g"]),
        ("a 'b c' \"d e\" f\\ g", ["a", "'b c'", '"d e"', "f\\ g"]),
        ("a # b c", ["a"]),
        ("a#b", ["a#b"]),
        ("a 2>b 3<c >d >>e", ["a", "b", "c", "d", "e"]),
        ("a2>b", ["a2", "b"]),
        ("(a)", ["a"]),
        ("a \\\n b", ["a", "b"]),
        ("a\\\nb", ["a\\\nb"]),
        ("a <<< b", ["a", "b"]),
        ('a "b$" $ c', ["a", '"b$"', "$", "c"]),
        ("größe", ["größe"]),
        ("", []),
        ("a $b", None),
        ('a "$b"', None),
        ("a `b`", None),
        ("a $(b)", None),
        ("a <<b", None),
        ("a 'b", None),
        ('a "b', None),
        ("a $'b'", None),
        ("a\x00", None),
        ("a\r", None),
        ("a\\", None),
    ],
)
def test_words_are_split(script: str, expected: list[str] | None) -> None:
    assert words(script) == expected


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("a", "a"),
        ("'a b'", "a b"),
        ('"a b"', "a b"),
        ("a\\ b", "a b"),
        ('r""m', "rm"),
        ("r''m", "rm"),
        ("\\rm", "rm"),
        ('"a\\"b\\\\c\\d"', 'a"b\\c\\d'),
        ("a\\\nb", "ab"),
        ('"a\\\nb"', "ab"),
        ("'a\\b'", "a\\b"),
        ("$'a\\nb\\x72\\162\\u0072\\t\\'\\q'", "a\nbrrr\t'q"),
        ("$'\\UFFFFFFFF'", "\ufffd"),
        ("$'\\U110000'", "\ufffd"),
        ("$'\\U10FFFF'", "\U0010ffff"),
        ("$'\\x9'", "\t"),
        ('$"a"', "a"),
        ("a{b}c", "a{b}c"),
        ("{}", "{}"),
    ],
)
def test_quotes_are_removed(word: str, text: str) -> None:
    found = unquoted(word)
    assert (found.text, found.expands, found.globs) == (text, False, False)


@pytest.mark.parametrize(
    ("word", "expands", "globs"),
    [
        ("$a", True, False),
        ("${a}", True, False),
        ('"$a"', True, False),
        ('"a`b`"', True, False),
        ('"\\$a"', False, False),
        ('"\\\\$a"', True, False),
        ("'$a'", False, False),
        ("\\$a", False, False),
        ("$(a)", True, False),
        ("$((1))", True, False),
        ("$?", True, False),
        ("a$", False, False),
        ("~", True, False),
        ("~/a", True, False),
        ("a=~/b", True, False),
        ("a:~", True, False),
        ("a~", False, False),
        ("'~'", False, False),
        ("\\~", False, False),
        ("{a,b}", True, False),
        ("{1..3}", True, False),
        ("'{a,b}'", False, False),
        ("{a','b}", False, False),
        ("{,}", True, False),
        ("{a}{b,c}", True, False),
        ("{a,b}{c}", True, False),
        ("a,b{c}d,e", False, False),
        ("'x'a,bc", False, False),
        ("}a,b{", False, False),
        ("\\\n~", True, False),
        ("''~", False, False),
        ("[a][", False, True),
        ("*", False, True),
        ("a?b", False, True),
        ("[ab]", False, True),
        ("[", False, False),
        ("]", False, False),
        ("'*'", False, False),
        ("\\*", False, False),
        ("a'*'b", False, False),
    ],
)
def test_expansions_and_wildcards_are_marked(word: str, expands: bool, globs: bool) -> None:
    found = unquoted(word)
    assert (found.expands, found.globs) == (expands, globs)


PIECES = st.lists(
    st.sampled_from(
        ["a", "-", "/", "=", "'a b'", "''", '""', '"a\\"b"', "\\ ", "\\'", "\\\\", "$'\\x41'", "'\"'", "#", '"\'"', "é"]
    ),
    min_size=1,
    max_size=6,
)  # fmt: skip


@settings(max_examples=20)
@given(st.lists(PIECES, min_size=1, max_size=20))
def test_quotes_are_removed_as_bash_does(written: list[list[str]]) -> None:
    made = ["x" + "".join(word) for word in written]
    script = f"printf '%s\\0' {' '.join(made)}"
    printed = subprocess.run(["/bin/bash", "-c", script], capture_output=True, check=True, timeout=10).stdout
    assert [unquoted(word).text for word in made] == printed.decode().split("\0")[:-1]
    if "$" not in script:
        assert words(script) == ["printf", "'%s\\0'", *made]
