"""Telegram's principals, conversations and event keys for deduplication. Used by `inbound` and `updates`.

An event key names the event, not its update. Update ids restart at a random number after a quiet week. A new id could
equal an old one, and a message would be lost as a duplicate. A redelivered update names the same message, so these keys
match it too. Only refused events use the update id: a false match with an earlier refusal costs nothing.
"""

from __future__ import annotations

import hashlib
import re

from gateway.domain.ids import Principal
from gateway.domain.ids import principal as made
from gateway.domain.messages import Conversation

CHANNEL = "telegram"
_MESSAGE = re.compile(r"[me]-?\d+\.(\d+)(?:\..*)?", re.ASCII)


def principal(user: int) -> Principal:
    """Return the principal of a user id, which never changes. Names and @names change hands."""
    return made(CHANNEL, str(user))


def conversation(account: str, chat: int, topic: int | None = None) -> Conversation:
    """Return a chat of the bot `account`, or one topic of it."""
    thread = "" if topic is None else str(topic)
    return Conversation(channel=CHANNEL, account=account, chat=str(chat), thread=thread)


def message_key(chat: int, message: int) -> str:
    """Return the key of a message; message ids are unique only within their chat."""
    return f"m{chat}.{message}"


def album_key(chat: int, album: str) -> str:
    """Return the key of an album's unreadable parts: the person gets one reply, not one for each picture."""
    return f"a{chat}.{album}"


def edit_key(chat: int, message: int, edited_at: int, text: str) -> str:
    """Return the key of an edit. Telegram's time has only seconds, so a hash distinguishes two edits in one second."""
    return f"e{chat}.{message}.{edited_at}.{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def press_key(query: str) -> str:
    """Return the key of a button press."""
    return f"q{query}"


def update_key(update: int) -> str:
    """Return the key of a refused update."""
    return f"u{update}"


def message_of(event_key: str) -> str:
    """Return the id of the message of an event key, an edit's included; empty for every other event."""
    found = _MESSAGE.fullmatch(event_key)
    return "" if found is None else found[1]
