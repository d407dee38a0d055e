"""Protocol of the control socket, through which `dragoman` commands reach a running daemon.

`control_server` is the server and `control_commands` its handlers. `control_client` is the client and
imports neither: asyncio would double the time such a command takes. One connection carries one request and one
answer, each a line of JSON: `{"command": str, "args": {…}}`, then `{"ok": true, "result": …}` or
`{"ok": false, "error": str, "cure": str}`. The client keeps the connection open until the answer arrives; closing it
cancels the command.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from gateway.errors import BadRequest, StartError

NAME = "control.sock"
REQUEST_AT_MOST = 1_048_576
"""Limit in bytes of one request."""
SEND_WAITS_S = 3600.0
"""Timeout in seconds for `dragoman send --wait`."""
AUDIT_TAKES_S = 3600.0
"""Timeout in seconds for `dragoman audit`: a million rows take half a minute of CPU."""
_ADDRESS_AT_MOST = 100
"""Limit in bytes of a socket address on every system (108 on Linux, 104 on BSD and macOS)."""


def socket_path(state: Path) -> Path:
    """Return the path of a state folder's control socket."""
    return state / NAME


@contextmanager
def address(path: Path) -> Generator[str]:
    """Yield a name of `path` that is short enough to bind or connect to; valid until the context ends.

    A long path is shortened through the folder's descriptor, so that the socket stays in its protected folder.
    Raises `StartError` where the system does not support that, `FileNotFoundError` when there is no such folder.
    """
    if len(os.fsencode(path)) <= _ADDRESS_AT_MOST:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = Path(f"/proc/self/fd/{folder}")
        if not short.exists():
            raise StartError(
                f"{path} is too long for a socket on this system.", cure="Choose a --state folder with a shorter path."
            )
        yield str(short / path.name)
    finally:
        os.close(folder)


def encode(message: Mapping[str, Any]) -> bytes:
    """Return one line; a lone surrogate becomes `?`. Raises `TypeError` or `ValueError` for a non-JSON value."""
    # An error text that repeated a lone surrogate of a request could not be encoded, and ended the daemon.
    return json.dumps(message, ensure_ascii=False, allow_nan=False).encode(errors="replace") + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Return one parsed line. Raises `BadRequest` when it is not a JSON object."""
    try:
        read = json.loads(line)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise BadRequest("A line on the control socket is not a JSON object.", cure="Use the `dragoman` command.")
    return cast("dict[str, Any]", read)
