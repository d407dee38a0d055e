"""Real programs in every mode: visible files, limits, and no process left at the end."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.tools import NetworkMode, SandboxMode
from gateway.errors import BadRequest, NotFound, SandboxMissing
from gateway.sandbox import Confinement, Containment, ProcessLimits, probe, run_contained
from gateway.sandbox.plan import environment

NEITHER = Containment(can_bwrap=False, can_pid_namespace=False, why_no_bwrap="bubblewrap is not installed")

# name: mode, and the features of the machine to simulate as missing
WAYS: dict[str, tuple[SandboxMode, dict[str, bool]]] = {
    "basic": (SandboxMode.BASIC, {}),
    "off": (SandboxMode.OFF, {}),
    "off-unshare": (SandboxMode.OFF, {"can_bwrap": False}),
    "off-supervisor": (SandboxMode.OFF, {"can_bwrap": False, "can_pid_namespace": False}),
}


HOME = Path.home()


class Printed:
    """`Output` that stores everything."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data

    @property
    def text(self) -> str:
        return self.data.decode()


class Bench:
    """Run scripts with one holder, in a workspace beside a state folder."""

    def __init__(self, folder: Path, mode: SandboxMode, containment: Containment) -> None:
        self.state = folder / "state"
        self.workspace = self.state / "workspaces" / "w"
        self.workspace.mkdir(parents=True)
        (self.state / "secret").write_text("token-of-the-daemon")
        self.mode = mode
        self.network = NetworkMode.NONE
        self.containment = containment
        self.printed = Printed()
        self.mark = f"3{secrets.randbelow(10**9):09d}"
        """A number of seconds that only this test sleeps."""

    async def run(self, script: str, *, limits: ProcessLimits | None = None, **more: Any) -> int:
        return await self.program(["/bin/bash", "--noprofile", "--norc", "-c", script], limits=limits, **more)

    async def program(self, argv: list[str], *, limits: ProcessLimits | None = None, **more: Any) -> int:
        folders = {"cwd": self.workspace, "workspace": self.workspace}
        given: dict[str, Any] = {**folders, "limits": limits or ProcessLimits(), **more}
        ended = await run_contained(
            argv,
            within=Confinement(mode=self.mode, network=self.network),
            output=self.printed,
            containment=self.containment,
            **given,
        )
        return ended.exit_code

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(1000):
            if condition():
                return
            await asyncio.sleep(0.01)
        pytest.fail("it did not come to that in 10 s")


def living(mark: str) -> list[int]:
    """Return the processes with `mark` as an argument."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if mark.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


@contextmanager
def started(argv: list[str]) -> Generator[subprocess.Popen[bytes]]:
    """Start a program beside the test; kill it at the end."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=Path(__file__).parents[4]) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def machine() -> Containment:
    return asyncio.run(probe())


@pytest.fixture(params=WAYS)
def bench(request: pytest.FixtureRequest, tmp_path: Path, machine: Containment) -> Bench:
    mode, missing = WAYS[request.param]
    return Bench(tmp_path, mode, replace(machine, **missing))


@pytest.fixture
def basic(tmp_path: Path, machine: Containment) -> Bench:
    return Bench(tmp_path, SandboxMode.BASIC, machine)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(5)
        yield server


# --- the sandbox itself ------------------------------------------------------------------------


async def test_basic_never_runs_on_the_host_instead(basic: Bench) -> None:
    basic.containment = NEITHER
    with pytest.raises(SandboxMissing, match="bubblewrap is not installed"):
        await basic.run("touch ran")
    assert not (basic.workspace / "ran").exists()


async def test_failed_sandbox_is_an_error_and_not_an_exit_code(basic: Bench) -> None:
    folder = basic.workspace / "gone"
    folder.mkdir()
    basic.containment = replace(basic.containment, hardened=True)
    with pytest.raises(SandboxMissing, match="message is in the output"):
        await basic.run("touch ran", limits=ProcessLimits(tmp_bytes=-1))
    assert "bwrap" in basic.printed.text
    assert not (basic.workspace / "ran").exists()


def test_the_dynamic_linker_takes_no_orders() -> None:
    with pytest.raises(BadRequest, match="LD_PRELOAD cannot be given"):
        environment(Path("/root"), {"LD_PRELOAD": "/tmp/x.so"})


# --- a program's environment ----------------------------------------------------------------


