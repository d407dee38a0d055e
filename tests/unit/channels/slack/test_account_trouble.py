"""One workspace against a Slack on loopback: errors are reported and retried, and lose nothing."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from channels.slack.account import SlackPauses
from channels.slack.socket import Timing
from tests.support.slack import FakeSlack, faults
from tests.support.surroundings import refusing, until
from tests.unit.channels.slack.scene import TIMING, Scene, running

ANN = "U0ANN"


@pytest.fixture(params=["socket", "http"])
async def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- trouble ------------------------------------------------------------------------------------


async def test_slack_out_of_reach_is_trouble_until_it_is_back(slack: FakeSlack, scene: Scene, mode: str) -> None:
    slack.script(refusing("auth.test", faults.drop()))
    async with running(scene, mode, ready=False) as account:
        await until(lambda: len(slack.calls("auth.test")) >= 3)
        assert "auth.test" in account.trouble()
        slack.script(lambda _call: None)
        await until(lambda: not account.trouble())
    assert scene.host.alerts == []


@pytest.mark.parametrize("method", ["auth.test", "apps.connections.open"])
@pytest.mark.parametrize("error", ["invalid_auth", "account_inactive", "token_revoked", "org_login_required"])
async def test_a_bad_token_is_reported_with_its_cure_and_tried_again(
    slack: FakeSlack, scene: Scene, method: str, error: str
) -> None:
    slack.script(refusing(method, faults.error(error)))
    async with running(scene, ready=False) as account:
        await until(lambda: len(slack.calls(method)) >= 3)
        key = "app_token" if method == "apps.connections.open" else "bot_token"
        assert f"the {key} ({error})" in account.trouble()
        assert "api.slack.com/apps" in account.trouble()
        assert scene.host.alerts[0] == ("slack/main/token", account.trouble())
        slack.script(lambda _call: None)
        await until(lambda: not account.trouble())


async def test_missing_scopes_are_named(slack: FakeSlack, scene: Scene) -> None:
    async with running(scene, ready=False) as account:
        slack.world.scopes -= {"files:write", "users:read"}
        await until(lambda: "files:write, users:read" in account.trouble())
        assert "slack-manifest" in account.trouble()
    assert scene.host.alerts[0][0] == "slack/main/scopes"


async def test_an_app_token_without_its_scope_is_reported(slack: FakeSlack, scene: Scene) -> None:
    slack.app.token_scopes.clear()
    async with running(scene, ready=False) as account:
        await until(lambda: "connections:write" in account.trouble())
    assert scene.host.alerts[0][0] == "slack/main/scopes"


async def test_an_app_that_is_removed_is_reported(slack: FakeSlack, scene: Scene, mode: str) -> None:
    async with running(scene, mode) as account:
        slack.uninstall()
        await until(lambda: "removed from its workspace" in account.trouble())
        await until(lambda: not slack.app.pending)
    assert scene.host.alerts[0][0] == "slack/main/token"


async def test_a_removal_is_not_hidden_by_the_end_of_its_token(slack: FakeSlack, scene: Scene, mode: str) -> None:
    """Two connections may tell of both in any order."""
    async with running(scene, mode) as account:
        slack.teller.event({"type": "app_uninstalled"})
        await until(lambda: "removed from its workspace" in account.trouble())
        slack.teller.event({"type": "tokens_revoked", "tokens": {"oauth": [], "bot": [slack.bot]}})
        await until(lambda: not slack.app.pending)
        await asyncio.sleep(0.05)
        assert "removed from its workspace" in account.trouble()


async def test_a_frozen_connection_is_replaced_and_nothing_is_lost(slack: FakeSlack, scene: Scene) -> None:
    slack.app.ack_within_s = 0.3
    async with running(scene) as account:
        await until(lambda: len(slack.sockets) == 2)
        for socket in list(slack.sockets):
            socket.freeze()
        slack.say(ANN, "hello")
        await until(lambda: scene.sink.texts == ["hello"], within_s=10)
        await until(lambda: not account.trouble())
        await until(lambda: not slack.app.pending)
    assert slack.app.lost == []


@pytest.mark.parametrize("how", ["disconnect", "cut", "half_close"])
async def test_connections_that_end_are_replaced_and_nothing_is_lost(slack: FakeSlack, scene: Scene, how: str) -> None:
    async with running(scene):
        await until(lambda: len(slack.sockets) == 2)
        for n in range(6):
            slack.say(ANN, f"hello {n}")
            socket = slack.sockets[-1] if slack.sockets else None
            if socket is not None:
                match how:
                    case "disconnect":
                        await socket.disconnect()
                    case "cut":
                        socket.cut()
                    case _:
                        socket.half_close()
            await asyncio.sleep(0.02)
        await until(lambda: len(scene.sink.messages) == 6, within_s=10)
        await until(lambda: not slack.app.pending)
    assert sorted(scene.sink.texts) == [f"hello {n}" for n in range(6)]
    assert slack.app.lost == []


async def test_disabled_socket_mode_is_reported_with_its_cure(slack: FakeSlack, scene: Scene) -> None:
    async with running(scene) as account:
        await until(lambda: len(slack.sockets) == 2)
        slack.script(refusing("apps.connections.open", faults.drop()))
        await slack.sockets[0].disconnect("link_disabled")
        await until(lambda: scene.host.alerts)
        assert "Socket Mode is off" in scene.host.alerts[0][1]
        slack.script(lambda _call: None)
        await until(lambda: not account.trouble())


async def test_connections_that_are_refused_are_reported(
    slack: FakeSlack, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    slack.line.sockets.behaviour = "refuses"
    async with running(scene, ready=False) as account:
        await until(lambda: len(slack.calls("apps.connections.open")) >= 4)
        assert account.trouble()
        slack.line.sockets.behaviour = "talks"
        await until(lambda: not account.trouble())
    assert "No connection to Slack: the server opened no WebSocket (status " in caplog.text
    assert "ticket=" not in caplog.text


async def test_lasting_connection_resets_the_pauses_after_an_outage(slack: FakeSlack, scene: Scene) -> None:
    slack.script(refusing("apps.connections.open", faults.drop(), 8))
    growing = SlackPauses(first=0.01, longest=30.0, token=30.0, broken=30.0, steady=30.0)
    async with running(scene, pauses=growing):
        await until(lambda: len(slack.sockets) == 2)
        slack.sockets[0].cut()
        await until(lambda: len(slack.line.sockets.ever) == 3, within_s=1.0)


async def test_one_failing_connection_is_no_immediate_trouble(slack: FakeSlack, scene: Scene) -> None:
    async with running(scene, timing=replace(TIMING, one_told_after=30.0)) as account:
        await until(lambda: len(slack.sockets) == 2)
        slack.script(refusing("apps.connections.open", faults.broken(500)))
        slack.sockets[0].cut()
        await until(lambda: len(slack.calls("apps.connections.open")) >= 5)
        assert account.trouble() == ""
        slack.sockets[0].cut()
        await until(lambda: "apps.connections.open" in account.trouble())


def test_a_dead_connection_shows_within_a_minute() -> None:
    timing = Timing()
    noticed_s = timing.ping * (timing.pings + 1) + timing.close
    assert noticed_s + max(timing.told_after, timing.one_told_after) < 60


async def test_silent_connections_are_replaced(slack: FakeSlack, scene: Scene) -> None:
    slack.line.sockets.behaviour = "silent"
    async with running(scene, ready=False) as account:
        await until(lambda: len(slack.calls("apps.connections.open")) >= 4)
        assert account.trouble()
        slack.line.sockets.behaviour = "talks"
        await until(lambda: not account.trouble())


async def test_no_token_is_ever_logged(slack: FakeSlack, scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    slack.script(refusing("auth.test", faults.drop(), 1))
    async with running(scene) as account:
        slack.say(ANN, "hello")
        slack.send_raw({"type": "message"}, authorizations=5)
        await until(lambda: len(scene.sink.events) == 2)
        slack.script(refusing("apps.connections.open", faults.error("invalid_auth")))
        slack.sockets[0].cut()
        await until(lambda: "app_token" in account.trouble())
        assert slack.bot_token not in repr(account)
    assert slack.bot_token not in caplog.text
    assert slack.app_token not in caplog.text
    assert "ticket=" not in caplog.text


async def test_requests_before_it_is_ready_shall_come_again(slack: FakeSlack, scene: Scene) -> None:
    slack.script(refusing("auth.test", faults.drop()))
    slack.app.pauses_s = (0.05,) * 100
    async with running(scene, "http", ready=False):
        assert await slack.pushes.verify()
        slack.say(ANN, "hello")
        await until(lambda: slack.app.given[-1].tries)
        slack.script(lambda _call: None)
        await until(lambda: scene.sink.texts == ["hello"])
        await until(lambda: not slack.app.pending)
    assert slack.app.given[-1].tries[0].status == 503
