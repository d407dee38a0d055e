"""Fixtures of the channel's tests: a Slack on loopback and a channel connected to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from channels.slack.adapter import SlackChannel, build
from tests.support.slack import FakeSlack
from tests.unit.channels.slack.scene import Scene


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with FakeSlack().serve() as fake:
        yield fake
        assert fake.surprises == []
        assert fake.troubles == []


@pytest.fixture
async def scene(slack: FakeSlack) -> AsyncIterator[Scene]:
    async with aiohttp.ClientSession() as client:
        yield Scene(client=client, workspaces={"main": slack})


@pytest.fixture
def channel(scene: Scene) -> SlackChannel:
    return build(scene.context())
