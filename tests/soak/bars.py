"""Limits of a soak: each figure beside its maximum. No part of the path of a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

from tests.soak.samples import GROW_WITH_WORK, TABLES, Sample, Slope, slope
from tests.support.proof import KILLS
from tests.support.proof_page import short

FAULT = "F31"
RSS_AN_HOUR_MB = 1.0
WAL_MB = 64.0
CALLBACK_MS = 100.0
ROWS_BY_CHANCE = 10
"""Somebody may write for the first time late, a chat may be banned late; a leak would be hundreds."""
JUDGED_FROM_S = 600.0
"""A line through less than this says nothing about an hour: its slope is told, and not judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One figure and the most that it may be."""

    what: str
    value: float
    bar: float
    unit: str = ""
    of: int | None = None
    see: str = ""
    """Hint for the case that it misses."""

    @property
    def held(self) -> bool:
        """Return True if it is within its bar."""
        return self.value <= self.bar

    def as_line(self, test: str, seed: int) -> dict[str, Any]:
        """As a test states it, for the page of `./run proof`."""
        stated = {"what": self.what, "value": self.value, "bar": self.bar, "unit": self.unit, "of": self.of}
        return {**stated, "fault": FAULT, "least": False, "held": self.held, "test": test, "seed": seed}

    def told(self) -> str:
        """For people, as a line."""
        value = short(self.value) + ("" if self.of is None else f" of {self.of:,}")
        found = f"{'ok    ' if self.held else 'MISSED'}  {self.what}: {value} {self.unit}".rstrip()
        return f"{found} (≤ {short(self.bar)}){'' if self.held or not self.see else f'  {self.see}'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Memory figures of a life while it is idle."""

    life: int
    descriptors: int
    files: int
    threads: int
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One life of the daemon in figures."""

    life: int
    over_s: float
    """From its first sample to its last."""
    samples: int
    rss: Slope
    """In MB an hour of a message a second, after it warmed up."""
    pss: Slope
    descriptors: Slope
    tasks: Slope
    rss_mb: float
    """The worst of it; so are the next ones."""
    with_children_mb: float
    most_descriptors: int
    most_tasks: int
    most_threads: int
    wal_mb: float
    database_mb: float
    answer_ms: float


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Everything that a soak found."""

    minutes: float
    per_s: float
    """Messages a second. In an hour there are as many as in so many hours of a message a second."""
    seed: int
    lives: Sequence[Life]
    bars: Sequence[Bar]
    kills: int
    counts: Mapping[str, int]
    """Counts of everything without a bar."""
    samples: Sequence[Sample] = field(default_factory=list[Sample])

    def misses(self) -> list[Bar]:
        """Return the missed bars."""
        return [bar for bar in self.bars if not bar.held]

    def as_json(self, about: Mapping[str, str]) -> dict[str, Any]:
        """For `--json`, and for the page of `./run proof`. `about`: commit, date and machine."""
        test = f"./run soak --minutes {self.minutes:g}{'' if self.per_s == 1 else f' --faster {self.per_s:g}'}"
        lines = [bar.as_line(test, self.seed) for bar in self.bars]
        kills = {"what": KILLS, "count": self.kills, "fault": FAULT, "test": test, "seed": self.seed}
        return {
            **about,
            "minutes": self.minutes,
            "per_s": self.per_s,
            "seed": self.seed,
            "kills": self.kills,
            "lines": [*lines, kills],
            "lives": [asdict(life) for life in self.lives],
            "counts": dict(self.counts),
            "samples": [asdict(sample) for sample in self.samples],
        }


def lives_of(samples: Sequence[Sample], warm_up_s: float, per_s: float = 1.0) -> list[Life]:
    """Each life in figures. A life's first `warm_up_s` are in no slope: everything is used for the first time then.

    Slopes are told for as many messages as an hour has at one a second; `per_s`: how many there were a second.
    """
    return [_life(life, list(mine), warm_up_s, per_s) for life, mine in groupby(samples, key=lambda one: one.life)]


def _life(number: int, samples: Sequence[Sample], warm_up_s: float, per_s: float) -> Life:
    began = samples[0].at_s
    warm = [one for one in samples if one.at_s - began >= warm_up_s and not one.resting]

    def through(values: Callable[[Sample], float]) -> Slope:
        return slope([(one.at_s * per_s, values(one)) for one in warm])

    return Life(
        life=number,
        over_s=samples[-1].at_s - began,
        samples=len(samples),
        rss=through(lambda one: one.rss_mb),
        pss=through(lambda one: one.pss_mb),
        descriptors=through(lambda one: one.descriptors),
        tasks=through(lambda one: one.tasks),
        rss_mb=max(one.rss_mb for one in samples),
        with_children_mb=max(one.pss_mb + one.children_pss_mb for one in samples),
        most_descriptors=max(one.descriptors for one in samples),
        most_tasks=max(one.tasks for one in samples),
        most_threads=max(one.threads for one in samples),
        wal_mb=max(one.wal_mb for one in samples),
        database_mb=max(one.database_mb for one in samples),
        answer_ms=max(one.answer_ms for one in samples),
    )


def bars_of_lives(lives: Sequence[Life], rests: Sequence[tuple[Rest, Rest]]) -> list[Bar]:
    """Return the bars of the samples. `rests`: of each life that is long enough, an early rest and a late one."""
    judged = [life for life in lives if life.rss.over_s >= JUDGED_FROM_S]
    beyond = [
        Bar(what=f"{name} at rest beyond those of an earlier rest", value=max([0, *grown]), bar=0)
        for name, grown in (
            ("descriptors", [late.descriptors - early.descriptors for early, late in rests]),
            ("files", [late.files - early.files for early, late in rests]),
            ("threads", [late.threads - early.threads for early, late in rests]),
            ("asyncio tasks", [late.tasks - early.tasks for early, late in rests]),
        )
    ]
    slopes = [Bar(what="slope of its memory", value=worst(judged), bar=RSS_AN_HOUR_MB, unit="MB an hour")]
    most = max((one.wal_mb for one in lives), default=0.0)
    wal = Bar(what="SQLite's write-ahead log", value=most, bar=WAL_MB, unit="MB")
    return [*(slopes if judged else []), *beyond, wal]


def worst(lives: Sequence[Life]) -> float:
    """The steepest rise of memory."""
    return max((life.rss.an_hour for life in lives), default=0.0)


def bar_of_rows(samples: Sequence[Sample]) -> Bar:
    """Tables that keep no record of work: the most rows of the second half of the time beyond those of the first."""
    middle = samples[-1].at_s / 2 if samples else 0.0
    first, second = ([one.rows for one in samples if (one.at_s < middle) is early] for early in (True, False))
    grown = {table: _most(second, table) - _most(first, table) for table in TABLES if table not in GROW_WITH_WORK}
    return Bar(
        what="rows that the second half of the time added to any table that keeps no record of work",
        value=max(0, *grown.values()),
        bar=ROWS_BY_CHANCE,
        see=", ".join(f"{table} {rows:+}" for table, rows in grown.items() if rows > 0),
    )


def _most(rows: Sequence[Mapping[str, int]], table: str) -> int:
    return max((one.get(table, 0) for one in rows), default=0)
