"""The daemon as a child process: started with a configuration, killed, started again on the same state."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from gateway.server.control_client import call
from gateway.server.control_wire import socket_path
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.stems import AS_INSTALLED, ROOT
from tests.support.warm import STEM, Life

KEY_HEADER = "X-Dragoman-Key"
Wanted = Callable[[dict[str, Any]], Any]


def environment() -> dict[str, str]:
    """This process's environment, with the packages of an installed daemon, and without variables of Dragoman.

    A daemon compares each of those that it does not know with all its keys: 0.1 s of CPU for those of a run of tests.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}
    return {**kept, "PYTHONPATH": f"{AS_INSTALLED}{os.pathsep}{ROOT}"}


@dataclass(slots=True, kw_only=True)
class Daemon:
    """One state folder and the daemon that lives in it, one life at a time."""

    folder: Path
    config: str = ""
    """TOML besides `[http]`."""
    prefix: tuple[str, ...] = ()
    """Prefix of the command line: a program that becomes the daemon in another place (`unshare …`)."""
    warm: bool = False
    """True if lives are forked from a process that has imported everything; one with a `prefix` cannot be."""
    port: int = field(default_factory=free_port)
    process: asyncio.subprocess.Process | Life | None = None
    lives: int = 0

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process of the life that was begun last."""
        return None if self.process is None else self.process.pid

    @property
    def state(self) -> Path:
        """The state folder."""
        return self.folder / "state"

    @property
    def log(self) -> str:
        """Everything that all lives logged."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("log-*.txt")))

    def command(self, *words: str) -> list[str]:
        """The command line of a `dragoman` command on this state."""
        config = self.folder / "config.toml"
        config.write_text(f'[http]\nport = {self.port}\n[log]\nlevel = "debug"\n{self.config}\n')
        return [
            *self.prefix,
            sys.executable,
            "-m",
            "gateway",
            "--config",
            str(config),
            "--state",
            str(self.state),
            *words,
        ]

    async def start(self, env: Mapping[str, str] | None = None, *, ready: bool = True) -> None:
        """Start a life; wait until it answers, unless it is expected to die before. One that does not is killed."""
        self.lives += 1
        log = (self.folder / f"log-{self.lives:02}.txt").open("wb")
        with log:
            self.process = await self._begun(log.fileno(), {**environment(), **(env or {})})
        if not ready:
            return
        try:
            await self.until_ready()
        except AssertionError:
            await self.kill()
            raise

    async def _begun(self, log: int, env: Mapping[str, str]) -> asyncio.subprocess.Process | Life:
        command = self.command("run")
        if self.warm and not self.prefix:
            words = command[command.index("gateway") + 1 :]
            return await STEM.fork(words, cwd=ROOT, env=env, log=log)
        return await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=env
        )

    async def until_ready(self, within_s: float = PATIENCE_S) -> None:
        """Wait for /readyz. Raises `AssertionError` with the log when the daemon dies or takes too long."""
        try:
            async with asyncio.timeout(within_s), aiohttp.ClientSession() as client:
                while self.process is not None and self.process.returncode is None:
                    if self._listens() and await self._answers(client):
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            pass
        raise AssertionError(f"the daemon is not ready:\n{self.log[-4000:]}")

    def _listens(self) -> bool:
        """Return True if a program takes connections: a check of 20 µs and not a millisecond."""
        with socket.socket() as sock:
            sock.settimeout(0.05)
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    async def _answers(self, client: aiohttp.ClientSession) -> bool:
        try:
            async with client.get(f"{self.url}/readyz") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    async def died(self, within_s: float = PATIENCE_S) -> int:
        """Wait until this life ends by itself; return its exit code (negative: the signal)."""
        assert self.process is not None
        async with asyncio.timeout(within_s):
            return await self.process.wait()

    async def kill(self) -> None:
        """End this life as by `kill -9`. Twice is safe."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def stop(self, within_s: float = PATIENCE_S) -> int:
        """Ask it to stop and return its exit code."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await self.died(within_s)

    async def run_command(self, *words: str, within_s: float = PATIENCE_S) -> tuple[int, str]:
        """Run a `dragoman` command against this daemon; return its exit code and everything it printed."""
        if self.warm and not self.prefix:
            return await self._run_warm(words, within_s)
        process = await asyncio.create_subprocess_exec(
            *self.command(*words),
            cwd=ROOT,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment(),
        )
        async with asyncio.timeout(within_s):
            out, _ = await process.communicate()
        return process.returncode or 0, out.decode()

    async def _run_warm(self, words: Sequence[str], within_s: float) -> tuple[int, str]:
        command = self.command(*words)
        with tempfile.TemporaryFile() as printed:
            env = environment()
            life = await STEM.fork(command[command.index("gateway") + 1 :], cwd=ROOT, env=env, log=printed.fileno())
            async with asyncio.timeout(within_s):
                code = await life.wait()
            printed.seek(0)
            return code, printed.read().decode()

    async def link(self, *owner: str) -> str:
        """A sign-in link, from the command that people use."""
        code, out = await self.run_command("link", *owner)
        assert code == 0, out
        return out.strip().splitlines()[-1].strip()


