"""Several bots on one channel, each served independently."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from channels.telegram.adapter import TelegramChannel, build
from gateway.domain.messages import Conversation
from gateway.ports import Auth
from tests.support.surroundings import until
from tests.support.telegram import TOKEN, FakeTelegram, faults
from tests.unit.channels.telegram.conftest import QUICK
from tests.unit.channels.telegram.scene import Scene
from tests.unit.channels.telegram.test_adapter import Shower, texts

ANN, BOB = 1001, 2002
DIRECT = Conversation(channel="telegram", account="main", chat=str(ANN))
SECOND_TOKEN = "987654321:AAAnotherTokenOfATestBot-0123456789abc"


# --- accounts -----------------------------------------------------------------------------------


async def test_failing_account_stops_no_other(telegram: FakeTelegram, scene: Scene) -> None:
    other = telegram.another_bot(SECOND_TOKEN, "second_test_bot")
    scene.accounts = (("main", TOKEN), ("second", SECOND_TOKEN))
    telegram.script(lambda call: faults.error(401, "Unauthorized") if call.bot == 987654321 else None)
    channel = build(scene.context())
    task = asyncio.create_task(channel.run(scene.sink))
    telegram.say(ANN, "hello")
    await until(lambda: scene.sink.texts == ["hello"])
    await until(lambda: "second" in channel.trouble() and "main:" not in channel.trouble())
    assert channel.streams
    await Shower(channel).show("there")
    assert texts(telegram) == ["there"]
    assert other.shown(ANN) == []
    await stopped(task)


async def test_an_account_that_breaks_begins_again(
    telegram: FakeTelegram, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    broken = [True]

    async def passed(point: str) -> None:
        if point == "J3" and broken:
            broken.clear()
            raise RuntimeError("a bug")

    channel = TelegramChannel(replace(scene.context(), fail_point=passed), QUICK)
    task = asyncio.create_task(channel.run(scene.sink))
    telegram.say(ANN, "one")
    await until(lambda: not broken)
    telegram.say(ANN, "two")
    await until(lambda: scene.sink.texts == ["one", "two"])
    await until(lambda: not channel.trouble())
    assert "broke" in caplog.text
    await stopped(task)


async def stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_only_webhooks_bring_endpoints(channel: TelegramChannel, scene: Scene) -> None:
    assert channel.endpoints() == []
    scene.mode = "webhook"
    endpoint = TelegramChannel(scene.context(), QUICK).endpoints()[0]
    assert (endpoint.method, endpoint.path, endpoint.auth) == ("POST", "/telegram/main", Auth.SIGNED)


def test_other_settings_are_refused() -> None:
    context: Any = type("Context", (), {"settings": {}})()
    with pytest.raises(TypeError, match="its own settings"):
        TelegramChannel(context)
