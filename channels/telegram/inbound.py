"""Parser of Telegram updates: message, press, chat migration or refusal. Used by `updates`; pure, never raises.

`ALLOWED_UPDATES` lists the kinds that Telegram is asked for.

Updates are read with our own readers (`fields`, `inbound_text`), not as objects of python-telegram-bot. Those raise
arbitrary errors on malformed input, ignore unknown fields, and build every nested object whether it is used or not.
Here a field of the wrong type is a refusal that names the field, and an update costs 0.03 ms; theirs, before any
decision, 0.14 ms.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from channels._shared.fields import as_ascii
from channels.telegram import ids
from channels.telegram.attached import attached
from channels.telegram.fields import Malformed, TelegramFields
from channels.telegram.inbound_text import Words
from gateway.domain.ids import Handle
from gateway.domain.messages import Conversation, Inbound, Press, Refused, RefusedReason
from gateway.domain.text import plain

ALLOWED_UPDATES = ("message", "edited_message", "callback_query")
"""Kinds of updates that Telegram is asked for. Any other is refused."""
RAW_AT_MOST = 65_536
"""Characters kept of a refused update."""
QUOTED_AT_MOST = 1000
"""Characters kept of a quoted message."""
NAME_AT_MOST = 64
"""Characters of a person's name, at most."""
PRESS_AT_MOST = 64
"""Bytes of a press's id, at most; real ones have some twenty digits."""
CUT_UNITS = 4000
"""UTF-16 units from which a message counts as split: apps split at 4,096, many a little earlier at a line's end."""
_LAST_SECOND = 253_402_300_799  # of the year 9999, the last of `datetime`

NOT_PEOPLE = frozenset({777000, 1087968824, 136817688})
"""Accounts on behalf of others: Telegram itself, a group's anonymous administrators, a channel in a group."""

UNREAD: Mapping[str, str] = types.MappingProxyType(
    {
        "photo": "a photo",
        "animation": "an animation",  # before `document`, and `venue` before `location`: Telegram sends both then
        "video": "a video",
        "video_note": "a video message",
        "voice": "a voice message",
        "audio": "an audio file",
        "document": "a file",
        "sticker": "a sticker",
        "story": "a story",
        "paid_media": "paid media",
        "contact": "a contact",
        "venue": "a place",
        "location": "a location",
        "poll": "a poll",
        "checklist": "a checklist",
        "dice": "a roll of the dice",
        "game": "a game",
        "invoice": "an invoice",
        "giveaway": "a giveaway",
    }
)
"""Message fields besides text, and their names in notes about unreadable content."""

_EVERY_MESSAGE = frozenset(
    {"message_id", "message_thread_id", "is_topic_message", "from", "chat", "date", "edit_date", "reply_to_message"}
)
"""Fields of every message, which do not show its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BotIdentity:
    """Identity of the bot, from `getMe`, and its account in the configuration."""

    id: int
    username: str
    account: str
    files_at_most: int = 0
    """Bytes of a file that can be downloaded; 0 is no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramPress:
    """Button press with the query that Telegram wants answered."""

    query: str
    press: Press


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMigration:
    """Migration of a group to a supergroup: the chat gets a new id. Telegram reports it twice, once in each chat."""

    old: str
    new: str


Meaning: TypeAlias = Inbound | TelegramPress | ChatMigration | Refused


