"""Beside the path of a message that its platform cut off: what goes on with it, and how long its turn waits. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from gateway.domain.messages import NEXT_PART_WITHIN, Inbound
from gateway.domain.turns import TurnKind

HOLD_IN_ALL = timedelta(seconds=6)
"""How long it waits at most, from the first part on: who sends long texts without end must not keep a lane for ever."""
PARTS = 8


def goes_on(message: Inbound, kind: TurnKind, last: str) -> bool:
    """Whether this is more of the cut message with the event key `last`: plain text, and the chat's next message.

    A platform cuts text and nothing else. A command is none of it, even right after a text: it is run, or refused.
    """
    brings = message.reply_to or message.quoted or message.unread or message.attachments
    return kind is TurnKind.MODEL and not brings and message.follows in ("", last)


def held_until(message: Inbound, *, part: int, first_at: datetime, now: datetime) -> datetime | None:
    """Until when the turn waits, now that `message` came as its part number `part`; None: it is due.

    `first_at`: when the first part came.
    """
    if not message.cut or part >= PARTS:
        return None
    return min(now + NEXT_PART_WITHIN, first_at + HOLD_IN_ALL)
