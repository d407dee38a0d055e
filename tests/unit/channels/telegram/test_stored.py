"""Artifacts shown in a Telegram on loopback: as photos where possible, from the artifact store."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import pytest

from channels.telegram.adapter import TelegramChannel
from channels.telegram.formatted_text import units
from channels.telegram.limits import CAPTION_UNITS, PHOTO_BYTES, UPLOAD_BYTES
from channels.telegram.parts import RESENT
from gateway.domain.messages import Conversation
from gateway.domain.slots import RenderedSlot, SlotKind
from gateway.domain.tools import Artifact
from gateway.errors import SendFailed, SendOutcome
from tests.support.shown import slot as made_slot
from tests.support.telegram import FakeTelegram, Fault, Shown, faults
from tests.unit.channels.telegram.conftest import QUICK
from tests.unit.channels.telegram.pictures import jpeg, png, webp
from tests.unit.channels.telegram.scene import Scene
from tests.unit.channels.telegram.test_adapter import ANN, DIRECT, once

KEPT = Artifact(file="s1-1.png", name="page.png", media_type="image/png")


def short(value: object) -> str:
    """Return a short test id for bytes."""
    return repr(value)[:40]


@dataclass(slots=True)
class Shower:
    """Shows one slot with a file, as the gateway's delivery does."""

    channel: TelegramChannel
    path: Path | None
    name: str = "page.png"
    where: Conversation = DIRECT
    shown: tuple[str, ...] = ()

    async def progress(self, message_ids: tuple[str, ...]) -> None:
        self.shown = message_ids

    async def show(self, caption: str = "The page", *, uncertain: bool = False) -> tuple[str, ...]:
        slot = made_slot(
            self.where,
            SlotKind.FILE,
            text=caption,
            file=replace(KEPT, name=self.name),
            message_ids=self.shown,
            attempts=0,
            uncertain=uncertain,
        )
        self.shown = await self.channel.show(RenderedSlot(slot=slot, text=caption, path=self.path), self.progress)
        return self.shown

    async def failing(self, caption: str = "The page") -> SendFailed:
        with pytest.raises(SendFailed) as caught:
            await self.show(caption)
        return caught.value


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    return made(tmp_path, png())


def made(folder: Path, data: bytes) -> Path:
    path = folder / KEPT.file
    path.write_bytes(data)
    return path


def remove(path: Path) -> None:
    path.unlink()


def content(message: Shown) -> bytes:
    assert message.document is not None
    return message.document.content


# --- what people see ------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [png(), jpeg(), webp(b"VP8X"), png(size=PHOTO_BYTES)], ids=short)
async def test_a_picture_is_shown_as_a_photo(
    telegram: FakeTelegram, channel: TelegramChannel, tmp_path: Path, data: bytes
) -> None:
    shown = await Shower(channel, made(tmp_path, data)).show("The **page**")
    (message,) = telegram.shown(ANN)
    assert (shown, message.text, content(message)) == ((str(message.id),), "The page", data)
    assert [one["type"] for one in message.entities] == ["bold"]
    assert [call.method for call in telegram.calls()] == ["sendPhoto"]


@pytest.mark.parametrize(
    "data",
    [b"%PDF-1.7", png(9_001, 1_000), png(5, 101), png(size=PHOTO_BYTES + 1), b"GIF89a" + bytes(100), b"x"],
    ids=short,
)
async def test_anything_else_is_shown_as_a_file_as_it_is(
    telegram: FakeTelegram, channel: TelegramChannel, tmp_path: Path, data: bytes
) -> None:
    await Shower(channel, made(tmp_path, data)).show()
    (call,) = telegram.calls()
    assert (call.method, call.parameters["disable_content_type_detection"]) == ("sendDocument", True)
    assert content(telegram.shown(ANN)[0]) == data


async def test_a_topic_is_kept(telegram: FakeTelegram, channel: TelegramChannel, picture: Path, tmp_path: Path) -> None:
    forum = telegram.supergroup("Kitchen", topics={7: "Bread"})
    where = Conversation(channel="telegram", account="main", chat=str(forum), thread="7")
    await Shower(channel, picture, where=where).show("for @everyone")
    (tmp_path / "log").write_bytes(b"x")
    await Shower(channel, tmp_path / "log", where=where).show()
    assert [message.thread for message in telegram.shown(forum)] == [7, 7]
    assert telegram.shown(forum)[0].text == "for @\u2060everyone", "which rings nobody"


@pytest.mark.parametrize("name", ["ein Bild ä.png", "🧵.png", "a'b.png", "x" * 255])
async def test_a_name_arrives_as_it_is(
    telegram: FakeTelegram, channel: TelegramChannel, tmp_path: Path, name: str
) -> None:
    await Shower(channel, made(tmp_path, b"x"), name=name).show()
    document = telegram.shown(ANN)[0].document
    assert document is not None
    assert document.name == name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("two\nlines\x00.txt", "two lines .txt"),
        ('a"; filename="b', "a'; filename='b"),
        ("x" * 400, "x" * 255),
        ("", KEPT.file),
    ],
)
async def test_a_name_is_one_line_that_ends_nothing(
    telegram: FakeTelegram, channel: TelegramChannel, tmp_path: Path, name: str, shown: str
) -> None:
    await Shower(channel, made(tmp_path, b"x"), name=name).show()
    document = telegram.shown(ANN)[0].document
    assert document is not None
    assert document.name == shown


