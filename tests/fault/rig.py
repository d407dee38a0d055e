"""Shared rig of the fault tests: a page that reconnects by itself, and figures of a quiet daemon."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from gateway.domain.ids import SessionId
from gateway.domain.views import Item
from gateway.ports import Store
from gateway.store import open_store
from gateway.system.clock import SystemClock
from tests.fault.oracle import the_audit_is_whole
from tests.support.daemon import Daemon, signed_in
from tests.support.patience import PATIENCE_S

Json = dict[str, Any]
BUSY = ("queued_turns", "running_turns", "parked_turns", "due_slots")


@dataclass(slots=True)
class Visitor:
    """A page that stays open over restarts: what was not acknowledged is sent again with the same id."""

    daemon: Daemon
    client: aiohttp.ClientSession
    session: str
    rows: dict[tuple[str, str], Json] = field(default_factory=dict[tuple[str, str], Json])
    answers: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])
    """Answers to each `say` and `press`, by its id."""
    handles: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """Every button that was ever shown, by approval and verb, or by question and label."""
    frames: list[Json] = field(default_factory=list[Json])
    _unsaid: dict[str, Json] = field(default_factory=dict[str, Json])
    _rev: int | None = None
    _ids: int = 0
    _socket: aiohttp.ClientWebSocketResponse | None = None
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def stay(self) -> None:
        """Keep a socket open until cancelled."""
        while True:
            with suppress(aiohttp.ClientError, ConnectionError):
                async with self.client.ws_connect(f"{self.daemon.url}/ws", max_msg_size=0) as self._socket:
                    await self._socket.send_json({"op": "open", "session": self.session, "after": self._rev})
                    for frame in list(self._unsaid.values()):
                        await self._socket.send_json(frame)
                    async for message in self._socket:
                        if message.type is not aiohttp.WSMsgType.TEXT:
                            raise ConnectionError(f"{message.type}: {message.data}")
                        await self._took(json.loads(message.data))
            self._socket = None
            await asyncio.sleep(0.05)

    async def say(self, text: str, id: str = "") -> str:
        """Say something; returns its id at once."""
        return await self._send({"op": "say", "text": text}, id)

    async def press(self, handle: str, reason: str = "", id: str = "") -> str:
        """Press a button; returns its id at once."""
        return await self._send({"op": "press", "handle": handle, "reason": reason}, id)

    async def answered(self, id: str, within_s: float = PATIENCE_S) -> Json:
        """The first answer to what was said or pressed."""
        await self.until(lambda: id in self.answers, within_s)
        return self.answers[id][0]

    async def follow(self, session: str) -> None:
        """Show another session from now on, also after the socket was lost."""
        self.session, self._rev = session, None
        if self._socket is not None:
            await self._socket.send_json({"op": "open", "session": session, "after": None})

    def of(self, type: str, **wanted: Any) -> list[Json]:
        """Rows of a type in order, those with the wanted values."""
        found = [row for row in self.rows.values() if row["type"] == type]
        fits = [row for row in found if all(row[key] == value for key, value in wanted.items())]
        return sorted(fits, key=lambda row: row["ord"])

    async def row(self, type: str, within_s: float = PATIENCE_S, **wanted: Any) -> Json:
        """Wait for a row of a type with the wanted values."""
        try:
            await self.until(lambda: bool(self.of(type, **wanted)), within_s)
        except TimeoutError:
            raise AssertionError(f"no {type} {wanted}: {self.of(type)}\n{self.daemon.log[-3000:]}") from None
        return self.of(type, **wanted)[0]

    async def until(self, condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        """Wait until a condition holds. Raises `TimeoutError`."""
        async with asyncio.timeout(within_s), self._changed:
            await self._changed.wait_for(condition)

    async def _send(self, frame: Json, id: str) -> str:
        self._ids += 1
        id = id or f"visitor-{self._ids:08}"
        self._unsaid[id] = {**frame, "id": id}
        if self._socket is not None:
            with suppress(ConnectionError):  # sent again when the socket is back
                await self._socket.send_json(self._unsaid[id])
        return id

    async def _took(self, frame: Json) -> None:
        self.frames.append(frame)
        if frame["op"] in ("said", "pressed"):
            self._unsaid.pop(frame["id"], None)
            self.answers.setdefault(frame["id"], []).append(frame)
        elif frame["op"] == "rows" and frame["session"] == self.session:
            self._rev = frame["rev"]
            for row in frame["rows"]:
                self.rows[row["type"], row["id"]] = row
                for button in row.get("buttons", []):
                    self.handles[row["id"], button.get("verb", button["label"])] = button["handle"]
        async with self._changed:
            self._changed.notify_all()


@asynccontextmanager
async def visiting(daemon: Daemon, owner: str = "ann", state: Path | None = None) -> AsyncGenerator[Visitor]:
    """An owner's page that follows the owner's main session until the end. `state`: as it can be seen from here."""
    async with signed_in(daemon, owner, state) as client:
        visitor = Visitor(daemon, client, f"main:{owner}")
        staying = asyncio.create_task(visitor.stay(), name=f"page of {owner}")
        try:
            yield visitor
        finally:
            staying.cancel()
            with suppress(asyncio.CancelledError):
                await staying


async def until(condition: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Look every 20 ms until a condition of the file system or the processes holds. Raises `TimeoutError`."""
    async with asyncio.timeout(within_s):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)


