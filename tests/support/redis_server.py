"""A real redis-server on a loopback port, in a folder of its own, as durable as the store demands."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

DURABLE = ("--save", "", "--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "no")
AT_ONCE = ("--repl-diskless-sync-delay", "0")
"""A replica gets everything when it asks, not five seconds later."""
SHARED: set[int] = set()
"""Servers that several tests use: the session ends them, not the test that began them."""


def wait_until_it_answers(port: int, host: str = "127.0.0.1") -> None:
    """Wait until the server on a port answers, if only that it wants a password."""
    deadline = time.monotonic() + PATIENCE_S
    while not _answers(port, host):
        assert time.monotonic() < deadline, "redis-server does not answer."
        time.sleep(0.02)


def _answers(port: int, host: str) -> bool:
    return asked(port, "PING", host).startswith((b"+PONG", b"-NOAUTH"))


def until_linked(port: int, before: str = "") -> None:
    """Wait until the replica on a loopback port has all that its server had. `before`: a command to be let in."""
    deadline = time.monotonic() + PATIENCE_S
    while b"master_link_status:up" not in asked(port, f"{before}INFO replication"):
        assert time.monotonic() < deadline, "the replica is not linked."
        time.sleep(0.02)


def asked(port: int, command: str, host: str = "127.0.0.1") -> bytes:
    """Return the beginning of the answer to a command; empty without one."""
    try:
        with socket.create_connection((host, port), timeout=1) as line:
            line.sendall(f"{command}\r\n".encode())
            return line.recv(4096)
    except OSError:
        return b""


def certificates(folder: Path) -> dict[str, Path]:
    """Make a certificate for this machine, its own authority, with its key."""
    found = {"cert": folder / "cert.pem", "key": folder / "key.pem"}
    name = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    out = ("-keyout", str(found["key"]), "-out", str(found["cert"]))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *name, *out],
        check=True,
        capture_output=True,
    )
    return found


class RedisServer:
    """A server with its data in `folder`. It keeps its port, so that clients find it after a restart."""

    def __init__(self, folder: Path, *options: str, host: str = "127.0.0.1", prefix: tuple[str, ...] = ()) -> None:
        """Take the folder and options after those of a durable server; `with` starts it.

        `prefix`: a command that becomes the server in another place, where its `host` is.
        """
        folder.mkdir(exist_ok=True)
        self.folder, self._options = folder, options
        self.host, self._prefix = host, prefix
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address for `store.url`."""
        return f"redis://{self.host}:{self.port}/0"

    def start(self) -> None:
        """Start it and wait until it answers."""
        program = shutil.which("redis-server")
        assert program is not None, "redis-server is missing (Debian: apt install redis-server)."
        where = ("--port", str(self.port), "--bind", self.host, "--dir", str(self.folder), "--logfile", "redis.log")
        command = [*self._prefix, program, *where, "--databases", "4000", *AT_ONCE, *DURABLE, *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until_it_answers(self.port, self.host)

    def replica(self, folder: Path, *options: str) -> RedisServer:
        """Return a server that copies this one, once it is started."""
        return RedisServer(folder, "--replicaof", "127.0.0.1", str(self.port), *options)

    def follow(self, port: int) -> None:
        """Let it copy the server on a loopback port. Where nobody listens, it keeps what it has, as behind a cut."""
        self._told(f"REPLICAOF 127.0.0.1 {port}")

    def lead(self) -> None:
        """Let it be a primary."""
        self._told("REPLICAOF NO ONE")

    def take_over(self, port: int) -> None:
        """Let this replica be a primary, under the port of the one that died."""
        self.lead()
        self._told(f"CONFIG SET port {port}")
        self.port, self._options = port, self._options[3:]

    def restart(self) -> None:
        """End it as a crash does, and start it with its disk."""
        self.kill()
        self.start()

    def _told(self, command: str) -> None:
        assert (said := asked(self.port, command)).startswith(b"+OK"), said

    def share(self) -> None:
        """Let several tests use it."""
        assert self._process is not None, "it runs"
        SHARED.add(self._process.pid)

    def pause(self) -> None:
        """Let it do nothing for a while, as a machine that is frozen."""
        assert self._process is not None, "it runs"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None, "it runs"
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            SHARED.discard(self._process.pid)
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> RedisServer:
        """Start it."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.kill()
