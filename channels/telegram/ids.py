"""Ids of Telegram: who speaks, where, and the keys by which an event is known when it comes again.

An event's key names what happened, not the update that told of it: update ids begin anew at a random number after a
quiet week, so an update id alone could be taken for one of long ago, and a message would be lost as a duplicate. A
redelivered update names the same message again, so the keys below catch it as well. Only what is refused goes by its
update id: there, to be taken for an earlier refusal costs nothing.
"""

from __future__ import annotations

import hashlib

from gateway.domain.ids import Principal
from gateway.domain.ids import principal as made
from gateway.domain.messages import Conversation

CHANNEL = "telegram"


def principal(user: int) -> Principal:
    """Who speaks: by the account's number, which never changes. Names and @names change hands."""
    return made(CHANNEL, str(user))


def conversation(account: str, chat: int, topic: int | None = None) -> Conversation:
    """A chat of the bot `account`, or one topic of it."""
    thread = "" if topic is None else str(topic)
    return Conversation(channel=CHANNEL, account=account, chat=str(chat), thread=thread)


def message_key(chat: int, message: int) -> str:
    """A message; message ids are unique within their chat only."""
    return f"m{chat}.{message}"


def album_key(chat: int, album: str) -> str:
    """An album, and what of it cannot be read: the person is told once, not for each of its pictures."""
    return f"a{chat}.{album}"


def edit_key(chat: int, message: int, edited_at: int, text: str) -> str:
    """One new text of a message. Telegram tells the second only, in which there may be two: they differ in `text`."""
    return f"e{chat}.{message}.{edited_at}.{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def press_key(query: str) -> str:
    """A button press."""
    return f"q{query}"


def update_key(update: int) -> str:
    """Something that is refused."""
    return f"u{update}"
