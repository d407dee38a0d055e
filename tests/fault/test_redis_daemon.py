"""A daemon on Redis: an approval outlives daemon and server, and runs once; a loss of the server is told."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
import redis

from gateway.app.store_note import NOTE
from tests.fault.rig import figures, until
from tests.fault.test_redis_nodes import ready
from tests.support.daemon import Daemon, page_of, running
from tests.support.proof import RAN_TWICE, figure
from tests.support.redis_server import RedisServer, asked

CONFIG = """
[store]
url = "{url}"
[tools.shell]
permission = "always"
"""


async def test_an_approval_outlives_daemon_and_redis(tmp_path: Path) -> None:
    (folder := tmp_path / "redis").mkdir()
    with RedisServer(folder) as server:
        async with running(tmp_path, CONFIG.format(url=server.url)) as daemon:
            async with page_of(daemon) as page:
                await page.say("/shell echo ran >> ran; cat ran")
                await page.until_row("approval", lambda row: row["state"] == "open")
            await daemon.kill()
            server.kill()
            server.start()
            await daemon.start()
            async with page_of(daemon) as page:
                approval = await page.until_row("approval", lambda row: row["state"] == "open")
                pressed = await page.press(page.button(approval, "once"))
                assert pressed["result"] == "approved"
                await page.until_row("turn", lambda row: row["state"] == "done")
            assert await daemon.stop() == 0
        runs = "".join(path.read_text() for path in daemon.state.rglob("ran")).splitlines()
        figure("F08", RAN_TWICE, int(len(runs) > 1), 0, of=1)
        assert runs == ["ran"]


async def test_a_loss_is_reported_and_an_emptied_store_is_not_joined(tmp_path: Path) -> None:
    """On the page, in /readyz and as a figure; nothing is written to a Redis without the rows that the daemon knew."""
    (folder := tmp_path / "redis").mkdir()
    opened: Any = redis.Redis
    with RedisServer(folder) as server:
        async with running(tmp_path, CONFIG.format(url=server.url)) as daemon:
            with opened(port=server.port) as client:
                async with page_of(daemon) as page:
                    client.decrby("{dragoman}:rev", 5)
                    await page.say("/shell echo after")
                    await page.until_row("slot", lambda row: "Redis lost its last changes, at least 5" in row["text"])
                status, said = await ready(daemon)
                assert (status, "at least 5" in said["lost"]) == (200, True)
                assert (await figures(daemon))["lost_revisions"] == 5
                client.flushall()
                status, said = await ready(daemon)
                assert (status, said["ready"]) == (503, False)
                assert "was emptied while this node worked on it" in said["problems"][0]
                figure("F08", "keys written to a Redis that was emptied", client.dbsize(), 0)
                await daemon.kill()
                await daemon.start(ready=False)
                assert await daemon.died() != 0
                figure("F08", "rows that a daemon wrote which starts on it", client.exists("{dragoman}:rev"), 0)
                (daemon.state / NOTE).unlink()
                await daemon.start()


async def test_an_older_copy_of_redis_is_noticed_at_a_start(tmp_path: Path) -> None:
    """An operator put it back while nobody lived. What was decided since is asked anew, and not run again by itself."""
    (folder := tmp_path / "redis").mkdir()
    with RedisServer(folder) as server:
        async with running(tmp_path, CONFIG.format(url=server.url)) as daemon:
            async with page_of(daemon) as page:
                await page.say("/shell echo ran >> ran; cat ran")
                first = await page.until_row("approval", lambda row: row["state"] == "open")
                kept = shutil.copytree(folder, tmp_path / "kept")
                assert (await page.press(page.button(first, "once")))["result"] == "approved"
                await page.until_row("turn", lambda row: row["state"] == "done")
            assert await daemon.stop() == 0
            server.kill()
            shutil.rmtree(folder)
            kept.rename(folder)
            server.start()
            await daemon.start()
            async with page_of(daemon) as page:
                await page.until_row("approval", lambda row: row["state"] == "open" and row["id"] != first["id"])
                await page.until_row("slot", lambda row: "Redis lost its last changes, at least" in row["text"])
            assert "at least" in (await ready(daemon))[1]["lost"]
        runs = "".join(path.read_text() for path in daemon.state.rglob("ran")).splitlines()
        figure("F08", RAN_TWICE, int(len(runs) > 1), 0, of=1)
        assert runs == ["ran"]


async def test_a_daemon_that_starts_waits_for_its_redis(tmp_path: Path) -> None:
    """Its unit would give it up after ten starts, while a Redis that came back reads its data."""
    (folder := tmp_path / "redis").mkdir()
    server = RedisServer(folder)
    daemon = Daemon(folder=tmp_path, config=CONFIG.format(url=server.url), warm=True)
    try:
        await daemon.start(ready=False)
        await until(lambda: "Start Redis, or correct the URL." in daemon.log)
        with server:
            assert asked(server.port, "REPLICAOF 127.0.0.1 1").startswith(b"+OK")
            await until(lambda: "REPLICAOF NO ONE" in daemon.log)
            assert daemon.process is not None
            assert daemon.process.returncode is None
            assert asked(server.port, "REPLICAOF NO ONE").startswith(b"+OK")
            await daemon.until_ready()
            assert await daemon.stop() == 0
    finally:
        await daemon.kill()


REFUSALS = [
    pytest.param("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "is a replica", "REPLICAOF NO ONE", id="READONLY"),
    pytest.param(
        "CONFIG SET min-replicas-to-write 1",
        "CONFIG SET min-replicas-to-write 0",
        "takes no writes",
        "min-replicas-to-write",
        id="NOREPLICAS",
        marks=pytest.mark.whole("one refusal by a daemon stays, and all without one: test_redis_replicas.py"),
    ),
]


@pytest.mark.parametrize(("refuses", "allows", "says", "cure"), REFUSALS)
async def test_a_redis_that_takes_no_writes_is_named(
    tmp_path: Path, refuses: str, allows: str, says: str, cure: str
) -> None:
    """/readyz and the log say what to do. The daemon goes on by itself; nothing is lost, nobody is asked anew."""
    (folder := tmp_path / "redis").mkdir()
    with RedisServer(folder) as server:
        async with running(tmp_path, CONFIG.format(url=server.url)) as daemon, page_of(daemon) as page:
            await page.say("/shell echo ran >> ran; cat ran")
            row = await page.until_row("approval", lambda row: row["state"] == "open")
            assert asked(server.port, refuses).startswith(b"+OK")
            async with asyncio.TaskGroup() as group:
                group.create_task(page.say("/shell echo meanwhile >> meanwhile; cat meanwhile"), name="page")
                status, said = await ready(daemon)
                assert (status, said["ready"]) == (503, False)
                problem = said["problems"][0]
                assert (says in problem, cure in problem) == (True, True), problem
                assert cure in daemon.log
                assert asked(server.port, allows).startswith(b"+OK")
            await daemon.until_ready()
            other = await page.until_row("approval", lambda one: one["state"] == "open" and one["id"] != row["id"])
            for each in (row, other):
                assert (await page.press(page.button(each, "once")))["result"] == "approved"
            await page.until_row("turn", lambda one: one["state"] == "done" and one["id"] == other["turn"])
            status, said = await ready(daemon)
            assert (status, said["lost"]) == (200, "")
        for name in ("ran", "meanwhile"):
            runs = "".join(path.read_text() for path in daemon.state.rglob(name)).splitlines()
            figure("F08", RAN_TWICE, int(len(runs) > 1), 0, of=1)
            assert runs == [name]
