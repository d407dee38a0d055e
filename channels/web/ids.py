"""Ids of the web page: one conversation and one principal for each owner."""

from __future__ import annotations

import re

from gateway.domain.ids import PAGE, OwnerName, Principal, web_principal
from gateway.domain.messages import Conversation, owner_page

CHANNEL = PAGE
_CLIENT_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")


def conversation(owner: OwnerName) -> Conversation:
    """The page of an owner."""
    return owner_page(owner)


def principal(owner: OwnerName) -> Principal:
    """Who speaks there."""
    return web_principal(owner)


def event_key(owner: OwnerName, client_id: str) -> str:
    """The key of something that the page sent: the page's own id, which it keeps when it sends again.

    Raises `ValueError` when the id is not usable.
    """
    if not _CLIENT_ID.fullmatch(client_id):
        raise ValueError("id: 8 to 64 letters, digits, - or _")
    return f"{owner}:{client_id}"
