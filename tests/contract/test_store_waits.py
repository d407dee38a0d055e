"""State table of a wait: every state, every event, the resulting state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import product

import pytest

from gateway.domain.slots import Slot, SlotKind
from gateway.domain.turns import TurnState
from gateway.domain.waits import WaitKind, WaitState
from gateway.ports import ControlEffect
from tests.contract.scene import Asked, Scene
from tests.support.makers import deny, refuse, result

TTL_S = 3600.0
OPEN, APPROVED, CONSUMED = WaitState.OPEN, WaitState.APPROVED, WaitState.CONSUMED
DENIED, EXPIRED, CANCELLED = WaitState.DENIED, WaitState.EXPIRED, WaitState.CANCELLED
SUPERSEDED, ANSWERED = WaitState.SUPERSEDED, WaitState.ANSWERED
Move = Callable[[Scene, Asked], Awaitable[object]]


async def _approve(scene: Scene, asked: Asked) -> None:
    await scene.press(asked.wait)


async def _deny(scene: Scene, asked: Asked) -> None:
    await scene.press(asked.wait, deny())


async def _refused(scene: Scene, asked: Asked) -> None:
    await scene.press(asked.wait, refuse())


async def _deny_sibling(scene: Scene, asked: Asked) -> None:
    await scene.press(asked.waits[1], deny(withdraw_siblings=True))


async def _start(scene: Scene, asked: Asked) -> None:
    await scene.start(asked.lease, 1, asked.wait)


async def _start_late(scene: Scene, asked: Asked) -> None:
    scene.clock.advance(301)
    await scene.start(asked.lease, 1, asked.wait)


async def _expire(scene: Scene, asked: Asked) -> None:
    scene.clock.advance(TTL_S)
    await scene.sweep(scene.store.expire_waits)


async def _grow_old_unheld(scene: Scene, asked: Asked) -> None:
    await scene.store.release(asked.lease)
    scene.clock.advance(301)
    await scene.sweep(scene.store.expire_waits)


async def _lose_the_holder(scene: Scene, asked: Asked) -> None:
    await scene.lapse()


async def _downtime(scene: Scene, asked: Asked) -> None:
    scene.clock.advance(TTL_S)
    await scene.offer_again()


async def _short_downtime(scene: Scene, asked: Asked) -> None:
    await scene.offer_again()


async def _finish_step(scene: Scene, asked: Asked) -> None:
    await scene.store.finish_step(asked.lease, 1, result())


async def _stop(scene: Scene, asked: Asked) -> None:
    await scene.stop()


async def _reset(scene: Scene, asked: Asked) -> None:
    await scene.stop(ControlEffect.RESET)


async def _end(scene: Scene, asked: Asked) -> None:
    assert await scene.finish(asked.lease, TurnState.FAILED)


async def _fire(scene: Scene, asked: Asked) -> None:
    scene.clock.advance(TTL_S)
    await scene.sweep(scene.store.fire_timers)


async def _nothing(scene: Scene, asked: Asked) -> None:
    """Leave it as it was opened."""


async def _consume(scene: Scene, asked: Asked) -> None:
    await _approve(scene, asked)
    await _start(scene, asked)


HOW: dict[WaitState, Move] = {
    OPEN: _nothing,
    APPROVED: _approve,
    CONSUMED: _consume,
    DENIED: _deny,
    EXPIRED: _expire,
    CANCELLED: _deny_sibling,
    SUPERSEDED: _downtime,
}
"""Move that brings an approval of a held turn into each state."""

EVENTS: dict[str, tuple[Move, dict[WaitState, WaitState]]] = {
    "approve": (_approve, {OPEN: APPROVED}),
    "deny": (_deny, {OPEN: DENIED}),
    "refused press": (_refused, {}),
    "sibling denied with reason": (_deny_sibling, {OPEN: CANCELLED}),
    "start": (_start, {APPROVED: CONSUMED}),
    "start after five minutes": (_start_late, {APPROVED: EXPIRED}),
    "expiry": (_expire, {OPEN: EXPIRED}),
    "five minutes unheld": (_grow_old_unheld, {APPROVED: EXPIRED}),
    "holder lost": (_lose_the_holder, {}),
    "short downtime": (_short_downtime, {}),
    "downtime past expiry": (_downtime, {OPEN: SUPERSEDED}),
    "result": (_finish_step, {OPEN: CANCELLED, APPROVED: CANCELLED}),
    "stop": (_stop, {OPEN: CANCELLED, APPROVED: CANCELLED}),
    "reset": (_reset, {OPEN: CANCELLED, APPROVED: CANCELLED}),
    "end of turn": (_end, {OPEN: CANCELLED, APPROVED: CANCELLED}),
}
"""Events by name: the move, and the states that it changes; every other state stays."""


@pytest.mark.parametrize(("state", "event"), list(product(HOW, EVENTS)))
async def test_an_approval_moves_by_the_table(scene: Scene, state: WaitState, event: str) -> None:
    """Nothing else moves it, and nothing leaves a final state; a move makes a new version of its card."""
    asked = await scene.asked(2, ttl_s=TTL_S)
    await HOW[state](scene, asked)
    before = await scene.wait(asked.wait)
    version = (await _card(scene)).version
    assert before.state is state
    move, becomes = EVENTS[event]
    await move(scene, asked)
    after = await scene.wait(asked.wait)
    assert after.state is becomes.get(state, state)
    if state not in becomes:
        assert after == before
    else:
        assert (await _card(scene)).version > version


async def _card(scene: Scene) -> Slot:
    return (await scene.slots(kind=SlotKind.CARD))[0]


OTHER_EVENTS: dict[str, tuple[Move, dict[WaitKind, WaitState]]] = {
    "approve": (_approve, {}),
    "deny": (_deny, {}),
    "start": (_start, {}),
    "expiry": (_expire, {WaitKind.CHILD: EXPIRED}),
    "timers": (_fire, {WaitKind.TIMER: ANSWERED}),
    "downtime past expiry": (_downtime, {}),
    "result": (_finish_step, dict.fromkeys(WaitKind, CANCELLED)),
    "stop": (_stop, dict.fromkeys(WaitKind, CANCELLED)),
    "end of turn": (_end, dict.fromkeys(WaitKind, CANCELLED)),
}
OTHER_KINDS = (WaitKind.CHILD, WaitKind.TIMER)


@pytest.mark.parametrize(("kind", "event"), list(product(OTHER_KINDS, OTHER_EVENTS)))
async def test_waits_of_other_kinds_move_by_the_table(scene: Scene, kind: WaitKind, event: str) -> None:
    """Nobody approves them: they are answered, expire or are withdrawn."""
    asked = await scene.asked(ttl_s=TTL_S, wait_kind=kind)
    move, becomes = OTHER_EVENTS[event]
    await move(scene, asked)
    assert await scene.wait_state(asked.wait) is becomes.get(kind, OPEN)
