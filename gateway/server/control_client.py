"""Client of the control socket, used by CLI commands. Blocking, and quick to import."""

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
    """Send a command to the daemon at the socket `path` and return its result. Never retries.

    Raises `DragomanError`: the daemon's error, no daemon there, or no answer within `timeout_s`.
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
            f"The daemon did not answer within {timeout_s:g} s.", cure="See its log; /healthz shows its state."
        ) from None
    except OSError as error:
        raise DragomanError(
            f"The daemon cannot be reached: {error.strerror or error}.",
            cure="See its log. The command may have been carried out, so check before you repeat it.",
        ) from None
    answer = decode(line)
    if answer.get("ok") is True:
        return answer.get("result")
    raise DragomanError(str(answer.get("error", "The daemon refused.")), cure=str(answer.get("cure", "")))


def is_running(path: Path) -> bool:
    """Return whether a daemon listens at `path`."""
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
        # The daemon refused before reading: its answer gives the reason.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(request)
        with connection.makefile("rb") as stream:
            line = stream.readline(_ANSWER_AT_MOST)
    if not line.endswith(b"\n"):
        raise ConnectionResetError(0, "it closed the connection without an answer")
    return line
