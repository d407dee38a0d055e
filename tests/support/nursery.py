"""Processes of pytest, forked from one that has imported what most tests import. No part of the path of a message.

Imports take each of eight processes some seconds of CPU. Imported here are only modules whose asserts pytest does not
rewrite: no tests, and no plugins of pytest.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FrameType
from typing import TypedDict

from tests.support.stems import PLACE, stems_at

BARE = "--bare"
"""Argument with which nothing is imported: coverage begins with a process, before its imports."""
IMPORTED = (
    "channels.slack.adapter",
    "channels.telegram.adapter",
    "config.load",
    "config.schema",
    "gateway.app.run",
    "gateway.cli",
    "gateway.llm.openai_chat",
    "gateway.store.redis",
    "gateway.store.sqlite",
    "playwright.async_api",
    "redis.asyncio",
    "tests.support.daemon",
    "tests.support.engine",
    "tests.support.model_server",
    "tests.support.slack",
    "tests.support.telegram",
    "tree_sitter_bash",
)
"""Modules that most processes import for some of their files. Each process imports the rest by itself."""


class Request(TypedDict):
    """A process of pytest: its arguments, variables beside the inherited ones, and the file for all it says."""

    arguments: Sequence[str]
    environment: dict[str, str]
    log: str


def main(arguments: Sequence[str]) -> None:
    """Fork a process for each request on standard input. Print their exit codes as JSON, as last line, when all ended.

    SIGTERM ends them all.
    """
    import_module("pytest")
    stems = None
    if BARE not in arguments:
        stems = stems_at(os.environ[PLACE])
        for name in IMPORTED:
            import_module(name)
        gc.collect()
        gc.freeze()
    requests: list[Request] = json.load(sys.stdin)
    born = [forked(one) for one in requests]

    def end(_number: int, _frame: FrameType | None) -> None:
        for pid in born:
            os.kill(pid, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in born]
    if stems is not None:
        stems.communicate()
    sys.stdout.write(f"\n{json.dumps(codes)}\n")


def forked(request: Request) -> int:
    """Begin a process of pytest; return its process id. In the child it does not return."""
    if pid := os.fork():
        return pid
    import pytest  # which those who only make requests do not need

    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for standard, stream in enumerate((nothing, log, log)):
        os.dup2(stream, standard)
    os.close(nothing)
    os.close(log)
    os.environ.update(request["environment"])
    # Vendors' libraries import `anyio`, which has a plugin of pytest beside the rest.
    sys.exit(int(pytest.main(["-W", "ignore::pytest.PytestAssertRewriteWarning", *request["arguments"]])))


if __name__ == "__main__":
    main(sys.argv[1:])
