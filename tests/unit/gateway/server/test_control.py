"""Control socket: one request and one answer, from the daemon's user only, without blocking others."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import DragomanError, Forbidden, StartError
from gateway.server.control_client import call, is_running
from gateway.server.control_server import Command, ControlServer
from gateway.server.control_wire import socket_path
from tests.support.patience import PATIENCE_S


@pytest.fixture
def path(tmp_path: Path) -> Path:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    return socket_path(state)


@asynccontextmanager
async def serving(server: ControlServer) -> AsyncGenerator[None]:
    ready = asyncio.Event()
    task = asyncio.create_task(server.run(ready))
    started = asyncio.create_task(ready.wait())
    await asyncio.wait({task, started}, timeout=5, return_when=asyncio.FIRST_COMPLETED)
    started.cancel()
    if task.done():
        await task
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=5)
        assert task.cancelled()


async def ask(path: Path, command: str, args: Mapping[str, Any] | None = None, timeout_s: float = 5) -> Any:
    return await asyncio.to_thread(call, path, command, args or {}, timeout_s)


async def raw(path: Path, data: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        writer.write(data)
        async with asyncio.timeout(PATIENCE_S):
            return await reader.read()
    finally:
        writer.close()


def write(path: Path, text: str) -> None:
    path.write_text(text)


def is_there(path: Path) -> bool:
    return os.path.lexists(path)


def content(path: Path) -> str:
    return path.read_text()


async def echo(args: Mapping[str, Any]) -> Any:
    return {"got": dict(args)}


async def refuse(_: Mapping[str, Any]) -> Any:
    raise Forbidden("Not you.", cure="Be somebody else.")


async def broken(_: Mapping[str, Any]) -> Any:
    raise RuntimeError("secret detail")


async def unsayable(_: Mapping[str, Any]) -> Any:
    return {"time": object()}


async def slow(_: Mapping[str, Any]) -> Any:
    await asyncio.sleep(60)


COMMANDS: Mapping[str, Command] = {
    "echo": echo, "refuse": refuse, "broken": broken, "unsayable": unsayable, "slow": slow,
}  # fmt: skip


async def test_a_command_is_answered_with_its_result(path: Path) -> None:
    async with serving(ControlServer(path, COMMANDS)):
        assert await ask(path, "echo", {"text": "grüße\n", "n": [1, None]}) == {
            "got": {"text": "grüße\n", "n": [1, None]}
        }
        long = "x" * 1_000_000
        assert await ask(path, "echo", {"text": long}) == {"got": {"text": long}}


async def test_many_are_served_side_by_side(path: Path) -> None:
    meet = asyncio.Barrier(20)

    async def together(_: Mapping[str, Any]) -> Any:
        await meet.wait()
        return True

    async with serving(ControlServer(path, {"together": together})):
        line = b'{"command": "together"}\n'
        answers = await asyncio.gather(*(raw(path, line) for _ in range(20)))
    assert answers == [b'{"ok": true, "result": true}\n'] * 20


async def test_a_refusal_comes_with_its_cure(path: Path) -> None:
    async with serving(ControlServer(path, COMMANDS)):
        with pytest.raises(DragomanError) as caught:
            await ask(path, "refuse")
    assert (caught.value.message, caught.value.cure) == ("Not you.", "Be somebody else.")


async def test_an_unknown_command_is_answered_with_the_known_ones(path: Path) -> None:
    async with serving(ControlServer(path, COMMANDS)):
        with pytest.raises(DragomanError, match="broken, echo, refuse, slow, unsayable"):
            await ask(path, "frobnicate")


@pytest.mark.parametrize("command", ["broken", "unsayable"])
async def test_failure_reveals_nothing_and_the_server_continues(path: Path, command: str) -> None:
    async with serving(ControlServer(path, COMMANDS)):
        with pytest.raises(DragomanError) as caught:
            await ask(path, command)
        assert caught.value.message == "The daemon failed to do that."
        assert await ask(path, "echo") == {"got": {}}


async def test_a_command_ends_at_its_limit(path: Path) -> None:
    async with serving(ControlServer(path, COMMANDS, limits={"slow": 0.05})):
        with pytest.raises(DragomanError, match=r"slow took longer than 0\.05 s"):
            await ask(path, "slow")


async def test_a_commands_own_timeout_is_a_failure_not_its_limit(path: Path) -> None:
    async def fails(_: Mapping[str, Any]) -> Any:
        raise TimeoutError

    async with serving(ControlServer(path, {"fails": fails})):
        with pytest.raises(DragomanError, match="failed to do that"):
            await ask(path, "fails")


async def test_a_client_that_goes_away_cancels_its_command(path: Path) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def long(_: Mapping[str, Any]) -> Any:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    async with serving(ControlServer(path, {"long": long, "echo": echo})):
        _, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b'{"command": "long", "args": {}}\n')
        async with asyncio.timeout(PATIENCE_S):
            await begun.wait()
            writer.close()
            await cancelled.wait()
        assert await ask(path, "echo") == {"got": {}}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"hello\n", "not a JSON object"),
        (b"[1]\n", "not a JSON object"),
        (b"\xff\n", "not a JSON object"),
        (b"[" * 100_000 + b"\n", "not a JSON object"),
        (b'{"args": {}}\n', "needs a command"),
        (b'{"command": "echo", "args": []}\n', "needs a command"),
        (b"x" * 1_048_577, "longer than 1 MiB"),
    ],
)
async def test_nonsense_is_refused(path: Path, data: bytes, words: str) -> None:
    async with serving(ControlServer(path, COMMANDS)):
        answer = json.loads(await raw(path, data))
        assert answer["ok"] is False
        assert words in answer["error"]
        assert answer["cure"]
        assert await ask(path, "echo") == {"got": {}}


async def test_nobody_but_the_daemons_user_is_answered(path: Path) -> None:
    called: list[str] = []

    async def act(_: Mapping[str, Any]) -> Any:
        called.append("act")

    async with serving(ControlServer(path, {"act": act}, user=os.geteuid() + 1)):
        with pytest.raises(DragomanError) as caught:
            await ask(path, "act", {"text": "x" * 1_000_000})
    assert caught.value.message == "The daemon belongs to another user."
    assert called == []


async def test_the_socket_is_closed_to_others_and_gone_at_the_end(path: Path) -> None:
    async with serving(ControlServer(path, COMMANDS)):
        mode = os.stat(path).st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
        assert is_running(path)
    assert not is_there(path)
    assert not is_running(path)


async def test_a_folder_that_is_open_to_others_is_refused(path: Path) -> None:
    path.parent.chmod(0o755)
    with pytest.raises(StartError) as caught:
        async with asyncio.timeout(PATIENCE_S):
            await ControlServer(path, COMMANDS).run()
    assert caught.value.cure == f"Run: chmod 700 {path.parent}"


async def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot be used"):
        async with asyncio.timeout(PATIENCE_S):
            await ControlServer(tmp_path / "absent" / "control.sock", COMMANDS).run()


async def test_the_socket_of_a_killed_daemon_is_replaced(path: Path) -> None:
    listen = f"s = socket.socket(socket.AF_UNIX); s.bind({str(path)!r}); s.listen()"
    code = f"import socket; {listen}; print(1, flush=True); input()"
    dead = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert dead.stdout is not None
    await dead.stdout.readline()
    dead.kill()
    await dead.wait()
    assert is_there(path)
    assert not is_running(path)
    async with serving(ControlServer(path, COMMANDS)):
        assert await ask(path, "echo") == {"got": {}}


async def test_a_second_daemon_is_refused_and_the_first_goes_on(path: Path) -> None:
    async with serving(ControlServer(path, COMMANDS)):
        with pytest.raises(StartError, match="Another daemon runs on the state folder"):
            async with asyncio.timeout(PATIENCE_S):
                await ControlServer(path, COMMANDS).run()
        assert await ask(path, "echo") == {"got": {}}


async def test_a_file_in_the_way_is_left_alone(path: Path) -> None:
    write(path, "mine")
    with pytest.raises(StartError, match="it is not a socket"):
        async with asyncio.timeout(PATIENCE_S):
            await ControlServer(path, COMMANDS).run()
    assert content(path) == "mine"


async def test_a_path_that_is_too_long_for_a_socket_works(tmp_path: Path) -> None:
    state = tmp_path / ("long" * 30) / ("er" * 60)
    state.mkdir(parents=True)
    state.chmod(0o700)
    path = socket_path(state)
    async with serving(ControlServer(path, COMMANDS)):
        assert path.is_socket()
        assert await ask(path, "echo", {"n": 1}) == {"got": {"n": 1}}
        with pytest.raises(StartError, match="Another daemon"):
            async with asyncio.timeout(PATIENCE_S):
                await ControlServer(path, COMMANDS).run()
    assert not path.exists()


async def test_no_daemon_is_reported_clearly(path: Path, tmp_path: Path) -> None:
    for place in (path, tmp_path / "absent" / "control.sock", tmp_path / ("x" * 120) / "control.sock"):
        with pytest.raises(DragomanError) as caught:
            call(place, "echo", {}, 1)
        assert caught.value.message == f"No daemon runs on the state folder {place.parent}."
        assert "Start it with `dragoman run`" in caught.value.cure
        assert "--state DIR" in caught.value.cure


async def test_a_daemon_that_does_not_answer_is_not_waited_for(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        with pytest.raises(DragomanError, match=r"did not answer within 0\.1 s"):
            call(path, "echo", {}, 0.1)


async def test_a_daemon_that_ends_meanwhile_is_reported(path: Path) -> None:
    begun = asyncio.Event()

    async def endless(_: Mapping[str, Any]) -> Any:
        begun.set()
        await asyncio.sleep(60)

    async with serving(ControlServer(path, {"slow": endless})):
        asking = asyncio.create_task(ask(path, "slow"))
        await begun.wait()
    with pytest.raises(DragomanError, match="closed the connection without an answer"):
        await asking
