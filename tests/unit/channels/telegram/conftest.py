"""Fixtures of the adapter's tests: a Telegram on loopback, and a channel with short pauses."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from channels.telegram.account import TelegramPauses
from channels.telegram.adapter import TelegramChannel
from tests.support.telegram import FakeTelegram
from tests.unit.channels.telegram.scene import Scene

QUICK = TelegramPauses(
    first=0.01,
    longest=0.05,
    conflict=0.02,
    token=0.03,
    store=0.01,
    broken=0.01,
    lease=0.02,
    standby=0.02,
    written=0.005,
)


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram().serve() as fake:
        fake.private(1001)
        yield fake
        assert fake.surprises == []


@pytest.fixture
async def scene(telegram: FakeTelegram) -> AsyncIterator[Scene]:
    async with aiohttp.ClientSession() as client:
        yield Scene(client=client, api_root=telegram.api_root)


@pytest.fixture
async def channel(scene: Scene) -> TelegramChannel:
    return TelegramChannel(scene.context(), QUICK)