async def test_both_streams_arrive_in_order(bench: Bench) -> None:
    assert await bench.run("echo one; echo two >&2; echo three") == 0
    assert bench.printed.text == "one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -9 $$", 137),
        ("kill 0; sleep 9", 143),
        ("kill -SEGV $$", 139),
        ("nope", 127),
    ],
)
async def test_exit_codes(bench: Bench, script: str, code: int) -> None:
    assert await bench.run(script) == code


async def test_the_environment_is_constructed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TELEGRAM_TOKEN", "BASH_ENV", "PYTHONSTARTUP", "LD_CANARY"):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("TZ", "Europe/Rome")
    assert await bench.program(["env", "-0"]) == 0
    found = dict(line.split("=", 1) for line in bench.printed.text.split("\0") if line)
    assert found.pop("PWD", str(bench.workspace)) == str(bench.workspace)  # bubblewrap sets it
    assert {name: found[name] for name in found if name != "HOME"} == {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TZ": "Europe/Rome",
    }


async def test_a_program_has_no_input_no_terminal_and_no_descriptors(bench: Bench) -> None:
    held = os.open(bench.state / "secret", os.O_RDONLY)
    os.set_inheritable(held, True)
    try:
        script = "cat; for fd in /proc/self/fd/*; do [ -e $fd ] && readlink $fd; done; : </dev/tty && echo terminal"
        await bench.run(script)
    finally:
        os.close(held)
    text = bench.printed.text
    assert text.startswith("/dev/null\npipe:")
    assert "secret" not in text
    assert text.count("pipe:") == 2
    assert "\nterminal" not in text


async def test_limits_hold(bench: Bench) -> None:
    limits = ProcessLimits(open_files=77, file_bytes=1_048_576, umask=0o077)
    code = await bench.run("ulimit -n; ulimit -c; umask; head -c 2000000 /dev/zero > big", limits=limits)
    assert bench.printed.text.splitlines()[:3] == ["77", "0", "0077"]
    assert code == 128 + signal.SIGXFSZ
    assert (bench.workspace / "big").stat().st_size == 1_048_576


async def test_program_dies_before_the_daemon_when_memory_runs_out(bench: Bench) -> None:
    await bench.run("cat /proc/self/oom_score_adj; sh -c 'cat /proc/self/oom_score_adj; true'")
    assert bench.printed.text.split() == ["1000", "1000"]


async def test_program_runs_in_the_given_folder(bench: Bench) -> None:
    (bench.workspace / "sub dir").mkdir()
    await bench.run("pwd; touch here", cwd=bench.workspace / "sub dir")
    assert bench.printed.text == f"{bench.workspace}/sub dir\n"
    assert (bench.workspace / "sub dir" / "here").exists()


async def test_missing_folder_or_program_is_named(bench: Bench) -> None:
    with pytest.raises(NotFound, match=r"folder .*/gone is not there\. Create it"):
        await bench.run("true", cwd=bench.workspace / "gone")
    with pytest.raises(NotFound, match=r"no program `no-such-program`\. Install it"):
        await bench.program(["no-such-program"])
    with pytest.raises(BadRequest, match="no NUL character"):
        await bench.run("echo a\0b")


# --- what basic shows -----------------------------------------------------------------------


async def test_basic_hides_home_state_and_sockets(basic: Bench) -> None:
    script = f"ls -A ~; ls -A {HOME}; cat {basic.state}/secret; ls {basic.state}; ls /run /var/run; cat /etc/shadow"
    await basic.run(script)
    lines = [line for line in basic.printed.text.splitlines() if "No such file" not in line]
    assert lines == ["workspaces"]


async def test_basic_hides_what_it_is_told_beneath_the_workspace(basic: Bench) -> None:
    hidden = basic.workspace / "state"
    hidden.mkdir()
    (hidden / "secret").write_text("x")
    await basic.run("ls -A state; echo lost > state/new", hide=[hidden])
    assert basic.printed.text == ""
    assert [path.name for path in hidden.iterdir()] == ["secret"]


async def test_basic_writes_to_the_workspace_and_nowhere_else(basic: Bench) -> None:
    name = secrets.token_hex(8)  # /tmp of this machine is anybody's
    script = (
        f"echo kept > kept; for f in /usr/x /etc/x /x /dev/x; do echo no > $f; done; "
        f"echo ok > /tmp/{name} && cat /tmp/{name}"
    )
    assert await basic.run(script) == 0
    assert (basic.workspace / "kept").read_text() == "kept\n"
    assert basic.printed.text.count("Read-only file system") == 4
    assert basic.printed.text.endswith("ok\n")
    assert name not in os.listdir("/tmp")


