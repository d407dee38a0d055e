"""Samples of the daemon from outside, every few seconds, and the slope of each. No part of a path."""

from __future__ import annotations

import asyncio
import json
import math
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from tests.bench.measure import MEGABYTE_KB, pss_mb, tree
from tests.fault.rig import figures, resident_kib
from tests.support.daemon import Daemon

HOUR_S = 3600.0
MEGABYTE = 1024 * 1024
ANSWERS_WITHIN_S = 10.0
TABLES = (
    *("events", "sessions", "turns", "messages", "steps", "waits", "slots", "cards", "spent", "audit", "grants"),
    *("refusals", "people", "owner_chats", "codes", "cookies", "failures", "page_seen", "holds", "notes", "poison"),
    "told",
)
GROW_WITH_WORK = frozenset(TABLES[:11])
"""The record of what was said and done: it is kept. All other tables are bounded by how many people and places there
are, however long it lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a life."""

    at_s: float
    """Seconds since the soak began."""
    life: int
    """The first is 1."""
    resting: bool
    """Nobody writes, and nothing is to be done."""
    rss_mb: float
    pss_mb: float
    children: int
    children_pss_mb: float
    descriptors: int
    files: int
    """Those of them that are no sockets: connections stay open for some seconds after their last use."""
    threads: int
    tasks: int
    answer_ms: float
    """Response time of /healthz: the delay of the event loop and the machine."""
    wal_mb: float
    database_mb: float
    rows: Mapping[str, int]
    """By table."""


@dataclass(frozen=True, slots=True)
class Slope:
    """A line through what was sampled."""

    an_hour: float
    error: float
    """One standard error of the slope."""
    over_s: float
    """Time that the line covers; 0: there is none."""


def slope(points: Sequence[tuple[float, float]]) -> Slope:
    """The line of least squares through points of seconds and values. There is none through fewer than three
    points, or through a single moment."""
    count = len(points)
    times, values = [at for at, _ in points], [value for _, value in points]
    middle = sum(times) / count if count else 0.0
    spread = sum((at - middle) ** 2 for at in times)
    if count < 3 or spread == 0:
        return Slope(0.0, 0.0, 0.0)
    mean = sum(values) / count
    rise = sum((at - middle) * (value - mean) for at, value in points) / spread
    rest = sum((value - mean - rise * (at - middle)) ** 2 for at, value in points)
    error = math.sqrt(rest / (count - 2) / spread)
    return Slope(rise * HOUR_S, error * HOUR_S, max(times) - min(times))


@dataclass(slots=True, kw_only=True)
class Sampler:
    """Looks at the daemon now and then, whichever life it is in."""

    daemon: Daemon
    every_s: float
    samples: list[Sample] = field(default_factory=list[Sample])
    resting: bool = False
    missed: int = 0
    """Failed samples: it was dead, or just starting."""
    _began: float = field(default_factory=time.monotonic)

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            await asyncio.sleep(self.every_s)
            await self.take()

    async def take(self) -> Sample | None:
        """Take one now; None when no life can be asked."""
        pid = self.daemon.process.pid if self.daemon.process is not None else 0
        try:
            async with asyncio.timeout(ANSWERS_WITHIN_S):
                sample = await self._look(pid)
        except (aiohttp.ClientError, OSError, LookupError, TimeoutError):
            self.missed += 1
            return None
        self.samples.append(sample)
        return sample

    async def _look(self, pid: int) -> Sample:
        life, resting = self.daemon.lives, self.resting
        answer_ms = await _answer_ms(self.daemon.url)
        counts = await figures(self.daemon)
        store = self.daemon.state / "dragoman.db"
        rows = await asyncio.to_thread(rows_of, store)
        children, children_pss_mb = _children(pid)
        descriptors = _descriptors(pid)
        return Sample(
            at_s=time.monotonic() - self._began,
            life=life,
            resting=resting,
            rss_mb=resident_kib(pid) / MEGABYTE_KB,
            pss_mb=pss_mb(pid),
            children=children,
            children_pss_mb=children_pss_mb,
            descriptors=len(descriptors),
            files=sum(not one.startswith("socket:") for one in descriptors),
            threads=len(os.listdir(f"/proc/{pid}/task")),
            tasks=counts["tasks"],
            answer_ms=answer_ms,
            wal_mb=_size_mb(store.with_name(f"{store.name}-wal")),
            database_mb=_size_mb(store),
            rows=rows,
        )


def _descriptors(pid: int) -> list[str]:
    """Return the open files of a process."""
    found: list[str] = []
    for one in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile
            found.append(os.readlink(f"/proc/{pid}/fd/{one}"))
    return found


def connections(pid: int) -> list[str]:
    """The TCP sockets of a process, as `port to port, state`: they tell what a rest has more than an earlier one."""
    inodes = {one.removeprefix("socket:[").removesuffix("]") for one in _descriptors(pid) if one.startswith("socket:")}
    found: list[str] = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, here, there, state, *rest = line.split()
        if rest[5] in inodes:
            found.append(f"{int(here.partition(':')[2], 16)} to {int(there.partition(':')[2], 16)}, {state}")
    return sorted(found)


def _children(pid: int) -> tuple[int, float]:
    """Return the number of live descendants of a process, and their memory in MB."""
    count, memory = 0, 0.0
    for one in tree(pid):
        with suppress(OSError, LookupError):  # it ended meanwhile
            memory += pss_mb(one)
            count += 1
    return count, memory


async def _answer_ms(url: str) -> float:
    async with aiohttp.ClientSession() as client:
        began = time.monotonic()
        async with client.get(f"{url}/healthz") as response:
            await response.read()
        return (time.monotonic() - began) * 1000


def _size_mb(path: Path) -> float:
    return path.stat().st_size / MEGABYTE if path.exists() else 0.0


def rows_of(store: Path) -> dict[str, int]:
    """Return the number of rows of each table; empty when the store cannot be read now."""
    query = " UNION ALL ".join(f"SELECT '{table}', count(*) FROM {table}" for table in TABLES)
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as reader:
        return dict(reader.execute(query).fetchall())
    return {}


def longest_callback(path: Path) -> tuple[float, str]:
    """Milliseconds of CPU of the longest callback of a life's loop, and what it was, as `tests.bench.channel` wrote."""
    found: dict[str, object] = {}
    with suppress(OSError, ValueError):  # not written yet, or being written
        found = json.loads(path.read_text())
    return float(str(found.get("ms", 0.0))), str(found.get("what", "none"))


def session_ids(store: Path) -> list[str]:
    """All sessions, ended sub-sessions too, which the store's own list cuts off."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as reader:
        return [str(id) for (id,) in reader.execute("SELECT id FROM sessions ORDER BY seq").fetchall()]
