"""A web on loopback: one server that stands for every public host, reached through the real egress proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from gateway.domain.tools import SandboxMode
from gateway.egress import Egress, Requests
from gateway.egress.addresses import Address
from gateway.egress.dial import Ends
from gateway.sandbox import Containment, probe
from gateway.system.redaction import Redactor
from gateway.toolcalls.output import OutputBuffer
from tests.support.calls import BareCall
from tests.support.clock import FakeClock

PUBLIC = "93.184.216.34"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Web:
    """The server: pages by path, and every request that it got."""

    def __init__(self) -> None:
        self.pages: dict[str, Handler] = {}
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.dialled: list[str] = []
        self.names: dict[str, list[str]] = {}
        self.port = 0

    def page(
        self, path: str, body: bytes | str = b"", type: str = "text/html", status: int = 200, **headers: str
    ) -> None:
        data = body.encode() if isinstance(body, str) else body

        async def answer(_: web.Request) -> web.StreamResponse:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return web.Response(body=data, status=status, headers={"Content-Type": type, **named})

        self.pages[path] = answer

    async def take(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, str(request.rel_url), dict(request.headers), await request.read()))
        found = self.pages.get(request.path)
        return web.Response(status=404, text="none") if found is None else await found(request)

    async def resolve(self, name: str, _port: int) -> Sequence[str]:
        return self.names.get(name, [PUBLIC])

    async def connect(self, address: Address, port: int) -> Ends:
        self.dialled.append(f"{address}:{port}")
        return Ends(*await asyncio.open_connection("127.0.0.1", self.port))

    def egress(self) -> Egress:
        return Egress(resolve=self.resolve, connect=self.connect, is_own=lambda _: False)


@pytest_asyncio.fixture
async def the_web() -> AsyncIterator[Web]:
    found = Web()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.port = runner.addresses[0][1]
    yield found
    await runner.cleanup()


def text_pdf(text: str) -> bytes:
    """Return a PDF of one page with a line of text."""
    stream = f"BT /F1 12 Tf 10 50 Td ({text}) Tj ET".encode()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 100]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    body, at = b"%PDF-1.4\n", list[int]()
    for n, one in enumerate(objects, 1):
        at.append(len(body))
        body += b"%d 0 obj%s endobj\n" % (n, one)
    table = b"".join(b"%010d 00000 n \n" % one for one in at)
    return body + b"xref\n0 6\n0000000000 65535 f \n%strailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (
        table, len(body),
    )  # fmt: skip


class Call(BareCall):
    """A call that may use this web."""

    def __init__(self, workspace: Path, egress: Egress, containment: Containment) -> None:
        super().__init__(workspace)
        self.output = OutputBuffer(workspace.parent / "output", "step.txt", FakeClock(), Redactor())
        self.sandbox = SandboxMode.BASIC if containment.can_bwrap else SandboxMode.OFF
        self._net = Requests(egress=egress)

    @property
    def net(self) -> Requests:
        return self._net


@pytest.fixture(scope="module")
def machine() -> Containment:
    return asyncio.run(probe())


@pytest.fixture
def call(tmp_path: Path, the_web: Web, machine: Containment) -> Call:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Call(workspace, the_web.egress(), machine)
