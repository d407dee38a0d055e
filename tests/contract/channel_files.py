"""Channel contract for files: attachments of people, and results of calls."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from gateway.domain.messages import Attachment
from gateway.domain.tools import Artifact
from gateway.errors import FetchFailed, SendFailed, SendOutcome
from tests.contract.channel_rig import Can, Rig, Who, has_files, met, needs, no_progress, showing

CONTENT = "\n".join(f"Line {n:05} ☂" for n in range(500)).encode()
"""More than one piece of any platform's that reads in small ones."""
CAPTION = "browser open: https://example.org/"
HOSTILE = "browser open: @everyone <!channel> [you won](javascript:alert(1)) <b>bold</b> /stop"
REPORT = Artifact(file="t1-1-1.txt", name="report.txt", media_type="text/plain")


class _Full(Exception):
    """A reader without room for the chunks."""


class FileContract:
    """The files of `ChannelContract`, which has the rig."""

    rig_class: ClassVar[type[Rig]]

    def test_files_are_part_of_this_suite(self) -> None:
        """A rig whose files nobody wrote yet fails here, never in silence."""
        there = has_files(self.rig_class) or Can.FILES in self.rig_class.cannot
        assert there, f"{self.rig_class.__name__} must set `files = True` and bring what that needs"

    # --- that people send ---------------------------------------------------------------------

    @needs(Can.FILES)
    async def test_file_of_a_message_can_be_read_whole_and_again(self, rig: Rig) -> None:
        where = rig.direct(Who.ANN)
        file = await _sent(rig, "look at this", "notes.txt")
        assert rig.received()[0].message.text == "look at this"
        assert file.name == "notes.txt"
        for _ in range(2):
            pieces: list[bytes] = []
            await rig.channel.fetch(where, file, pieces.append)
            assert b"".join(pieces) == CONTENT

    @needs(Can.FILES)
    async def test_a_file_without_words_is_a_message_too(self, rig: Rig) -> None:
        file = await _sent(rig, "", "notes.txt")
        (received,) = rig.received()
        assert (received.message.text, received.message.attachments) == ("", (file,))
        await rig.until(lambda: len(rig.asked()) == 1)

    @needs(Can.FILES)
    async def test_error_of_the_files_reader_ends_the_fetch(self, rig: Rig) -> None:
        """Nothing of it is taken for the platform's failure."""
        file = await _sent(rig, "look", "notes.txt")

        def full(data: bytes) -> None:
            raise _Full

        with pytest.raises(_Full):
            await rig.channel.fetch(rig.direct(Who.ANN), file, full)

    @needs(Can.FILES)
    async def test_a_file_that_is_gone_is_not_asked_for_again(self, rig: Rig) -> None:
        file = await _sent(rig, "look", "notes.txt")
        rig.forget_files()
        with pytest.raises(FetchFailed) as failed:
            await rig.channel.fetch(rig.direct(Who.ANN), file, _nowhere)
        assert not failed.value.retryable
        assert failed.value.message

    @needs(Can.FILES, Can.ALONE)
    async def test_a_platform_out_of_reach_may_be_asked_again(self, rig: Rig) -> None:
        where = rig.direct(Who.ANN)
        file = await _sent(rig, "look", "notes.txt")
        async with rig.unreachable():
            with pytest.raises(FetchFailed) as failed:
                await rig.channel.fetch(where, file, _nowhere)
            assert failed.value.retryable
        pieces: list[bytes] = []
        await rig.channel.fetch(where, file, pieces.append)
        assert b"".join(pieces) == CONTENT

    # --- that came of calls -------------------------------------------------------------------

    @needs(Can.FILES, Can.SENDS)
    async def test_a_file_is_shown_with_its_caption(self, rig: Rig, tmp_path: Path) -> None:
        where = await met(rig)
        assert await rig.channel.show(showing(where, CAPTION, file=REPORT, path=_kept(tmp_path)), no_progress)
        text = "\n".join(one.text for one in rig.shown(where))
        assert CAPTION in text
        assert [one.file.strip() for one in rig.shown(where) if one.file] == [CONTENT.decode()]

    @needs(Can.FILES, Can.SENDS)
    async def test_caption_alone_is_shown_for_a_missing_file(self, rig: Rig) -> None:
        where = await met(rig)
        await rig.channel.show(showing(where, CAPTION, file=REPORT), no_progress)
        seen = rig.shown(where)
        assert CAPTION in "\n".join(one.text for one in seen)
        assert not any(one.file for one in seen)

    @needs(Can.FILES, Can.SENDS)
    async def test_a_caption_pings_nobody_and_runs_nothing(self, rig: Rig, tmp_path: Path) -> None:
        """I48: what a call was asked for is a model's, or a stranger's, to choose."""
        where = await met(rig)
        await rig.channel.show(showing(where, HOSTILE, file=REPORT, path=_kept(tmp_path)), no_progress)
        seen = rig.shown(where)
        assert "you won" in "\n".join(one.text for one in seen)
        assert [one.active for one in seen if one.active] == []

    @needs(Can.FILES, Can.SENDS)
    async def test_uncertain_file_is_marked_as_repeated(self, rig: Rig, tmp_path: Path) -> None:
        where, path = await met(rig), _kept(tmp_path)
        async with rig.failing(rig.lost):
            with pytest.raises(SendFailed) as failed:
                await rig.channel.show(showing(where, CAPTION, file=REPORT, path=path), no_progress)
        assert (failed.value.outcome, failed.value.creating) == (SendOutcome.UNCERTAIN, True)
        await rig.channel.show(showing(where, CAPTION, uncertain=True, file=REPORT, path=path), no_progress)
        seen = rig.shown(where)
        marked = [one for one in seen if "re-sent" in one.text]
        assert rig.can_be_asked or marked
        assert any(one.file for one in seen)


# --- helpers ------------------------------------------------------------------------------------


async def _sent(rig: Rig, text: str, name: str) -> Attachment:
    """Send a file as a person; return the channel's attachment."""
    event = await rig.say_with(Who.ANN, text, rig.direct(Who.ANN), name, CONTENT)
    await rig.settled(event)
    (received,) = rig.received()
    (file,) = received.message.attachments
    assert received.message.unread == ""
    return file


def _kept(folder: Path) -> Path:
    path = folder / REPORT.file
    path.write_bytes(CONTENT)
    return path


def _nowhere(data: bytes) -> None:
    """Discard the bytes."""
