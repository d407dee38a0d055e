"""Rig of several daemons on one Redis and one bot of Telegram, with a proxy before their webhooks."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from gateway.domain.views import Item
from gateway.store import open_store
from gateway.system.clock import SystemClock
from gateway.system.failpoints import ENVIRONMENT
from tests.fault.oracle import the_audit_is_whole
from tests.fault.rig import until_quiet
from tests.fault.telegram_rig import SECRET
from tests.support.daemon import Daemon
from tests.support.model_server import Rule, ScriptedModel
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer
from tests.support.telegram import TOKEN, FakeTelegram

KEY = bytes(range(32))
CONFIG = """
[store]
url = "{redis}"
[owners]
ann = ["telegram:1001"]
[limits]
messages_per_minute = 0
[people]
allow = ["telegram:*"]
[sessions]
message_while_running = "queue"
[model]
name = "openai:scripted"
base_url = "{model}"
[channels.telegram]
token = "env:TELEGRAM_BOT_TOKEN"
api_root = "{api_root}"
mode = "{mode}"
{secret}
[channels.telegram.limits]
per_chat_per_s = 0
overall_per_s = 0
{more}
"""
CHUNK = 65_536


class Proxy:
    """A proxy that gives each connection to the next daemon that takes one."""

    def __init__(self, ports: Sequence[int]) -> None:
        """Take the ports of the daemons."""
        self.port = free_port()
        self._ports, self._next = ports, 0
        self._lines: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[Proxy]:
        """Listen on loopback."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        try:
            yield self
        finally:
            server.close()
            for line in list(self._lines):
                line.cancel()
            while self._lines:
                await asyncio.wait(set(self._lines))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._lines.add(task)
        task.add_done_callback(self._lines.discard)
        with suppress(OSError, asyncio.CancelledError):
            await self._joined(reader, writer)
        writer.close()

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in self._ports:
            self._next += 1
            with suppress(OSError):
                there = await asyncio.open_connection("127.0.0.1", self._ports[self._next % len(self._ports)])
                break
        else:
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry_all(reader, there[1]), name="proxy out")
                both.create_task(self._carry_all(there[0], writer), name="proxy in")
        finally:
            there[1].close()

    async def _carry_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes one way; the end of one side is the end of both."""
        with suppress(OSError):
            while (data := await reader.read(CHUNK)) and await self.carry(data, writer):
                pass
        writer.close()

    async def carry(self, data: bytes, writer: asyncio.StreamWriter) -> bool:
        """Pass a piece on. Return whether the connection goes on."""
        writer.write(data)
        await writer.drain()
        return True


@dataclass(slots=True, kw_only=True)
class Fleet:
    """Daemons on one Redis, their bot and their model."""

    redis: RedisServer
    nodes: Sequence[Daemon]
    telegram: FakeTelegram
    model: ScriptedModel
    env: Mapping[str, str]
    deaths: list[float] = field(default_factory=list[float])
    """When each `kill -9` was over, in seconds of `time.monotonic()`."""

    async def start(self, node: Daemon, armed: str = "", *, ready: bool = True) -> None:
        """Begin a life of one daemon, with fail points armed."""
        await node.start({**self.env, ENVIRONMENT: armed}, ready=ready)

    async def kill(self, node: Daemon) -> None:
        """End this life as by `kill -9`."""
        await node.kill()
        self.deaths.append(time.monotonic())

    async def kill_often(self, every_s: float, chance: random.Random, is_over: Callable[[], bool]) -> None:
        """Kill one of the daemons, begin its next life at once, and so on, until that is over. All live in the end."""
        while not is_over():
            began = time.monotonic()
            node = chance.choice(self.nodes)
            await self.kill(node)
            await self.start(node, ready=False)
            self.model.requests.clear()
            await asyncio.sleep(max(0.0, every_s - (time.monotonic() - began)))
        for node in self.nodes:
            await node.until_ready()

    async def settled(self, within_s: float = PATIENCE_S) -> None:
        """Wait until every update is confirmed and nothing is queued, running or due."""
        await self.telegram.until(lambda: not self.telegram.updates.pending(), within_s)
        await until_quiet(self.nodes[-1], within_s)

    async def stop(self) -> None:
        """Stop all that live, in order."""
        for node in self.nodes:
            if node.process is not None and node.process.returncode is None:
                assert await node.stop() == 0, node.log[-3000:]

    async def everything(self) -> dict[str, list[Item]]:
        """The rows of every session, by session; the audit must be whole."""
        store = open_store(self.redis.url, SystemClock())
        try:
            await the_audit_is_whole(store)
            found: dict[str, list[Item]] = {}
            for line in await store.sessions(10_000):
                rows = await store.changes(line.session.id, 0, 100_000)
                assert not rows.more
                found[line.session.id] = [row.item for row in sorted(rows.rows, key=lambda row: row.ord)]
            return found
        finally:
            await store.close()


@asynccontextmanager
async def fleet(
    folder: Path,
    count: int = 3,
    *,
    mode: str = "webhook",
    rules: Sequence[Rule] = (),
    more: str = "",
    spare: int = 0,
    armed: str = "",
    server: RedisServer | None = None,
) -> AsyncGenerator[Fleet]:
    """So many daemons that live, with one key of buttons. `more`: further lines of the configuration.

    `spare`: further daemons that do not live yet. `armed`: fail points of the first one's first life.
    `server`: another Redis than one on loopback.
    """
    with server or RedisServer(folder / "redis") as redis:
        async with ScriptedModel(rules=rules) as model, FakeTelegram().serve() as telegram:
            secret = 'webhook_secret = "env:TELEGRAM_WEBHOOK_SECRET"' if mode == "webhook" else ""
            values = {"redis": redis.url, "model": model.base_url, "api_root": telegram.api_root}
            config = CONFIG.format(**values, mode=mode, secret=secret, more=more)
            nodes = [Daemon(folder=folder / f"node-{n}", warm=True, config=config) for n in range(count + spare)]
            async with Proxy([node.port for node in nodes]).serve() as proxy:
                env = {
                    "TELEGRAM_BOT_TOKEN": TOKEN,
                    "TELEGRAM_WEBHOOK_SECRET": SECRET,
                    "DRAGOMAN_HTTP__PUBLIC_URL": f"http://127.0.0.1:{proxy.port}",
                    "DRAGOMAN_LOG__LEVEL": "info",
                }
                found = Fleet(redis=redis, nodes=nodes, telegram=telegram, model=model, env=env)
                try:
                    for node in nodes:
                        node.state.mkdir(parents=True, mode=0o700)
                        (node.state / "state.key").touch(0o600)
                        (node.state / "state.key").write_bytes(KEY)
                    for node in nodes[:count]:
                        await found.start(node, armed if node is nodes[0] else "", ready=False)
                    for node in nodes[:count]:
                        await node.until_ready()
                    yield found
                finally:
                    for node in nodes:
                        await node.kill()
            assert telegram.surprises == []
            assert [one for node in nodes for one in (TOKEN.partition(":")[2], SECRET) if one in node.log] == []


def runs_of(fleet: Fleet, name: str) -> int:
    """Return the number of lines that a command left in files of a name, on all nodes."""
    files = [path for node in fleet.nodes for path in node.state.rglob(name)]
    return sum(len(path.read_text().splitlines()) for path in files)
