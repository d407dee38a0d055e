"""F06: the write-ahead log of a killed daemon is damaged or cut short, its database while it runs. All is reported."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.domain.messages import Received
from tests.fault.rig import health, stored, until_quiet, visiting
from tests.support.daemon import Daemon
from tests.support.patience import PATIENCE_S
from tests.support.proof import KILLS, LOST, counted, figure, times

MAIN = "main:owner"
NAMES = ("dragoman.db", "dragoman.db-wal", "dragoman.db-shm")
SAID = [f"message {n}" for n in range(20)]
RUNBOOK = Path(__file__).parents[2] / "deploy" / "RUNBOOK.md"

Damage = Callable[[Path], None]


@pytest_asyncio.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    """One that lives, without a model."""
    found = Daemon(folder=tmp_path, warm=True)
    await found.start()
    try:
        yield found
    finally:
        await found.kill()


async def killed_after(daemon: Daemon, said: list[str]) -> dict[str, bytes]:
    """Say things, kill it when all was taken and answered; returns what its files hold."""
    async with visiting(daemon, "owner") as page:
        for text in said:
            assert (await page.answered(await page.say(text)))["ok"]
        await until_quiet(daemon)
        await daemon.kill()
    counted(KILLS, 1, "F06")
    return {name: (daemon.state / name).read_bytes() for name in NAMES}


def put(state: Path, files: dict[str, bytes]) -> None:
    """Make the store's files what they were."""
    for name in NAMES:
        (state / name).write_bytes(files[name])


async def found(state: Path) -> list[str]:
    """Return the stored ones of the sent texts."""
    return [one.message.text for one in await stored(state, MAIN) if isinstance(one, Received)]


# --- the write-ahead log --------------------------------------------------------------------------


SECTOR = 512
"""Bytes that a disk writes as one."""


