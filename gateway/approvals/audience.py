"""Where approvals are asked for: in which conversations the cards are shown. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gateway.domain.ids import WaitId
from gateway.domain.messages import Conversation, latest_chat
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.slots import NewSlot, Slot, SlotKind
from gateway.domain.turns import Turn
from gateway.domain.views import LastContact

ROWS_A_CARD = 8
PAGE_REACHES_FOR = timedelta(days=7)
SUB_SESSION = "sub_session"
"""In the payload of an approval: the title of the child that asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Where the cards of a session's approvals are shown."""

    conversations: tuple[Conversation, ...]
    page: bool
    """Whether an approver had the page open within seven days."""

    @property
    def anybody(self) -> bool:
        """Whether somebody can be asked at all."""
        return bool(self.conversations) or self.page


def audience(session: Session, turn: Turn, places: Sequence[LastContact], now: datetime) -> Audience:
    """Say where to ask: a main session and its children in its chat, others in each approver's last direct one.

    The page shows what waits by itself, and reaches nobody by having been used once.
    """
    page = any(r.page_seen_at is not None and now - r.page_seen_at <= PAGE_REACHES_FOR for r in places)
    if session.root_kind is SessionKind.MAIN:
        return Audience(conversations=(_place(session, turn),), page=page)
    latest = [latest_chat(r.direct.values()) for r in places]
    return Audience(conversations=tuple(dict.fromkeys(one for one in latest if one)), page=page)


def _place(session: Session, turn: Turn) -> Conversation:
    """Where it was asked for: of a child, where its root's turn began."""
    return session.lineage.conversation if session.lineage else turn.conversation


def payload(session: Session) -> Mapping[str, str]:
    """What is kept with an approval besides the action: which sub-session it is for."""
    return {SUB_SESSION: session.title} if session.lineage else {}


def card_slots(
    waits: Sequence[WaitId], titles: Sequence[str], place: Audience, session: Session, turn: Turn
) -> list[NewSlot]:
    """The cards (at most eight rows each) for every place, and a note where it was asked when no card stands there."""
    rows = [tuple(waits[i : i + ROWS_A_CARD]) for i in range(0, len(waits), ROWS_A_CARD)]
    slots = [
        NewSlot(conversation=where, kind=SlotKind.CARD, waits=some) for where in place.conversations for some in rows
    ]
    asked_at = _place(session, turn)
    if session.root_kind is not SessionKind.MAIN and asked_at not in place.conversations:
        what = ", ".join(dict.fromkeys(titles))
        text = f"An owner was asked to allow this: {what}. It goes on when they decide."
        slots.append(NewSlot(conversation=asked_at, kind=SlotKind.NOTE, text=text))
    return slots


def is_shown_by(slot: Slot, conversation: Conversation, message: str) -> bool:
    """Whether this message of this conversation shows the slot, or a part of it."""
    return slot.conversation == conversation and bool(message) and message in slot.platform_id.split(",")
