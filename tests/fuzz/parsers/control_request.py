"""Requests on the control socket: every line is answered with one line, and the server goes on serving."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from gateway.errors import BadRequest, NotFound
from gateway.server import control_server, control_wire
from gateway.server.control_server import ControlServer
from gateway.server.control_wire import decode, encode, socket_path
from tests.fuzz import givens

READS = (control_server, control_wire)
WORDS = (b"command", b"args", b"echo", b"refuse", b"fail", b'{"command": "echo", "args": {}}')


def target(data: bytes) -> None:
    line = data.partition(b"\n")[0]
    try:
        encode(decode(line))
    except BadRequest as error:
        givens.check_words(error)
    except (TypeError, ValueError, RecursionError):
        pass  # documented: read, and not to be written
    with capture_logs():
        asyncio.run(_served(line))


async def _served(line: bytes) -> None:
    folder = Path(tempfile.mkdtemp(prefix="dragoman-fuzz-"))
    serving = ControlServer(socket_path(folder), {"echo": _echo, "refuse": _refuse, "fail": _fail})
    ready = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(serving.run(ready))
            await ready.wait()
            for said in (line, b'{"command": "echo", "args": {"a": 1}}'):
                answer = await _asked(socket_path(folder), said)
            task.cancel()
    finally:
        shutil.rmtree(folder)
    assert answer == {"ok": True, "result": {"a": 1}}, "it serves no more"


async def _asked(path: Path, line: bytes) -> Any:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(line + b"\n")
    answer = await reader.read()
    writer.close()
    assert answer.endswith(b"\n"), "no answer"
    found = json.loads(answer)
    assert found["ok"] is True or found["error"], "no reason"
    return found


async def _echo(args: Mapping[str, Any]) -> Any:
    return args


async def _refuse(args: Mapping[str, Any]) -> Any:
    raise NotFound(f"There is no {args.get('name')}.", cure="Look again.")


async def _fail(args: Mapping[str, Any]) -> Any:
    raise RuntimeError("a fault of ours")