async def figures(daemon: Daemon) -> dict[str, int]:
    """The store's counts, from /metrics."""
    async with aiohttp.ClientSession() as client, client.get(f"{daemon.url}/metrics") as response:
        text = await response.text()
    return {name: int(value) for name, value in re.findall(r"^dragoman_(\w+) (\d+)$", text, re.MULTILINE)}


async def until_quiet(daemon: Daemon, within_s: float = PATIENCE_S) -> None:
    """Wait until nothing is queued, running, parked or due. Raises `AssertionError` with the log."""
    now: dict[str, int] = {}
    try:
        async with asyncio.timeout(within_s):
            while True:
                with suppress(aiohttp.ClientError):
                    now = await figures(daemon)
                    if not any(now[name] for name in BUSY):
                        return
                await asyncio.sleep(0.03)
    except TimeoutError:
        raise AssertionError(f"not quiet: {now}\n{daemon.log[-4000:]}") from None


def unsent(daemon: Daemon) -> list[tuple[str, str]]:
    """Conversation and text of the slots that are due, or being sent, which the figures in /metrics leave out."""
    with closing(sqlite3.connect(f"file:{daemon.state / 'dragoman.db'}?mode=ro", uri=True)) as store:
        return store.execute(
            "SELECT conversation, text FROM slots WHERE state IN ('due', 'sending') ORDER BY seq"
        ).fetchall()


def unended(daemon: Daemon) -> dict[str, str]:
    """By session: its first turn that has not ended. Nothing before there is a store."""
    file = daemon.state / "dragoman.db"
    if not file.exists():
        return {}
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as store:
        rows = store.execute(
            "SELECT session, id FROM turns WHERE state NOT IN ('done', 'stopped', 'failed') ORDER BY ord DESC"
        ).fetchall()
    return dict(rows)


async def health(daemon: Daemon) -> tuple[int, str]:
    """Return the answer of /readyz."""
    async with aiohttp.ClientSession() as client, client.get(f"{daemon.url}/readyz") as response:
        return response.status, await response.text()


async def stored(state: Path, session: str) -> list[Item]:
    """Every row of a session in order, read from the store of a stopped daemon, whose audit must be whole."""
    async with _stopped(state) as store:
        return await _rows_of(store, SessionId(session))


async def everything(state: Path) -> dict[str, list[Item]]:
    """The rows of every session of a stopped daemon, by session; its audit must be whole."""
    async with _stopped(state) as store:
        return {line.session.id: await _rows_of(store, line.session.id) for line in await store.sessions(10_000)}


@asynccontextmanager
async def _stopped(state: Path) -> AsyncGenerator[Store]:
    """The store of a stopped daemon, whose audit must be whole."""
    store = open_store(f"sqlite://{state / 'dragoman.db'}", SystemClock())
    try:
        await the_audit_is_whole(store)
        yield store
    finally:
        await store.close()


async def _rows_of(store: Store, session: SessionId) -> list[Item]:
    rows = await store.changes(session, 0, 10_000)
    assert not rows.more
    return [row.item for row in sorted(rows.rows, key=lambda row: row.ord)]


def lines_of(state: Path, name: str) -> list[str]:
    """The lines of the files of that name in all workspaces: what really ran."""
    found = sorted(state.rglob(f"workspaces/*/{name}"))
    return [line for path in found for line in path.read_text().splitlines()]


def resident_kib(pid: int) -> int:
    """The memory of a process that is in RAM now."""
    return int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0])


def marked(marker: str) -> dict[int, str]:
    """Living processes of this machine whose arguments contain a marker, with their command lines."""
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if marker in command:
                found[int(folder.name)] = command
    return found


def zombies_of(pid: int) -> list[int]:
    """Ended children of a process that it has not waited for."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if state == "Z" and int(parent) == pid:
                found.append(int(stat.parent.name))
    return found
