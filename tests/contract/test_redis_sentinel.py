"""A store behind Redis Sentinel: the primary is asked for at each connection."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from gateway.domain.messages import Received
from gateway.store.redis import open_redis
from tests.contract.scene import Scene
from tests.support.clock import FakeClock
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer, wait_until_it_answers

WATCHES = """port {port}
bind 127.0.0.1
sentinel monitor gateway 127.0.0.1 {primary} 1
sentinel down-after-milliseconds gateway 500
sentinel failover-timeout gateway 2000
"""


@contextmanager
def sentinel(folder: Path, primary: RedisServer) -> Generator[int]:
    """Run one Sentinel that decides alone; yield its port."""
    port, file = free_port(), folder / "sentinel.conf"
    file.write_text(WATCHES.format(port=port, primary=primary.port))
    process = subprocess.Popen(["redis-server", str(file), "--sentinel"], stdout=subprocess.DEVNULL)
    try:
        wait_until_it_answers(port)
        yield port
    finally:
        process.kill()
        process.wait()


async def test_the_primary_is_found_through_sentinel(tmp_path: Path, clock: FakeClock) -> None:
    """The first Sentinel of the address is down; the next one knows."""
    with RedisServer(tmp_path / "first") as first, sentinel(tmp_path, first) as port:
        store = open_redis(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{port}/gateway?db=3", clock)
        scene = Scene(store, clock)
        await scene.say("hello")
        assert [one.message.text for one in await scene.items(Received)] == ["hello"]
        await store.close()
