"""The chats of one bot: what is in them, who may write there, and what a message looks like on the wire."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.telegram.checks import Json, bad

ANONYMOUS_ADMIN: Json = {
    "id": 1087968824,
    "is_bot": True,
    "first_name": "Group",
    "username": "GroupAnonymousBot",
}
GENERAL = 1
"""The topic that messages without a thread are in; sending to it by this number fails, as it does in earnest."""


@dataclass(slots=True)
class Document:
    """A file in a message."""

    name: str
    content: bytes
    file_id: str
    photo: bool = False
    path: str | None = None
    """Path in the answer of `getFile`, in place of the real one; empty for none."""


@dataclass(slots=True, kw_only=True)
class Shown:
    """One message as people see it."""

    chat: int
    id: int
    by: int
    """Author's id; the bot's own id for its messages."""
    payload: Json
    """As it goes over the wire."""
    text: str
    """The caption of a document."""
    entities: list[Json] = field(default_factory=list[Json])
    buttons: list[list[Json]] = field(default_factory=list[list[Json]])
    document: Document | None = None
    reply_to: int | None = None
    thread: int | None = None
    edits: int = 0
    deleted: bool = False
    reaction: str = ""
    """The bot's own reaction to it."""
    pinned: bool = False
    history: list[str] = field(default_factory=list[str])
    """The texts it had before."""
    update_id: int | None = None
    """Of a message by people: the update that told the bot."""

    @property
    def labels(self) -> list[str]:
        """The labels of all buttons, row by row."""
        return [button["text"] for row in self.buttons for button in row]

    def button(self, label_or_data: str) -> Json:
        """The one button whose label contains this, or whose data is it."""
        every = [button for row in self.buttons for button in row]
        found = [b for b in every if label_or_data == b.get("callback_data") or label_or_data == b["text"]]
        found = found or [b for b in every if label_or_data in b["text"]]
        if len(found) != 1:
            raise LookupError(f"{len(found)} buttons {label_or_data!r} on message {self.id}, which has {self.labels}")
        return found[0]

    def picture(self, bot: int) -> str:
        """One readable line or more."""
        marks = [f"#{self.id}", "bot" if self.by == bot else f"user {self.by}"]
        marks += [f"topic {self.thread}"] if self.thread else []
        marks += [f"re #{self.reply_to}"] if self.reply_to else []
        marks += [f"{self.edits} edits"] if self.edits else []
        marks += ["DELETED"] if self.deleted else []
        marks += [f"file {self.document.name} ({len(self.document.content)} B)"] if self.document else []
        rows = "".join("\n      " + " ".join(f"[{b['text']}]" for b in row) for row in self.buttons)
        return f"  {' · '.join(marks)}: {self.text!r}{rows}"


@dataclass(slots=True, kw_only=True)
class Chat:
    """A chat that the bot may know."""

    id: int
    type: str
    title: str = ""
    username: str = ""
    person: Json = field(default_factory=dict[str, Any])
    """The other side of a private chat."""
    topics: dict[int, str] = field(default_factory=dict[int, str])
    """By thread; a supergroup with any is a forum."""
    refused: str = ""
    """A whole description that every call there is answered with, as when the bot is blocked; 403."""
    moved_to: int | None = None
    bot_is_admin: bool = False
    messages: dict[int, Shown] = field(default_factory=dict[int, Shown])
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def payload(self) -> Json:
        """A `Chat` as it stands in a message."""
        if self.type == "private":
            named = {key: self.person[key] for key in ("first_name", "last_name", "username") if key in self.person}
            return {"id": self.id, **named, "type": "private"}
        named = {"username": self.username} if self.username else {}
        forum = {"is_forum": True} if self.topics else {}
        return {"id": self.id, "title": self.title, **named, "type": self.type, **forum}


@dataclass(slots=True)
class Query:
    """A press that waits to be answered."""

    id: str
    user: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Toast:
    """The message that a person saw after a press."""

    text: str
    alert: bool
    url: str = ""


