"""Several pytest processes that share one line of files: every test runs once, and a failure is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.checks import failed_processes, stop
from tests.support.nursery import BARE, Request, forked
from tests.support.patience import PATIENCE_S
from tests.support.ports import FIRST, in_turn
from tests.support.sharing import PROCESS, Line

ROOT = Path(__file__).parents[3]
NOTHING_COLLECTED = 5
SESSION = """import pytest
@pytest.fixture(scope="session")
def whole(): return []
"""
BELOW = """import pytest
@pytest.fixture
def below(whole): return whole
"""
FILE = """import pytest
@pytest.mark.parametrize("n", range(3))
@pytest.mark.filterwarnings("ignore")
def test_it(n, whole):
    whole.append(n)
    assert len(whole) <= {at_most}
"""

SLOW = """import os, pathlib, time
def test_it():
    pathlib.Path("new").write_text(str(os.getpid()))
    os.rename("new", "pid")
    time.sleep(600)
"""


def share(folder: Path, line: Line, ends: Sequence[str]) -> list[int]:
    """Run a process for each end. Return the exit codes."""
    asked = [
        Request(
            arguments=[
                "-q", "-p", "tests.support.sharing", f"--rootdir={folder}", f"--line={line.path}", f"--take-from={end}",
                f"--junit-xml={folder / end}.xml", "-p", "no:cacheprovider", "-m", "filterwarnings",
            ],
            environment={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # to import what is not used takes half of the time
            log=str(folder / f"{end}.log"),
        )
        for end in ends
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", forked.__module__, BARE], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=json.dumps(asked), stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    codes: list[int] = json.loads(done.stdout.splitlines()[-1])
    return codes


def run(folder: Path, files: dict[str, str], ends: tuple[str, ...]) -> tuple[list[int], Counter[str]]:
    """Run files. Return the exit codes, and how often each test ran."""
    (folder / "below").mkdir()
    for name, text in {"conftest.py": SESSION, "below/conftest.py": BELOW, **files}.items():
        (folder / name.partition("#")[0]).write_text(text)
    line = Line(folder / "line")
    line.fill(list(files))
    codes = share(folder, line, ends)
    assert line.left() == 0
    cases = [case for end in ends for case in ElementTree.parse(folder / f"{end}.xml").getroot().iter("testcase")]
    return codes, Counter(f"{case.get('classname')}.{case.get('name')}" for case in cases)


def test_two_processes_run_every_test_once(tmp_path: Path) -> None:
    files = {f"test_{n}.py": FILE.format(at_most=99) for n in range(6)}
    codes, ran = run(tmp_path, files, ("front", "back"))
    assert set(codes) <= {0, NOTHING_COLLECTED}
    assert ran == Counter({f"test_{file}.test_it[{n}]": 1 for file in range(6) for n in range(3)})


def test_the_parts_of_a_file_are_all_its_tests(tmp_path: Path) -> None:
    codes, ran = run(
        tmp_path, dict.fromkeys(["test_a.py#0/2", "test_a.py#1/2"], FILE.format(at_most=99)), ("front", "back")
    )
    assert set(codes) <= {0, NOTHING_COLLECTED}
    assert ran == Counter({f"test_a.test_it[{n}]": 1 for n in range(3)})


def test_a_session_lasts_over_files_and_a_failure_is_reported(tmp_path: Path) -> None:
    names = ("test_a.py", "below/test_b.py", "below/test_c.py")
    files = {name: FILE.format(at_most=8).replace("whole", Path(name).parent.name or "whole") for name in names}
    codes, ran = run(tmp_path, files, ("front",))
    assert codes == [1]
    assert len(ran) == 9
    assert (tmp_path / "front.xml").read_text().count("<failure") == 1


def test_a_file_that_cannot_be_imported_is_a_failure(tmp_path: Path) -> None:
    codes, _ = run(tmp_path, {"test_a.py": "import absent_module", "test_b.py": FILE.format(at_most=9)}, ("front",))
    assert codes != [0]


def test_a_run_that_is_stopped_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "test_slow.py").write_text(SLOW)
    asked = [Request(arguments=["-q", "-s", "test_slow.py"], environment={}, log=str(tmp_path / "log"))]
    running = subprocess.Popen(
        [sys.executable, "-m", forked.__module__, BARE], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with running:
        assert running.stdin is not None
        running.stdin.write(json.dumps(asked).encode())
        running.stdin.close()
        running.stdin = None
        begun = time.monotonic()
        while not (found := tmp_path / "pid").exists():
            assert time.monotonic() - begun < PATIENCE_S
            time.sleep(0.02)
        stop(running)
    with pytest.raises(ProcessLookupError):
        os.kill(int(found.read_text()), 0)


def test_warnings_before_the_codes_are_passed_over(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a test failed")
    asked = [Request(arguments=[], environment={}, log=str(log))]
    assert failed_processes(0, "a warning\n\n[0]\n", asked) == []
    assert failed_processes(0, "a warning\n\n[1]\n", asked) == ["a test failed"]
    assert failed_processes(127, "stopped", asked) == ["stopped", "a test failed"]


def test_ports_are_those_of_the_process_that_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of tests are forked when this module has been imported."""
    ports = in_turn()
    monkeypatch.setenv(PROCESS, "3/8")
    assert [(next(ports) - FIRST) % 8 for _ in range(2)] == [3, 3]
