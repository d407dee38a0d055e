"""Runs a parser on inputs: is anything raised that is not documented, does it end in time and in little memory, are new
lines reached?
"""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import CodeType, FrameType, ModuleType
from typing import Any

from tests.fuzz import corpus
from tests.fuzz.mutation import Mutator

LIMIT_S = 1.0
"""Seconds of processor time for one input; the longest has 64 KiB."""
MEMORY_AT_MOST_MB = 512.0
"""Of the whole process, with Python and what is kept of earlier inputs."""
_TRACED_S = 20 * LIMIT_S
_TRACED_BYTES = 8192
"""A longer input is for how long it takes; watched, it would take many times that."""
_SHRINK_S = 20.0
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parser:
    """A parser of foreign data."""

    name: str
    target: Callable[[bytes], None]
    """Gives an input to it; raises what should not have been raised, and when a promise was not kept."""
    reads: Sequence[ModuleType]
    """Our own modules that do the reading: their lines are what inputs shall reach."""
    words: Sequence[bytes] = ()


class TooSlow(BaseException):
    """An input took longer than `LIMIT_S`; nothing between may catch it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Effect of one input on a parser."""

    data: bytes
    what: str
    """The error and the line of ours that it came from: the same for the same fault."""
    trace: str

    @property
    def slow(self) -> bool:
        """Return True if it took too long, and raised nothing."""
        return self.what.startswith(TooSlow.__name__)


@dataclass(slots=True, kw_only=True)
class Report:
    """Result of fuzzing one parser."""

    runs: int = 0
    seconds: float = 0.0
    reached: int = 0
    of: int = 0
    failures: dict[str, Failure] = field(default_factory=dict[str, Failure])
    useful: list[bytes] = field(default_factory=list[bytes])
    """Inputs that reached a line first, the shortest kept ones first."""
    slowest_s: float = 0.0
    """Seconds of processor time of the input that took longest."""
    peak_mb: float = 0.0
    """Most memory of the process meanwhile."""

    @property
    def held(self) -> bool:
        """Return True if nothing broke or took too long, and memory stayed below `MEMORY_AT_MOST_MB`."""
        return not self.failures and self.peak_mb <= MEMORY_AT_MOST_MB


def failure(parser: Parser, data: bytes, limit_s: float = LIMIT_S) -> Failure | None:
    """Give one input to a parser and return what went wrong."""
    try:
        with _within(limit_s):
            parser.target(data)
    except (Exception, TooSlow) as error:  # noqa: BLE001 - whatever it raises is what is looked for
        return Failure(data=data, what=_what(error), trace="".join(traceback.format_exception(error)[-30:]))
    return None


@contextmanager
def _within(seconds: float) -> Generator[None]:
    """Raise `TooSlow` after so much processor time of this process. For the main thread."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooSlow(f"more than {seconds:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _what(error: BaseException) -> str:
    ours = [one for one in traceback.extract_tb(error.__traceback__) if str(_ROOT) in one.filename]
    ours = [one for one in ours if "/fuzz/engine" not in one.filename and ".venv" not in one.filename] or ours
    place = f"{os.path.relpath(ours[-1].filename, _ROOT)}:{ours[-1].lineno}" if ours else "?"
    if isinstance(error, TooSlow):  # it may be stopped anywhere
        place = next((f"{os.path.relpath(one.filename, _ROOT)}" for one in ours if "/tests/" not in one.filename), "?")
    return f"{type(error).__name__} at {place}"


class Reached:
    """Line coverage of some modules; a function that is fully covered costs nothing more."""

    def __init__(self, modules: Sequence[ModuleType]) -> None:
        """Take the modules."""
        self._files = {str(module.__file__) for module in modules}
        self._left: dict[CodeType, set[int]] = {}
        self._new = False
        self.lines = 0

    @property
    def of(self) -> int:
        """Lines of the functions that were called at all."""
        return self.lines + sum(map(len, self._left.values()))

    def first(self, call: Callable[[], None]) -> bool:
        """Call, and say whether a line was reached that was not before."""
        self._new = False
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            call()
        finally:
            sys.settrace(before)
        return self._new

    def _called(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        code = frame.f_code
        if code.co_filename not in self._files:
            return None
        if code not in self._left:
            self._left[code] = {line for *_, line in code.co_lines() if line}
        return self._line if self._left[code] else None

    def _line(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        left = self._left[frame.f_code]
        if frame.f_lineno in left:
            left.remove(frame.f_lineno)
            self.lines += 1
            self._new = True
        return self._line


def fuzz(parser: Parser, seconds: float, seed: int, told: Callable[[Failure], None]) -> Report:
    """Give a parser odd inputs for so long; each new fault is told once, as short an input as was found."""
    report, reached = Report(), Reached(parser.reads)
    known = sorted(corpus.read(parser.name) or [b""], key=len)
    mutator = Mutator(Random(f"{parser.name} {seed}"), [], parser.words)
    _forget_peak()
    began = time.monotonic()
    while time.monotonic() - began < seconds or known:
        data = known.pop(0) if known else mutator.made()
        failed, new = _watched(parser, data, reached, report)
        if failed is not None and failed.what not in report.failures:
            report.failures[failed.what] = shorter(parser, failed)
            told(report.failures[failed.what])
        if (new or not mutator.known) and failed is None:
            mutator.known.append(data)
            report.useful.append(data)
        report.runs += 1
    report.seconds, report.reached, report.of = time.monotonic() - began, reached.lines, reached.of
    report.peak_mb = _peak_mb()
    return report


def _watched(parser: Parser, data: bytes, reached: Reached, report: Report) -> tuple[Failure | None, bool]:
    """Return what went wrong, and whether a new line was reached; note the time.

    Being watched takes time, which is not counted: what may have been slow, or slowest so far, is tried again alone.
    """
    if len(data) > _TRACED_BYTES:
        return _alone(parser, data, report), False
    found: list[Failure | None] = []
    began = time.process_time()
    new = reached.first(lambda: found.append(failure(parser, data, _TRACED_S)))
    if time.process_time() - began <= min(report.slowest_s, LIMIT_S / 4):
        return found[0], new
    return found[0] or _alone(parser, data, report), new


def _alone(parser: Parser, data: bytes, report: Report) -> Failure | None:
    began = time.process_time()
    found = failure(parser, data)
    report.slowest_s = max(report.slowest_s, time.process_time() - began)
    return found


def _forget_peak() -> None:
    """Let the kernel count the most memory of this process anew, where it can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_mb() -> float:
    """Most memory of this process since then; since its start where the kernel cannot forget."""
    with suppress(OSError):
        if found := re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text()):
            return int(found[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def shorter(parser: Parser, found: Failure) -> Failure:
    """Leave out of an input what it fails without as well."""
    end = time.monotonic() + _SHRINK_S
    size = len(found.data) // 2
    while size and time.monotonic() < end:
        at = 0
        while at < len(found.data) and time.monotonic() < end:
            again = failure(parser, found.data[:at] + found.data[at + size :])
            if again is not None and again.what == found.what:
                found = again
            else:
                at += size
        size //= 2
    return found
