"""Runs a parser on inputs: is anything raised that is not documented, does it end in time, are new lines reached?"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import CodeType, FrameType, ModuleType
from typing import Any

from tests.fuzz import corpus
from tests.fuzz.mutation import Mutator

LIMIT_S = 1.0
"""Seconds of processor time for one input; the longest has 64 KiB."""
_TRACED_S = 20 * LIMIT_S
_TRACED_BYTES = 8192
"""A longer input is for how long it takes; watched, it would take many times that."""
_SHRINK_S = 20.0
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parser:
    """Something that reads what others wrote."""

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
    """What an input did to a parser."""

    data: bytes
    what: str
    """The error and the line of ours that it came from: the same for the same fault."""
    trace: str


@dataclass(slots=True, kw_only=True)
class Report:
    """What fuzzing one parser came to."""

    runs: int = 0
    seconds: float = 0.0
    reached: int = 0
    of: int = 0
    failures: dict[str, Failure] = field(default_factory=dict[str, Failure])
    useful: list[bytes] = field(default_factory=list[bytes])
    """Inputs that reached a line first, the shortest kept ones first."""


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
    """Notes which lines of some modules were reached; a function all of whose lines were costs nothing more."""

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
    began = time.monotonic()
    while time.monotonic() - began < seconds or known:
        data = known.pop(0) if known else mutator.made()
        failed, new = _watched(parser, data, reached) if len(data) <= _TRACED_BYTES else (failure(parser, data), False)
        if failed is not None and failed.what not in report.failures:
            report.failures[failed.what] = shorter(parser, failed)
            told(report.failures[failed.what])
        if (new or not mutator.known) and failed is None:
            mutator.known.append(data)
            report.useful.append(data)
        report.runs += 1
    report.seconds, report.reached, report.of = time.monotonic() - began, reached.lines, reached.of
    return report


def _watched(parser: Parser, data: bytes, reached: Reached) -> tuple[Failure | None, bool]:
    """Return what went wrong, and whether a new line was reached. Being watched takes time, which is not counted."""
    found: list[Failure | None] = []
    began = time.process_time()
    new = reached.first(lambda: found.append(failure(parser, data, _TRACED_S)))
    slow = time.process_time() - began > LIMIT_S / 4
    return (found[0] or failure(parser, data) if slow else found[0]), new


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
