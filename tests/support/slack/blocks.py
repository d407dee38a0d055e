"""Checks of blocks by the fake Slack: the fields and limits of Block Kit, a table of shapes.

Each shape is one page under https://docs.slack.dev/reference/block-kit/: `blocks/…`, `block-elements/…`,
`composition-objects/…`. Pure: returns nothing, or raises `Refusal` with the place of the fault, as the real one does.
A type that Slack knows and this file does not is refused as a surprise: add its shape here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.slack.checks import MARKDOWN_AT_MOST, Json, Refusal, as_array, as_object, encodable

BLOCKS_AT_MOST = 50
"""Of a message; a modal takes 100: https://docs.slack.dev/reference/block-kit/blocks."""
VIEW_BLOCKS_AT_MOST = 100
BLOCKS_WITH_MARKDOWN_AT_MOST = 13_200
"""Characters of all blocks beside a markdown block; found by others, https://github.com/slackapi/bolt-js/issues/2509."""
VIEW_AT_MOST = 250_000
"""https://docs.slack.dev/reference/methods/views.open (error `view_too_large`)."""

Check = Callable[[Any, str], None]
_NEWER = frozenset(
    {"task_card", "plan", "alert", "card", "carousel", "video", "file", "call", "data_table", "container"}
)


def bad(what: str, at: str) -> Refusal:
    """Blocks that are not valid."""
    return Refusal("invalid_blocks", f"[ERROR] {what} [json-pointer:{at}]")


def _object(value: Any, at: str) -> Json:
    given = as_object(value)
    if given is None:
        raise bad("must provide an object", at)
    return given


# --- values ----------------------------------------------------------------------------------------


def _words(most: int, least: int = 0) -> Check:
    def check(value: Any, at: str) -> None:
        if not isinstance(value, str):
            raise bad("must be a string", at)
        if not encodable(value):
            raise bad("must be valid UTF-8", at)
        if len(value) > most:
            raise bad(f"must be less than {most + 1} characters", at)
        if len(value) < least:
            raise bad(f"must be more than {least - 1} characters", at)

    return check


def _one_of(*values: str) -> Check:
    def check(value: Any, at: str) -> None:
        if value not in values:
            raise bad(f"must be a valid enum value: {', '.join(values)}", at)

    return check


def _boolean(value: Any, at: str) -> None:
    if not isinstance(value, bool):
        raise bad("must be a boolean", at)


