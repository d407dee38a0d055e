"""Networks of contained programs, with real programs and inner servers on the host's loopback and addresses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.tools import NetworkMode, SandboxMode
from gateway.egress import Egress
from gateway.egress.addresses import Address
from gateway.egress.dial import Ends
from gateway.errors import SandboxMissing
from gateway.ports import EgressProxy
from gateway.sandbox import Confinement, Containment, ProcessLimits, Terminal, run_contained
from tests.support.patience import PATIENCE_S

CONTAINED = [SandboxMode.BASIC, SandboxMode.FULL]
PUBLIC_ADDRESS = "93.184.215.14"


class Printed:
    """`Output` that stores everything."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


class Server:
    """HTTP server of the host, which counts its connections."""

    def __init__(self) -> None:
        self.hits = 0
        self.met = asyncio.Event()
        self.port = 0

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.hits += 1
        self.met.set()
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\ninner")
            await writer.drain()
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def inner_server(host: str = "127.0.0.1") -> AsyncGenerator[Server]:
    server = Server()
    async with await asyncio.start_server(server.meet, host, 0) as listening:
        server.port = listening.sockets[0].getsockname()[1]
        yield server


@contextmanager
def abstract_socket(name: str) -> Generator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(f"\0{name}")
        listening.listen(5)
        listening.setblocking(False)
        yield listening


class Machine:
    """Programs in a workspace, in one network. `public` is the host that its egress proxy reaches."""

    def __init__(self, workspace: Path, containment: Containment) -> None:
        self.workspace = workspace
        self.containment = containment
        self.names: Mapping[str, Sequence[str]] = {}
        self.public_port = 0
        self.dialled: list[str] = []

    async def run(
        self, script: str, within: Confinement, *, serve: bool = True, terminal: Terminal | None = None
    ) -> str:
        printed = Printed()
        async with asyncio.timeout(PATIENCE_S):
            await run_contained(
                ["/usr/bin/python3", "-I", "-c", HELPERS + script],
                within=within,
                workspace=self.workspace,
                cwd=self.workspace,
                output=printed,
                containment=self.containment,
                limits=ProcessLimits(),
                serve=self._serve if serve else None,
                terminal=terminal,
            )
        return printed.data.decode()

    def _serve(self, sock: socket.socket, address: str) -> AbstractAsyncContextManager[EgressProxy]:
        return Egress(resolve=self._resolve, connect=self._connect).serve(sock, hosts=(), address=address)

    async def _resolve(self, name: str, _port: int) -> Sequence[str]:
        if name not in self.names:
            raise OSError(-2, "Name or service not known")
        return self.names[name]

    async def _connect(self, address: Address, port: int) -> Ends:
        """Connect to the one public host, which is a server here; to others as they are asked for."""
        self.dialled.append(f"{address}:{port}")
        where, port = ("127.0.0.1", self.public_port) if str(address) == PUBLIC_ADDRESS else (str(address), port)
        return Ends(*await asyncio.open_connection(where, port))


HELPERS = """
import os, socket, urllib.request
def direct(host, port, family=socket.AF_INET, kind=socket.SOCK_STREAM):
    try:
        with socket.socket(family, kind) as s:
            s.settimeout(2)
            s.connect((host, port) if family != socket.AF_UNIX else host)
            s.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
            print("direct", host, port, s.recv(100))
    except OSError as error:
        print("no", host, port, error)
def get(url):
    try:
        print("got", urllib.request.urlopen(url, timeout=5).read())
    except OSError as error:
        print("no", url, error)
def through(request):
    host, _, port = os.environ["http_proxy"].removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), 5) as s:
        s.sendall(request.encode())
        print("answer", s.recv(200))
"""


@pytest.fixture
def here(tmp_path: Path, machine: Containment) -> Machine:
    return Machine(tmp_path, machine)


def own_address() -> str:
    """Return the address of this machine towards others; loopback without one. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with suppress(OSError):
            probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0]).replace("0.0.0.0", "127.0.0.1")


@pytest.mark.parametrize("mode", CONTAINED)
async def test_none_reaches_nothing(here: Machine, mode: SandboxMode) -> None:
    async with inner_server("0.0.0.0") as inner:
        with abstract_socket(f"dragoman-test-{inner.port}") as abstract:
            printed = await here.run(
                f"""
