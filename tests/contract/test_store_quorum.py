"""`Intake.press` on an approval that several persons must allow."""

from __future__ import annotations

import pytest

from gateway.domain.ids import Person
from gateway.domain.slots import SlotState
from gateway.domain.turns import TurnState
from gateway.domain.waits import PressResult, PressVerdict, Vote, WaitState
from tests.contract.scene import Scene
from tests.support.clock import FakeClock
from tests.support.fakes import CLEO_TELEGRAM
from tests.support.makers import ANN_SLACK, ANN_TELEGRAM, BOB, card, deny, new_wait, press, refuse, seconds

BOTH = ("ann", "cleo", "telegram:2002")


def vote(person: str, quorum: int = 2, among: tuple[str, ...] = BOTH) -> PressVerdict:
    """Return the verdict on a press of "once" where several must allow it."""
    return PressVerdict(
        refusal=None,
        state=WaitState.APPROVED,
        quorum=quorum,
        person=Person(person),
        among=frozenset(Person(one) for one in among),
    )


async def test_the_second_person_decides(scene: Scene, clock: FakeClock) -> None:
    """The first is counted: the wait stays open, its turn parked, and the card is shown anew."""
    asked = await scene.parked()
    clock.advance(10)
    first = await scene.press(asked.wait, vote("ann"), who=ANN_TELEGRAM)
    assert first.result is PressResult.COUNTED
    assert first.wait is not None
    assert first.wait == await scene.wait(asked.wait)
    assert Vote.of(first.wait) == (Vote(person=Person("ann"), principal=ANN_TELEGRAM, at=clock.now()),)
    assert (first.wait.state, first.wait.decided_by) == (WaitState.OPEN, None)
    assert await scene.state(asked.turn) is TurnState.PARKED

    second = await scene.press(asked.wait, vote("cleo"), who=CLEO_TELEGRAM)
    assert second.result is PressResult.APPROVED
    assert second.wait is not None
    assert (second.wait.state, second.wait.decided_by) == (WaitState.APPROVED, CLEO_TELEGRAM)
    assert [one.person for one in Vote.of(second.wait)] == ["ann", "cleo"]
    assert await scene.state(asked.turn) is TurnState.QUEUED


async def test_one_person_counts_once(scene: Scene) -> None:
    """Several accounts and repeated presses of one person are one vote."""
    asked = await scene.parked()
    await scene.press(asked.wait, vote("ann"), who=ANN_TELEGRAM)
    before = await scene.rows()
    for who in (ANN_SLACK, ANN_TELEGRAM):
        again = await scene.press(asked.wait, vote("ann"), who=who)
        assert again.result is PressResult.COUNTED
    assert await scene.rows() == before
    assert await scene.wait_state(asked.wait) is WaitState.OPEN


async def test_the_same_vote_delivered_twice_counts_once(scene: Scene) -> None:
    """The event is known."""
    asked = await scene.parked()
    one = press(who=ANN_TELEGRAM)
    await scene.store.press(one, asked.wait, vote("ann"))
    before = await scene.rows()
    assert (await scene.store.press(one, asked.wait, vote("cleo"))).result is PressResult.DUPLICATE
    assert await scene.rows() == before


@pytest.mark.parametrize("quorum", [3, 5])
async def test_approval_needs_its_quorum(scene: Scene, quorum: int) -> None:
    """Each press counts one person."""
    asked = await scene.parked()
    persons = [f"p{n}" for n in range(quorum)]
    for name in persons[:-1]:
        pressed = await scene.press(asked.wait, vote(name, quorum, tuple(persons)))
        assert pressed.result is PressResult.COUNTED
    assert (await scene.press(asked.wait, vote(persons[-1], quorum, tuple(persons)))).result is PressResult.APPROVED


async def test_a_vote_of_somebody_removed_counts_no_longer(scene: Scene) -> None:
    """The deciders are read at each press, for the votes before it too."""
    asked = await scene.parked()
    await scene.press(asked.wait, vote("ann"), who=ANN_TELEGRAM)
    left = ("cleo", "telegram:2002")
    assert (await scene.press(asked.wait, vote("cleo", 2, left), who=CLEO_TELEGRAM)).result is PressResult.COUNTED
    assert (await scene.press(asked.wait, vote("telegram:2002", 2, left), who=BOB)).result is PressResult.APPROVED


async def test_one_denial_denies(scene: Scene) -> None:
    """Votes before it change nothing, and nobody can vote after it."""
    asked = await scene.parked()
    await scene.press(asked.wait, vote("ann"), who=ANN_TELEGRAM)
    assert (await scene.press(asked.wait, deny(), who=CLEO_TELEGRAM)).result is PressResult.DENIED
    assert (await scene.press(asked.wait, vote("telegram:2002"), who=BOB)).result is PressResult.ALREADY
    assert await scene.wait_state(asked.wait) is WaitState.DENIED


@pytest.mark.parametrize("why", [PressResult.NOT_ALLOWED, PressResult.NOT_VALID])
async def test_a_refused_press_is_no_vote(scene: Scene, why: PressResult) -> None:
    """A forged or foreign press is only recorded."""
    asked = await scene.parked()
    await scene.press(asked.wait, vote("ann"), who=ANN_TELEGRAM)
    before = await scene.wait(asked.wait)
    assert (await scene.store.press(press(who=BOB), asked.wait, refuse(why))).result is why
    assert await scene.wait(asked.wait) == before


async def test_a_late_vote_is_none(scene: Scene, clock: FakeClock) -> None:
    """An approval that is a vote short expires like any other."""
    asked = await scene.parked(ttl_s=60)
    await scene.press(asked.wait, vote("ann"), who=ANN_TELEGRAM)
    clock.advance(60)
    assert (await scene.press(asked.wait, vote("cleo"), who=CLEO_TELEGRAM)).result is PressResult.EXPIRED
    assert await scene.store.expire_waits() == 1
    assert await scene.wait_state(asked.wait) is WaitState.EXPIRED


async def test_a_vote_shows_every_card_again(scene: Scene) -> None:
    """People see who has allowed it so far."""
    lease = await scene.planned()
    wait = new_wait(1, expires_in=seconds(60))
    await scene.store.open_waits(lease, [wait], [card(wait.id), card(wait.id)])
    await scene.send_all()
    await scene.press(wait.id, vote("ann"))
    assert [(one.version, one.state) for one in await scene.store.card_slots(wait.id)] == [(2, SlotState.DUE)] * 2
