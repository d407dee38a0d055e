"""Runner of every check, in order and timed, for `./run test` and CI. No part of the path of a message.

With files, `-k`, `-m` or `--lf` only pytest runs, on what they select. Other pytest options go along with every check.
`--fast` leaves out types, browser and everything that starts a daemon. `--all` adds the tests marked `whole`, the usual
sizes of those that a plain run makes smaller, and the coverage. `--large` does the same with the tests of faults and of
the store much larger (1,000 deaths, 100,000 moves), for hours.
`DRAGOMAN_SEED` chooses what is random in them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias
from xml.etree import ElementTree

from tests.support.nursery import BARE, Request, forked
from tests.support.order import FILE, PARTS, line_up, measured, seconds_by_file
from tests.support.proof import LARGE, SMALL
from tests.support.sharing import PROCESS, Line
from tests.support.stems import PLACE

ROOT = Path(__file__).resolve().parent.parent
FAST_TESTS = ("tests/unit", "tests/contract", "tests/architecture")
SELECTING = ("-k", "-m", "--lf", "--last-failed", "--co", "--collect-only", "-h", "--help")
CHROMIUM_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""In order of preference: without a window's machinery it takes 0.5 s of CPU to open a page, with it 0.7."""
CHROMIUM_CACHES = ("~/.cache/ms-playwright", "~/Library/Caches/ms-playwright")
CHROMIUM_IN_CACHE = (
    "chromium_headless_shell-*/*/*headless*shell",
    "chromium-*/chrome-linux*/chrome",
    "chromium-*/chrome-mac*/*.app/Contents/MacOS/*",
)
BY_THE_CLOCK = "by_the_clock"
"""The mark of tests that are judged by seconds: beside five others they would tell how busy the machine is."""
WHOLE = "whole"
"""Mark of tests that only `--all` runs; each names the reason, and the test of the same rule that stays."""
TOOL_S = 600
"""Timeout in seconds for a check other than pytest; pytest has a limit for each test."""
TYPES_S = 1800
"""Timeout in seconds for pyright, beside the tests."""
NODE = {"NODE_OPTIONS": "--max-semi-space-size=64"}
"""Variables of pyright's node. With room for what is new it copies less of it: a tenth of the CPU."""
TESTS_S = 4 * 3600
"""Timeout in seconds for each process that runs tests."""
NOTHING_COLLECTED = 5
"""Exit code of a pytest that ran no test."""
PROCESSES = min(2, os.cpu_count() or 1) + 6
"""Processes that run tests: six more than cores, because most of them wait, for daemons, timeouts and pauses."""
FEW_PROCESSES = PROCESSES - 6
"""Those that run tests that are judged by the clock, and the proof: they leave room for the programs tested."""
DAEMONS = ("tests/fault", "tests/scenario")
"""Folders of tests that mostly wait for daemons. Half of the processes begin with them, while the others compute."""
BEHIND = ("nice", "-n", "5")
"""Prefix of a process of tests while the types are checked. The check is one thread with a fifth of all the CPU. At the
same priority as eight test processes it would end last, on an otherwise idle machine.
"""
END = ("front", "back")
"""Ends of the line, from which the processes take files by turns."""
PROGRESS_S = 30
"""Seconds between two lines that say how far the tests are."""
LARGE_TIMEOUT_S = 900
"""Timeout in seconds for one test with `--large`, unless it names its own."""
STOP_S = 10
"""Timeout in seconds for the end of a check that was stopped."""
LAST_CHARS = 3000
"""Characters of a log that are shown when it is not known what failed."""
DOWNLOAD_S = 300
"""Seconds that one attempt to get a browser or bubblewrap may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of one check. A test run counts its tests, every other check counts as one."""

    ok: bool
    text: str = ""
    """Text to show beneath the line."""
    passed: int = 0
    failed: int = 0


Check: TypeAlias = Callable[[], Outcome]


