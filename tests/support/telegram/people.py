"""Acts of people in the chats of a bot: each changes the chats and puts an update where the bot will find it."""

from __future__ import annotations

import itertools
import re
import time
from typing import Any

from tests.support.telegram.checks import Json, utf16_len
from tests.support.telegram.updates import Updates
from tests.support.telegram.world import ANONYMOUS_ADMIN, Chat, Chats, Document, Query, Shown

_FOUND = re.compile(
    r"(?P<bot_command>(?<![\w/@])/[A-Za-z0-9_]{1,64}(?:@[A-Za-z]\w{2,31})?(?!\w))"
    r"|(?P<mention>(?<![\w@])@[A-Za-z]\w{2,31})"
    r"|(?P<url>https?://[^\s]+)"
)


def found_entities(text: str) -> list[Json]:
    """The entities that Telegram makes by itself: commands, mentions, addresses."""
    return [
        {"type": match.lastgroup, "offset": utf16_len(text[: match.start()]), "length": utf16_len(match[0])}
        for match in _FOUND.finditer(text)
    ]


class People:
    """The side of the people; `FakeTelegram` has it."""

    def __init__(self, chats: Chats, updates: Updates) -> None:
        self.chats = chats
        self.updates = updates
        self._people: dict[int, Json] = {}
        self._query_ids = itertools.count(4_380_000_000_000_000_001)
        self._chat_ids = itertools.count(1)

    # --- who and where ---

    def person(self, user: int, **fields: Any) -> Json:
        """A person as a `User`; fields given here stay."""
        made: Json = {
            "id": user,
            "is_bot": False,
            "first_name": f"Person{user}",
            "username": f"person{user}",
            "language_code": "en",
        }
        person = self._people.setdefault(user, made)
        person |= fields
        return person

    def private(self, user: int) -> Chat:
        """The direct chat with a person; the bot may write there from now on."""
        return self.chats.all.setdefault(user, Chat(id=user, type="private", person=self.person(user)))

    def group(self, title: str = "Group", *, chat: int | None = None) -> int:
        """A new small group that the bot is in; returns its id."""
        return self._made(Chat(id=chat or -4_000_000_000 - next(self._chat_ids), type="group", title=title))

    def supergroup(
        self, title: str = "Big group", *, topics: dict[int, str] | None = None, chat: int | None = None
    ) -> int:
        """A new supergroup that the bot is in, a forum when it has topics (by thread); returns its id."""
        made = Chat(id=chat or self._long_id(), type="supergroup", title=title, topics=topics or {})
        if topics:
            made.ids = itertools.count(max(topics) + 1)
        return self._made(made)

    def channel(self, title: str = "News", *, chat: int | None = None) -> int:
        """A new channel that the bot is in; returns its id."""
        return self._made(Chat(id=chat or self._long_id(), type="channel", title=title, bot_is_admin=True))

    def _long_id(self) -> int:
        return -1_002_000_000_000 - next(self._chat_ids)

    def _made(self, chat: Chat) -> int:
        self.chats.all[chat.id] = chat
        return chat.id

    # --- messages ---

    def say(
        self,
        user: int,
        text: str,
        *,
        chat: int | None = None,
        topic: int | None = None,
        reply_to: Shown | int | None = None,
        entities: list[Json] | None = None,
        **more: Any,
    ) -> Shown:
        """Write as a person, in the direct chat unless another is named; `more` are fields of the message."""
        entities = found_entities(text) if entities is None else entities
        fields: Json = {"text": text, **({"entities": entities} if entities else {}), **more}
        return self._said("message", self.person(user), self._place(user, chat), fields, topic=topic, reply_to=reply_to)

    def attach(
        self,
        user: int,
        kind: str,
        content: bytes = b"data",
        *,
        caption: str = "",
        name: str = "file.bin",
        chat: int | None = None,
        topic: int | None = None,
        **more: Any,
    ) -> Shown:
        """Send a `photo`, `voice`, `video` or `document` as a person."""
        file = Document(name, content, f"file{len(self.chats.files)}")
        self.chats.files[file.file_id] = file
        known: Json = {"file_id": file.file_id, "file_unique_id": f"u{file.file_id}", "file_size": len(content)}
        shapes: dict[str, Any] = {
            "photo": [{**known, "width": 90, "height": 67}, {**known, "width": 800, "height": 600}],
            "video": {"duration": 3, "width": 640, "height": 480, "mime_type": "video/mp4", **known},
            "voice": {"duration": 3, "mime_type": "audio/ogg", **known},
            "document": {"file_name": name, "mime_type": "application/octet-stream", **known},
        }
        fields: Json = {kind: shapes[kind], **more}
        if caption:
            found = found_entities(caption)
            fields |= {"caption": caption, **({"caption_entities": found} if found else {})}
        message = self._said("message", self.person(user), self._place(user, chat), fields, topic=topic)
        message.document = file
        return message

    def say_anonymously(self, chat: int, text: str, *, topic: int | None = None) -> Shown:
        """Write as an administrator of a group who hides behind it."""
        place = self.chats.all[chat]
        fields: Json = {"sender_chat": place.payload(), "text": text, "entities": found_entities(text)}
        return self._said("message", ANONYMOUS_ADMIN, place, fields, topic=topic)

    def post(self, chat: int, text: str) -> Shown:
        """Write into a channel, as the channel."""
        place = self.chats.all[chat]
        return self._said("channel_post", None, place, {"sender_chat": place.payload(), "text": text})

    def edit(self, message: Shown, text: str) -> int:
        """Change what a person wrote; returns the update's id."""
        found = found_entities(text)
        message.history.append(message.text)
        message.edits += 1
        message.text, message.entities = text, found
        payload = {key: value for key, value in message.payload.items() if not key.endswith("entities")}
        field = "text" if "text" in payload else "caption"
        message.payload = {**payload, "edit_date": self.chats.now(), field: text}
        if found:
            message.payload["entities" if field == "text" else "caption_entities"] = found
        kind = "edited_message" if "from" in payload else "edited_channel_post"
        return self.updates.add({kind: message.payload})

    def _place(self, user: int, chat: int | None) -> Chat:
        return self.private(user) if chat is None else self.chats.all[chat]

    def _said(
        self,
        kind: str,
        sender: Json | None,
        chat: Chat,
        fields: Json,
        *,
        topic: int | None = None,
        reply_to: Shown | int | None = None,
    ) -> Shown:
        target = reply_to.id if isinstance(reply_to, Shown) else reply_to
        if target is not None and topic is None and chat.type == "supergroup":
            # In a group without topics an answer still names a thread: the message that began it.
            topic = chat.messages[target].thread or (None if chat.topics else target)
        message = self.chats.new(chat, sender, fields, thread=topic, reply_to=target)
        message.update_id = self.updates.add({kind: message.payload})
        return message

    # --- buttons ---

    def press(self, user: int, message: Shown, label_or_data: str, *, forged: bool = False) -> str:
        """Press a button by its label or data; returns the query's id. `forged`: send data that no button has."""
        data = label_or_data if forged else message.button(label_or_data).get("callback_data")
        if data is None:
            raise LookupError(f"{label_or_data!r} opens a page: it tells the bot nothing")
        query = Query(str(next(self._query_ids)), user, time.monotonic())
        self.chats.queries[query.id] = query
        place = self.chats.all[message.chat].payload()
        shown = {"chat": place, "message_id": message.id, "date": 0} if message.deleted else message.payload
        fields: Json = {
            "id": query.id,
            "from": self.person(user),
            "message": shown,
            "chat_instance": str(message.chat * 7919),
            "data": data,
        }
        self.updates.add({"callback_query": fields})
        return query.id

    # --- comings and goings ---

    def block(self, user: int) -> None:
        """A person blocks the bot."""
        self.private(user).refused = "Forbidden: bot was blocked by the user"
        self._member(user, self.private(user), "member", "kicked")

    def unblock(self, user: int) -> None:
        """… and lets it in again."""
        self.private(user).refused = ""
        self._member(user, self.private(user), "kicked", "member")

    def kick(self, user: int, chat: int) -> None:
        """A person throws the bot out of a group."""
        place = self.chats.all[chat]
        place.refused = f"Forbidden: bot was kicked from the {place.type}{' chat' if place.type != 'channel' else ''}"
        self._member(user, place, "member", "kicked")

    def _member(self, user: int, chat: Chat, old: str, new: str) -> None:
        def status(name: str) -> Json:
            return {"user": self.chats.bot, "status": name, **({"until_date": 0} if name == "kicked" else {})}

        changed: Json = {"chat": chat.payload(), "from": self.person(user), "date": self.chats.now()}
        self.updates.add(
            {"my_chat_member": {**changed, "old_chat_member": status(old), "new_chat_member": status(new)}}
        )

    def migrate(self, chat: int, user: int = 1) -> int:
        """A group becomes a supergroup; returns its new id. The old one can no longer be written to."""
        old = self.chats.all[chat]
        new = self.supergroup(old.title)
        self._said("message", self.person(user), old, {"migrate_to_chat_id": new})
        old.moved_to = new
        place = self.chats.all[new]
        self._said("message", ANONYMOUS_ADMIN, place, {"sender_chat": place.payload(), "migrate_from_chat_id": chat})
        return new

    def send_raw(self, update: Json) -> int:
        """Any update at all; without an `update_id` it gets the next one. Returns its id."""
        return self.updates.add_raw(update)

    def replay(self, count: int = 1) -> None:
        """Deliver the last updates again."""
        self.updates.replay(count)
