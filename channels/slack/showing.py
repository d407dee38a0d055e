"""Synchronisation of a conversation's messages with the parts of a slot, in one workspace. Used by `adapter`.

The ids of a slot's messages are their timestamps; a file's id stands for its message: `1795248720.000100`, `F0AA`.

After an uncertain send the message is looked up before anything is sent: Slack has no idempotency key. Each message
carries its slot and index as metadata, which people do not see; a file has a mark of both in its name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import cast

from channels._shared import showing
from channels._shared.fields import object_of
from channels._shared.showing import NEVER_SHOWN
from channels.slack import files
from channels.slack.failures import SlackAct, SlackRemedy, judge, passes
from channels.slack.parts import NO_PREVIEWS, FilePart, Part, SlackStoredPart, SlackTextPart
from channels.slack.request import Json, SlackClient, SlackDeclined, SlackFailure, SlackNotSent, SlackUnanswered
from channels.slack.send_state import Look, SendStates
from gateway.domain.ids import SlotId
from gateway.domain.messages import Conversation
from gateway.domain.posts import Post, PostAct
from gateway.domain.slots import Slot
from gateway.errors import SendFailed, SendOutcome
from gateway.ports import Clock

EVENT = "dragoman_slot"
BEFORE = timedelta(seconds=5)
"""Margin before the slot's creation from which messages are looked up: clocks differ."""
PAGE = 200
"""Messages requested per page; some apps get only 15."""
PAGES = 5
"""Pages read, at most, over all attempts; a message not found by then is sent with the re-sent mark."""
PLAIN_TRIES = 2
"""Attempts per request: one as it is, one without blocks."""
CANNOT_LOOK = frozenset(
    {
        "channel_not_found",
        "invalid_cursor",
        "missing_scope",
        "no_permission",
        "not_in_channel",
        "thread_not_found",
    }
)
"""Refusals that make a lookup impossible for good: an uncertain message is then sent with the re-sent mark."""