@asynccontextmanager
async def running(folder: Path, config: str = "", *, warm: bool = True) -> AsyncGenerator[Daemon]:
    """A daemon for one test; whatever life it is in at the end is killed."""
    daemon = Daemon(folder=folder, config=config, warm=warm)
    await daemon.start()
    try:
        yield daemon
    finally:
        await daemon.kill()


@dataclass(slots=True)
class Page:
    """A page without a browser: it speaks the socket's protocol and keeps the rows as the real page does."""

    socket: aiohttp.ClientWebSocketResponse
    client: aiohttp.ClientSession
    rows: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict[tuple[str, str], dict[str, Any]])
    frames: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    _ids: int = 0

    async def open(self, session: str, after: int | None = None) -> None:
        """Follow a session."""
        await self.socket.send_json({"op": "open", "session": session, "after": after})

    async def say(self, text: str, id: str = "", files: Sequence[str] = ()) -> dict[str, Any]:
        """Say something, with the uploads of these keys; return the `said` frame."""
        self._ids += 1
        id = id or f"say-{self._ids:08}"
        await self.socket.send_json({"op": "say", "id": id, "text": text, "files": [*files]})
        return await self.until_frame(lambda f: f["op"] == "said" and f["id"] == id)

    async def press(self, handle: str, reason: str = "", id: str = "") -> dict[str, Any]:
        """Press a button; return the `pressed` frame."""
        self._ids += 1
        id = id or f"press-{self._ids:08}"
        await self.socket.send_json({"op": "press", "id": id, "handle": handle, "reason": reason})
        return await self.until_frame(lambda f: f["op"] == "pressed" and f["id"] == id)

    async def until_frame(self, wanted: Wanted, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """Wait for a frame, past or coming."""
        for frame in self.frames:
            if wanted(frame):
                return frame
        async with asyncio.timeout(within_s):
            while True:
                frame = await self._next()
                if wanted(frame):
                    return frame

    async def until_row(self, type: str, wanted: Wanted, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """Wait until a row of a type is as wanted."""

        def found() -> dict[str, Any] | None:
            rows = sorted(self.rows.values(), key=lambda row: row["ord"])
            return next((row for row in rows if row["type"] == type and wanted(row)), None)

        try:
            async with asyncio.timeout(within_s):
                while (row := found()) is None:
                    await self._next()
                return row
        except TimeoutError:
            raise AssertionError(f"no such {type}: {[r for r in self.rows.values() if r['type'] == type]}") from None

    def button(self, approval: Mapping[str, Any], verb: str) -> str:
        """The handle of an approval's button."""
        return next(b["handle"] for b in approval["buttons"] if b["verb"] == verb)

    async def _next(self) -> dict[str, Any]:
        message = await self.socket.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise ConnectionError(f"the socket closed: {message.type}")
        frame = json.loads(message.data)
        self.frames.append(frame)
        for row in frame.get("rows", []):
            self.rows[row["type"], row["id"]] = row
        return frame


@asynccontextmanager
async def signed_in(
    daemon: Daemon, owner: str | None = None, state: Path | None = None
) -> AsyncGenerator[aiohttp.ClientSession]:
    """An HTTP client with an owner's cookie. `state`: the state folder as it can be seen from here.

    It asks for the link as `dragoman link` does (scenario 1 tries that one), without a process of 0.2 s of CPU.
    """
    link = await asyncio.to_thread(call, socket_path(state or daemon.state), "link", {"owner": owner}, 10)
    base, _, code = str(link["url"]).partition("/#code=")
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(headers={"Origin": base}, cookie_jar=jar) as client:
        async with client.post(f"{base}/api/signin", json={"code": code}) as response:
            assert response.status == 200, await response.text()
            client.headers[KEY_HEADER] = (await response.json())["key"]
        yield client


@asynccontextmanager
async def page_of(daemon: Daemon, owner: str | None = None, session: str = "") -> AsyncGenerator[Page]:
    """A signed-in page that follows the owner's main session, or another one."""
    async with signed_in(daemon, owner) as client, client.ws_connect(f"{daemon.url}/ws") as socket:
        page = Page(socket, client)
        welcome = await page.until_frame(lambda frame: frame["op"] == "welcome")
        await page.open(session or welcome["main"])
        yield page
