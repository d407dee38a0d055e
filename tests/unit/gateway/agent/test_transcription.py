"""Voice messages end to end: transcribed, shown back, given to the model as marked text, and never more than that."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import pytest

from gateway.agent.attachments import Attachments
from gateway.agent.spoken_answers import SpokenAnswers
from gateway.agent.transcript import SPOKEN
from gateway.agent.transcription import NO_SERVER, NO_TIME, Listener, as_text, suffix_of
from gateway.domain.ids import main_session
from gateway.domain.messages import Attachment
from gateway.domain.prompts import UserText
from gateway.domain.slots import SlotKind
from gateway.domain.steps import Answer
from gateway.errors import LeaseLost, ModelError
from gateway.system.redaction import HIDDEN
from tests.support.engine import Engine
from tests.support.fakes import FakeChannel, FakeTool
from tests.support.makers import ANN, attachment, inbound
from tests.support.patience import PATIENCE_S
from tests.support.voice_server import OGG

NOTE = replace(attachment("voice.ogg", media_type="audio/ogg"), spoken=True, seconds=3)
SONG = attachment("song.ogg", media_type="audio/ogg")
SECRET = "hunter2hunter2"


@dataclass(slots=True)
class Ear:
    """Transcriber with one outcome."""

    outcome: str | Exception = "what is the time?"
    heard: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])

    async def transcribe(self, recording: BinaryIO, name: str) -> str:
        """Give the outcome."""
        self.heard.append((name, recording.read()))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def channel() -> FakeChannel:
    return FakeChannel(files={"f1": [OGG]})


@pytest.fixture
def engine(tmp_path: Path, channel: FakeChannel, ear: Ear) -> Engine:
    engine = Engine(tmp_path, [FakeTool(name="read")], secrets=[SECRET])
    return listening(engine, channel, ear)


def listening(engine: Engine, channel: FakeChannel, ear: Ear | None) -> Engine:
    """Let the engine fetch and transcribe."""
    engine.turns.attachments = Attachments(
        channels={"telegram": channel},
        workspaces=engine.workspaces.workspace,
        journal=engine.store,
        redactor=engine.redactor,
        listener=Listener(transcriber=ear, redactor=engine.redactor),
        again_after_s=0,
    )
    return engine


async def says(engine: Engine, *files: Attachment, text: str = "") -> None:
    """Send recordings as Ann, and run the turn."""
    assert await engine.ingress.message(replace(inbound(text), attachments=files)) is not None
    await engine.run(await engine.claim())


def people(engine: Engine) -> list[UserText]:
    """Return the people's messages in the last prompt."""
    return [one for one in engine.model.requests[-1].messages if isinstance(one, UserText)]


def given(engine: Engine) -> UserText:
    """Return the only one."""
    (one,) = people(engine)
    return one


async def shown(engine: Engine) -> list[str]:
    """Return the texts of the gateway itself, in order."""
    return [slot.text for slot in await engine.slots() if slot.kind is SlotKind.REPLY]


async def test_words_are_shown_back_and_are_the_message(engine: Engine, ear: Ear) -> None:
    await says(engine, NOTE)

    assert ear.heard == [("recording.ogg", OGG)]
    assert given(engine).text == f"{SPOKEN}\nwhat is the time?"
    assert await shown(engine) == ["Heard: what is the time?"]


async def test_a_crash_before_the_store_hears_again_and_shows_once(
    engine: Engine, channel: FakeChannel, ear: Ear
) -> None:
    assert await engine.ingress.message(replace(inbound(""), attachments=(NOTE,))) is not None
    stale, lease = await engine.claim_twice()
    with pytest.raises(LeaseLost):
        await engine.run(stale)
    channel.files["f1"] = [OGG]
    await engine.run(lease)

    assert len(ear.heard) == 2
    assert await shown(engine) == ["Heard: what is the time?"]


async def test_a_known_transcript_is_not_made_again(engine: Engine, ear: Ear) -> None:
    await says(engine, NOTE)
    await says(engine, text="and now?")

    assert len(ear.heard) == 1
    assert [one.text for one in people(engine)] == [f"{SPOKEN}\nwhat is the time?", "and now?"]
    assert await shown(engine) == ["Heard: what is the time?"]


async def test_a_transcript_is_no_command(engine: Engine, ear: Ear) -> None:
    ear.outcome = "/stop"
    await says(engine, NOTE)

    assert given(engine).text == f"{SPOKEN}\n/stop"


async def test_a_recording_with_a_text_is_data(engine: Engine) -> None:
    await says(engine, SONG, text="what is this?")

    assert given(engine).text == "what is this?"
    assert 'its transcript: "what is the time?"' in given(engine).data
    assert await shown(engine) == ["Heard: what is the time?"]


async def test_without_a_server_the_person_is_told_once(engine: Engine, channel: FakeChannel) -> None:
    listening(engine, channel, None)
    await says(engine, NOTE)

    assert await shown(engine) == [NO_SERVER]
    assert "inbox/" in given(engine).data