@dataclass(slots=True)
class Report:
    """Lines of the checks, printed at once and again at the end."""

    lines: list[str] = field(default_factory=list[str])
    passed: int = 0
    failed: int = 0

    def run(self, name: str, check: Check) -> None:
        """Run one check and say how it went."""
        self.add(name, *timed(check))

    def add(self, name: str, outcome: Outcome, seconds: float) -> None:
        """Say how a check went that ran beside others."""
        line = f"{'ok    ' if outcome.ok else 'FAILED'}  {name:<18}{seconds:7.1f} s"
        self.passed += outcome.passed or int(outcome.ok)
        self.failed += outcome.failed or int(not outcome.ok)
        self.lines.append(line)
        print(line, flush=True)
        if outcome.text:
            print(outcome.text.rstrip(), flush=True)

    def end(self) -> int:
        """Print all lines again and the totals last. Return the exit code."""
        print("", *self.lines, f"{self.passed} passed, {self.failed} failed", sep="\n", flush=True)
        return 1 if self.failed else 0


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for. Return the exit code."""
    whole = "--all" in arguments or "--large" in arguments
    if "--large" in arguments:
        os.environ[LARGE] = "1"
        arguments = [f"--timeout={LARGE_TIMEOUT_S}", *arguments]
    arguments = [one for one in arguments if one not in ("--all", "--large")]
    if selects_tests(arguments):
        os.environ.update(browser_environment(find_chromium()))
        return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, check=False).returncode
    fast = "--fast" in arguments
    options = [a for a in arguments if a != "--fast"]
    compile_tests()
    report = Report()
    report.run("ruff check", lambda: tool("ruff", "check", "."))
    report.run("ruff format", lambda: tool("ruff", "format", "--check", "."))
    report.run("imports", lambda: tool("lint-imports"))
    if fast:
        report.run("pytest", lambda: pytest(test_files(FAST_TESTS), options, {}))
        return report.end()
    report.run("browser", need_chromium)
    report.run("bubblewrap", need_bubblewrap)
    report.run("redis", need_redis)
    if whole:
        report.run("nftables", need_nftables)
    environment = browser_environment(find_chromium())
    if not whole:
        os.environ[SMALL] = "1"
    left_out = "" if whole else f" and not {WHOLE}"
    with ThreadPoolExecutor(1) as beside:
        checked = beside.submit(timed, types)
        most = ["-m", f"not {BY_THE_CLOCK}{left_out}", *options]
        report.run("pytest", lambda: pytest(test_files(("tests",)), most, environment, traced=whole, behind=True))
        report.add("pyright", *checked.result())
    if whole:
        report.run("coverage", coverage)
    few = ["-m", f"{BY_THE_CLOCK}{left_out}", *options]
    report.run(
        "pytest, by the clock",
        lambda: pytest(files_with(BY_THE_CLOCK), few, environment, processes=FEW_PROCESSES, remembered=False),
    )
    return report.end()


def timed(check: Check) -> tuple[Outcome, float]:
    """Run one check. Return what came of it, and its seconds."""
    began = time.monotonic()
    return check(), time.monotonic() - began


def selects_tests(arguments: Sequence[str]) -> bool:
    """Say whether only some tests are meant: a path that exists, or an option that chooses."""
    return any(a.startswith(SELECTING) or (ROOT / a.partition("::")[0]).exists() for a in arguments if a)


# --- the checks ---------------------------------------------------------------------------------


def tool(name: str, *arguments: str) -> Outcome:
    """Run one of the environment's own commands; its output is shown when it fails."""
    code, text = captured([str(Path(sys.executable).with_name(name)), *arguments], seconds=TOOL_S)
    return Outcome(ok=code == 0, text="" if code == 0 else text)


def types() -> Outcome:
    """Check the types, beside the tests: it fills the time in which they wait."""
    program = str(Path(sys.executable).with_name("pyright"))
    code, text = captured([program, "--project", "pyproject.toml"], seconds=TYPES_S, environment={**os.environ, **NODE})
    return Outcome(ok=code == 0, text="" if code == 0 else text)


def test_files(folders: Sequence[str]) -> list[str]:
    """Return the test files below some folders."""
    return sorted(
        path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("test_*.py")
    )


def files_with(mark: str) -> list[str]:
    """Return the test files that use a mark."""
    return [name for name in test_files(("tests",)) if f"pytest.mark.{mark}" in (ROOT / name).read_text()]


