"""Albums on Telegram: each picture is an update of its own, and all of them are one message, also through a crash."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.messages import Received
from gateway.domain.turns import Turn, TurnState
from tests.fault.rig import everything
from tests.fault.telegram_rig import ANN, Wire, wire
from tests.support.telegram import FakeTelegram, Shown

GROUP = -1_003
NO_LIMITS = "per_chat_per_s = 0\nper_group_per_min = 0\noverall_per_s = 0"
PNG = b"\x89PNG\r\n\x1a\n"
SENT = tuple(PNG + bytes([n]) * 40 for n in range(4))
MODES = pytest.mark.parametrize("mode", ["polling", "webhook"])


def send(telegram: FakeTelegram, captions: Sequence[str], *, first: int = 0, chat: int | None = None) -> list[Shown]:
    """Send pictures of one album, from the picture `first` on."""
    return [
        telegram.attach(ANN, "photo", SENT[n], caption=caption, chat=chat, media_group_id="13579")
        for n, caption in enumerate(captions, first)
    ]


def asked(one: Wire) -> list[tuple[str, list[bytes]]]:
    """The last person's message of each question: its words, without what is told of its files, and its pictures."""
    return [_said(request.body["messages"]) for request in one.model.requests]


def _said(messages: Sequence[dict[str, Any]]) -> tuple[str, list[bytes]]:
    content: Any = [each["content"] for each in messages if each["role"] == "user"][-1]
    parts: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    words = "\n".join(part["text"] for part in parts if part["type"] == "text")
    return words, [base64.b64decode(url.partition(";base64,")[2]) for url in urls]


def kept(one: Wire) -> list[bytes]:
    """All files of all workspaces."""
    return sorted(path.read_bytes() for path in (one.daemon.state / "workspaces").glob("*/inbox/*"))


async def began(one: Wire) -> None:
    """Start, and let the webhook be set."""
    await one.start()
    await one.telegram.until(lambda: bool(one.telegram.calls("getUpdates") or one.telegram.calls("setWebhook")))


@pytest.mark.sampled(1)
@MODES
async def test_an_album_is_one_message(tmp_path: Path, mode: str) -> None:
    """One question with all pictures and captions in order, one answer."""
    async with wire(tmp_path, mode=mode, limits=NO_LIMITS) as one:
        await began(one)
        send(one.telegram, ["what are these?", "", "and this?", ""])
        await one.settled()
        ((words, pictures),) = asked(one)
        assert "what are these?\n\nand this?" in words
        assert pictures == [*SENT]
        assert len(one.telegram.shown(ANN)) == 1


@pytest.mark.sampled(1)
@MODES
@pytest.mark.whole("an album that a crash cuts stays")
async def test_an_album_in_two_polls_is_one_message(tmp_path: Path, mode: str) -> None:
    """Each picture is taken and confirmed as it comes; the turn waits."""
    async with wire(tmp_path, mode=mode, limits=NO_LIMITS) as one:
        await began(one)
        send(one.telegram, ["", ""])
        await one.telegram.until(lambda: not one.telegram.updates.pending())
        await asyncio.sleep(0.4)
        assert not one.model.requests
        send(one.telegram, ["", "what are these?"], first=2)
        await one.settled()
        ((words, pictures),) = asked(one)
        assert ("what are these?" in words, pictures) == (True, [*SENT])


@pytest.mark.sampled(1)
@MODES
@pytest.mark.whole("an album that is one message, and the store's own test of a late picture, stay")
async def test_a_late_picture_is_a_message_of_its_own(tmp_path: Path, mode: str) -> None:
    """It is never lost."""
    async with wire(tmp_path, mode=mode, limits=NO_LIMITS) as one:
        await began(one)
        send(one.telegram, ["what are these?", ""])
        await one.settled()
        send(one.telegram, ["and this?"], first=2)
        await one.settled()
        first, second = asked(one)
        assert ("what are these?" in first[0], first[1]) == (True, [*SENT[:2]])
        assert ("and this?" in second[0], second[1][-1:]) == (True, [SENT[2]])
        assert len(one.telegram.shown(ANN)) == 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("point", ["J1:kill:3", "J2:kill:2"])
@MODES
async def test_an_album_that_a_crash_cuts_is_whole(tmp_path: Path, mode: str, point: str) -> None:
    """Telegram tells again what was not confirmed; nothing is doubled, nothing is lost."""
    async with wire(tmp_path, mode=mode, limits=NO_LIMITS) as one:
        await one.start(point)
        send(one.telegram, ["what are these?", "", "", ""])
        await one.killed()
        await one.start()
        await one.settled()
        assert await one.daemon.stop() == 0
        rows = (await everything(one.daemon.state))["main:ann"]
        came = [row for row in rows if isinstance(row, Received)]
        turns = {row.id: row.state for row in rows if isinstance(row, Turn)}
        assert [row.message.event_key for row in came] == [f"m{ANN}.{n}" for n in range(1, 5)]
        assert kept(one) == [*SENT]
        assert {picture for _, pictures in asked(one) for picture in pictures} == {*SENT}
        assert {*turns.values()} == {TurnState.DONE}
        assert {row.turn for row in came} == {*turns}


async def test_an_album_in_a_group_is_one_message(tmp_path: Path) -> None:
    """Its mention stands below the last picture but one; the others are for the bot too."""
    async with wire(tmp_path, limits=NO_LIMITS, chats=[GROUP]) as one:
        await began(one)
        one.telegram.supergroup(chat=GROUP)
        send(one.telegram, ["", "", "@dragoman_test_bot what are these?", ""], chat=GROUP)
        await one.settled()
        ((words, pictures),) = asked(one)
        assert ("what are these?" in words, pictures) == (True, [*SENT])
        assert len(one.telegram.shown(GROUP)) == 1