@dataclass(slots=True, kw_only=True)
class SlackMessageSync(showing.MessageSync[Part]):
    """Synchroniser of one slot in one channel or thread. Every method raises `SendFailed`."""

    client: SlackClient
    slot: Slot
    clock: Clock
    refused: Callable[[SlackDeclined], Awaitable[None]]
    """Callback for refusals: some concern the whole account."""
    tries: SendStates
    _doubt: bool = field(init=False)
    """True if the next message to create may already exist."""

    def __post_init__(self) -> None:
        """Take over the slot's uncertainty."""
        self._doubt = self.slot.uncertain

    @property
    def _place(self) -> Conversation:
        return self.slot.conversation

    async def _refresh(self, message: str, at: int, part: Part) -> str:
        """Show a part in this message, or in a new one. After a restart, Slack knows which file it is: in another form
        the slot has other files, and a card without the right one asks about an action that nobody can read.
        """
        unknown = not self.once_more and not self.digests.get(self._key(message))
        if unknown and message.startswith(files.FILE) and not isinstance(part, SlackTextPart):
            await self._recall(message, files.mark_of(self.slot.id, at, part), part.digest)
        return await super(SlackMessageSync, self)._refresh(message, at, part)

    async def _recall(self, file: str, mark: str, digest: str) -> None:
        """Store the digest of a file if it has the mark. One that Slack does not show is replaced."""
        try:
            has_mark = await files.has_mark(self.client, file, mark)
        except SlackFailure as error:
            failure = error
        else:
            if has_mark:
                self.digests.put(self._key(file), digest)
            return
        judged = await self._judge(failure, SlackAct.LOOK)
        if isinstance(judged, SendFailed) and passes(failure):
            raise judged

    async def _change(self, message: str, part: Part, *, known: bool) -> bool:
        if isinstance(part, FilePart | SlackStoredPart):
            return False  # a file is never edited
        return not message.startswith(files.FILE) and await self._edit(message, part)

    # --- creating -----------------------------------------------------------------------------------

    async def _create(self, at: int, part: Part) -> str:
        """Show a part in a new message, or in the existing one that an uncertain send left."""
        act = SlackAct.CREATE
        if self._doubt:
            there, looked = await self._look(at, part)
            self._doubt = False
            if there and not isinstance(part, SlackTextPart):
                self.digests.put(self._key(there), part.digest)
                return there  # it has exactly this content
            if there:
                return await self._refresh(there, at, part)
            if looked:
                act = SlackAct.RECREATE  # the slot stays uncertain until it is shown
            else:
                part = part.sent_again()
        made = await (
            self._send_text(at, part, act) if isinstance(part, SlackTextPart) else self._send_file(at, part, act)
        )
        self.digests.put(self._key(made), part.digest)
        return made

    async def _look(self, at: int, part: Part) -> tuple[str, bool]:
        """Return the id of an uncertain message, empty if it does not exist, and whether that is certain."""
        doubt = Doubt(conversation=self._place, slot=self.slot.id, number=at, part=part, since=self.slot.created_at)
        try:
            answer = await find_sent(self.client, doubt, self.tries.look_for(at))
        except SlackDeclined as declined:
            if declined.error in CANNOT_LOOK:
                self.tries.look = None
                return "", False
            failure: SlackFailure = declined
        except SlackFailure as error:
            failure = error
        else:
            self.tries.look = None
            return answer
        judged = await self._judge(failure, SlackAct.LOOK)
        assert isinstance(judged, SendFailed), "a failed lookup has no remedy"
        raise judged

    async def _send_text(self, at: int, part: SlackTextPart, act: SlackAct) -> str:
        where = self._in_thread({"channel": self._place.chat})
        fixed = where | NO_PREVIEWS | {"metadata": metadata(self.slot.id, at)}

        async def ask(content: Json) -> str:
            ts = (await self.client.call("chat.postMessage", fixed | content)).get("ts")
            if not isinstance(ts, str) or not ts:
                raise SlackUnanswered("An answer from Slack to chat.postMessage cannot be read.")
            return ts

        return _certain(await self._call(act, ask, part))

    async def _send_file(self, at: int, part: FilePart | SlackStoredPart, act: SlackAct) -> str:
        mark = files.mark_of(self.slot.id, at, part)

        async def bring(_: Json) -> str:
            return await files.upload(self.client, part, mark)

        file = _certain(await self._call(SlackAct.UPLOAD, bring))
        where = self._in_thread({"channel_id": self._place.chat})

        async def show(_: Json) -> str:
            await files.show(self.client, file, part, where)
            return file

        return _certain(await self._call(act, show))

    # --- editing and deleting -----------------------------------------------------------------------

    async def _edit(self, message: str, part: SlackTextPart) -> bool:
        """Edit a message; return False when that is no longer possible."""
        # Unknown until the edit is answered: an unanswered edit may take effect late.
        self.digests.drop(self._key(message))

        async def ask(content: Json) -> str:
            await self.client.call("chat.update", {"channel": self._place.chat, "ts": message} | content)
            return message

        if await self._call(SlackAct.EDIT, ask, part) is SlackRemedy.REPLACE:
            return False
        self.digests.put(self._key(message), part.digest)
        return True

    async def act(self, post: Post) -> tuple[str, ...]:
        """Add a reaction to a message, or pin it, and return its id. Repeating it changes nothing."""
        if not post.message:
            raise SendFailed(NEVER_SHOWN, outcome=SendOutcome.DEAD, creating=False)
        where: Json = {"channel": self._place.chat, "timestamp": post.message}

        async def ask(_: Json) -> str:
            if post.act is PostAct.REACT:
                await self.client.call("reactions.add", where | {"name": post.emoji})
            else:
                await self.client.call("pins.add", where)
            return post.message

        await self._call(SlackAct.MARK, ask)
        return (post.message,)

    async def _delete(self, message: str) -> None:
        async def ask(_: Json) -> str:
            is_file = message.startswith(files.FILE)
            every = await files.messages(self.client, message, self._place.chat) if is_file else [message]
            for ts in every:
                await self.client.call("chat.delete", {"channel": self._place.chat, "ts": ts})
            return message

        await self._call(SlackAct.DELETE, ask)
        self.digests.drop(self._key(message))

    # --- requests -----------------------------------------------------------------------------------

    async def _call(
        self, act: SlackAct, ask: Callable[[Json], Awaitable[str]], part: SlackTextPart | None = None
    ) -> str | SlackRemedy:
        """Send a request with a part's content, and again without blocks if Slack refuses them."""
        content = part.payload() if part is not None else {}
        why = ""
        for _ in range(PLAIN_TRIES):
            try:
                return await ask(content)
            except SlackFailure as error:
                failure, why = error, str(error)
            # Raised here, not above: inside the `except` block the other error would be attached.
            judged = await self._judge(failure, act)
            if isinstance(judged, SendFailed):
                raise judged
            if judged is not SlackRemedy.PLAIN:
                return judged
            content = part.plain() if part is not None else {}
        raise SendFailed(why, outcome=SendOutcome.DEAD, creating=False)

    async def _judge(self, failure: SlackFailure, act: SlackAct) -> SlackRemedy | SendFailed:
        silent_s = 0.0
        if isinstance(failure, SlackDeclined):
            await self.refused(failure)
        elif not isinstance(failure, SlackNotSent):
            silent_s = self.tries.silent(self.clock.monotonic())
        place, now = self._place, self.clock.now()
        scopes = {"chat_scope": place.chat_scope, "account_scope": place.account_scope}
        return judge(failure, act, **scopes, now=now, silent_s=silent_s)

    def _in_thread(self, place: Json) -> Json:
        return place | ({"thread_ts": self._place.thread} if self._place.thread else {})

    def _key(self, message: str) -> str:
        return f"{self._place.chat_scope}/{message}"


