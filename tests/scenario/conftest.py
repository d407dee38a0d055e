"""Each scenario has a daemon of its own, as a child process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest_asyncio

from tests.support.daemon import Daemon, running
from tests.support.model_server import ScriptedModel
from tests.support.patience import PATIENCE_S
from tests.support.platform import FakePlatform

CHANNEL = """
[owners]
ann = ["test:1001"]
[people]
allow = ["test:2002"]
[chats]
allow = ["test:room"]
[channels.test]
module = "tests.support.channel"
port = {port}
"""


@pytest_asyncio.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    """A daemon with nothing configured."""
    async with running(tmp_path) as found:
        yield found


@pytest_asyncio.fixture
async def platform() -> AsyncIterator[FakePlatform]:
    """A chat platform on loopback."""
    async with FakePlatform().serve() as found:
        yield found


@pytest_asyncio.fixture
async def on_platform(tmp_path: Path, platform: FakePlatform) -> AsyncIterator[Daemon]:
    """A daemon whose owner ann, and others, write on the platform."""
    async with running(tmp_path, CHANNEL.format(port=platform.port)) as found:
        yield found


@pytest_asyncio.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    """A scripted model server on loopback."""
    async with ScriptedModel() as found:
        yield found


async def until(condition: Callable[[], bool], within_s: float = PATIENCE_S) -> float:
    """Wait for something that only looking tells: a file, a process, a request elsewhere. Return the seconds it took.

    Raises `TimeoutError`.
    """
    began_s = time.monotonic()
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - what it waits for is another process
            await asyncio.sleep(0.02)
    return time.monotonic() - began_s
