"""Limit of open approvals for one person in a session, as the person and the model learn it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain.slots import SlotKind
from gateway.domain.tools import ResultStatus, Risk
from tests.support.engine import Engine
from tests.support.fakes import GROUP, FakeTool, ToolBox, calls
from tests.support.makers import ANN, BOB

DENIED = ResultStatus.DENIED


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path, ToolBox().all)


async def test_calls_beyond_the_limit_are_refused_in_a_group(engine: Engine) -> None:
    await engine.store.saw_page(ANN)
    lease = await engine.planned(*[f"write:{n}" for n in range(5)], who=BOB, where=GROUP)

    assert not await engine.settle(lease)
    assert await engine.results(lease.turn) == [None] * 3 + [DENIED] * 2
    refused = await engine.result(lease.turn, 4)
    assert refused.code == "too_many_open"
    assert refused.hint == (
        "Not asked, and nothing was run: 3 calls of yours wait for a decision in this session, and no more may. "
        "Ask again when one of them is decided, or withdraw them with /stop."
    )


async def test_the_note_names_only_what_was_asked(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [FakeTool(name=f"write{n}", risk=Risk.WRITE) for n in range(5)])
    await engine.store.saw_page(ANN)
    lease = await engine.planned(*[f"write{n}:x" for n in range(5)], who=BOB, where=GROUP)
    await engine.settle(lease)
    (note,) = [slot.text for slot in await engine.slots(session=lease.session) if slot.kind is SlotKind.NOTE]

    assert [f"write{n}" in note for n in range(5)] == [True] * 3 + [False] * 2


async def test_commands_share_the_limit_of_their_session(engine: Engine) -> None:
    await engine.store.saw_page(ANN)
    codes: list[str] = []
    for n in range(5):
        turn = await engine.say(f"/write {n}", who=BOB, where=GROUP)
        lease = await engine.claim()
        await engine.store.plan(lease, calls(f"write:{n}"), given=[], slots=[])
        ended = await engine.settle(lease)
        codes.append((await engine.result(turn, 1)).code if ended else "")
        assert ended or await engine.store.park(lease)

    assert codes == ["", "", "", "too_many_open", "too_many_open"]
    assert len(await engine.store.open_approvals()) == 3


async def test_an_own_session_has_no_limit(engine: Engine) -> None:
    lease = await engine.planned(*[f"write:{n}" for n in range(9)])

    assert not await engine.settle(lease)
    assert await engine.results(lease.turn) == [None] * 9
    cards = [slot for slot in await engine.slots() if slot.kind is SlotKind.CARD]
    assert [len(slot.waits) for slot in cards] == [8, 1]
