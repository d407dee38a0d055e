"""Telegram channel: the gateway's interface to all configured accounts.

Incoming updates take `account` and `updates`, outgoing slots `outbound` and `showing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from telegram.error import TelegramError

from channels._shared.accounts import AccountsChannel, limits
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
from gateway.errors import SendFailed, SendOutcome, StoreError
from gateway.ports import Auth, ChannelContext, Endpoint, Progress

BURST = 3
"""Messages that a rate limit lets pass at once."""
PAUSES = TelegramPauses()


class TelegramChannel(AccountsChannel[TelegramConnection]):
    """Telegram's `ports.HttpChannel`."""

    name = ids.CHANNEL

    def __init__(self, context: ChannelContext, pauses: TelegramPauses = PAUSES) -> None:
        """Create the accounts. No request is sent before `run` or the first send."""
        settings = context.settings
        if not isinstance(settings, TelegramSettings):
            raise TypeError("the Telegram channel is built with its own settings")
        self._clock = context.clock
        self._migrations = ChatMigrations(context.key_value)
        self._digests = Digests()
        self._renderer = TelegramRenderer()
        accounts = {
            name: TelegramConnection(name, account, context, self._migrations, pauses)
            for name, account in settings.accounts.items()
        }
        super().__init__("Telegram", accounts, pauses.broken)

    def endpoints(self) -> Sequence[Endpoint]:
        """Return the webhooks of the accounts that have one."""
        return [
            Endpoint(method="POST", path=account.path, handler=account.webhook.handle, auth=Auth.SIGNED)
            for account in self._accounts.values()
            if account.webhook is not None
        ]

    # --- out ----------------------------------------------------------------------------------------

    async def show(self, showing: RenderedSlot, progress: Progress) -> tuple[str, ...]:
        """Make a slot's messages equal to its content; an empty slot has none."""
        conversation = showing.slot.conversation
        account = self._sender(conversation, is_place=_is_place(conversation), place="chat")
        sync = TelegramMessageSync(
            bot=account.bot,
            conversation=conversation,
            chat=await self._migrations.now(conversation.chat),
            migrations=self._migrations,
            digests=self._digests,
            once_more=showing.slot.stands and not showing.partial,
            clock=self._clock,
        )
        post = showing.slot.post
        if post is not None and post.is_act:
            return await sync.act(post)
        parts, shown = self._renderer.parts(showing), showing.slot.message_ids
        return await (sync.grow(parts, shown) if showing.partial else sync.show(parts, shown, progress))

    # --- in -----------------------------------------------------------------------------------------

    async def fetch(self, conversation: Conversation, file: Attachment, write: Callable[[bytes], None]) -> None:
        """Download an attachment in chunks of at most 64 KiB."""
        await self._fetcher(conversation).download.fetch(file.source, write)

    # --- status -------------------------------------------------------------------------------------

    async def typing(self, conversation: Conversation) -> None:
        """Show the typing indicator. Raises `SendFailed` only for a flood wait."""
        account = self._accounts.get(conversation.account)
        if account is None or not _is_place(conversation):
            return
        thread = {"message_thread_id": int(conversation.thread)} if conversation.thread else {}
        try:
            chat = await self._migrations.now(conversation.chat)
            await account.bot.call("sendChatAction", {"chat_id": chat, "action": "typing", **thread})
        except TelegramDeclined as declined:
            scopes = {"chat_scope": conversation.chat_scope, "account_scope": conversation.account_scope}
            meant = judge(declined, TelegramAct.EDIT, now=self._clock.now(), **scopes)
            if isinstance(meant, SendFailed) and meant.outcome is SendOutcome.WAIT:
                raise meant from None
        except (TelegramError, StoreError):
            return

    def rate_limits(self, conversation: Conversation) -> Sequence[RateLimit]:
        """Return the rate limits of the account, the chat and, in groups, the group; 0 means no limit."""
        account = self._accounts.get(conversation.account)
        if account is None:
            return ()
        allowed, chat = account.settings.limits, conversation.chat_scope
        is_group = conversation.chat.startswith("-")
        return limits(
            (conversation.account_scope, allowed.overall_per_s, max(BURST, int(allowed.overall_per_s / 3))),
            (chat, allowed.per_chat_per_s, BURST),
            (f"{chat}/group", allowed.per_group_per_min / 60 if is_group else 0, BURST),
        )


def _is_place(conversation: Conversation) -> bool:
    """Return True if the chat and topic have the form of Telegram's ids: both are numbers."""
    return conversation.chat.removeprefix("-").isdecimal() and (conversation.thread or "0").isdecimal()


def build(context: ChannelContext) -> TelegramChannel:
    """Create the channel."""
    return TelegramChannel(context)