@pytest.mark.parametrize("caption", ["word " * 2_000, "😀" * 1_000, "é🧵" * 900, "x" * 5_000, "**b** " * 900])
async def test_a_long_caption_is_cut(
    telegram: FakeTelegram, channel: TelegramChannel, picture: Path, caption: str
) -> None:
    slot = Shower(channel, picture)
    telegram.script(once("sendPhoto", faults.cut()))
    await slot.failing(caption)
    await slot.show(caption, uncertain=True)
    lost, again = telegram.shown(ANN)
    assert lost.text.endswith("…")
    assert units(lost.text) > CAPTION_UNITS * 3 // 4
    assert again.text == f"{RESENT} {lost.text}"
    assert units(again.text) <= CAPTION_UNITS


@pytest.mark.parametrize("over", [-1, 0, 1])
async def test_a_caption_that_fits_is_whole(
    telegram: FakeTelegram, channel: TelegramChannel, picture: Path, over: int
) -> None:
    room = CAPTION_UNITS - units(f"{RESENT} ")
    await Shower(channel, picture).show("x" * (room + over))
    text = telegram.shown(ANN)[0].text
    assert (len(text) <= room, text.endswith("…")) == (True, over > 0)


async def test_a_file_without_a_caption_has_none(
    telegram: FakeTelegram, channel: TelegramChannel, picture: Path
) -> None:
    await Shower(channel, picture).show("")
    assert "caption" not in telegram.shown(ANN)[0].payload


# --- later ----------------------------------------------------------------------------------------


async def test_another_caption_is_an_edit_and_the_same_one_nothing(
    telegram: FakeTelegram, scene: Scene, channel: TelegramChannel, picture: Path
) -> None:
    slot = Shower(channel, picture)
    first = await slot.show("one")
    assert [await slot.show("two"), await slot.show("two")] == [first, first]
    assert [call.method for call in telegram.calls()] == ["sendPhoto", "editMessageCaption"]
    slot.channel = TelegramChannel(scene.context(), QUICK)
    assert await slot.show("two") == first, "a new process, which Telegram tells that nothing changed"
    assert [(message.text, content(message)) for message in telegram.shown(ANN)] == [("two", png())]


async def test_shown_file_stays_when_the_stored_one_is_removed(
    telegram: FakeTelegram, scene: Scene, channel: TelegramChannel, picture: Path
) -> None:
    slot = Shower(channel, picture)
    first = await slot.show("one")
    remove(picture)
    assert await slot.show("two") == first
    slot.path = None
    slot.channel = TelegramChannel(scene.context(), QUICK)
    assert await slot.show("three") == first
    assert [message.text for message in telegram.shown(ANN)] == ["three"]
    telegram.shown(ANN)[0].deleted = True
    assert await slot.show("four") == first
    assert telegram.shown(ANN) == []


async def test_a_message_that_somebody_took_away_is_shown_again(
    telegram: FakeTelegram, channel: TelegramChannel, picture: Path
) -> None:
    slot = Shower(channel, picture)
    first = await slot.show("one")
    telegram.shown(ANN)[0].deleted = True
    assert await slot.show("two") != first
    assert [(message.text, content(message)) for message in telegram.shown(ANN)] == [("two", png())]


async def test_unshowable_file_has_its_reason_in_the_caption(
    telegram: FakeTelegram, channel: TelegramChannel, tmp_path: Path
) -> None:
    empty, large = tmp_path / "empty", tmp_path / "large"
    empty.touch()
    with large.open("wb") as whole:
        whole.truncate(UPLOAD_BYTES + 1)
    for path in (None, tmp_path / "gone.png", tmp_path, empty, large):
        await Shower(channel, path).show()
    said = [message.text.partition("\n\n") for message in telegram.shown(ANN)]
    assert [why for _, _, why in said] == [
        *["(the file is gone)"] * 3,
        "(the file is empty)",
        "(the file is too large for Telegram)",
    ]
    assert {caption for caption, _, _ in said} == {"The page"}


