"""Sixth: people, pages and tools that want more than they may have, at the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from multidict import CIMultiDict

from tests.support.daemon import Daemon, Page, page_of, running, signed_in
from tests.support.model_server import Call, Reply, ScriptedModel
from tests.support.patience import PATIENCE_S

TWO_OWNERS = "[owners]\nann = []\nbob = []\n"
SWAPS = ('ln -s {elsewhere} "$OLDPWD"', 'touch "$OLDPWD"')
"""Replacements of a workspace: a link that leads elsewhere, and a plain file."""


@pytest_asyncio.fixture
async def two_owners(tmp_path: Path) -> AsyncIterator[Daemon]:
    """A daemon of two owners."""
    async with running(tmp_path, TWO_OWNERS) as found:
        yield found


async def asked(page: Page, command: str) -> dict[str, Any]:
    """Say a command of the shell; return the row that asks for it."""
    await page.say(f"/shell {command}")
    return await page.until_row("approval", lambda row: row["state"] == "open" and row["rendered"] == command)


async def test_another_owners_session_stays_closed(two_owners: Daemon) -> None:
    """Neither its rows, nor its outputs, nor its buttons, by any way a page has."""
    async with page_of(two_owners, "ann") as ann, page_of(two_owners, "bob") as bob:
        row = await asked(ann, "env seq 1 40000")
        handle = ann.button(row, "once")
        assert (await bob.press(handle))["result"] == "not_valid"
        for frame in ({"op": "open", "after": None}, {"op": "open", "after": 0}, {"op": "older", "before": 2**52}):
            bob.frames.clear()
            await bob.socket.send_json({**frame, "session": "main:ann"})
            assert "no such session" in (await bob.until_frame(lambda found: found["op"] == "error"))["text"]
        assert (await ann.press(handle))["result"] == "approved"
        done = await ann.until_row("step", lambda step: step.get("result"))
        async with bob.client.get(f"{two_owners.url}{done['result']['full']}") as response:
            assert response.status == 404
        assert "main:ann" not in {row["id"] for frame in bob.frames for row in frame.get("sessions", [])}


async def test_former_owner_is_signed_out(two_owners: Daemon) -> None:
    """A cookie and a link outlive a change of the configuration; the rights do not."""
    async with signed_in(two_owners, "bob") as bob:
        link = await two_owners.link("bob")
        two_owners.config = "[owners]\nann = []\n"
        await two_owners.stop()
        await two_owners.start()
        async with bob.get(f"{two_owners.url}/api/me") as response:
            assert response.status == 401
        with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
            await bob.ws_connect(f"{two_owners.url}/ws")
        async with bob.post(f"{two_owners.url}/api/signin", json={"code": link.partition("#code=")[2]}) as response:
            assert response.status == 401


@pytest.mark.whole("the rule has unit tests of the server; other attacks stay")
async def test_an_open_page_ends_with_its_sign_in(tmp_path: Path) -> None:
    """A page that stays open does not outlive its cookie."""
    async with running(tmp_path, '[channels.web]\ncookie_lifetime = "1s"\n') as daemon, page_of(daemon) as page:
        with pytest.raises(ConnectionError):
            await page.until_frame(lambda frame: frame["op"] == "never", within_s=8)


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.sampled(1)
async def test_command_allowed_in_one_folder_runs_in_no_other(tmp_path: Path, swap: str) -> None:
    """One allowed command puts something else in the place of the folder that the card of the next one names."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with running(tmp_path, '[tools.shell]\nsandbox = "off"\n') as daemon, page_of(daemon) as page:
        later = await asked(page, "touch ran")
        first = await asked(page, f'cd / && rm -rf "$OLDPWD" && {swap.format(elsewhere=elsewhere)}')
        await page.press(page.button(first, "once"))
        await page.until_row("step", lambda step: step.get("result") and step["n"] == first["n"])
        await page.until_row("turn", lambda turn: turn["id"] == first["turn"] and turn["state"] == "done")
        await page.press(page.button(later, "once"))
        step = await page.until_row("step", lambda row: row["turn"] == later["turn"] and row.get("result"))
        assert step["result"]["status"] in ("denied", "error")
        assert "workspace" in step["result"]["hint"]
    assert not (elsewhere / "ran").exists()


async def test_a_reader_that_is_made_to_write_writes_nothing(tmp_path: Path) -> None:
    """A repository names a program that `git status` runs: unasked, it finds a read-only workspace and no network."""
    async with running(tmp_path, '[tools.shell]\nsandbox = "basic"\n') as daemon, page_of(daemon) as page:
        spy = "touch written; cat < /dev/tcp/127.0.0.1/1; false"
        row = await asked(page, f"git init -q . && git config core.fsmonitor '{spy}' && touch ready")
        await page.press(page.button(row, "once"))
        await page.until_row("step", lambda step: step["n"] == 1 and step["state"] == "finished")
        await page.say("/shell git status --short")
        step = await page.until_row(
            "step", lambda step: step["turn"] != row["turn"] and step["kind"] == "tool" and step["state"] == "finished"
        )
        assert (step["result"]["status"], "ready" in step["result"]["text"]) == ("ok", True)
        assert len(list(daemon.state.rglob("ready"))) == 1
        assert list(daemon.state.rglob("written")) == []


