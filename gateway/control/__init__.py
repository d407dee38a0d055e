"""The control socket: how commands of the shell reach a running daemon, beside the path of messages.

`ControlServer` is the daemon's end, `gateway.control.client.call` the commands'. One connection carries one request and
one answer, each a line of JSON: `{"command": str, "args": {…}}` → `{"ok": true, "result": …}` or
`{"ok": false, "error": str, "cure": str}`. The client keeps the connection open until the answer came; going away
cancels the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.control.server import ControlServer

__all__ = ["ControlServer"]


def __getattr__(name: str) -> object:
    # Late, so that the commands' end does without asyncio, which is half of what they cost.
    if name == "ControlServer":
        from gateway.control.server import ControlServer

        return ControlServer
    raise AttributeError(name)
