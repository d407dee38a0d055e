"""Fourteenth: commands that go on by themselves, and what contained commands reach."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.conftest import until
from tests.support.daemon import Daemon, Page, page_of, running
from tests.support.model_server import Call, Reply, ScriptedModel

WITH_MODEL = '[model]\nname = "openai:scripted"\nbase_url = "{url}"\n'
ALLOWED = '[tools.shell]\napproval = "allow"\n'


def call(tool: str, **arguments: Any) -> Call:
    return Call(name=tool, arguments=json.dumps(arguments))


def living(mark: str) -> int:
    """Return how many processes have `mark` as an argument."""
    found = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                found += mark.encode() in (folder / "cmdline").read_bytes().split(b"\0")
    return found


async def gone(mark: str, within_s: float) -> None:
    await until(lambda: not living(mark), within_s)


async def finished(page: Page, arguments: str) -> dict[str, Any]:
    """Return the result of the call with this in its arguments."""
    step = await page.until_row(
        "step", lambda row: row["kind"] == "tool" and row["state"] == "finished" and arguments in row["arguments"]
    )
    return step["result"]


@asynccontextmanager
async def inner_server() -> AsyncGenerator[tuple[int, list[bytes]]]:
    """Listen on the host's loopback; yield the port, and what came."""
    came: list[bytes] = []

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await reader.readline())
        writer.close()

    async with await asyncio.start_server(meet, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], came


async def begin_a_job(page: Page, mark: str) -> None:
    """Let the model start a job that the owner allows with one press."""
    await page.say("serve it")
    asked = await page.until_row("approval", lambda row: row["state"] == "open")
    assert "background = true" in asked["rendered"]
    await page.press(page.button(asked, "once"))
    await page.until_row("turn", lambda row: row["kind"] == "model" and row["state"] == "done")
    assert living(mark) > 0


def served(mark: str) -> Reply:
    return Reply(calls=(call("shell", command=f"echo up; env sleep {mark}", background=True),))


@pytest.mark.whole("the job that ends with the daemon stays")
async def test_a_job_outlives_its_turn_and_ends_by_stop(tmp_path: Path, model: ScriptedModel) -> None:
    """One press starts it, the turn ends, the job goes on; /stop ends it and says so."""
    mark = f"4{secrets.randbelow(10**9):09d}"
    model.replies.extend((served(mark), Reply(text="It runs.")))
    async with running(tmp_path, WITH_MODEL.format(url=model.base_url)) as daemon, page_of(daemon) as page:
        await begin_a_job(page, mark)
        result = await finished(page, mark)
        assert (result["status"], result["code"], result["text"]) == ("ok", "running", "up\n")
        await page.say("/stop")
        await gone(mark, 2)
        await page.until_row("slot", lambda row: row["text"] == "Stopped.")


async def test_a_job_ends_with_the_daemon_and_is_reported_as_lost(tmp_path: Path, model: ScriptedModel) -> None:
    """Killed by SIGKILL, the daemon leaves no process; the next life says that the job is lost."""
    mark = f"4{secrets.randbelow(10**9):09d}"
    model.replies.extend((served(mark), Reply(text="It runs.")))
    async with running(tmp_path, WITH_MODEL.format(url=model.base_url)) as daemon:
        async with page_of(daemon) as page:
            await begin_a_job(page, mark)
            job = (await finished(page, mark))["hint"].split()[2]
        await daemon.kill()
        await gone(mark, 5)
        await daemon.start()
        async with page_of(daemon) as page:
            await page.say(f"/shell_poll {job}", id=f"look-at-{job}")
            result = await finished(page, job)
            assert (result["status"], result["code"]) == ("unknown", "job_lost")


async def facts_and_result(daemon: Daemon, command: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the facts of a command's card and its result; without a card, no facts."""
    async with page_of(daemon) as page:
        await page.say(f"/shell {command}", id=secrets.token_hex(8))
        facts: dict[str, str] = {}
        if daemon.config != ALLOWED:
            asked = await page.until_row("approval", lambda row: row["state"] == "open")
            facts = {**dict(asked["facts"]), **dict(asked["details"])}
            await page.press(page.button(asked, "once"), id=secrets.token_hex(8))
        return facts, await finished(page, command[:10])


async def test_a_press_gives_the_network_and_nothing_else_does(tmp_path: Path) -> None:
    """The same command, pressed for and allowed by a setting: the inner server is met once."""
    async with inner_server() as (port, came):
        command = f"echo from-$NAME-here > /dev/tcp/127.0.0.1/{port} && echo met"
        (tmp_path / "asked").mkdir()
        (tmp_path / "allowed").mkdir()
        async with running(tmp_path / "asked") as daemon:
            facts, result = await facts_and_result(daemon, command)
            assert facts["Network"] == "the host's, with private networks"
            assert result["text"] == "met\n"
        async with running(tmp_path / "allowed", ALLOWED) as daemon:
            _, result = await facts_and_result(daemon, command)
            assert "Connection refused" in result["text"]
            assert result["hint"].startswith("It ran without a network.")
    assert came == [b"from--here\n"]


async def test_full_hides_secrets_and_has_no_network(tmp_path: Path) -> None:
    """`sandbox = "full"`: its card says so, `.env` cannot be read, the inner server is not met."""
    async with inner_server() as (port, came), running(tmp_path, '[tools.shell]\nsandbox = "full"\n') as daemon:
        _, result = await facts_and_result(daemon, "env touch made")
        assert result["status"] == "ok"
        [made] = daemon.state.rglob("made")
        (made.parent / ".env").write_text("TOKEN=t0ken-of-the-owner")
        command = f"f=.e; cat ${{f}}nv; grep -r TOKEN .; echo x > /dev/tcp/127.0.0.1/{port}; cp -r . /tmp/copy"
        facts, _ = await facts_and_result(daemon, command)
        assert (facts["Sandbox"], facts["Network"]) == ("full: secret files are hidden", "none")
        assert not any("t0ken" in str(line) for line in (facts, result))
    assert came == []
