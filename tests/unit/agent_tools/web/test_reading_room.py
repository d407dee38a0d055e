"""The reading room: whose child reads a document, and what a child may answer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from agent_tools._web.reading_room import ReadingRoom
from gateway.app.tool_hosts import DaemonToolHost
from gateway.domain.tools import SandboxMode
from gateway.errors import BadRequest
from gateway.ports import SandboxSession
from gateway.sandbox import Containment
from tests.support.clock import FakeClock
from tests.unit.agent_tools.web.conftest import Call, Web

PAGE = b"<p>The pears are ripe.</p>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host(DaemonToolHost):
    """The daemon's host. It notes each child, and starts `program` in place of the reader when one is given."""

    program: Path | None = None
    started: list[Path] = field(default_factory=list[Path])

    @asynccontextmanager
    async def open_sandbox_session(
        self,
        program: Path,
        *,
        sandbox: SandboxMode | None,
        hosts: Sequence[str],
        proxies: int,
        readable: Sequence[Path] = (),
    ) -> AsyncGenerator[SandboxSession]:
        more = [] if self.program is None else [self.program.parent]
        opened = DaemonToolHost.open_sandbox_session(
            self, self.program or program, sandbox=sandbox, hosts=hosts, proxies=proxies, readable=[*readable, *more]
        )
        async with opened as session:
            self.started.append(session.launcher)
            yield session


@pytest.fixture
def host(tmp_path: Path, the_web: Web, machine: Containment) -> Host:
    return Host(
        settings=None, folder=tmp_path / "tool", clock=FakeClock(), containment=machine, egress=the_web.egress()
    )


@asynccontextmanager
async def room_of(host: Host) -> AsyncGenerator[ReadingRoom]:
    room = ReadingRoom(host)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(room.serve())
        yield room
        serving.cancel()


async def read(room: ReadingRoom, call: Call, data: bytes = PAGE) -> str:
    return str((await room.read(call, "html", data, form="text", url=""))["text"])


async def test_a_child_reads_for_one_session_alone(host: Host, call: Call) -> None:
    async with room_of(host) as room:
        assert await read(room, call) == await read(room, call) == "The pears are ripe."
        assert len(host.started) == 1
        call.kept_for = "main-bob-0-of-a-test"
        assert await read(room, call) == "The pears are ripe."
        assert len(host.started) == 2


TAKEN_OVER = """#!{python}
import json, sys
job = json.loads(sys.stdin.buffer.readline())
sys.stdin.buffer.read(job["size"])
print(json.dumps({{"id": job["id"], "text": "first"}}))
print({ahead!r}, flush=True)
sys.stdin.read()
"""
"""Child that answers its first job, and writes another line ahead of the second."""
AHEAD = {
    "nothing": "",
    "no JSON": "pears",
    "no object": "[]",
    "no id": '{"text": "false"}',
    "the id of another job": '{"id": "0123456789abcdef0123456789abcdef", "text": "false"}',
}


@pytest.mark.parametrize("ahead", AHEAD.values(), ids=list(AHEAD))
async def test_an_answer_ahead_of_its_job_ends_the_child(host: Host, call: Call, tmp_path: Path, ahead: str) -> None:
    program = tmp_path / "taken_over" / "reader"
    program.parent.mkdir()
    program.write_text(TAKEN_OVER.format(python=sys.executable, ahead=ahead))
    program.chmod(0o755)
    taken = replace(host, program=program, started=[])
    async with room_of(taken) as room:
        assert await read(room, call) == "first"
        with pytest.raises(BadRequest, match="too much time or memory to read"):
            await read(room, call)
        assert len(taken.started) == 1
        assert await read(room, call) == "first"
        assert len(taken.started) == 2
