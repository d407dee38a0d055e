"""Ids of the web page: one conversation and one principal per owner. Used by `inbound`."""

from __future__ import annotations

import re

from gateway.domain.ids import PAGE, OwnerName, Principal, web_principal
from gateway.domain.messages import Conversation, owner_page

CHANNEL = PAGE
_CLIENT_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")


def conversation(owner: OwnerName) -> Conversation:
    """Return the conversation of an owner's page."""
    return owner_page(owner)


def principal(owner: OwnerName) -> Principal:
    """Return the principal of an owner's page."""
    return web_principal(owner)


def is_client_id(text: str) -> bool:
    """Return whether the page may have made this id; such an id is a safe file name."""
    return _CLIENT_ID.fullmatch(text) is not None


def event_key(owner: OwnerName, client_id: str) -> str:
    """Return the event key of a frame: the page's own id, which a retry repeats.

    Raises `ValueError` for an invalid id.
    """
    if not is_client_id(client_id):
        raise ValueError("id: 8 to 64 letters, digits, - or _")
    return f"{owner}:{client_id}"