@dataclass(slots=True)
class Chats:
    """Everything of one bot that its calls change."""

    bot: Json
    """The bot itself, as a `User`."""
    all: dict[int, Chat] = field(default_factory=dict[int, Chat])
    queries: dict[str, Query] = field(default_factory=dict[str, Query])
    toasts: dict[str, Toast] = field(default_factory=dict[str, Toast])
    drafts: dict[tuple[int, int | None, int], list[str]] = field(
        default_factory=dict[tuple[int, "int | None", int], list[str]]
    )
    """By chat, thread and draft: every text it had."""
    typing: list[tuple[int, int | None, str]] = field(default_factory=list[tuple[int, "int | None", str]])
    """Chat, thread and action, in order."""
    commands: dict[tuple[str, str], list[Json]] = field(default_factory=dict[tuple[str, str], list[Json]])
    """By scope (as JSON) and language."""
    files: dict[str, Document] = field(default_factory=dict[str, Document])
    query_lives_s: float = 150.0
    """Lifetime of a press: an older one can no longer be answered."""

    def now(self) -> int:
        """The date of a message."""
        return int(time.time())

    def put(self, message: Shown) -> Shown:
        """Show a message."""
        self.all[message.chat].messages[message.id] = message
        return message

    def new(
        self, chat: Chat, sender: Json | None, fields: Json, *, thread: int | None = None, reply_to: int | None = None
    ) -> Shown:
        """Show a new message with these fields of its own."""
        payload: Json = {"message_id": next(chat.ids)}
        if sender is not None:
            payload["from"] = sender
        payload |= {"chat": chat.payload(), "date": self.now()}
        if thread is not None:
            payload["message_thread_id"] = thread
            if thread in chat.topics:
                payload["is_topic_message"] = True
        if reply_to is not None:
            payload |= self._quoted(chat, reply_to)
        payload |= fields
        return self.put(
            Shown(
                chat=chat.id,
                id=payload["message_id"],
                by=sender["id"] if sender else chat.id,
                payload=payload,
                text=fields.get("text", fields.get("caption", "")),
                entities=fields.get("entities", fields.get("caption_entities", [])),
                reply_to=reply_to,
                thread=thread,
            )
        )

    def _quoted(self, chat: Chat, reply_to: int) -> Json:
        quoted = {key: value for key, value in chat.messages[reply_to].payload.items() if key != "reply_to_message"}
        return {"reply_to_message": quoted}

    # --- what a call names ---

    def chat(self, p: Json) -> Chat:
        """The chat that a call means, when the bot may act there. Raises `Refusal`."""
        if "chat_id" not in p:
            raise bad("chat_id is empty")
        wanted = p["chat_id"]
        chat = self.all.get(wanted) if isinstance(wanted, int) else self._by_name(wanted[1:])
        if chat is None:
            raise bad("chat not found")
        if chat.moved_to is not None:
            refusal = bad("group chat was upgraded to a supergroup chat")
            refusal.parameters = {"migrate_to_chat_id": chat.moved_to}
            raise refusal
        if chat.refused:
            refusal = bad("")
            refusal.code, refusal.description = 403, chat.refused
            raise refusal
        return chat

    def _by_name(self, name: str) -> Chat | None:
        return next((c for c in self.all.values() if c.username.lower() == name.lower() and c.type != "private"), None)

    def thread(self, chat: Chat, p: Json, *, general: bool = False) -> int | None:
        """The topic that a call means. Raises `Refusal`; `general`: whether topic 1 may be named."""
        thread = p.get("message_thread_id")
        if thread is None or (general and thread == GENERAL and chat.topics):
            return None
        threaded = thread in chat.topics or (chat.type == "supergroup" and not chat.topics and thread in chat.messages)
        if thread == GENERAL or not threaded:
            raise bad("message thread not found")
        return thread

    def reply_target(self, chat: Chat, p: Json) -> int | None:
        """The message that a call answers. Raises `Refusal`, unless it may be missing."""
        reply: Json | None = p.get("reply_parameters")
        if reply is None:
            return None
        if "message_id" not in reply:
            raise bad("message to be replied not found")
        target = chat.messages.get(int(reply["message_id"]))
        if target is not None and not target.deleted:
            return target.id
        if reply.get("allow_sending_without_reply"):
            return None
        raise bad("message to be replied not found")

    def message(self, chat: Chat, p: Json, verb: str) -> Shown:
        """The message that a call is about. Raises `Refusal`."""
        if "message_id" not in p:
            raise bad("message identifier is not specified")
        message = chat.messages.get(p["message_id"])
        if message is None or message.deleted:
            raise bad(f"message to {verb} not found")
        return message
