"""What is heard of a turn and its children becomes one short line."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.ids import SessionId, TurnId
from gateway.domain.live import ProgressChanged
from gateway.domain.waits import WaitKind
from gateway.outbound.progress import ProgressLine
from gateway.system.redaction import Redactor
from gateway.system.status_text import LINE_CHARS
from tests.support.makers import CHAT

ROOT = SessionId("main:ann")
APPROVAL, CHILD = WaitKind.APPROVAL, WaitKind.CHILD


def said(text: str, title: str = "", by: str = "", waits: Collection[WaitKind] = ()) -> ProgressChanged:
    """The root, or a child, does something."""
    who = SessionId(by or f"child:{title}") if title else ROOT
    return ProgressChanged(turn=TurnId("t1"), conversation=CHAT, by=who, title=title, text=text, waits=frozenset(waits))


def heard(*doings: ProgressChanged) -> ProgressLine:
    """What is known when these were heard, the first at 0 s, each a second after the other."""
    found = ProgressLine(redactor=Redactor())
    for at, one in enumerate(doings):
        found.hear(one, float(at))
    return found


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
