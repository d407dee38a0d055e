"""Control commands that end the jobs of a session: /stop and /new, by who may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.children import Lineage
from gateway.domain.ids import Principal, SessionId, child_session, main_session
from gateway.domain.jobs import JobEnd, JobState
from gateway.domain.sessions import Session, branch_of
from gateway.ports import Output, ProcessEnd
from gateway.sandbox import Terminal
from gateway.system.clock import SystemClock
from gateway.system.redaction import Redactor
from gateway.toolcalls.jobs import NewJob
from gateway.toolcalls.output import OnText, OutputBuffer
from tests.support.engine import Engine
from tests.support.fakes import GROUP, ToolBox
from tests.support.makers import ANN, ANN_TELEGRAM, BOB, inbound
from tests.support.patience import PATIENCE_S
from tests.unit.gateway.toolcalls.subsession_rig import answered, call, planned, spawning

MAIN = main_session(ANN)


@asynccontextmanager
async def with_jobs(engine: Engine) -> AsyncGenerator[None]:
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        task = group.create_task(engine.core.jobs.run())
        await asyncio.sleep(0)
        yield
        task.cancel()


async def forever(_output: Output, _terminal: Terminal | None) -> ProcessEnd:
    await asyncio.Event().wait()
    raise AssertionError


async def started(
    engine: Engine, root: SessionId, by: Principal, within: frozenset[SessionId] = frozenset()
) -> JobState:
    def buffer(on_text: OnText) -> OutputBuffer:
        return OutputBuffer(engine.workspaces.outputs(root), "job.txt", SystemClock(), Redactor(), on_text)

    new = NewJob(root=root, by=by, within=within, seconds=60, buffer=buffer)
    return await engine.core.jobs.start(new, forever)


async def ended(engine: Engine, root: SessionId, job: JobState) -> tuple[JobEnd, str]:
    state = await engine.core.jobs.poll(root, job.id, "", 0.3)
    return state.end, state.why


@pytest.mark.parametrize(
    ("text", "why", "reply"),
    [
        ("/stop", "It was ended by /stop.", "Stopped."),
        ("/new", "It was ended by /new.", "A new history begins here."),
    ],
)
async def test_a_command_ends_jobs_of_its_session(tmp_path: Path, text: str, why: str, reply: str) -> None:
    engine = Engine(tmp_path, [])
    async with with_jobs(engine):
        job = await started(engine, MAIN, ANN_TELEGRAM)
        others = await started(engine, SessionId("main:cleo"), ANN_TELEGRAM)
        await engine.ingress.message(inbound(text))

        assert await ended(engine, MAIN, job) == (JobEnd.STOPPED, why)
        assert await ended(engine, SessionId("main:cleo"), others) == (JobEnd.RUNNING, "")
        assert [slot.text for slot in await engine.slots()] == [reply]


async def test_status_names_the_jobs_of_the_session(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [])
    async with with_jobs(engine):
        job = await started(engine, MAIN, ANN_TELEGRAM)
        await started(engine, SessionId("main:cleo"), ANN_TELEGRAM)
        await engine.ingress.message(inbound("/status"))
        (slot,) = await engine.slots()
        assert f"In the background: {job.id} for 0 s. /stop ends them." in slot.text


async def test_without_a_job_nothing_was_stopped(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [])
    async with with_jobs(engine):
        await engine.ingress.message(inbound("/stop"))
        assert [slot.text for slot in await engine.slots()] == ["Nothing is running or waiting here."]


async def test_stop_of_a_member_ends_only_own_jobs(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [])
    message = inbound("/stop", where=GROUP, who=BOB, direct=False)
    root = SessionId("chat:telegram/default/-1003")
    async with with_jobs(engine):
        anns, bobs = await started(engine, root, ANN_TELEGRAM), await started(engine, root, BOB)
        await engine.ingress.message(message)

        assert await ended(engine, root, bobs) == (JobEnd.STOPPED, "It was ended by /stop.")
        assert await ended(engine, root, anns) == (JobEnd.RUNNING, "")


async def test_a_command_that_comes_twice_ends_jobs_once(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [])
    message = inbound("/stop")
    async with with_jobs(engine):
        await engine.ingress.message(message)
        await asyncio.sleep(0.02)  # the first one is heard of
        job = await started(engine, MAIN, ANN_TELEGRAM)
        await engine.ingress.message(message)

        assert await ended(engine, MAIN, job) == (JobEnd.RUNNING, "")


async def test_sessions_stop_ends_the_jobs_of_the_sub_session_only(tmp_path: Path) -> None:
    """A job outlives the call that began it, not the session that was stopped (I30)."""
    engine = spawning(tmp_path, ToolBox().all)
    async with with_jobs(engine):
        parent = await planned(engine, call("sessions_spawn", task="later", mode="session"))
        assert await engine.settle(parent)
        child = await engine.store.session(child_session(parent.turn, 1))
        assert child is not None
        below = replace(child, id=SessionId("below"), lineage=replace(lineage_of(child), parent=child.id, depth=2))
        mine = await started(engine, MAIN, ANN_TELEGRAM, branch_of(child))
        deeper = await started(engine, MAIN, ANN_TELEGRAM, branch_of(below))
        others = await started(engine, MAIN, ANN_TELEGRAM)
        await answered(engine, parent, call("sessions_stop", session=child.id))
        assert await engine.settle(parent)

        why = "It was ended by sessions_stop."
        assert await ended(engine, MAIN, mine) == await ended(engine, MAIN, deeper) == (JobEnd.STOPPED, why)
        assert await ended(engine, MAIN, others) == (JobEnd.RUNNING, "")


def lineage_of(session: Session) -> Lineage:
    assert session.lineage is not None
    return session.lineage
