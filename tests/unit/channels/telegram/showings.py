"""Builders of slots and cards for Telegram, as the gateway makes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial as bound

from channels.telegram.outbound import TelegramRenderer
from channels.telegram.parts import FilePart, Part, TelegramTextPart
from gateway.domain.messages import Conversation
from gateway.domain.slots import CardRow, RenderedSlot, SlotKind
from tests.support.makers import ANN_TELEGRAM, CHAT
from tests.support.shown import card_row, slot

GROUP = Conversation(channel="telegram", account="default", chat="-1003")
RENDERER = TelegramRenderer()
row = bound(card_row, who=ANN_TELEGRAM)
"""Return a row of a card."""


def shown(
    text: str,
    *,
    where: Conversation = CHAT,
    uncertain: bool = False,
    partial: bool = False,
    there: tuple[str, ...] = (),
) -> list[Part]:
    """Return the messages of an answer, some of which exist already (`there`)."""
    again = slot(where, uncertain=uncertain, message_ids=there)
    return RENDERER.parts(RenderedSlot(slot=again, text=text, partial=partial))


def status(text: str, *, where: Conversation = CHAT, uncertain: bool = False, partial: bool = False) -> list[Part]:
    """Return the messages of a status line."""
    line = slot(where, SlotKind.STATUS, uncertain=uncertain)
    return RENDERER.parts(RenderedSlot(slot=line, text=text, partial=partial))


def card(
    *rows: CardRow, where: Conversation = CHAT, uncertain: bool = False, there: tuple[str, ...] = ()
) -> list[Part]:
    """Return the messages of a card."""
    again = slot(where, SlotKind.CARD, uncertain=uncertain, message_ids=there)
    return RENDERER.parts(RenderedSlot(slot=again, text="", rows=rows))


def texts(parts: Sequence[Part]) -> list[TelegramTextPart]:
    return [part for part in parts if isinstance(part, TelegramTextPart)]


def files(parts: Sequence[Part]) -> list[FilePart]:
    return [part for part in parts if isinstance(part, FilePart)]


def pres(part: TelegramTextPart) -> list[str]:
    """Return a message's preformatted texts, by its entities."""
    raw = part.text.encode("utf-16-le")
    spans = [(2 * e["offset"], 2 * (e["offset"] + e["length"])) for e in part.entities if e["type"] == "pre"]
    return [raw[begin:end].decode("utf-16-le") for begin, end in spans]


def keyboard(part: TelegramTextPart) -> list[list[str]]:
    return [[button["text"] for button in line] for line in part.buttons]