direct("127.0.0.1", {inner.port}); direct("{own_address()}", {inner.port}); direct("0.0.0.0", {inner.port})
direct("::1", {inner.port}, socket.AF_INET6); direct("\\0dragoman-test-{inner.port}", 0, socket.AF_UNIX)
direct("169.254.169.254", 80); direct("192.0.2.1", 53, kind=socket.SOCK_DGRAM)
get("http://127.0.0.1:{inner.port}/"); get("http://localhost:{inner.port}/")
print({{name for name in os.environ if "proxy" in name.lower()}})
""",
                Confinement(mode=mode, network=NetworkMode.NONE),
            )
            with pytest.raises(BlockingIOError):
                abstract.accept()
    assert inner.hits == 0
    assert "direct" not in printed
    assert "got" not in printed
    assert sum(line.startswith("no ") for line in printed.splitlines()) == 9
    assert printed.endswith("set()\n")


async def test_host_reaches_the_inner_server(here: Machine) -> None:
    """Otherwise the tests of the closed networks would pass without any network namespace."""
    async with inner_server() as inner:
        printed = await here.run(
            f'get("http://127.0.0.1:{inner.port}/")', Confinement(mode=SandboxMode.BASIC, network=NetworkMode.HOST)
        )
    assert (inner.hits, printed) == (1, "got b'inner'\n")


@pytest.mark.parametrize("mode", CONTAINED)
async def test_public_reaches_a_public_host(here: Machine, mode: SandboxMode) -> None:
    async with inner_server() as outside:
        here.names, here.public_port = {"example.org": [PUBLIC_ADDRESS]}, outside.port
        printed = await here.run(
            'get("http://example.org/"); through("CONNECT example.org:443 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")',
            Confinement(mode=mode, network=NetworkMode.PUBLIC),
        )
    assert printed.startswith("got b'inner'\nanswer b'HTTP/1.1 200")
    assert here.dialled == [f"{PUBLIC_ADDRESS}:80", f"{PUBLIC_ADDRESS}:443"]


INNER = (
    "127.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "localhost", "LOCALHOST", "localhost.",
    "10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "169.254.169.254", "[::ffff:169.254.169.254]",
    "[fd00:ec2::254]", "168.63.129.16", "metadata.google.internal", "inner.example", "both.example", "meta.example",
    "nosuch.example", "user@127.0.0.1", "example.org@127.0.0.1", "127.0.0.1\\@example.org",
)  # fmt: skip
"""Hosts by which a program may ask for what is not public; OWN is this machine's address."""


@pytest.mark.parametrize("mode", CONTAINED)
async def test_public_reaches_no_inner_server(here: Machine, mode: SandboxMode) -> None:
    here.names = {
        "inner.example": ["127.0.0.1"],
        "both.example": [PUBLIC_ADDRESS, "::1"],
        "meta.example": ["169.254.169.254"],
    }
    async with inner_server("0.0.0.0") as inner:
        here.public_port = inner.port
        hosts = [*INNER, own_address()]
        printed = await here.run(
            f"""
direct("127.0.0.1", {inner.port}); direct("{own_address()}", {inner.port})
direct("::1", {inner.port}, socket.AF_INET6); direct("169.254.169.254", 80)
for host in {hosts!r}:
    for port in ("", ":{inner.port}", ":443"):
        through(f"GET http://{{host}}{{port}}/ HTTP/1.1\\r\\nHost: {{host}}{{port}}\\r\\n\\r\\n")
        through(f"CONNECT {{host}}{{port or ':80'}} HTTP/1.1\\r\\nHost: {{host}}{{port}}\\r\\n\\r\\n")
through("CONNECT example.org:22 HTTP/1.1\\r\\nHost: example.org:22\\r\\n\\r\\n")
""",
            Confinement(mode=mode, network=NetworkMode.PUBLIC),
        )
    assert inner.hits == 0
    assert here.dialled == []
    answers = [line for line in printed.splitlines() if line.startswith("answer")]
    assert len(answers) == 6 * len(hosts) + 1
    assert not [line for line in answers if "HTTP/1.1 200" in line]
    assert "is refused." in printed  # the output names what the proxy refused


async def test_a_proxy_serves_its_own_program_only(here: Machine) -> None:
    """Two programs have a proxy each, at an address that means nothing to the other."""
    here.names = {"example.org": [PUBLIC_ADDRESS]}
    async with inner_server() as outside, asyncio.TaskGroup() as group:
        here.public_port = outside.port
        work = [
            group.create_task(
                here.run('get("http://example.org/")', Confinement(mode=SandboxMode.BASIC, network=NetworkMode.PUBLIC))
            )
            for _ in range(3)
        ]
    assert [task.result() for task in work] == ["got b'inner'\n"] * 3


async def test_public_works_in_a_terminal(here: Machine) -> None:
    here.names = {"example.org": [PUBLIC_ADDRESS]}
    async with inner_server() as outside:
        here.public_port = outside.port
        printed = await here.run(
            'get("http://example.org/"); print(os.isatty(0), os.isatty(1))',
            Confinement(mode=SandboxMode.FULL, network=NetworkMode.PUBLIC),
            terminal=Terminal(),
        )
    assert printed == "got b'inner'\nTrue True\n"


async def test_public_needs_a_proxy(here: Machine) -> None:
    with pytest.raises(SandboxMissing, match="no egress proxy"):
        await here.run("", Confinement(mode=SandboxMode.BASIC, network=NetworkMode.PUBLIC), serve=False)


async def test_a_stop_ends_a_program_and_its_proxy(here: Machine) -> None:
    async with inner_server() as outside:
        here.names, here.public_port = {"example.org": [PUBLIC_ADDRESS]}, outside.port
        script = 'get("http://example.org/"); import time; time.sleep(99)'
        work: Any = asyncio.create_task(
            here.run(script, Confinement(mode=SandboxMode.BASIC, network=NetworkMode.PUBLIC))
        )
        async with asyncio.timeout(PATIENCE_S):
            await outside.met.wait()
        work.cancel()
        async with asyncio.timeout(3):
            with pytest.raises(asyncio.CancelledError):
                await work
