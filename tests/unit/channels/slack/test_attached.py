"""Attachment metadata: fetchable files, and phrases for the others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.slack.attached import FETCHED_AT_MOST, NAME_AT_MOST, UNNAMED, attached
from channels.slack.fields import SlackFields
from channels.slack.inbound import DELETED
from gateway.domain.messages import Attachment, Inbound
from tests.unit.channels.slack.test_inbound import ME, MEMBER, NOW, event, read, refused, said

FILE: dict[str, Any] = {
    "id": "F0NOTES",
    "name": "notes.txt",
    "mimetype": "text/plain",
    "size": 12,
    "mode": "hosted",
    "url_private": "https://files.slack.com/files-pri/T0HOME-F0NOTES/notes.txt",
    "file_access": "visible",
}
NOTES = Attachment(source="F0NOTES", name="notes.txt", media_type="text/plain", size=12)


def sent(*files: object) -> tuple[tuple[Attachment, ...], str]:
    return attached(SlackFields({"files": list(files)}))


def test_a_file_of_a_message_can_be_asked_for_by_its_id() -> None:
    assert sent(FILE) == ((NOTES,), "")
    assert attached(SlackFields({})) == ((), "")


@pytest.mark.parametrize(
    ("fields", "text", "spoken"),
    [
        ({"mimetype": "audio/webm", "subtype": "slack_audio", "duration_ms": 7_400}, "look", True),
        ({"mimetype": "audio/mpeg", "duration_ms": 7_400}, " ", True),
        ({"mimetype": "audio/mpeg", "duration_ms": 7_400}, "look", False),
        ({"mimetype": "video/mp4", "duration_ms": 7_400}, "", False),
    ],
)
def test_a_recording_of_the_persons_own_is_speech(fields: dict[str, Any], text: str, spoken: bool) -> None:
    (file,), _ = attached(SlackFields({"files": [{**FILE, **fields}], "text": text}))
    assert (file.spoken, file.seconds) == (spoken, 7)


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"subtype": "file_share"}, ""),
        ({"subtype": "file_share", "thread_ts": "1795248000.000100"}, "1795248000.000100"),
        ({"type": "app_mention", "channel": "C0X", "channel_type": "channel"}, "1795248720.000100"),
    ],
)
def test_attachments_come_directly_in_threads_and_with_mentions(fields: dict[str, Any], place: str) -> None:
    found = said(**fields, text="<@U0DRAGO> read this", files=[FILE])
    assert (found.attachments, found.unread, found.text) == ((NOTES,), "", "read this")
    assert (found.conversation.thread, found.addressed) == (place, True)


def test_overheard_message_keeps_its_attachments() -> None:
    found = said(subtype="file_share", channel="C0X", channel_type="channel", text="look", files=[FILE])
    assert (found.addressed, found.attachments) == (False, (NOTES,))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"mode": "hidden_by_limit"}, "a file that Slack hides because the workspace is over the limits of its plan"),
        ({"mode": "tombstone"}, "a file that was deleted"),
        ({"mode": "external"}, "a file that is kept outside of Slack"),
        ({"is_external": True}, "a file that is kept outside of Slack"),
        ({"file_access": "access_denied"}, "a file that Slack does not show to apps"),
        ({"file_access": "file_not_found"}, "a file that was deleted"),
        ({"id": None}, "a file"),
        ({"id": "../../etc/passwd", "mimetype": "image/png"}, "a picture"),
        ({"id": ["F0NOTES"], "mimetype": "audio/webm"}, "an audio file"),
    ],
)
def test_unavailable_file_is_named(fields: dict[str, Any], told: str) -> None:
    assert sent({**FILE, **fields}) == ((), told)
    assert sent(FILE, {**FILE, **fields}) == ((NOTES,), told)


def test_details_of_a_foreign_workspaces_file_are_fetched_later() -> None:
    assert sent({"id": "F0CONNECT", "file_access": "check_file_info"}) == (
        (Attachment(source="F0CONNECT", name=UNNAMED, media_type="", size=0),),
        "",
    )


@pytest.mark.parametrize("url", ["url_private", "url_private_download"])
def test_file_url_in_a_message_is_ignored(url: str) -> None:
    assert sent({**FILE, url: "https://evil.example/x"}) == ((NOTES,), "")
    assert sent({**FILE, url: None}) == ((NOTES,), "")


@pytest.mark.parametrize(("more", "told"), [(0, ""), (1, "1 more file"), (5, "5 more files")])
def test_ten_are_taken_and_the_others_counted(more: int, told: str) -> None:
    files, unread = sent(*[{**FILE, "id": f"F{n}"} for n in range(10, 10 + FETCHED_AT_MOST + more)])
    assert [file.source for file in files] == [f"F{n}" for n in range(10, 20)]
    assert unread == told


def test_each_kind_of_trouble_is_reported_once() -> None:
    gone: dict[str, Any] = {**FILE, "mode": "tombstone"}
    assert sent(gone, {**FILE, "mode": "external"}, gone)[1] == (
        "2 times a file that was deleted and a file that is kept outside of Slack"
    )


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("two\nlines\r\n\x00.txt", "two lines .txt"),
        ("   ", UNNAMED),
        ("x" * 1_000_000, "x" * NAME_AT_MOST),
    ],
)
def test_a_name_is_one_short_line_that_can_be_seen(name: object, shown: str) -> None:
    ((file,), unread) = sent({**FILE, "name": name, "title": None})
    assert (file.name, unread) == (shown, "")


def test_a_size_that_is_none_counts_as_not_told() -> None:
    assert sent({**FILE, "size": "12"})[0][0].size == 0


@pytest.mark.parametrize("files", [7, "F0NOTES", {"id": "F0NOTES"}, [7], [None], [FILE] * 101])
def test_malformed_list_of_files_is_refused_with_the_field(files: object) -> None:
    assert refused(event(subtype="file_share", files=files)).detail.startswith("event.files: ")


def test_deleted_message_brings_no_attachments() -> None:
    before = {"type": "message", "user": "U0BOB", "text": "", "ts": "1795248720.000100", "files": [FILE]}
    payload = event(subtype="message_deleted", deleted_ts="1795248720.000100", previous_message=before)
    found = read(payload, ME, NOW, MEMBER)
    assert isinstance(found, Inbound)
    assert (found.text, found.attachments, found.unread) == (DELETED, (), "")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=9), lambda inner: st.lists(inner)))
def test_malformed_file_is_an_attachment_or_a_note(value: object) -> None:
    for field in FILE:
        files, unread = sent({**FILE, field: value})
        assert len(files) + bool(unread) == 1
        assert all(0 < len(file.name) <= NAME_AT_MOST for file in files)
