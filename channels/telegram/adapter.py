"""Telegram as a channel: all accounts of the configuration, what comes in over them and what goes out.

What comes in is `account` and `updates`, what goes out `outbound` and `showing`; this is where the gateway meets them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from telegram.error import TelegramError

from channels._shared.accounts import serve, troubles
from channels._shared.showing import Digests
from channels.telegram import ids
from channels.telegram.account import TelegramConnection, TelegramPauses
from channels.telegram.chat_migration import ChatMigrations
from channels.telegram.failures import TelegramAct, judge
from channels.telegram.outbound import TelegramRenderer
from channels.telegram.request import TelegramDeclined
from channels.telegram.settings import TelegramSettings
from channels.telegram.showing import TelegramMessageSync
from gateway.domain.messages import Attachment, Conversation
from gateway.domain.slots import RateLimit, RenderedSlot
from gateway.errors import FetchFailed, SendFailed, SendOutcome, StoreError
from gateway.ports import Auth, ChannelContext, Endpoint, Progress, Sink

BURST = 3
PAUSES = TelegramPauses()


class TelegramChannel:
    """`ports.HttpChannel`."""

    name = ids.CHANNEL

    def __init__(self, context: ChannelContext, pauses: TelegramPauses = PAUSES) -> None:
        """Make the accounts. Nothing is asked of Telegram before `run`, or the first send."""
        settings = context.settings
        if not isinstance(settings, TelegramSettings):
            raise TypeError("the Telegram channel is built with its own settings")
        self._clock = context.clock
        self._pauses = pauses
        self._moves = ChatMigrations(context.key_value)
        self._digests = Digests()
        self._renderer = TelegramRenderer()
        self._accounts = {
            name: TelegramConnection(name, account, context, self._moves, pauses)
            for name, account in settings.accounts.items()
        }

    def endpoints(self) -> Sequence[Endpoint]:
        """The webhooks of the accounts that have one."""
        return [
            Endpoint(method="POST", path=account.path, handler=account.webhook.handle, auth=Auth.SIGNED)
            for account in self._accounts.values()
            if account.webhook is not None
        ]

    async def run(self, sink: Sink) -> None:
        """Serve every account until cancelled."""
        await serve("Telegram", self._accounts.values(), sink, self._pauses.broken)

    # --- out ----------------------------------------------------------------------------------------

    async def send(self, showing: RenderedSlot, progress: Progress) -> str:
        """Show a new slot."""
        return await self.edit(showing, progress)

    async def edit(self, showing: RenderedSlot, progress: Progress) -> str:
        """Make what is shown of a slot equal to its content; a slot without any has no messages."""
        conversation = showing.slot.conversation
        account = self._accounts.get(conversation.account)
        if account is None or not _is_place(conversation):
            why = f"There is no Telegram account {conversation.account!r} with such a chat in the configuration."
            raise SendFailed(why, outcome=SendOutcome.DEAD, creating=False)
        screen = TelegramMessageSync(
            bot=account.bot,
            conversation=conversation,
            chat=await self._moves.now(conversation.chat),
            moves=self._moves,
            digests=self._digests,
            once_more=showing.slot.stands and not showing.partial,
            clock=self._clock,
        )
        parts, shown = self._renderer.parts(showing), showing.slot.platform_id
        return await (screen.grow(parts, shown) if showing.partial else screen.show(parts, shown, progress))

    # --- in -----------------------------------------------------------------------------------------

    async def fetch(self, conversation: Conversation, file: Attachment, write: Callable[[bytes], None]) -> None:
        """Read a file that came with a message, in pieces of at most 64 KiB."""
        account = self._accounts.get(conversation.account)
        if account is None:
            raise FetchFailed(f"There is no Telegram account {conversation.account!r} in the configuration.")
        await account.download.fetch(file.source, write)

    # --- beside it ----------------------------------------------------------------------------------

    async def typing(self, conversation: Conversation) -> None:
        """Show that an answer is being written."""
        account = self._accounts.get(conversation.account)
        if account is None or not _is_place(conversation):
            return
        thread = {"message_thread_id": int(conversation.thread)} if conversation.thread else {}
        try:
            chat = await self._moves.now(conversation.chat)
            await account.bot.call("sendChatAction", {"chat_id": chat, "action": "typing", **thread})
        except TelegramDeclined as declined:
            scopes = {"chat_scope": conversation.chat_scope, "account_scope": conversation.account_scope}
            meant = judge(declined, TelegramAct.EDIT, now=self._clock.now(), **scopes)
            if isinstance(meant, SendFailed) and meant.outcome is SendOutcome.WAIT:
                raise meant from None
        except (TelegramError, StoreError):
            return

    def rate_limits(self, conversation: Conversation) -> Sequence[RateLimit]:
        """The limits of the account, the chat and, in groups, the group; those that are 0 are none."""
        account = self._accounts.get(conversation.account)
        if account is None:
            return ()
        limits, chat = account.settings.limits, conversation.chat_scope
        is_group = conversation.chat.startswith("-")
        wanted = (
            _Limit(conversation.account_scope, limits.overall_per_s, max(BURST, int(limits.overall_per_s / 3))),
            _Limit(chat, limits.per_chat_per_s, BURST),
            _Limit(f"{chat}/group", limits.per_group_per_min / 60 if is_group else 0, BURST),
        )
        return [RateLimit(scope=one.scope, every_s=1 / one.per_s, burst=one.burst) for one in wanted if one.per_s > 0]

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


@dataclass(frozen=True, slots=True)
class _Limit:
    """Messages a second in a scope; 0 is no limit."""

    scope: str
    per_s: float
    burst: int


def _is_place(conversation: Conversation) -> bool:
    """Whether Telegram could have such a chat and topic: both are numbers."""
    return conversation.chat.removeprefix("-").isdecimal() and (conversation.thread or "0").isdecimal()


def build(context: ChannelContext) -> TelegramChannel:
    """Make the channel."""
    return TelegramChannel(context)
