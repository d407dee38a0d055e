"""Attachment metadata: fetchable files, and phrases for the others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.telegram.attached import NAME_AT_MOST, attached
from channels.telegram.fields import TelegramFields
from channels.telegram.inbound import BotIdentity, read
from channels.telegram.limits import DOWNLOAD_BYTES
from gateway.domain.messages import Attachment, Inbound
from tests.unit.channels.telegram.test_inbound import GROUP, NOW, message, said

FILE: dict[str, Any] = {"file_id": "AgAC-1", "file_unique_id": "u1", "file_size": 1_000}
PDF: dict[str, Any] = {**FILE, "file_name": "report.pdf", "mime_type": "application/pdf"}
REPORT = Attachment(source="AgAC-1", name="report.pdf", media_type="application/pdf", size=1_000)
PUBLIC = BotIdentity(id=99, username="dragoman_bot", account="main", files_at_most=DOWNLOAD_BYTES)


def sized(file: str, width: int, height: int) -> dict[str, Any]:
    return {**FILE, "file_id": file, "width": width, "height": height}


def public(**fields: Any) -> Inbound:
    """As Telegram's own Bot API tells it."""
    found = read(message(**fields), PUBLIC, NOW)
    assert isinstance(found, Inbound), found
    return found


@pytest.mark.parametrize(
    ("field", "told", "name", "media_type"),
    [
        ("photo", [sized("AgAC-1", 90, 90)], "photo.jpg", "image/jpeg"),
        ("document", FILE, "file", ""),
        ("document", PDF, "report.pdf", "application/pdf"),
        ("video", {**FILE, "mime_type": "video/quicktime"}, "video.mp4", "video/quicktime"),
        ("audio", {**FILE, "mime_type": "audio/mpeg", "file_name": "song.mp3"}, "song.mp3", "audio/mpeg"),
        ("voice", FILE, "voice-message.ogg", "audio/ogg"),
        ("video_note", FILE, "video-message.mp4", "video/mp4"),
        ("animation", FILE, "animation.mp4", "video/mp4"),
        ("sticker", {**FILE, "is_animated": False, "is_video": False}, "sticker.webp", "image/webp"),
    ],
)
def test_every_kind_of_file_can_be_fetched(field: str, told: object, name: str, media_type: str) -> None:
    found = public(text=None, caption="look", **{field: told})
    assert (found.text, found.unread) == ("look", "")
    spoken = field in ("voice", "video_note")
    assert found.attachments == (
        Attachment(source="AgAC-1", name=name, media_type=media_type, size=1_000, spoken=spoken),
    )


@pytest.mark.parametrize(
    ("fields", "spoken"),
    [
        ({"voice": {**FILE, "duration": 7}}, True),
        ({"video_note": {**FILE, "duration": 7}}, True),
        ({"audio": {**FILE, "duration": 7}}, True),
        ({"audio": {**FILE, "duration": 7}, "caption": "a song"}, False),
        ({"video": {**FILE, "duration": 7}}, False),
        ({"voice": {**FILE, "duration": 7}, "forward_date": 1}, False),
    ],
)
def test_a_recording_of_the_persons_own_is_speech(fields: dict[str, Any], spoken: bool) -> None:
    (file,) = said(text=None, **fields).attachments
    assert (file.spoken, file.seconds) == (spoken, 7)


def test_largest_size_of_a_photo_is_taken() -> None:
    sizes = [sized("s", 90, 67), sized("l", 1280, 960), sized("m", 320, 240)]
    assert [file.source for file in said(text=None, photo=sizes).attachments] == ["l"]


def test_an_animation_is_one_file_though_it_is_told_twice() -> None:
    assert len(said(text=None, animation=FILE, document=PDF).attachments) == 1


def test_messages_of_an_album_have_its_id_and_their_own_keys() -> None:
    one, two = (said(text=None, document=PDF, media_group_id="5", message_id=number) for number in (7, 8))
    other = said(text=None, document=PDF, media_group_id="6")
    assert one.event_key != two.event_key
    assert one.attachments == two.attachments == (REPORT,)
    assert (one.album, two.album, other.album) == ("a1001.5", "a1001.5", "a1001.6")
    assert said(text=None, document=PDF).album == ""


