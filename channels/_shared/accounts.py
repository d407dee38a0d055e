"""The accounts of a channel, each served for itself: one that breaks takes nobody else, nor the daemon, with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from gateway.ports import Sink


class ServedAccount(Protocol):
    """One account of a channel."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        ...

    async def run(self, sink: Sink) -> None:
        """Serve until cancelled."""
        ...

    def broke(self) -> None:
        """Say that it stopped by a fault of our own; it is started again."""
        ...

    def trouble(self) -> str:
        """Why nothing, or not all, works now; empty when all is well."""
        ...


async def serve(platform: str, accounts: Iterable[ServedAccount], sink: Sink, pause_s: float) -> None:
    """Serve every account until cancelled. One that broke begins again after `pause_s` seconds."""
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
    """What is wrong with any of them; empty when all is well."""
    return " ".join(filter(None, (account.trouble() for account in accounts)))
