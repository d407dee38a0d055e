"""The files of a session are on one of several nodes: it runs its calls there, and is not silently replaced."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.fault.test_redis_nodes import KEY, node
from tests.support.daemon import Daemon, Page, page_of
from tests.support.redis_server import RedisServer
from tests.support.voice_server import OGG

AWAY_S = 3


@asynccontextmanager
async def two_workers(folder: Path, more: str = "", started: int = 2) -> AsyncGenerator[tuple[Daemon, Daemon]]:
    """Both run turns, each with a state folder of its own. `more`: further lines of `[cluster]`; `started`: of them."""
    (data := folder / "redis").mkdir()
    with RedisServer(data) as server:
        both = [node(folder, server.url, name, approval="ask") for name in ("first", "second")]
        for one in both:
            cluster = f'home_away_after = "{AWAY_S}s"\naddress = "{one.url}"\n{more}'
            one.config = one.config.replace("[tools.shell]", f"{cluster}[tools.shell]")
        try:
            for one in both[:started]:
                await one.start({"CLUSTER_KEY": KEY})
            yield both[0], both[1]
        finally:
            for one in both:
                await one.kill()


def home_and_other(two: tuple[Daemon, Daemon]) -> tuple[Daemon, Daemon]:
    """The node that has a workspace, and the one that has none."""
    has = [list(one.state.glob("workspaces/main-*")) != [] for one in two]
    assert has.count(True) == 1
    return two if has[0] else (two[1], two[0])


async def asked(page: Page, besides: str = "") -> dict[str, Any]:
    """Wait for an open approval."""
    return await page.until_row("approval", lambda row: row["state"] == "open" and row["id"] != besides)


async def answered(page: Page, text: str) -> None:
    """Wait until this stands on the page."""
    await page.until_row("slot", lambda row: text in json.dumps(row))


async def test_files_have_a_home_and_are_missed_when_it_is_gone(tmp_path: Path) -> None:
    """A press at the other node runs the call once, where its files are. Then that node is killed for good."""
    async with two_workers(tmp_path) as two, page_of(two[0]) as one, page_of(two[1]) as another:
        await one.say("/shell echo ran >> ran; cat ran; seq 1 30000")
        first = await asked(one)
        home, other = home_and_other(two)
        here, there = (one, another) if home is two[0] else (another, one)
        await asked(there)
        assert (await there.press(there.button(first, "once")))["result"] == "approved"
        for page in (here, there):
            await page.until_row("step", lambda row: "ran" in json.dumps(row.get("result")))
        assert [path.read_text() for path in home.state.rglob("ran")] == ["ran\n"]
        assert not list(other.state.rglob("ran"))
        step = await there.until_row("step", lambda row: '"full": "/api' in json.dumps(row))
        async with there.client.get(f"{other.url}{step['result']['full']}") as response:
            assert (response.status, (await response.text()).splitlines()[-1]) == (200, "30000")
        await _reads_a_file_of_the_other(there, there, home, other)
        await _reads_a_file_of_the_other(there, here, home, other)

        await there.say("/shell touch again; cat ran")
        second = await asked(there, besides=first["id"])
        # Nobody may hold it: a turn that its dead node holds is at work for another 15 s, and then taken over at once.
        await there.until_row("turn", lambda row: row["id"] == second["turn"] and row["state"] == "parked")
        await home.kill()
        await there.say("What is in the file?")
        again = await there.until_row(
            "approval", lambda row: row["state"] == "open" and row["id"] not in (first["id"], second["id"])
        )
        away = f"The node `{home.folder.name}` does not answer, and the files of this session are there."
        await answered(there, f"{away} This waits for them")
        await answered(there, f"{away} Work goes on")
        assert there.rows["approval", second["id"]]["state"] == "superseded"
        assert (await there.press(there.button(again, "once")))["result"] == "approved"
        await there.until_row("step", lambda row: "No such file" in json.dumps(row.get("result")))
        assert not list(other.state.rglob("ran"))


async def _reads_a_file_of_the_other(there: Page, speaker: Page, home: Daemon, other: Daemon) -> None:
    """A file that one node took is in the workspace, which is on another one; its message may come to either."""
    key, text = ("upload-0001", "Keep this.") if speaker is there else ("upload-0002", "Keep this too.")
    headers = {"X-Dragoman-Name": "note.ogg", "Content-Type": "audio/ogg", "Origin": other.url}
    async with there.client.put(f"{other.url}/api/uploads/{key}", data=OGG, headers=headers) as response:
        assert response.status == 200, await response.text()
    said = await speaker.say(text, id=f"say-{key}", files=[key])  # the pages count for themselves
    assert said["ok"], said["error"]

    def is_read(row: dict[str, Any]) -> bool:
        return row["text"] == text and any(one["path"] or one["trouble"] for one in row["files"])

    (file,) = (await there.until_row("message", is_read))["files"]
    assert file["trouble"] == ""
    assert [path.read_bytes() for path in home.state.rglob(Path(file["path"]).name)] == [OGG]
    async with there.client.get(f"{other.url}{file['audio']}") as response:
        assert (response.status, await response.read()) == (200, OGG)


async def test_any_node_goes_on_with_files_of_all_nodes(tmp_path: Path) -> None:
    """The node that began dies. A call that waited for its approval runs on the other one, which misses nothing."""
    (disk := tmp_path / "disk").mkdir()
    async with two_workers(tmp_path, f'workspaces = "{disk}"\n', started=1) as (first, second):
        async with page_of(first) as one:
            await one.say("/shell echo of the first >> file; seq 1 30000")
            await one.press(one.button(await asked(one), "once"))
            step = await one.until_row("step", lambda row: '"full": "/api' in json.dumps(row))
            await one.say("/shell cat file; touch again")
            waits = await asked(one)
        await second.start({"CLUSTER_KEY": KEY})
        await first.kill()
        async with page_of(second) as page:
            await page.until_row("approval", lambda row: row["id"] == waits["id"])
            assert (await page.press(page.button(waits, "once")))["result"] == "approved"
            await page.until_row("step", lambda row: "of the first" in json.dumps(row.get("result")))
            async with page.client.get(f"{second.url}{step['result']['full']}") as response:
                assert (response.status, (await response.text()).splitlines()[-1]) == (200, "30000")
            shown = json.dumps([row for (kind, _), row in page.rows.items() if kind == "slot"])
        assert "the files of this session" not in shown
        assert sorted(path.name for path in disk.iterdir()) == ["outputs", "workspaces"]
        assert sorted(path.name for path in (disk / "workspaces").iterdir() if path.name.startswith(".")) == [".home"]
        assert not [*first.state.glob("workspaces"), *second.state.glob("workspaces")]