async def test_a_caption_that_stood_for_a_file_gives_way_to_it(
    telegram: FakeTelegram, channel: TelegramChannel, picture: Path
) -> None:
    slot = Shower(channel, None)
    first = await slot.show()
    slot.path = picture
    assert await slot.show() != first
    assert [content(message) for message in telegram.shown(ANN)] == [png()]


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sendPhoto", "sendDocument"])
@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (faults.too_many(3), SendOutcome.WAIT),
        (faults.error(401, "Unauthorized"), SendOutcome.WAIT),
        (faults.error(403, "Forbidden: bot was blocked by the user"), SendOutcome.DEAD),
        (faults.error(400, "Bad Request: not enough rights to send photos to the chat"), SendOutcome.DEAD),
        (faults.error(413, "Request Entity Too Large"), SendOutcome.DEAD),
        (faults.broken(500), SendOutcome.UNCERTAIN),
        (faults.page(502), SendOutcome.UNCERTAIN),
        (faults.page(413), SendOutcome.UNCERTAIN),
        (faults.drop(), SendOutcome.UNCERTAIN),
        (faults.cut(), SendOutcome.UNCERTAIN),
    ],
)
async def test_a_send_that_fails_is_classed(
    telegram: FakeTelegram, channel: TelegramChannel, tmp_path: Path, method: str, fault: Fault, outcome: SendOutcome
) -> None:
    telegram.script(once(method, fault))
    error = await Shower(channel, made(tmp_path, png() if method == "sendPhoto" else b"x")).failing()
    assert (error.outcome, error.creating) == (outcome, outcome is SendOutcome.UNCERTAIN)


@pytest.mark.parametrize("fault", [faults.cut(), faults.broken(500), faults.too_many(3)])
async def test_an_edit_that_fails_may_be_repeated(
    telegram: FakeTelegram, channel: TelegramChannel, picture: Path, fault: Fault
) -> None:
    slot = Shower(channel, picture)
    await slot.show("one")
    telegram.script(once("editMessageCaption", fault))
    error = await slot.failing("two")
    outcome = SendOutcome.WAIT if fault.status == 429 else SendOutcome.UNCERTAIN
    assert (error.outcome, error.creating) == (outcome, False)
    await slot.show("two")
    assert [message.text for message in telegram.shown(ANN)] == ["two"]


@pytest.mark.parametrize("data", [png(), b"x"])
async def test_a_file_that_may_be_there_is_repeated_once_and_marked(
    telegram: FakeTelegram, channel: TelegramChannel, tmp_path: Path, data: bytes
) -> None:
    slot = Shower(channel, made(tmp_path, data))
    telegram.script(once("sendPhoto" if data == png() else "sendDocument", faults.cut()))
    assert (await slot.failing("**bold**")).outcome is SendOutcome.UNCERTAIN
    shown = await slot.show("**bold**", uncertain=True)
    assert await slot.show("**bold**") == shown
    lost, again = telegram.shown(ANN)
    assert (lost.text, again.text) == ("bold", f"{RESENT} bold")
    assert again.entities == [{"type": "bold", "offset": len(RESENT) + 1, "length": 4}]
    assert len(telegram.calls()) == 2


@pytest.mark.parametrize(
    "said", ["PHOTO_INVALID_DIMENSIONS", "IMAGE_PROCESS_FAILED", "file of size 9 bytes is too big for a photo"]
)
async def test_picture_refused_as_a_photo_is_sent_as_a_file(
    telegram: FakeTelegram, channel: TelegramChannel, picture: Path, said: str
) -> None:
    telegram.script(once("sendPhoto", faults.error(400, f"Bad Request: {said}")))
    await Shower(channel, picture).show()
    assert [call.method for call in telegram.calls()] == ["sendPhoto", "sendDocument"]
    assert [(message.text, content(message)) for message in telegram.shown(ANN)] == [("The page", png())]


async def test_a_caption_whose_marks_are_refused_goes_without(
    telegram: FakeTelegram, channel: TelegramChannel, picture: Path
) -> None:
    telegram.script(once("sendPhoto", faults.error(400, "Bad Request: can't parse entities: no")))
    await Shower(channel, picture).show("**bold**")
    (message,) = telegram.shown(ANN)
    assert (message.text, message.entities) == ("bold", [])


async def test_a_group_that_moved_is_followed(telegram: FakeTelegram, channel: TelegramChannel, picture: Path) -> None:
    group = telegram.group("Kitchen")
    moved = telegram.migrate(group)
    await Shower(channel, picture, where=Conversation(channel="telegram", account="main", chat=str(group))).show()
    assert [content(message) for message in telegram.shown(moved)] == [png()]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (png(9_001, 1_000), "PHOTO_INVALID_DIMENSIONS"),
        (jpeg(5, 101), "PHOTO_INVALID_DIMENSIONS"),
        (webp(b"VP8X", 101, 5), "PHOTO_INVALID_DIMENSIONS"),
        (b"%PDF-1.7", "IMAGE_PROCESS_FAILED"),
        (png(size=PHOTO_BYTES + 1), "is too big for a photo"),
        (b"", "file must be non-empty"),
    ],
    ids=short,
)
async def test_the_telegram_of_these_tests_is_as_strict(
    telegram: FakeTelegram, scene: Scene, data: bytes, said: str
) -> None:
    form = aiohttp.FormData({"chat_id": str(ANN)})
    form.add_field("photo", io.BytesIO(data), filename="a.png")
    async with scene.client.post(f"{telegram.api_root}/bot{telegram.token}/sendPhoto", data=form) as answer:
        assert answer.status == 400
        assert said in (await answer.json())["description"]
    assert telegram.shown(ANN) == []
