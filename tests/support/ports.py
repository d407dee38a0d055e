"""Ports for servers of tests."""

from __future__ import annotations

import itertools
import random
import socket
from collections.abc import Iterator
from contextlib import suppress

from tests.support.sharing import place

FIRST, LAST = 10_000, 31_999
"""On Linux nobody gets one of these by asking for any: those are higher."""


def in_turn() -> Iterator[int]:
    """Yield the ports of this process, from some place on, again and again. Nothing is chosen before the first.

    Each comes back only when all others were given. A daemon that was killed leaves its port free until its next life
    begins, and still asks for a platform that another test may have ended: whoever got that port meanwhile would keep
    the one from starting, or let the other in.
    """
    number, processes = place()
    mine = range(FIRST + number % processes, LAST + 1, processes)
    yield from itertools.islice(itertools.cycle(mine), random.randrange(len(mine)), None)


_ports = in_turn()


def free_port() -> int:
    """Return a port of loopback that nobody uses now, and that no other test of this run gets for a long time."""
    for port in _ports:
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise AssertionError("ports come in a circle")
