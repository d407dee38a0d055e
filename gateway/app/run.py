"""Entry point of the daemon process: shared HTTP client, sandbox probe, greeting at a terminal. Called by the CLI."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress

import aiohttp

from config.load import Loaded
from gateway.app import App, build
from gateway.app.channel_loader import redactor_of
from gateway.app.memory_tuning import freeze_existing_objects, read_less_at_once, set_up_heap
from gateway.app.store_wait import until_there
from gateway.errors import DragomanError, first_of
from gateway.sandbox import probe
from gateway.system.dns import DaemonEventLoop
from gateway.system.logging_setup import log, set_up_logs


def serve(loaded: Loaded) -> int:
    """Run the daemon until it is stopped; return the exit code. Raises `DragomanError` with its cure."""
    os.umask(0o077)
    set_up_heap()
    read_less_at_once()
    set_up_logs(loaded.settings.log.level, redactor_of(loaded))
    nothing = f"no configuration file at {loaded.looked_at}: all settings are defaults or variables"
    log("config").info(f"read {loaded.file}" if loaded.file else nothing, state=str(loaded.state))
    for warning in loaded.warnings:
        log("config").warning(warning)
    try:
        with asyncio.Runner(loop_factory=DaemonEventLoop) as runner:
            runner.run(_serve(loaded))
    except BaseExceptionGroup as group:
        # Not `except*`: early 3.11 releases wrap an exception raised inside it in another group.
        ours = group.subgroup(DragomanError)
        if ours is None:
            raise
        raise first_of(ours) from None
    finally:
        _flush_output()
    return 0


def _flush_output() -> None:
    """Flush standard output. A write error here must not change the exit code."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def outbound_client() -> aiohttp.ClientSession:
    """Return the HTTP client of models and channels. Call inside the event loop; the caller closes it."""
    return aiohttp.ClientSession(
        # No connection limit (aiohttp's default is 100): the turn worker bounds concurrent model requests.
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
        trust_env=False,
        # No cookies: one service's would go to other services of its host, for as long as the daemon runs.
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def _serve(loaded: Loaded) -> None:
    await until_there(loaded.settings.store.url, loaded.settings.store.terms)
    containment = await probe()
    async with outbound_client() as client:
        app = build(loaded, containment=containment, environ=os.environ, client=client)

        async def ready() -> None:
            freeze_existing_objects()
            with suppress(OSError):  # the reader is gone, or the disk is full
                await _greet(app)

        await app.daemon.run(ready)
        # All is stored and closed: another signal must not change the exit code.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


async def _greet(app: App) -> None:
    """Print a sign-in link at a terminal. Never write the link to a log or a pipe."""
    out = sys.stdout
    where = app.control_commands.http.address.link(app.control_commands.http.port)
    if not app.control_commands.page:
        out.write("Dragoman is ready. The web page is switched off ([channels.web] enabled).\n")
    elif not app.control_commands.page_here:
        out.write("Dragoman is ready. Other nodes serve the web page.\n")
    elif out.isatty():
        link = await app.control_commands.link(app.control_commands.owners[0])
        out.write(f"\nDragoman is ready. Open this once, within ten minutes:\n\n  {link}\n\n")
        out.write("`dragoman link` (in a clone `./run link`) makes another one. Ctrl-C stops.\n\n")
    else:
        out.write(f"Dragoman is ready on {where}. `dragoman link` (in a clone `./run link`) prints a sign-in link.\n")
    out.flush()