def test_talk_beside_the_bot_keeps_its_file() -> None:
    found = said(text=None, document=PDF, caption="look", chat=GROUP)
    assert (found.addressed, found.attachments, found.text) == (False, (REPORT,), "look")
    assert said(text=None, document=PDF, chat=GROUP).addressed is False


def test_a_new_caption_comes_with_the_file() -> None:
    sent = message(text=None, document=PDF, caption="read this", edit_date=int(NOW.timestamp()))
    update = {"update_id": sent["update_id"], "edited_message": sent["message"]}
    found = read(update, PUBLIC, NOW)
    assert isinstance(found, Inbound)
    assert (found.text, found.attachments, found.edits) == ("read this", (REPORT,), "m1001.7")


# --- what cannot be fetched -----------------------------------------------------------------------


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_file_above_the_download_limit_is_named(over: int) -> None:
    told = {**PDF, "file_size": DOWNLOAD_BYTES + over}
    found = public(text=None, caption="read this", document=told)
    assert (bool(found.attachments), found.unread) == (over <= 0, "" if over <= 0 else "a file of more than 20 MB")
    assert said(text=None, document=told).attachments[0].size == DOWNLOAD_BYTES + over, "a server of one's own"


def test_album_above_the_limit_has_one_reply() -> None:
    large = {**FILE, "file_size": 30_000_000}
    one, two = (public(text=None, video=large, media_group_id="5", message_id=number) for number in (7, 8))
    assert one.event_key == two.event_key
    assert (one.unread, one.attachments) == ("a video of more than 20 MB", ())


@pytest.mark.parametrize("moves", ["is_animated", "is_video"])
def test_a_sticker_that_moves_is_no_picture(moves: str) -> None:
    found = said(text=None, sticker={**FILE, moves: True})
    assert (found.attachments, found.unread) == ((), "a sticker")


WRONG: list[tuple[str, object, str]] = [
    ("document", {}, "a file"),
    ("document", 7, "a file"),
    ("document", [FILE], "a file"),
    ("document", {**FILE, "file_id": None}, "a file"),
    ("document", {**FILE, "file_id": 7}, "a file"),
    ("document", {**FILE, "file_id": ""}, "a file"),
    ("document", {**FILE, "file_id": "x" * 1_000_000}, "a file"),
    ("photo", [], "a photo"),
    ("photo", [{}], "a photo"),
    ("photo", {"0": FILE}, "a photo"),
    ("photo", [7], "a photo"),
    ("photo", [FILE] * 1_000, "a photo"),
    ("sticker", {**FILE, "is_video": "yes"}, "a sticker"),
]


@pytest.mark.parametrize(("field", "told", "name"), WRONG)
def test_malformed_file_is_named_and_the_message_kept(field: str, told: object, name: str) -> None:
    found = said(text=None, caption="look", **{field: told})
    assert (found.text, found.attachments, found.unread) == ("look", (), name)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("two\nlines\r\n\x00.txt", "two lines .txt"),
        ("   ", "file"),
        ("x" * 1_000_000, "x" * NAME_AT_MOST),
    ],
)
def test_a_name_is_one_short_line_that_can_be_seen(name: object, shown: str) -> None:
    assert said(text=None, document={**PDF, "file_name": name}).attachments[0].name == shown


def test_a_size_that_is_none_counts_as_not_told() -> None:
    assert public(text=None, document={**PDF, "file_size": "12"}).attachments[0].size == 0


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=9), lambda inner: st.lists(inner)))
def test_malformed_file_is_an_attachment_or_nothing(value: object) -> None:
    for field in PDF:
        files, _ = attached(TelegramFields({"document": {**PDF, field: value}}), DOWNLOAD_BYTES)
        assert all(0 < len(file.name) <= NAME_AT_MOST and file.source for file in files)
