"""The words of a status line."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.lines import LINE_CHARS, Doings, at_work, count, duration, is_at_work, money, redacted_line
from gateway.model.ids import SessionId, TurnId
from gateway.model.live import Doing
from gateway.model.waits import WaitKind
from gateway.observe import Redactor
from tests.support.makers import CHAT

ROOT = SessionId("main:ann")
APPROVAL, CHILD = WaitKind.APPROVAL, WaitKind.CHILD


def said(text: str, title: str = "", by: str = "", waits: Collection[WaitKind] = ()) -> Doing:
    """The root, or a child, does something."""
    who = SessionId(by or f"child:{title}") if title else ROOT
    return Doing(turn=TurnId("t1"), conversation=CHAT, by=who, title=title, text=text, waits=frozenset(waits))


def heard(*doings: Doing) -> Doings:
    """What is known when these were heard, the first at 0 s, each a second after the other."""
    found = Doings(redactor=Redactor())
    for at, one in enumerate(doings):
        found.hear(one, float(at))
    return found


@pytest.mark.parametrize(
    ("micros", "currency", "text"),
    [
        (12_000, "USD", "$0.012"),
        (12_000, "€", "€0.012"),
        (3_400_000, "CHF", "3.40 CHF"),
        (1_234_567_890, "EUR", "€1,234.57"),
        (999, "USD", "<$0.001"),
        (5, "CHF", "<0.001 CHF"),
        (0, "USD", "$0.000"),
    ],
)
def test_money(micros: int, currency: str, text: str) -> None:
    assert money(micros, currency) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (0.4, "0 s"),
        (11.6, "12 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
    ],
)
def test_a_time(seconds: float, text: str) -> None:
    assert duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize("text", ["shell: df -h", "", "▸ x", " "])
def test_a_line_that_will_change_is_known_by_its_mark(text: str) -> None:
    assert is_at_work(at_work(text))


@pytest.mark.parametrize("text", ["Ended.", "1 call (shell), 2 s", "thinking", "", " ▸ thinking", "Stopped. ▸"])
def test_a_last_word_is_not_known_as_one_that_will_change(text: str) -> None:
    assert not is_at_work(text)


def test_counts() -> None:
    assert [count(1, "call"), count(2, "call")] == ["1 call", "2 calls"]


def test_a_root_alone_says_for_how_long() -> None:
    line = heard(said("shell: df -h"))

    assert line.line() == "▸ shell: df -h"
    assert [line.line(0.4), line.line(12)] == ["▸ shell: df -h", "▸ shell: df -h · 12 s"]
    line.hear(said("shell: df -h"), 20)
    assert line.line(21) == "▸ shell: df -h · 21 s"  # said again is no news


def test_children_stand_beside_each_other_those_at_work_first() -> None:
    line = heard(
        said("waits for 3 sub-sessions", waits=[CHILD]),
        said("", "logs"),
        said("shell: df -h", "disk"),
        said("waits for a decision", "net"),
    )

    assert line.line(99) == "3 sub-sessions: disk: shell: df -h · net: waits for a decision · logs: done"
    assert line.since(99) == 0


def test_a_root_that_works_beside_its_children_says_both() -> None:
    line = heard(said("shell: make"), said("thinking", "disk"))
    assert line.line(10) == "▸ shell: make · 10 s · 1 sub-session: disk: thinking"
    line.hear(said("", "disk"), 11)
    assert line.line() == "▸ shell: make"
    line.hear(said("waits for a sub-session", waits=[CHILD]), 12)
    assert line.line() == "1 sub-session: disk: done"


def test_a_decision_that_the_root_waits_for_too_is_said() -> None:
    line = heard(said("waits for a decision", waits=[APPROVAL, CHILD]), said("thinking", "disk"))

    assert line.line() == "▸ waits for a decision · 1 sub-session: disk: thinking"
    line.hear(said("waits for a decision", waits=[CHILD]), 2)
    assert line.line() == "1 sub-session: disk: thinking"  # whatever the words are


def test_words_that_sound_like_waiting_are_a_call_like_any_other() -> None:
    line = heard(said("waits for: a sub-session"), said("thinking", "disk"))

    assert line.line() == "▸ waits for: a sub-session · 1 sub-session: disk: thinking"


def test_a_root_of_which_nothing_was_heard_leaves_the_line_to_its_children() -> None:
    assert heard().line(5) == ""
    assert heard(said("thinking", "disk")).line(5) == "1 sub-session: disk: thinking"


def test_after_the_end_there_is_nothing_to_say() -> None:
    line = heard(said("shell: make"), said("thinking", "disk"), said(""))

    assert (line.ended, line.line(5)) == (True, "")


def test_many_children_are_counted() -> None:
    line = heard(*(said(f"browser: https://example.org/{n}/" + "x" * 200, f"child number {n}") for n in range(150)))

    text = line.line()
    assert text.startswith("100 sub-sessions: child number 0: browser: http")
    assert text.endswith(" · and 94 more")
    assert len(text) <= LINE_CHARS
    line.hear(said("", "child number 0"), 200)
    assert "child number 0" not in line.line()


@given(
    st.lists(
        st.tuples(
            st.text(max_size=400), st.text(max_size=60), st.sampled_from(["", "a", "b", "c", "d", "e", "f", "g"])
        ),
        max_size=12,
    )
)
def test_whatever_is_said_it_is_one_short_line(doings: list[tuple[str, str, str]]) -> None:
    line = heard(*(said(text, title, f"child:{by}") for text, title, by in doings))

    for found in (line.line(), line.line(100_000)):
        assert len(found) <= LINE_CHARS
        assert all(char.isprintable() for char in found)


@given(st.text(), st.integers(1, 300))
def test_one_line_is_settled(text: str, limit: int) -> None:
    once = redacted_line(text, limit, Redactor())

    assert len(once) <= limit
    assert redacted_line(once, limit, Redactor()) == once
