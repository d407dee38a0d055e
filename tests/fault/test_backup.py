"""A drill: back up beside a running daemon, lose store and key, restore them, and go on."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from gateway.store import open_store
from gateway.system.clock import SystemClock
from tests.support.daemon import ROOT, page_of, running
from tests.support.places import with_mounts
from tests.support.redis_server import RedisServer

CONFIG = """
[tools.shell]
permission = "always"
"""


@pytest.mark.parametrize("store", ["sqlite", "redis"])
@pytest.mark.sampled(1)
async def test_a_lost_gateway_goes_on_from_its_backup(store: str, tmp_path: Path) -> None:
    """An approval that was open when the backup was made is pressed after the restore, by its old button, and runs."""
    folder, backup = tmp_path / "redis", str(tmp_path / "it.backup")
    folder.mkdir()
    with RedisServer(folder) as server:
        places = [f'[store]\nurl = "{server.url}?prefix={one}"\n' if store == "redis" else "" for one in ("a", "b")]
        async with running(tmp_path, places[0] + CONFIG) as daemon:
            async with page_of(daemon) as page:
                await page.say("/shell echo ran >> ran; cat ran")
                asked = await page.until_row("approval", lambda row: row["state"] == "open")
            code, said = await daemon.run_command("backup", backup)
            assert (code, "Backed up" in said) == (0, True), said
            await daemon.kill()
            for path in [*daemon.state.glob("dragoman.db*"), daemon.state / "state.key"]:
                path.unlink()
            daemon.config = places[1] + CONFIG
            code, said = await daemon.run_command("restore", backup, "--check")
            assert (code, "is whole" in said) == (0, True), said
            assert not (daemon.state / "state.key").exists()
            code, said = await daemon.run_command("restore", backup)
            assert (code, "Restored" in said) == (0, True), said
            await daemon.start()
            async with page_of(daemon) as page:
                await page.until_row("approval", lambda row: row["state"] == "open")
                assert (await page.press(page.button(asked, "once")))["result"] == "approved"
                await page.until_row("turn", lambda row: row["state"] == "done")
            code, said = await daemon.run_command("restore", backup)
            assert (code, "already" in said) == (1, True), said
            assert await daemon.stop() == 0
        assert [path.read_text() for path in daemon.state.rglob("ran")] == ["ran\n"]


async def test_a_full_disk_leaves_no_half_copy(tmp_path: Path) -> None:
    store, small = open_store(f"sqlite://{tmp_path}/dragoman.db", SystemClock()), tmp_path / "small"
    for number in range(10):
        await store.put("large", f"{number}", "x" * 50_000)
    await store.close()
    small.mkdir()
    begins = with_mounts(f"mount -t tmpfs -o size=256k none {small}")
    words = (sys.executable, "-m", "gateway", "export", f"{tmp_path}/dragoman.db", f"{small}/copy.db")
    then = f'"$@"; code=$?; ls -A {small}; exit $code'
    copy = await asyncio.create_subprocess_exec(
        *begins,
        "sh",
        "-c",
        then,
        "sh",
        *words,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    left, said = await copy.communicate()
    assert (copy.returncode, left) == (1, b""), said
    assert b"There is no room for" in said
    assert b"Free space on its disk" in said
