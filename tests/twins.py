"""Red twins, for `./run twins`. No part of the path of a message.

Each file of `tests/fault/twins` breaks one invariant of the safety table in one place, and names tests. On a copy of
the project with that change, one of them must fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

from tests.support.proof import LARGE, PROOF, SMALL

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).with_name("fault") / "twins"
COPIED = (
    "gateway", "channels", "agent_tools", "config", "tests", "deploy", "docs", "pyproject.toml", "README.md", "run",
)  # fmt: skip
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*", "node_modules")
AT_ONCE = min(2, os.cpu_count() or 1)
WITHIN_S = 300
"""Seconds that the tests of one twin may take."""
A_TEST_FAILED = 1
"""Exit code of pytest when a test failed; others mean that nothing was tried: no such test, an error of import."""
NOT_PASSED_ON = frozenset({"PYTHONDONTWRITEBYTECODE", PROOF, LARGE, SMALL})
"""Variables kept from a twin: a broken copy states no figure of ours, and its tests have their usual size."""
KEYS = {"invariant", "breaks", "file", "old", "new", "tests", "fast"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """One change for the worse."""

    name: str
    invariant: str
    """Its number in the safety table: `I24`."""
    breaks: str
    """Effect of the change, in a sentence."""
    file: str
    old: str
    """Text that stands in the file exactly once."""
    new: str
    tests: tuple[str, ...]
    """As pytest takes them; one of them must fail."""
    fast: bool
    """True if its tests take only a few seconds: then every run of the whole suite tries it."""

    def applied(self, text: str) -> str:
        """Return the file's text with the change. Raises `ValueError` when it does not fit any more."""
        if text.count(self.old) != 1:
            found = f"its old text stands {text.count(self.old)} times in {self.file}"
            raise ValueError(f"{self.name}: {found}; correct it")
        return text.replace(self.old, self.new)


def twins() -> list[Twin]:
    """Return all of them, by name. Raises `ValueError` for a file that is none."""
    return [_read(path) for path in sorted(FOLDER.glob("*.toml"))]


def _read(path: Path) -> Twin:
    table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    if not {*table} <= KEYS or {*table} < KEYS - {"fast"}:
        raise ValueError(f"{path.name} needs {', '.join(sorted(KEYS - {'fast'}))}, may have fast, and nothing else")
    given: dict[str, Any] = {**table, "tests": tuple(table["tests"]), "fast": table.get("fast", False)}
    return Twin(name=path.stem, **given)


@contextmanager
def changed(folder: Path, twin: Twin) -> Generator[None]:
    """Make the change in a copy of the project, and take it back."""
    file = folder / twin.file
    text = file.read_text(encoding="utf-8")
    try:
        _write(file, twin.applied(text))
        yield
    finally:
        _write(file, text)


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    for stale in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):  # it may be as old and as long as the text before
        stale.unlink()


def goes_red(folder: Path, twin: Twin) -> tuple[bool, str]:
    """Run a twin's tests in a copy with its change. Return whether one failed, and what pytest said last."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", *twin.tests]
    environment = {key: value for key, value in os.environ.items() if key not in NOT_PASSED_ON}
    environment["PYTHONPATH"] = str(folder)
    with changed(folder, twin):
        try:
            ran = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=WITHIN_S, check=False
            )
        except subprocess.TimeoutExpired:
            return False, f"its tests took more than {WITHIN_S} s"
    return ran.returncode == A_TEST_FAILED, "\n".join((ran.stdout + ran.stderr).splitlines()[-15:])


@contextmanager
def copy_of_the_project() -> Generator[Path]:
    """A copy that may be changed."""
    with tempfile.TemporaryDirectory(prefix="twins-") as place:
        folder = Path(place)
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=LEFT_OUT)
            else:
                shutil.copy2(ROOT / name, folder / name)
        yield folder


def try_all(wanted: Sequence[Twin], at_once: int = AT_ONCE) -> list[str]:
    """Try twins, some at a time, and print a line for each. Return what must be mended: nothing when all go red."""
    copies: Queue[Path] = Queue()

    def one(twin: Twin) -> str:
        folder = copies.get()
        began = time.monotonic()
        try:
            red, said = goes_red(folder, twin)
        finally:
            copies.put(folder)
        mark = "red  " if red else "GREEN"
        print(f"{mark}  {twin.invariant}  {time.monotonic() - began:5.1f} s  {twin.name}: {twin.breaks}", flush=True)
        return "" if red else f"{twin.name} ({twin.breaks}) made no test fail:\n{said}"

    with ThreadPoolExecutor(at_once) as pool, _copies(copies, min(at_once, len(wanted))):
        return [trouble for trouble in pool.map(one, wanted) if trouble]


@contextmanager
def _copies(queue: Queue[Path], count: int) -> Generator[None]:
    if count <= 0:
        yield
        return
    with copy_of_the_project() as folder:
        queue.put(folder)
        with _copies(queue, count - 1):
            yield


def main(arguments: Sequence[str]) -> int:
    """Try the twins whose name or invariant begins with one of the arguments; all without any. Return the exit code."""
    every = twins()
    chosen = [one for one in every if not arguments or one.name.startswith(tuple(arguments))]
    if not chosen:
        print(f"There is no such twin. There are: {', '.join(one.name for one in every)}", file=sys.stderr)
        return 2
    troubles = try_all(chosen)
    print(f"{len(chosen) - len(troubles)} of {len(chosen)} went red", *troubles, sep="\n", flush=True)
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
