"""Jobs: programs that outlive their call, over the real sandbox and the memory store."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.domain.events import JOBS, JobsStopped
from gateway.domain.ids import NodeId, Principal, SessionId
from gateway.domain.jobs import JobEnd, JobState
from gateway.domain.nodes import NodeEntry
from gateway.domain.tools import Action, NetworkMode, SandboxMode
from gateway.egress import Egress
from gateway.errors import BadRequest, NotFound, SandboxMissing
from gateway.ports import Store
from gateway.sandbox import Containment, ProcessLimits, probe
from gateway.store import open_store
from gateway.system.clock import SystemClock
from gateway.system.redaction import Redactor
from gateway.toolcalls.jobs import ELSEWHERE, LIVE_AT_MOST, UNSEEN_CHARS, Jobs, Unseen
from gateway.toolcalls.output import OnText, OutputBuffer
from gateway.toolcalls.processes import CallProcess, ProcessHost
from tests.support.patience import PATIENCE_S

ANN, BOB = Principal("telegram:1001"), Principal("telegram:2002")
MAIN, OTHER = SessionId("main:ann"), SessionId("main:cleo")
SECRET = "hush-hush-42"
HERE, THERE = NodeId("here#1"), NodeId("there#1")


@pytest.fixture(scope="module")
def machine() -> Containment:
    return asyncio.run(probe())


def living(mark: str) -> int:
    """Return how many processes have `mark` as an argument."""
    found = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                found += mark.encode() in (folder / "cmdline").read_bytes().split(b"\0")
    return found


def unheard(start: int, text: str) -> None:
    """Take no notice."""


@dataclass
class Daemon:
    """Jobs of one daemon, and calls of several sessions."""

    folder: Path
    machine: Containment
    store: Store
    jobs: Jobs = field(init=False)
    node: NodeId = HERE
    mark: str = field(default_factory=lambda: f"3{secrets.randbelow(10**9):09d}")

    def __post_init__(self) -> None:
        clock, store = SystemClock(), self.store
        self.jobs = Jobs(key_value=store, events=store.event_bus, clock=clock, node=self.node, nodes=store)

    @asynccontextmanager
    async def runs(self) -> AsyncGenerator[None]:
        async with asyncio.timeout(2 * PATIENCE_S), asyncio.TaskGroup() as group:
            task = group.create_task(self.jobs.run())
            await asyncio.sleep(0)
            try:
                yield
            finally:
                task.cancel()

    def call(self, root: SessionId = MAIN, by: Principal = ANN, seconds: float = 60) -> CallProcess:
        workspace = self.folder / "w"
        workspace.mkdir(exist_ok=True)
        action = Action(
            tool="shell", arguments={}, cwd=str(workspace), sandbox=SandboxMode.BASIC, network=NetworkMode.NONE
        )
        return CallProcess(
            host=ProcessHost(
                containment=self.machine, limits=ProcessLimits(), hidden=[self.folder / "state"], egress=Egress(),
                jobs=self.jobs,
            ),
            action=action, workspace=workspace, output=self.buffer(unheard), root=root, by=by,
            buffer=self.buffer, job_s=lambda asked: seconds if asked is None else asked,
        )  # fmt: skip

    def buffer(self, on_text: OnText) -> OutputBuffer:
        name = f"{secrets.token_hex(4)}.txt"

        def copy(copied: str) -> int:
            return os.open(self.folder / copied, os.O_WRONLY | os.O_CREAT, 0o600)

        return OutputBuffer(self.folder / "outputs", name, SystemClock(), Redactor([SECRET]), on_text, copy)

    async def start(self, script: str, call: CallProcess | None = None, *, terminal: bool = False) -> JobState:
        argv = ["/bin/bash", "--noprofile", "--norc", "-c", script]
        return await (call or self.call()).start(argv, terminal=terminal)

    async def sleeps(self, call: CallProcess | None = None) -> JobState:
        return await self.start(f"setsid sleep {self.mark} & trap '' TERM; echo up; sleep {self.mark}", call)

    async def until(self, job: str, done: Callable[[JobState], bool], call: CallProcess | None = None) -> JobState:
        said = ""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                state = await (call or self.call()).poll(job, wait_s=0.5)
                said += state.output
                if done(state):
                    return JobState(
                        id=job, end=state.end, exit_code=state.exit_code, output=said, why=state.why,
                        seconds=state.seconds, output_path=state.output_path,
                    )  # fmt: skip

    async def over(self, job: str) -> JobState:
        return await self.until(job, lambda state: state.end is not JobEnd.RUNNING)


@pytest.fixture
async def daemon(tmp_path: Path, machine: Containment) -> AsyncGenerator[Daemon]:
    store = open_store("memory://", SystemClock())
    yield Daemon(tmp_path, machine, store)
    await store.close()


async def test_a_job_goes_on_and_its_output_comes_bit_by_bit(daemon: Daemon) -> None:
    async with daemon.runs():
        began = await daemon.start("echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; exit 7")
        assert (began.end, began.exit_code) == (JobEnd.RUNNING, None)
        assert "one" in began.output or "one" in (await daemon.call().poll(began.id, wait_s=PATIENCE_S)).output
        assert (await daemon.call().poll(began.id)).output == ""
        (daemon.folder / "w" / "go").touch()
        ended = await daemon.over(began.id)
    assert (ended.end, ended.exit_code, ended.output, ended.why) == (JobEnd.EXITED, 7, "two\n", "")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a start wait as long as its program takes beside other load."""
    monkeypatch.setattr("gateway.toolcalls.jobs.SETTLES_S", PATIENCE_S)
    monkeypatch.setattr("gateway.toolcalls.jobs.PAUSE_S", PATIENCE_S)


