"""Artifacts shown in a Slack on loopback: once, from the artifact store, and failures."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from channels.slack.adapter import SlackChannel, build
from channels.slack.limits import CAPTION_CHARS, NAME_CHARS, UPLOAD_BYTES
from gateway.domain.slots import RenderedSlot, SlotKind
from gateway.domain.tools import Artifact
from gateway.errors import SendFailed, SendOutcome
from tests.support.slack import Call, FakeSlack, Fault, faults
from tests.support.surroundings import refusing
from tests.unit.channels.slack.scene import Scene, showing
from tests.unit.channels.slack.test_adapter import ANN, CHAT, Kept, failed

PICTURE = b"\x89PNG" + bytes(200_000)
KEPT = Artifact(file="s1-1.png", name="page.png", media_type="image/png")


@pytest.fixture
def slack(slack: FakeSlack) -> FakeSlack:
    slack.channel(CHAT, members=[ANN])
    return slack


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / KEPT.file
    path.write_bytes(PICTURE)
    return path


def stored(path: Path | None, caption: str = "The page", *, thread: str = "", kept: Artifact = KEPT) -> RenderedSlot:
    """A slot that shows a file, due for the first time."""
    return replace(showing(caption, CHAT, thread=thread, kind=SlotKind.FILE, file=kept), path=path)


def again(
    first: RenderedSlot, message_ids: tuple[str, ...] = (), *, uncertain: bool = False, path: Path | None = None
) -> RenderedSlot:
    """The same slot, later."""
    slot = replace(first.slot, message_ids=message_ids, uncertain=uncertain, version=2)
    return replace(first, slot=slot, path=path or first.path)


def remove(path: Path) -> None:
    path.unlink()


async def test_a_file_is_one_message_with_its_caption_in_the_thread(
    slack: FakeSlack, channel: SlackChannel, picture: Path
) -> None:
    root, kept = slack.say(ANN, "look at that page", channel=CHAT), Kept()
    shown = await channel.show(stored(picture, "The **page** & <@U0ANN>", thread=root.ts), kept)
    (file,) = slack.uploads(CHAT)
    assert (shown, file.title, file.content) == ((file.id,), "page.png", PICTURE)
    assert re.fullmatch(r"page-[0-9a-f]{12}\.png", file.name)
    (message,) = slack.shown(CHAT)
    assert (message.thread, message.wire) == (root.ts, "The page &amp; &lt;@U0ANN&gt;")
    assert kept.told == []


async def test_a_file_without_a_caption_has_none(slack: FakeSlack, channel: SlackChannel, picture: Path) -> None:
    await channel.show(stored(picture, " \n"), Kept())
    assert "initial_comment" not in slack.calls("files.completeUploadExternal")[0].parameters
    await channel.show(stored(picture, "word " * 2000), Kept())
    assert len(slack.shown(CHAT)[1].wire) <= CAPTION_CHARS


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("two\nlines\x00.png", "two lines .png"),
        ("\u202e", "s1-1.png"),
        ("x" * 400, "x" * 255),
        ("ä \"'.png", "ä \"'.png"),
    ],
)
async def test_a_name_is_one_line(
    slack: FakeSlack, channel: SlackChannel, picture: Path, name: str, shown: str
) -> None:
    await channel.show(stored(picture, kept=replace(KEPT, name=name)), Kept())
    assert slack.uploads(CHAT)[0].title == shown
    assert len(slack.uploads(CHAT)[0].name) <= NAME_CHARS


async def test_shown_file_stays_when_the_stored_one_is_removed(
    slack: FakeSlack, scene: Scene, channel: SlackChannel, picture: Path
) -> None:
    first = stored(picture)
    shown = await channel.show(first, Kept())
    asked = len(slack.log)
    remove(picture)
    for one in (channel, build(scene.context())):
        assert await one.show(again(first, shown), Kept()) == shown
        assert await one.show(replace(again(first, shown), path=None, text="Another caption"), Kept()) == shown
    assert len(slack.log) == asked


async def test_unshowable_file_has_its_reason_in_the_caption(
    slack: FakeSlack, channel: SlackChannel, tmp_path: Path
) -> None:
    empty, large = tmp_path / "empty", tmp_path / "large"
    empty.touch()
    with large.open("wb") as content:
        content.truncate(UPLOAD_BYTES + 1)
    for path in (None, tmp_path / "gone.png", tmp_path, empty, large):
        await channel.show(stored(path), Kept())
    said = [message.text for message in slack.shown(CHAT)]
    reasons = ["gone", "gone", "gone", "empty", "too large for Slack"]
    assert [reason in text for reason, text in zip(reasons, said, strict=True)] == [True] * 5
    assert all(text.startswith("The page") for text in said)
    assert slack.calls("files.getUploadURLExternal") == []


async def test_a_caption_that_stood_for_a_file_gives_way_to_it(
    slack: FakeSlack, channel: SlackChannel, picture: Path
) -> None:
    first = stored(None)
    there = await channel.show(first, Kept())
    shown = await channel.show(again(first, there, path=picture), Kept())
    assert tuple(file.id for file in slack.uploads(CHAT)) == shown
    assert [len(message.files) for message in slack.shown(CHAT)] == [1]


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["files.getUploadURLExternal", "files.completeUploadExternal"])
@pytest.mark.parametrize(
    ("fault", "outcomes"),
    [
        (faults.too_many(7), (SendOutcome.WAIT, SendOutcome.WAIT)),
        (faults.error("invalid_auth"), (SendOutcome.WAIT, SendOutcome.WAIT)),
        (faults.error("missing_scope", needed="files:write"), (SendOutcome.DEAD, SendOutcome.DEAD)),
        (faults.error("storage_limit_reached"), (SendOutcome.DEAD, SendOutcome.DEAD)),
        (faults.error("something_new"), (SendOutcome.DEAD, SendOutcome.DEAD)),
        (faults.broken(), (SendOutcome.WAIT, SendOutcome.UNCERTAIN)),
        (faults.page(), (SendOutcome.WAIT, SendOutcome.UNCERTAIN)),
        (faults.drop(), (SendOutcome.WAIT, SendOutcome.UNCERTAIN)),
        (faults.cut(), (SendOutcome.WAIT, SendOutcome.UNCERTAIN)),
        (faults.torn(), (SendOutcome.WAIT, SendOutcome.UNCERTAIN)),
    ],
)
async def test_failed_upload_is_in_doubt_only_after_completion(
    slack: FakeSlack,
    channel: SlackChannel,
    picture: Path,
    step: str,
    fault: Fault,
    outcomes: tuple[SendOutcome, SendOutcome],
) -> None:
    slack.script(refusing(step, fault))
    error = await failed(channel, stored(picture))
    expected = outcomes[step == "files.completeUploadExternal"]
    assert (error.outcome, error.creating) == (expected, expected is SendOutcome.UNCERTAIN)


async def test_bytes_that_do_not_arrive_are_sent_again(slack: FakeSlack, channel: SlackChannel, picture: Path) -> None:
    slack.drop_before_reading(lambda method: method == "upload")
    assert (await failed(channel, stored(picture))).outcome is SendOutcome.RETRY
    slack.drop_before_reading(lambda method: False)
    await channel.show(stored(picture), Kept())
    assert [file.content for file in slack.uploads(CHAT)] == [PICTURE]


async def test_a_file_that_shrinks_on_its_way_is_not_shown(
    slack: FakeSlack, channel: SlackChannel, picture: Path
) -> None:
    def shrink(call: Call) -> Fault | None:
        picture.write_bytes(b"x")
        return None

    slack.script(shrink)
    with pytest.raises(SendFailed) as caught:
        await channel.show(stored(picture), Kept())
    assert caught.value.outcome is SendOutcome.RETRY
    assert slack.uploads(CHAT) == []
    slack.surprises.clear()


@pytest.mark.parametrize("thread", [False, True])
async def test_a_file_in_doubt_is_looked_up_and_shown_once(
    slack: FakeSlack, scene: Scene, picture: Path, thread: bool
) -> None:
    root = slack.say(ANN, "look", channel=CHAT).ts if thread else ""
    slack.script(refusing("files.completeUploadExternal", faults.cut(), times=1))
    first = stored(picture, thread=root)
    with pytest.raises(SendFailed) as caught:
        await build(scene.context()).show(first, Kept())
    assert caught.value.outcome is SendOutcome.UNCERTAIN
    shown = await build(scene.context()).show(again(first, uncertain=True), Kept())
    assert tuple(file.id for file in slack.uploads(CHAT)) == shown


async def test_a_file_in_doubt_that_is_not_there_is_shown_unmarked(
    slack: FakeSlack, channel: SlackChannel, picture: Path
) -> None:
    slack.script(refusing("files.completeUploadExternal", faults.drop(), times=1))
    first = stored(picture)
    await failed(channel, first)
    await channel.show(again(first, uncertain=True), Kept())
    assert [message.wire for message in slack.shown(CHAT)] == ["The page"]


async def test_a_file_that_cannot_be_looked_up_is_marked(
    slack: FakeSlack, channel: SlackChannel, picture: Path
) -> None:
    slack.world.scopes -= {"channels:history"}
    await channel.show(again(stored(picture), uncertain=True), Kept())
    assert slack.shown(CHAT)[0].wire == "(re-sent) The page"
