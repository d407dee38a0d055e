from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.agent.worker import RETRY_AFTER_S
from gateway.app.daemon import TURNS_WITHIN_S, Daemon
from gateway.app.maintenance import Sweeper
from gateway.app.membership import Membership
from gateway.domain.nodes import NodeEntry
from gateway.domain.steps import Answer
from gateway.domain.tools import ResultStatus, Risk, ToolResult
from gateway.domain.turns import Lease, TurnState
from gateway.domain.views import Counts
from gateway.errors import StoreError
from gateway.ports import Channel, StatefulTool, ToolContext
from gateway.server.control_server import ControlServer
from gateway.server.http import HttpServer
from gateway.server.request_guard import Address
from gateway.store.kernel.facts import ALIVE, NODES
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.fakes import NODE, FailingStore, FakeChannel, FakeTool, calls, until


def daemon(
    engine: Engine, folder: Path, channels: Mapping[str, Channel], kept: Mapping[str, StatefulTool] | None = None
) -> Daemon:
    address = Address(host="127.0.0.1", port=0)
    sender = engine.delivery(*channels.values())
    return Daemon(
        machine="here",
        store=engine.store,
        clock=engine.clock,
        ingress=engine.ingress,
        channels=channels,
        stateful_tools=kept or {},
        http=HttpServer(
            address=address,
            endpoints=[],
            sign_ins=engine.web_access(),
            health=engine.store,
            metrics=engine.metrics,
            clock=engine.clock,
        ),
        control=ControlServer(folder / "control.sock", {}),
        worker=engine.worker(),
        delivery=sender,
        live_edits=engine.live_edits(sender),
        membership=Membership(entry=NodeEntry(node=NODE, key=None), node=engine.store, events=engine.store.event_bus),
        sweeper=Sweeper(node_id=NODE, sweeps=engine.store, node=engine.store, metrics=engine.metrics),
    )


@asynccontextmanager
async def running(made: Daemon) -> AsyncGenerator[asyncio.Task[None]]:
    """A daemon that is ready; stopped at the end if the test did not."""
    ready = asyncio.Event()

    async def say_ready() -> None:
        ready.set()

    task = asyncio.create_task(made.run(say_ready))
    async with asyncio.timeout(5):
        await ready.wait()
    try:
        yield task
    finally:
        made.stop()
        async with asyncio.timeout(10):
            await task


@pytest.fixture
def read() -> FakeTool:
    return FakeTool(name="read", risk=Risk.READ)


@pytest.fixture
def engine(tmp_path: Path, read: FakeTool) -> Engine:
    return Engine(tmp_path, [read])


async def _is(found: bool) -> bool:
    return found


async def test_a_message_is_answered_while_it_runs_and_health_says_so(engine: Engine, tmp_path: Path) -> None:
    channel = FakeChannel()
    made = daemon(engine, tmp_path, {"telegram": channel})
    async with running(made):
        await engine.say()
        await until(lambda: _is(bool(channel.sent)))
        url = f"http://127.0.0.1:{made.http.port}/readyz"
        async with aiohttp.ClientSession() as client, client.get(url) as response:
            assert response.status == 200

    assert [showing.text for showing in channel.sent] == ["That is all."]
    assert (NODES, ALIVE) in engine.store.all_facts


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_it_and_what_runs_is_given_back(
    engine: Engine, read: FakeTool, tmp_path: Path, number: signal.Signals
) -> None:
    read.hold = True
    engine.model.script = [calls("read"), Answer(text="Never said.")]
    made = daemon(engine, tmp_path, {})
    began = time.monotonic()
    async with running(made) as task:
        turn = await engine.say()
        await read.until_begun()
        os.kill(os.getpid(), number)
        async with asyncio.timeout(10):
            await task

    assert time.monotonic() - began < 5
    assert (await engine.store.turn(turn)).turn.state is TurnState.QUEUED
    assert (await engine.result(turn, 1)).status is ResultStatus.CANCELLED
    assert not (tmp_path / "control.sock").exists()


async def test_due_message_is_sent_before_the_daemon_ends(engine: Engine, tmp_path: Path) -> None:
    slow = asyncio.Event()
    channel = FakeChannel(slow={"1001": slow})
    made = daemon(engine, tmp_path, {"telegram": channel})
    async with running(made) as task:
        turn = await engine.say()
        await until(lambda: _is(engine.store.turns[turn].turn.state is TurnState.DONE))
        made.stop()
        made.stop()
        await asyncio.sleep(0.05)
        assert not task.done()
        slow.set()
        async with asyncio.timeout(5):
            await task

    assert [showing.text for showing in channel.sent] == ["That is all."]


