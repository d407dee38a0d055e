"""A store behind Redis Sentinel: the primary is asked for at each connection."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.domain.messages import Received
from gateway.errors import StoreError
from gateway.store.redis import open_redis
from tests.contract.scene import Scene
from tests.support.clock import FakeClock
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer, certificates, wait_until_it_answers

WATCHES = """port {port}
bind 127.0.0.1
sentinel monitor gateway 127.0.0.1 {primary} 1
sentinel down-after-milliseconds gateway 500
sentinel failover-timeout gateway 2000
"""


@contextmanager
def sentinel(folder: Path, primary: int, more: str = "") -> Generator[int]:
    """Run one Sentinel that decides alone, with further lines of its configuration; yield its port."""
    port, file = free_port(), folder / "sentinel.conf"
    file.write_text(WATCHES.format(port=port, primary=primary) + more)
    process = subprocess.Popen(["redis-server", str(file), "--sentinel"], stdout=subprocess.DEVNULL)
    try:
        wait_until_it_answers(port)
        yield port
    finally:
        process.kill()
        process.wait()


async def test_the_primary_is_found_through_sentinel(tmp_path: Path, clock: FakeClock) -> None:
    """The first Sentinel of the address is down; the next one knows."""
    with RedisServer(tmp_path / "first") as first, sentinel(tmp_path, first.port) as port:
        store = open_redis(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{port}/gateway?db=3", clock)
        scene = Scene(store, clock)
        await scene.say("hello")
        assert [one.message.text for one in await scene.items(Received)] == ["hello"]
        await store.close()


async def test_a_primary_with_password_and_tls_is_found(tmp_path: Path, clock: FakeClock) -> None:
    """The Sentinel watches it through TLS, and is itself asked without."""
    files, port = certificates(tmp_path), free_port()
    tls = {"cert-file": files["cert"], "key-file": files["key"], "ca-cert-file": files["cert"]}
    options = ["--tls-port", str(port), *(word for name, file in tls.items() for word in (f"--tls-{name}", str(file)))]
    watches = "".join(f"tls-{name} {file}\n" for name, file in tls.items())
    watches += "tls-replication yes\nsentinel auth-pass gateway secret\n"
    with (
        RedisServer(tmp_path / "first", *options, "--requirepass", "secret"),
        sentinel(tmp_path, port, watches) as asked,
    ):
        signs = f"ca={files['cert']}&cert={files['cert']}&key={files['key']}"
        url = f"rediss+sentinel://:secret@127.0.0.1:{asked}/gateway?{signs}"
        store = open_redis(url, clock)
        scene = Scene(store, clock)
        await scene.say("hello")
        assert [one.message.text for one in await scene.items(Received)] == ["hello"]
        await store.close()
        with pytest.raises(StoreError) as refused:
            open_redis(url.replace("secret", "wrong"), clock)
        assert "password" in refused.value.cure
