"""The mark in a file's name that identifies it."""

from __future__ import annotations

import pytest

from channels.slack.files import MARK_CHARS, mark_of, marked, shows
from channels.slack.limits import NAME_CHARS
from channels.slack.parts import FilePart
from gateway.domain.ids import SlotId

PART = FilePart(name="answer.md", data=b"A" * 10, caption="all of it")
MARK = mark_of(SlotId("o1.1"), 1, PART)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("answer.md", f"answer-{MARK}.md"),
        ("a.tar.gz", f"a.tar-{MARK}.gz"),
        ("Makefile", f"Makefile-{MARK}"),
        (".profile", f".profile-{MARK}"),
        ("a/b.png", f"a/b-{MARK}.png"),
        (f"x.{'y' * 17}", f"x.{'y' * 17}-{MARK}"),
        ("x" * 300 + ".png", "x" * (NAME_CHARS - MARK_CHARS - 5) + f"-{MARK}.png"),
    ],
)
def test_a_mark_stands_before_the_ending(name: str, found: str) -> None:
    assert marked(name, MARK) == found


def test_no_other_slot_part_or_content_has_the_mark() -> None:
    same_length = FilePart(name="answer.md", data=b"B" * 10, caption="all of it")
    others = [
        mark_of(SlotId("o1.2"), 1, PART),
        mark_of(SlotId("o1.1"), 0, PART),
        mark_of(SlotId("o1.1"), 1, same_length),
    ]
    assert len({MARK, *others}) == 4
    assert mark_of(SlotId("o1.1"), 1, PART) == MARK


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([{"id": "F1", "name": "other.md"}, {"id": "F2", "name": f"answer-{MARK}.md"}], "F2"),
        ([{"id": "F1", "name": "answer.md"}], ""),
        ([{"id": 5, "name": f"answer-{MARK}.md"}], ""),
        ([{"id": "F1", "name": None}, {"id": "F1"}, None, 7], ""),
        ("F1", ""),
        (None, ""),
    ],
)
def test_a_message_shows_the_file_that_has_the_mark(files: object, found: str) -> None:
    assert shows({"files": files}, MARK) == found
