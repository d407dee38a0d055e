"""Running the daemon: one HTTP client for everything, a probe of the sandbox, and the greeting at a terminal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress

import aiohttp

from config.load import Loaded
from gateway.app import App, build
from gateway.app.memory_tuning import leave_alone_what_is_there, read_less_at_once, set_up_heap
from gateway.app.plugins import redactor_of
from gateway.errors import DragomanError, first_of
from gateway.sandbox import probe
from gateway.system.dns import DaemonEventLoop
from gateway.system.logging_setup import log, set_up_logs


def serve(loaded: Loaded) -> int:
    """Run the daemon until it is told to stop. Return the exit code; errors are `DragomanError`s with their cure."""
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
        # Not `except*`: early 3.11s wrap what is raised in one into another group.
        ours = group.subgroup(DragomanError)
        if ours is None:
            raise
        raise first_of(ours) from None
    finally:
        _let_go_of_output()
    return 0


def _let_go_of_output() -> None:
    """Write what is left of standard output; what cannot be written must not make a good end a bad one."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def outbound_client() -> aiohttp.ClientSession:
    """Return the HTTP client of models and channels. Called in the event loop; whoever has it closes it."""
    return aiohttp.ClientSession(
        # No limit here (aiohttp's is 100 connections): how many turns ask a model at once is the sessions' affair.
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
        trust_env=False,
        # None is kept: one service's would go to the others of its host, and stay for as long as the daemon lives.
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def _serve(loaded: Loaded) -> None:
    containment = await probe()
    async with outbound_client() as client:
        app = build(loaded, containment=containment, environ=os.environ, client=client)

        async def ready() -> None:
            leave_alone_what_is_there()
            with suppress(OSError):  # nobody reads it, or the disk it goes to is full
                await _greet(app)

        await app.daemon.run(ready)
        # All is stored and closed: another signal must not turn a good end into a bad one.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


async def _greet(app: App) -> None:
    """Tell a person at a terminal how to sign in. The link never goes into a log or a pipe."""
    out = sys.stdout
    where = app.answers.http.address.link(app.answers.http.port)
    if not app.answers.page:
        out.write("Dragoman is ready. The web page is switched off ([channels.web] enabled).\n")
    elif out.isatty():
        link = await app.answers.link(app.answers.owners[0])
        out.write(f"\nDragoman is ready. Open this once, within ten minutes:\n\n  {link}\n\n")
        out.write("`dragoman link` (in a clone `./run link`) makes another one. Ctrl-C stops.\n\n")
    else:
        out.write(f"Dragoman is ready on {where}. `dragoman link` (in a clone `./run link`) prints a sign-in link.\n")
    out.flush()
