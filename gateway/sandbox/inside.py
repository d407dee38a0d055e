"""First program in a sandbox with egress proxies: makes their sockets, sends them to the daemon, runs the program.

Run as a script by `gateway.sandbox.session` and `gateway.sandbox.public`. A socket stays in the network namespace that
it was made in, so the daemon accepts the program's connections outside, without a relay.

Only light imports, all from Python's own library: none of our other modules is visible in a sandbox session.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

BACKLOG = 128
PROXY_VARIABLES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
"""Variables by which programs find their proxy."""
TOLD, NOT_TOLD = "told", "not-told"
"""Fourth argument: `TOLD` if the program's environment names the first proxy, once it is served."""


def main(to_daemon: int, proxies: int, given: list[tuple[int, int]], argv: list[str], *, told: bool) -> None:
    """Send `proxies` listening sockets, set up the descriptors (target, source) and exec `argv`; never returns."""
    listening = [socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) for _ in range(proxies)]
    with socket.socket(fileno=to_daemon) as daemon:
        socket.send_fds(daemon, [b"proxies"], [proxy.fileno() for proxy in listening])
        if told and not daemon.recv(1):
            os._exit(127)  # the daemon is gone
    if told:
        os.environ.update(dict.fromkeys(PROXY_VARIABLES, f"http://127.0.0.1:{listening[0].getsockname()[1]}"))
    for proxy in listening:
        proxy.close()
    for target, source in given:
        os.dup2(source, target)
    # The other descriptors belong to the containment, not to the program.
    os.closerange(max([2, *(target for target, _ in given)]) + 1, os.sysconf("SC_OPEN_MAX"))
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - becomes the program of the call; no shell is wanted
    except OSError as error:
        os.write(2, f"dragoman: {argv[0]}: {error.strerror}\n".encode())
        os._exit(127)


if __name__ == "__main__":
    pairs = [pair.split("=") for pair in sys.argv[3].split(",") if pair]
    lent = [(int(to), int(source)) for to, source in pairs]
    main(int(sys.argv[1]), int(sys.argv[2]), lent, sys.argv[5:], told=sys.argv[4] == TOLD)
