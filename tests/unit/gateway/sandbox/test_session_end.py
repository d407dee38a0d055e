"""End of a sandbox session: no process is left, whoever ends it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import async_playwright

from agent_tools.browser.chromium import READS
from gateway.domain.tools import SandboxMode
from gateway.ports import EgressProxy
from tests.support.browser import executable
from tests.unit.gateway.sandbox.session_rig import ROOT, STUBBORN, Bench, Way, living, started, until

pytestmark = pytest.mark.sampled(2)  # the other holders stay in `test_sandbox.py`


async def test_close_leaves_nothing(bench: Bench) -> None:
    async with AsyncExitStack() as stack:
        async with bench.session() as session:
            process = await stack.enter_async_context(started(session, STUBBORN, bench.mark))
            async with session.egress_proxy():
                await until(lambda: len(living(bench.mark)) >= 4)
        assert living(bench.mark) == []
        assert await process.wait() != 0


async def test_cancellation_is_raised_after_the_end(bench: Bench) -> None:
    async def work() -> None:
        async with bench.session() as session, started(session, STUBBORN, bench.mark), session.egress_proxy():
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await until(lambda: len(living(bench.mark)) >= 4)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert living(bench.mark) == []
    assert list(bench.parent.iterdir()) == []


async def test_killed_launcher_kills_the_program(bench: Bench) -> None:
    async with bench.session() as session, started(session, STUBBORN, bench.mark) as process:
        await until(lambda: len(living(bench.mark)) >= 4)
        process.kill()
        await until(lambda: living(bench.mark) == [])


async def test_launcher_killed_at_once_leaves_nothing(bench: Bench) -> None:
    async with bench.session() as session, started(session, STUBBORN, bench.mark) as process:
        await until(lambda: len(living(bench.mark)) >= 2)
        process.kill()
        await until(lambda: living(bench.mark) == [])


async def test_background_processes_end_with_the_program(bench: Bench) -> None:
    script = "import subprocess, sys; subprocess.Popen(['sleep', sys.argv[1]], start_new_session=True); print('done')"
    async with bench.session() as session, started(session, script, bench.mark) as process:
        await process.communicate()
        await until(lambda: living(bench.mark) == [])


DAEMON = """
import asyncio, sys
from contextlib import asynccontextmanager
from pathlib import Path
from gateway.sandbox import Containment, open_sandbox_session

@asynccontextmanager
async def serve(sock, address):
    yield

async def main(parent, mode, containment, script, mark):
    contained = eval(containment, {"Containment": Containment})
    async with open_sandbox_session(Path("/usr/bin/python3"), mode=mode, parent=Path(parent), proxies=1, serve=serve,
                        containment=contained) as session:
        await asyncio.create_subprocess_exec(session.launcher, "-c", script, mark)
        async with session.egress_proxy():
            await asyncio.sleep(60)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.sampled(1)
async def test_killed_daemon_leaves_no_process_and_a_folder_to_sweep(bench: Bench) -> None:
    argv = [sys.executable, "-c", DAEMON, str(bench.parent), bench.mode, repr(bench.containment), STUBBORN, bench.mark]
    async with bench.session() as alive:
        daemon = await asyncio.create_subprocess_exec(*argv, cwd=ROOT)
        await until(lambda: len(living(bench.mark)) >= 5)
        daemon.kill()
        await daemon.wait()
        await until(lambda: living(bench.mark) == [])
        (left,) = set(bench.parent.iterdir()) - {alive.folder.parent}
        tmp = Path(os.readlink(left / "tmp")) if bench.mode is SandboxMode.OFF else left
        assert tmp.is_dir()
        of_before = bench.parent / "enclosure-abc"
        of_before.mkdir()
        async with bench.session():
            assert alive.folder.is_dir()
            assert not any(folder.exists() for folder in (left, tmp, of_before))


@pytest.mark.whole("a real Chromium; other programs stay")
async def test_a_real_browser(basic: Bench) -> None:
    pages: list[bytes] = []

    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pages.append((await reader.readuntil(b"\r\n\r\n")).splitlines()[0])
        body = b"<title>A page</title>"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n" % len(body))
        writer.write(b"Connection: close\r\n\r\n" + body)
        writer.close()

    @asynccontextmanager
    async def serve(sock: socket.socket, address: str) -> AsyncGenerator[EgressProxy]:
        async with await asyncio.start_server(page, sock=sock):
            yield Way(address, "proxy")

    program = Path(executable() or "chromium")
    async with async_playwright() as playwright, basic.session(program, serve=serve, readable=READS) as session:
        browser = await playwright.chromium.launch(executable_path=session.launcher, chromium_sandbox=True)
        async with session.egress_proxy() as proxy:
            context = await browser.new_context(proxy={"server": proxy.address, "bypass": "<-loopback>"})
            shown = await context.new_page()
            await shown.goto("http://a-page.test/")
            assert await shown.title() == "A page"
            await shown.goto("http://127.0.0.1:8470/")
            assert await shown.title() == "A page", "loopback too goes through the egress proxy"
            await context.close()
        await browser.close()
    assert pages[0] == b"GET http://a-page.test/ HTTP/1.1"
    assert b"GET http://127.0.0.1:8470/ HTTP/1.1" in pages
    assert living(session.folder.parent.name) == []
