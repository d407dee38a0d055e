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

NO_TUPLE, NO_ID = "tuple of message ids", "no text, is empty or has a comma"
RETURNED: dict[str, tuple[object, str]] = {
    "text": ("m42", NO_TUPLE),
    "number": (42, NO_TUPLE),
    "nothing": (None, NO_TUPLE),
    "comma": (("m42,m43",), NO_ID),
    "empty id": (("",), NO_ID),
    "id that is a number": ((42,), NO_ID),
}
"""Returned values in place of message ids, and words of what the author of the channel reads."""


class MisusingChannel(FakeChannel):
    """Return what the slot's text names; tell it as progress first, where that has a second line."""

    async def show(self, showing: RenderedSlot, progress: Progress) -> tuple[str, ...]:
        name, _, as_progress = showing.text.partition("\n")
        returned = cast("Any", RETURNED[name][0])
        if as_progress:
            await progress(returned)
            return ("m42", "m43")
        return returned


@pytest.mark.parametrize("progress", ["", "\nprogress"], ids=["returned", "progress"])
@pytest.mark.parametrize("name", RETURNED)
async def test_misused_message_ids_are_refused(tmp_path: Path, name: str, progress: str) -> None:
    engine = Engine(tmp_path, [])
    id = await slot(engine, f"{name}{progress}")
    await delivered(engine, MisusingChannel())

    assert (now(engine, id).state, now(engine, id).message_ids) == (SlotState.DEAD, ())
    assert RETURNED[name][1] in engine.store.slots[id].why_dead
