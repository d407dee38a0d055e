"""Attachments end to end: from message to prompt, and through a crash."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.agent.attachments import Attachments
from gateway.domain.messages import Attachment, FetchedFile
from gateway.domain.prompts import UserText
from gateway.domain.slots import SlotKind
from gateway.domain.tools import Risk, ToolResult
from gateway.domain.turns import TurnState
from gateway.errors import FetchFailed, LeaseLost
from gateway.ports import ToolContext
from tests.support.engine import Engine
from tests.support.fakes import FakeChannel, FakeTool, Text, calls, in_background
from tests.support.makers import attachment, inbound, result

PNG = b"\x89PNG\r\n\x1a\n"
PHOTO = attachment("me.png")


@pytest.fixture
def channel() -> FakeChannel:
    return FakeChannel(files={"f1": [PNG]})


@pytest.fixture
def engine(tmp_path: Path, channel: FakeChannel) -> Engine:
    return attached(Engine(tmp_path, [FakeTool(name="read", risk=Risk.READ)]), channel)


def attached(engine: Engine, channel: FakeChannel) -> Engine:
    """Let the engine fetch from a channel."""
    engine.turns.attachments = Attachments(
        channels={"telegram": channel},
        workspaces=engine.workspaces.workspace,
        journal=engine.store,
        redactor=engine.redactor,
        again_after_s=0,
    )
    return engine


async def sends(engine: Engine, text: str, *files: Attachment) -> None:
    """Send files as Ann."""
    assert await engine.ingress.message(replace(inbound(text), attachments=files)) is not None


def told(engine: Engine, at: int = -1) -> list[UserText]:
    """Return the people's messages in the prompt."""
    return [one for one in engine.model.requests[at].messages if isinstance(one, UserText)]


async def test_a_picture_is_fetched_kept_told_of_and_looked_at(engine: Engine, channel: FakeChannel) -> None:
    await sends(engine, "who is this?", PHOTO)
    lease = await engine.claim()
    await engine.run(lease)

    (one,) = told(engine)
    (received,) = (await engine.store.turn(lease.turn)).inputs
    path = f"inbox/{received.id}-1.png"
    assert received.files == (FetchedFile(path=path, size=len(PNG), media_type="image/png"),)
    assert (engine.workspaces.workspace(lease.session) / path).read_bytes() == PNG
    assert (one.text, path in one.data, [image.data for image in one.images]) == ("who is this?", True, [PNG])
    assert channel.fetched == ["f1"]


async def test_a_file_alone_starts_a_turn(engine: Engine) -> None:
    await sends(engine, "", PHOTO)
    lease = await engine.claim()
    await engine.run(lease)

    (one,) = told(engine)
    assert (one.text, "inbox/" in one.data) == ("", True)
    assert (await engine.store.turn(lease.turn)).turn.state is TurnState.DONE


async def test_later_turns_are_told_of_it_without_fetching_it_again(engine: Engine, channel: FakeChannel) -> None:
    for text, files in (("look", (PHOTO,)), ("and?", ())):
        await sends(engine, text, *files)
        await engine.run(await engine.claim())

    first, second = told(engine)
    assert ("inbox/" in first.data, [image.data for image in first.images], second.data) == (True, [PNG], "")
    assert channel.fetched == ["f1"]


async def test_file_sent_during_a_turn_is_fetched_for_the_next_step(engine: Engine, channel: FakeChannel) -> None:
    channel.files["f2"] = [b"text"]
    engine.model.script, engine.model.hold = [calls("read")], True
    await engine.say("go")
    lease = await engine.claim()
    async with in_background(engine.run(lease)) as running:
        await engine.model.until_asked()
        await sends(engine, "this too", attachment("a.txt", source="f2"))
        engine.model.go.set()
        await running

    assert "inbox/" not in str(engine.model.requests[0])
    assert [bool(one.data) for one in told(engine, 1)] == [False, True]
    assert channel.fetched == ["f2"]


async def test_a_crash_between_the_file_and_its_row_fetches_it_again(engine: Engine, channel: FakeChannel) -> None:
    """The holder lost the turn before storing it: the next holder knows of no file, and fetches it again."""
    await sends(engine, "look", PHOTO)
    stale, lease = await engine.claim_twice()
    with pytest.raises(LeaseLost):
        await engine.run(stale)
    channel.files["f1"] = [PNG]
    await engine.run(lease)

    (one,) = told(engine)
    assert [image.data for image in one.images] == [PNG]
    assert channel.fetched == ["f1", "f1"]


async def test_a_file_that_cannot_be_had_is_told_and_the_turn_goes_on(engine: Engine, channel: FakeChannel) -> None:
    channel.files["f1"] = [FetchFailed("The platform has it no more.")]
    await sends(engine, "look", PHOTO)
    await engine.run(await engine.claim())

    (one,) = told(engine)
    assert ("The platform has it no more." in one.data, one.images) == (True, ())
    assert await engine.texts() == ["That is all."]


async def test_a_file_of_a_command_is_there_when_it_runs(tmp_path: Path, channel: FakeChannel) -> None:
    """The person is told its name first; who answers commands reads nothing of it."""
    channel.files["f2"] = [FetchFailed("The platform has it no more.")]
    seen: list[list[str]] = []

    async def look(ctx: ToolContext, args: Text) -> ToolResult:
        del ctx, args
        seen.append(sorted(path.name for path in (engine.workspaces.workspace(lease.session) / "inbox").iterdir()))
        return result("looked")

    engine = attached(Engine(tmp_path, [FakeTool(name="read", risk=Risk.READ, body=look)]), channel)
    await sends(engine, "/read x", PHOTO, attachment("gone.txt", source="f2"))
    engine.operator.script = [calls("read")]
    lease = await engine.claim()
    await engine.run(lease)

    (received,) = (await engine.store.turn(lease.turn)).inputs
    assert seen == [[f"{received.id}-1.png"]]
    first, *_ = await engine.texts()
    assert f"The file of your message is in the workspace as `inbox/{received.id}-1.png`." in first
    assert "A file of your message is not in the workspace: The platform has it no more." in first
    assert "me.png" not in first
    assert [one.data for one in engine.operator.requests[0].messages if isinstance(one, UserText)] == [""]


async def test_a_file_is_kept_while_no_model_is_attached(tmp_path: Path) -> None:
    channel = FakeChannel(files={"f1": [PNG], "f2": [b"text"]})
    engine = attached(Engine(tmp_path, []), channel)
    engine.models.model = engine.operator
    await sends(engine, "", PHOTO, attachment("a.txt", source="f2"))
    lease = await engine.claim()
    await engine.run(lease)

    (received,) = (await engine.store.turn(lease.turn)).inputs
    paths = f"`inbox/{received.id}-1.png`, `inbox/{received.id}-2.txt`"
    (text,) = await engine.texts()
    assert f"The files of your message are in the workspace, in their order: {paths}." in text


async def test_no_file_is_shown_for_what_people_sent(engine: Engine) -> None:
    await sends(engine, "look", PHOTO)
    await engine.run(await engine.claim())

    assert [one.kind for one in await engine.slots()] == [SlotKind.ANSWER]
