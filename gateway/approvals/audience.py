"""Audience of approvals: the conversations that show their cards. Used when a tool call asks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gateway.domain.ids import Principal, WaitId
from gateway.domain.messages import Conversation, latest_chat
from gateway.domain.sessions import Session
from gateway.domain.slots import ROWS_A_CARD, NewSlot, Slot, SlotKind
from gateway.domain.turns import Turn
from gateway.domain.views import LastContact

PAGE_REACHES_FOR = timedelta(days=7)
"""Time after its last visit for which the web page counts as a way to reach an approver."""
SUB_SESSION = "sub_session"
"""Key in the payload of an approval: the title of the child that asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Places that show the cards of a session's approvals."""

    conversations: tuple[Conversation, ...]
    page: bool
    """True if an approver had the page open within seven days."""
    asked: str = "An owner"
    """Name of the approvers in the note to the asking conversation."""
    later: tuple[tuple[Principal, ...], ...] = ()
    """Principals of each further approver, who is asked when these do not decide in time."""

    @property
    def anybody(self) -> bool:
        """Return whether anybody can be asked at all."""
        return bool(self.conversations) or self.page


NOBODY = Audience(conversations=(), page=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """Ways to reach one approver."""

    seen: LastContact
    here: bool = False
    """True for the owner of a main session, who is asked in its own chat."""
    sees_page: bool = True
    """True for an owner whose page shows the session."""


def audience(session: Session, turn: Turn, contacts: Sequence[Contact], now: datetime, quorum: int = 1) -> Audience:
    """Return the audience: an owner's own session in its chat, every other approver in the last direct chat.

    The page lists open approvals anyway, so it gets no card; one visit long ago does not make it reach anybody. With
    fewer approvers within reach than must allow it, nobody is asked.
    """
    chats = [asking_place(session, turn) if one.here else latest_chat(one.seen.direct.values()) for one in contacts]
    pages = [one.sees_page and _is_recent(one.seen.page_seen_at, now) for one in contacts]
    if sum(chat is not None or page for chat, page in zip(chats, pages, strict=True)) < quorum:
        return NOBODY
    return Audience(conversations=tuple(dict.fromkeys(chat for chat in chats if chat)), page=any(pages))


def _is_recent(seen: datetime | None, now: datetime) -> bool:
    return seen is not None and now - seen <= PAGE_REACHES_FOR


def asking_place(session: Session, turn: Turn) -> Conversation:
    """Return the conversation of the request; for a child, the one that started its root's turn."""
    return session.lineage.conversation if session.lineage else turn.conversation


def payload(session: Session) -> Mapping[str, str]:
    """Return the stored facts of an approval besides the action: the title of its sub-session."""
    return {SUB_SESSION: session.title} if session.lineage else {}


def card_slots(
    waits: Sequence[WaitId], titles: Sequence[str], place: Audience, session: Session, turn: Turn
) -> list[NewSlot]:
    """Return cards of at most eight rows for every place, and a note for the asking conversation if it gets no card.

    Without approvals return nothing.
    """
    if not waits:
        return []
    rows = [tuple(waits[i : i + ROWS_A_CARD]) for i in range(0, len(waits), ROWS_A_CARD)]
    slots = [
        NewSlot(conversation=where, kind=SlotKind.CARD, waits=some) for where in place.conversations for some in rows
    ]
    asked_at = asking_place(session, turn)
    if asked_at not in place.conversations:
        what = ", ".join(dict.fromkeys(titles))
        text = f"{place.asked} was asked to allow this: {what}. It goes on when they decide."
        slots.append(NewSlot(conversation=asked_at, kind=SlotKind.NOTE, text=text))
    return slots


def is_shown_by(slot: Slot, conversation: Conversation, message: str) -> bool:
    """Return whether this message of this conversation shows the slot, or a part of it."""
    return slot.conversation == conversation and bool(message) and message in slot.message_ids
