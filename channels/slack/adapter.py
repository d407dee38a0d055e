"""Slack as a channel: all workspaces of the configuration, what comes in from them and what goes out.

What comes in is `account` and `updates`, what goes out `outbound` and `showing`; this is where the gateway meets them.
Answers stream by edits, not by `chat.startStream`: that takes three methods where an edit takes one, works in threads
only, and its messages cannot carry what a doubtful send is looked up by until they end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from channels._shared.accounts import serve, troubles
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
from gateway.domain.messages import Attachment, Conversation
from gateway.domain.slots import RateLimit, RenderedSlot, SlotKind
from gateway.errors import FetchFailed, SendFailed, SendOutcome
from gateway.ports import Auth, ChannelContext, Clock, Endpoint, Progress, Sink

BURST = 3
OVERALL_BURST_S = 2.0
"""So much of the workspace's room may be used at once."""
STREAMED_PER_MIN = 40.0
STREAMED_BURST = 20
"""`chat.update` is a method of tier 3: 50 a minute and workspace. Beginnings leave ten of them to what must arrive."""
TEXTS = frozenset({SlotKind.ANSWER, SlotKind.NOTE, SlotKind.REPLY})
"""Slots whose text may go as a file."""
PAUSES = SlackPauses()
TIMING = Timing()