@pytest.mark.usefixtures("patient")
async def test_a_job_that_ends_at_once_is_reported_at_once(daemon: Daemon) -> None:
    async with daemon.runs():
        state = await daemon.start("echo no such thing; exit 3")
    assert (state.end, state.exit_code, state.output) == (JobEnd.EXITED, 3, "no such thing\n")


@pytest.mark.usefixtures("patient")
async def test_a_job_that_cannot_start_says_why(daemon: Daemon) -> None:
    async with daemon.runs():
        state = await daemon.call().start(["no-such-program"])
        assert (state.end, state.why) == (
            JobEnd.FAILED,
            "There is no program `no-such-program`. Install it, or name one that is in /usr/local/bin:/usr/bin:/bin.",
        )


async def test_a_family_has_few_live_jobs_and_its_own_only(daemon: Daemon) -> None:
    async with daemon.runs():
        states = [await daemon.sleeps() for _ in range(LIVE_AT_MOST)]
        with pytest.raises(BadRequest, match=rf"4 jobs run in this session, and no more may: {states[0].id}"):
            await daemon.sleeps()
        theirs = daemon.call(OTHER)
        assert (await daemon.sleeps(theirs)).end is JobEnd.RUNNING
        for look in (theirs.poll, theirs.kill):
            with pytest.raises(NotFound, match=f"no job '{states[0].id}' in this session"):
                await look(states[0].id)
        assert (daemon.jobs.live(MAIN), daemon.jobs.live(OTHER)) == (4, 1)
        assert (await daemon.call().kill(states[0].id)).end is JobEnd.STOPPED
        assert (await daemon.sleeps()).end is JobEnd.RUNNING
    assert living(daemon.mark) == 0


async def test_a_killed_job_leaves_no_process(daemon: Daemon) -> None:
    async with daemon.runs():
        state = await daemon.sleeps()
        await daemon.until(state.id, lambda _: living(daemon.mark) >= 2)
        killed = await daemon.call().kill(state.id)
        assert living(daemon.mark) == 0
        assert (killed.end, killed.why) == (JobEnd.STOPPED, "It was ended by shell_kill.")
        again = await daemon.call().kill(state.id)
        assert (again.end, again.output) == (JobEnd.STOPPED, "")


@pytest.mark.parametrize(("only", "left"), [(None, 0), (BOB, 1), (Principal("telegram:3"), 2)])
async def test_a_stop_ends_jobs_of_its_session(daemon: Daemon, only: Principal | None, left: int) -> None:
    async with daemon.runs():
        mine = await daemon.sleeps()
        theirs = await daemon.sleeps(daemon.call(by=BOB))
        others = await daemon.sleeps(daemon.call(OTHER))
        daemon.store.event_bus.publish(JOBS, JobsStopped(session=MAIN, only=only, why="It was ended by /stop."))
        for state, by in ((mine, ANN), (theirs, BOB)):
            if only in (None, by):
                assert (await daemon.over(state.id)).why == "It was ended by /stop."
        assert daemon.jobs.live(MAIN) == len(daemon.jobs.running(MAIN)) == left
        assert (await daemon.call(OTHER).poll(others.id)).end is JobEnd.RUNNING
        assert (living(daemon.mark) > 2) == (left > 0)
    assert living(daemon.mark) == 0


async def test_a_job_ends_at_its_own_timeout(daemon: Daemon) -> None:
    async with daemon.runs():
        state = await daemon.sleeps(daemon.call(seconds=0.5))
        ended = await daemon.over(state.id)
    assert (ended.end, ended.exit_code, ended.why) == (
        JobEnd.TIMEOUT, None, "It was stopped after 0.5 s, its limit."
    )  # fmt: skip
    assert living(daemon.mark) == 0


async def test_a_shutdown_ends_all_jobs_and_no_more_begin(daemon: Daemon) -> None:
    async with daemon.runs():
        state = await daemon.sleeps()
        await daemon.until(state.id, lambda _: living(daemon.mark) >= 2)
    assert living(daemon.mark) == 0
    with pytest.raises(BadRequest, match="the daemon is stopping"):
        await daemon.sleeps()
    later = Daemon(daemon.folder, daemon.machine, daemon.store)
    async with later.runs():
        told = await later.call().poll(state.id)
    assert (told.end, told.why) == (JobEnd.STOPPED, "The daemon was shut down.")


