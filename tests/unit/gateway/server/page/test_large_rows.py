from __future__ import annotations

import json
from pathlib import Path

from gateway.domain.ids import main_session
from gateway.domain.slots import NewSlot, SlotKind
from gateway.server.page.outbound import FRAME_BYTES, FRAMES_AT_MOST
from tests.support.engine import Engine, served
from tests.support.fakes import ANN_PAGE
from tests.support.makers import ANN
from tests.support.stored import add_slot
from tests.unit.gateway.server.page.test_adapter import opened


async def test_session_of_large_rows_is_loaded_in_small_frames(tmp_path: Path) -> None:
    """200 calls with long arguments were one frame of 76 MB, which stopped everything for two seconds."""
    main = main_session(ANN)
    async with served(Engine(tmp_path)) as page, opened(page) as socket:
        await page.engine.say("Show it all.", where=ANN_PAGE)
        for n in range(30):
            slot = NewSlot(conversation=ANN_PAGE, kind=SlotKind.ANSWER, text=f"{n} " + "é" * 50_000)
            add_slot(page.engine.store, slot, main, None)
        await socket.send({"op": "open", "session": main})
        frames = [await socket.op("rows") for _ in range(FRAMES_AT_MOST)]
        assert [frame["older"] for frame in frames] == [False, True, True, True]
        await socket.send({"op": "open", "session": main, "after": 0})
        changes = [await socket.op("rows") for _ in range(8)]
        while frames[-1]["more"]:
            before = min(row["ord"] for frame in frames for row in frame["rows"])
            await socket.send({"op": "older", "session": main, "before": before})
            frames.append(await socket.until(lambda frame: frame["op"] == "rows" and frame["older"]))

    assert max(len(json.dumps(frame)) for frame in [*frames, *changes]) < 1.4 * FRAME_BYTES
    for found in (frames, changes):
        assert len({row["id"] for frame in found for row in frame["rows"]}) == 32  # the message and its turn too
    assert changes[-1]["rev"] == frames[0]["rev"] == max(row["rev"] for row in changes[-1]["rows"])
