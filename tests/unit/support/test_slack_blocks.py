from __future__ import annotations

from typing import Any

import pytest

from tests.support.slack.blocks import check_blocks, check_view, texts_of
from tests.support.slack.checks import Refusal


def plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text}


def marked(text: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": text}


def section(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "section", "text": marked(text), **more}


def button(text: str = "Go", **more: Any) -> dict[str, Any]:
    return {"type": "button", "text": plain(text), **more}


def actions(*elements: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "actions", "elements": list(elements), **more}


def markdown(length: int) -> dict[str, Any]:
    return {"type": "markdown", "text": "x" * length}


def field_input(**more: Any) -> dict[str, Any]:
    return {"type": "input", "label": plain("Reason"), "element": {"type": "plain_text_input", **more}}


def modal(**more: Any) -> dict[str, Any]:
    return {"type": "modal", "title": plain("Why"), "submit": plain("Deny"), "blocks": [field_input()], **more}


LIMITS: list[tuple[str, Any, Any]] = [
    ("blocks", [{"type": "divider"}] * 50, [{"type": "divider"}] * 51),
    ("section text", [section("x" * 3_000)], [section("x" * 3_001)]),
    ("fields", [{"type": "section", "fields": [plain("x")] * 10}], [{"type": "section", "fields": [plain("x")] * 11}]),
    ("header", [{"type": "header", "text": plain("x" * 150)}], [{"type": "header", "text": plain("x" * 151)}]),
    ("button text", [actions(button("x" * 75))], [actions(button("x" * 76))]),
    ("value", [actions(button(value="x" * 2_000))], [actions(button(value="x" * 2_001))]),
    ("action_id", [actions(button(action_id="x" * 255))], [actions(button(action_id="x" * 256))]),
    ("block_id", [section("x", block_id="x" * 255)], [section("x", block_id="x" * 256)]),
    ("elements", [actions(*[button()] * 25)], [actions(*[button()] * 26)]),
    (
        "context",
        [{"type": "context", "elements": [marked("x")] * 10}],
        [{"type": "context", "elements": [marked("x")] * 11}],
    ),
]


@pytest.mark.parametrize(("what", "fits", "too_much"), LIMITS, ids=[what for what, _, _ in LIMITS])
def test_limits_hold_to_the_last_character(what: str, fits: Any, too_much: Any) -> None:
    check_blocks(fits)
    with pytest.raises(Refusal) as refused:
        check_blocks(too_much)
    assert refused.value.error == "invalid_blocks"
    assert refused.value.answer()["response_metadata"]["messages"][0].startswith("[ERROR] ")


BAD: list[tuple[Any, str]] = [
    ([{"type": "sektion"}], "unsupported type: sektion [json-pointer:/blocks/0/type]"),
    (["section"], "must provide an object [json-pointer:/blocks/0]"),
    ([section("x", colour="red")], "unknown or extra fields: colour"),
    ([section("")], "must be more than 0 characters [json-pointer:/blocks/0/text/text]"),
    ([section("half a \ud83d")], "must be valid UTF-8"),
    ([{"type": "section"}], "missing required field: text or fields"),
    ([{"type": "header", "text": marked("x")}], "unsupported type: mrkdwn"),
    ([actions()], "must contain at least 1 items"),
    ([actions(button(style="blue"))], "must be a valid enum value: primary, danger"),
    ([actions({"type": "button"})], "missing required field: text"),
    ([actions(button(callback="x"))], "unknown or extra fields: callback"),
    ([actions(button(action_id="a"), button(action_id="a"))], "`action_id` a already exists"),
    ([section("x", block_id="b"), section("y", block_id="b")], "`block_id` b already exists"),
    ([field_input()], "unsupported type: input"),
    ([section("x", accessory={"type": "plain_text_input"})], "unsupported type: plain_text_input"),
]


@pytest.mark.parametrize(("blocks", "message"), BAD)
def test_malformed_blocks_are_refused_with_their_place(blocks: Any, message: str) -> None:
    with pytest.raises(Refusal) as refused:
        check_blocks(blocks)
    assert refused.value.error == "invalid_blocks"
    assert message in refused.value.messages[0]
    assert not refused.value.surprise


def test_markdown_blocks_share_one_limit() -> None:
    check_blocks([markdown(6_000), markdown(6_000), {"type": "divider"}])
    check_blocks([markdown(12_000), section("x" * 1_200)])
    for blocks in ([markdown(6_000), markdown(6_001)], [markdown(12_000), section("x" * 1_201)]):
        with pytest.raises(Refusal) as refused:
            check_blocks(blocks)
        assert refused.value.error == "msg_blocks_too_long"


def test_blocks_that_only_this_fake_does_not_know_are_a_surprise() -> None:
    with pytest.raises(Refusal) as refused:
        check_blocks([{"type": "carousel", "elements": []}])
    assert "does not know blocks of type carousel" in refused.value.surprise


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (modal(title=plain("x" * 25)), "must be less than 25 characters [json-pointer:/view/title/text]"),
        (modal(private_metadata="x" * 3_001), "must be less than 3001 characters"),
        (modal(blocks=[section("x")] * 101), "no more than 100 items"),
        (modal(blocks=[markdown(1)]), "unsupported type: markdown"),
        ({"type": "modal", "title": plain("x"), "blocks": [field_input()]}, "missing required field: submit"),
        ({"type": "modal", "title": plain("x")}, "missing required field: blocks"),
        (modal(colour="red"), "unknown or extra fields: colour"),
        (modal(type="home"), "unsupported type"),
    ],
)
def test_modals_are_checked_too(view: Any, message: str) -> None:
    check_view(modal())
    with pytest.raises(Refusal) as refused:
        check_view(view)
    assert refused.value.error == "invalid_arguments"
    assert message in refused.value.messages[0]


def test_text_of_blocks_as_people_read_it() -> None:
    line: list[dict[str, Any]] = [
        {"type": "text", "text": "see "},
        {"type": "link", "url": "https://example.org"},
        {"type": "user", "user_id": "U1"},
    ]
    blocks: list[dict[str, Any]] = [
        {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": line}]},
        section("two"),
        actions(button("three")),
        {"type": "context", "elements": [plain("four")]},
    ]
    assert texts_of(blocks) == ["see https://example.org@U1", "two", "four"]
