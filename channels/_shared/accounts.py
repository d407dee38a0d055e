"""Supervision of a channel's accounts. Used by the adapters; a crashed account stops neither others nor the daemon."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from gateway.ports import Sink


class ServedAccount(Protocol):
    """One supervised account of a channel."""

    @property
    def name(self) -> str:
        """Return the account's name in the configuration."""
        ...

    async def run(self, sink: Sink) -> None:
        """Serve until cancelled."""
        ...

    def broke(self) -> None:
        """Record that a fault of our own stopped the account; it is restarted."""
        ...

    def trouble(self) -> str:
        """Return why the account does not fully work now; empty when it does."""
        ...


async def serve(platform: str, accounts: Iterable[ServedAccount], sink: Sink, pause_s: float) -> None:
    """Serve every account until cancelled. Restart a crashed account after `pause_s` seconds."""
    async with asyncio.TaskGroup() as group:
        for account in accounts:
            work = _keep_running(platform, account, sink, pause_s)
            group.create_task(work, name=f"{platform.lower()} {account.name}")


async def _keep_running(platform: str, account: ServedAccount, sink: Sink, pause_s: float) -> None:
    while True:
        try:
            await account.run(sink)
        except Exception:  # the loop of an account (house rule 9)
            logging.getLogger(__name__).exception("the %s account %s broke", platform, account.name)
            account.broke()
        await asyncio.sleep(pause_s)


def troubles(accounts: Iterable[ServedAccount]) -> str:
    """Return the troubles of all accounts; empty when there are none."""
    return " ".join(filter(None, (account.trouble() for account in accounts)))
