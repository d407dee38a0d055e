"""A daemon on Redis: an approval outlives the daemon and the server, and runs once."""

from __future__ import annotations

from pathlib import Path

from tests.support.daemon import page_of, running
from tests.support.redis_server import RedisServer

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
        assert [path.read_text() for path in daemon.state.rglob("ran")] == ["ran\n"]
