"""F26 at the wire: a thousand presses at once on one card, from everywhere, with whatever else can happen to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.steps import Step
from gateway.domain.waits import Wait, WaitState
from tests.fault.rig import Visitor, lines_of, stored, until_quiet, visiting
from tests.support.daemon import Daemon
from tests.support.platform import FakePlatform
from tests.support.proof import RAN_TWICE, figure, times

CONFIG = """
[owners]
ann = ["test:1001"]
joe = ["test:1002"]
[limits]
messages_per_minute = 0
[people]
allow = ["test:2002"]
[chats]
allow = ["test:room"]
[sessions]
approval_expiry_other = "{expiry}"
[tools.shell]
permission = "always"
[channels.test]
module = "tests.support.channel"
port = {port}
"""
ANN, JOE, BOB, EVE = "1001", "1002", "2002", "6666"
ROOM = "chat:test/bot/room"
EACH = times(200, 1_000, small=20)
"""Presses from each of the five directions."""
REFUSED = {"already", "duplicate", "not_allowed", "not_valid", "expired"}


@dataclass(slots=True)
class Crowd:
    """Everybody who can see the card, and one who cannot."""

    daemon: Daemon
    platform: FakePlatform
    pages: Sequence[Visitor]
    keys: list[str]
    ids: list[tuple[Visitor, str]]
    handles: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """The buttons of the card in each owner's chat, by verb: they are pressed also when it shows them no more."""

    async def ask(self) -> None:
        """Bob wants something dangerous in the room; the card is in both owners' chats and on both pages."""
        for owner in (ANN, JOE):
            await self.platform.acked(await self.platform.say(owner, "/status"))
        await self.platform.say(BOB, "/shell echo ran >> ran", chat="room", direct=False)
        for owner in (ANN, JOE):
            card = await self.platform.see(f"d{owner}", "card", "echo ran")
            self.handles |= {(owner, button["verb"]): button["handle"] for button in card.rows[0]["buttons"]}
        for page in self.pages:
            await page.follow(ROOM)
            await page.row("approval", state="open")

    async def press(self, verbs: Sequence[str]) -> None:
        """A thousand presses, all sent before any answer is looked at."""
        for n in range(EACH):
            verb = verbs[n % len(verbs)]
            for page in self.pages:
                [handle] = [handle for (_, of), handle in page.handles.items() if of == verb]
                self.ids.append((page, await page.press(handle)))
            for owner in (ANN, JOE):
                self.keys.append(await self.platform.press(owner, self.handles[owner, verb]))
            self.keys.append(await self._nonsense(n, self.handles[ANN, verb], self.handles[JOE, verb]))

    async def _nonsense(self, n: int, anns: str, joes: str) -> str:
        """A stranger, the button of another chat, a forged one, and the very same event again and again."""
        match n % 4:
            case 0:
                return await self.platform.press(EVE, anns, chat=f"d{ANN}")
            case 1:
                return await self.platform.press(ANN, joes)
            case 2:
                return await self.platform.press(ANN, anns[:-2] + ("BA" if anns.endswith("AA") else "AA"))
            case _:
                return await self.platform.press(JOE, joes, key="the-same-event")

    async def results(self) -> Counter[str]:
        """Return the answers to all presses, once all are there."""
        keys = set(self.keys)
        await self.platform.until(lambda: keys <= self.platform.toasts.keys())
        told = [self.platform.toasts[key]["result"] for key in self.keys]
        told += [(await page.answered(id))["result"] for page, id in self.ids]
        return Counter(told)


@asynccontextmanager
async def crowd(folder: Path, expiry: str = "15m") -> AsyncGenerator[Crowd]:
    """A room, two owners with a chat and a page each."""
    async with FakePlatform().serve() as platform:
        daemon = Daemon(folder=folder, warm=True, config=CONFIG.format(port=platform.port, expiry=expiry))
        await daemon.start()
        try:
            async with visiting(daemon, "ann") as ann, visiting(daemon, "joe") as joe:
                found = Crowd(daemon, platform, (ann, joe), [], [])
                await found.ask()
                yield found
        finally:
            await daemon.kill()


async def outcome(one: Crowd) -> tuple[Wait, Step, int]:
    """Return the approval and its call when all is quiet, and the runs of the command."""
    await until_quiet(one.daemon)
    assert await one.daemon.stop() == 0
    items = await stored(one.daemon.state, ROOM)
    [wait] = [item for item in items if isinstance(item, Wait)]
    [step] = [item for item in items if isinstance(item, Step) and item.call is not None]
    return wait, step, len(lines_of(one.daemon.state, "ran"))


