"""F05, F06 and F30: another program holds the store's lock, its files are damaged, its audit cannot be written."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from gateway.domain.messages import Received
from gateway.domain.steps import Step
from gateway.domain.tools import ResultStatus
from tests.fault.rig import Visitor, lines_of, stored, until, until_quiet, visiting
from tests.support.daemon import Daemon
from tests.support.proof import KILLS, LOST, TWICE, counted, figure, times

MAIN = "main:owner"
HELD_S = times((2.0,), (1.0, 5.0, 30.0))
ANSWERS_WITHIN_S = 1.0
"""Of /healthz: the loop itself may stall for 0.1 s, the rest is the machine's and the wire's."""


@pytest_asyncio.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    """One that lives, without a model."""
    found = Daemon(folder=tmp_path, warm=True)
    await found.start()
    try:
        yield found
    finally:
        await found.kill()


def store_of(daemon: Daemon) -> Path:
    """The store's file."""
    return daemon.state / "dragoman.db"


async def texts_of(daemon: Daemon) -> Counter[str]:
    """Return the stored ones of the sent texts, once the daemon has stopped."""
    return Counter(one.message.text for one in await stored(daemon.state, MAIN) if isinstance(one, Received))


# --- F05 ------------------------------------------------------------------------------------------


@contextmanager
def held(path: Path) -> Generator[None]:
    """Nobody else can write."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


async def slowest_answer(daemon: Daemon, seconds: float) -> float:
    """Ask /healthz all the time; the longest wait for an answer."""
    slowest, end = 0.0, time.monotonic() + seconds
    async with aiohttp.ClientSession() as client:
        while (began := time.monotonic()) < end:
            async with client.get(f"{daemon.url}/healthz") as response:
                assert response.status == 200
            slowest = max(slowest, time.monotonic() - began)
            await asyncio.sleep(0.02)
    return slowest


async def insist(page: Visitor, text: str) -> int:
    """Say something until it is taken; returns how often it was refused."""
    refused = 0
    while not (await page.answered(await page.say(text), within_s=60))["ok"]:
        refused += 1
        await asyncio.sleep(0.2)
    return refused


@pytest.mark.timeout(times(60, 180))
@pytest.mark.parametrize("seconds", HELD_S)
async def test_another_program_holds_the_lock(daemon: Daemon, seconds: float) -> None:
    """Messages wait or are refused in words, nothing else does; afterwards all that was said is there once."""
    said = [f"message {n}" for n in range(10)]
    async with visiting(daemon, "owner") as page:
        async with asyncio.TaskGroup() as group:
            with held(store_of(daemon)):
                saying = [group.create_task(insist(page, text)) for text in said]
                slowest_s = await slowest_answer(daemon, seconds)
        assert await page.answered(await page.say("afterwards"), within_s=5)
        await until_quiet(daemon)
    assert await daemon.stop() == 0
    assert "Traceback" not in daemon.log
    found, wanted = await texts_of(daemon), Counter([*said, "afterwards"])
    figure("F05", LOST, (wanted - found).total(), 0, of=wanted.total())
    figure("F05", TWICE, (found - wanted).total(), 0, of=wanted.total())
    figure("F05", "slowest answer of the daemon meanwhile", slowest_s, ANSWERS_WITHIN_S, "s")
    assert sum(task.result() for task in saying) < 10 * seconds * 5


async def test_its_files_are_taken_away_and_put_back(daemon: Daemon) -> None:
    """It says so and takes nothing that would be lost; with the files back, work goes on by itself."""
    store, away = store_of(daemon), daemon.folder / "away"
    away.mkdir()
    async with visiting(daemon, "owner") as page, aiohttp.ClientSession() as client:
        assert (await page.answered(await page.say("before")))["ok"]
        for file in daemon.state.glob("dragoman.db*"):
            file.rename(away / file.name)
        async with client.get(f"{daemon.url}/readyz") as response:
            assert response.status == 503
            assert "was moved, removed or replaced" in await response.text()
        saying = asyncio.create_task(insist(page, "meanwhile"))
        await until(lambda: "was moved, removed or replaced" in daemon.log)
        await asyncio.sleep(2.5)
        assert not store.exists()
        assert daemon.log.count("\n") < 100
        for file in away.iterdir():
            file.rename(daemon.state / file.name)
        assert await saying > 0
        await daemon.until_ready()
        await until_quiet(daemon)
    assert await daemon.stop() == 0
    assert "Traceback" not in daemon.log
    assert await texts_of(daemon) == Counter(["before", "meanwhile"])


# --- F30 ------------------------------------------------------------------------------------------


def change(daemon: Daemon, statement: str) -> None:
    """Change the store of a running daemon from outside."""
    with closing(sqlite3.connect(store_of(daemon), isolation_level=None, timeout=10)) as db:
        db.execute(statement)


async def test_a_command_whose_audit_cannot_be_written_does_not_run(daemon: Daemon) -> None:
    """It was allowed, and still nothing runs; once there is room for its row, it runs once."""
    async with visiting(daemon, "owner") as page:
        await page.answered(await page.say("/shell echo x >> ran"))
        asked = await page.row("approval", state="open")
        change(daemon, "CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT raise(ABORT, 'no room for it'); END")
        pressed = await page.answered(await page.press(page.handles[asked["id"], "once"]))
        assert pressed["result"] == "approved"
        await until(lambda: "no room for it" in daemon.log)
        await asyncio.sleep(1.5)  # it is tried again every second
        figure("F30", "commands run without a row of the audit", len(lines_of(daemon.state, "ran")), 0, of=1)
        change(daemon, "DROP TRIGGER full")
        await until_quiet(daemon)
    assert lines_of(daemon.state, "ran") == ["x"]
    assert await daemon.stop() == 0
    [step] = [one for one in await stored(daemon.state, MAIN) if isinstance(one, Step) and one.call is not None]
    assert step.result is not None
    assert step.result.status is ResultStatus.OK


# --- F06 ------------------------------------------------------------------------------------------


def flip(path: Path, first: int, count: int) -> None:
    """Turn bytes around."""
    content = bytearray(path.read_bytes())
    for at in range(first, min(first + count, len(content))):
        content[at] ^= 0xFF
    path.write_bytes(content)


def in_the_first_page(path: Path) -> None:
    """Behind the header of 100 bytes: the schema."""
    flip(path, 100, 600)


def in_the_header(path: Path) -> None:
    """Damage the mark of a database."""
    flip(path, 0, 16)


def in_the_middle(path: Path) -> None:
    """Every page but the first."""
    content = bytearray(path.read_bytes())
    for at in range(4096, len(content), 256):
        content[at] ^= 0xFF
    path.write_bytes(content)


def cut_short(path: Path) -> None:
    """The second half is gone."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def without_shm(path: Path) -> None:
    """Remove the file that SQLite can recreate."""
    path.with_name("dragoman.db-shm").unlink()


