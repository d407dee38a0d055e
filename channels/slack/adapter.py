"""Slack channel: the gateway's interface to all configured workspaces.

Incoming events take `account` and `updates`, outgoing slots `outbound` and `showing`. Answers stream by edits, not by
`chat.startStream`. That needs three methods where an edit needs one, and works only in threads. Until they end, its
messages cannot carry the metadata for finding an uncertain send.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from channels._shared.accounts import AccountsChannel, limits
from channels._shared.showing import Digests
from channels.slack import ids
from channels.slack.account import SlackConnection, SlackPauses
from channels.slack.download import refused
from channels.slack.failures import TooLong
from channels.slack.files import FILE
from channels.slack.outbound import SlackRenderer
from channels.slack.request import SlackDeclined
from channels.slack.send_state import Form, SendStates, Unfinished
from channels.slack.settings import SlackSettings
from channels.slack.showing import SlackMessageSync
from channels.slack.socket import Timing
from gateway.domain.messages import Attachment, Conversation, Inbound
from gateway.domain.slots import RateLimit, RenderedSlot, SlotKind
from gateway.ports import Auth, ChannelContext, Clock, Endpoint, Progress

BURST = 3
"""Messages that a rate limit lets pass at once."""
OVERALL_BURST_S = 2.0
"""Seconds' worth of the workspace's rate limit that may be used at once."""
STREAMED_PER_MIN = 40.0
"""Partial edits a minute and workspace. `chat.update` allows 50 (tier 3): ten are left for edits that must arrive."""
STREAMED_BURST = 20
"""Partial edits that pass at once."""
_SHORTEST: Mapping[SlotKind, Form] = MappingProxyType(
    {
        SlotKind.CARD: Form.BEGINNING,  # its buttons stay in a message
        **dict.fromkeys((SlotKind.ANSWER, SlotKind.NOTE, SlotKind.POST, SlotKind.REPLY), Form.FILE),
    }
)
"""Last form of slots that may go as a file."""
PAUSES = SlackPauses()
TIMING = Timing()


class SlackChannel(AccountsChannel[SlackConnection]):
    """Slack's `ports.HttpChannel`."""

    name = ids.CHANNEL

    def __init__(self, context: ChannelContext, pauses: SlackPauses = PAUSES, timing: Timing = TIMING) -> None:
        """Create the accounts. No request is sent before `run` or the first send."""
        settings = context.settings
        if not isinstance(settings, SlackSettings):
            raise TypeError("the Slack channel is built with its own settings")
        self._digests = Digests()
        self._send_states = Unfinished()
        self._renderer = SlackRenderer()
        accounts = {
            name: SlackConnection(name, account, context, pauses, timing) for name, account in settings.accounts.items()
        }
        super().__init__("Slack", accounts, pauses.broken)
        self._clock = context.clock
        self._streamed = {name: _PartialEdits(context.clock) for name in self._accounts}

    def endpoints(self) -> Sequence[Endpoint]:
        """Return the webhook endpoints of the accounts in HTTP mode."""
        return [
            Endpoint(method="POST", path=account.path, handler=account.web.handle, auth=Auth.SIGNED)
            for account in self._accounts.values()
            if account.web is not None
        ]

    # --- out ----------------------------------------------------------------------------------------

    async def show(self, showing: RenderedSlot, progress: Progress) -> tuple[str, ...]:
        """Make a slot's messages equal to its content; an empty slot has none."""
        slot = showing.slot
        account = self._sender(slot.conversation, is_place=_is_place(slot.conversation), place="channel")
        if slot.kind is SlotKind.FILE and any(map(_is_file, slot.message_ids[:1])):
            return slot.message_ids  # shown already, and an artifact never changes
        if showing.partial and not self._streamed[account.name].take():
            return slot.message_ids  # a partial text need not arrive
        shown = await self._show(account, showing, _Shown(slot.message_ids, progress))
        self._send_states.shown(slot.id)
        account.sent(slot.conversation)
        return shown

    async def _show(self, account: SlackConnection, showing: RenderedSlot, so_far: _Shown) -> tuple[str, ...]:
        """Show a slot's messages; fall back to a shorter form when Slack finds one too long."""
        slot, tries = showing.slot, self._send_states.of(showing.slot.id)
        if slot.post is not None and slot.post.is_act:
            return await self._sync(account, showing, tries).act(slot.post)
        # The re-sent mark is set by the synchroniser, which first looks for the earlier message.
        unmarked = replace(showing, slot=replace(slot, uncertain=False))
        if slot.kind is not SlotKind.CARD and slot.stands and any(map(_is_file, slot.message_ids[1:])):
            tries.form = max(tries.form, Form.BEGINNING)  # the same text went as a file before
        while True:
            sync = self._sync(account, showing, tries)
            parts, before = self._renderer.parts(unmarked, tries.form), so_far.message_ids
            try:
                return await (sync.grow(parts, before) if showing.partial else sync.show(parts, before, so_far))
            except TooLong:
                if tries.form >= _SHORTEST.get(slot.kind, Form.WHOLE) or showing.question is not None:
                    raise
                tries.form = Form(tries.form + 1)

    def _sync(self, account: SlackConnection, showing: RenderedSlot, tries: SendStates) -> SlackMessageSync:
        return SlackMessageSync(
            client=account.client,
            slot=showing.slot,
            digests=self._digests,
            once_more=showing.slot.stands and not showing.partial,
            clock=self._clock,
            refused=account.refused,
            tries=tries,
        )

    # --- in -----------------------------------------------------------------------------------------

    async def fetch(self, conversation: Conversation, file: Attachment, write: Callable[[bytes], None]) -> None:
        """Download an attachment in chunks of at most 64 KiB."""
        account = self._fetcher(conversation)
        try:
            await account.download.fetch(file.source, write)
        except SlackDeclined as declined:
            await account.refused(declined)
            failure = refused(declined)
        else:
            return
        raise failure

    # --- status -------------------------------------------------------------------------------------

    async def typing(self, conversation: Conversation) -> None:
        """Show a status in a thread of a direct conversation; elsewhere Slack has no suitable one."""
        account = self._accounts.get(conversation.account)
        direct = conversation.chat.startswith("D") and bool(conversation.thread)
        if account is not None and direct and _is_place(conversation):
            await account.indicators.working(conversation.chat, conversation.thread)

    def answered(self, messages: Sequence[Inbound]) -> None:
        """Take the marks off messages that are answered."""
        for message in messages:
            place = message.conversation
            if place.channel == self.name and (account := self._accounts.get(place.account)) is not None:
                account.answered(message)

    def stopped(self, conversation: Conversation) -> None:
        """Take the marks off all messages of a channel or thread."""
        if conversation.channel == self.name and (account := self._accounts.get(conversation.account)) is not None:
            account.stopped(conversation)

    def rate_limits(self, conversation: Conversation) -> Sequence[RateLimit]:
        """Return the rate limits of the workspace and of the channel with its threads; 0 means no limit."""
        account = self._accounts.get(conversation.account)
        if account is None:
            return ()
        overall_per_s = account.settings.limits.overall_per_min / 60
        found = limits(
            (conversation.account_scope, overall_per_s, max(BURST, int(overall_per_s * OVERALL_BURST_S))),
            (conversation.chat_scope, account.settings.limits.per_channel_per_s, BURST),
        )
        # Slack counts edits by channel, and refuses more than one a second sooner or later.
        return [replace(one, spaces_edits=one.scope == conversation.chat_scope) for one in found]


