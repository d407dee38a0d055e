"""F07: the power goes. The daemon's disk forgets what was not synced; what was acknowledged is there all the same."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.domain.messages import Received
from gateway.errors import StoreDamaged
from tests.fault.rig import stored, until_quiet, visiting
from tests.support.daemon import Daemon, environment
from tests.support.power import Disk, Fate, Record, read, watched
from tests.support.proof import dice, figure, times

MAIN = "main:owner"
LIVES = 2
MESSAGES = times(45, 150, small=6)
"""In each life, one after the other; then as many again by three at once."""
AT_ONCE = 3
CUTS = times(40, 2_000, small=6)
"""At random places, beside those right after each acknowledgement."""

NOT_WATCHED = (
    "nothing was recorded: this Python's SQLite is built in so that it cannot be watched. Run this test with a Python "
    "whose sqlite3 is a library of its own, such as Debian's"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """An accepted message, and the position of the recording when its sender knew."""

    text: str
    at: int


@dataclass(slots=True)
class Day:
    """Recorded writes of a daemon, and its acknowledgements meanwhile."""

    daemon: Daemon
    record: Path
    acknowledged: list[Acknowledged]

    async def live(self, life: int) -> None:
        """One life: messages one by one and some at once, and an end, clean or not."""
        await self.daemon.start(watched(environment(), self.record))
        assert await asyncio.to_thread(self.record.exists), NOT_WATCHED
        async with visiting(self.daemon, "owner") as page:

            async def say(n: int) -> None:
                answer = await page.answered(await page.say(f"{life}: {n}", f"message-{life}-{n:05}"))
                assert answer["ok"], answer
                self.acknowledged.append(Acknowledged(text=f"{life}: {n}", at=os.stat(self.record).st_size))

            for n in range(MESSAGES):
                await say(n)
            for first in range(MESSAGES, 2 * MESSAGES, AT_ONCE):
                async with asyncio.TaskGroup() as group:
                    for n in range(first, first + AT_ONCE):
                        group.create_task(say(n))
            await until_quiet(self.daemon, 60)
        if life < LIVES:
            assert await self.daemon.stop() == 0
        else:
            await self.daemon.kill()


def places(day: Day, records: list[Record], chosen: random.Random) -> list[tuple[int, Fate]]:
    """Return the moments of the power cut: right after each acknowledgement, only synced data kept; and anywhere."""
    strict = [(one.at, Fate.LOST) for one in day.acknowledged]
    fates = (Fate.TORN, Fate.TORN, Fate.LOST, Fate.KEPT)
    others = [(chosen.choice(records).end, chosen.choice(fates)) for _ in range(CUTS)]
    return sorted(strict + others, key=lambda one: one[0])


@pytest.mark.timeout(times(180, 3_600))
async def test_acknowledged_messages_survive_a_power_cut(tmp_path: Path) -> None:
    """Wherever it goes, whatever a disk made of writes under way: the store opens, what was taken is there once."""
    day = Day(Daemon(folder=tmp_path), tmp_path / "recording", [])
    try:
        for life in range(1, LIVES + 1):
            await day.live(life)
    finally:
        await day.daemon.kill()
    records, chosen = list(read(day.record.read_bytes())), dice("F07")
    assert {record.what for record in records} == {"create", "open", "write", "sync", "truncate", "delete"}
    lost, twice, refused, promised = 0, 0, 0, 0
    disk, coming = Disk(), iter(records)
    record = next(coming, None)
    cuts = places(day, records, chosen)
    for place, fate in cuts:
        while record is not None and record.end <= place:
            disk.do(record)
            record = next(coming, None)
        wanted = {one.text for one in day.acknowledged if one.at <= place}
        promised += len(wanted)
        try:
            found = await after(disk.after_a_cut(fate, chosen), tmp_path / "cut")
        except StoreDamaged:
            refused += 1
            continue
        lost += len(wanted - set(found))
        twice += found.total() - len(found)
    # Each is looked for after every cut behind it, so these numbers are no part of all faults' sums.
    figure("F07", "acknowledged messages gone after a power cut", lost, 0, of=promised)
    figure("F07", "messages there twice after a power cut", twice, 0, of=promised)
    figure("F07", "power cuts taken for damage", refused, 0, of=len(cuts))


async def after(files: dict[str, bytes], folder: Path) -> Counter[str]:
    """Return the stored ones of the sent texts when the power is back."""
    put(files, folder)
    try:
        return Counter(one.message.text for one in await stored(folder, MAIN) if isinstance(one, Received))
    finally:
        shutil.rmtree(folder)


def put(files: dict[str, bytes], folder: Path) -> None:
    """Write what is left into a folder of its own."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
