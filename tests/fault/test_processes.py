"""F23 at the wire: commands that flood, hang, fork, escape or die. The daemon stays small, quick and alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from tests.fault.rig import Json, Visitor, marked, resident_kib, until, visiting, zombies_of
from tests.support.daemon import Daemon
from tests.support.proof import figure

MIB = 1024
ESCAPES = (
    "setsid sleep {n} & wait",
    "setsid setsid sh -c 'setsid sleep {n} & sleep {n}' & sleep {n}",
    "(trap '' TERM HUP INT; sleep {n}) & sleep {n}",
    "nohup sleep {n} >/dev/null 2>&1 & disown; sleep {n}",
)
"""Ways of a command to outlive its end: as many as may run side by side."""
_numbers = count(time.monotonic_ns() % 10**8)


def fresh() -> str:
    """Seconds to sleep that no other process of this machine sleeps: finds what is left of a command."""
    return f"9{next(_numbers)}"


BOMB_ON_HOST = pytest.param("host", marks=pytest.mark.whole("it slows the machine down; the one in bubblewrap stays"))


@pytest_asyncio.fixture(params=["basic", "host"])
async def page(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Visitor]:
    """A page on a daemon whose shell runs in bubblewrap, or on the host as the owner configured."""
    sandbox = "off" if request.param == "host" else "basic"
    daemon = Daemon(folder=tmp_path, warm=True, config=f'[tools.shell]\nsandbox = "{sandbox}"\ntimeout = "2s"\n')
    await daemon.start()
    try:
        async with visiting(daemon, "owner") as found:
            yield found
    finally:
        await daemon.kill()


def pid_of(page: Visitor) -> int:
    """The daemon's process id."""
    assert page.daemon.process is not None
    return page.daemon.process.pid


async def allow(page: Visitor, command: str) -> str:
    """Say a command and press Once; returns the turn."""
    known = {row["id"] for row in page.of("approval")}
    await page.answered(await page.say(f"/shell {command}"))

    def asked() -> list[Json]:
        return [row for row in page.of("approval", state="open") if row["id"] not in known]

    await page.until(lambda: bool(asked()))
    [wait] = asked()
    assert (await page.answered(await page.press(page.handles[wait["id"], "once"])))["result"] == "approved"
    return str(wait["turn"])


async def result(page: Visitor, turn: str, within_s: float = 15) -> Json:
    """Return the result of the turn's call."""
    step = await page.row("step", within_s, turn=turn, kind="tool", state="finished")
    return step["result"]


class Health:
    """Asks /healthz all the time and keeps the longest answer; looks at the daemon's memory too."""

    def __init__(self, page: Visitor) -> None:
        """Know the daemon."""
        self._url = f"{page.daemon.url}/healthz"
        self._pid = pid_of(page)
        self._before = resident_kib(self._pid)
        self.asked = 0
        self.slowest_s = 0.0
        self.grown_kib = 0

    async def watch(self) -> None:
        """Until cancelled."""
        async with aiohttp.ClientSession() as client:
            while True:
                began = time.monotonic()
                async with client.get(self._url) as response:
                    assert response.status == 200
                self.asked += 1
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                self.grown_kib = max(self.grown_kib, resident_kib(self._pid) - self._before)
                await asyncio.sleep(0.05)


def nothing_outlived(marker: str) -> None:
    """State what of a command is left."""
    figure("F23", "processes that outlived their command", len(marked(marker)), 0, of=1)


def nothing_is_left(page: Visitor, marker: str = "", *, health: Health | None = None) -> None:
    """The same, and what the daemon has not waited for, and how slow it was."""
    if marker:
        nothing_outlived(marker)
    figure("F23", "zombies", len(zombies_of(pid_of(page))), 0, of=1)
    if health is not None:
        figure("F23", "slowest answer of the daemon meanwhile", health.slowest_s, 1.0, "s")


@pytest.mark.by_the_clock
@pytest.mark.parametrize("command", ["yes", "yes >&2 & cat /dev/zero"])
@pytest.mark.sampled(1)
async def test_a_flood_of_output(page: Visitor, command: str) -> None:
    """Two seconds of it: bounded memory, a responsive daemon, head and tail kept, and told how much is not shown."""
    health = Health(page)
    watching = asyncio.create_task(health.watch())
    turn = await allow(page, command)
    told = await result(page, turn)
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    assert told["status"] == "timeout"
    assert told["dropped_bytes"] > 1_000_000
    assert len(told["text"]) < 200_000
    assert health.asked > 8
    figure("F23", "memory that the daemon grew in a flood of output", health.grown_kib / MIB, 30, "MiB")
    nothing_is_left(page, health=health)


