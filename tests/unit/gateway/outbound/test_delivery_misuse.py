"""Channels that do not keep to the interface: their slot is given up, and the channel's author learns why."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from gateway.domain.slots import RenderedSlot, SlotState
from gateway.ports import Progress
from tests.support.engine import Engine
from tests.support.fakes import FakeChannel
from tests.support.sending import delivered, now, slot


class TextChannel(FakeChannel):
    """Name messages by a text, as interface 1 did."""

    async def show(self, showing: RenderedSlot, progress: Progress) -> tuple[str, ...]:
        text = cast("Any", "m42")
        if "\n" in showing.text:
            await progress(text)
            return ("m42", "m43")
        return text


@pytest.mark.parametrize("text", ["one", "one\ntwo"], ids=["returned", "progress"])
async def test_a_text_in_place_of_message_ids_is_refused(tmp_path: Path, text: str) -> None:
    engine = Engine(tmp_path, [])
    id = await slot(engine, text)
    await delivered(engine, TextChannel())

    assert (now(engine, id).state, now(engine, id).message_ids) == (SlotState.DEAD, ())
    assert "tuple of message ids" in engine.store.slots[id].why_dead


class CommaChannel(FakeChannel):
    """Name a message by an id that the store cannot keep apart from two."""

    async def show(self, showing: RenderedSlot, progress: Progress) -> tuple[str, ...]:
        return ("m42,m43" if showing.text == "comma" else "",)


@pytest.mark.parametrize("text", ["comma", "empty"])
async def test_an_id_that_is_empty_or_has_a_comma_is_refused(tmp_path: Path, text: str) -> None:
    engine = Engine(tmp_path, [])
    id = await slot(engine, text)
    await delivered(engine, CommaChannel())

    assert (now(engine, id).state, now(engine, id).message_ids) == (SlotState.DEAD, ())
    assert "without commas" in engine.store.slots[id].why_dead
