"""Sixteenth: voice messages, from every channel to a server on loopback, and through a crash."""

from __future__ import annotations

import asyncio
import io
import wave
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import FilePayload, expect

from gateway.server.page.upload_requests import NAME_HEADER
from tests.scenario.test_11_files import ANN, CONFIG, FAST, SLACK, TELEGRAM, TO_ANN, last_said
from tests.support.browser import at_the_page
from tests.support.daemon import Daemon, page_of, running
from tests.support.model_server import Reply, ScriptedModel
from tests.support.patience import PATIENCE_S
from tests.support.slack.rig import slack_rig
from tests.support.telegram import TOKEN, FakeTelegram
from tests.support.voice_server import OGG, Odd, VoiceServer

WORDS = "what is the time?"
HEARD = f"Heard: {WORDS}"
VOICE = """
[voice]
base_url = "{voice}"
language = "en"
speak = "tts-1/alloy"
"""


@pytest_asyncio.fixture
async def ear() -> AsyncIterator[VoiceServer]:
    """A server that hears one sentence."""
    async with VoiceServer([WORDS]) as server:
        yield server


@pytest_asyncio.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    """Telegram."""
    async with FakeTelegram().serve() as found:
        yield found
        assert found.surprises == []


@pytest_asyncio.fixture
async def daemon(
    tmp_path: Path, telegram: FakeTelegram, model: ScriptedModel, ear: VoiceServer
) -> AsyncIterator[Daemon]:
    """A daemon with a bot there."""
    config = TELEGRAM.format(api_root=telegram.api_root) + settings(model, ear)
    found = Daemon(folder=tmp_path, config=config, warm=True)
    await found.start({"TELEGRAM_BOT_TOKEN": TOKEN})
    yield found
    await found.kill()


def settings(model: ScriptedModel, ear: VoiceServer) -> str:
    return CONFIG.format(model=model.base_url) + VOICE.format(voice=ear.base_url)


def wav() -> bytes:
    """Half a second of silence that a browser plays."""
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8_000)
        file.writeframes(bytes(8_000))
    return made.getvalue()


def words(model: ScriptedModel) -> str:
    """Return what the model was told last."""
    return str(last_said(model)[0]["text"])


async def test_a_voice_message_from_telegram_is_understood(
    telegram: FakeTelegram, daemon: Daemon, model: ScriptedModel, ear: VoiceServer
) -> None:
    model.replies.append(Reply(text="Noon."))
    telegram.attach(ANN, "voice", OGG)
    await telegram.see(ANN, "Noon.")

    shown = [one.text for one in telegram.shown(ANN)]
    assert shown.index(HEARD) < shown.index("Noon.")
    assert f"words may be wrong]\n{WORDS}" in words(model)
    await telegram.until(lambda: any("voice" in one.payload for one in telegram.shown(ANN)))
    assert [one.document.content for one in telegram.shown(ANN) if one.document] == [OGG]
    assert ear.spoken == [("tts-1", "alloy", "Noon.")]
    assert [(one.model, one.language, one.data) for one in ear.asked] == [("whisper-1", "en", OGG)]


@pytest.mark.whole("a voice message from Telegram stays")
async def test_a_recording_from_slack_is_understood(tmp_path: Path, model: ScriptedModel, ear: VoiceServer) -> None:
    model.replies.append(Reply(text="Noon."))
    async with slack_rig(tmp_path, config=SLACK + settings(model, ear), limits=FAST) as rig:
        rig.slack.person("U0ANN", "ann")
        await rig.start()
        rig.slack.attach("U0ANN", OGG, name="audio_message.webm", mimetype="audio/webm")
        await rig.slack.see(TO_ANN, "Noon.")

        assert HEARD in [one.text for one in rig.slack.shown(TO_ANN)]
        assert f"words may be wrong]\n{WORDS}" in words(model)
        await rig.slack.until(lambda: rig.slack.uploads(TO_ANN) != [])
        (spoken,) = rig.slack.uploads(TO_ANN)
        assert (spoken.name[:7], spoken.name[-4:], spoken.content) == ("answer-", ".ogg", OGG)
        assert ear.spoken == [("tts-1", "alloy", "Noon.")]
        assert rig.slack.troubles == []


