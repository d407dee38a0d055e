"""The nine strategies: golden vectors, refusals, and what an edit puts in place of what it found."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tools._files.matching import Strategy, find
from agent_tools._files.replacing import Edit, apply_edits
from gateway.errors import BadRequest

CODE = "def first():\n    a = 1\n    b = 2\n    return a + b\n\n\ndef second():\n\treturn 'two'  \n"
GOLDEN = [
    (Strategy.EXACT, CODE, "a = 1", "a = 1"),
    (Strategy.EXACT, CODE, "    a = 1\n    b = 2\n", "    a = 1\n    b = 2\n"),
    (Strategy.LINE_TRIMMED, CODE, "a = 1\nb = 2", "    a = 1\n    b = 2"),
    (Strategy.LINE_TRIMMED, CODE, "def second():\nreturn 'two'", "def second():\n\treturn 'two'  "),
    (
        Strategy.BLOCK_ANCHOR,
        CODE,
        "def first():\n    a = 1;\n    b = 2;\n    return a + b",
        "def first():\n    a = 1\n    b = 2\n    return a + b",
    ),
    (Strategy.WHITESPACE, CODE, "a  =  1", "a = 1"),
    (Strategy.WHITESPACE, CODE, "return a\n + b", "return a + b"),
    (
        Strategy.INDENTATION,
        "if x:\n      one\n        two\n",
        "if y:\n  one\n    two".replace("if y:\n", ""),
        "      one\n        two",
    ),
    (Strategy.ESCAPES, "say('a')\nsay('b')\n", "say(\\'a\\')\\nsay(\\'b\\')", "say('a')\nsay('b')"),
    (Strategy.BOUNDARY, "one two three", "\n two three \n", "two three"),
    (
        Strategy.CONTEXT,
        "begin\nsame\nzzzzzzzzz\nqqqqqqqqq\nsame too\nend\n",
        "begin\nsame\n1234567\n89\nsame too\nend",
        "begin\nsame\nzzzzzzzzz\nqqqqqqqqq\nsame too\nend",
    ),
]


@pytest.mark.parametrize(("strategy", "text", "old", "found"), GOLDEN)
def test_strategy_finds_the_golden_span(strategy: Strategy, text: str, old: str, found: str) -> None:
    by = find(text, old)
    assert by is not None
    assert [text[span.start : span.end] for span in by[1]] == [found]
    # A stricter one may find it as well: trimmed lines are also indented ones, and single words have no boundary.
    order = list(Strategy)
    assert order.index(by[0]) <= order.index(strategy)


@pytest.mark.parametrize(
    ("strategy", "text", "old"),
    [
        (Strategy.EXACT, CODE, "a = 1"),
        (Strategy.LINE_TRIMMED, CODE, "a = 1\nb = 2"),
        (Strategy.BLOCK_ANCHOR, CODE, "def first():\n    a = 1;\n    b = 2;\n    return a + b"),
        (Strategy.WHITESPACE, CODE, "a  =  1"),
        (Strategy.ESCAPES, "say('a')\nsay('b')\n", "say(\\'a\\')\\nsay(\\'b\\')"),
        (Strategy.CONTEXT, GOLDEN[-1][1], GOLDEN[-1][2]),
    ],
)
def test_strategy_is_named(strategy: Strategy, text: str, old: str) -> None:
    by = find(text, old)
    assert by is not None
    assert by[0] is strategy


@pytest.mark.parametrize(
    "old",
    [
        "nothing like it",
        "def first():\n    x()\n    y()\n    return a + b",  # the lines between the anchors are others
        "def first():\n    return 'two'",  # too short for what it would span
    ],
)
def test_loose_strategies_refuse_another_text(old: str) -> None:
    assert find(CODE, old) is None


def test_a_text_in_several_places_is_refused_with_their_lines() -> None:
    with pytest.raises(BadRequest, match="in 2 places: lines 1, 3"):
        apply_edits("x\ny\nx\n", [Edit(old="x", new="z")])


def test_every_occurrence_is_replaced_when_asked() -> None:
    edited = apply_edits("x y x", [Edit(old="x", new="z", everywhere=True)])
    assert (edited.text, edited.strategies, edited.replaced) == ("z y z", (Strategy.EVERY,), 2)


@pytest.mark.parametrize(("old", "new", "why"), [("", "x", "`old` is empty"), ("a", "a", "are equal")])
def test_an_edit_that_changes_nothing_is_refused(old: str, new: str, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        apply_edits("a", [Edit(old=old, new=new)])


def test_a_refusal_shows_the_nearest_text() -> None:
    with pytest.raises(BadRequest) as refused:
        apply_edits(CODE, [Edit(old="    return a - b", new="x")])
    assert "nearest text is at line 4" in refused.value.message
    assert "4:     return a + b" in refused.value.message


def test_edits_apply_in_order_and_the_failing_one_is_named() -> None:
    edited = apply_edits("a b", [Edit(old="a", new="c"), Edit(old="c b", new="d")])
    assert edited.text == "d"
    with pytest.raises(BadRequest, match="Edit 2 of 2: `old` was not found"):
        apply_edits("a b", [Edit(old="a", new="c"), Edit(old="a", new="d")])


def test_a_replacement_takes_the_indentation_of_what_was_found() -> None:
    edited = apply_edits(CODE, [Edit(old="a = 1\nb = 2\n", new="a = 3\nif a:\n    b = 4\n")])
    assert edited.text.startswith("def first():\n    a = 3\n    if a:\n        b = 4\n    return")


def test_a_trimmed_match_is_trusted_and_a_similar_one_is_not() -> None:
    assert apply_edits(CODE, [Edit(old="a = 1\nb = 2", new="x")]).loose == ()
    edited = apply_edits(CODE, [Edit(old="a  =  1", new="a = 9")])
    assert edited.loose == (Strategy.WHITESPACE,)


def test_an_edit_of_ten_thousand_lines_takes_little_time() -> None:
    text = "".join(f"line {n}\n" for n in range(10_000))
    began = time.process_time()
    apply_edits(text, [Edit(old="line 9000\nline 9001", new="x")])
    assert time.process_time() - began < 0.2


@given(st.text(max_size=200), st.text(min_size=1, max_size=20), st.text(max_size=20))
def test_an_exact_replacement_is_pythons_own(text: str, old: str, new: str) -> None:
    if old == new or old not in text:
        return
    assert apply_edits(text, [Edit(old=old, new=new, everywhere=True)]).text == text.replace(old, new)


@given(st.text(alphabet="ab \n\\", max_size=60), st.text(alphabet="ab \n\\", min_size=1, max_size=20))
def test_spans_never_overlap_when_they_are_replaced(text: str, old: str) -> None:
    found = find(text, old)
    for span in found[1] if found else ():
        assert 0 <= span.start <= span.end <= len(text)


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("a b c " * 150_000, "a b c " * 5_000 + "z"),
        ("a second line\n", "x " * 450_000),
        ("x\n" * 450_000, "x\n" * 400 + "y\nx"),
        (("x" * 2_000 + "\n") * 450, ("x" * 2_000 + "\n") * 2 + ("y" * 2_000 + "\n") * 40 + "x" * 2_000),
        ("  x\n" * 300_000, "x\n" * 300 + "q"),
    ],
)
@pytest.mark.sampled(2)
def test_a_hostile_text_is_given_up_in_time(text: str, old: str) -> None:
    """Each took minutes, and the first two held up the whole daemon."""
    began = time.process_time()

    assert find(text, old) is None
    assert time.process_time() - began < 20
