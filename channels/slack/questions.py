"""Rendering of a question's card as one message. Used by `outbound`; pure."""

from __future__ import annotations

from channels._shared.question_layout import OWN_WORDS, answered, head, label, note, takes_several
from channels.slack.blocks import Json, header, line, picks, small
from channels.slack.parts import Part, SlackTextPart
from channels.slack.plain import clean
from gateway.domain.slots import QuestionCard
from gateway.domain.text import plain


def question(card: QuestionCard) -> list[Part]:
    """Return the message of a question, the same one while it is open and once it is over."""
    several = takes_several(card)
    asked = plain(clean(card.question))
    blocks: list[Json] = [header(head(card)), *(line(clean(one)) for one in answered(card))]
    if asked:
        blocks.append(line(asked))
    if card.buttons:
        blocks.append(picks([(label(one, several=several), one.handle) for one in card.buttons]))
    last = [OWN_WORDS] if card.write is not None else []
    blocks.append(small([*last, clean(note(card))]))
    return [SlackTextPart(blocks=tuple(blocks), said=f"{head(card)}: {asked or note(card)}")]
