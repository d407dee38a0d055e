"""Beside the path of a message in several parts, cut off or of one album: which of them join, how long its turn waits.

Pure.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum, auto

from gateway.domain.messages import NEXT_OF_ALBUM_WITHIN, NEXT_PART_WITHIN, Inbound
from gateway.domain.turns import TurnKind, TurnState

HOLD_IN_ALL = timedelta(seconds=6)
"""How long it waits at most, from the first part on: who sends long texts without end must not keep a lane for ever."""
PARTS = 8
ALBUM_PARTS = 10
"""Messages of one album that its turn waits for."""


class Fate(Enum):
    """What becomes of a further message of an album."""

    JOINS = auto()
    """It becomes part of the album's turn, which nobody began."""
    STEERS = auto()
    """The album's turn is under way, and its model is given it next."""
    APART = auto()
    """It starts a turn of its own."""


def goes_on(message: Inbound, kind: TurnKind, last: str, *, was_cut: bool) -> bool:
    """Whether this is more of the message with the event key `last`: plain text, and the chat's next message.

    A platform cuts text and nothing else. A command is none of it, even right after a text: it is run, or refused.
    """
    brings = message.reply_to or message.quoted or message.unread or message.attachments
    return was_cut and kind is TurnKind.MODEL and not brings and message.follows in ("", last)


def fate(kind: TurnKind, turn: TurnKind, state: TurnState, *, begun: bool) -> Fate:
    """Decide what becomes of a message of this `kind`, by how the `turn` of its album stands. A command stays apart."""
    if kind is TurnKind.COMMAND:
        return Fate.APART
    if not begun:
        return Fate.JOINS if state is TurnState.QUEUED else Fate.APART
    steers = turn is TurnKind.MODEL and state in (TurnState.QUEUED, TurnState.RUNNING, TurnState.PARKED)
    return Fate.STEERS if steers else Fate.APART


def held_until(message: Inbound, *, part: int, first_at: datetime, now: datetime) -> datetime | None:
    """Until when the turn waits, now that `message` came as its part number `part`; None: it is due.

    `first_at`: when the first part came.
    """
    pause, most = (NEXT_PART_WITHIN, PARTS) if message.cut else (NEXT_OF_ALBUM_WITHIN, ALBUM_PARTS)
    if not (message.cut or message.album) or part >= most:
        return None
    until = min(now + pause, first_at + HOLD_IN_ALL)
    return until if until > now else None