def shm_of_junk(path: Path) -> None:
    """Fill with junk the file that SQLite recreates as well."""
    path.with_name("dragoman.db-shm").write_bytes(b"\xa5" * 32768)


DAMAGES = times(
    (in_the_first_page, in_the_middle, shm_of_junk),
    (in_the_header, in_the_first_page, in_the_middle, cut_short, without_shm, shm_of_junk),
)


@pytest.mark.parametrize("clean", times((False,), (True, False)), ids=lambda clean: "stopped" if clean else "killed")
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.sampled(1)
async def test_damaged(daemon: Daemon, damage: Callable[[Path], None], clean: bool) -> None:
    """It refuses to start and says what to do, or everything that was said is still there."""
    said = [f"message {n}" for n in range(5)]
    async with visiting(daemon, "owner") as page:
        for text in said:
            assert (await page.answered(await page.say(text)))["ok"]
        await until_quiet(daemon)
    if clean:
        assert await daemon.stop() == 0
    else:
        await daemon.kill()
        counted(KILLS, 1, "F06")
    if damage in (without_shm, shm_of_junk) and clean:
        assert not store_of(daemon).with_name("dragoman.db-shm").exists()
    else:
        damage(store_of(daemon))
    await daemon.start(ready=False)
    with suppress(AssertionError):
        await daemon.until_ready()
    assert daemon.process is not None
    if daemon.process.returncode is None:
        assert await daemon.stop() == 0
        found = await texts_of(daemon)
        changed = (Counter(said) - found).total() + (found - Counter(said)).total()
    else:
        changed = 0
        last = (daemon.folder / f"log-{daemon.lives:02}.txt").read_text()
        assert daemon.process.returncode not in (0, -signal.SIGKILL)
        assert "Traceback" not in last
        assert "backup" in last or "store.url" in last, last
    figure("F06", "messages changed or lost without a word", changed, 0, of=len(said))
