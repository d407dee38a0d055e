"""Synchronisation of a chat's messages with the parts of a slot, over one bot. Used by `adapter`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from telegram import InputFile, MessageEntity
from telegram.error import TelegramError

from channels._shared import showing
from channels._shared.showing import NEVER_SHOWN
from channels.telegram.chat_migration import ChatMigrations
from channels.telegram.failures import Moved, TelegramAct, TelegramRemedy, judge
from channels.telegram.parts import FilePart, Part, TelegramPollPart, TelegramStoredPart, TelegramTextPart
from channels.telegram.request import TelegramBot, TelegramNotSent, TelegramUnanswered
from gateway.domain.messages import Conversation
from gateway.domain.posts import Post, PostAct
from gateway.errors import SendFailed, SendOutcome
from gateway.ports import Clock

Json = dict[str, Any]
MARKS = frozenset({"entities", "caption_entities"})
TRIES = 4
"""Attempts per request. A migrated chat and rejected entities take one more each; anything beyond is a loop."""


@dataclass(slots=True, kw_only=True)
class TelegramMessageSync(showing.MessageSync[Part]):
    """Synchroniser of one slot in one chat or topic. Every method raises `SendFailed`."""

    bot: TelegramBot
    conversation: Conversation
    chat: str
    """Current id of the chat."""
    migrations: ChatMigrations
    clock: Clock

    async def _change(self, message: str, part: Part, *, known: bool) -> bool:
        if isinstance(part, FilePart | TelegramPollPart):
            return not known  # after a restart the digest is unknown, but a file's content never changes
        edited = await self._edit(message, part)
        return edited or (
            isinstance(part, TelegramStoredPart) and part.path is None
        )  # without its file it cannot be sent in a new message

    async def _create(self, at: int, part: Part) -> str:
        found = await self._made(part)
        if found is TelegramRemedy.AS_FILE and isinstance(part, TelegramStoredPart):
            found = await self._made(replace(part, photo=False, voice=False))
        assert not isinstance(found, TelegramRemedy), "only edits and deletions are done without an answer"
        self.digests.put(self._key(found), part.digest)
        return found

    async def _made(self, part: Part) -> str | TelegramRemedy:
        """Send a part as a new message."""

        async def ask(payload: Json) -> str:
            if isinstance(part, FilePart):
                return await self._send_document(InputFile(part.data, filename=part.name), payload)
            if isinstance(part, TelegramStoredPart):
                return await self._send_stored(part, payload)
            place: Json = {"chat_id": self.chat} | ({"message_thread_id": self._thread} if self._thread else {})
            if isinstance(part, TelegramPollPart):
                return _message(await self.bot.call("sendPoll", place | payload))
            quiet: Json = {"disable_notification": True} if part.silent else {}
            return _message(await self.bot.call("sendMessage", place | quiet | payload))

        if isinstance(part, FilePart):
            return await self._call(TelegramAct.CREATE, ask, {"caption": part.said})
        return await self._call(TelegramAct.CREATE, ask, part.payload())

    @property
    def _thread(self) -> int | None:
        return int(self.conversation.thread) if self.conversation.thread else None

    async def _send_document(self, file: InputFile, payload: Json) -> str:
        made = await self.bot.send_document(
            self.chat, file, disable_content_type_detection=True, message_thread_id=self._thread, **_caption(payload)
        )
        return str(made.message_id)

    async def _send_stored(self, part: TelegramStoredPart, payload: Json) -> str:
        """Stream a file from the artifact store."""
        assert part.path is not None, "a missing file becomes no file part before it is shown"
        try:
            content = part.path.open("rb")
        except OSError as error:
            why = type(error).__name__
        else:
            with content:
                file = InputFile(content, filename=part.name, read_file_handle=False)
                if part.voice:
                    made = await self.bot.send_voice(
                        self.chat, file, message_thread_id=self._thread, **_caption(payload)
                    )
                    return str(made.message_id)
                if not part.photo:
                    return await self._send_document(file, payload)
                made = await self.bot.send_photo(self.chat, file, message_thread_id=self._thread, **_caption(payload))
                return str(made.message_id)
        raise TelegramNotSent(f"A file could not be read to be sent: {why}.")

    async def _edit(self, message: str, part: TelegramTextPart | TelegramStoredPart) -> bool:
        """Edit a message; return False when that is no longer possible."""
        # Unknown until the edit is answered: an unanswered edit may take effect late.
        self.digests.drop(self._key(message))
        method = "editMessageText" if isinstance(part, TelegramTextPart) else "editMessageCaption"

        async def ask(payload: Json) -> str:
            await self.bot.call(method, self._at(message) | payload)
            return message

        found = await self._call(TelegramAct.EDIT, ask, part.payload())
        if found is TelegramRemedy.REPLACE:
            return False
        self.digests.put(self._key(message), part.digest)
        return True

    async def act(self, post: Post) -> tuple[str, ...]:
        """Set the reaction to a message, or pin it, and return its id. Repeating it changes nothing."""
        if not post.message:
            raise SendFailed(NEVER_SHOWN, outcome=SendOutcome.DEAD, creating=False)

        async def ask(payload: Json) -> str:
            method = "setMessageReaction" if post.act is PostAct.REACT else "pinChatMessage"
            await self.bot.call(method, self._at(post.message) | payload)
            return post.message

        reaction = {"reaction": [{"type": "emoji", "emoji": post.emoji}]}
        payload = reaction if post.act is PostAct.REACT else {"disable_notification": True}
        await self._call(TelegramAct.MARK, ask, payload)
        return (post.message,)

    async def _delete(self, message: str) -> None:
        async def ask(_payload: Json) -> str:
            await self.bot.call("deleteMessage", self._at(message))
            return message

        await self._call(TelegramAct.DELETE, ask, {})
        self.digests.drop(self._key(message))

    async def _call(
        self, act: TelegramAct, ask: Callable[[Json], Awaitable[str]], payload: Json
    ) -> str | TelegramRemedy:
        """Send a request, and again where a remedy exists for the refusal."""
        why = ""
        for _ in range(TRIES):
            try:
                return await ask(payload)
            except TelegramError as error:
                found, why = self._judge(error, act), str(error)
            # Raised here, not above: inside the `except` block the other error would be attached.
            if isinstance(found, SendFailed):
                raise found
            if isinstance(found, Moved):
                await self.migrations.learn_if_possible(self.chat, found.chat)
                self.chat = found.chat
            elif found is TelegramRemedy.PLAIN and not MARKS.isdisjoint(payload):
                payload = {name: value for name, value in payload.items() if name not in MARKS}
            elif found is TelegramRemedy.PLAIN:
                break
            else:
                return found
        raise SendFailed(why, outcome=SendOutcome.DEAD, creating=False)

    def _judge(self, error: TelegramError, act: TelegramAct) -> TelegramRemedy | Moved | SendFailed:
        where = self.conversation
        return judge(error, act, chat_scope=where.chat_scope, account_scope=where.account_scope, now=self.clock.now())

    def _at(self, message: str) -> Json:
        return {"chat_id": self.chat, "message_id": int(message)}

    def _key(self, message: str) -> str:
        return f"{self.conversation.account}/{self.chat}/{message}"


def _caption(payload: Json) -> Json:
    """Return the caption as objects, for the methods of python-telegram-bot."""
    marked = [MessageEntity(**one) for one in payload.get("caption_entities", [])]
    return {"caption": payload["caption"] or None, "caption_entities": marked or None}


def _message(made: object) -> str:
    """Return the id of a created message. Raises `Unanswered` when Telegram gave none."""
    number = cast("Json", made).get("message_id") if isinstance(made, dict) else None
    if not isinstance(number, int):
        raise TelegramUnanswered("An answer from Telegram to sendMessage cannot be read.")
    return str(number)
