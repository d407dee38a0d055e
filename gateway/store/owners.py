"""Beside the path of an alert: where an owner is told something. Shared by every store. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from gateway.model.messages import Conversation
from gateway.model.slots import shown_when_stored

TOLD_EVERY = timedelta(hours=1)
"""How often the same thing is said to the owners."""


def latest_chat(used: Iterable[tuple[Conversation, datetime]]) -> Conversation | None:
    """The one of these direct conversations that was used last, not counting pages."""
    chats = [(place, at) for place, at in used if not shown_when_stored(place)]
    return max(chats, key=lambda one: one[1])[0] if chats else None