@pytest.mark.by_the_clock
@pytest.mark.parametrize("page", ["basic", BOMB_ON_HOST], indirect=True)
async def test_a_fork_bomb(page: Visitor) -> None:
    """Stopped by its number; nothing of it is left, and the daemon answers meanwhile.

    One that doubles, as `:(){ :|:& };:` does, is for the sandbox's own tests: it slows down the whole machine.
    """
    marker = fresh()
    health = Health(page)
    watching = asyncio.create_task(health.watch())
    turn = await allow(page, f"while :; do env sleep {marker} & done")
    told = await result(page, turn)
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    assert told["status"] in ("error", "timeout")
    nothing_is_left(page, marker, health=health)


async def begin(page: Visitor, escape: str) -> tuple[str, str]:
    """Run a command that tries to get away; returns its turn and its marker, once it runs."""
    marker = fresh()
    turn = await allow(page, f"echo begun; {escape.format(n=marker)}")
    await until(lambda: marked(f"sleep {marker}"))
    return turn, marker


@pytest.mark.by_the_clock
@pytest.mark.sampled(1)
async def test_nothing_escapes_a_stop(page: Visitor) -> None:
    """/stop within a second ends the whole tree, whatever it did to get away."""
    for escape in ESCAPES:
        turn, marker = await begin(page, escape)
        await asyncio.sleep(0.2)
        began = time.monotonic()
        await page.answered(await page.say("/stop"))
        told = await result(page, turn)
        figure(
            "F23", "from /stop to the result of a command that tried to get away", time.monotonic() - began, 1.0, "s"
        )
        assert (told["status"], told["text"]) == ("cancelled", "begun\n"), escape
        nothing_is_left(page, marker)


@pytest.mark.sampled(1)
async def test_nothing_escapes_a_timeout(page: Visitor) -> None:
    """The same for the timeout, with all of them side by side: each ends its own."""
    begun = [await begin(page, escape) for escape in ESCAPES]
    for escape, (turn, marker) in zip(ESCAPES, begun, strict=True):
        told = await result(page, turn)
        assert (told["status"], told["text"]) == ("timeout", "begun\n"), escape
        nothing_outlived(marker)
    nothing_is_left(page)


@pytest.mark.sampled(1)
async def test_nothing_outlives_the_command(page: Visitor) -> None:
    """Background processes end with the command; the result does not wait for them."""
    for escape in ("setsid sleep {n} &", "nohup setsid sleep {n} >/dev/null 2>&1 & disown;", "env sleep {n} &"):
        marker = fresh()
        began = time.monotonic()
        turn = await allow(page, f"{escape.format(n=marker)} echo done")
        told = await result(page, turn)
        assert (told["status"], told["text"]) == ("ok", "done\n"), escape
        assert time.monotonic() - began < 3, escape
        nothing_is_left(page, marker)


@pytest.mark.sampled(1)
async def test_killed_command_has_an_exit_code(page: Visitor) -> None:
    """Killed by itself, by a signal, or told to leave: an exit code, and the next command works."""
    for command, code in [("kill -9 $$", 137), ("kill -SEGV $$", 139), ("exit 3", 3), ("exec false", 1)]:
        told = await result(page, await allow(page, command))
        assert (told["status"], told["exit_code"]) == ("error", code)
    assert (await result(page, await allow(page, "env echo fine")))["text"] == "fine\n"


@pytest.mark.sampled(1)
async def test_command_dies_with_the_daemon(page: Visitor) -> None:
    """Killed by `kill -9`, the daemon takes every process with it, those with a session of their own too."""
    marker = fresh()
    await allow(page, f"setsid sleep {marker} & sleep {marker}")
    await until(lambda: len(marked(f"sleep {marker}")) >= 2)
    await page.daemon.kill()
    await until(lambda: not marked(marker), within_s=2)


@pytest.mark.sampled(1)
async def test_somebody_elses_process_is_left_alone(page: Visitor) -> None:
    """A process with the very same arguments, which is not the command's, lives on."""
    marker = fresh()
    decoy = await asyncio.create_subprocess_exec("sleep", marker)
    try:
        turn = await allow(page, f"exec sleep {marker}")
        await page.row("step", turn=turn, kind="tool", state="started")
        await until(lambda: len(marked(f"sleep {marker}")) >= 2)
        await page.answered(await page.say("/stop"))
        assert (await result(page, turn))["status"] == "cancelled"
        assert list(marked(marker)) == [decoy.pid]
    finally:
        decoy.kill()
        await decoy.wait()
