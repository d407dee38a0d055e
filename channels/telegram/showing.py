"""The way out: makes the messages of a chat equal to the parts of a slot, over one bot.

A slot's `platform_id` is the ids of its messages, in order, with commas: `101,102`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from telegram import InputFile, MessageEntity
from telegram.error import TelegramError

from channels.telegram.failures import Act, Moved, Remedy, judge
from channels.telegram.moves import Moves
from channels.telegram.parts import FilePart, Part, StoredPart, TextPart
from channels.telegram.request import NotSent, TelegramBot, Unanswered
from gateway.errors import SendFailed, SendOutcome
from gateway.model.messages import Conversation
from gateway.ports import Clock, Progress

Json = dict[str, Any]
DIGESTS_KEPT = 2000
MARKS = frozenset({"entities", "caption_entities"})
TRIES = 4
"""A chat that moved and entities that are not accepted take one more each; anything beyond is a circle."""


class Digests:
    """What was last shown in which message, as far as it is remembered: an edit that changes nothing is not sent."""

    def __init__(self) -> None:
        """Remember nothing."""
        self._kept: OrderedDict[str, str] = OrderedDict()

    def get(self, key: str) -> str:
        """Return a message's digest; empty when it is not known."""
        return self._kept.get(key, "")

    def put(self, key: str, digest: str) -> None:
        """Remember one; the oldest are forgotten."""
        self._kept[key] = digest
        self._kept.move_to_end(key)
        while len(self._kept) > DIGESTS_KEPT:
            self._kept.popitem(last=False)

    def drop(self, key: str) -> None:
        """Forget one."""
        self._kept.pop(key, None)


def account_scope(conversation: Conversation) -> str:
    """What an account's limits are counted by."""
    return f"{conversation.channel}/{conversation.account}"


def chat_scope(conversation: Conversation) -> str:
    """What a chat's limits are counted by; its topics share them."""
    return f"{account_scope(conversation)}/{conversation.chat}"


