"""Command `dragoman demo`: a separate daemon with a scripted model, which shows an agent at work without a key."""

from __future__ import annotations

import signal
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from gateway.cli.demo_model import NAME, DemoModel
from gateway.errors import PortInUse

if TYPE_CHECKING:
    from config.load import Loaded

_USUAL_PORT = 8470
_CONFIGURATION = """\
[owners]
you = []
[http]
port = {port}
[model]
name = "openai:{model}"
base_url = "{base_url}"
[log]
level = "warning"
"""
_GREETING = """\
This is the demo: a scripted model, and a daemon with its state in {folder} (removed at the end).
Sign in on the page and say, for instance:

  which kernel is this, and how full is the disk?
  ask three sub-sessions to look around

Commands reach it with --state, as in: ./run --state {folder} link
"""


def demonstrate(serve: Callable[[Loaded], int]) -> int:
    """Run a daemon with `serve` until it is stopped; return its exit code. Removes everything it wrote."""
    from config.load import load
    from config.plugins import tool_specs

    # Until the daemon handles signals itself: a signal or a closed terminal must not leave the folder behind.
    signal.signal(signal.SIGTERM, _interrupted)
    signal.signal(signal.SIGHUP, _as_sigterm)
    with (
        tempfile.TemporaryDirectory(prefix="dragoman-demo-", ignore_cleanup_errors=True) as made,
        DemoModel() as model,
    ):
        folder = Path(made).resolve()
        file = folder / "config.toml"
        click.echo(_GREETING.format(folder=folder / "state"))

        def on(port: int) -> int:
            file.write_text(_CONFIGURATION.format(port=port, model=NAME, base_url=model.base_url), encoding="utf-8")
            # No environment: variables of a real daemon must not apply to the demo.
            return serve(load(file, folder / "state", {}, tool_specs()))

        if not _is_free(_USUAL_PORT):
            return on(0)
        try:
            return on(_USUAL_PORT)
        except PortInUse:  # taken after the probe
            return on(0)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _as_sigterm(_number: int, _frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGTERM)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
