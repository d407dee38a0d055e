"""Beside the path of an alert: where an owner is told something. Shared by every store. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from gateway.model.ids import OwnerName, main_session
from gateway.model.messages import Conversation
from gateway.model.sessions import Origin, Route, SessionKind
from gateway.model.slots import shown_when_stored

TOLD_EVERY = timedelta(hours=1)
"""How often the same thing is said to the owners."""


def owner_page(owner: OwnerName) -> Conversation:
    """The owner's conversation on the web page."""
    return Conversation(channel="web", account="page", chat=owner)


def main_route(owner: OwnerName) -> Route:
    """The way to the owner's main session."""
    return Route(
        session=main_session(owner), kind=SessionKind.MAIN, origin=Origin.DIRECT, owner=owner, title=str(owner)
    )


def latest_chat(used: Iterable[tuple[Conversation, datetime]]) -> Conversation | None:
    """The one of these direct conversations that was used last, not counting pages."""
    chats = [(place, at) for place, at in used if not shown_when_stored(place)]
    return max(chats, key=lambda one: one[1])[0] if chats else None
