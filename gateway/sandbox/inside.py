"""First program in a sandbox session: makes the egress proxies' sockets, sends them to the daemon, runs the program.

Run as a script by `gateway.sandbox.session`. A socket stays in the network namespace that it was made in, so the
daemon accepts the program's connections outside, without a relay.

Only light imports, all from Python's own library: none of our other modules is visible in a sandbox session.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

BACKLOG = 128


def main(to_daemon: int, gates: int, given: list[tuple[int, int]], argv: list[str]) -> None:
    """Send `gates` listening sockets, set up the descriptors (target, source) and exec `argv`; never returns."""
    listening = [socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) for _ in range(gates)]
    with socket.socket(fileno=to_daemon) as daemon:
        socket.send_fds(daemon, [b"gates"], [gate.fileno() for gate in listening])
    for gate in listening:
        gate.close()
    for target, source in given:
        os.dup2(source, target)
    # The other descriptors belong to the containment, not to the program.
    os.closerange(max([2, *(target for target, _ in given)]) + 1, os.sysconf("SC_OPEN_MAX"))
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execv(argv[0], argv)  # noqa: S606 - the script's purpose
    except OSError as error:
        os.write(2, f"dragoman: {argv[0]}: {error.strerror}\n".encode())
        os._exit(127)


if __name__ == "__main__":
    pairs = [pair.split("=") for pair in sys.argv[3].split(",") if pair]
    main(int(sys.argv[1]), int(sys.argv[2]), [(int(to), int(source)) for to, source in pairs], sys.argv[4:])
