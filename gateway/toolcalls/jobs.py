"""Jobs: programs that go on after the call that started them. Used by `processes`, and by ingress for /stop and /new.

A job belongs to the family of one root session. It ends with all its processes at its timeout, at `shell_kill`, and at
/stop and /new of that session. It also ends with the sub-session that began it, and with the daemon. A fact in the
store records its start, so that a job lost in a crash is reported as lost.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from gateway.domain.events import JOBS, JobKilled, JobsStopped
from gateway.domain.ids import NodeId, Principal, SessionId
from gateway.domain.jobs import JobEnd, JobState
from gateway.errors import BadRequest, DragomanError, NotFound, StoreError
from gateway.ports import Clock, EventBus, KeyValue, Node, Output, ProcessEnd
from gateway.sandbox import Terminal
from gateway.system.clock import is_set
from gateway.system.figures import duration
from gateway.system.logging_setup import log
from gateway.toolcalls.output import OnText, OutputBuffer
from gateway.toolcalls.workspaces import READABLE

LIVE_AT_MOST = 4
"""Live jobs of one root session's family."""
ENDED_KEPT = 8
"""Ended jobs of a family whose output can still be read."""
UNSEEN_CHARS = 50_000
"""Characters of unread output that are kept; older ones are left out."""
SETTLES_S = 0.2
"""Seconds for a new job to fail, or to print its first words."""
PAUSE_S = 0.2
"""Seconds without output after which a program is thought to wait."""
ENDS_WITHIN_S = 5.0
"""Timeout in seconds for a killed job to end."""
KNOWN_FOR = timedelta(days=1)
"""Time for which a job's fact is kept."""
LOOK_EVERY_S = 0.1
"""Interval in seconds between checks for a job that another node has ended."""
KILLED = "It was ended by shell_kill."
ELSEWHERE = "It runs on another node than this turn: its output is not shown here, and nothing can be typed into it."
"""Text for a job while workspaces are shared. Without that, its session's turns run where it runs."""
NOTED_WITHIN_S = 1.0
"""Timeout in seconds for storing that a job ended."""

RunProgram = Callable[[Output, Terminal | None], Awaitable[ProcessEnd]]
"""Run the job's program to its end, with this output and terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """Job to be started."""

    root: SessionId
    """Root session of the family that it belongs to."""
    by: Principal
    """Principal for whom it runs."""
    within: frozenset[SessionId] = frozenset()
    """Sub-session that began it, and its parent if that is one too: it ends when one of them is stopped."""
    seconds: float
    """Maximum duration."""
    buffer: Callable[[OnText], OutputBuffer]
    """Make the buffer of its output, which passes redacted text on."""
    terminal: Terminal | None = None


class Unseen:
    """Unread output: its last part."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._left_out = 0
        self._next = 0

    def add(self, start: int, text: str) -> None:
        """Append the text at an offset; a gap before it was left out."""
        self._left_out += max(start - self._next, 0)
        self._next = start + len(text)
        self._parts.append(text[-UNSEEN_CHARS:])
        self._left_out += len(text) - len(self._parts[-1])
        self._length += len(self._parts[-1])
        while self._length > UNSEEN_CHARS and len(self._parts) > 1:
            gone = len(self._parts.pop(0))
            self._length -= gone
            self._left_out += gone

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return bool(self._parts)

    def take(self) -> str:
        """Return the text, after a line that counts what was left out, and keep none of it."""
        gap = f"… {self._left_out:,} characters left out …\n" if self._left_out else ""
        text = gap + "".join(self._parts)
        self._parts, self._length, self._left_out = [], 0, 0
        return text


class _Watched:
    """`Output` of a job: passes all on to a buffer, and reports each write."""

    def __init__(self, buffer: OutputBuffer, wrote: asyncio.Event) -> None:
        self._buffer = buffer
        self._wrote = wrote

    def write(self, data: bytes) -> None:
        """Append some output."""
        self._buffer.write(data)
        self._wrote.set()


