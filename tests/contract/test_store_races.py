"""Concurrent transitions on one store: exactly one wins."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from typing import TypeVar

import pytest

from gateway.domain.ids import NodeId, Principal
from gateway.domain.messages import Received
from gateway.domain.routes import WhileRunning
from gateway.domain.slots import SlotKind
from gateway.domain.turns import Lease, TurnKind, TurnState
from gateway.domain.waits import PressResult, StartOutcome, WaitState
from gateway.errors import LeaseLost
from tests.contract.scene import NODE, Asked, Scene
from tests.support.makers import approve, chat, control, deny, inbound, press, result, route
from tests.support.patience import PATIENCE_S
from tests.support.proof import times

PRESSES = 1_000
R = TypeVar("R")


async def _at_once(doings: Iterable[Awaitable[R]]) -> list[R]:
    async def one(doing: Awaitable[R]) -> R:
        return await doing

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(doing), name="racer") for doing in doings]
    return [task.result() for task in tasks]


async def test_thousand_presses_have_one_winner(scene: Scene) -> None:
    """Approve and deny at once, by a thousand people: one decides, all others are told that it is decided."""
    asked = await scene.parked()
    people = [Principal(f"telegram:{n}") for n in range(PRESSES)]
    verdicts = [approve(), deny(withdraw_siblings=True)]
    pressed = await _at_once(
        scene.store.press(press(who=who), asked.wait, verdicts[n % 2]) for n, who in enumerate(people)
    )
    tally = Counter(one.result for one in pressed)
    won = [one for one in pressed if one.result in (PressResult.APPROVED, PressResult.DENIED)]
    assert len(won) == 1
    assert tally[PressResult.ALREADY] == PRESSES - 1
    wait = await scene.wait(asked.wait)
    assert wait == won[0].wait
    assert (await scene.slot_of(asked.turn, SlotKind.CARD)).version == 2


async def test_one_event_delivered_a_thousand_times_decides_once(scene: Scene) -> None:
    """The platform's own repetition."""
    asked = await scene.parked()
    one = press()
    pressed = await _at_once(scene.store.press(one, asked.wait, approve()) for _ in range(PRESSES))
    assert Counter(p.result for p in pressed) == {PressResult.APPROVED: 1, PressResult.DUPLICATE: PRESSES - 1}


@pytest.mark.parametrize("against", ["deny", "expire", "stop", "restart"])
async def test_an_approval_is_executed_at_most_once(scene: Scene, against: str) -> None:
    """A thousand approvals, a hundred starts and one thing that ends it, all at once: at most one start."""
    asked = await scene.asked(ttl_s=60)
    if against == "expire":
        scene.clock.advance(60)
    doings = [_press(scene, asked) for _ in range(PRESSES // 2)]
    doings += [_start(scene, asked.lease, asked) for _ in range(50)]
    doings.append(_end(scene, asked, against))
    doings += [_press(scene, asked) for _ in range(PRESSES // 2)]
    doings += [_start(scene, asked.lease, asked) for _ in range(50)]
    starts = (await _at_once(doings)).count(StartOutcome.STARTED)
    state = await scene.wait_state(asked.wait)
    assert starts == (1 if state is WaitState.CONSUMED else 0)
    if against == "expire":
        assert (starts, state) == (0, WaitState.EXPIRED)
    # Whatever is left of it, the next runner gets at most the one start that is still owed.
    for one in await scene.store.claim(NODE):
        starts += await _start(scene, one.lease, asked) is StartOutcome.STARTED
    assert starts == (await scene.wait_state(asked.wait) is WaitState.CONSUMED)


async def _press(scene: Scene, asked: Asked) -> StartOutcome | None:
    await scene.press(asked.wait)
    return None


async def _start(scene: Scene, lease: Lease, asked: Asked) -> StartOutcome | None:
    try:
        return await scene.start(lease, 1, asked.wait)
    except LeaseLost:
        return None


async def _end(scene: Scene, asked: Asked, how: str) -> StartOutcome | None:
    if how == "deny":
        await scene.press(asked.wait, deny())
    elif how == "expire":
        await scene.store.expire_waits()
    elif how == "stop":
        await scene.stop()
    else:
        await scene.store.void_leases("here")
    return None


@pytest.mark.conformance
async def test_a_turn_is_handed_to_one_of_many_runners(scene: Scene) -> None:
    """Ten turns, a hundred claims: ten leases, no turn twice."""
    for n in range(10):
        await scene.say(where=chat(n), kind=TurnKind.COMMAND if n % 2 else TurnKind.MODEL)
    claims = await _at_once(scene.store.claim(NodeId(f"n{n}#1"), 1 + n % 2) for n in range(100))
    turns = [one.lease.turn for claimed in claims for one in claimed]
    assert len(turns) == len(set(turns)) == 5


@pytest.mark.conformance
async def test_a_press_that_meets_the_parking_is_never_lost(scene: Scene) -> None:
    """Either the turn does not park, or the press queues it: never parked with a decision."""
    for _ in range(times(30, 30, small=12)):
        asked = await scene.asked(kind=TurnKind.COMMAND)
        parked, _ = await _at_once([scene.store.park(asked.lease), _pressed(scene, asked)])
        state = await scene.state(asked.turn)
        assert state is (TurnState.QUEUED if parked else TurnState.RUNNING)
        lease = await scene.claim() if parked else asked.lease
        assert await scene.start(lease, 1, asked.wait) is StartOutcome.STARTED
        await scene.store.finish_step(lease, 1, result())
        assert await scene.finish(lease)


async def _pressed(scene: Scene, asked: Asked) -> bool:
    return (await scene.press(asked.wait)).result is PressResult.APPROVED


@pytest.mark.conformance
async def test_a_message_that_meets_the_end_is_never_lost(scene: Scene) -> None:
    """Either the turn goes on with it, or it starts a turn of its own."""
    for _ in range(times(30, 30, small=12)):
        lease = await scene.running()
        given = (await scene.view(lease.turn)).inputs
        ended, joined = await _at_once([_finished(scene, lease, given), _steered(scene)])
        assert ended != joined
        if not ended:
            assert await scene.finish(lease)
        else:
            assert await scene.finish(await scene.claim())


async def _finished(scene: Scene, lease: Lease, given: Sequence[Received]) -> bool:
    return await scene.store.finish_turn(lease, TurnState.DONE, answer=None, given=given, slots=[], timers=[])


async def _steered(scene: Scene) -> bool:
    return (await scene.say("more", running=WhileRunning.STEER)).steered


@pytest.mark.conformance
async def test_a_slot_is_handed_to_one_of_many_senders(scene: Scene) -> None:
    """Twenty conversations, fifty senders: each slot once."""
    for n in range(20):
        await scene.store.control(route(), inbound("/stop", where=chat(n)), control())
    claimed = await _at_once(scene.store.claim_slots(NodeId(f"here#{n}"), ["telegram"], 3) for n in range(50))
    slots = [slot.id for batch in claimed for slot in batch]
    assert len(slots) == len(set(slots)) == 20
