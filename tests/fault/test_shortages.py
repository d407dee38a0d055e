"""F29 and F30: too few descriptors, a log that cannot be written. The daemon lives on and answers what it accepted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from gateway.domain.messages import Received
from tests.fault.rig import stored, visiting
from tests.support.daemon import Daemon
from tests.support.patience import PATIENCE_S
from tests.support.proof import LOST, figure

FEW = 64
"""Descriptors that the daemon may have."""
MAIN = "main:owner"


@asynccontextmanager
async def living(folder: Path, *prefix: str) -> AsyncGenerator[Daemon]:
    """A daemon whose command line begins so."""
    daemon = Daemon(folder=folder, prefix=prefix)
    await daemon.start()
    try:
        yield daemon
    finally:
        await daemon.kill()


async def crowd_in(daemon: Daemon, stack: AsyncExitStack, count: int) -> int:
    """Open connections that say nothing, and leave them open; returns how many were taken."""
    taken = 0
    for _ in range(count):
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", daemon.port)
            stack.callback(writer.close)
            taken += 1
    return taken


async def lost(daemon: Daemon, said: list[str]) -> int:
    """Return the number of accepted messages that are not stored. Stops the daemon."""
    assert await daemon.stop() == 0, daemon.log[-3000:]
    found = Counter(one.message.text for one in await stored(daemon.state, MAIN) if isinstance(one, Received))
    return (Counter(said) - found).total()


async def test_too_few_descriptors(tmp_path: Path) -> None:
    """Idle connections use up all that there are: an open page goes on, and others can come afterwards."""
    said: list[str] = []
    async with living(tmp_path, "sh", "-c", f'ulimit -n {FEW}; exec "$@"', "sh") as daemon:
        async with visiting(daemon, "owner") as page:
            async with AsyncExitStack() as stack:
                assert await crowd_in(daemon, stack, 2 * FEW) > FEW
                for n in range(5):
                    text = f"message {n}"
                    if (await page.answered(await page.say(text)))["ok"]:
                        said.append(text)
                await page.answered(await page.say("/shell echo x >> ran"))
            await until_there_is_room(daemon)
            assert (await page.answered(await page.say("afterwards")))["ok"]
            said.append("afterwards")
        pid = daemon.process.pid if daemon.process else 0
        await daemon.until_ready()
        assert daemon.process is not None
        figure("F29", "deaths for want of descriptors", daemon.process.pid != pid or daemon.lives > 1, 0, of=1)
        figure("F29", LOST, await lost(daemon, said), 0, of=len(said))
        assert len(said) > 1


async def until_there_is_room(daemon: Daemon) -> None:
    """Give it the moment in which it notices that there is room again."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(AssertionError):
                await daemon.until_ready(1)
                return


async def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    """Output and errors go to a full disk from the first line on: nobody can read them, and all else is as it was."""
    said = ["one", "two"]
    async with living(tmp_path, "sh", "-c", 'exec "$@" >/dev/full 2>&1', "sh") as daemon:
        async with visiting(daemon, "owner") as page:
            for text in said:
                assert (await page.answered(await page.say(text)))["ok"]
        figure("F30", "messages lost where no log can be written", await lost(daemon, said), 0, of=len(said))
