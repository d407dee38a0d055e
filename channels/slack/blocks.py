"""Builders of Slack's blocks and of the reason form. Used by `outbound` and `cards`; `inbound` parses their buttons.

Text from people and models goes into plain text and code blocks, which Slack shows verbatim: nothing in it formats,
links or notifies. Slack parses only an answer's Markdown (`markdown`), after `markup.safe`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from channels._shared.fields import object_of
from channels.slack import ids
from channels.slack.limits import (
    ACTION_ID_CHARS,
    BUTTON_CHARS,
    CONTEXT_ELEMENTS,
    HEADER_CHARS,
    METADATA_CHARS,
    SECTION_CHARS,
    VALUE_CHARS,
)
from gateway.domain.ids import Handle
from gateway.domain.messages import REASON_AT_MOST, Press
from gateway.domain.slots import Button
from gateway.domain.text import cut
from gateway.domain.waits import Verb

Json = dict[str, Any]
DENY_WITH_REASON = "deny_with_reason"
"""`callback_id` of the reason form."""
REASON = "reason"
"""Field of the reason form."""
_STYLES = MappingProxyType({Verb.ONCE: {"style": "primary"}, Verb.DENY: {"style": "danger"}})


def plain(text: str, limit: int = SECTION_CHARS) -> Json:
    """Return a text that Slack shows verbatim, `:smile:` included. It must not be empty."""
    return {"type": "plain_text", "text": cut(text, limit), "emoji": False}


def markdown(text: str) -> Json:
    """Return a block of Markdown, parsed by Slack."""
    return {"type": "markdown", "text": text}


def header(text: str) -> Json:
    """Return a block of one bold line."""
    return {"type": "header", "text": plain(text, HEADER_CHARS)}


def line(text: str) -> Json:
    """Return a block of one paragraph."""
    return {"type": "section", "text": plain(text)}


def small(texts: Sequence[str]) -> Json:
    """Return a block of at most ten small grey texts in a row."""
    return {"type": "context", "elements": [plain(text) for text in texts[:CONTEXT_ELEMENTS]]}


def code(text: str) -> Json:
    """Return a block of preformatted text, verbatim. It must not be empty."""
    return {
        "type": "rich_text",
        "elements": [{"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text}]}],
    }


def buttons(row: int, shown: Sequence[Button]) -> Json:
    """Return the buttons of a card's row, numbered from 1. Each carries its handle, which alone counts at a press."""
    return {"type": "actions", "elements": [_button(row, button) for button in shown]}


def _button(row: int, button: Button) -> Json:
    assert 0 < len(button.handle) <= VALUE_CHARS
    return {
        "type": "button",
        "text": plain(button.label, BUTTON_CHARS),
        "action_id": f"{button.verb}:{row}"[:ACTION_ID_CHARS],
        "value": str(button.handle),
        **_STYLES.get(button.verb, {}),
    }


def picks(shown: Sequence[tuple[str, Handle]]) -> Json:
    """Return the buttons of a question, each of a label and its handle."""
    return {
        "type": "actions",
        "elements": [
            {
                "type": "button",
                "text": plain(label, BUTTON_CHARS),
                "action_id": f"pick:{n}",
                "value": str(handle),
            }
            for n, (label, handle) in enumerate(shown, 1)
        ],
    }


def verb_of(action_id: str) -> Verb | None:
    """Return the verb in a button's id. It decides only whether to ask for a reason; the handle decides the rest."""
    name = action_id.partition(":")[0]
    return Verb(name) if name in set(Verb) else None


def texts(node: object) -> list[str]:
    """Return all texts in a block, in order."""
    if isinstance(node, list):
        return [text for one in cast("list[object]", node) for text in texts(one)]
    if not isinstance(node, dict):
        return []
    found: list[str] = []
    for key, value in cast("Json", node).items():
        found += [value] if key == "text" and isinstance(value, str) else texts(value)
    return found


def size(block: Json) -> int:
    """Return the characters of text in a block."""
    return sum(map(len, texts(block)))


# --- the reason form ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FormPlace:
    """State of an open reason form: the pressed button and its place."""

    handle: Handle
    channel: str
    thread: str = ""

    def text(self) -> str:
        """Return the state for the form's `private_metadata`."""
        return json.dumps({"handle": self.handle, "channel": self.channel, "thread": self.thread})

    @staticmethod
    def parse(text: str) -> FormPlace:
        """Parse the output of `text`. Raises `ValueError` for anything else."""
        try:
            found = json.loads(text)
        except RecursionError:
            raise ValueError("nested too deep") from None
        told = object_of(found)
        handle, channel, thread = (_string(told.get(key)) for key in ("handle", "channel", "thread"))
        if not 0 < len(handle) <= VALUE_CHARS or not ids.is_channel(channel) or (thread and not ids.is_ts(thread)):
            raise ValueError("no place")
        return FormPlace(handle=Handle(handle), channel=channel, thread=thread)


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def reason_form(press: Press, title: str = "") -> Json:
    """Return the view of the reason form. `title`: the denied action, as in its card."""
    place = FormPlace(handle=press.handle, channel=press.conversation.chat, thread=press.conversation.thread)
    metadata = place.text()
    assert len(metadata) <= METADATA_CHARS
    field: Json = {
        "type": "input",
        "block_id": REASON,
        "label": plain("Why not? The agent gets your reason, and its other requests of this moment are withdrawn."),
        "element": {"type": "plain_text_input", "action_id": REASON, "multiline": True, "max_length": REASON_AT_MOST},
    }
    return {
        "type": "modal",
        "callback_id": DENY_WITH_REASON,
        "title": plain("Deny with a reason"),
        "submit": plain("Deny"),
        "close": plain("Cancel"),
        "private_metadata": metadata,
        "blocks": [*([small([title])] if title.strip() else []), field],
    }