@pytest.mark.whole("a daemon of its own; Telegram and Slack stay")
async def test_a_recording_from_the_page_is_understood(tmp_path: Path, model: ScriptedModel, ear: VoiceServer) -> None:
    model.replies.append(Reply(text="Noon."))
    async with running(tmp_path, settings(model, ear)) as daemon, page_of(daemon) as page:
        url, kind = f"{daemon.url}/api/uploads/upload-0001", {"Content-Type": "audio/ogg", NAME_HEADER: "note.ogg"}
        async with page.client.put(url, data=OGG, headers=kind) as answer:
            assert answer.status == 200
        await page.socket.send_json({"op": "say", "id": "say-voice", "text": "", "files": ["upload-0001"]})
        heard = await page.until_row("slot", lambda row: row["text"] == HEARD)
        answered = await page.until_row("slot", lambda row: row["text"] == "Noon.")
        spoken = await page.until_row("slot", lambda row: row["kind"] == "file")
        async with page.client.get(f"{daemon.url}{spoken['audio']}") as answer:
            assert (answer.status, await answer.read()) == (200, OGG)

    assert heard["ord"] < answered["ord"] < spoken["ord"]
    assert f"words may be wrong]\n{WORDS}" in words(model)


@pytest.mark.whole("a daemon in two lives; a lost lease stays in test_voice")
async def test_a_kill_in_mid_transcription_shows_it_once(
    telegram: FakeTelegram, daemon: Daemon, model: ScriptedModel, ear: VoiceServer
) -> None:
    ear.outcomes = [Odd(hangs=True), WORDS]
    model.replies.append(Reply(text="Noon."))
    telegram.attach(ANN, "voice", OGG)
    async with asyncio.timeout(PATIENCE_S):
        await ear.arrived.wait()
    await daemon.kill()
    await daemon.start({"TELEGRAM_BOT_TOKEN": TOKEN})
    await telegram.see(ANN, "Noon.")

    assert [one.text for one in telegram.shown(ANN)].count(HEARD) == 1
    assert (len(ear.asked), len(model.requests)) == (2, 1)


@pytest.mark.whole("the same path; the twins of voices stay")
async def test_a_voice_never_approves(
    telegram: FakeTelegram, daemon: Daemon, model: ScriptedModel, ear: VoiceServer
) -> None:
    ear.outcomes = ["/approve once"]
    model.replies.append(Reply(text="Press the button."))
    telegram.say(ANN, "/shell env touch made")
    card = await telegram.see(ANN, "touch made", button="Once")
    telegram.attach(ANN, "voice", OGG)
    await telegram.see(ANN, "Press the button.")

    assert await telegram.see(ANN, "touch made", button="Once") is card
    assert not [*daemon.state.glob("workspaces/*/made")]


@pytest.mark.whole("a real Chromium for seconds; Telegram and Slack stay")
async def test_the_page_shows_what_was_heard_as_it_is(tmp_path: Path, model: ScriptedModel, ear: VoiceServer) -> None:
    ear.outcomes = ["**what** is <b>the</b> [time](https://example.org)?"]
    model.replies.append(Reply(text="Noon."))
    note: FilePayload = {"name": "note.wav", "mimeType": "audio/wav", "buffer": wav()}
    async with running(tmp_path, settings(model, ear)) as daemon, at_the_page(daemon) as ann:
        await ann.page.get_by_test_id("file-input").set_input_files([note])
        await expect(ann.page.get_by_test_id("chip").and_(ann.page.locator("[data-state=ready]"))).to_have_count(1)
        await ann.page.get_by_test_id("composer").press("Enter")
        await ann.sees("Noon.")
        await ann.sees("Heard: **what** is <b>the</b> [time](https://example.org)?")
        plays = ann.page.get_by_test_id("play")
        await expect(plays).to_have_text(["Play note.wav", "Play the answer"])
        await plays.first.click()
        player = ann.page.get_by_test_id("player")
        await player.evaluate("one => new Promise(done => one.ended ? done() : (one.onended = done))")
        assert await player.evaluate("one => one.duration") == pytest.approx(0.5)
        assert ann.complaints == []
        await ann.shot("voice-heard")
