"""Eleventh: files: those that people send, to the model and the workspace; those that calls make, to people."""

from __future__ import annotations

import asyncio
import base64
import re
import struct
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from tests.scenario.conftest import until
from tests.support.daemon import Daemon, page_of, running
from tests.support.model_server import Reply, ScriptedModel
from tests.support.pages import serving
from tests.support.slack import FakeSlack
from tests.support.slack.rig import SlackRig, slack_rig
from tests.support.telegram import TOKEN, FakeTelegram

ANN = 1001
TO_ANN, KITCHEN = "D0ANN", "C0CC"
PDF = b"%PDF-1.4\n" + bytes(range(256)) * 2_000 + b"\n%%EOF\n"
CONFIG = """
[model]
name = "openai:scripted"
base_url = "{model}"
"""
TELEGRAM = """
[owners]
ann = ["telegram:1001"]
[channels.telegram]
token = "env:TELEGRAM_BOT_TOKEN"
api_root = "{api_root}"
"""
SLACK = """
[owners]
ann = ["slack:T0AA/U0ANN"]
[chats]
allow = ["slack:T0AA/C0CC"]
"""
BROWSER = """
[tools.browser]
hosts = ["{host}"]
"""
FAST = "per_channel_per_s = 0\noverall_per_min = 0"


def png() -> bytes:
    """A red picture of 40 × 30."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\xff\0\0" * 40) * 30
    head = struct.pack(">IIBBBBB", 40, 30, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


# --- what the model is told, and what lies in the workspace ---------------------------------------


def last_said(model: ScriptedModel) -> list[dict[str, Any]]:
    """The parts of the last person's message in the last question."""
    said = [one["content"] for one in model.requests[-1].body["messages"] if one["role"] == "user"]
    content: str | list[dict[str, Any]] = said[-1]
    return content if not isinstance(content, str) else [{"type": "text", "text": content}]


def told(model: ScriptedModel) -> tuple[str, str]:
    """Return the model's text about the message's files, and the person's words outside of it."""
    text = last_said(model)[0]["text"]
    found = re.search(r"\[Files that came .*?data between two lines ([0-9a-f]{16}).*?\]\n\1\n(.*?)\n\1", text, re.S)
    assert found is not None, text
    return found[2], text.replace(found[0], "").strip()


def pictures(model: ScriptedModel) -> list[bytes]:
    """The pictures that came with it, as the model is given them."""
    urls = [part["image_url"]["url"] for part in last_said(model) if part["type"] == "image_url"]
    return [base64.b64decode(url.partition(";base64,")[2]) for url in urls]


def inbox(daemon: Daemon) -> dict[str, bytes]:
    """All that came, of every session, by path in its workspace; half files too."""
    found = (daemon.state / "workspaces").glob("*/inbox/*")
    return {f"inbox/{path.name}": path.read_bytes() for path in found}


def path_of(said: str) -> str:
    """The path in a line that tells of a file."""
    return said.partition(" (")[0]