class _Shown:
    """`Progress` that keeps the ids of the messages shown so far."""

    def __init__(self, message_ids: tuple[str, ...], progress: Progress) -> None:
        """Take the present ids and the progress to forward to."""
        self.message_ids = message_ids
        self._progress = progress

    async def __call__(self, message_ids: tuple[str, ...]) -> None:
        """Keep and forward the new ids."""
        self.message_ids = message_ids
        await self._progress(message_ids)


class _PartialEdits:
    """Token bucket for partial edits in one workspace."""

    def __init__(self, clock: Clock) -> None:
        """Start with a full bucket."""
        self._clock = clock
        self._left = float(STREAMED_BURST)
        self._at = clock.monotonic()

    def take(self) -> bool:
        """Take a token; return False if there is none."""
        now = self._clock.monotonic()
        self._left = min(STREAMED_BURST, self._left + (now - self._at) * STREAMED_PER_MIN / 60)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def _is_file(message: str) -> bool:
    return message.startswith(FILE)


def _is_place(conversation: Conversation) -> bool:
    """Return True if the channel and thread have the form of Slack's ids."""
    return ids.is_channel(conversation.chat) and (not conversation.thread or ids.is_ts(conversation.thread))


def build(context: ChannelContext) -> SlackChannel:
    """Create the channel."""
    return SlackChannel(context)