@dataclass(slots=True, kw_only=True)
class _Job:
    """One job of this daemon, live or ended."""

    id: str
    new: NewJob
    began: float
    unseen: Unseen = field(default_factory=Unseen)
    wrote: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by each write, and at the end."""
    buffer: OutputBuffer | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    end: JobEnd = JobEnd.RUNNING
    exit_code: int | None = None
    why: str = ""
    output_path: str = ""

    @property
    def live(self) -> bool:
        """Return whether its processes may still run."""
        return not self.ended.is_set()

    async def settle(self, wait_s: float) -> None:
        """Wait up to so many seconds for output, and then until it pauses. Show a prompt that stands there."""
        until = asyncio.get_running_loop().time() + wait_s
        self.wrote.clear()
        while self.live and await is_set(self.wrote, min(wait_s, until - asyncio.get_running_loop().time())):
            self.wrote.clear()
            wait_s = PAUSE_S
        if self.live and self.new.terminal is not None and self.buffer is not None:
            self.buffer.show_held()

    def stop(self, end: JobEnd, why: str) -> None:
        """Kill it, for this reason. Idempotent."""
        if self.live and self.end is JobEnd.RUNNING:
            self.end, self.why = end, why
            if self.task is not None:
                self.task.cancel()


class Jobs:
    """All jobs of this daemon. They run in the task group of `run`."""

    def __init__(self, *, key_value: KeyValue, events: EventBus, clock: Clock, node: NodeId, nodes: Node) -> None:
        """Take the store of facts, the events of /stop and /new, the clock, this daemon's id and the list of all."""
        self._key_value = key_value
        self._node, self._nodes = node, nodes
        self._events = events
        self._clock = clock
        self._jobs: dict[tuple[SessionId, str], _Job] = {}
        self._group: asyncio.TaskGroup | None = None
        self._log = log("jobs")

    async def run(self) -> None:
        """Run jobs until cancelled; then all of them are killed."""
        async with self._events.subscribe(JOBS) as events, asyncio.TaskGroup() as group:
            self._group = group
            try:
                async for event in events:
                    if isinstance(event, JobsStopped):
                        self._stop(event)
                    elif isinstance(event, JobKilled) and (job := self._jobs.get((event.session, event.job))):
                        job.stop(JobEnd.STOPPED, KILLED)
            finally:
                self._group = None
                for job in self._jobs.values():
                    job.stop(JobEnd.STOPPED, "The daemon was shut down.")

    def live(self, root: SessionId, only: Principal | None = None) -> int:
        """Return the number of live jobs of a family; `only`: of those that run for this principal."""
        return sum(job.live and only in (None, job.new.by) for job in self._of(root))

    def running(self, root: SessionId) -> list[str]:
        """Return the live jobs of a family for people: `j1a2b3c for 12 s`."""
        now = self._clock.monotonic()
        return [f"{job.id} for {duration(timedelta(seconds=now - job.began))}" for job in self._of(root) if job.live]

    async def start(self, new: NewJob, run: RunProgram) -> JobState:
        """Start a job; return its state a moment later. Raises `BadRequest` when too many run, or none may start."""
        if self._group is None:
            raise BadRequest("No job can be started: the daemon is stopping.", cure="Run it again later.")
        if self.live(new.root) >= LIVE_AT_MOST:
            names = ", ".join(job.id for job in self._of(new.root) if job.live)
            cure = "Wait for one with shell_poll, or end one with shell_kill."
            raise BadRequest(f"{LIVE_AT_MOST} jobs run in this session, and no more may: {names}.", cure=cure)
        job = _Job(id=f"j{secrets.token_hex(3)}", new=new, began=self._clock.monotonic())
        self._jobs[new.root, job.id] = job  # before the write, so that /stop finds it
        try:
            await self._note(job)
        except BaseException:
            del self._jobs[new.root, job.id]
            raise
        self._begin(job, run)
        self._forget_oldest(new.root)
        await job.settle(SETTLES_S)
        return self._state(job)

    async def poll(self, root: SessionId, id: str, typed: str, wait_s: float) -> JobState:
        """Type into a job's terminal, wait up to `wait_s` for output or its end, and return its state.

        Raises `NotFound` for a job that the family never had, and `BadRequest` when it takes no input.
        """
        job = self._jobs.get((root, id))
        if job is None:
            state = await self._earlier(root, id)
            if typed and state.end is JobEnd.RUNNING:
                raise BadRequest(f"The job {id} takes no input here. {ELSEWHERE}", cure="Wait for it, or end it.")
            return state
        if typed:
            self._type(job, typed)
        if job.live and wait_s > 0 and (typed or not job.unseen):
            await job.settle(wait_s)
        return self._state(job)

    async def kill(self, root: SessionId, id: str) -> JobState:
        """End a job with all its processes, and return its state. Raises `NotFound`. Idempotent."""
        job = self._jobs.get((root, id))
        if job is None:
            return await self._kill_elsewhere(root, id)
        job.stop(JobEnd.STOPPED, KILLED)
        await is_set(job.ended, ENDS_WITHIN_S)
        return self._state(job)

    async def _kill_elsewhere(self, root: SessionId, id: str) -> JobState:
        """Have the node with this job end it, if one has it, and wait a moment for that."""
        state, until = await self._earlier(root, id), asyncio.get_running_loop().time() + ENDS_WITHIN_S
        if state.end is JobEnd.RUNNING:
            self._events.publish(JOBS, JobKilled(session=root, job=id))
        while state.end is JobEnd.RUNNING and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(LOOK_EVERY_S)
            state = await self._earlier(root, id)
        return state

    # --- one job ------------------------------------------------------------------------------

    def _begin(self, job: _Job, run: RunProgram) -> None:
        """Begin a job whose fact is stored. Raises `BadRequest` when it was stopped meanwhile."""
        if self._group is None or job.end is not JobEnd.RUNNING:
            del self._jobs[job.new.root, job.id]
            raise BadRequest("The job was stopped before it began.", cure="Run it again.")
        job.task = self._group.create_task(self._run(job, run), name=f"job {job.id}")

    async def _run(self, job: _Job, run: RunProgram) -> None:
        output = job.buffer = job.new.buffer(job.unseen.add)
        scope, cancelled = asyncio.timeout(job.new.seconds), False
        try:
            async with scope:
                job.exit_code = (await run(_Watched(output, job.wrote), job.new.terminal)).exit_code
            job.end = JobEnd.EXITED
        except TimeoutError:
            job.end, job.why = JobEnd.TIMEOUT, f"It was stopped after {job.new.seconds:g} s, its limit."
        except DragomanError as error:
            job.end, job.why = JobEnd.FAILED, str(error)
        except asyncio.CancelledError:
            cancelled = True
        except Exception:  # noqa: BLE001 - nobody awaits a job: its failure becomes its state, which is told
            self._log.exception("a job failed", job=job.id)
            job.end, job.why = JobEnd.FAILED, "It failed by a fault of its own."
        finally:
            output.close()
            job.output_path = f"{READABLE}/{output.full_output}" if output.has_copy else ""
        try:
            await self._note(job)
        finally:
            job.ended.set()
            job.wrote.set()
        if cancelled:
            raise asyncio.CancelledError

    def _type(self, job: _Job, typed: str) -> None:
        if job.new.terminal is None:
            raise BadRequest(f"The job {job.id} takes no input.", cure="Start it again with pty = true.")
        job.new.terminal.write(typed.encode())

    def _state(self, job: _Job) -> JobState:
        return JobState(
            id=job.id,
            end=job.end if job.ended.is_set() else JobEnd.RUNNING,
            exit_code=job.exit_code,
            output=job.unseen.take(),
            why=job.why,
            seconds=self._clock.monotonic() - job.began,
            output_path=job.output_path,
        )

    # --- all of a family ----------------------------------------------------------------------

    def _of(self, root: SessionId) -> list[_Job]:
        return [job for (owner, _), job in self._jobs.items() if owner == root]

    def _forget_oldest(self, root: SessionId) -> None:
        ended = [job for job in self._of(root) if not job.live]
        for job in ended[: max(len(ended) - ENDED_KEPT, 0)]:
            del self._jobs[root, job.id]

    def _stop(self, event: JobsStopped) -> None:
        for job in self._of(event.session):
            if event.only in (None, job.new.by) and (event.below is None or event.below in job.new.within):
                job.stop(JobEnd.STOPPED, event.why)

    # --- facts --------------------------------------------------------------------------------

    async def _note(self, job: _Job) -> None:
        """Store that a job was begun, or how it ended. The end may be missing: then it is reported as lost."""
        fact = {"end": job.end.value, "why": job.why, "exit_code": job.exit_code, "node": self._node}
        fact |= {"output_path": job.output_path}
        ttl = timedelta(seconds=job.new.seconds) + KNOWN_FOR
        try:
            async with asyncio.timeout(NOTED_WITHIN_S if job.task else None):
                await self._key_value.put(_namespace(job.new.root), job.id, json.dumps(fact), ttl)
        except (StoreError, TimeoutError) as error:
            if job.task is None:
                raise
            self._log.error("the end of a job is not stored", job=job.id, error=str(error))

    async def _earlier(self, root: SessionId, id: str) -> JobState:
        """Return the stored state of a job that this daemon does not have. Raises `NotFound`."""
        found = (await self._key_value.items(_namespace(root))).get(id)
        if found is None:
            live = ", ".join(job.id for job in self._of(root))
            cure = f"Name one of these: {live}." if live else "None runs here: `shell` with `background` starts one."
            raise NotFound(f"There is no job {id[:40]!r} in this session.", cure=cure)
        fact: Mapping[str, Any] = json.loads(found)
        end = JobEnd(fact["end"])
        why, path = fact["why"], fact.get("output_path", "")
        if end is JobEnd.RUNNING:
            why = ELSEWHERE
            if not any(one.lives and one.node == fact.get("node") != self._node for one in await self._nodes.nodes()):
                end, why = JobEnd.LOST, "The daemon ended while it ran, and its programs with it. Its output is gone."
        return JobState(id=id, end=end, exit_code=fact["exit_code"], output="", why=why, seconds=0, output_path=path)


def _namespace(root: SessionId) -> str:
    return f"jobs/{root}"