def result_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a step, as far as it is known."""
    return row["result"] if row["kind"] == "tool" and row["result"] else {}


# --- from Telegram --------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    """Telegram."""
    async with FakeTelegram().serve() as found:
        yield found
        assert found.surprises == []


@pytest_asyncio.fixture
async def daemon(tmp_path: Path, telegram: FakeTelegram, model: ScriptedModel) -> AsyncIterator[Daemon]:
    """A daemon with a bot there."""
    config = TELEGRAM.format(api_root=telegram.api_root) + CONFIG.format(model=model.base_url)
    found = Daemon(folder=tmp_path, config=config, warm=True)
    await found.start({"TELEGRAM_BOT_TOKEN": TOKEN})
    yield found
    await found.kill()


async def test_a_document_and_a_photo_from_telegram(
    telegram: FakeTelegram, daemon: Daemon, model: ScriptedModel
) -> None:
    """Both lie in the workspace as they were sent; the model is told where, and looks at the picture."""
    model.replies.extend([Reply(text="A recipe."), Reply(text="Red.")])
    telegram.attach(ANN, "document", PDF, name="Rye bread.pdf", caption="what is this?")
    await telegram.see(ANN, "A recipe.")
    line, words = told(model)
    assert words == "what is this?"
    assert f'(application/pdf, {len(PDF):,} bytes), called "Rye bread.pdf"' in line
    assert inbox(daemon) == {path_of(line): PDF}
    assert pictures(model) == []

    telegram.attach(ANN, "photo", png())
    await telegram.see(ANN, "Red.")
    line, words = told(model)
    assert words == ""
    assert inbox(daemon)[path_of(line)] == png()
    assert pictures(model) == [png()]
    assert len(inbox(daemon)) == 2
    assert len(model.requests) == 2


@pytest.mark.whole("the same path; a document, a photo and files of a thread stay")
async def test_a_voice_message_from_telegram_is_a_file(
    telegram: FakeTelegram, daemon: Daemon, model: ScriptedModel
) -> None:
    """Nobody listens to it, and nobody pretends: the model is told what came."""
    model.replies.append(Reply(text="I cannot listen."))
    telegram.attach(ANN, "voice", b"OggS" + bytes(500))
    await telegram.see(ANN, "I cannot listen.")
    line, _ = told(model)
    assert "(audio/ogg, 504 bytes)" in line
    assert inbox(daemon) == {path_of(line): b"OggS" + bytes(500)}


@pytest.mark.whole("the same path; a document, a photo and files of a thread stay")
async def test_a_file_that_is_too_large_is_reported_and_not_fetched(
    telegram: FakeTelegram, daemon: Daemon, model: ScriptedModel
) -> None:
    """The words are answered all the same."""
    model.replies.append(Reply(text="It is too large for me."))
    telegram.attach(ANN, "document", bytes(21 * 2**20), name="film.mkv", caption="watch this")
    await telegram.see(ANN, "It is too large for me.")
    line, words = told(model)
    assert words == "watch this"
    assert line.startswith('Not there: a file called "film.mkv".')
    assert "20 MB" in line
    assert inbox(daemon) == {}


@pytest.mark.whole("files of a thread, and kills at each point, stay")
async def test_killed_while_a_file_comes(telegram: FakeTelegram, daemon: Daemon, model: ScriptedModel) -> None:
    """It is fetched again, lies there once, and is answered once."""
    half_sent, killed = asyncio.Event(), asyncio.Event()

    async def half(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(PDF))})
        await response.prepare(request)
        await response.write(PDF[: len(PDF) // 2])
        half_sent.set()
        await killed.wait()
        return response

    telegram.hub.give = half
    model.replies.append(Reply(text="A recipe."))
    telegram.attach(ANN, "document", PDF, name="Rye bread.pdf", caption="what is this?")
    await until(lambda: half_sent.is_set() and any(inbox(daemon).values()))
    assert not model.requests
    await daemon.kill()
    killed.set()
    telegram.hub.give = None
    await daemon.start({"TELEGRAM_BOT_TOKEN": TOKEN})
    await telegram.see(ANN, "A recipe.")
    line, _ = told(model)
    assert inbox(daemon) == {path_of(line): PDF}
    telegram.say(ANN, "/status")
    await telegram.see(ANN, "This session")
    assert sum("A recipe." in one.text for one in telegram.shown(ANN)) == 1
    assert len(model.requests) == 1


@pytest.mark.whole("the same path; a document, a photo and files of a thread stay")
async def test_a_file_of_a_command_from_telegram(telegram: FakeTelegram, daemon: Daemon, model: ScriptedModel) -> None:
    """It lies in the workspace before anybody decides; the person is told as what."""
    telegram.attach(ANN, "document", b"rye and salt", name="bread.txt", caption="/shell env cat inbox/*")
    await telegram.see(ANN, "The file of your message is in the workspace as")
    (path,) = inbox(daemon)
    assert [one for one in telegram.shown(ANN) if path in one.text]
    telegram.press(ANN, await telegram.see(ANN, "cat inbox/*", button="Once"), "Once")
    await telegram.see(ANN, "rye and salt")
    assert not model.requests


# --- from Slack -----------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def rig(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[SlackRig]:
    """A daemon in a Slack workspace."""
    config = SLACK + CONFIG.format(model=model.base_url)
    async with slack_rig(tmp_path, config=config, limits=FAST) as found:
        found.slack.person("U0ANN", "ann")
        found.slack.channel(KITCHEN, "kitchen", members=["U0ANN"])
        await found.start()
        yield found
        assert found.slack.troubles == []


async def test_files_from_slack_directly_and_in_a_thread(rig: SlackRig, model: ScriptedModel) -> None:
    """Each lies in the workspace of its own session; a file alone is a message too."""
    slack: FakeSlack = rig.slack
    model.replies.extend([Reply(text="Red."), Reply(text="A recipe."), Reply(text="Still red.")])
    slack.attach("U0ANN", png(), name="oven.png", mimetype="image/png")
    await slack.see(TO_ANN, "Red.")
    line, words = told(model)
    assert words == ""
    assert f'(image/png, {len(png()):,} bytes), called "oven.png"' in line
    assert pictures(model) == [png()]
    assert inbox(rig.daemon) == {path_of(line): png()}

    asked = slack.attach("U0ANN", PDF, name="Rye bread.pdf", text="@dragoman what is this?", channel=KITCHEN)
    await slack.see(KITCHEN, "A recipe.", thread=asked.ts)
    line, words = told(model)
    assert words.endswith("what is this?")
    assert 'called "Rye bread.pdf"' in line
    assert inbox(rig.daemon)[path_of(line)] == PDF

    slack.attach("U0ANN", png(), name="oven.png", text="and this?", channel=KITCHEN, thread=asked, mimetype="image/png")
    await slack.see(KITCHEN, "Still red.", thread=asked.ts)
    assert pictures(model) == [png()]
    assert sorted(map(len, inbox(rig.daemon).values())) == sorted([len(PDF), len(png()), len(png())])
    folders = {path.parent.parent.name for path in (rig.daemon.state / "workspaces").glob("*/inbox/*")}
    assert len(folders) == 2


@pytest.mark.whole("the same path; a document, a photo and files of a thread stay")
async def test_a_file_of_a_command_from_slack(rig: SlackRig, model: ScriptedModel) -> None:
    """As on Telegram."""
    rig.slack.attach("U0ANN", b"rye and salt", name="bread.txt", text="/shell env cat inbox/*")
    await rig.slack.see(TO_ANN, "The file of your message is in the workspace as")
    (path,) = inbox(rig.daemon)
    card = await rig.slack.see(TO_ANN, "cat inbox/*", button="Once")
    assert [one for one in rig.slack.shown(TO_ANN) if path in one.text]
    rig.slack.press("U0ANN", card, "Once")
    await rig.slack.see(TO_ANN, "rye and salt")
    assert not model.requests


@pytest.mark.whole("the same path; a document, a photo and files of a thread stay")
async def test_a_file_from_slack_that_is_too_large(rig: SlackRig, model: ScriptedModel) -> None:
    """Not a byte of it is asked for."""
    model.replies.append(Reply(text="It is too large for me."))
    rig.slack.attach("U0ANN", bytes(25_000_001), name="film.mkv", text="watch this")
    await rig.slack.see(TO_ANN, "It is too large for me.")
    line, words = told(model)
    assert (line, words) == ('Not there: a file called "film.mkv". It has more than 25 MB.', "watch this")
    assert rig.slack.fetched == []


# --- that calls make ------------------------------------------------------------------------------


@pytest.mark.whole("a real Chromium; the PDF saved from the web page stays")
async def test_a_pdf_of_a_page_comes_to_the_chat_as_a_document(telegram: FakeTelegram, tmp_path: Path) -> None:
    """And to the workspace."""
    async with serving() as pages:
        config = TELEGRAM.format(api_root=telegram.api_root) + BROWSER.format(host=pages.scope)
        daemon = Daemon(folder=tmp_path, config=config, warm=True)
        await daemon.start({"TELEGRAM_BOT_TOKEN": TOKEN})
        try:
            telegram.say(ANN, f"/browser open {pages.here}/tables")
            card = await telegram.see(ANN, "/tables", button="Allow")
            telegram.press(ANN, card, "Allow")
            await telegram.see(ANN, "second heat")
            telegram.say(ANN, "/browser pdf downloads/bread.pdf")
            await telegram.until(lambda: bool(telegram.calls("sendDocument", ANN)), 30)
        finally:
            await daemon.kill()
        (document,) = [one.document for one in telegram.shown(ANN) if one.document]
        assert (document.name, document.content[:5], document.photo) == ("bread.pdf", b"%PDF-", False)
        (kept,) = (daemon.state / "workspaces").glob("*/downloads/bread.pdf")
        assert kept.read_bytes() == document.content


@pytest.mark.whole("the same path; a document, a photo and files of a thread stay")
async def test_a_pdf_of_a_page_is_saved_from_the_web_page(tmp_path: Path) -> None:
    """Its link gives it to be saved and never to be shown, and to nobody who is not signed in."""
    async with serving() as pages:
        config = BROWSER.format(host=pages.scope)
        async with running(tmp_path, config) as daemon, page_of(daemon) as page:
            await page.say(f"/browser open {pages.here}/tables")
            card = await page.until_row("approval", lambda row: row["state"] == "open")
            await page.press(page.button(card, "once"))
            await page.until_row("step", lambda row: "second heat" in result_of(row).get("text", ""), 30)
            await page.say("/browser pdf downloads/bread.pdf")
            row = await page.until_row("step", lambda row: result_of(row).get("files"), 30)
            (file,) = row["result"]["files"]
            async with page.client.get(f"{daemon.url}{file['url']}") as response:
                assert response.status == 200
                assert re.fullmatch(r'attachment; filename="[\w.-]+\.pdf"', response.headers["Content-Disposition"])
                assert (await response.read()).startswith(b"%PDF-")
            page.client.cookie_jar.clear()
            async with page.client.get(f"{daemon.url}{file['url']}") as response:
                assert response.status == 401
            assert file["name"] == "bread.pdf"
