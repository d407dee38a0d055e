"""Figures of the bench, their budgets, and the table of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

HEAD = ("what", "figure", "floor", "x floor", "budget", "x budget", "holds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision that allows to miss a budget, up to a limit. Above the limit it is a miss like any other."""

    number: str
    """As its file in `gateway/decisions` begins."""
    times: float
    of: Literal["floor", "budget"]
    """Base of the multiple."""

    def told(self) -> str:
        """The decision in a cell."""
        return f"{self.number}: {self.times:.4g} x {self.of}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measurement, beside that of its floor in the same run."""

    what: str
    value: float
    unit: str = ""
    floor: float | None = None
    budget: float | None = None
    """The most it may be; with `at_least`, the least."""
    times: float | None = None
    """The same budget as a multiple of the floor: it decides when the machine is slower than the budget's."""
    at_least: bool = False
    decided: Decision | None = None
    """A budget that is missed, and whose miss was weighed and written down."""

    @property
    def ratio(self) -> float | None:
        """Return the figure as a multiple of the floor."""
        return self.value / self.floor if self.floor else None

    @property
    def part(self) -> float | None:
        """Return the figure as a multiple of the budget."""
        return self.value / self.budget if self.budget else None

    @property
    def holds(self) -> str:
        """`yes`, `by ratio`, `decided (0026)`, `NO`, or nothing where there is no budget."""
        if self.budget is None:
            return ""
        within = self.value >= self.budget if self.at_least else self.value <= self.budget
        if within:
            return "yes"
        if self.times and self.ratio and self.ratio <= self.times:
            return "by ratio"
        return f"decided ({self.decided.number})" if self.decided and self._as_decided(self.decided) else "NO"

    def _as_decided(self, decided: Decision) -> bool:
        found = self.ratio if decided.of == "floor" else self.part
        return found is not None and found <= decided.times

    def cells(self) -> tuple[str, ...]:
        """The figure as a line of the table."""
        sign = "≥" if self.at_least else "≤"
        budget = "" if self.budget is None else f"{sign} {_short(self.budget)}"
        more = (f"{self.times:g} x" if self.times else "", self.decided.told() if self.decided else "")
        budget += f" ({'; '.join(filter(None, more))})" if any(more) else ""
        ratio, part = ("" if times is None else f"{times:.2f}" for times in (self.ratio, self.part))
        floor = "" if self.floor is None else _short(self.floor)
        return (self.what, f"{_short(self.value)} {self.unit}".strip(), floor, ratio, budget, part, self.holds)

    def as_json(self) -> Mapping[str, Any]:
        """The figure for `--json`."""
        return {**asdict(self), "ratio": self.ratio, "part": self.part, "holds": self.holds}


def table(lines: Sequence[Sequence[str]]) -> list[str]:
    """Align lines of cells: the first to the left, the rest to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    return ["  ".join(_aligned(line, widths)).rstrip() for line in lines]


def _aligned(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    pairs = list(zip(line, widths, strict=True))
    return [pairs[0][0].ljust(pairs[0][1]), *(cell.rjust(width) for cell, width in pairs[1:])]


def _short(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
