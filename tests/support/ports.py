"""Ports for servers of tests."""

from __future__ import annotations

import random
import socket
from contextlib import suppress


def free_port() -> int:
    """Return a port of loopback that nobody uses now, nor gets by asking for any: those are higher on Linux.

    A daemon of another test that is about to be killed still asks for its platform; a port that the system hands out
    again at once would let it in here.
    """
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