def _whole(value: Any, at: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad("must be a number", at)


def _anything(value: Any, at: str) -> None:
    if not isinstance(value, str | int | float | bool | dict | list):
        raise bad("must not be null", at)


def _text(most: int, *kinds: str) -> Check:
    """A text object: https://docs.slack.dev/reference/block-kit/composition-objects/text-object."""
    allowed = kinds or ("plain_text", "mrkdwn")

    def check(value: Any, at: str) -> None:
        given = _object(value, at)
        if given.get("type") not in allowed:
            raise bad(f"unsupported type: {given.get('type')}; must be {' or '.join(allowed)}", f"{at}/type")
        known = {"type", "text", "emoji"} if given["type"] == "plain_text" else {"type", "text", "verbatim"}
        _only(given, known, at)
        _words(most, 1)(given.get("text"), f"{at}/text")

    return check


def _list(each: Check, most: int, least: int = 1) -> Check:
    def check(value: Any, at: str) -> None:
        items = as_array(value)
        if items is None:
            raise bad("must provide an array", at)
        if len(items) > most:
            raise bad(f"no more than {most} items allowed", at)
        if len(items) < least:
            raise bad(f"must contain at least {least} items", at)
        for n, item in enumerate(items):
            each(item, f"{at}/{n}")

    return check


# --- shapes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """The fields of one object besides its type."""

    fields: Mapping[str, Check]
    needed: tuple[str, ...] = ()

    def check(self, value: Json, at: str, *common: str) -> None:
        """Raise `Refusal` for a field that is unknown, missing or wrong."""
        _only(value, {"type", *common, *self.fields}, at)
        for name in self.needed:
            if name not in value:
                raise bad(f"missing required field: {name}", at)
        for name, check in self.fields.items():
            if name in value:
                check(value[name], f"{at}/{name}")


def _only(value: Json, known: set[str], at: str) -> None:
    if unknown := value.keys() - known:
        raise bad(f"unknown or extra fields: {', '.join(sorted(unknown))}", at)


def _shaped(shape: Shape) -> Check:
    def check(value: Any, at: str) -> None:
        shape.check(_object(value, at), at)

    return check


def _element(*kinds: str) -> Check:
    """One of these elements."""

    def check(value: Any, at: str) -> None:
        element = _object(value, at)
        kind = element.get("type", "")
        if kind not in kinds:
            raise bad(f"unsupported type: {kind}", f"{at}/type")
        if kind in ("plain_text", "mrkdwn"):
            _text(3_000)(element, at)
        else:
            ELEMENTS[kind].check(element, at)

    return check


_ACTION_ID = _words(255, 1)
_CONFIRM = _shaped(
    Shape(
        {
            "title": _text(100, "plain_text"),
            "text": _text(300),
            "confirm": _text(30, "plain_text"),
            "deny": _text(30, "plain_text"),
            "style": _one_of("primary", "danger"),
        },
        ("title", "text", "confirm", "deny"),
    )
)
_OPTION = _shaped(
    Shape(
        {"text": _text(75), "value": _words(150, 1), "description": _text(75), "url": _words(3_000, 1)},
        ("text", "value"),
    )
)
_CHOOSING: Mapping[str, Check] = {
    "action_id": _ACTION_ID,
    "confirm": _CONFIRM,
    "focus_on_load": _boolean,
    "initial_options": _list(_OPTION, 100),
}
ELEMENTS: Mapping[str, Shape] = {
    "button": Shape(
        {
            "text": _text(75, "plain_text"),
            "action_id": _ACTION_ID,
            "url": _words(3_000, 1),
            "value": _words(2_000, 1),
            "style": _one_of("primary", "danger"),
            "confirm": _CONFIRM,
            "accessibility_label": _words(75),
        },
        ("text",),
    ),
    "plain_text_input": Shape(
        {
            "action_id": _ACTION_ID,
            "initial_value": _words(3_000),
            "multiline": _boolean,
            "min_length": _whole,
            "max_length": _whole,
            "dispatch_action_config": _anything,
            "focus_on_load": _boolean,
            "placeholder": _text(150, "plain_text"),
        }
    ),
    "static_select": Shape(
        {
            **_CHOOSING,
            "placeholder": _text(150, "plain_text"),
            "options": _list(_OPTION, 100),
            "initial_option": _OPTION,
        },
        ("options",),
    ),
    "overflow": Shape(
        {"action_id": _ACTION_ID, "confirm": _CONFIRM, "options": _list(_OPTION, 5)},
        ("options",),
    ),
    "checkboxes": Shape({**_CHOOSING, "options": _list(_OPTION, 10)}, ("options",)),
    "radio_buttons": Shape({**_CHOOSING, "options": _list(_OPTION, 10), "initial_option": _OPTION}, ("options",)),
    "image": Shape(
        {"image_url": _words(3_000, 1), "alt_text": _words(2_000, 1), "slack_file": _anything}, ("alt_text",)
    ),
    "feedback_buttons": Shape(
        {"action_id": _ACTION_ID, "positive_button": _anything, "negative_button": _anything},
        ("positive_button", "negative_button"),
    ),
    "icon_button": Shape(
        {"action_id": _ACTION_ID, "icon": _one_of("trash"), "text": _text(75, "plain_text"), "value": _words(2_000, 1)},
        ("icon", "text"),
    ),
}
_PRESSABLE = ("button", "static_select", "overflow", "checkboxes", "radio_buttons")
_LINES = ("rich_text_section", "rich_text_preformatted", "rich_text_quote")
_RICH = ("rich_text_section", "rich_text_list", "rich_text_preformatted", "rich_text_quote")


def _rich(value: Any, at: str) -> None:
    """https://docs.slack.dev/reference/block-kit/blocks/rich-text-block, as deep as its sub-elements' types."""
    given = _object(value, at)
    if given.get("type") not in _RICH:
        raise bad(f"unsupported type: {given.get('type')}", f"{at}/type")
    for n, one in enumerate(given.get("elements", [])):
        part = _object(one, f"{at}/elements/{n}")
        if part.get("type") == "text":
            _words(1_000_000, 1)(part.get("text"), f"{at}/elements/{n}/text")


BLOCKS: Mapping[str, Shape] = {
    "section": Shape(
        {
            "text": _text(3_000),
            "fields": _list(_text(2_000), 10),
            "accessory": _element(*_PRESSABLE, "image"),
            "expand": _boolean,
        }
    ),
    "divider": Shape({}),
    "header": Shape({"text": _text(150, "plain_text"), "level": _whole}, ("text",)),
    "actions": Shape({"elements": _list(_element(*_PRESSABLE), 25)}, ("elements",)),
    "context": Shape({"elements": _list(_element("image", "plain_text", "mrkdwn"), 10)}, ("elements",)),
    "context_actions": Shape({"elements": _list(_element("feedback_buttons", "icon_button"), 5)}, ("elements",)),
    "image": Shape(
        {
            "image_url": _words(3_000, 1),
            "slack_file": _anything,
            "alt_text": _words(2_000, 1),
            "title": _text(2_000, "plain_text"),
        },
        ("alt_text",),
    ),
    "input": Shape(
        {
            "label": _text(2_000, "plain_text"),
            "element": _element("plain_text_input", "static_select", "checkboxes", "radio_buttons"),
            "hint": _text(2_000, "plain_text"),
            "optional": _boolean,
            "dispatch_action": _boolean,
        },
        ("label", "element"),
    ),
    "markdown": Shape({"text": _words(MARKDOWN_AT_MOST, 1)}, ("text",)),
    "rich_text": Shape({"elements": _list(_rich, 1_000)}, ("elements",)),
    "table": Shape({"rows": _list(_list(_anything, 20), 100), "column_settings": _list(_anything, 20)}, ("rows",)),
}


# --- whole messages and views ------------------------------------------------------------------------


def check_blocks(blocks: list[Any], *, most: int = BLOCKS_AT_MOST, modal: bool = False, at: str = "/blocks") -> None:
    """Raise `Refusal` for blocks that the real one refuses; nothing is changed."""
    if len(blocks) > most:
        raise bad(f"no more than {most} items allowed", at)
    seen: set[str] = set()
    for n, block in enumerate(blocks):
        _check_block(block, f"{at}/{n}", modal=modal)
        block_id = block.get("block_id")
        if block_id and block_id in seen:
            raise bad(f"`block_id` {block_id} already exists", f"{at}/{n}/block_id")
        seen.add(block_id)
    marked = [block["text"] for block in blocks if block["type"] == "markdown"]
    if sum(map(len, marked)) > MARKDOWN_AT_MOST or (marked and _size(blocks) > BLOCKS_WITH_MARKDOWN_AT_MOST):
        raise Refusal("msg_blocks_too_long")


def _size(blocks: list[Any]) -> int:
    return sum(len(text) for text in texts_of(blocks))


def _check_block(block: Any, at: str, *, modal: bool) -> None:
    given = _object(block, at)
    kind = given.get("type", "")
    shape = BLOCKS.get(kind)
    if shape is None:
        refusal = bad(f"unsupported type: {kind}", f"{at}/type")
        refusal.surprise = f"this fake does not know blocks of type {kind} yet" if kind in _NEWER else ""
        raise refusal
    if kind == ("markdown" if modal else "input"):
        # Inputs in messages are young, markdown blocks are for messages only: .../blocks/markdown-block.
        raise bad(f"unsupported type: {kind}", f"{at}/type")
    if "block_id" in given:
        _words(255, 1)(given["block_id"], f"{at}/block_id")
    shape.check(given, at, "block_id")
    if kind == "section" and "text" not in given and "fields" not in given:
        raise bad("missing required field: text or fields", at)
    _check_action_ids(given, at)


def _check_action_ids(block: Json, at: str) -> None:
    seen: set[str] = set()
    for n, element in enumerate(elements_of(block)):
        action_id = element.get("action_id")
        if action_id and action_id in seen:
            raise bad(f"`action_id` {action_id} already exists for another element", f"{at}/elements/{n}/action_id")
        seen.add(action_id or "")


def check_view(view: Json) -> None:
    """A modal: https://docs.slack.dev/reference/views/modal-views. Raises `Refusal`."""
    if len(json.dumps(view)) > VIEW_AT_MOST:
        raise Refusal("view_too_large")
    try:
        _MODAL.check(view, "/view")
        if view.get("type") != "modal":
            raise bad("unsupported type", "/view/type")
        check_blocks(view["blocks"], most=VIEW_BLOCKS_AT_MOST, modal=True, at="/view/blocks")
        if any(block["type"] == "input" for block in view["blocks"]) and "submit" not in view:
            raise bad("missing required field: submit", "/view")
    except Refusal as why:
        why.error = "invalid_arguments"
        raise


_TITLE = _text(24, "plain_text")
_MODAL = Shape(
    {
        "title": _TITLE,
        "submit": _TITLE,
        "close": _TITLE,
        "blocks": _list(_anything, VIEW_BLOCKS_AT_MOST),
        "private_metadata": _words(3_000),
        "callback_id": _words(255),
        "external_id": _words(255),
        "clear_on_close": _boolean,
        "notify_on_close": _boolean,
        "submit_disabled": _boolean,
    },
    ("title", "blocks"),
)


# --- reading them ----------------------------------------------------------------------------------


def elements_of(block: Json) -> list[Json]:
    """The elements of a block that could have an `action_id`."""
    found: list[Json] = [e for e in block.get("elements", []) if isinstance(e, dict)]
    return [*found, *(block[name] for name in ("accessory", "element") if name in block)]


def _inline(part: Json) -> str:
    """A piece of a line of rich text."""
    kind = part.get("type")
    if kind in ("user", "channel"):
        return f"{'@' if kind == 'user' else '#'}{part.get(f'{kind}_id')}"
    return f":{part.get('name')}:" if kind == "emoji" else str(part.get("text") or part.get("url") or "")


def texts_of(blocks: Any) -> list[str]:
    """Every text that people read in blocks, in order; labels of buttons are not among them."""
    if (several := as_array(blocks)) is not None:
        return [text for one in several for text in texts_of(one)]
    part = as_object(blocks)
    if part is None or part.get("type") in _PRESSABLE:
        return []
    if part.get("type") in _LINES:
        return ["".join(_inline(one) for one in part.get("elements", []))]
    if isinstance(part.get("text"), str):
        return [part["text"]]
    every: list[str] = []
    for name in ("text", "title", "label", "fields", "elements", "rows", "accessory", "hint"):
        every += texts_of(part.get(name))
    return every
