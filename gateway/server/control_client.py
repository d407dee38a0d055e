"""The commands' end of the control socket. Blocking, and quick to import."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gateway.errors import DragomanError
from gateway.server.control_wire import address, decode, encode

_ANSWER_AT_MOST = 64 * 1_048_576
START_IT = (
    "Start it with `dragoman run` (in a clone `./run`). If one runs already, name its state folder with --state DIR or "
    "$DRAGOMAN_STATE: the first line of its log has it."
)


def call(path: Path, command: str, args: Mapping[str, Any], timeout_s: float) -> Any:
    """Ask the daemon whose socket is at `path` and return its result. Not repeated by itself.

    Raises `DragomanError`: what the daemon answered, or that none runs here, or that it did not answer in `timeout_s`.
    """
    try:
        line = _exchange(path, encode({"command": command, "args": dict(args)}), timeout_s)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        raise DragomanError(f"No daemon runs on the state folder {path.parent}.", cure=START_IT) from None
    except PermissionError:
        raise DragomanError(
            f"The daemon at {path.parent} belongs to another user.", cure="Run this command as the daemon's user."
        ) from None
    except TimeoutError:
        raise DragomanError(
            f"The daemon did not answer within {timeout_s:g} s.", cure="See its log; /healthz says how it is."
        ) from None
    except OSError as error:
        raise DragomanError(
            f"The daemon cannot be reached: {error.strerror or error}.",
            cure="See its log; what was asked may have been taken, so look before you ask again.",
        ) from None
    answer = decode(line)
    if answer.get("ok") is True:
        return answer.get("result")
    raise DragomanError(str(answer.get("error", "The daemon refused.")), cure=str(answer.get("cure", "")))


def is_running(path: Path) -> bool:
    """Whether a daemon listens at `path`."""
    try:
        with address(path) as name, socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(2)
            connection.connect(name)
    except (OSError, DragomanError):
        return False
    return True


def _exchange(path: Path, request: bytes, timeout_s: float) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        with address(path) as name:
            connection.connect(name)
        # Refused before it was read: the answer says why.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(request)
        with connection.makefile("rb") as stream:
            line = stream.readline(_ANSWER_AT_MOST)
    if not line.endswith(b"\n"):
        raise ConnectionResetError(0, "it closed the connection without an answer")
    return line