def _certain(made: str | SlackRemedy) -> str:
    assert not isinstance(made, SlackRemedy), "only edits and deletions are done without an answer"
    return made


# --- looking up an uncertain send ---------------------------------------------------------------


def metadata(slot: SlotId, part: int) -> Json:
    """Return the metadata of a message for part `part` (from 0) of a slot."""
    return {"event_type": EVENT, "event_payload": {"slot": str(slot), "part": part}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Message that may already exist in a conversation."""

    conversation: Conversation
    slot: SlotId
    number: int
    """Index of the part in its slot, from 0."""
    part: Part
    since: datetime
    """Creation of the slot."""


async def find_sent(client: SlackClient, doubt: Doubt, look: Look) -> tuple[str, bool]:
    """Return the id of a message that may have been sent, empty if not found, and True if that is certain. In a busy
    channel not all messages are read.

    Raises `SlackFailure` if Slack does not answer; `look` then holds the place to continue.
    """
    where = doubt.conversation
    asked: Json = {
        "channel": where.chat,
        "oldest": f"{(doubt.since - BEFORE).timestamp():.6f}",
        "limit": PAGE,
        "include_all_metadata": True,
    }
    method = "conversations.replies" if where.thread else "conversations.history"
    asked |= {"ts": where.thread} if where.thread else {}
    while look.pages < PAGES:
        asked |= {"cursor": look.cursor} if look.cursor else {}
        answer = await client.call(method, asked)
        look.pages += 1
        listed = answer.get("messages")
        for message in cast("list[object]", listed) if isinstance(listed, list) else []:
            if isinstance(message, dict) and (there := _matching_id(cast("Json", message), doubt)):
                return there, True
        look.cursor = _next_cursor(answer)
        if not look.cursor:
            return "", True
    return "", False


def _matching_id(message: Json, doubt: Doubt) -> str:
    if isinstance(doubt.part, FilePart | SlackStoredPart):
        return files.shows(message, files.mark_of(doubt.slot, doubt.number, doubt.part))
    told, ts = message.get("metadata"), message.get("ts")
    return ts if told == metadata(doubt.slot, doubt.number) and isinstance(ts, str) else ""


def _next_cursor(answer: Json) -> str:
    cursor = object_of(answer.get("response_metadata")).get("next_cursor")
    return cursor if isinstance(cursor, str) else ""
