"""Uploads of the page through `kill -9`: no half file, nothing doubled, and the same key goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.fault.rig import until
from tests.support.daemon import Daemon, page_of, signed_in

KEY = "upload-0001"
WHOLE = b"pears " * 50_000

pytestmark = pytest.mark.whole("a daemon in two lives; the sweep and a broken upload stay in test_uploads of the page")


def kept(daemon: Daemon) -> list[Path]:
    return [path for path in (daemon.state / "uploads").rglob("*") if path.is_file()]


async def half(daemon: Daemon) -> AsyncIterator[bytes]:
    """Send half of the file; then the daemon dies."""
    yield WHOLE[: len(WHOLE) // 2]
    await until(lambda: any(path.stat().st_size > 60_000 for path in kept(daemon)))
    await daemon.kill()
    yield WHOLE[len(WHOLE) // 2 :]


async def test_a_kill_in_mid_upload_leaves_no_half_file(tmp_path: Path) -> None:
    daemon = Daemon(folder=tmp_path)
    await daemon.start()
    try:
        with pytest.raises(aiohttp.ClientError):
            async with signed_in(daemon) as client:
                await client.put(f"{daemon.url}/api/uploads/{KEY}", data=half(daemon))
        (left,) = kept(daemon)
        assert left.suffix == ".part"
        await daemon.start()
        await until(lambda: not kept(daemon))
        async with page_of(daemon) as page:
            for _ in range(2):
                async with page.client.put(f"{daemon.url}/api/uploads/{KEY}", data=WHOLE) as answer:
                    assert (answer.status, (await answer.json())["size"]) == (200, len(WHOLE))
            for _ in range(2):
                await page.socket.send_json({"op": "say", "id": "say-with-file", "text": "Read it", "files": [KEY]})
                assert (await page.until_frame(lambda frame: frame["op"] == "said"))["ok"] is True
            row = await page.until_row("message", lambda row: bool(row["files"]))
        assert [one["size"] for one in row["files"]] == [len(WHOLE)]
        assert [path.name for path in kept(daemon)] == [KEY]
        assert len([kind for kind, _ in page.rows if kind == "message"]) == 1
    finally:
        await daemon.kill()
