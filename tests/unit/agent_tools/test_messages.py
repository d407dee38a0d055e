"""Arguments of the tools that post: what they refuse before anything is decided."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from telegram.constants import ReactionEmoji

from agent_tools import slack, telegram
from agent_tools.telegram import REACTIONS
from gateway.domain.tools import Effect, Risk

BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "send needs text"),
    ({"text": " \u200b\u202e "}, "shows nothing"),
    ({"text": "x" * 100_000}, "at most 20000"),
    ({"text": "x", "emoji": "👍"}, "send takes no emoji"),
    ({"text": "x", "chat": "the kitchen"}, "write the chat's id"),
    ({"text": "x", "chat": "-1003\u202e"}, "write the chat's id"),
    ({"action": "edit", "text": "x"}, "edit needs message"),
    ({"action": "react"}, "react needs emoji"),
    ({"action": "react", "emoji": "🦖"}, "takes no such reaction"),
    ({"action": "react", "emoji": "👍👍"}, "takes no such reaction"),
    ({"action": "poll", "text": "Which day?"}, "poll needs options"),
    ({"action": "poll", "text": "Which day?", "options": []}, "poll needs options"),
    ({"action": "poll", "text": "Which day?", "options": ["Mon"]}, "2 to 10"),
    ({"action": "poll", "text": "Which day?", "options": ["x"] * 11}, "at most 10"),
    ({"action": "poll", "text": "Which day?", "options": ["Mon", "\u200b"]}, "shows nothing"),
    ({"action": "poll", "text": "Which day?", "options": ["Mon", "x" * 101]}, "at most 100"),
    ({"action": "poll", "text": "x" * 251, "options": ["Mon", "Tue"]}, "at most 250"),
    ({"action": "send_file", "path": "a\0b"}, "NUL"),
    ({"action": "send_file", "path": "a", "text": "x" * 501}, "at most 500"),
    ({"action": "kick", "text": "x"}, "Input should be"),
]


@pytest.mark.parametrize(("arguments", "why"), BAD)
def test_bad_posts_are_refused_by_their_arguments(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        telegram.Args.model_validate(arguments)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"action": "update", "text": "x"}, "update needs message"),
        ({"action": "react", "emoji": ":eyes:"}, "should match pattern"),
        ({"action": "upload"}, "upload needs path"),
        ({"action": "upload", "path": "a", "text": "x" * 501}, "at most 500"),
        ({"action": "poll", "text": "x"}, "Slack has no polls; post the choices"),
        ({"action": "kick", "text": "x"}, "Input should be"),
    ],
)
def test_bad_posts_to_slack_are_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        slack.Args.model_validate(arguments)


def test_reactions_are_those_that_telegram_takes() -> None:
    assert {one.value for one in ReactionEmoji} == REACTIONS
    assert telegram.Args(action="react", emoji="❤\ufe0f").emoji == "❤"


@pytest.mark.parametrize("tool", [slack, telegram])
def test_a_post_is_stored_with_its_result_and_so_idempotent(tool: Any) -> None:
    assert (tool.SPEC.effect, tool.SPEC.risk) == (Effect.IDEMPOTENT, Risk.NETWORK)
    assert tool.SPEC.channel == tool.SPEC.name


def test_only_another_chat_is_a_subject() -> None:
    assert telegram.scope(telegram.Args(text="x"), None).subjects == ()
    there = telegram.Args(action="send_file", path="a", chat="-1003")
    assert telegram.scope(there, None).subjects == ("chat:-1003", "path:a")