async def test_the_card_names_the_folder_that_is_used(tmp_path: Path) -> None:
    """An owner may put the workspace elsewhere with a link; the card then shows where."""
    project = tmp_path / "project"
    project.mkdir()
    async with running(tmp_path, '[tools.shell]\nsandbox = "off"\n') as daemon, page_of(daemon) as page:
        row = await asked(page, "env true")
        await page.press(page.button(row, "deny"))
        (workspace,) = (daemon.state / "workspaces").glob("main-*/")
        workspace.rmdir()
        workspace.symlink_to(project)
        row = await asked(page, "touch here")
        assert ["Folder", str(project)] in row["details"]
        await page.press(page.button(row, "once"))
        await page.until_row("step", lambda step: step["turn"] == row["turn"] and step.get("result"))
    assert (project / "here").exists()


HOSTILE: dict[str, tuple[str, bytes, int]] = {
    "a cookie that is no text": ("GET /api/me", b"Cookie: dragoman=\xff\xfe\r\n", 401),
    "two origins": ("POST /api/signin", b"Origin: http://127.0.0.1:{port}\r\nOrigin: http://evil.example\r\n", 403),
    "two hosts": ("GET /", b"Host: evil.example\r\n", 400),
    "a foreign address": ("GET http://evil.example/api/me", b"", 401),
}


@pytest.mark.whole("the rule has unit tests of the server; other attacks stay")
async def test_requests_that_no_browser_makes(daemon: Daemon) -> None:
    """Refused, each as what it is; nothing breaks inside."""
    port = str(daemon.port).encode()
    for name, (line, headers, status) in HOSTILE.items():
        reader, writer = await asyncio.open_connection("127.0.0.1", daemon.port)
        head = f"{line} HTTP/1.1\r\n".encode() + b"Host: 127.0.0.1:" + port + b"\r\nContent-Length: 0\r\n"
        writer.write(head + headers.replace(b"{port}", port) + b"Connection: close\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        assert answer.split(b" ", 2)[1] == str(status).encode(), name
    assert "handler failed" not in daemon.log


@pytest.mark.whole("the rule has unit tests of the server; other attacks stay")
async def test_a_sign_in_that_is_nonsense(daemon: Daemon) -> None:
    """It is an attempt like any other."""
    headers = {"Content-Type": "application/json; charset=nonsense"}
    for body in (b'{"code": "\\ud800"}', b"[" * 100_000, b'{"code": "\xff"}'):
        address = f"{daemon.url}/api/signin"
        async with aiohttp.ClientSession() as client, client.post(address, data=body, headers=headers) as response:
            assert response.status == 401, body[:20]
    assert "handler failed" not in daemon.log


@pytest.mark.whole("the rule has unit tests of the server; other attacks stay")
async def test_a_call_of_megabytes_does_not_weigh_on_the_page(tmp_path: Path, model: ScriptedModel) -> None:
    """A model's call is shown as far as a person would read it."""
    model.replies.extend((Reply(calls=(Call(name="x" * 100_000, arguments="y" * 2_000_000),)), Reply(text="Done.")))
    config = f'[model]\nname = "openai:scripted"\nbase_url = "{model.base_url}"\n'
    async with running(tmp_path, config) as daemon, page_of(daemon) as page:
        await page.say("go")
        await page.until_row("slot", lambda row: row["text"] == "Done.")
        step = await page.until_row("step", lambda row: row["kind"] == "tool" and row.get("result"))
        assert step["result"]["status"] == "error"
        assert len(step["tool"]) + len(step["arguments"]) < 70_000


@pytest.mark.whole("the rule has unit tests of the server; other attacks stay")
async def test_a_name_of_megabytes_is_not_repeated(tmp_path: Path, model: ScriptedModel) -> None:
    """The error about an argument goes to the model; it does not double what the model wrote."""
    call = Call(name="shell", arguments=f'{{"{"k" * 500_000}": 1, "command": "true"}}')
    model.replies.extend((Reply(calls=(call,)), Reply(text="Done.")))
    config = f'[model]\nname = "openai:scripted"\nbase_url = "{model.base_url}"\n'
    async with running(tmp_path, config) as daemon, page_of(daemon) as page:
        await page.say("go")
        step = await page.until_row("step", lambda row: row["kind"] == "tool" and row.get("result"))
        assert "not permitted" in step["result"]["hint"]
        assert len(step["result"]["hint"]) < 1_000


@pytest.mark.whole("the rule has unit tests of the server; other attacks stay")
async def test_sign_in_guesses_count_by_the_trusted_proxys_header(daemon: Daemon) -> None:
    """A sender writes forwarding headers of its own; what the trusted proxy adds below them counts."""
    await daemon.stop()
    await daemon.start({"DRAGOMAN_HTTP__TRUSTED_PROXIES": "127.0.0.1"})
    statuses: list[int] = []
    async with aiohttp.ClientSession() as client:
        for n in range(11):
            hops = CIMultiDict([("X-Forwarded-For", f"198.51.100.{n}"), ("X-Forwarded-For", "203.0.113.7")])
            async with client.post(f"{daemon.url}/api/signin", json={"code": "guess"}, headers=hops) as response:
                statuses.append(response.status)
    assert statuses == [401] * 10 + [429]
