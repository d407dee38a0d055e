"""One bot on a failing or contested Telegram on loopback: reports and backoff."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from gateway.domain.ids import NodeId
from gateway.domain.turns import NamedLease
from tests.support.surroundings import refusing, until
from tests.support.telegram import Call, FakeTelegram, Fault, faults
from tests.unit.channels.telegram.conftest import QUICK
from tests.unit.channels.telegram.scene import Scene
from tests.unit.channels.telegram.test_account import running

ANN = 1001


async def test_silence_for_too_long_is_trouble(telegram: FakeTelegram, scene: Scene) -> None:
    async with running(scene) as bot:
        await until(lambda: telegram.calls("getUpdates"))
        scene.clock.advance(89)
        assert bot.trouble() == ""
        scene.clock.advance(3)
        assert "92 s" in bot.trouble()
        telegram.say(ANN, "hello")
        await until(lambda: not bot.trouble())


async def test_short_poll_after_a_failure_clears_the_trouble(telegram: FakeTelegram, scene: Scene) -> None:
    async with running(scene) as bot:
        await until(lambda: telegram.calls("getUpdates"))
        telegram.script(refusing("getUpdates", faults.drop()))
        telegram.replay()  # the poll that waits ends
        await until(lambda: len(telegram.calls("getUpdates")) >= 4)
        scene.clock.advance(100)
        assert "100 s" in bot.trouble()
        telegram.script(lambda _call: None)
        await until(lambda: not bot.trouble())


async def test_somebody_else_with_the_token_is_reported_and_waited_out(telegram: FakeTelegram, scene: Scene) -> None:
    telegram.script(refusing("getUpdates", faults.error(409, "Conflict: terminated by other getUpdates request")))
    async with running(scene) as bot:
        await until(lambda: len(telegram.calls("getUpdates")) >= 3)
        assert "Stop the other program" in bot.trouble()
        assert scene.host.alerts[0][0] == "telegram/main/conflict"
        telegram.script(lambda _call: None)
        telegram.say(ANN, "hello")
        await until(lambda: scene.sink.texts == ["hello"] and not bot.trouble())


async def test_a_conflict_after_a_takeover_alerts_nobody(telegram: FakeTelegram, scene: Scene) -> None:
    """The last holder's long poll may still be open for a minute. An alert after that names the lease."""
    scene.host.fence = 2
    telegram.script(refusing("getUpdates", faults.error(409, "Conflict: terminated by other getUpdates request")))
    async with running(scene) as bot:
        await until(lambda: len(telegram.calls("getUpdates")) >= 3)
        assert ("Stop the other program" in bot.trouble(), scene.host.alerts) == (True, [])
        scene.clock.advance(60)
        await until(lambda: scene.host.alerts)
        assert scene.host.under[0] == NamedLease(name="telegram/main", node=NodeId("here"), fence=2)


async def test_poll_conflict_waits_ever_longer(
    telegram: FakeTelegram, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    conflict = faults.error(409, "Conflict: terminated by other getUpdates request")

    def rival(call: Call) -> Fault | None:
        return conflict if call.method == "getUpdates" and call.parameters["timeout"] else None

    def conflicts() -> list[float]:
        return [call.answered_s for call in telegram.calls("getUpdates") if call.status == 409]

    def polls_long() -> bool:
        last = telegram.calls("getUpdates")[-1]
        return bool(last.parameters["timeout"]) and not last.status

    telegram.script(rival)
    async with running(scene, replace(QUICK, longest=10.0)) as bot:
        await until(lambda: len(conflicts()) >= 4)
        gaps = [later - earlier for earlier, later in pairwise(conflicts())]
        assert [gap >= 0.02 * 2**n for n, gap in enumerate(gaps)] == [True] * len(gaps)
        telegram.script(lambda _call: None)
        await until(polls_long)
        assert not bot.trouble()  # a short poll said so: this one may take 50 s
        telegram.say(ANN, "hello")
        await until(lambda: scene.sink.texts == ["hello"] and not telegram.updates.waiting and polls_long())
        before, told = len(telegram.calls("getUpdates")), len(conflicts())
        telegram.updates.end_poll()
        await until(lambda: len(telegram.calls("getUpdates")) > before + 1)
        telegram.say(ANN, "again")
        await until(lambda: scene.sink.texts == ["hello", "again"])
        first, then = telegram.calls("getUpdates")[before : before + 2]
        assert (first.parameters["timeout"], then.parameters["timeout"]) == (0, 50)
        assert len(conflicts()) == told + 1
        assert caplog.messages[-1].endswith("Again in 0.02 s.")  # counted anew
        assert 0.02 <= first.at_s - conflicts()[-1] < 0.02 * 2**told  # which it would be otherwise
