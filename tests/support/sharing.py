"""Sharing of test files among several pytest processes, as a pytest plugin. No part of the path of a message.

Each process takes one file or folder after the other from a line, collects it and runs it. So each file is imported
and collected once, where every process of pytest-xdist collects all of them: a tenth of the CPU of a whole run. What
lasts as long as a session, such as a browser, is made once in each process.
"""

from __future__ import annotations

import fcntl
import gc
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

PROCESS = "DRAGOMAN_TEST_PROCESS"
"""Variable that tells a process its number and how many there are: `3/8`."""
END_OPTION = "--take-from"
LINE_OPTION = "--line"


class Line:
    """A line of test files, kept in a file that several processes lock in turn."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, names: Sequence[str]) -> None:
        """Write the whole line."""
        self.path.write_text("\n".join(names))

    def left(self) -> int:
        """Return how many files nobody took yet."""
        return len(self.path.read_text().split())

    def take(self, end: str) -> str | None:
        """Take the file at the `front` or at the `back`; None when nothing is left."""
        with self.path.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            names = file.read().split()
            if not names:
                return None
            taken = names.pop(0 if end == "front" else -1)
            file.seek(0)
            file.truncate()
            file.write("\n".join(names))
        return taken


class Sharing:
    """Collection and run of whatever files this process takes."""

    def __init__(self, line: Line, end: str) -> None:
        self._line, self._end = line, end
        self._top: Sequence[pytest.Collector] = ()
        """Folders that the run was started for, not looked into yet."""
        self._within: dict[pytest.Collector, Sequence[pytest.Collector]] = {}
        """Entries of each folder looked into. A fixture of a `conftest.py` belongs to one object for its folder."""
        self._collected = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Collect no file before the run begins."""
        session.perform_collect(genitems=False)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item | pytest.Collector]) -> None:
        """Remember the folders before an option such as `-m` leaves them out."""
        self._top = self._top or [one for one in items if isinstance(one, pytest.Collector)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests of one file after the other, until the line is empty or a test says to stop."""
        tests = self._taken(session)
        test = next(tests, None)
        while test is not None and not session.shouldfail and not session.shouldstop:
            following = next(tests, None)
            test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
            test = following
        session.testscollected = self._collected
        return True

    def _taken(self, session: pytest.Session) -> Iterator[pytest.Item]:
        """Yield the tests of files, each collected when the tests before it have begun.

        Of `tests/test_x.py#1/3` that is every third test, from the second on.
        """
        while (name := self._line.take(self._end)) is not None:
            gc.disable()  # what collecting makes is no garbage
            file, _, part = name.partition("#")
            found = list(session.genitems(self._collector(session.startpath / file)))
            session.config.hook.pytest_collection_modifyitems(session=session, config=session.config, items=found)
            gc.enable()
            if part:
                number, _, count = part.partition("/")
                found = found[int(number) :: int(count)]
            self._collected += len(found)
            yield from found

    def _collector(self, path: Path) -> pytest.Collector:
        """Return the collector of a file or folder. Raises `LookupError` when the run has none."""
        nodes = self._top
        while True:
            node = next((one for one in nodes if one.path == path or one.path in path.parents), None)
            if node is None:
                raise LookupError(f"{path} is nothing with tests in the folders of this run.")
            if node.path == path:
                return node
            nodes = self._entries(node)

    def _entries(self, folder: pytest.Collector) -> Sequence[pytest.Collector]:
        if folder not in self._within:
            folder.ihook.pytest_collectstart(collector=folder)
            report = folder.ihook.pytest_make_collect_report(collector=folder)
            folder.ihook.pytest_collectreport(report=report)
            self._within[folder] = [one for one in report.result or () if isinstance(one, pytest.Collector)]
        return self._within[folder]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a shared run."""
    group = parser.getgroup("sharing")
    group.addoption(LINE_OPTION, help="file with the test files that are left, which several processes share")
    group.addoption(END_OPTION, choices=("front", "back"), default="front", help="the end of the line to take from")


def pytest_configure(config: pytest.Config) -> None:
    """Share files only where a line is named."""
    if line := config.getoption(LINE_OPTION):
        config.pluginmanager.register(Sharing(Line(Path(line)), str(config.getoption(END_OPTION))))


def place() -> tuple[int, int]:
    """Return the number of this process, from 0, and how many there are; also in a run of pytest-xdist."""
    if name := os.environ.get("PYTEST_XDIST_WORKER"):
        return int(name.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    number, _, count = os.environ.get(PROCESS, "0/1").partition("/")
    return int(number), int(count)
