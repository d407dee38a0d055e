"""The way out: makes the messages of a conversation equal to the parts of a slot, in one workspace.

A slot's `platform_id` is the timestamps of its messages, in order, with commas; a file's id stands for its message:
`1795248720.000100,F0AA`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from channels._shared import showing
from channels.slack import files, sending
from channels.slack.failures import SlackAct, SlackRemedy, judge
from channels.slack.parts import NO_PREVIEWS, FilePart, Part, SlackStoredPart, SlackTextPart
from channels.slack.request import Json, SlackClient, SlackDeclined, SlackFailure, SlackNotSent, SlackUnanswered
from channels.slack.send_state import SendStates
from channels.slack.sending import Doubt
from gateway.domain.messages import Conversation
from gateway.domain.slots import Slot
from gateway.errors import SendFailed, SendOutcome
from gateway.ports import Clock

PLAIN_TRIES = 2
"""As it is, and once without blocks."""
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
"""Refusals after which it will never be known what stands there: what may stand there already is marked then."""


@dataclass(slots=True, kw_only=True)
class SlackMessageSync(showing.MessageSync[Part]):
    """One channel, or thread, to show one slot in. Every method raises `SendFailed`."""

    client: SlackClient
    slot: Slot
    clock: Clock
    refused: Callable[[SlackDeclined], Awaitable[None]]
    """Told what Slack refused, for some of it concerns the whole account."""
    tries: SendStates
    _doubt: bool = field(init=False)
    """The next message that is made may stand there already."""

    def __post_init__(self) -> None:
        """Begin with the doubt that the slot has."""
        self._doubt = self.slot.uncertain

    @property
    def _place(self) -> Conversation:
        return self.slot.conversation

    async def _change(self, message: str, part: Part, *, known: bool) -> bool:
        if isinstance(part, FilePart | SlackStoredPart):
            return message.startswith(files.FILE) and not known  # after a restart: a file's content never changes
        return not message.startswith(files.FILE) and await self._edit(message, part)

    # --- making -------------------------------------------------------------------------------------

    async def _create(self, at: int, part: Part) -> str:
        """Show a part in a new message; in the one that is found there, if it may stand there already."""
        act = SlackAct.CREATE
        if self._doubt:
            there, looked = await self._look(at, part)
            self._doubt = False
            if there and not isinstance(part, SlackTextPart):
                self.digests.put(self._key(there), part.digest)
                return there  # with this very content
            if there:
                return await self._refresh(there, at, part)
            if looked:
                act = SlackAct.RECREATE  # the slot stays in doubt until it is shown
            else:
                part = part.sent_again()
        made = await (
            self._send_text(at, part, act) if isinstance(part, SlackTextPart) else self._send_file(at, part, act)
        )
        self.digests.put(self._key(made), part.digest)
        return made

    async def _look(self, at: int, part: Part) -> tuple[str, bool]:
        """Return the message that may stand there, if it does, and whether Slack could say so."""
        doubt = Doubt(conversation=self._place, slot=self.slot.id, number=at, part=part, since=self.slot.created_at)
        try:
            answer = await sending.found(self.client, doubt, self.tries.look_for(at))
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
        assert isinstance(judged, SendFailed), "there is no remedy for what cannot be seen"
        raise judged

    async def _send_text(self, at: int, part: SlackTextPart, act: SlackAct) -> str:
        where = self._in_thread({"channel": self._place.chat})
        fixed = where | NO_PREVIEWS | {"metadata": sending.metadata(self.slot.id, at)}

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

    # --- changing and taking away -------------------------------------------------------------------

    async def _edit(self, message: str, part: SlackTextPart) -> bool:
        """Change a message; False when that is not possible any more."""
        # Not known until it is answered: an edit that is not may be made late.
        self.digests.drop(self._key(message))

        async def ask(content: Json) -> str:
            await self.client.call("chat.update", {"channel": self._place.chat, "ts": message} | content)
            return message

        if await self._call(SlackAct.EDIT, ask, part) is SlackRemedy.ANEW:
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

        await self._call(SlackAct.DELETE, ask)
        self.digests.drop(self._key(message))

    # --- asking -------------------------------------------------------------------------------------

    async def _call(
        self, act: SlackAct, ask: Callable[[Json], Awaitable[str]], part: SlackTextPart | None = None
    ) -> str | SlackRemedy:
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
