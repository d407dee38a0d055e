"""Source of the processes that daemons of tests are forked from, one for all processes of tests. No part of a path.

The imports of a daemon take a second of CPU. Each process of tests has a stem of its own, and all are forked from one.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

PLACE = "DRAGOMAN_STEMS"
"""Variable that names a socket, where each who connects is given a stem."""
STEMS = "--stems"
"""Argument of the process that gives away stems."""
AS_INSTALLED = Path(__file__).with_name("as_installed")
"""Hides what only developers have: structlog imports `rich` where it finds it, 0.15 s of CPU at each start."""
ROOT = Path(__file__).parents[2]


def stems_at(place: str) -> subprocess.Popen[bytes]:
    """Start the process that gives away stems at a place. It ends when its standard input does.

    Those who ask before it has imported everything wait.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(place)
        listening.listen(64)
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.warm", str(listening.fileno()), STEMS],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{AS_INSTALLED}{os.pathsep}{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[listening.fileno()],
        )


def stem_of(place: str) -> tuple[int, socket.socket] | None:
    """Return the pid of a new stem and the socket to ask it; None when it is of another copy of the project."""
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asking.connect(place)
    pid, _, root = asking.recv(1 << 13).decode().partition(" ")
    if root != str(ROOT):
        asking.close()
        return None
    return int(pid), asking


def introduce(asked: socket.socket) -> None:
    """Tell who connected the pid of this process, and which copy of the project it is of."""
    asked.send(f"{os.getpid()} {ROOT}".encode())
