"""F19, the sockets alone: they hang, are told to go, are turned away; readiness tells the truth and nothing is lost.

Cases that take Slack's own half a minute run on the account itself with a tenth of every timeout; quick ones run on
a daemon.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import fields
from pathlib import Path

import aiohttp
import pytest

from channels.slack.account import SlackConnection
from channels.slack.socket import SOCKETS, Timing
from gateway.domain.messages import Received
from tests.fault.rig import everything, health, until
from tests.fault.slack_rig import ANN, BOB, TO_ANN, TO_BOB, Wire, judge_places, wire
from tests.fault.telegram_rig import slots_of
from tests.support.proof import LOST, TWICE, figure
from tests.support.slack import Call, FakeSlack, Fault, faults
from tests.support.slack.sockets import SOCKETS_AT_MOST
from tests.unit.channels.slack.scene import Scene, running

SCALE = 10
"""Time limits are divided by this, and figures multiplied."""
SHOWN_WITHIN_S = 60.0
REPLACED_WITHIN_S = 60.0
_SECONDS = Timing()
QUICKER = Timing(
    **{
        one.name: getattr(_SECONDS, one.name) / (1 if one.name == "pings" else SCALE)  # pings are counted
        for one in fields(Timing)
    }
)
Ends = Callable[[Wire], Awaitable[None]]


# --- sockets that hang --------------------------------------------------------------------------


async def seconds_until(true: Callable[[], object], within_s: float = SHOWN_WITHIN_S) -> float:
    """Wait until something is so; return for how long, as if nothing had been made quicker."""
    began = time.monotonic()
    await until(true, 2 * within_s / SCALE)
    return (time.monotonic() - began) * SCALE


@asynccontextmanager
async def an_account() -> AsyncGenerator[tuple[FakeSlack, Scene, SlackConnection]]:
    """An account with two sockets, every time limit a tenth."""
    async with FakeSlack().serve() as slack, aiohttp.ClientSession() as client:
        slack.app.ack_within_s /= SCALE
        slack.app.pauses_s = [0.0, *[0.1] * 1000]
        scene = Scene(client=client, workspaces={"main": slack})
        async with running(scene, timing=QUICKER) as account:
            await until(lambda: len(slack.sockets) == SOCKETS)
            yield slack, scene, account
        assert slack.surprises == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("hanging", [SOCKETS, 1], ids=["both", "one"])
async def test_hanging_sockets_that_cannot_be_replaced(hanging: int) -> None:
    """They neither answer pings nor close, and new ones say nothing: that shows, until they work again."""
    async with an_account() as (slack, scene, account):
        for socket in slack.sockets[:hanging]:
            socket.freeze()
        slack.line.sockets.behaviour = "silent"
        told_s = await seconds_until(account.trouble)
        said = [slack.say(ANN, f"hello {n}").text for n in range(6)]
        slack.line.sockets.behaviour = "talks"
        back_s = await seconds_until(lambda: not account.trouble())
        await until(lambda: len(scene.sink.texts) == len(said), 5)
        await until(lambda: not slack.app.pending)
    figure("F19", "until readiness tells of a socket that hangs and cannot be replaced", told_s, SHOWN_WITHIN_S, "s")
    figure("F19", "until readiness tells that sockets work again", back_s, REPLACED_WITHIN_S, "s")
    told_once(slack, said, scene.sink.texts)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("hanging", [SOCKETS, 1], ids=["both", "one"])
async def test_hanging_sockets_are_replaced(hanging: int) -> None:
    """Slack delivers the events of these sockets again over their replacements."""
    async with an_account() as (slack, scene, account):
        hung = slack.sockets[:hanging]
        for socket in hung:
            socket.freeze()
        said = [slack.say(ANN, f"hello {n}").text for n in range(6)]
        replaced_s = await seconds_until(lambda: len(slack.line.sockets.ever) == SOCKETS + hanging)
        await until(lambda: len(scene.sink.texts) == 6 and not slack.app.pending)
        well = account.trouble()
    figure("F19", "until a socket that hangs is replaced", replaced_s, REPLACED_WITHIN_S, "s")
    told_once(slack, said, scene.sink.texts)
    assert well == ""


def told_once(slack: FakeSlack, said: Sequence[str], got: Sequence[str]) -> None:
    """State what was lost, doubled, and given up by Slack."""
    wanted, taken = Counter(said), Counter(got)
    figure("F19", LOST, (wanted - taken).total(), 0, of=len(said))
    figure("F19", TWICE, (taken - wanted).total(), 0, of=len(said))
    figure("F19", "events that Slack gave up", len(slack.app.lost), 0, of=len(slack.app.given))


# --- sockets that end ---------------------------------------------------------------------------


async def told_to_go(one: Wire, reason: str) -> None:
    """Slack wants other connections."""
    for socket in list(one.slack.sockets):
        await socket.disconnect(reason)


async def told_there_are_too_many(one: Wire) -> None:
    """Other machines of the same app have all the connections that it may have; then one goes."""
    slack, lost = one.slack, one.slack.sockets[0]
    async with AsyncExitStack() as others:
        for _ in range(SOCKETS_AT_MOST - len(slack.sockets)):
            await others.enter_async_context(stranger(slack))
        lost.cut()
        await slack.until(lambda: lost not in slack.sockets)
        await others.enter_async_context(stranger(slack))
        opened = len(slack.calls("apps.connections.open"))
        await slack.until(lambda: len(slack.calls("apps.connections.open")) > opened)
        await asyncio.sleep(0.1)
        assert len(slack.sockets) == SOCKETS_AT_MOST


@asynccontextmanager
async def stranger(slack: FakeSlack) -> AsyncGenerator[None]:
    """A connection of another machine, to which nothing is told."""
    before = len(slack.sockets)
    async with aiohttp.ClientSession() as client, client.ws_connect(slack.line.sockets.ticket()):
        await slack.until(lambda: len(slack.sockets) > before)
        slack.sockets[-1].usable = False
        yield


async def broken_off(one: Wire) -> None:
    """Both connections end without a word."""
    for socket in list(one.slack.sockets):
        socket.cut()


async def turned_away(one: Wire) -> None:
    """One ends, and no new one is let in at first."""
    one.slack.line.sockets.behaviour = "refuses"
    opened = len(one.slack.calls("apps.connections.open"))
    one.slack.sockets[0].cut()
    await one.slack.until(lambda: len(one.slack.calls("apps.connections.open")) > opened)
    await asyncio.sleep(0.1)
    one.slack.line.sockets.behaviour = "talks"


async def no_address(one: Wire, fault: Fault) -> None:
    """One ends, and Slack does not say at once where to connect to."""
    left = [fault]
    one.slack.script(lambda call: left.pop() if left and call.method == "apps.connections.open" else None)
    one.slack.sockets[0].cut()


ENDS: Sequence[tuple[str, Ends]] = (
    ("warning", lambda one: told_to_go(one, "warning")),
    ("refresh_requested", lambda one: told_to_go(one, "refresh_requested")),
    ("too_many_websockets", told_there_are_too_many),
    ("cut", broken_off),
    ("turned away", turned_away),
    ("no address", lambda one: no_address(one, faults.broken(500))),
    ("429 for an address", lambda one: no_address(one, faults.too_many(1))),
)


@pytest.mark.whole("waits 18 s; sockets that hang stay")
async def test_sockets_that_end(tmp_path: Path) -> None:
    """A socket that ends for any reason is replaced while people go on talking; each event is taken once."""
    async with wire(tmp_path) as one:
        slack, said = one.slack, list[str]()
        await one.start()
        replaced_s: dict[str, float] = {}
        for name, end in ENDS:
            await slack.until(lambda: len(slack.sockets) == SOCKETS)
            async with asyncio.TaskGroup() as group:
                group.create_task(talk(slack, said, name), name="talk")
                ever, began = len(slack.line.sockets.ever), time.monotonic()
                await end(one)
                await slack.until(lambda ever=ever: len(slack.line.sockets.ever) > ever)
                await slack.until(lambda: len(slack.sockets) == SOCKETS)
                replaced_s[name] = time.monotonic() - began
        await one.settled()
        ready = await health(one.daemon)
        assert await one.daemon.stop() == 0
        rows = await everything(one.daemon.state)
        got = [item.message.text for item in rows[f"dm:slack/main/{TO_BOB}"] if isinstance(item, Received)]
        figure("F19", "until sockets that ended were replaced", max(replaced_s.values()), REPLACED_WITHIN_S, "s")
        told_once(slack, said, got)
        figure("F19", "times it asked for an address before Slack's time was up", len(asked_too_early(slack)), 0)
        assert ready[0] == 200
        slots = slots_of(rows, "slack")
        figure("F19", "shown twice, of messages", len(judge_places(one.rig.workspaces, slots)), 0, of=len(slots))


async def talk(slack: FakeSlack, said: list[str], about: str) -> None:
    """Somebody says something every now and then."""
    for n in range(5):
        said.append(f"This is word {n} about {about}.")
        slack.say(BOB, said[-1])
        await asyncio.sleep(0.1)


def asked_too_early(slack: FakeSlack) -> list[Call]:
    """Requests for an address while Slack had said to wait, but for those that were on their way."""
    asked = slack.calls("apps.connections.open")
    refused = [call for call in asked if call.status == 429]
    return [call for call in asked for ban in refused if ban.answered_s + 0.1 < call.at_s < ban.answered_s + 0.9]


# --- what only a person can do something about --------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "cure"),
    [("invalid_auth", "does not accept the app_token"), ("link_disabled", "Socket Mode is off")],
)
async def test_refusal_of_the_socket_names_its_cure(refusal: str, cure: str, tmp_path: Path) -> None:
    """Readiness names the cure, and so is the owner told, as long as anything can be said."""
    async with wire(tmp_path) as one:
        slack = one.slack
        await one.start()
        slack.say(ANN, "hello")
        await slack.see(TO_ANN, "You said: hello")
        began = time.monotonic()
        if refusal == "link_disabled":
            await slack.sockets[0].disconnect(refusal)
        else:
            slack.script(refusing_addresses)
            slack.sockets[0].cut()
        await slack.see(TO_ANN, cure)
        status, text = await health(one.daemon)
        what = "until the owner is told what only a person can mend"
        figure("F19", what, time.monotonic() - began, SHOWN_WITHIN_S, "s")
        assert status == 503
        assert cure in text
        slack.say(ANN, "are you there?")  # the other connection stands
        await slack.see(TO_ANN, "You said: are you there?")


def refusing_addresses(call: Call) -> Fault | None:
    """The app's token is worth nothing any more."""
    return faults.error("invalid_auth") if call.method == "apps.connections.open" else None