def inherited() -> dict[str, str]:
    """Return this process's environment for tests.

    Without byte code each of the hundreds of daemons that tests start would compile everything: a second of CPU.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def compile_tests() -> None:
    """Write the byte code of the tests when there is none: once, and not by each process, 10 s of CPU each."""
    if not any((ROOT / "tests" / "unit").glob("*/__pycache__/*-pytest-*")):
        captured([sys.executable, "-m", "pytest", "-q", "--collect-only"], seconds=TOOL_S, environment=inherited())
    os.sync()  # what was installed just now is still being written, and each commit of a store would wait for it


def pytest(
    files: Sequence[str],
    options: Sequence[str],
    environment: Mapping[str, str],
    *,
    processes: int = PROCESSES,
    traced: bool = False,
    remembered: bool = True,
    behind: bool = False,
) -> Outcome:
    """Run test files in several processes, which take them from the two ends of one line.

    The output of a process is shown when one of its tests failed. `traced`: measure the coverage. `remembered`: store
    how long each file took. `behind`: leave the CPU to what runs beside them.
    """
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(1) as beside:
        folder = Path(name)
        line = Line(folder / "line")
        entries = line_up(files, measured(), DAEMONS, PARTS if traced else {})
        line.fill(entries)
        arguments = ["-q", "-p", Line.__module__, f"--line={line.path}", *options]
        if traced:
            arguments += ["--cov", "--cov-report=", "--cov-fail-under=0"]
        asked = [
            Request(
                arguments=[
                    *arguments,
                    f"--take-from={END[n % 2]}",
                    f"--junit-xml={folder / str(n)}.xml",
                    f"--basetemp={folder / f't{n}'}",  # in the shared one each removes what others are removing too
                ],
                environment={PROCESS: f"{n}/{processes}", "COVERAGE_FILE": str(ROOT / f".coverage.process-{n}")},
                log=str(folder / f"{n}.log"),
            )
            for n in range(processes)
        ]
        command = [*(BEHIND if behind else ()), sys.executable, "-m", forked.__module__, *([BARE] if traced else ())]
        variables = {**inherited(), **environment, **({} if traced else {PLACE: str(folder / "stems")})}
        ended = beside.submit(captured, command, seconds=TESTS_S, environment=variables, given=json.dumps(asked))
        while wait([ended], PROGRESS_S).not_done:
            print(f"        {len(entries) - line.left()} of {len(entries)} files of tests have begun", flush=True)
        failures = failed_processes(*ended.result(), asked)
        results = sorted(folder.glob("*.xml"))
        passed, failed = counted(results)
        if remembered:
            remember_durations(results)
    if not passed:
        failures.append("No test ran.")
    return Outcome(ok=not failures, text="\n".join(failures), passed=passed, failed=max(failed, len(failures)))


def failed_processes(code: int, text: str, asked: Sequence[Request]) -> list[str]:
    """Return what the processes of tests said in which something failed. If the one failed that forks them, return what
    it said, and the last lines of all.

    A process that came too late for a file has code 5, "nothing collected".
    """
    logs = [Path(one["log"]) for one in asked]
    if code != 0:
        return [text, *(log.read_text(errors="replace")[-LAST_CHARS:] for log in logs if log.exists())]
    codes: list[int] = json.loads(text.splitlines()[-1])  # warnings may stand before it
    bad = [log for log, ended in zip(logs, codes, strict=True) if ended not in (0, NOTHING_COLLECTED)]
    return [log.read_text(errors="replace") for log in bad]


def coverage() -> Outcome:
    """Put together what the processes measured, and compare it with what is demanded."""
    code, text = captured([sys.executable, "-m", "coverage", "combine"], seconds=TOOL_S)
    if code == 0:
        code, text = captured([sys.executable, "-m", "coverage", "report"], seconds=TOOL_S)
    return Outcome(ok=code == 0, text=text[-2000:])


def remember_durations(results: Sequence[Path]) -> None:
    """Store how long each file of tests took, for the order of the next run."""
    cases = [case for path in results for case in ElementTree.parse(path).getroot().iter("testcase")]
    taken = [(case.get("classname", ""), float(case.get("time", 0))) for case in cases]
    with contextlib.suppress(OSError):  # the next run has the order of the one before
        FILE.write_text(json.dumps(measured() | seconds_by_file(taken), indent=1, sort_keys=True) + "\n")


def counted(results: Sequence[Path]) -> tuple[int, int]:
    """Return how many tests passed and failed according to pytest's own files."""
    passed = failed = 0
    for suite in (suite for path in results for suite in ElementTree.parse(path).getroot().iter("testsuite")):
        broken = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        passed += int(suite.get("tests", 0)) - broken - int(suite.get("skipped", 0))
        failed += broken
    return passed, failed


