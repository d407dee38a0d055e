"""Recordings that the page plays: those that came with messages, and spoken answers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.agent.attachments import FILE_AT_MOST
from gateway.agent.spoken_answers import SpokenAnswers
from gateway.agent.transcription import Listener
from gateway.domain.ids import PAGE, TurnId
from gateway.domain.steps import Answer
from gateway.server.page.outbound import newest
from tests.support.engine import Engine, Served, served
from tests.support.fakes import CLEO
from tests.support.voice_server import OGG
from tests.unit.gateway.agent.test_transcription import Ear, Mouth
from tests.unit.gateway.server.page.test_uploads import KEY, put, say


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Served]:
    """A page whose owner is heard and answered in voice."""
    engine = Engine(tmp_path)
    async with served(engine) as found:
        engine.channels[PAGE] = found.web
        assert engine.turns.attachments is not None
        engine.turns.attachments.listener = Listener(transcriber=Ear(), redactor=engine.redactor)
        engine.turns.speech = SpokenAnswers(
            speaker=Mouth(OGG + b"spoken"), outputs=engine.workspaces.outputs, redactor=engine.redactor
        )
        yield found


async def answered(page: Served) -> tuple[TurnId, list[str]]:
    """Send a recording and a text file, and run the turn; return it with the addresses that rows name."""
    assert (await put(page, OGG, X_Dragoman_Name="note.ogg", Content_Type="audio/ogg"))[0] == 200
    assert (await put(page, b"pears: 3", key="upload-0002"))[0] == 200
    (said,) = await say(page, {"files": [KEY, "upload-0002"]})
    assert said["ok"] is True
    engine = page.engine
    engine.model.script = [Answer(text="Noon.", model="scripted")]
    lease = await engine.claim()
    await engine.run(lease)
    frames = newest(await engine.store.older(lease.session, None, 50), lambda wait: pytest.fail(wait.id), older=False)
    rows = [row for frame in frames for row in frame["rows"]]
    played = [one["audio"] for row in rows for one in row.get("files", ()) if row["type"] == "message"]
    assert played[1] is None
    return lease.turn, [played[0], *(row["audio"] for row in rows if row["type"] == "slot" and row["audio"])]


async def test_a_recording_and_a_spoken_answer_are_played(page: Served) -> None:
    turn, (note, spoken) = await answered(page)
    assert spoken == f"/api/output/{turn}/0/spoken"
    async with page.client(await page.cookie()) as ann:
        for path, data in ((note, OGG), (spoken, OGG + b"spoken")):
            async with ann.get(page.url + path) as response:
                assert (response.status, await response.read()) == (200, data)
                assert response.headers["Content-Type"] == "audio/ogg"


async def test_recording_is_played_to_its_owner_only(page: Served) -> None:
    turn, (note, spoken) = await answered(page)
    other_file, other_step, no_message = (
        f"{note[:-1]}1",
        f"/api/output/{turn}/7/spoken",
        f"/api/recording/{turn}/i-no/0",
    )
    async with page.client(await page.cookie()) as ann:
        for path in (other_file, f"{note[:-1]}9", no_message, "/api/recording/none/none/0", other_step):
            async with ann.get(page.url + path) as response:
                assert response.status == 404, path
    async with page.client(await page.cookie(CLEO)) as cleo:
        for path in (note, spoken):
            async with cleo.get(page.url + path) as response:
                assert response.status == 404, path
    async with page.client("") as nobody, nobody.get(page.url + note) as response:
        assert response.status == 401


async def test_only_a_file_that_begins_as_audio_does_is_read(page: Served) -> None:
    """A tool may have put anything in its place, a link to a secret too."""
    _, (note, _) = await answered(page)
    (path,) = page.engine.core.loaded.state.glob("workspaces/*/inbox/*.ogg")
    (secret := path.parent.parent / "secret.ogg").write_bytes(OGG)
    async with page.client(await page.cookie()) as ann:

        async def status() -> int:
            async with ann.get(page.url + note) as response:
                return response.status

        path.write_bytes(b"<script>alert(1)</script>")
        assert await status() == 404
        path.write_bytes(OGG)
        assert await status() == 200
        os.truncate(path, FILE_AT_MOST + 1)
        assert await status() == 404
        path.unlink()
        assert await status() == 404
        path.symlink_to(secret)
        assert await status() == 404
