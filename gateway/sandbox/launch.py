"""Stand-in process for a contained program. Asks the daemon to start it and exits with it.

Runs as a script, through `SandboxSession.launcher`. The daemon is the program's real parent, so that it can kill the
whole process tree. This process passes on its file descriptors and represents the program: killing it kills the
program, and it returns the program's exit code.

Only light imports: its start time adds to the program's.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys

PR_SET_PDEATHSIG = 1
SOCKET = "launch.sock"
CANNOT = 126


def main(folder: str, argv: list[str]) -> int:
    """Pass descriptors 0 to 4 to the program that the daemon starts with `argv`; return its exit code."""
    lent = [fd for fd in range(5) if _is_open(fd)]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        os.chdir(folder)  # a socket address holds 107 bytes, a path may be longer
        daemon.connect(SOCKET)
        targets = "".join(map(str, lent)).encode()
        socket.send_fds(daemon, [b"\0".join([targets, *map(os.fsencode, argv)])], lent)
    except OSError as error:
        os.write(2, f"dragoman: the daemon accepts no start here: {error.strerror}\n".encode())
        return CANNOT
    for fd in lent:
        if fd != 2:  # a reader of the program's output must see its end of file
            os.close(fd)
    code, _, reason = daemon.recv(4096).partition(b"\0")
    if reason:
        os.write(2, b"dragoman: " + reason + b"\n")
    return int(code) if code else 128 + signal.SIGKILL


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