def captured(
    command: Sequence[str], *, seconds: float, environment: Mapping[str, str] | None = None, given: str = ""
) -> tuple[int, str]:
    """Run a command without a terminal. Return its exit code and all it said; 127 and the reason when it cannot run.

    `given`: what it can read.
    """
    try:
        running = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        return 127, f"{command[0]} could not be started: {error}. Say ./run test again to repair the environment."
    with running:
        try:
            said, _ = running.communicate(given.encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            stop(running)
            return 127, f"{command[0]} did not end within {seconds:.0f} s and was stopped."
    return running.returncode, said.decode(errors="replace")


def stop(running: subprocess.Popen[bytes]) -> None:
    """End a program: by SIGTERM, after which it ends its own child processes; by SIGKILL when that takes long."""
    running.terminate()
    try:
        running.communicate(timeout=STOP_S)
    except subprocess.TimeoutExpired:
        running.kill()


# --- what the machine must have -----------------------------------------------------------------


def find_chromium() -> Path | None:
    """Return a Chromium that starts: the named one, one on PATH, or one that playwright downloaded before."""
    return next((path for path in chromium_candidates() if starts(path, "--version")), None)


def chromium_candidates() -> list[Path]:
    """Return where a Chromium may be, best first. A path in DRAGOMAN_CHROMIUM is the only one when it is set."""
    if named := os.environ.get("DRAGOMAN_CHROMIUM"):
        return [Path(named)]
    found = [Path(path) for name in CHROMIUM_NAMES if (path := shutil.which(name))]
    for cache in filter(None, (os.environ.get("PLAYWRIGHT_BROWSERS_PATH"), *CHROMIUM_CACHES)):
        for pattern in CHROMIUM_IN_CACHE:
            found += sorted(Path(cache).expanduser().glob(pattern), reverse=True)
    return found


def browser_environment(chromium: Path | None) -> dict[str, str]:
    """Return what tells the scenarios which browser to start."""
    return {"DRAGOMAN_CHROMIUM": str(chromium)} if chromium else {}


def starts(program: Path, *arguments: str) -> bool:
    """Say whether a program runs here: a downloaded browser may lack libraries, a namespace may be forbidden."""
    return captured([str(program), *arguments], seconds=30)[0] == 0


def need_chromium() -> Outcome:
    """Find a Chromium or get one: playwright's download, else the system's package."""
    if find_chromium():
        return Outcome(ok=True)
    if "DRAGOMAN_CHROMIUM" not in os.environ:
        print("no Chromium here; getting one (a few minutes, once)…", flush=True)
        captured([sys.executable, "-m", "playwright", "install", "chromium"], seconds=DOWNLOAD_S)
        if find_chromium() or any(apt_install(name) and find_chromium() for name in CHROMIUM_NAMES[:2]):
            return Outcome(ok=True)
    return Outcome(
        ok=False,
        text="No Chromium that starts, which the tests of the web page and the browser tool need. Install one "
        "(Debian: apt install chromium), or set DRAGOMAN_CHROMIUM to the program.",
    )


def need_bubblewrap() -> Outcome:
    """Find a bubblewrap that works or get one. Without it CI fails; elsewhere only a word is said."""
    if shutil.which("bwrap") is None:
        apt_install("bubblewrap")
    if found := shutil.which("bwrap"):
        if starts(Path(found), "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"):
            return Outcome(ok=True)
        text = (
            "bubblewrap is here and may not make namespaces: allow user namespaces (kernel.unprivileged_userns_clone)."
        )
    else:
        text = "bubblewrap is missing (Debian: apt install bubblewrap)."
    return Outcome(ok=not os.environ.get("CI"), text=f"{text} The tests of the sandbox need it.")


def need_redis() -> Outcome:
    """Find a Redis server or get one. Without it the tests of the store on Redis fail."""
    if shutil.which("redis-server") or (apt_install("redis-server") and shutil.which("redis-server")):
        return Outcome(ok=True)
    text = "redis-server is missing (Debian: apt install redis-server). The tests of the store on Redis need it."
    return Outcome(ok=False, text=text)


def need_nftables() -> Outcome:
    """Find the packet filter's program or get it. Without it the tests on lossy links fail."""
    if shutil.which("nft") or (apt_install("nftables") and shutil.which("nft")):
        return Outcome(ok=True)
    return Outcome(ok=False, text="nftables is missing (Debian: apt install nftables). Lossy links need it.")


def apt_install(package: str) -> bool:
    """Install a Debian package when this is root on such a system. Return whether that worked."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return False
    print(f"apt-get install {package}…", flush=True)
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    captured([apt, "update", "-qq"], seconds=DOWNLOAD_S)
    code, text = captured([apt, "install", "-qq", "-y", "--no-install-recommends", package], seconds=DOWNLOAD_S)
    if code != 0:
        print(text[-2000:], flush=True)
    return code == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