@dataclass(slots=True, kw_only=True)
class Screen:
    """One chat, or topic, to show one slot in. Every method raises `SendFailed`."""

    bot: TelegramBot
    conversation: Conversation
    chat: str
    """Under which id the chat is reached now."""
    moves: Moves
    digests: Digests
    clock: Clock
    _stale: list[str] = field(default_factory=list[str])
    """Messages whose content was shown anew in another one."""

    async def show(self, parts: Sequence[Part], shown: str, progress: Progress) -> str:
        """Change what is shown, add what is missing, take away what is too much; return what shows the slot now.

        Goes on where an earlier, interrupted showing ended, because `progress` was told of every message but the last.
        """
        messages = [one for one in shown.split(",") if one]
        for at, part in enumerate(parts):
            before = messages[at] if at < len(messages) else ""
            now = await self._refresh(before, part) if before else await self._create(part)
            messages[at : at + 1] = [now]
            if now != before and (at + 1 < len(parts) or len(messages) > len(parts) or self._stale):
                await progress(",".join(messages))
        for surplus in messages[len(parts) :]:
            await self._delete(surplus)
        await self._tidy()
        return ",".join(messages[: len(parts)])

    async def grow(self, parts: Sequence[Part], shown: str) -> str:
        """Change what is shown to a beginning that grew; a beginning makes no message and takes none away.

        What it made would be kept nowhere, and made again with the next word. Fails for good where it would have to;
        the last words do that.
        """
        messages = [one for one in shown.split(",") if one]
        can = len(messages) == len(parts)
        for message, part in zip(messages, parts, strict=False):
            can = can and await self._shows(message, part)
        if not can:
            raise SendFailed("A beginning cannot grow here.", outcome=SendOutcome.DEAD, creating=False)
        return shown

    async def _refresh(self, message: str, part: Part) -> str:
        """Make a message show a part, in a new message when it must be; return the one that shows it."""
        if await self._shows(message, part):
            return message
        self._stale.append(message)
        return await self._create(part)

    async def _shows(self, message: str, part: Part) -> bool:
        """Make a message show a part; False when that is not possible."""
        known = self.digests.get(self._key(message))
        if known == part.digest:
            return True
        if isinstance(part, FilePart):
            return not known  # after a restart: a file's content never changes
        edited = await self._edit(message, part)
        return edited or (isinstance(part, StoredPart) and part.path is None)  # there is nothing to show it anew with

    async def _create(self, part: Part) -> str:
        found = await self._made(part)
        if found is Remedy.AS_FILE and isinstance(part, StoredPart):
            found = await self._made(replace(part, photo=False))
        assert not isinstance(found, Remedy), "only edits and deletions are done without an answer"
        self.digests.put(self._key(found), part.digest)
        return found

    async def _made(self, part: Part) -> str | Remedy:
        """Show a part in a new message."""

        async def ask(payload: Json) -> str:
            if isinstance(part, FilePart):
                return await self._send_document(InputFile(part.data, filename=part.name), payload)
            if isinstance(part, StoredPart):
                return await self._send_stored(part, payload)
            place: Json = {"chat_id": self.chat} | ({"message_thread_id": self._thread} if self._thread else {})
            quiet: Json = {"disable_notification": True} if part.silent else {}
            return _message(await self.bot.call("sendMessage", place | quiet | payload))

        if isinstance(part, FilePart):
            return await self._call(Act.CREATE, ask, {"caption": f"{part.mark} {part.caption}".strip()})
        return await self._call(Act.CREATE, ask, part.payload())

    @property
    def _thread(self) -> int | None:
        return int(self.conversation.thread) if self.conversation.thread else None

    async def _send_document(self, file: InputFile, payload: Json) -> str:
        made = await self.bot.send_document(
            self.chat, file, disable_content_type_detection=True, message_thread_id=self._thread, **_caption(payload)
        )
        return str(made.message_id)

    async def _send_stored(self, part: StoredPart, payload: Json) -> str:
        """Send a file piece by piece from where it is."""
        assert part.path is not None, "what is not there is no file part before it is shown"
        try:
            content = part.path.open("rb")
        except OSError as error:
            why = type(error).__name__
        else:
            with content:
                file = InputFile(content, filename=part.name, read_file_handle=False)
                if not part.photo:
                    return await self._send_document(file, payload)
                made = await self.bot.send_photo(self.chat, file, message_thread_id=self._thread, **_caption(payload))
                return str(made.message_id)
        raise NotSent(f"A file could not be read to be sent: {why}.")

    async def _edit(self, message: str, part: TextPart | StoredPart) -> bool:
        """Change a message; False when that is not possible any more."""
        # Not known until it is answered: an edit that is not may be made late.
        self.digests.drop(self._key(message))
        method = "editMessageText" if isinstance(part, TextPart) else "editMessageCaption"

        async def ask(payload: Json) -> str:
            await self.bot.call(method, self._at(message) | payload)
            return message

        found = await self._call(Act.EDIT, ask, part.payload())
        if found is Remedy.ANEW:
            return False
        self.digests.put(self._key(message), part.digest)
        return True

    async def _delete(self, message: str) -> None:
        async def ask(_payload: Json) -> str:
            await self.bot.call("deleteMessage", self._at(message))
            return message

        await self._call(Act.DELETE, ask, {})
        self.digests.drop(self._key(message))

    async def _tidy(self) -> None:
        """Take away what was shown anew, if it can be: most of it is gone, which is why it was shown anew."""
        for message in self._stale:
            try:
                await self._delete(message)
            except SendFailed:
                continue

    async def _call(self, act: Act, ask: Callable[[Json], Awaitable[str]], payload: Json) -> str | Remedy:
        """Ask, and once more where there is a remedy for the refusal."""
        why = ""
        for _ in range(TRIES):
            try:
                return await ask(payload)
            except TelegramError as error:
                found, why = self._judge(error, act), str(error)
            # Here, not above: what is raised in an `except` block keeps the other error with it.
            if isinstance(found, SendFailed):
                raise found
            if isinstance(found, Moved):
                await self.moves.learn_if_possible(self.chat, found.chat)
                self.chat = found.chat
            elif found is Remedy.PLAIN and not MARKS.isdisjoint(payload):
                payload = {name: value for name, value in payload.items() if name not in MARKS}
            elif found is Remedy.PLAIN:
                break
            else:
                return found
        raise SendFailed(why, outcome=SendOutcome.DEAD, creating=False)

    def _judge(self, error: TelegramError, act: Act) -> Remedy | Moved | SendFailed:
        where = self.conversation
        return judge(error, act, chat_scope=chat_scope(where), account_scope=account_scope(where), now=self.clock.now())

    def _at(self, message: str) -> Json:
        return {"chat_id": self.chat, "message_id": int(message)}

    def _key(self, message: str) -> str:
        return f"{self.conversation.account}/{self.chat}/{message}"


def _caption(payload: Json) -> Json:
    """The same for the methods of python-telegram-bot, which take objects."""
    marked = [MessageEntity(**one) for one in payload.get("caption_entities", [])]
    return {"caption": payload["caption"] or None, "caption_entities": marked or None}


def _message(made: object) -> str:
    """The id of a message that was made. Raises `Unanswered` when Telegram did not give one."""
    number = cast("Json", made).get("message_id") if isinstance(made, dict) else None
    if not isinstance(number, int):
        raise Unanswered("An answer from Telegram to sendMessage cannot be read.")
    return str(number)