class SlackChannel:
    """`ports.HttpChannel`."""

    name = ids.CHANNEL

    def __init__(self, context: ChannelContext, pauses: SlackPauses = PAUSES, timing: Timing = TIMING) -> None:
        """Make the accounts. Nothing is asked of Slack before `run`, or the first send."""
        settings = context.settings
        if not isinstance(settings, SlackSettings):
            raise TypeError("the Slack channel is built with its own settings")
        self._clock = context.clock
        self._pauses = pauses
        self._digests = Digests()
        self._unfinished = Unfinished()
        self._renderer = SlackRenderer()
        self._accounts = {
            name: SlackConnection(name, account, context, pauses, timing) for name, account in settings.accounts.items()
        }
        self._streamed = {name: _Room(context.clock) for name in self._accounts}

    def endpoints(self) -> Sequence[Endpoint]:
        """Where Slack sends what happens, for the accounts that have it so."""
        return [
            Endpoint(method="POST", path=account.path, handler=account.web.handle, auth=Auth.SIGNED)
            for account in self._accounts.values()
            if account.web is not None
        ]

    async def run(self, sink: Sink) -> None:
        """Serve every account until cancelled."""
        await serve("Slack", self._accounts.values(), sink, self._pauses.broken)

    # --- out ----------------------------------------------------------------------------------------

    async def send(self, showing: RenderedSlot, progress: Progress) -> str:
        """Show a new slot."""
        return await self.edit(showing, progress)

    async def edit(self, showing: RenderedSlot, progress: Progress) -> str:
        """Make what is shown of a slot equal to its content; a slot without any has no messages."""
        slot = showing.slot
        account = self._accounts.get(slot.conversation.account)
        if account is None or not _is_place(slot.conversation):
            why = f"There is no Slack account {slot.conversation.account!r} with such a channel in the configuration."
            raise SendFailed(why, outcome=SendOutcome.DEAD, creating=False)
        if slot.kind is SlotKind.FILE and slot.platform_id.startswith(FILE):
            return slot.platform_id  # it is shown, and what came of a call never changes
        if showing.partial and not self._streamed[account.name].take():
            return slot.platform_id  # it need not arrive
        shown = await self._show(account, showing, _Shown(slot.platform_id, progress))
        self._unfinished.shown(slot.id)
        account.sent(slot.conversation)
        return shown

    async def _show(self, account: SlackConnection, showing: RenderedSlot, so_far: _Shown) -> str:
        """Show a slot's messages; its text in a shorter form when Slack finds one of them too long."""
        slot, tries = showing.slot, self._unfinished.of(showing.slot.id)
        # The mark of a repetition is the screen's: it finds out first whether there is one.
        unmarked = replace(showing, slot=replace(slot, uncertain=False))
        if slot.stands and f",{FILE}" in slot.platform_id:
            tries.form = max(tries.form, Form.BEGINNING)  # its text is the same, and went as a file
        while True:
            screen = self._screen(account, showing, tries)
            parts, before = self._renderer.parts(unmarked, tries.form), so_far.platform_id
            try:
                return await (screen.grow(parts, before) if showing.partial else screen.show(parts, before, so_far))
            except TooLong:
                if slot.kind not in TEXTS or tries.form is Form.FILE:
                    raise
                tries.form = Form(tries.form + 1)

    def _screen(self, account: SlackConnection, showing: RenderedSlot, tries: SendStates) -> SlackMessageSync:
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
        """Read a file that came with a message, in pieces of at most 64 KiB."""
        account = self._accounts.get(conversation.account)
        if account is None:
            raise FetchFailed(f"There is no Slack account {conversation.account!r} in the configuration.")
        try:
            await account.download.fetch(file.source, write)
        except SlackDeclined as declined:
            await account.refused(declined)
            failure = refused(declined)
        else:
            return
        raise failure

    # --- beside it ----------------------------------------------------------------------------------

    async def typing(self, conversation: Conversation) -> None:
        """Show a status in a thread of a direct conversation; elsewhere Slack shows none that fits."""
        account = self._accounts.get(conversation.account)
        direct = conversation.chat.startswith("D") and bool(conversation.thread)
        if account is not None and direct and _is_place(conversation):
            await account.courtesies.working(conversation.chat, conversation.thread)

    def rate_limits(self, conversation: Conversation) -> Sequence[RateLimit]:
        """The limits of the workspace and the channel, whose threads share them; those that are 0 are none."""
        account = self._accounts.get(conversation.account)
        if account is None:
            return ()
        limits = account.settings.limits
        overall_per_s = limits.overall_per_min / 60
        wanted = (
            (conversation.account_scope, overall_per_s, max(BURST, int(overall_per_s * OVERALL_BURST_S))),
            (conversation.chat_scope, limits.per_channel_per_s, BURST),
        )
        return [RateLimit(scope=scope, every_s=1 / per_s, burst=burst) for scope, per_s, burst in wanted if per_s > 0]

    @property
    def streams(self) -> bool:
        """True: an answer is a message that is edited while it grows."""
        return True

    def trouble(self) -> str:
        """What is wrong with any account."""
        return troubles(self._accounts.values())

    def accounts_up(self) -> Mapping[str, bool]:
        """Whether each account works now."""
        return {account.name: not account.trouble() for account in self._accounts.values()}


class _Shown:
    """A `Progress` that remembers what it was told."""

    def __init__(self, platform_id: str, progress: Progress) -> None:
        """Take what is shown, and whom to tell of more."""
        self.platform_id = platform_id
        self._progress = progress

    async def __call__(self, platform_id: str) -> None:
        """Pass it on."""
        self.platform_id = platform_id
        await self._progress(platform_id)


class _Room:
    """How many beginnings of answers may still be shown in a workspace."""

    def __init__(self, clock: Clock) -> None:
        """Begin with all of it."""
        self._clock = clock
        self._left = float(STREAMED_BURST)
        self._at = clock.monotonic()

    def take(self) -> bool:
        """Take one, if there is one."""
        now = self._clock.monotonic()
        self._left = min(STREAMED_BURST, self._left + (now - self._at) * STREAMED_PER_MIN / 60)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def _is_place(conversation: Conversation) -> bool:
    """Whether Slack could have such a channel and thread."""
    return ids.is_channel(conversation.chat) and (not conversation.thread or ids.is_ts(conversation.thread))


def build(context: ChannelContext) -> SlackChannel:
    """Make the channel."""
    return SlackChannel(context)
