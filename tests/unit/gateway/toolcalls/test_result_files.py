"""File slots of a call's result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.ids import CallId
from gateway.domain.slots import SlotKind
from gateway.domain.tools import Artifact, Picture, ToolCall, ToolResult
from gateway.domain.views import TurnView
from gateway.toolcalls.result_files import SHOWN_CHARS, caption, file_slots
from tests.support.makers import CHAT, PAGE, result
from tests.support.turns import answered, called, lineage, session, turn_view

SHOT = Picture(file="t-1-1.png", media_type="image/png")
OTHER = Picture(file="t-1-2.webp", media_type="image/webp")
PAPER = Artifact(file="t-1-3.pdf", name="Bill ☂.pdf", media_type="application/pdf")


def came(*pictures: Picture, files: tuple[Artifact, ...] = ()) -> ToolResult:
    return replace(result(), pictures=pictures, files=files)


def browsing() -> TurnView:
    return turn_view(steps=[answered(0), called(1, "browser", '{"action": "open", "url": "https://example.org/"}')])


def test_pictures_then_files_are_shown_in_the_turns_chat() -> None:
    slots = file_slots(browsing(), 1, came(SHOT, OTHER, files=(PAPER,)))

    assert [(one.kind, one.conversation, one.n, one.id) for one in slots] == [(SlotKind.FILE, CHAT, 1, None)] * 3
    assert [one.file for one in slots] == [
        Artifact(file="t-1-1.png", name="browser-1.png", media_type="image/png"),
        Artifact(file="t-1-2.webp", name="browser-2.webp", media_type="image/webp"),
        PAPER,
    ]
    assert [one.text for one in slots] == [f"browser open: https://example.org/ ({n} of 3)" for n in (1, 2, 3)]


def test_one_alone_is_not_counted_and_none_is_none() -> None:
    assert [one.text for one in file_slots(browsing(), 1, came(SHOT))] == ["browser open: https://example.org/"]
    assert file_slots(browsing(), 1, came()) == []


def test_pictures_of_a_nameless_tool_are_counted() -> None:
    nameless = turn_view(steps=[answered(0), called(1, "\n", "{}")])
    slots = file_slots(nameless, 1, came(SHOT, OTHER))

    assert [one.text for one in slots] == ["a tool (1 of 2)", "a tool (2 of 2)"]
    assert [one.file.name for one in slots if one.file] == ["picture-1.png", "picture-2.webp"]


@pytest.mark.parametrize(
    "view",
    [
        replace(browsing(), turn=replace(browsing().turn, conversation=PAGE)),  # the page shows the step itself
        turn_view(of=session(of=lineage()), steps=[answered(0), called(1, "browser")]),  # its parent tells
    ],
)
def test_file_slots_are_empty_for_turns_that_show_nothing(view: TurnView) -> None:
    assert file_slots(view, 1, came(SHOT, files=(PAPER,))) == []


def test_a_model_step_shows_nothing() -> None:
    assert file_slots(browsing(), 0, came(SHOT)) == []


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("shell", '{"command": "make  chart\\n"}', "shell: make chart"),
        ("browser", '{"action": "screenshot"}', "browser screenshot"),
        ("browser", '{"action": "open", "n": 7, "url": "u"}', "browser open: u"),
        ("browser", '{"url": "a\\u202eb"}', "browser: a b"),
        ("browser", '{"url": "' + "x" * SHOWN_CHARS + '"}', "browser: " + "x" * SHOWN_CHARS),
        ("browser", '{"url": "' + "x" * (SHOWN_CHARS + 1) + '"}', "browser"),  # not cut: it might halve a secret
        ("browser", "not json", "browser"),
        ("browser", "[" * 5_000, "browser"),
        ("browser", '["a"]', "browser"),
        ("\n", "{}", "a tool"),
    ],
)
def test_the_caption_says_what_it_came_of_in_a_line(tool: str, arguments: str, said: str) -> None:
    assert caption(ToolCall(id=CallId("c"), tool=tool, arguments=arguments)) == said