def check(wait: Wait, step: Step, ran: int) -> None:
    """At most once, and only when it was allowed."""
    figure("F26", RAN_TWICE, max(ran - 1, 0), 0, of=1)
    if wait.state is not WaitState.CONSUMED:
        figure("F26", "commands run after a deny, an expiry or a stop", ran, 0, of=1)
    assert step.result is not None
    assert ran == (1 if step.result.status == "ok" else 0) or (step.result.status in ("unknown", "cancelled"))
    assert ran <= (1 if wait.state is WaitState.CONSUMED else 0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("verbs", "won", "ran"),
    [(["once"], "approved", 1), (["deny"], "denied", 0), (["deny_reason", "deny"], "denied", 0)],
)
async def test_thousand_presses_have_one_winner(verbs: list[str], won: str, ran: int, tmp_path: Path) -> None:
    """One wins, it runs once or never, and all the others are told why theirs did nothing."""
    async with crowd(tmp_path) as everybody:
        await everybody.press(verbs)
        told = await everybody.results()
        wait, step, times = await outcome(everybody)
        assert told.total() == 5 * EACH
        figure("F26", "presses beyond one that counted", told[won] - 1, 0, of=told.total())
        assert told[won] == 1
        assert set(told) - {won} <= REFUSED
        assert told["not_allowed"] == EACH // 4
        assert told["not_valid"] == EACH // 2
        check(wait, step, times)
        assert times == ran


async def test_once_and_deny_at_once(tmp_path: Path) -> None:
    """Whichever comes first holds, for everybody."""
    async with crowd(tmp_path) as everybody:
        await everybody.press(["once", "deny"])
        told = await everybody.results()
        wait, step, times = await outcome(everybody)
        assert told["approved"] + told["denied"] == 1
        check(wait, step, times)
        assert times == told["approved"]


async def stop(one: Crowd) -> None:
    """An owner says /stop in the room while half of the presses are on their way."""
    await one.platform.acked(await one.platform.say(ANN, "/stop", chat="room", direct=False))


async def restart(one: Crowd) -> None:
    """The daemon dies while half of the presses are on their way; all that it did not answer come again."""
    await one.daemon.kill()
    await one.daemon.start()


async def orderly_restart(one: Crowd) -> None:
    """The same with SIGTERM."""
    assert await one.daemon.stop() == 0
    await one.daemon.start()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("event", [stop, restart, orderly_restart])
@pytest.mark.parametrize("verbs", [["once"], ["once", "deny"]], ids=["once", "both"])
async def test_something_in_between(
    event: Callable[[Crowd], Coroutine[Any, Any, None]], verbs: list[str], tmp_path: Path
) -> None:
    """Presses before, during and after it: at most one counts, and at most one execution."""
    async with crowd(tmp_path) as everybody, asyncio.TaskGroup() as group:
        pressing = group.create_task(everybody.press(verbs))
        group.create_task(event(everybody))
        await pressing
        told = await everybody.results()
        counting = told["approved"] + told["denied"]
        figure("F26", "presses beyond one that counted", max(counting - 1, 0), 0, of=told.total())
        assert set(told) <= {"approved", "denied"} | REFUSED
        wait, step, times = await outcome(everybody)
        check(wait, step, times)


@pytest.mark.whole("one that is stopped in between stays")
async def test_stopped_before_it_was_pressed(tmp_path: Path) -> None:
    """After /stop a thousand presses do nothing at all."""
    async with crowd(tmp_path) as everybody:
        await stop(everybody)
        await everybody.press(["once"])
        told = await everybody.results()
        wait, step, times = await outcome(everybody)
        assert (wait.state, times) == (WaitState.CANCELLED, 0)
        assert set(told) <= REFUSED
        check(wait, step, times)


@pytest.mark.whole("one that expires under the presses stays")
async def test_expired_before_it_was_pressed(tmp_path: Path) -> None:
    """After its time a thousand presses do nothing, also when the sweep has not looked yet."""
    async with crowd(tmp_path, expiry="2s") as everybody:
        await asyncio.sleep(2)
        await everybody.press(["once"])
        told = await everybody.results()
        wait, step, times = await outcome(everybody)
        assert (wait.state, times) == (WaitState.EXPIRED, 0)
        assert set(told) <= REFUSED
        check(wait, step, times)


async def test_expiry_under_the_presses_leaves_at_most_one_decision(tmp_path: Path) -> None:
    """A thousand presses around the moment: at most one counts."""
    async with crowd(tmp_path, expiry="1s") as everybody:
        await everybody.press(["once", "deny"])
        told = await everybody.results()
        wait, step, times = await outcome(everybody)
        assert told["approved"] + told["denied"] == (0 if wait.state is WaitState.EXPIRED else 1)
        check(wait, step, times)


@pytest.mark.whole("one of a thousand presses that counts stays")
async def test_two_cards_do_not_mix(tmp_path: Path) -> None:
    """The buttons of an earlier card do nothing to a later one of the same words."""
    async with crowd(tmp_path) as everybody:
        await everybody.press(["deny"])
        await everybody.results()
        earlier = replace(everybody.platform.in_chat(f"d{ANN}", "card")[0])
        await everybody.platform.say(BOB, "/shell echo ran >> ran", chat="room", direct=False)
        later = await everybody.platform.see(f"d{ANN}", "card", "echo ran", count=2)
        old = [frame for frame in everybody.platform.log if frame["op"] == "send" and frame["rows"]]
        handles = [b["handle"] for b in old[0]["rows"][0]["buttons"]]
        for handle in handles:
            key = await everybody.platform.press(ANN, handle, chat=earlier.chat)
            assert (await everybody.platform.acked(key))["result"] in ("already", "not_valid")
        assert later.rows[0]["state"] == "open"
        assert lines_of(everybody.daemon.state, "ran") == []
