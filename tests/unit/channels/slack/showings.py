"""Builders of slots and cards for Slack, as the gateway makes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from channels.slack.outbound import SlackRenderer
from channels.slack.parts import FilePart, Part, SlackTextPart
from gateway.domain.messages import Conversation
from gateway.domain.slots import CardRow, RenderedSlot, SlotKind
from tests.support.makers import ANN_SLACK
from tests.support.shown import card_row, slot

THREAD = Conversation(channel="slack", account="main", chat="C0KITCHEN", thread="1795248720.000100")
RENDERER = SlackRenderer()
row = partial(card_row, who=ANN_SLACK)
"""Return a row of a card."""


def shown(
    text: str,
    *,
    kind: SlotKind = SlotKind.ANSWER,
    uncertain: bool = False,
    partial: bool = False,
    there: tuple[str, ...] = (),
) -> list[Part]:
    """Return the messages of a text, some of which exist already (`there`)."""
    return RENDERER.parts(
        RenderedSlot(slot=slot(THREAD, kind, uncertain=uncertain, message_ids=there), text=text, partial=partial)
    )


def card(*rows: CardRow, uncertain: bool = False, there: tuple[str, ...] = ()) -> list[Part]:
    """Return the messages of a card."""
    again = slot(THREAD, SlotKind.CARD, uncertain=uncertain, message_ids=there)
    return RENDERER.parts(RenderedSlot(slot=again, text="", rows=rows))


def texts(parts: Sequence[Part]) -> list[SlackTextPart]:
    return [part for part in parts if isinstance(part, SlackTextPart)]


def files(parts: Sequence[Part]) -> list[FilePart]:
    return [part for part in parts if isinstance(part, FilePart)]


def kinds(part: SlackTextPart) -> list[str]:
    """Return the types of a message's blocks."""
    return [block["type"] for block in part.blocks]


def code(part: SlackTextPart) -> list[str]:
    """Return a message's preformatted texts."""
    found = [block["elements"][0] for block in part.blocks if block["type"] == "rich_text"]
    return [one["elements"][0]["text"] for one in found if one["type"] == "rich_text_preformatted"]


def buttons(part: SlackTextPart) -> list[dict[str, Any]]:
    """Return all buttons of a message."""
    found = [cast("list[dict[str, Any]]", b["elements"]) for b in part.blocks if b["type"] == "actions"]
    return [button for line in found for button in line]
