"""Rules for messages in several parts, cut off or of one album: which parts join, and how long their turn waits.

Pure. Used by the intake transitions of every store. The wait for one part, 1.5 s, is `NEXT_PART_WITHIN` in
`domain/messages.py`, since reasons of denials wait as long.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum, auto

from gateway.domain.messages import NEXT_PART_WITHIN, Inbound
from gateway.domain.turns import TurnKind, TurnState

NEXT_OF_ALBUM_WITHIN = timedelta(seconds=1)
"""Delay after one message of an album before its turn may begin."""
HOLD_IN_ALL = timedelta(seconds=6)
"""Maximum wait of a turn from its first part on, so that endless long texts do not block a lane."""
PARTS = 8
"""Maximum parts of one message that its turn waits for."""
ALBUM_PARTS = 10
"""Maximum messages of one album that its turn waits for."""


class Fate(Enum):
    """Handling of a further message of an album."""

    JOINS = auto()
    """It becomes part of the album's turn, which has not begun."""
    STEERS = auto()
    """The album's turn is running; its model receives the message next."""
    APART = auto()
    """It starts a separate turn."""


def goes_on(message: Inbound, kind: TurnKind, last: str, *, was_cut: bool) -> bool:
    """Return whether this continues the message with event key `last`: plain text, and the chat's next message.

    Platforms cut only text. A command never continues a message, even right after a text: it is run or refused.
    """
    brings = message.reply_to or message.quoted or message.unread or message.attachments
    return was_cut and kind is TurnKind.MODEL and not brings and message.follows in ("", last)


def fate(kind: TurnKind, turn: TurnKind, state: TurnState, *, begun: bool) -> Fate:
    """Decide how a message of this `kind` is handled, by its album's `turn`. A command stays separate."""
    if kind is TurnKind.COMMAND:
        return Fate.APART
    if not begun:
        return Fate.JOINS if state is TurnState.QUEUED else Fate.APART
    steers = turn is TurnKind.MODEL and state in (TurnState.QUEUED, TurnState.RUNNING, TurnState.PARKED)
    return Fate.STEERS if steers else Fate.APART


def held_until(message: Inbound, *, part: int, first_at: datetime, now: datetime) -> datetime | None:
    """Return until when the turn waits after `message`, its part number `part`; None: it is due.

    `first_at`: when the first part came.
    """
    pause, most = (NEXT_PART_WITHIN, PARTS) if message.cut else (NEXT_OF_ALBUM_WITHIN, ALBUM_PARTS)
    if not (message.cut or message.album) or part >= most:
        return None
    until = min(now + pause, first_at + HOLD_IN_ALL)
    return until if until > now else None