@pytest.mark.parametrize(
    ("outcome", "note", "content", "said"),
    [
        ("", NOTE, OGG, "No words were heard in it."),
        ("\u202e \u200b", NOTE, OGG, "No words were heard in it."),
        ("hi", NOTE, b"", "It is empty."),
        ("hi", NOTE, b"<html>", "It is no recording of a known type."),
        ("hi", NOTE, b"\x89PNG\r\n\x1a\n", "It is no recording of a known type."),
        ("hi", replace(NOTE, seconds=7_200), OGG, "It is longer than 30 minutes."),
        (ModelError("It is down.", cure="Start it."), NOTE, OGG, "It is down. Start it."),
        (ModelError(f"Key {SECRET}."), NOTE, OGG, f"Key {HIDDEN}."),
    ],
)
async def test_the_reason_for_no_transcript_is_reported(
    engine: Engine,
    channel: FakeChannel,
    ear: Ear,
    outcome: str | Exception,
    note: Attachment,
    content: bytes,
    said: str,
) -> None:
    ear.outcome, channel.files["f1"] = outcome, [content]
    await says(engine, note)

    assert await shown(engine) == [f"The voice message was not transcribed: {said}"]
    assert (given(engine).text, "inbox/" in given(engine).data) == ("", True)


async def test_a_server_that_never_ends_holds_no_turn(engine: Engine, channel: FakeChannel) -> None:
    """All recordings share one time, and what there was no time for is told."""

    class Silent(Ear):
        async def transcribe(self, recording: BinaryIO, name: str) -> str:
            self.heard.append((name, b""))
            await asyncio.Event().wait()
            raise AssertionError("nobody ends this wait")

    silent = Silent()
    listening(engine, channel, silent).turns.attachments.heard_within_s = 0.05
    channel.files["f2"] = [OGG]
    async with asyncio.timeout(PATIENCE_S):
        await says(engine, NOTE, replace(NOTE, source="f2"))

    assert len(silent.heard) <= 2
    (told,) = await shown(engine)
    assert told.split("\n\n") == [f"The voice message was not transcribed: {NO_TIME}"] * 2
    assert "inbox/" in given(engine).data


@pytest.mark.parametrize(
    ("outcome", "heard"),
    [
        ("a\u202eb\nc", "a b c"),
        (f"my key is {SECRET}", f"my key is {HIDDEN}"),
        ("x" * 100_000, "x" * 19_999 + "…"),
        ("\ud83d", "\ufffd"),
    ],
)
async def test_a_transcript_is_one_bounded_line(engine: Engine, ear: Ear, outcome: str, heard: str) -> None:
    ear.outcome = outcome
    await says(engine, NOTE)

    assert given(engine).text == f"{SPOKEN}\n{heard}"


def test_a_transcript_is_shown_as_it_is() -> None:
    assert as_text("**bold** [link](http://x) `code` <b>") == r"\*\*bold\*\* \[link\](http://x) \`code\` \<b\>"


@pytest.mark.parametrize(
    ("head", "suffix"),
    [
        (b"OggS\x00", ".ogg"),
        (b"ID3\x04", ".mp3"),
        (b"\xff\xfb\x90", ".mp3"),
        (b"\xff\xf1\x50", ".aac"),
        (b"RIFF....WAVE", ".wav"),
        (b"RIFF....WEBP", ""),
        (b"....ftypM4A ", ".m4a"),
        (b"\x1aE\xdf\xa3", ".webm"),
        (b"fLaC", ".flac"),
        (b"", ""),
        (b"%PDF-", ""),
    ],
)
def test_a_recording_is_known_by_its_first_bytes(head: bytes, suffix: str) -> None:
    assert suffix_of(head) == suffix


@dataclass(slots=True)
class Mouth:
    """Speaker with one outcome."""

    outcome: bytes | ModelError = OGG
    spoken: list[str] = field(default_factory=list[str])

    async def speak(self, text: str) -> bytes:
        """Give the outcome."""
        self.spoken.append(text)
        if isinstance(self.outcome, ModelError):
            raise self.outcome
        return self.outcome


@pytest.mark.parametrize(
    ("note", "answer", "outcome", "spoken"),
    [
        (NOTE, "Noon.", OGG, 1),
        (NOTE, f"It is {SECRET}.", OGG, 1),
        (NOTE, "x" * 1_501, OGG, 0),
        (NOTE, "Noon.", ModelError("It is down."), 0),
        (SONG, "Noon.", OGG, 0),
    ],
)
async def test_an_answer_is_spoken_beside_its_text(
    engine: Engine, note: Attachment, answer: str, outcome: bytes | ModelError, spoken: int
) -> None:
    mouth = Mouth(outcome)
    engine.turns.speech = SpokenAnswers(speaker=mouth, outputs=engine.workspaces.outputs, redactor=engine.redactor)
    engine.model.script = [Answer(text=answer, model="scripted")]
    await says(engine, note)

    slots = await engine.slots()
    assert [one.text for one in slots if one.kind is SlotKind.ANSWER] == [answer.replace(SECRET, HIDDEN)]
    files = [one.file.file for one in slots if one.kind is SlotKind.FILE and one.file is not None]
    assert len(files) == spoken
    assert SECRET not in "".join(mouth.spoken)
    folder = engine.workspaces.outputs(slots[0].session or main_session(ANN))
    assert [(folder / name).read_bytes() for name in files] == [OGG] * spoken
