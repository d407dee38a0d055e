"""Accounts of a channel and their supervision. Base of each `account` and `adapter`.

A crashed account is restarted, and stops neither others nor the daemon.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import ClassVar, Generic, TypeVar

from gateway.domain.messages import Conversation
from gateway.domain.slots import RateLimit
from gateway.domain.turns import NamedLease
from gateway.errors import FetchFailed, SendFailed, SendOutcome, StoreError
from gateway.ports import ChannelContext, Sink

STARTING = "It is not connected yet."


class PlatformAccount(ABC):
    """One account: its trouble, its failures so far, and its notices to the owners."""

    platform: ClassVar[str]
    """Name of the platform for people."""

    def __init__(self, name: str, context: ChannelContext) -> None:
        """Take the account's name in the configuration."""
        self.name = name
        self._context = context
        self._log = logging.getLogger(type(self).__module__)
        self._trouble = STARTING
        self._failures = 0

    @abstractmethod
    async def run(self, sink: Sink) -> None:
        """Serve until cancelled."""

    @abstractmethod
    def trouble(self) -> str:
        """Return why the account does not fully work now; empty when it does."""

    async def keep_running(self, sink: Sink, pause_s: float) -> None:
        """Serve until cancelled; restart after `pause_s` seconds when a fault of our own ends it."""
        while True:
            try:
                await self.run(sink)
            except Exception:  # noqa: BLE001 - one fault must not end the loop of an account: it is told and begun again
                self._log.exception("the %s account %s broke", self.platform, self.name)
                self._trouble = "It broke and is being started again; the log says why."
            await asyncio.sleep(pause_s)

    async def _alert(self, what: str, text: str, under: NamedLease | None = None) -> None:
        """Notify the owners; `what` names the kind of trouble, which is reported once an hour."""
        with suppress(StoreError):
            key = f"{self.platform.lower()}/{self.name}/{what}"
            await self._context.host.alert(key, f"{self.platform} account {self.name}: {text}", under=under)


A = TypeVar("A", bound=PlatformAccount)


class AccountsChannel(Generic[A]):
    """Part of `ports.Channel` that all channels with accounts share."""

    def __init__(self, platform: str, accounts: Mapping[str, A], restart_s: float) -> None:
        """Take the accounts by name, and the pause in seconds before a crashed one is restarted."""
        self._platform = platform
        self._accounts = accounts
        self._restart_s = restart_s

    async def run(self, sink: Sink) -> None:
        """Serve every account until cancelled."""
        async with asyncio.TaskGroup() as group:
            for account in self._accounts.values():
                work = account.keep_running(sink, self._restart_s)
                group.create_task(work, name=f"{self._platform.lower()} {account.name}")

    @property
    def streams(self) -> bool:
        """Return True: a partial answer is shown by editing its message."""
        return True

    def trouble(self) -> str:
        """Return the troubles of all accounts; empty when there are none."""
        return " ".join(filter(None, (account.trouble() for account in self._accounts.values())))

    def accounts_up(self) -> Mapping[str, bool]:
        """Return for each account whether it works now."""
        return {account.name: not account.trouble() for account in self._accounts.values()}

    def _sender(self, conversation: Conversation, *, is_place: bool, place: str) -> A:
        """Return the account that shows a conversation's slots. Raises `SendFailed` where there is none."""
        account = self._accounts.get(conversation.account)
        if account is None or not is_place:
            why = (
                f"There is no {self._platform} account {conversation.account!r} with such a {place} in the "
                "configuration."
            )
            raise SendFailed(why, outcome=SendOutcome.DEAD, creating=False)
        return account

    def _fetcher(self, conversation: Conversation) -> A:
        """Return the account that downloads a conversation's files. Raises `FetchFailed` where there is none."""
        account = self._accounts.get(conversation.account)
        if account is None:
            raise FetchFailed(f"There is no {self._platform} account {conversation.account!r} in the configuration.")
        return account


def limits(*wanted: tuple[str, float, int]) -> list[RateLimit]:
    """Return rate limits from (scope, messages per second, burst), without those of 0, which means no limit."""
    return [RateLimit(scope=scope, every_s=1 / per_s, burst=burst) for scope, per_s, burst in wanted if per_s > 0]


def backoff(first_s: float, failures: int, longest_s: float) -> float:
    """Return the pause in seconds after so many failures before: doubled with each, up to the longest."""
    return min(first_s * 2.0 ** min(failures, 10), longest_s)
