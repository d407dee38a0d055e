"""Two daemons on one Redis are one gateway: what people do on either reaches the one that holds the turn.

The second one only receives: whatever runs, runs on the first.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fault.rig import marked, until
from tests.support.daemon import Daemon, Page, page_of, signed_in
from tests.support.model_server import Reply, ScriptedModel
from tests.support.proof import figure
from tests.support.redis_server import RedisServer

KEY = "a cluster key of more than thirty-two characters"
CONFIG = """
[store]
url = "{url}"
[cluster]
key = "env:CLUSTER_KEY"
node = "{name}"
roles = {roles}
[tools.shell]
permission = "always"
approval = "{approval}"
"""
EVERY, INGRESS = '["ingress", "worker", "delivery"]', '["ingress"]'
STOP_WITHIN_S, DELTA_WITHIN_S = 1.0, 0.3


def node(folder: Path, url: str, name: str, *, roles: str = EVERY, approval: str = "allow", place: str = "") -> Daemon:
    (place_of := folder / (place or name)).mkdir()
    config = CONFIG.format(url=url, name=name, roles=roles, approval=approval)
    return Daemon(folder=place_of, config=config, warm=True)


@asynccontextmanager
async def two_nodes(
    folder: Path, approval: str = "allow", model: str = ""
) -> AsyncGenerator[tuple[Daemon, Daemon, str]]:
    """Both daemons, and the URL of their store."""
    (data := folder / "redis").mkdir()
    with RedisServer(data) as server:
        first = node(folder, server.url, "first", approval=approval)
        second = node(folder, server.url, "second", approval=approval, roles=INGRESS)
        if model:
            first.config += f'[model]\nname = "openai:scripted"\nbase_url = "{model}"\n'
        try:
            for one in (first, second):
                await one.start({"CLUSTER_KEY": KEY})
            yield first, second, server.url
        finally:
            for one in (first, second):
                await one.kill()


async def ready(daemon: Daemon) -> tuple[int, dict[str, Any]]:
    """The status of /readyz and what it says."""
    async with aiohttp.ClientSession() as client, client.get(f"{daemon.url}/readyz") as response:
        return response.status, await response.json()


async def nodes(daemon: Daemon) -> dict[str, dict[str, Any]]:
    """Return the output of `dragoman nodes`, by name."""
    code, out = await daemon.run_command("nodes", "--json")
    assert code == 0, out
    return {row["name"]: row for row in json.loads(out)}


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


# --- from the page of one node to the turn on another ---------------------------------------------


async def _stopped(page: Page) -> float:
    """Start a call, stop it on this page, and return the seconds until it has ended there."""
    marker = f"7{time.monotonic_ns() % 10**9}"
    await page.say(f"/shell sleep {marker}")
    await page.until_row("step", lambda row: marker in json.dumps(row) and row["state"] == "started")
    await until(lambda: marked(f"sleep {marker}"))
    began = time.monotonic()
    await page.say("/stop")
    turns = [row["id"] for row in page.rows.values() if row["type"] == "turn"]
    await page.until_row("turn", lambda row: row["id"] == turns[-1] and row["state"] == "stopped")
    took = time.monotonic() - began
    await until(lambda: not marked(f"sleep {marker}"), within_s=2)
    return took


async def _heard(page: Page, turn_text: str) -> dict[tuple[str, int], float]:
    """When each piece of the next answer came to this page."""
    heard: dict[tuple[str, int], float] = {}

    def take(frame: dict[str, Any]) -> bool:
        if frame["op"] == "delta":
            heard.setdefault((frame["turn"], frame["start"]), time.monotonic())
        return turn_text in json.dumps(frame) and "done" in json.dumps(frame)

    page.frames.clear()
    await page.until_frame(take, within_s=60)
    return heard


@pytest.mark.timeout(240)
@pytest.mark.parametrize("times", [8, pytest.param(100, marks=pytest.mark.whole("eight stops are measured always"))])
async def test_a_stop_on_another_node_is_in_time(tmp_path: Path, times: int) -> None:
    async with two_nodes(tmp_path) as (_, second, _), page_of(second) as page:
        stops = [await _stopped(page) for _ in range(times)]
        figure("NODES", "/stop on another node, p99", round(percentile(stops, 0.99), 3), STOP_WITHIN_S, "s")
        assert (await nodes(second))["first"]["turns"] == []


@pytest.mark.timeout(240)
@pytest.mark.parametrize("words", [60, pytest.param(600, marks=pytest.mark.whole("sixty pieces are measured always"))])
async def test_an_answer_streams_to_another_nodes_page(tmp_path: Path, words: int) -> None:
    """As soon as to a page of the node where the turn runs, or nearly."""
    text = " ".join(f"word-{n}" for n in range(words))
    async with (
        ScriptedModel([Reply(text=text, chunks=words, delay_s=0.03)]) as model,
        two_nodes(tmp_path, model=model.base_url) as (first, second, _),
        page_of(first) as here,
        page_of(second) as there,
    ):
        await there.say("tell me")
        async with asyncio.TaskGroup() as group:
            own = group.create_task(_heard(here, f"word-{words - 1}"))
            other = group.create_task(_heard(there, f"word-{words - 1}"))
        late = [other.result()[key] - at for key, at in own.result().items() if key in other.result()]
        assert len(late) > words / 4
        figure("NODES", "a delta on another node's page, p95", round(percentile(late, 0.95), 3), DELTA_WITHIN_S, "s")


async def test_a_press_on_one_node_runs_the_call_on_another(tmp_path: Path) -> None:
    """Its button was made with the key that both have; signing out on one closes the pages on the other at once."""
    async with two_nodes(tmp_path, approval="ask") as (first, second, _):
        # Host and origin are the second one's: the cookie and the key are good for both.
        async with signed_in(first) as client, client.ws_connect(f"{second.url}/ws", origin=second.url) as socket:
            page = Page(socket, client)
            await page.open((await page.until_frame(lambda frame: frame["op"] == "welcome"))["main"])
            await page.say("/shell echo ran >> ran; cat ran")
            asked = await page.until_row("approval", lambda row: row["state"] == "open")
            assert (await page.press(page.button(asked, "once")))["result"] == "approved"
            await page.until_row("turn", lambda row: row["state"] == "done")
            async with client.post(f"{first.url}/api/signout", json={}) as response:
                assert response.status == 204
            began = time.monotonic()
            with pytest.raises(ConnectionError):
                await page.until_frame(lambda frame: frame["op"] == "never", within_s=5)
            figure("NODES", "a page on another node after signing out", round(time.monotonic() - began, 3), 0.5, "s")
        assert [path.read_text() for path in first.state.rglob("ran")] == ["ran\n"]
        assert not list(second.state.rglob("ran"))


# --- the nodes themselves -------------------------------------------------------------------------


async def test_a_drained_node_finishes_and_takes_nothing_new(tmp_path: Path) -> None:
    """Told by the control socket of any node."""
    async with two_nodes(tmp_path) as (first, second, _), page_of(second) as page:
        await page.say("/shell sleep 1.5; echo finished")
        await page.until_row("step", lambda row: row["state"] == "started")
        found = await nodes(second)
        assert {name: row["state"] for name, row in found.items()} == {"first": "works", "second": "works"}
        assert len(found["first"]["turns"]) == 1
        code, told = await second.run_command("nodes", "drain", "fir")
        assert (code, told.splitlines()[0]) == (
            0,
            "first takes no new work. `dragoman nodes` shows the turns that it still holds.",
        )
        assert "Sessions whose files no other node has wait until it is resumed" in told
        await until(lambda: "takes no new work" in first.log)
        status, said = await ready(first)
        assert (status, said["roles"]["worker"]["works"]) == (503, False)
        assert "dragoman nodes resume first" in said["problems"][0]
        await page.until_row("turn", lambda row: row["state"] == "done")
        await page.say("/shell echo later")
        await page.until_row("turn", lambda row: row["state"] == "queued")
        await asyncio.sleep(1.5)
        assert (await nodes(second))["first"] | {"alive": ""} == found["first"] | {
            "state": "drained",
            "turns": [],
            "alive": "",
        }
        await first.run_command("nodes", "resume", "first")
        await page.until_row(
            "turn", lambda row: (row["state"] == "done" and "later" in json.dumps(list(page.rows))) or True
        )
        await until(lambda: "this node works again" in first.log)
        assert (await ready(first))[0] == 200


async def test_a_node_that_is_none_of_the_gateway_is_refused(tmp_path: Path) -> None:
    """Another key, or the name of a node that lives; a node that was killed is back at once."""
    async with two_nodes(tmp_path) as (first, second, url):
        third = node(tmp_path, url, "third")
        await third.start({"CLUSTER_KEY": KEY[::-1]}, ready=False)
        assert await third.died() == 1
        assert "another [cluster] key than this one.\nGive every node the same" in third.log
        twin = node(tmp_path, url, "first", place="elsewhere")
        await twin.start({"CLUSTER_KEY": KEY}, ready=False)
        assert await twin.died() == 1
        assert "A node called first works on this store already" in twin.log
        await first.kill()
        await first.start({"CLUSTER_KEY": KEY})
        other = node(tmp_path, url, "other", approval="deny")
        await other.start({"CLUSTER_KEY": KEY})
        try:
            assert (await nodes(second))["other"]["differs"] == [
                "first is configured otherwise: tools.",
                "second is configured otherwise: tools.",
            ]
            assert (await ready(other))[1]["differs"] == (await nodes(second))["other"]["differs"]
        finally:
            assert await other.stop() == 0
        assert sorted(await nodes(second)) == ["first", "second"]
