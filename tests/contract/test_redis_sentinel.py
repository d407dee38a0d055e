"""A store behind Redis Sentinel: the primary is asked for at each connection."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.domain.messages import Received
from gateway.errors import ConfigError, StoreError
from gateway.store.redis import open_redis
from tests.contract.scene import Scene
from tests.support.clock import FakeClock
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer, asked, certificates, wait_until_it_answers

WATCHES = """port {port}
bind 127.0.0.1
sentinel monitor gateway 127.0.0.1 {primary} {agree}
sentinel down-after-milliseconds gateway 500
sentinel failover-timeout gateway 2000
"""


@contextmanager
def sentinel(folder: Path, primary: int, more: str = "", agree: int = 1) -> Generator[int]:
    """Run one Sentinel, with further lines of its configuration; yield its port. So many have to `agree`."""
    port = free_port()
    file = folder / f"sentinel-{port}.conf"
    file.write_text(WATCHES.format(port=port, primary=primary, agree=agree) + more)
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


async def test_a_primary_with_password_and_tls_is_found(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS is for the Sentinel too, unless the URL says that it has none."""
    monkeypatch.setattr("gateway.store.redis.connection.CONNECT_S", 0.5)  # a Sentinel without TLS says nothing to it
    files, port, tls_port = certificates(tmp_path), free_port(), free_port()
    tls = {"cert-file": files["cert"], "key-file": files["key"], "ca-cert-file": files["cert"]}
    options = ["--tls-port", str(port), *(word for name, file in tls.items() for word in (f"--tls-{name}", str(file)))]
    watches = "".join(f"tls-{name} {file}\n" for name, file in tls.items())
    watches += f"tls-port {tls_port}\ntls-replication yes\nsentinel auth-pass gateway secret\n"
    with (
        RedisServer(tmp_path / "first", *options, "--requirepass", "secret"),
        sentinel(tmp_path, port, watches) as plain_port,
    ):
        signs = f"ca={files['cert']}&cert={files['cert']}&key={files['key']}"
        through_tls = f"rediss+sentinel://:secret@127.0.0.1:{tls_port}/gateway?{signs}"
        without = f"rediss+sentinel://:secret@127.0.0.1:{plain_port}/gateway?{signs}&sentinel_tls=no"
        for url in (through_tls, without):
            store = open_redis(url, clock)
            assert (await store.counts()).queued_turns == 0
            await store.close()
        with pytest.raises(StoreError) as refused:
            open_redis(through_tls.replace("secret", "wrong"), clock)
        assert "user and password in store.url" in refused.value.cure
        for url, cure in (
            (through_tls.replace(signs, "db=0"), "ca=FILE"),
            (without.partition("&sentinel_tls")[0], "sentinel_tls=no"),
            (f"redis+sentinel://127.0.0.1:{tls_port}/gateway", "rediss+sentinel"),
        ):
            with pytest.raises(StoreError, match="No Sentinel") as refused:
                open_redis(url, clock)
            assert cure in refused.value.cure


@pytest.mark.parametrize(
    ("protects", "signs_in"),
    [
        ('requirepass "a+b%c d"\n', "sentinel_password=a+b%25c%20d"),
        ("user default off\nuser asks on >secret +@all\n", "sentinel_user=asks&sentinel_password=secret"),
    ],
    ids=["password", "user"],
)
async def test_sentinels_with_a_password_are_asked(
    protects: str, signs_in: str, tmp_path: Path, clock: FakeClock
) -> None:
    """It is another one than that of the primary. Without it, or with a wrong one, the error names the setting."""
    with RedisServer(tmp_path / "first") as first, sentinel(tmp_path, first.port, protects) as port:
        url = f"redis+sentinel://127.0.0.1:{port}/gateway"
        store = open_redis(f"{url}?{signs_in}", clock)
        await store.probe()
        await store.close()
        for wrong in ("", "?sentinel_password=guess", f"?{signs_in}x"):
            with pytest.raises(StoreError, match=rf"No Sentinel .*: 127\.0\.0\.1:{port}: ") as refused:
                open_redis(url + wrong, clock)
            assert "sentinel_password" in refused.value.cure
            assert "guess" not in str(refused.value)


async def test_sentinels_that_know_no_primary_are_named(tmp_path: Path, clock: FakeClock) -> None:
    """A name that is wrong, a primary that is down, and Sentinels that are not there: each has its own cure."""
    with RedisServer(tmp_path / "first") as first, sentinel(tmp_path, first.port) as port:
        url = f"redis+sentinel://127.0.0.1:{port}"
        with pytest.raises(StoreError, match="watches no `other`") as refused:
            open_redis(f"{url}/other", clock)
        assert "gateway" in refused.value.cure
        first.kill()
        _until_down(port)
        with pytest.raises(StoreError, match="is down") as refused:
            open_redis(f"{url}/gateway", clock)
        assert "Start Redis" in refused.value.cure
    with pytest.raises(StoreError, match="No Sentinel") as refused:
        open_redis(f"redis+sentinel://127.0.0.1:{free_port()}/gateway", clock)
    assert "Start the Sentinels" in refused.value.cure


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://here/0?sentinel_password=x", "unknown option: sentinel_password"),
        ("redis+sentinel://here/gateway?sentinel_tls=no", "no TLS"),
        ("rediss+sentinel://here/gateway?sentinel_tls=off", "yes` or `no"),
    ],
)
def test_options_of_sentinels_are_checked(url: str, says: str, clock: FakeClock) -> None:
    with pytest.raises(ConfigError, match=says):
        open_redis(url, clock)


def _until_down(port: int) -> None:
    """Wait until the Sentinel takes the primary for dead."""
    deadline = time.monotonic() + PATIENCE_S
    while b"s_down" not in asked(port, "SENTINEL master gateway"):
        assert time.monotonic() < deadline, "the Sentinel does not notice."
        time.sleep(0.05)