async def test_basic_leaves_no_power(basic: Bench) -> None:
    basic.containment = replace(basic.containment, hardened=True)
    script = (
        "grep CapEff /proc/self/status; mount -t tmpfs none /usr && echo mounted; unshare -Ur true && echo nested; "
    )
    await basic.run(script + "ls /proc | grep -c '^[0-9]'; cat /proc/1/root/etc/shadow")
    assert "CapEff:\t0000000000000000" in basic.printed.text
    assert "mounted" not in basic.printed.text
    assert "nested" not in basic.printed.text
    assert int(basic.printed.text.splitlines()[-2]) < 8  # its own processes only
    assert "root:" not in basic.printed.text


async def test_basic_cannot_change_the_machines_settings(basic: Bench) -> None:
    """Root writes them by its user id, without any capability: for instance the command that a crash runs as root."""
    await basic.run("find /proc -path '/proc/[0-9]*' -prune -o -type f -writable -print 2>/dev/null; echo end")
    *found, end = basic.printed.text.split()
    assert end == "end"
    assert not [name for name in found if name != "/proc/mtrr" and not name.startswith("/proc/pressure/")]


async def test_basic_refuses_a_folder_outside_or_a_system_workspace(basic: Bench) -> None:
    with pytest.raises(BadRequest, match="outside the workspace"):
        await basic.run("true", cwd=basic.state)
    with pytest.raises(BadRequest, match="cannot be a sandbox's workspace"):
        await basic.run("true", cwd=Path("/"), workspace=Path("/"))
    outside = basic.state / "tool"
    outside.write_text("#!/bin/sh\n")
    outside.chmod(0o755)
    with pytest.raises(NotFound, match="cannot be seen in the sandbox"):
        await basic.program([str(outside)])


async def test_basic_may_have_the_hosts_network(basic: Bench, listener: socket.socket) -> None:
    basic.network = NetworkMode.HOST
    port = listener.getsockname()[1]
    assert await basic.run(f"echo hello > /dev/tcp/127.0.0.1/{port}; getent hosts localhost") == 0
    with closing(listener.accept()[0]) as connection:
        assert connection.recv(100) == b"hello\n"


# --- the end --------------------------------------------------------------------------------

STUBBORN = r"""
trap '' TERM HUP
setsid sleep {mark} &
( setsid sh -c 'trap "" TERM; sleep {mark}; sleep {mark}' & )
python3 -c '
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        os.execvp("sleep", ["sleep", "{mark}"])
    os._exit(0)
os.wait()
'
echo ready
{last}
"""


async def test_a_timeout_leaves_nothing_and_keeps_what_was_printed(bench: Bench) -> None:
    script = STUBBORN.format(mark=bench.mark, last="while :; do sleep 0.1; done")

    async def time_out() -> None:
        async with asyncio.timeout(20) as limit, asyncio.TaskGroup() as group:
            group.create_task(bench.run(script))
            await bench.until(lambda: bool(bench.printed.data))
            limit.reschedule(asyncio.get_running_loop().time() + 0.2)

    with pytest.raises(TimeoutError):
        await time_out()
    assert living(bench.mark) == []
    assert bench.printed.text == "ready\n"


async def test_a_stop_takes_less_than_a_second(bench: Bench) -> None:
    script = STUBBORN.format(mark=bench.mark, last="while :; do sleep 0.1; done")
    took = await stopped(bench, bench.run(script), lambda: len(living(bench.mark)) >= 3)
    assert took < 1
    assert living(bench.mark) == []


async def test_background_processes_end_too_and_nothing_hangs(bench: Bench) -> None:
    async with asyncio.timeout(10):
        assert await bench.run(STUBBORN.format(mark=bench.mark, last="exit 3")) == 3
    assert living(bench.mark) == []
    assert bench.printed.text == "ready\n"


async def test_a_program_may_tidy_up_and_its_last_words_are_kept(bench: Bench) -> None:
    script = "trap 'echo tidied; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    await stopped(bench, bench.run(script), lambda: b"ready" in bench.printed.data)
    assert bench.printed.text.startswith("ready\n")
    assert bench.printed.text.endswith("tidied\n")


