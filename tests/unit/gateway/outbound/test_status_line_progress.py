"""Progress line of a turn and its children."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.events import ProgressChanged
from gateway.domain.ids import SessionId, TurnId
from gateway.domain.waits import WaitKind
from gateway.outbound.status_line import LINE_CHARS, TAIL_CHARS, StatusLine
from gateway.system.redaction import Redactor
from tests.support.makers import CHAT

ROOT = SessionId("main:ann")
APPROVAL, CHILD = WaitKind.APPROVAL, WaitKind.CHILD


def event(text: str, title: str = "", by: str = "", waits: Collection[WaitKind] = ()) -> ProgressChanged:
    """Return an event of the root or a child."""
    who = SessionId(by or f"child:{title}") if title else ROOT
    return ProgressChanged(turn=TurnId("t1"), conversation=CHAT, by=who, title=title, text=text, waits=frozenset(waits))


def after(*events: ProgressChanged) -> StatusLine:
    """Return the line after these events, one a second from 0 s."""
    found = StatusLine(redactor=Redactor())
    for at, one in enumerate(events):
        found.update(one, float(at))
    return found


def test_root_alone_shows_its_duration() -> None:
    line = after(event("shell: df -h"))

    assert line.line() == "▸ shell: df -h"
    assert [line.line(0.4), line.line(12)] == ["▸ shell: df -h", "▸ shell: df -h · 12 s"]
    line.update(event("shell: df -h"), 20)
    assert line.line(21) == "▸ shell: df -h · 21 s"  # a repeat does not restart the duration


def test_children_at_work_come_first() -> None:
    line = after(
        event("waits for 3 sub-sessions", waits=[CHILD]),
        event("", "logs"),
        event("shell: df -h", "disk"),
        event("waits for a decision", "net"),
    )

    assert line.line(99) == "3 sub-sessions: disk: shell: df -h · net: waits for a decision · logs: done"
    assert line.since(99) == 0


def test_working_root_and_children_are_both_shown() -> None:
    line = after(event("shell: make"), event("thinking", "disk"))
    assert line.line(10) == "▸ shell: make · 10 s · 1 sub-session: disk: thinking"
    line.update(event("", "disk"), 11)
    assert line.line() == "▸ shell: make"
    line.update(event("waits for a sub-session", waits=[CHILD]), 12)
    assert line.line() == "1 sub-session: disk: done"


def test_a_decision_that_the_root_waits_for_too_is_event() -> None:
    line = after(event("waits for a decision", waits=[APPROVAL, CHILD]), event("thinking", "disk"))

    assert line.line() == "▸ waits for a decision · 1 sub-session: disk: thinking"
    line.update(event("waits for a decision", waits=[CHILD]), 2)
    assert line.line() == "1 sub-session: disk: thinking"  # whatever the words are


def test_text_that_looks_like_waiting_is_shown_as_a_call() -> None:
    line = after(event("waits for: a sub-session"), event("thinking", "disk"))

    assert line.line() == "▸ waits for: a sub-session · 1 sub-session: disk: thinking"


def test_children_are_shown_when_the_root_is_unknown() -> None:
    assert after().line(5) == ""
    assert after(event("thinking", "disk")).line(5) == "1 sub-session: disk: thinking"


def test_line_is_empty_after_the_end() -> None:
    line = after(event("shell: make"), event("thinking", "disk"), event(""))

    assert (line.ended, line.line(5)) == (True, "")


def test_many_children_are_counted() -> None:
    line = after(*(event(f"browser: https://example.org/{n}/" + "x" * 200, f"child number {n}") for n in range(150)))

    text = line.line()
    assert text.startswith("100 sub-sessions: child number 0: browser: http")
    assert text.endswith(" · and 94 more")
    assert len(text) <= LINE_CHARS
    line.update(event("", "child number 0"), 200)
    assert "child number 0" not in line.line()


@given(
    st.lists(
        st.tuples(
            st.text(max_size=400), st.text(max_size=60), st.sampled_from(["", "a", "b", "c", "d", "e", "f", "g"])
        ),
        max_size=12,
    )
)
def test_line_is_short_and_printable(events: list[tuple[str, str, str]]) -> None:
    line = after(*(event(text, title, f"child:{by}") for text, title, by in events))

    for found in (line.line(), line.line(100_000)):
        assert len(found) <= LINE_CHARS
        assert all(char.isprintable() for char in found)


# --- the last line of a call's output -------------------------------------------------------------


def printing(tail: str) -> ProgressChanged:
    return replace(event("shell: make"), tail=tail)


def test_last_printed_line_of_a_call_follows_its_duration() -> None:
    line = after(printing("compiling a.c"))
    assert [line.line(), line.line(12)] == ["▸ shell: make", "▸ shell: make · 12 s · compiling a.c"]
    line.update(printing("compiling b.c"), 13)
    assert line.line(14) == "▸ shell: make · 14 s · compiling b.c"  # a new tail does not restart the duration
    line.update(event("thinking"), 15)
    assert line.line(15.5) == "▸ thinking"


def test_a_tail_is_one_redacted_line_of_at_most_120_characters() -> None:
    secret = "123456789:AAExampleExampleExample"
    line = StatusLine(redactor=Redactor([secret]))
    line.update(printing(f"token {secret} \x1b[31m\u202e {'x' * 500}"), 0)
    tail = line.line(0.5).removeprefix("▸ shell: make · ")
    assert len(tail) == TAIL_CHARS == 120
    assert secret not in tail
    assert tail.isprintable()


def test_a_new_tail_alone_is_an_edit_every_two_seconds() -> None:
    line = after(printing("one"))
    line.edited(1.0)
    line.update(printing("two"), 1.2)
    assert [line.next_text(at) for at in (1.3, 2.9)] == ["", ""]
    assert line.next_text(3.0) == "▸ shell: make · 3 s · two"
    line.edited(100.0)
    line.update(printing("three"), 100.1)
    assert line.next_text(104.9) == ""  # the older the activity, the rarer the edits
    assert line.next_text(105.3) == "▸ shell: make · 1 min 45 s · three"


def test_a_child_shows_no_tail() -> None:
    line = after(event("waits for a sub-session", waits=[CHILD]), replace(event("shell: make", "disk"), tail="secret"))
    assert line.line(9) == "1 sub-session: disk: shell: make"
