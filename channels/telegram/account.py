"""Connection of one bot: identity, polling or webhook, answers to presses. Run by `adapter`, one per account.

Errors from outside are retried and reported in `trouble`, never raised: a bot whose token was revoked must not stop
the daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

from telegram import BotCommandScope, BotCommandScopeAllGroupChats, BotCommandScopeAllPrivateChats, User
from telegram.error import TelegramError

from channels._shared.accounts import STARTING, PlatformAccount, backoff
from channels._shared.settings import way_of
from channels.telegram import inbound
from channels.telegram.chat_migration import ChatMigrations
from channels.telegram.download import TelegramDownload
from channels.telegram.failures import bad_token, token_trouble
from channels.telegram.inbound import BotIdentity
from channels.telegram.limits import DOWNLOAD_BYTES
from channels.telegram.request import (
    LONG_POLL_S,
    POLL_WITHIN_S,
    AiohttpRequest,
    TelegramBot,
    TelegramDeclined,
    TelegramUnanswered,
)
from channels.telegram.settings import OFFICIAL_API, TelegramAccount
from channels.telegram.updates import TelegramUpdates, number_of
from channels.telegram.webhook import Webhook
from gateway.domain.sessions import SessionKind
from gateway.domain.turns import NamedLease
from gateway.domain.waits import PRESSED_TEXT, PressResult
from gateway.errors import StoreError
from gateway.ports import ChannelContext, Sink

LEASE = timedelta(seconds=15)
"""Lease on polling a bot, against a second node that polls with the same token."""
TAKEOVER_S = 60.0
"""Seconds after a takeover of the lease in which a conflict is the last holder's long poll, and nobody is alerted."""
QUIET_AT_MOST_S = 90.0
"""Seconds without a finished poll before trouble is reported; a poll ends within 60 s."""
BATCH = 100
"""Updates per poll, at most; the Bot API's own maximum."""
ANSWERS_AT_ONCE = 16
"""Concurrent answers to presses, at most."""
COMMANDS_AT_MOST = 100
"""Commands that Telegram lists, at most."""
WEBHOOK_CONNECTIONS = 40
"""Concurrent connections that Telegram may open to the webhook."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramPauses:
    """Pauses in seconds between attempts."""

    first: float = 1.0
    """Backoff after the first failure; doubled with each further one, up to `longest`."""
    longest: float = 60.0
    conflict: float = 5.0
    """Backoff after the first conflict with another poller of this token; doubled likewise."""
    token: float = 60.0
    """Pause after a rejected token."""
    store: float = 1.0
    """Pause after a batch that could not be stored."""
    broken: float = 5.0
    """Pause before a crashed account is restarted."""
    lease: float = 5.0
    """Interval between renewals of the lease."""
    standby: float = 2.0
    """Interval at which a node that does not poll asks for the lease."""
    written: float = 0.05
    """Time within which a request is written."""


class TelegramConnection(PlatformAccount):
    """Connection of one bot. Its `repr` does not contain the token."""

    platform = "Telegram"

    def __init__(
        self,
        name: str,
        settings: TelegramAccount,
        context: ChannelContext,
        migrations: ChatMigrations,
        pauses: TelegramPauses,
    ) -> None:
        """Take the bot's settings. No request is sent before `run`."""
        super().__init__(name, context)
        self.settings = settings
        self._migrations = migrations
        self._pauses = pauses
        proxy = way_of(settings.proxy)
        own_root = "" if settings.api_root == OFFICIAL_API else settings.api_root
        calls = AiohttpRequest(context.client, context.fail_point, proxy=proxy, own_root=own_root)
        polls = AiohttpRequest(
            context.client, context.fail_point, proxy=proxy, own_root=own_root, answer_within_s=POLL_WITHIN_S
        )
        self.bot = TelegramBot(settings.token.get_secret_value(), settings.api_root, calls, polls)
        self.download = TelegramDownload(self.bot)
        self._updates: TelegramUpdates | None = None
        self._answers = asyncio.Semaphore(ANSWERS_AT_ONCE)
        self._conflicts = 0
        """Conflicts since the last long poll that was answered."""
        self._lease: NamedLease | None = None
        """Lease of polling, as last taken or renewed."""
        self._taken_over_at = -TAKEOVER_S
        """Monotonic time at which the lease came from another node."""
        self._held_until = 0.0
        """Monotonic time at which the lease of polling ends."""
        self._heard_at = context.clock.monotonic()
        self._polling = False
        secret = settings.webhook_secret
        self.webhook = (
            Webhook(secret.get_secret_value(), self._receive, context.fail_point)
            if settings.mode == "webhook" and secret is not None
            else None
        )

    @property
    def path(self) -> str:
        """Return the path of the webhook."""
        return f"/telegram/{self.name}"

    async def run(self, sink: Sink) -> None:
        """Serve until cancelled."""
        self._trouble, self._failures = STARTING, 0
        try:
            async with asyncio.TaskGroup() as group:
                me = await self._retry_until_ok(self.bot.get_me)
                group.create_task(self._name_commands(), name=f"telegram {self.name} commands")
                self._updates = self._make_updates(me, sink, group)
                if self.webhook is None:
                    await self._lead(group)
                else:
                    await self._retry_until_ok(self._set_webhook)
                    await asyncio.Event().wait()
        finally:
            self._updates = None

    def trouble(self) -> str:
        """Return why no updates arrive; empty when they do, and while another node polls."""
        if self._trouble:
            return f"Telegram account {self.name}: {self._trouble}"
        quiet_s = self._context.clock.monotonic() - self._heard_at
        if self._polling and quiet_s > QUIET_AT_MOST_S:
            return f"Telegram account {self.name}: Telegram has not answered for {quiet_s:.0f} s."
        return ""

    def _make_updates(self, me: User, sink: Sink, group: asyncio.TaskGroup) -> TelegramUpdates:
        def answer(query: str, result: PressResult) -> None:
            group.create_task(self._answer(query, result), name=f"telegram {self.name} answer")

        def broken() -> None:
            text = "A message could not be taken and was put aside. The log says why."
            group.create_task(self._alert("poison", text), name=f"telegram {self.name} alert")

        return TelegramUpdates(
            bot=BotIdentity(
                id=me.id,
                username=me.username or "",
                account=self.name,
                files_at_most=DOWNLOAD_BYTES if self.settings.api_root == OFFICIAL_API else 0,
            ),
            sink=sink,
            migrations=self._migrations,
            clock=self._context.clock,
            answer=answer,
            broken=broken,
        )

    # --- what goes wrong ----------------------------------------------------------------------------

    async def _retry_until_ok(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Retry a request until it succeeds. Success ends any trouble but a conflict: only a poll can show its end."""
        while True:
            try:
                found = await ask()
            except TelegramError as error:
                await self._back_off(error)
            else:
                if not self._conflicts:
                    self._reset_failures()
                return found

    def _reset_failures(self) -> None:
        self._trouble, self._failures = "", 0
        self._heard_at = self._context.clock.monotonic()

    async def _back_off(self, error: TelegramError) -> None:
        """Report an error, to the owners too where only they can help, and pause for its backoff."""
        pause = backoff(self._pauses.first, self._failures, self._pauses.longest)
        self._failures += 1
        if bad_token(error):
            self._trouble = token_trouble(error)
            pause = self._pauses.token
            await self._alert("token", self._trouble)
        elif isinstance(error, TelegramDeclined) and error.code == 409:
            self._trouble = "Somebody else polls with this bot's token. Stop the other program, or give it its own bot."
            pause = backoff(self._pauses.conflict, self._conflicts, self._pauses.longest)
            self._conflicts += 1
            if self._context.clock.monotonic() - self._taken_over_at >= TAKEOVER_S:
                await self._alert("conflict", self._trouble, under=self._lease)
        elif isinstance(error, TelegramDeclined) and error.code == 429:
            pause = max(error.retry_after_s, self._pauses.first)
        elif isinstance(error, TelegramDeclined) or self._trouble or not self._polling:
            self._trouble = str(error)
        self._log.warning("account %s: %s Again in %g s.", self.name, error, pause)
        await asyncio.sleep(pause)

    # --- setting up ---------------------------------------------------------------------------------

    async def _name_commands(self) -> None:
        """Register the commands for completion in Telegram's apps. The commands work without it."""
        scopes: Sequence[tuple[SessionKind, BotCommandScope]] = (
            (SessionKind.MAIN, BotCommandScopeAllPrivateChats()),
            (SessionKind.NON_MAIN, BotCommandScopeAllGroupChats()),
        )
        for kind, scope in scopes:
            known = [(one.name, one.about[:256]) for one in self._context.host.commands(kind)]
            try:
                await self.bot.set_my_commands([one for one in known if _is_listable(*one)][:COMMANDS_AT_MOST], scope)
            except TelegramError as error:
                self._log.warning("account %s: its commands are not registered: %s", self.name, error)

    async def _set_webhook(self) -> None:
        if not self._context.public_url:
            raise TelegramError("Dragoman does not know where Telegram can reach it. Set [http] public_url.")
        secret = self.settings.webhook_secret
        await self.bot.set_webhook(
            self._context.public_url + self.path,
            secret_token=secret.get_secret_value() if secret else None,
            allowed_updates=inbound.ALLOWED_UPDATES,
            max_connections=WEBHOOK_CONNECTIONS,
        )

    # --- receiving ----------------------------------------------------------------------------------

    async def _receive(self, update: object) -> bool:
        """Store an update of the webhook; return False while that fails."""
        return self._updates is not None and await self._updates.take([update])

    async def _lead(self, group: asyncio.TaskGroup) -> None:
        """Poll while this node holds the lease."""
        while True:
            if await self._hold():
                await self._poll_while_held(group)
            else:
                self._trouble = ""  # the node that polls reports its own trouble
                await asyncio.sleep(self._pauses.standby)

    async def _hold(self) -> bool:
        asked_at = self._context.clock.monotonic()
        try:
            held = await self._context.host.hold(f"telegram/{self.name}", LEASE)
        except StoreError as error:
            self._log.warning("account %s: its lease is not renewed: %s", self.name, error)
            return False
        if held is None:
            return False
        if held != self._lease and held.fence > 1:
            self._taken_over_at = asked_at
        self._lease, self._held_until = held, asked_at + LEASE.total_seconds()
        return True

    def _has_lapsed(self) -> bool:
        """Return whether the lease may have ended: this process was suspended, or the store did not answer."""
        return self._context.clock.monotonic() >= self._held_until

    async def _poll_while_held(self, group: asyncio.TaskGroup) -> None:
        self._heard_at, self._polling = self._context.clock.monotonic(), True
        try:
            async with asyncio.TaskGroup() as both:
                polling = both.create_task(self._poll(group), name=f"telegram {self.name} poll")
                while not polling.done():
                    await asyncio.wait([polling], timeout=self._pauses.lease)
                    if not await self._hold():
                        polling.cancel()
                        return
        finally:
            self._polling = False

    async def _poll(self, group: asyncio.TaskGroup) -> None:
        """Poll for updates until somebody else polls with this token.

        Telegram keeps unconfirmed updates, so no cursor is stored here. An offset confirms all updates below it, and
        is sent only in the call right after a stored batch. Sent always, it would discard updates with lower ids:
        after a quiet week Telegram restarts its count at a random number.
        """
        # Never with drop_pending_updates: they are people's messages.
        await self._retry_until_ok(lambda: self.bot.delete_webhook(drop_pending_updates=False))
        confirm: int | None = None
        # After a failure the first poll does not wait, to report the recovery at once: a long poll may take 50 s. It
        # does not prove the end of a conflict, for the other program's next poll ends our long poll. So only an
        # answered long poll resets the count of conflicts.
        wait_s = 0 if self._conflicts else LONG_POLL_S
        while True:
            try:
                if confirm is not None:
                    group.create_task(self._acknowledged(), name=f"telegram {self.name} acknowledged")
                updates = await self._get_updates(confirm, wait_s)
            except TelegramError as error:
                confirm, wait_s = None, 0
                await self._back_off(error)
                if isinstance(error, TelegramDeclined) and error.code == 409:
                    return
                continue
            if self._has_lapsed():
                return  # not stored and not confirmed: whoever polls now gets them
            self._reset_failures()
            self._conflicts, wait_s = (0 if wait_s else self._conflicts), LONG_POLL_S
            confirm = await self._take(updates) if updates else None

    async def _take(self, updates: Sequence[object]) -> int | None:
        """Store a batch and return the offset that confirms it; None when it is not stored and shall be redelivered."""
        assert self._updates is not None, "it is made before the first poll"
        confirm = max((number_of(update) for update in updates), default=-1) + 1
        if await self._updates.take(updates) and confirm:
            return confirm
        await asyncio.sleep(self._pauses.store)
        return None

    async def _get_updates(self, offset: int | None, wait_s: int) -> list[object]:
        """Return raw updates: a malformed one must not spoil the others of its batch."""
        wanted: dict[str, object] = {
            "timeout": wait_s,
            "limit": BATCH,
            "allowed_updates": inbound.ALLOWED_UPDATES,
        }
        if offset is not None:
            wanted["offset"] = offset
        found = await self.bot.call("getUpdates", wanted)
        if not isinstance(found, list):
            raise TelegramUnanswered("An answer from Telegram to getUpdates cannot be read.")
        return cast("list[object]", found)

    async def _acknowledged(self) -> None:
        """Pass fail point J3 once the confirming poll is written; Telegram answers it only with something new."""
        await asyncio.sleep(self._pauses.written)
        await self._context.fail_point("J3")

    async def _answer(self, query: str, result: PressResult) -> None:
        """Send the result of a press. Telegram may refuse it as too late; the card shows the result too."""
        async with self._answers:
            try:
                said = {"text": PRESSED_TEXT[result], "show_alert": result is PressResult.ASK_REASON}
                await self.bot.call("answerCallbackQuery", {"callback_query_id": query, **said})
            except TelegramError:
                return
            except Exception:  # noqa: BLE001 - the loop of an account: it must not restart for this (house rule 9)
                self._log.exception("account %s: a press is not answered", self.name)


def _is_listable(name: str, about: str) -> bool:
    """Return True if Telegram lists a command of this name."""
    return (
        bool(about) and 1 <= len(name) <= 32 and name.isascii() and name.replace("_", "a").isalnum() and name.islower()
    )