async def test_a_stop_in_the_first_moment_leaves_nothing(bench: Bench) -> None:
    for delay in (0, 0.001, 0.002, 0.004, 0.008, 0.016):
        task = asyncio.create_task(bench.run(f"setsid sleep {bench.mark} & sleep {bench.mark}"))
        await asyncio.sleep(delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert living(bench.mark) == []


async def test_a_second_stop_ends_the_grace_and_nothing_else(bench: Bench) -> None:
    task = asyncio.create_task(bench.run(f"trap '' TERM; echo ready; while :; do sleep {bench.mark}; done",
                                         limits=ProcessLimits(grace_s=30)))  # fmt: skip
    await bench.until(lambda: bool(living(bench.mark)))
    task.cancel()
    await asyncio.sleep(0.05)
    task.cancel()
    async with asyncio.timeout(2):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert living(bench.mark) == []


async def test_others_with_the_same_arguments_live_on(bench: Bench) -> None:
    with started(["sleep", bench.mark]) as decoy:
        await stopped(bench, bench.run(f"sleep {bench.mark}"), lambda: len(living(bench.mark)) > 1)
        assert living(bench.mark) == [decoy.pid]
        assert decoy.poll() is None


async def test_too_many_processes_are_killed_and_the_daemon_goes_on(bench: Bench) -> None:
    # Either the kernel refuses a fork, or the watch sees them: both end the call early.
    script = f"i=0; while [ $i -lt 200 ]; do sleep {bench.mark} & i=$((i+1)); done; wait"
    began = time.monotonic()
    code = await bench.program(["/bin/sh", "-c", script], limits=ProcessLimits(processes=60))
    assert time.monotonic() - began < 10
    assert code != 0
    assert "more than 60 processes" in bench.printed.text or "fork" in bench.printed.text
    assert living(bench.mark) == []


async def test_a_flood_is_read_to_its_end(bench: Bench) -> None:
    assert await bench.run("head -c 20000000 /dev/zero; echo end") == 0
    assert len(bench.printed.data) == 20_000_004


DAEMON = """
import asyncio, sys
from pathlib import Path
from gateway.domain.tools import SandboxMode
from gateway.sandbox import Confinement, Containment, ProcessLimits, run_contained

class Out:
    def write(self, data):
        sys.stdout.buffer.write(data)
        sys.stdout.flush()

workspace = Path(sys.argv[1])

async def run():
    within = Confinement(mode=SandboxMode(sys.argv[2]))
    await run_contained(["/bin/bash", "-c", sys.argv[4]], within=within, workspace=workspace, cwd=workspace,
        output=Out(), containment=eval(sys.argv[3], {"Containment": Containment}), limits=ProcessLimits())
"""
LIVES = """
asyncio.run(run())
"""
DIES_AT_ONCE = """
import os, signal, time

async def die(after_s):
    running = asyncio.create_task(run())
    until = time.monotonic() + after_s
    while time.monotonic() < until:
        await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGKILL)

for half_ms in range(40):
    if os.fork() == 0:
        asyncio.run(die(half_ms / 2000))
    os.wait()
"""


def daemon(bench: Bench, script: str, life: str) -> list[str]:
    """Return the command line of a program that runs a script as the daemon does."""
    return [sys.executable, "-c", DAEMON + life, str(bench.workspace), bench.mode, repr(bench.containment), script]


@pytest.mark.sampled(2)
async def test_a_killed_daemon_leaves_nothing(bench: Bench) -> None:
    with started(daemon(bench, STUBBORN.format(mark=bench.mark, last="while :; do sleep 0.1; done"), LIVES)):
        await bench.until(lambda: len(living(bench.mark)) >= 3)
    await bench.until(lambda: not living(bench.mark))


@pytest.mark.sampled(1)
async def test_a_daemon_killed_in_the_first_moments_leaves_nothing(bench: Bench) -> None:
    with started(daemon(bench, f"setsid sleep {bench.mark} & sleep {bench.mark}", DIES_AT_ONCE)) as lives:
        assert await asyncio.to_thread(lives.wait) == 0
    await asyncio.sleep(2)  # some may still begin; what is there after this stays
    assert living(bench.mark) == []


async def stopped(bench: Bench, work: Awaitable[int], when: Callable[[], bool]) -> float:
    """Cancel `work` as soon as `when` holds, wait for its end and return the seconds that took."""
    task = asyncio.ensure_future(work)
    await bench.until(when)
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return time.monotonic() - started
