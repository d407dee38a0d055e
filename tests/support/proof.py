"""Figures that tests state beside their bars, for `./run proof` and for readers of a failure. No part of a path.

Four variables of the environment: `DRAGOMAN_PROOF` names the file that figures are appended to, a JSON object a line;
`DRAGOMAN_SEED` is the seed of everything random, to see a run again; `DRAGOMAN_LARGE=1` asks for the large sizes,
`DRAGOMAN_SMALL=1` for the small ones.
"""

from __future__ import annotations

import json
import os
import random
import sys
from typing import Any, TypeVar

PROOF, SEED, LARGE, SMALL = "DRAGOMAN_PROOF", "DRAGOMAN_SEED", "DRAGOMAN_LARGE", "DRAGOMAN_SMALL"
USUAL_SEED = 1
LOST = "messages lost"
TWICE = "messages taken or answered twice"
RAN_TWICE = "commands run twice"
KILLS = "kills"
"""Names that the page adds up over all faults: the first three of figures, the last of counts."""

T = TypeVar("T")


def figure(
    fault: str, what: str, value: float, bar: float, unit: str = "", *, least: bool = False, of: int | None = None
) -> None:
    """State what was measured for a fault (`F14`); then raise `AssertionError` when it misses its bar.

    The bar is the most that is allowed; with `least`, the least. `of` says of how many; the page adds up figures of one
    name. So a name holds no numbers that differ from run to run.
    """
    held = value >= bar if least else value <= bar
    found = f"{value:g}" + ("" if of is None else f" of {of}") + (f" {unit}" if unit else "")
    line = f"{fault} {what}: {found} (bar: {'≥' if least else '≤'} {bar:g}, seed {seed()})"
    sys.stdout.write(f"{line}\n")
    _keep(fault=fault, what=what, value=value, bar=bar, unit=unit, least=least, of=of, held=held)
    if not held:
        raise AssertionError(line)


def counted(what: str, number: int, fault: str = "") -> None:
    """Add to what the page counts, such as `KILLS`; without a bar."""
    _keep(fault=fault, what=what, count=number)


def seed() -> int:
    """The seed of this run. Raises `ValueError` with the cure when `DRAGOMAN_SEED` is no number."""
    given = os.environ.get(SEED, "")
    if not given:
        return USUAL_SEED
    if not given.isdecimal():
        raise ValueError(f"{SEED} is {given!r}: write a whole number, or leave it out for {USUAL_SEED}")
    return int(given)


def dice(what: str) -> random.Random:
    """Random numbers for one purpose: the same ones for the same purpose in every run of one seed."""
    sys.stdout.write(f"{what} with seed {seed()}; the same again: {SEED}={seed()}\n")
    return random.Random(f"{seed()}/{what}")


def times(usual: T, large: T, small: T | None = None) -> T:
    """Return the size of a test: `usual`, or `large` with `./run test --large`.

    `small`, where given, is the size in a plain `./run test`. The twins, the proof, `--all` and a test run by its name
    take `usual`.
    """
    if os.environ.get(LARGE) == "1":
        return large
    return small if small is not None and os.environ.get(SMALL) == "1" else usual


def examples(usual: int) -> int:
    """Return how many examples hypothesis makes: a quarter of `usual`, at least 20, in a plain `./run test`."""
    return usual if os.environ.get(SMALL) != "1" else min(usual, max(20, usual // 4))


def _keep(**line: Any) -> None:
    """Append a line in one write: several processes of a run share the file."""
    if not (name := os.environ.get(PROOF)):
        return
    # `file.py::test[case] (call)`
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    text = json.dumps({**line, "test": test, "seed": seed()}, ensure_ascii=False, sort_keys=True)
    descriptor = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{text}\n".encode())
    finally:
        os.close(descriptor)