class _Unusable(Exception):
    """Well-formed update that is no person's message or press."""

    def __init__(self, reason: RefusedReason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


def read(update: object, bot: BotIdentity, now: datetime) -> Meaning:
    """Return the meaning of an update for `bot`; accepts any JSON value. `now`: upper bound of `sent_at`."""
    reason, raw = RefusedReason.POISON, ""
    try:
        fields = TelegramFields(update)
        fields.number("update_id", least=0)
        return _Reading(bot, now).update(fields)
    except _Unusable as unusable:
        reason, detail = unusable.reason, unusable.detail
    except Malformed as malformed:
        detail, raw = str(malformed), written(update)
    key = _refused_key(update)
    return Refused(channel=ids.CHANNEL, account=bot.account, event_key=key, reason=reason, detail=detail, raw=raw)


def _refused_key(update: object) -> str:
    try:
        return ids.update_key(TelegramFields(update).number("update_id", least=0))
    except Malformed:
        return f"x{hashlib.sha256(written(update).encode()).hexdigest()[:32]}"


def written(update: object) -> str:
    """Return an update as ASCII JSON, which can always be stored."""
    return as_ascii(update, RAW_AT_MOST)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Parser of one update. Every method raises `Malformed` and `_Unusable`."""

    bot: BotIdentity
    now: datetime

    def update(self, update: TelegramFields) -> Meaning:
        if "callback_query" in update:
            return self._press(update.object("callback_query"))
        if "message" in update:
            return self._message(update.object("message"), edited=False)
        if "edited_message" in update:
            return self._message(update.object("edited_message"), edited=True)
        kinds = [_safe(key) for key in update.present() if key != "update_id"]
        kind = kinds[0] if kinds else "nothing"
        channels = {"channel_post", "edited_channel_post"}
        raise _Unusable(RefusedReason.NOT_A_PERSON if kind in channels else RefusedReason.UNKNOWN, kind)

    # --- messages -------------------------------------------------------------------------------

    def _message(self, message: TelegramFields, *, edited: bool) -> Inbound | ChatMigration:
        chat = message.object("chat")
        place, number = chat.number("id"), message.number("message_id", least=0)
        if "migrate_to_chat_id" in message:
            return ChatMigration(old=str(_group(chat, "id")), new=str(_group(message, "migrate_to_chat_id")))
        if "migrate_from_chat_id" in message:
            return ChatMigration(old=str(_group(message, "migrate_from_chat_id")), new=str(_group(chat, "id")))
        sender = _person(message, chat)
        who = sender.number("id")
        direct = chat.text("type") == "private" and place == who
        sent = message.number("edit_date" if edited else "date", least=1, most=_LAST_SECOND)
        words = Words.read(message)
        files, why = attached(message, self.bot.files_at_most, own=not _borrowed(message))
        unread = "" if files else f"{_unread(message, words)} {why}".strip()
        text, quoted = self._said(message, words, edited=edited, brings=bool(files or unread))
        reply = _reply(message)
        album = "" if edited else message.text("media_group_id")
        album = ids.album_key(place, album) if album else ""
        key = album if album and unread and not text else ids.message_key(place, number)
        return Inbound(
            event_key=ids.edit_key(place, number, sent, text) if edited else key,
            conversation=self._conversation(message, place),
            principal=ids.principal(who),
            name=_name(sender),
            direct=direct,
            addressed=direct or self._addressed(message, words, reply),
            text=text,
            sent_at=min(datetime.fromtimestamp(sent, UTC), self.now),
            edits=ids.message_key(place, number) if edited else "",
            reply_to="" if reply is None else str(reply.number("message_id", least=0)),
            quoted=quoted or _quoted(message, reply),
            unread=unread,
            attachments=files,
            cut=words.units >= CUT_UNITS and "text" in message and not edited and not _borrowed(message),
            follows="" if edited else _follows(chat, place, number),
            album=album,
        )

    def _conversation(self, message: TelegramFields, chat: int) -> Conversation:
        # In a plain group, message_thread_id is the id of the message that is replied to.
        topic = message.number("message_thread_id", least=1) if message.flag("is_topic_message") else None
        return ids.conversation(self.bot.account, chat, topic)

    def _said(self, message: TelegramFields, words: Words, *, edited: bool, brings: bool) -> tuple[str, str]:
        """Return the text and the message's own quote. `brings`: it has a file or other content."""
        if not words.text and (edited or not brings):  # an edit without words: a live location moves, for instance
            raise _Unusable(RefusedReason.UNKNOWN, _kind(message))
        borrowed = _borrowed(message)
        if borrowed:  # not shortened like a quote: the message has no other text
            return borrowed if words.text else "", words.text
        return words.said_to(self.bot.id, self.bot.username), ""

    def _addressed(self, message: TelegramFields, words: Words, reply: TelegramFields | None) -> bool:
        """Return True if the bot is addressed in a group."""
        if _borrowed(message):
            return False  # its mentions are somebody else's
        whom = words.command_for()
        if whom is not None:
            return whom == "" or whom.lower() == self.bot.username.lower()
        if words.names(self.bot.id, self.bot.username):
            return True
        author = None if reply is None else reply.maybe("from")
        return author is not None and author.number("id") == self.bot.id

    # --- presses --------------------------------------------------------------------------------

    def _press(self, query: TelegramFields) -> TelegramPress:
        number = query.word("id", most=PRESS_AT_MOST)
        who = _somebody(query)
        message = query.maybe("message")
        if message is None or "data" not in query:
            raise _Unusable(RefusedReason.UNKNOWN, "callback_query without message or data")
        chat = message.object("chat").number("id")
        if message.number("date", least=0, most=_LAST_SECOND) == 0:
            raise _Unusable(RefusedReason.UNKNOWN, "callback_query of an inaccessible message")
        press = Press(
            event_key=ids.press_key(number),
            conversation=self._conversation(message, chat),
            principal=ids.principal(who.number("id")),
            handle=Handle(query.word("data", most=64)),
            can_ask_reason=True,
        )
        return TelegramPress(query=number, press=press)


# --- sender -------------------------------------------------------------------------------------


def _person(message: TelegramFields, chat: TelegramFields) -> TelegramFields:
    """Return the person who wrote a message."""
    kind = chat.text("type")
    if kind == "channel" or "sender_chat" in message:
        raise _Unusable(RefusedReason.NOT_A_PERSON, "a channel or a group speaks")
    if kind not in {"private", "group", "supergroup"}:
        raise Malformed("message.chat.type: it is none that is known")
    return _somebody(message)


def _somebody(event: TelegramFields) -> TelegramFields:
    """Return the account that caused an event; it must be a person's."""
    sender = event.object("from")
    if sender.number("id", least=1) in NOT_PEOPLE or sender.need_flag("is_bot"):
        raise _Unusable(RefusedReason.NOT_A_PERSON, "a bot speaks")
    return sender


def _name(sender: TelegramFields) -> str:
    """Return a person's name; the id if there is none."""
    name = f"{sender.text('first_name')} {sender.text('last_name')}"
    return plain(name)[:NAME_AT_MOST].rstrip() or str(sender.number("id"))


# --- replies and content ------------------------------------------------------------------------


def _borrowed(message: TelegramFields) -> str:
    """Return a note for words that are not the person's own; empty for their own.

    A forwarded message, or one that a bot wrote for the person, is passed on as data, so that a forwarded "/shell rm"
    never is a command.
    """
    if "forward_origin" in message or "forward_date" in message:  # the latter: API servers from before 2024
        return "(forwarded message)"
    return "(written by a bot that was asked for it)" if "via_bot" in message else ""


def _follows(chat: TelegramFields, place: int, number: int) -> str:
    """Return the key of the preceding message; only a supergroup numbers its own messages.

    In a private chat or a plain group the number counts all messages of the bot in such chats. The next message of this
    chat may have any higher number.
    """
    counts = chat.text("type") == "supergroup" and number > 0
    return ids.message_key(place, number - 1) if counts else ""


def _reply(message: TelegramFields) -> TelegramFields | None:
    """Return the message replied to. Telegram marks every message of a topic as a reply to the topic's first."""
    reply = message.maybe("reply_to_message")
    if reply is None or "forum_topic_created" in reply:
        return None
    if message.flag("is_topic_message") and reply.number("message_id") == message.number("message_thread_id"):
        return None
    return reply


def _quoted(message: TelegramFields, reply: TelegramFields | None) -> str:
    quote = message.maybe("quote")
    chosen = "" if quote is None else quote.text("text")
    return (chosen or ("" if reply is None else reply.text("text") or reply.text("caption")))[:QUOTED_AT_MOST]


def _unread(message: TelegramFields, words: Words) -> str:
    there = UNREAD.keys() & message.present()
    found = next(name for key, name in UNREAD.items() if key in there) if there else ""
    return found or ("an attachment" if words.text and "text" not in message else "")


def _group(place: TelegramFields, key: str) -> int:
    """Return the id of a group, which is negative."""
    return place.number(key, most=-1)


def _kind(message: TelegramFields) -> str:
    """Return the kind of a message without words, for the log."""
    return next((_safe(key) for key in message.present() if key not in _EVERY_MESSAGE), "a message without words")


def _safe(key: str) -> str:
    return (
        "".join(c if c.isascii() and (c.isalnum() or c == "_") else "?" for c in key[:40]) or "a field without a name"
    )