def flipped(percent: int, count: int) -> Damage:
    """Some bytes of the log are turned around."""

    def damage(state: Path) -> None:
        log = state / "dragoman.db-wal"
        content = bytearray(log.read_bytes())
        first = min(len(content) * percent // 100, len(content) - count)
        for at in range(first, first + count):
            content[at] ^= 0xFF
        log.write_bytes(content)

    return damage


def ended_by_a_commit(state: Path) -> None:
    """Cut what stands behind the last commit of the log whose damage can be told: one of 64 begins in two sectors.

    The format of SQLite's log: a header of 32 bytes, the page size at 8 and the salts at 16; then frames of 24 bytes
    and a page each. A frame has the header's salts at 8, and at 4 something that is not zero where it is a commit.
    """
    log = state / "dragoman.db-wal"
    content = log.read_bytes()
    frame, salts = 24 + int.from_bytes(content[8:12], "big"), content[16:24]
    at, end = 32, 0
    while content[at + 8 : at + 16] == salts:
        if any(content[at + 4 : at + 8]) and (at + 8) % SECTOR:
            end = at + frame
        at += frame
    assert end
    log.write_bytes(content[:end])


def cut(percent: int) -> Damage:
    """The log's end is gone."""

    def damage(state: Path) -> None:
        log = state / "dragoman.db-wal"
        content = log.read_bytes()
        log.write_bytes(content[: len(content) * percent // 100])

    return damage


def all_gone(state: Path) -> None:
    """Somebody removed it, to mend something."""
    (state / "dragoman.db-wal").unlink()


def database_emptied(state: Path) -> None:
    """SQLite would delete the log then."""
    (state / "dragoman.db").write_bytes(b"")


def without_index(damage: Damage) -> Damage:
    """The index is gone too."""

    def both(state: Path) -> None:
        damage(state)
        (state / "dragoman.db-shm").unlink()

    return both


DAMAGES: dict[str, Damage] = {
    **{f"a byte at {percent} %": flipped(percent, 1) for percent in times((60,), (10, 30, 60, 90))},
    **{f"600 bytes at {percent} %": flipped(percent, 600) for percent in times((10, 90), (10, 30, 60, 90))},
    "a byte at 30 %, and no index": without_index(flipped(30, 1)),
    "the header": flipped(0, 8),
    "cut in the middle": cut(50),
    "removed": all_gone,
    "an empty database beside it": database_emptied,
}


@pytest.mark.timeout(times(120, 300))
async def test_a_damaged_log_is_reported(daemon: Daemon) -> None:
    """The start is refused, with what is lost and what to do, and again; the files stay; mended, all is there."""
    files = await killed_after(daemon, SAID)
    untold: list[str] = []
    for name, damage in DAMAGES.items():
        put(daemon.state, files)
        damage(daemon.state)
        before = {file.name: file.read_bytes() for file in daemon.state.iterdir() if file.name in NAMES}
        await daemon.start(ready=False)
        code = await daemon.died()
        said = (daemon.folder / f"log-{daemon.lives:02}.txt").read_text()
        wanted = ("damaged" in said, "dragoman.db-wal" in said, "backup" in said)
        if code != 1 or not all(wanted) or "Traceback" in said:
            untold.append(f"{name}: {code} {said}")
        assert {file.name: file.read_bytes() for file in daemon.state.iterdir() if file.name in NAMES} == before
    figure("F06", "damages of the write-ahead log that were not told", len(untold), 0, of=len(DAMAGES))
    put(daemon.state, files)
    await daemon.start()
    assert await daemon.stop() == 0
    figure("F06", LOST, len(set(SAID) - set(await found(daemon.state))), 0, of=len(SAID))


async def test_runbook_step_keeps_frames_before_the_damage(daemon: Daemon) -> None:
    """As written there: the state is copied away, the log's whole part moved into the database, and work goes on."""
    files = await killed_after(daemon, SAID)
    flipped(60, 600)(daemon.state)
    damaged = (daemon.state / "dragoman.db-wal").read_bytes()
    line = r"^ +sudo -u dragoman python3 (-c '.*') /var/lib/dragoman/dragoman\.db$"
    (written,) = re.findall(line, RUNBOOK.read_text(), re.MULTILINE)
    copy = daemon.folder / "copy"
    shutil.copytree(daemon.state, copy, ignore=shutil.ignore_patterns("*.sock"))
    step = await asyncio.create_subprocess_exec(
        sys.executable, *shlex.split(written), str(daemon.state / "dragoman.db")
    )
    assert await step.wait() == 0
    await daemon.start()
    assert await daemon.stop() == 0
    left = await found(daemon.state)
    assert left == SAID[: len(left)]
    assert 0 < len(left) < len(SAID)
    assert (copy / "dragoman.db-wal").read_bytes() == damaged
    put(daemon.state, files)
    assert await found(daemon.state) == SAID


@pytest.mark.whole("the store's own tests of what a power cut leaves stay")
async def test_log_torn_by_a_power_cut_opens_with_a_note(daemon: Daemon) -> None:
    """The last transaction is not whole, and no index says more: the rest is there, and a line in the log says so."""
    files = await killed_after(daemon, SAID)
    ended_by_a_commit(daemon.state)
    without_index(flipped(100, 100))(daemon.state)
    await daemon.start()
    assert await daemon.stop() == 0
    assert "not wholly written when the machine went down" in daemon.log
    left = await found(daemon.state)
    assert left in (SAID, SAID[:-1])
    put(daemon.state, files)
    assert await found(daemon.state) == SAID


# --- the database, at run time --------------------------------------------------------------------


async def test_damage_while_it_runs_is_reported(daemon: Daemon) -> None:
    """Later messages are kept or refused in words; /readyz and the log name the damage and the cure."""
    async with visiting(daemon, "owner") as page:
        for text in SAID:
            assert (await page.answered(await page.say(text)))["ok"]
        await until_quiet(daemon)
        database = daemon.state / "dragoman.db"
        with closing(sqlite3.connect(database)) as other:
            other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        with database.open("r+b") as file:
            content = bytearray(file.read())
            for at in range(4096, len(content), 256):
                content[at] ^= 0xFF
            file.seek(0)
            file.write(content)
        await page.say("afterwards")
        async with asyncio.timeout(PATIENCE_S):
            while (answer := await health(daemon))[0] == 200:
                await page.say("and again")
                await asyncio.sleep(0.2)
    assert "damaged" in answer[1]
    assert "backup" in answer[1]
    assert await daemon.stop() == 0
    told = [line for line in daemon.log.splitlines() if "the store is damaged" in line]
    assert 1 <= len(told) <= 2, "once, not at each failure; once more by those who read"
    assert "Traceback" not in daemon.log
