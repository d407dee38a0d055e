"""The first program in an enclosure: it makes the gates' sockets, hands them to the daemon and becomes the program.

Run as a script by `gateway.sandbox.session`. A socket stays in the network namespace that it was made in, so the
daemon accepts here what a program connects to there, and nothing needs to stand between.

Only light imports, all from Python's own library: nothing else of ours can be seen in an enclosure.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

BACKLOG = 128


def main(to_daemon: int, gates: int, given: list[tuple[int, int]], argv: list[str]) -> None:
    """Hand over `gates` sockets, put the descriptors (target, source) in place and become `argv`; never returns."""
    listening = [socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) for _ in range(gates)]
    with socket.socket(fileno=to_daemon) as daemon:
        socket.send_fds(daemon, [b"gates"], [gate.fileno() for gate in listening])
    for gate in listening:
        gate.close()
    for target, source in given:
        os.dup2(source, target)
    # What is left was opened for those that contain the program, not for it.
    os.closerange(max([2, *(target for target, _ in given)]) + 1, os.sysconf("SC_OPEN_MAX"))
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execv(argv[0], argv)  # noqa: S606 - becoming the program is what it is for
    except OSError as error:
        os.write(2, f"dragoman: {argv[0]}: {error.strerror}\n".encode())
        os._exit(127)


if __name__ == "__main__":
    pairs = [pair.split("=") for pair in sys.argv[3].split(",") if pair]
    main(int(sys.argv[1]), int(sys.argv[2]), [(int(to), int(source)) for to, source in pairs], sys.argv[4:])
