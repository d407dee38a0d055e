"""Rendering of a question's card as one message. Used by `outbound`; pure."""

from __future__ import annotations

from channels._shared.question_layout import (
    OWN_WORDS,
    OWN_WORDS_IN_GROUP,
    answered,
    head,
    label,
    note,
    takes_several,
)
from channels.telegram.formatted_text import Draft, Json
from channels.telegram.limits import CALLBACK_BYTES
from channels.telegram.parts import Part, TelegramTextPart
from gateway.domain.slots import QuestionCard
from gateway.domain.text import plain

SHORT_CHARS = 16
"""Characters of a label of which two fit on one line of a phone."""


def question(card: QuestionCard, *, in_group: bool) -> list[Part]:
    """Return the message of a question, the same one while it is open and once it is over."""
    draft = Draft()
    draft.add(head(card), "bold")
    for line in answered(card):
        draft.line()
        draft.add(line)
    if card.question:
        draft.line(2)
        draft.add(plain(card.question))
    if card.write is not None:
        draft.line()
        draft.add(OWN_WORDS_IN_GROUP if in_group else OWN_WORDS, "italic")
    draft.line(2)
    draft.add(note(card))
    return [TelegramTextPart.of(draft.formatted(quiet=in_group), _buttons(card))]


def _buttons(card: QuestionCard) -> tuple[tuple[Json, ...], ...]:
    several = takes_several(card)
    assert all(0 < len(button.handle.encode()) <= CALLBACK_BYTES for button in card.buttons)
    shown = [{"text": label(one, several=several), "callback_data": str(one.handle)} for one in card.buttons]
    wide = 2 if all(len(one["text"]) <= SHORT_CHARS for one in shown) else 1
    return tuple(tuple(shown[at : at + wide]) for at in range(0, len(shown), wide))
