"""Limit of open approvals for one person in a session, as the person and the model learn it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.ids import SessionId
from gateway.domain.routes import WhileRunning
from gateway.domain.slots import SlotKind
from gateway.domain.tools import ResultStatus, Risk
from gateway.domain.turns import Lease, TurnKind
from gateway.policy.open_approvals import EXAMINED, room_to_ask
from tests.support.engine import Engine
from tests.support.fakes import GROUP, FakeTool, ToolBox, calls
from tests.support.makers import ANN, BOB, inbound, route

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


async def ask_in_sessions(engine: Engine, sessions: int, each: int) -> list[Lease]:
    """Plan calls of one guest in so many sessions."""
    await engine.store.saw_page(ANN)
    leases: list[Lease] = []
    for n in range(sessions):
        message = inbound(who=BOB, where=replace(GROUP, thread=str(n)), direct=False)
        to = route(SessionId(f"chat:telegram/default/-1003#{n}"))
        await engine.store.accept(to, message, TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
        leases.append(await engine.claim())
        await engine.store.plan(leases[-1], calls(*["write:x"] * each), given=[], slots=[])
    return leases


async def test_new_sessions_do_not_raise_the_limit(engine: Engine) -> None:
    leases = await ask_in_sessions(engine, 5, 2)
    ended = [await engine.settle(lease) for lease in leases]

    assert ended == [False] * 3 + [True] * 2
    assert len(await engine.store.open_approvals()) == 6
    refused = await engine.result(leases[-1].turn, 2)
    assert (refused.code, refused.hint) == (
        "too_many_open",
        "Not asked, and nothing was run: 6 calls of yours wait for a decision in all sessions, and no more may. "
        "Ask again when one of them is decided, or withdraw them with /stop.",
    )


async def test_concurrent_turns_share_the_limit(engine: Engine) -> None:
    leases = await ask_in_sessions(engine, 5, 3)
    await asyncio.gather(*(engine.settle(lease) for lease in leases))

    assert len(await engine.store.open_approvals()) == 6


async def test_more_approvals_than_are_read_leave_no_room(engine: Engine) -> None:
    await engine.settle(await engine.planned("write:x"))
    (wait,) = await engine.store.open_approvals()

    rooms = [room_to_ask([wait] * n, SessionId("chat:1"), BOB, 3)[0] for n in (EXAMINED - 1, EXAMINED)]
    assert rooms == [3, 0]


async def test_an_own_session_has_no_limit(engine: Engine) -> None:
    lease = await engine.planned(*[f"write:{n}" for n in range(9)])

    assert not await engine.settle(lease)
    assert await engine.results(lease.turn) == [None] * 9
    cards = [slot for slot in await engine.slots() if slot.kind is SlotKind.CARD]
    assert [len(slot.waits) for slot in cards] == [8, 1]
