"""Test channel for the bench of the event loop: records the CPU time of the daemon's longest callback.

`[channels.test]` with `module = "tests.bench.channel"`, `port`, and `longest`, the file to write to.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from gateway.ports import ChannelContext, ChannelSpec
from tests.support.channel import SocketChannel


def factory(context: ChannelContext) -> SocketChannel:
    """Measure every callback of this process's event loop from now on, and make the channel."""
    _watch_callbacks(Path(cast(Mapping[str, Any], context.settings)["longest"]))
    return SocketChannel(context)


def _watch_callbacks(path: Path) -> None:
    run = asyncio.Handle._run
    longest_s = 0.0

    def measured(handle: asyncio.Handle) -> None:
        nonlocal longest_s
        began = time.thread_time()
        run(handle)
        took = time.thread_time() - began
        if took > longest_s:
            longest_s = took
            path.write_text(json.dumps({"ms": took * 1000, "what": _name(handle)}))

    asyncio.Handle._run = measured  # pyright: ignore[reportAttributeAccessIssue] - to measure each


def _name(handle: asyncio.Handle) -> str:
    """The coroutine of the task that ran, else the callback."""
    callback: Any = getattr(handle, "_callback", None)
    task: Any = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        callback = cast(Any, task).get_coro()
    return str(getattr(callback, "__qualname__", None) or type(callback).__name__)


CHANNEL = ChannelSpec(name="test", api=2, load=lambda: factory)
