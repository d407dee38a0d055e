"""F29: memory runs out, for the daemon itself or because a tool takes all of it. Every accepted message is answered."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.domain.messages import Received
from tests.fault.memory_rig import as_much_as_it_likes, held_to, no_more_than_now
from tests.fault.rig import Visitor, stored, until_quiet, visiting
from tests.support.daemon import Daemon
from tests.support.proof import KILLS, LOST, TWICE, counted, dice, figure, times

MB = 1_000_000
MAIN = "main:owner"
SHORTAGES = times(3, 60)
"""So often memory runs out, and by turns there is some again or the daemon is killed and started."""
MOST_ROOM = MB // 4
"""That is left at the beginning of a shortage, at most: where it hits is another place each time."""
LONG = "x" * 60_000
SILENT_S = 2.0
"""A message that is not acknowledged by then will not be before there is memory."""
MESSAGES = 40
"""Of one shortage, at most."""
BACK_S = times(20.0, 5.0)
"""From the moment when there is memory again, or of a start, until everything is taken and answered."""
TOGETHER, ALONE = 256 * MB, 1_024 * MB
HOGS = ("head -c 3G /dev/zero | tail",)
HOGS_TOGETHER = (*HOGS, "head -c 900M /dev/zero > /tmp/hog")
"""The second one is small itself: its /tmp is memory."""
SHELL = '[tools.shell]\nsandbox = "basic"\napproval = "allow"\ntimeout = "50s"\n'


@asynccontextmanager
async def living(
    folder: Path, config: str = "", prefix: tuple[str, ...] = ()
) -> AsyncGenerator[tuple[Daemon, Visitor]]:
    """A daemon and its owner's page, which stays open."""
    daemon = Daemon(folder=folder, config=config, prefix=prefix)
    await daemon.start()
    try:
        async with visiting(daemon, "owner") as page:
            yield daemon, page
    finally:
        await daemon.kill()


def pid_of(daemon: Daemon) -> int:
    """The process of the present life."""
    assert daemon.process is not None
    return daemon.process.pid


async def until_it_hurts(page: Visitor, number: int) -> dict[str, str]:
    """Write until nobody answers; returns what was said, by its id."""
    said: dict[str, str] = {}
    for message in range(MESSAGES):
        text = f"{number}/{message} {LONG}"
        said[id := await page.say(text)] = text
        try:
            await page.answered(id, SILENT_S)
        except TimeoutError:
            break
    return said


def sorted_out(page: Visitor, said: dict[str, str]) -> tuple[Counter[str], Counter[str]]:
    """Return the acknowledged and the refused messages. The writer of a refused one was told the reason."""
    taken, refused = Counter[str](), Counter[str]()
    for id, text in said.items():
        answer = page.answers[id][0]
        assert answer["ok"] or "No memory was left" in answer["error"], answer
        (taken if answer["ok"] else refused)[text] += 1
    return taken, refused


async def until_all_is_answered(page: Visitor, count: int) -> None:
    """Wait until so many messages are acknowledged and nothing is left to do."""
    await page.until(lambda: len(page.answers) == count, 60)
    await until_quiet(page.daemon, 60)


async def end_of_shortage(daemon: Daemon, *, in_peace: bool) -> None:
    """There is memory again; or the daemon is killed, if it is not dead already, and started."""
    if in_peace and daemon.process is not None and daemon.process.returncode is None:
        as_much_as_it_likes(pid_of(daemon))
        return
    await daemon.kill()
    counted(KILLS, 1, "F29")
    await daemon.start()


@pytest.mark.whole("waits for seconds; a tool that takes all memory stays")
@pytest.mark.timeout(times(120, 3600))
async def test_memory_runs_out(tmp_path: Path) -> None:
    """In the middle of anything the daemon gets no more. It loses nothing, and goes on when it can."""
    chance, said, hurt, took_s = dice("F29"), dict[str, str](), 0, list[float]()
    async with living(tmp_path) as (daemon, page):
        for number in range(SHORTAGES):
            no_more_than_now(pid_of(daemon), chance.randrange(MOST_ROOM))
            said |= await until_it_hurts(page, number)
            hurt += len(page.answers) < len(said)
            began = time.monotonic()
            await end_of_shortage(daemon, in_peace=number % 2 == 0)
            await until_all_is_answered(page, len(said))
            took_s.append(time.monotonic() - began)
        taken, refused = sorted_out(page, said)
        assert await daemon.stop() == 0, daemon.log[-3000:]
    received = [one for one in await stored(daemon.state, MAIN) if isinstance(one, Received)]
    got = Counter(one.message.text for one in received if one.given is not None)
    figure("F29", LOST, (taken - got).total(), 0, of=taken.total())
    figure("F29", TWICE, (got - taken - refused).total(), 0, of=taken.total())
    figure("F29", "messages refused with words that were taken all the same", (got & refused).total(), 0, of=len(said))
    figure("F29", "from memory being there again, or from a start, until all is answered", max(took_s), BACK_S, "s")
    assert hurt, "memory never ran out"


async def test_a_tool_takes_all_memory(tmp_path: Path) -> None:
    """It is ended, its call says so, and the daemon does not notice."""
    with held_to(TOGETHER, ALONE) as held:
        async with living(tmp_path, SHELL, held.prefix) as (daemon, page):
            hogs = HOGS_TOGETHER if held.together else HOGS
            for number, hog in enumerate(hogs):
                assert (await page.answered(await page.say(f"/shell {hog}")))["ok"]
                await page.until(lambda number=number: len(results(page)) > number, 50)
                assert (await page.answered(await page.say(f"after {number}")))["ok"]
            assert daemon.process is not None
            died = daemon.process.returncode is not None
            figure("F29", "deaths of the daemon by a tool that took all memory", died, 0, of=len(hogs))
            assert [one["status"] for one in results(page)] == ["error"] * len(hogs), results(page)
            await until_quiet(daemon)
            assert await daemon.stop() == 0, daemon.log[-3000:]


def results(page: Visitor) -> list[dict[str, object]]:
    """Of the calls that ended, in order."""
    return [row["result"] for row in page.of("step", kind="tool") if row["result"]]