async def test_a_send_that_hangs_does_not_hold_it_up(engine: Engine, tmp_path: Path) -> None:
    channel = FakeChannel(slow={"1001": asyncio.Event()})
    made = daemon(engine, tmp_path, {"telegram": channel})
    began = time.monotonic()
    async with running(made):
        turn = await engine.say()
        await until(lambda: _is(engine.store.turns[turn].turn.state is TurnState.DONE))

    assert time.monotonic() - began < 9
    assert (await engine.store.counts()).due_slots == 0  # it stays SENDING, and is found again at the start


class Keeping(FailingStore):
    """A store that accepts no released turn during the drain."""

    refused = 0

    async def release(self, lease: Lease) -> None:
        self.refused += 1
        if self.refused <= TURNS_WITHIN_S / RETRY_AFTER_S + 1:
            raise StoreError("The store failed: release.")
        await super().release(lease)


async def test_turn_not_released_in_time_is_free_after_the_end(tmp_path: Path) -> None:
    """The next process takes it in any case; another machine would wait for the end of the lease."""
    read = FakeTool(name="read", risk=Risk.READ, hold=True)
    engine = Engine(tmp_path, [read], store=Keeping(FakeClock()))
    engine.model.script = [calls("read")]
    async with running(daemon(engine, tmp_path, {})):
        turn = await engine.say()
        await read.until_begun()

    assert (await engine.store.turn(turn)).turn.state is TurnState.QUEUED


class Sick(FailingStore):
    """A store whose count fails."""

    async def counts(self) -> Counts:
        raise StoreError("The store failed: counts.")


async def test_failing_store_does_not_change_the_end(tmp_path: Path) -> None:
    engine = Engine(tmp_path, store=Sick(FakeClock()))
    closed = asyncio.Event()
    made = daemon(engine, tmp_path, {"telegram": FakeChannel()})

    async def breaks() -> None:
        closed.set()
        raise OSError("already gone")

    made.closers = [breaks]
    async with running(made):
        pass

    assert closed.is_set()


async def test_a_channel_that_breaks_begins_again_and_the_others_go_on(engine: Engine, tmp_path: Path) -> None:
    broken, well = FakeChannel(name="slack", breaks=1), FakeChannel()
    made = daemon(engine, tmp_path, {"slack": broken, "telegram": well})
    async with running(made):
        await engine.say()
        await until(lambda: _is(bool(well.sent)))
        await until(lambda: _is(broken.runs == 2))

    assert well.runs == 1


@dataclass
class Kite:
    """A stateful tool that fails once."""

    held: int = 0
    lives: int = 0

    async def run(self, ctx: ToolContext, args: Any) -> ToolResult:
        raise NotImplementedError

    async def serve(self) -> None:
        self.lives += 1
        self.held += 1
        try:
            if self.lives == 1:
                raise ValueError("the line tore")
            await asyncio.Event().wait()
        finally:
            self.held -= 1


async def test_stateful_tool_is_maintained_and_released_at_the_end(engine: Engine, tmp_path: Path) -> None:
    kite = Kite()
    made = daemon(engine, tmp_path, {"telegram": FakeChannel()}, {"kite": kite})
    async with running(made):
        await until(lambda: _is(kite.lives == 2 and kite.held == 1), within_s=5)

    assert (kite.lives, kite.held) == (2, 0)


async def test_a_port_that_is_taken_stops_the_start_cleanly(engine: Engine, tmp_path: Path) -> None:
    from gateway.errors import StartError

    first = daemon(engine, tmp_path, {})
    async with running(first):
        (other := tmp_path / "other").mkdir(mode=0o700)
        second = daemon(Engine(other), other, {})
        second.http.address = Address(host="127.0.0.1", port=first.http.port)
        with pytest.raises(StartError, match="Cannot listen"):
            await second.run(lambda: _nothing())


async def test_a_second_daemon_on_a_state_folder_does_not_join(engine: Engine, tmp_path: Path) -> None:
    from gateway.errors import StartError

    async with running(daemon(engine, tmp_path, {})):
        second = Engine(tmp_path)
        with pytest.raises(StartError, match="Another daemon runs on the state folder"):
            await daemon(second, tmp_path, {}).run(lambda: _nothing())
        assert await second.store.nodes() == []
        await asyncio.sleep(0.05)  # the first one takes the connection by which the second asked, and closes it


async def _nothing() -> None:
    pass