async def test_a_job_that_a_crash_took_is_reported_as_lost(daemon: Daemon) -> None:
    async with daemon.runs():
        running, ended = await daemon.sleeps(), await daemon.start("exit 5")
        await daemon.over(ended.id)
        crashed = Daemon(daemon.folder, daemon.machine, daemon.store)  # the next life: only the store is known
        async with crashed.runs():
            for look in (crashed.call().poll, crashed.call().kill):
                told = await look(running.id)
                assert told.end is JobEnd.LOST
                assert told.why == "The daemon ended while it ran, and its programs with it. Its output is gone."
            told = await crashed.call().poll(ended.id)
            assert (told.end, told.exit_code) == (JobEnd.EXITED, 5)
            with pytest.raises(NotFound):
                await crashed.call(OTHER).poll(running.id)
            with pytest.raises(NotFound, match="None runs here: `shell` with `background` starts one"):
                await crashed.call().poll("j000000")


async def test_a_job_of_another_node_is_not_lost(daemon: Daemon) -> None:
    """A later turn may run on another node that shares the workspaces: it can end the job, and no more."""
    await daemon.store.join(NodeEntry(node=daemon.node, key=None))
    other = Daemon(daemon.folder, daemon.machine, daemon.store, node=THERE)
    async with daemon.runs(), other.runs():
        state, ended = await daemon.sleeps(), await daemon.start("seq 1 60000; exit 5")
        whole = (await daemon.over(ended.id)).output_path
        told = await other.call().poll(state.id)
        assert (told.end, told.why) == (JobEnd.RUNNING, ELSEWHERE)
        with pytest.raises(BadRequest, match="takes no input here"):
            await other.call().poll(state.id, typed="x")
        told = await other.call().kill(state.id)
        assert (told.end, told.why, living(daemon.mark)) == (JobEnd.STOPPED, "It was ended by shell_kill.", 0)
        told = await other.call().poll(ended.id)
        assert (told.exit_code, told.output_path) == (5, whole)
        assert whole


async def test_output_is_redacted_and_bounded(daemon: Daemon) -> None:
    async with daemon.runs():
        state = await daemon.start(f"printf hush-; sleep 0.1; echo hush-42 {SECRET}; seq 1 60000")
        ended = await daemon.over(state.id)
        said = state.output + ended.output
    assert SECRET not in said
    assert said.endswith("60000\n")
    assert len(said) < 3 * UNSEEN_CHARS
    assert "characters left out" in said


def test_unseen_output_keeps_its_end_and_counts_the_rest() -> None:
    unseen = Unseen()
    assert not unseen
    unseen.add(0, "a" * (UNSEEN_CHARS - 1))
    unseen.add(UNSEEN_CHARS - 1, "b")
    unseen.add(UNSEEN_CHARS, "c")
    assert unseen.take() == f"… {UNSEEN_CHARS - 1:,} characters left out …\nbc"
    assert not unseen
    assert unseen.take() == ""
    unseen.add(UNSEEN_CHARS + 11, "d" * (UNSEEN_CHARS + 1))
    assert unseen.take() == "… 11 characters left out …\n" + "d" * UNSEEN_CHARS
    unseen.add(2 * UNSEEN_CHARS + 12, "e")
    assert unseen.take() == "e"


async def test_a_job_in_a_terminal_is_typed_to(daemon: Daemon) -> None:
    async with daemon.runs():
        script = "read -p 'name? ' name; echo \"hello $name\"; read -s -p 'more? '"
        state = await daemon.start(script, terminal=True)
        asked = state.output or (await daemon.until(state.id, lambda state: bool(state.output))).output
        assert asked == "name? "
        answer = await daemon.call().poll(state.id, typed="ann\n", wait_s=PATIENCE_S)
        assert answer.output == "ann\nhello ann\nmore? "
        await daemon.call().poll(state.id, typed="\n", wait_s=PATIENCE_S)
        assert (await daemon.over(state.id)).exit_code == 0
        with pytest.raises(BadRequest, match="has ended"):
            await daemon.call().poll(state.id, typed="x")


async def test_a_job_without_terminal_takes_no_input(daemon: Daemon) -> None:
    async with daemon.runs():
        state = await daemon.sleeps()
        with pytest.raises(BadRequest, match=f"The job {state.id} takes no input. Start it again with pty = true"):
            await daemon.call().poll(state.id, typed="x")


async def test_a_job_needs_a_sandbox_that_its_tool_planned(daemon: Daemon) -> None:
    async with daemon.runs():
        call = daemon.call()
        bare = CallProcess(
            host=call.host, action=Action(tool="x", arguments={}, cwd="/", sandbox=None), workspace=call.workspace,
            output=call.output, root=MAIN, by=ANN, buffer=call.buffer, job_s=call.job_s,
        )  # fmt: skip
        with pytest.raises(SandboxMissing, match="not planned to start a process"):
            await bare.start(["true"])
