"""The stopwatch: it counts what computes and what sleeps, and leaves out what waits for a processor."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.support.stopwatch import Stopwatch, waited_s


def test_computing_and_sleeping_time_is_counted() -> None:
    watch, before = Stopwatch(lambda: None), time.thread_time()
    time.sleep(0.1)
    while (computed := time.thread_time() - before) < 0.1:
        pass
    assert watch.seconds() >= 0.1 + computed - 0.02


def test_time_waiting_for_a_processor_is_not_counted() -> None:
    """Two busy processes have one processor between them: each waits as long as it computes."""
    one = min(os.sched_getaffinity(0))
    busy = f"import os, time; os.sched_setaffinity(0, {{{one}}})\nwhile time.process_time() < 0.15: pass"
    began = time.monotonic()
    both = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(2)]
    waited = 0.0
    while any(process.poll() is None for process in both):
        waited = max(waited, sum(waited_s(process.pid) for process in both))
        time.sleep(0.01)
    assert 0.08 < waited < 2 * (time.monotonic() - began)


def test_a_process_that_is_gone_has_not_waited() -> None:
    assert waited_s(2**22 + 1) == 0
    assert Stopwatch(lambda: 0).seconds() == pytest.approx(0, abs=1)
