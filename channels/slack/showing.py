"""The way out: makes the messages of a conversation equal to the parts of a slot, in one workspace.

A slot's `platform_id` is the timestamps of its messages, in order, with commas; a file's id stands for its message:
`1795248720.000100,F0AA`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from channels.slack import files, sending
from channels.slack.failures import Act, Remedy, judge
from channels.slack.parts import NO_PREVIEWS, FilePart, Part, StoredPart, TextPart
from channels.slack.request import Declined, Json, SlackClient, SlackFailure, Unanswered
from channels.slack.sending import Doubt
from gateway.errors import SendFailed, SendOutcome
from gateway.model.messages import Conversation
from gateway.model.slots import Slot
from gateway.ports import Clock, Progress

DIGESTS_KEPT = 2000
PLAIN_TRIES = 2
"""As it is, and once without blocks."""
CANNOT_LOOK = frozenset({"missing_scope", "channel_not_found", "not_in_channel", "thread_not_found", "no_permission"})
"""Refusals after which it will never be known what stands there: what may stand there already is marked then."""


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
    """What a channel's limits are counted by; its threads share them."""
    return f"{account_scope(conversation)}/{conversation.chat}"


@dataclass(slots=True, kw_only=True)
class Screen:
    """One channel, or thread, to show one slot in. Every method raises `SendFailed`."""

    client: SlackClient
    slot: Slot
    digests: Digests
    clock: Clock
    refused: Callable[[Declined], Awaitable[None]]
    """Told what Slack refused, for some of it concerns the whole account."""
    _stale: list[str] = field(default_factory=list[str])
    """Messages whose content was shown anew in another one."""
    _doubt: bool = field(init=False)
    """The next message that is made may stand there already."""

    def __post_init__(self) -> None:
        """Begin with the doubt that the slot has."""
        self._doubt = self.slot.uncertain

    @property
    def _place(self) -> Conversation:
        return self.slot.conversation

    async def show(self, parts: Sequence[Part], progress: Progress) -> str:
        """Change what is shown, add what is missing, take away what is too much; return what shows the slot now.

        Goes on where an earlier, interrupted showing ended, because `progress` was told of every message but the last.
        """
        messages = [one for one in self.slot.platform_id.split(",") if one]
        for at, part in enumerate(parts):
            before = messages[at] if at < len(messages) else ""
            now = await self._refresh(before, at, part) if before else await self._create(at, part)
            messages[at : at + 1] = [now]
            if now != before and (at + 1 < len(parts) or len(messages) > len(parts) or self._stale):
                await progress(",".join(messages))
        for surplus in messages[len(parts) :]:
            await self._delete(surplus)
        await self._tidy()
        return ",".join(messages[: len(parts)])

    async def grow(self, parts: Sequence[Part]) -> str:
        """Change what is shown to a beginning that grew; a beginning makes no message and takes none away.

        What it made would be kept nowhere, and made again with the next word. Fails for good where it would have to;
        the last words do that.
        """
        messages = [one for one in self.slot.platform_id.split(",") if one]
        can = len(messages) == len(parts)
        for message, part in zip(messages, parts, strict=False):
            can = can and await self._shows(message, part)
        if not can:
            raise SendFailed("A beginning cannot grow here.", outcome=SendOutcome.DEAD, creating=False)
        return self.slot.platform_id

    async def _refresh(self, message: str, at: int, part: Part) -> str:
        """Make a message show a part, in a new message when it must be; return the one that shows it."""
        if await self._shows(message, part):
            return message
        self._stale.append(message)
        return await self._create(at, part)

    async def _shows(self, message: str, part: Part) -> bool:
        """Make a message show a part; False when that is not possible."""
        known = self.digests.get(self._key(message))
        if known == part.digest:
            return True
        if isinstance(part, FilePart | StoredPart):
            return message.startswith(files.FILE) and not known  # after a restart: a file's content never changes
        return not message.startswith(files.FILE) and await self._edit(message, part)

    # --- making -------------------------------------------------------------------------------------

    async def _create(self, at: int, part: Part) -> str:
        """Show a part in a new message; in the one that is found there, if it may stand there already."""
        looked = False
        if self._doubt:
            there, looked = await self._look(at, part)
            self._doubt = False
            if there:
                return await self._refresh(there, at, part)
            part = part if looked else part.sent_again()
        try:
            made = await (self._send_text(at, part) if isinstance(part, TextPart) else self._send_file(part))
        except SendFailed as failed:
            failure = failed
        else:
            self.digests.put(self._key(made), part.digest)
            return made
        if looked and failure.outcome is SendOutcome.UNCERTAIN:
            # The slot stays in doubt, and Slack says what stands there: nothing is lost or doubled by another try.
            raise SendFailed(failure.message, outcome=SendOutcome.RETRY, creating=True)
        raise failure

    async def _look(self, at: int, part: Part) -> tuple[str, bool]:
        """Return the message that may stand there, if it does, and whether Slack could say so."""
        doubt = Doubt(conversation=self._place, slot=self.slot.id, number=at, part=part, since=self.slot.created_at)
        try:
            return await sending.found(self.client, doubt), True
        except Declined as declined:
            if declined.error in CANNOT_LOOK:
                return "", False
            failure: SlackFailure = declined
        except SlackFailure as error:
            failure = error
        judged = await self._judge(failure, Act.EDIT)  # to look may be repeated, like an edit
        if isinstance(judged, SendFailed):
            raise judged
        return "", False

    async def _send_text(self, at: int, part: TextPart) -> str:
        where = self._in_thread({"channel": self._place.chat})
        fixed = where | NO_PREVIEWS | {"metadata": sending.metadata(self.slot.id, at)}

        async def ask(content: Json) -> str:
            ts = (await self.client.call("chat.postMessage", fixed | content)).get("ts")
            if not isinstance(ts, str) or not ts:
                raise Unanswered("An answer from Slack to chat.postMessage cannot be read.")
            return ts

        return _certain(await self._call(Act.CREATE, ask, part))

    async def _send_file(self, part: FilePart | StoredPart) -> str:
        async def bring(_: Json) -> str:
            return await files.upload(self.client, part)

        file = _certain(await self._call(Act.UPLOAD, bring))
        where = self._in_thread({"channel_id": self._place.chat})

        async def show(_: Json) -> str:
            await files.show(self.client, file, part, where)
            return file

        return _certain(await self._call(Act.CREATE, show))

    # --- changing and taking away -------------------------------------------------------------------

    async def _edit(self, message: str, part: TextPart) -> bool:
        """Change a message; False when that is not possible any more."""
        # Not known until it is answered: an edit that is not may be made late.
        self.digests.drop(self._key(message))

        async def ask(content: Json) -> str:
            await self.client.call("chat.update", {"channel": self._place.chat, "ts": message} | content)
            return message

        if await self._call(Act.EDIT, ask, part) is Remedy.ANEW:
            return False
        self.digests.put(self._key(message), part.digest)
        return True

    async def _delete(self, message: str) -> None:
        async def ask(_: Json) -> str:
            is_file = message.startswith(files.FILE)
            every = await files.messages(self.client, message, self._place.chat) if is_file else [message]
            for ts in every:
                await self.client.call("chat.delete", {"channel": self._place.chat, "ts": ts})
            return message

        await self._call(Act.DELETE, ask)
        self.digests.drop(self._key(message))

    async def _tidy(self) -> None:
        """Take away what was shown anew, if it can be: most of it is gone, which is why it was shown anew."""
        for message in self._stale:
            try:
                await self._delete(message)
            except SendFailed:
                continue

    # --- asking -------------------------------------------------------------------------------------

    async def _call(
        self, act: Act, ask: Callable[[Json], Awaitable[str]], part: TextPart | None = None
    ) -> str | Remedy:
        """Ask with a part's content, and once more without blocks where Slack refuses those."""
        content = part.payload() if part is not None else {}
        why = ""
        for _ in range(PLAIN_TRIES):
            try:
                return await ask(content)
            except SlackFailure as error:
                failure, why = error, str(error)
            # Here, not above: what is raised in an `except` block keeps the other error with it.
            judged = await self._judge(failure, act)
            if isinstance(judged, SendFailed):
                raise judged
            if judged is not Remedy.PLAIN:
                return judged
            content = part.plain() if part is not None else {}
        raise SendFailed(why, outcome=SendOutcome.DEAD, creating=False)

    async def _judge(self, failure: SlackFailure, act: Act) -> Remedy | SendFailed:
        if isinstance(failure, Declined):
            await self.refused(failure)
        place = self._place
        return judge(
            failure, act, chat_scope=chat_scope(place), account_scope=account_scope(place), now=self.clock.now()
        )

    def _in_thread(self, place: Json) -> Json:
        return place | ({"thread_ts": self._place.thread} if self._place.thread else {})

    def _key(self, message: str) -> str:
        return f"{chat_scope(self._place)}/{message}"


def _certain(made: str | Remedy) -> str:
    assert not isinstance(made, Remedy), "only edits and deletions are done without an answer"
    return made
