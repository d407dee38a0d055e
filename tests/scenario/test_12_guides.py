"""Twelfth: the two guides. Their tool and their channel are installed as packages, and people use them."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import tomllib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.stems import AS_INSTALLED, ROOT

BLOCK = re.compile(r"^```([\w-]+) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOKEN = "a-token-for-all-clients"


def files_of(guide: str, kind: str = "python") -> Mapping[str, str]:
    """Return the files that a guide asks its reader to save, by name, of one kind and of those that are no Python."""
    text = (ROOT / "docs" / guide).read_text(encoding="utf-8")
    return {name: body for one, name, body in BLOCK.findall(text) if one == kind or not one.startswith("python")}


def installed(folder: Path, package: str, files: Mapping[str, str], entry_points: str) -> Path:
    """Install files as pip does: modules, and the metadata of a package beside them."""
    site = folder / "site"
    info = site / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    for name, text in files.items():
        (site / name).write_text(text, encoding="utf-8")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    return site


class Client:
    """A person's client of the guide's channel."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._ids = 0
        self.shown: dict[str, dict[str, Any]] = {}

    async def send(self, **frame: Any) -> None:
        """Send a message or a press, and wait until it is stored."""
        self._ids += 1
        self._writer.write(json.dumps({"id": self._ids, **frame}).encode() + b"\n")
        await self.until(lambda frame: frame.get("ack") == self._ids)

    async def until(self, found: Callable[[dict[str, Any]], bool], within_s: float = PATIENCE_S) -> dict[str, Any]:
        """Read until a frame that this accepts."""
        async with asyncio.timeout(within_s):
            while line := await self._reader.readline():
                frame = json.loads(line)
                if "show" in frame:
                    self.shown[frame["show"]] = frame
                if found(frame):
                    return frame
        raise AssertionError("the connection was closed")


@asynccontextmanager
async def connected(port: int) -> AsyncGenerator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(json.dumps({"token": TOKEN, "user": 7}).encode() + b"\n")
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()


def test_the_guides_are_as_short_as_they_say() -> None:
    (tool,) = files_of("write-a-tool.md").values()
    channel = files_of("write-a-channel.md")["dragoman_lines.py"]

    assert len([line for line in tool.splitlines() if line.strip()]) <= 30
    assert len(channel.splitlines()) <= 200


def message_ids(daemon: Daemon) -> Mapping[str, str]:
    """Return the ids of the messages of each slot that the guide's channel showed."""
    with closing(sqlite3.connect(f"file:{daemon.state / 'dragoman.db'}?mode=ro", uri=True)) as store:
        found = "SELECT id, platform_id FROM slots WHERE state = 'sent' AND conversation LIKE '%lines%'"
        return dict(store.execute(found))


@pytest.mark.parametrize("how", ["function", "folder", "package"])
@pytest.mark.sampled(1)
async def test_the_guides_tool_and_channel_work_as_installed(tmp_path: Path, how: str) -> None:
    channel, tool = files_of("write-a-channel.md"), files_of("write-a-tool.md")
    points = tomllib.loads(channel["pyproject.toml"])["project"]["entry-points"]["dragoman.channels"]
    registered = "".join(f"{name} = {where}\n" for name, where in points.items())
    modules = {"dragoman_lines.py": channel["dragoman_lines.py"], **(tool if how == "package" else {})}
    entry_points = f"[dragoman.channels]\n{registered}[dragoman.tools]\ncounting = count_words\n"
    site = installed(tmp_path, "dragoman-lines", modules, entry_points)
    if how == "function":
        tool = files_of("write-a-tool.md", "python-function")
    if how != "package":
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools" / "count_words.py").write_text(tool["count_words.py"])
    trust = "[tools.count_words]\ntrust = true\n" if how == "folder" else ""
    sources = 'packages = ["counting"]' if how == "package" else f'folder = "tools"\n{trust}'
    port = free_port()
    daemon = Daemon(
        folder=tmp_path,
        config=f'[owners]\nann = ["lines:7"]\n[channels.lines]\nport = {port}\ntoken = "env:LINES_TOKEN"\n'
        f'[tools]\n{sources}\n[tools.shell]\nsandbox = "off"\n',
    )
    paths = ":".join([str(AS_INSTALLED), str(site), str(ROOT)])
    await daemon.start({"LINES_TOKEN": TOKEN, "PYTHONPATH": paths})
    try:
        async with connected(port) as ann:
            await ann.send(text="/shell printf 'one two three' > notes.txt; cat notes.txt")
            card = await ann.until(lambda frame: bool(frame.get("rows")))
            assert card["rows"][0]["action"].startswith("printf")
            await ann.send(press=card["rows"][0]["buttons"]["Once"])
            await ann.until(lambda frame: "one two three" in frame.get("text", ""))
            await ann.send(text="/count_words notes.txt")
            await ann.until(lambda frame: "3 words" in frame.get("text", ""))
            await ann.send(text="/count_words ../../dragoman.db")
            refused = "No such file or directory" if how == "function" else "is outside the workspace"
            await ann.until(lambda frame: refused in frame.get("text", ""))
    finally:
        assert await daemon.stop() == 0, daemon.log[-3000:]
    shown = message_ids(daemon)
    assert shown == {slot: slot for slot in shown}
    assert len(shown) > 1
