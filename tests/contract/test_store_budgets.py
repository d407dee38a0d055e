"""`Budgets`: a model request reserves, its answer settles, and no crash leaves a reservation."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from gateway.domain.budgets import BudgetLine, BudgetUse, Measure, Reservation, ReserveOutcome
from gateway.domain.ids import SessionId
from gateway.domain.routes import WhileRunning
from gateway.domain.slots import Slot, SlotKind
from gateway.domain.steps import Usage
from gateway.domain.turns import Lease, TurnKind, TurnState
from gateway.domain.views import Spent
from gateway.errors import LeaseLost
from tests.contract.scene import MAIN, NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import ANN_TELEGRAM, CHAT, EPOCH, OTHER_CHAT, answer, inbound, route

ANNS = BudgetLine(account="2026-01-01 ann", measure=Measure.TOKENS, limit=1_000, nearly="Nearly.", ended="All.")
MONEY = replace(ANNS, measure=Measure.MONEY, limit=50, nearly="Nearly, in money.", ended="All, in money.")
SESSION = replace(ANNS, account="session main:ann 0", nearly="Nearly, here.", ended="All, here.")
USED = Usage(input_tokens=90, output_tokens=10, cost_micros=7)
RESERVED, BUSY, SPENT = ReserveOutcome.RESERVED, ReserveOutcome.BUSY, ReserveOutcome.SPENT


def wanted(*lines: BudgetLine, tokens: int = 100, micros: int = 7) -> Reservation:
    return Reservation(lines=lines or (ANNS,), tokens=tokens, micros=micros, place=CHAT)


async def _lease(scene: Scene, n: int = 0) -> Lease:
    """Return a running turn in a session of its own."""
    way = route(SessionId(f"chat:{n}"))
    message = inbound(key=f"b{n}")
    await scene.store.accept(way, message, TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
    return await scene.claim()


async def _reserve(scene: Scene, lease: Lease, *lines: BudgetLine, tokens: int = 100) -> ReserveOutcome:
    return (await scene.store.reserve(lease, wanted(*lines, tokens=tokens))).outcome


async def _answer(scene: Scene, lease: Lease, usage: Usage = USED) -> None:
    """End the turn with an answer that used so much."""
    last = replace(answer(), usage=usage)
    given = (await scene.view(lease.turn)).inputs
    assert await scene.store.finish_turn(lease, TurnState.DONE, answer=last, given=given, slots=[], timers=[])


async def _used(scene: Scene) -> dict[str, int]:
    return {f"{one.account} {one.measure}": one.used for one in await scene.store.budget_uses()}


async def test_an_answer_adds_what_it_used_to_each_budget(scene: Scene) -> None:
    """The reservation does not count."""
    lease = await _lease(scene)
    assert await _reserve(scene, lease, ANNS, MONEY, SESSION, tokens=900) is RESERVED
    assert set((await _used(scene)).values()) == {0}
    await _answer(scene, lease)
    assert await _used(scene) == {
        "2026-01-01 ann tokens": 100,
        "2026-01-01 ann money": 7,
        "session main:ann 0 tokens": 100,
    }
    assert BudgetUse(account=ANNS.account, measure=Measure.MONEY, used=7) in await scene.store.budget_uses()


async def test_each_answer_of_a_turn_counts(scene: Scene) -> None:
    """One with calls settles too, and the next request reserves anew."""
    lease = await _lease(scene)
    await _reserve(scene, lease)
    planned = replace(answer(calls=1), usage=USED)
    await scene.store.plan(lease, planned, given=[], slots=[])
    assert await _used(scene) == {"2026-01-01 ann tokens": 100}
    await _reserve(scene, lease)
    await _answer(scene, lease, Usage())
    assert await _used(scene) == {"2026-01-01 ann tokens": 200}, "an answer without figures counts as estimated"


@pytest.mark.parametrize(("used", "outcome"), [(999, RESERVED), (1_000, SPENT), (1_001, SPENT)])
async def test_a_used_up_budget_refuses(scene: Scene, used: int, outcome: ReserveOutcome) -> None:
    """Alone, a request fits as long as anything is left."""
    first = await _lease(scene)
    await _reserve(scene, first)
    await _answer(scene, first, Usage(input_tokens=used))
    second = await _lease(scene, 1)
    found = await scene.store.reserve(second, wanted(SESSION, ANNS))
    assert found.outcome is outcome
    assert (found.line == ANNS) is (outcome is SPENT)
    assert found.line is None or "session main:ann 0 tokens" not in await _used(scene), "in none of them"


async def test_reserved_tokens_are_not_given_twice(scene: Scene) -> None:
    """A second request waits for the first one's answer."""
    first, second = await _lease(scene), await _lease(scene, 1)
    assert await _reserve(scene, first, tokens=600) is RESERVED
    assert await _reserve(scene, second, tokens=401) is BUSY
    assert await _reserve(scene, second, tokens=400) is RESERVED
    await _answer(scene, first)
    assert await _reserve(scene, second, tokens=900) is RESERVED, "its own reservation is replaced"


async def test_the_dearest_request_so_far_is_reserved_at_least(scene: Scene) -> None:
    """Estimates that are too low are believed once."""
    first = await _lease(scene)
    await _reserve(scene, first, tokens=1)
    await _answer(scene, first, Usage(input_tokens=400))
    second, third = await _lease(scene, 1), await _lease(scene, 2)
    assert await _reserve(scene, second, tokens=1) is RESERVED
    assert await _reserve(scene, third, tokens=1) is BUSY


@pytest.mark.conformance
async def test_a_hundred_requests_at_the_cap_exceed_it_by_one(scene: Scene) -> None:
    """All at the same time, each again until it is refused."""
    leases = [await _lease(scene, n) for n in range(100)]
    small = replace(ANNS, limit=1_050)
    answered = 0

    async def turn(lease: Lease) -> None:
        nonlocal answered
        found = BUSY
        while found is BUSY:
            found = (await scene.store.reserve(lease, wanted(small, tokens=10))).outcome
        if found is RESERVED:
            await _answer(scene, lease, Usage(input_tokens=100))
            answered += 1

    async with asyncio.TaskGroup() as group:
        first = leases.pop()
        await turn(first)  # one that tells what a request uses
        for lease in leases:
            group.create_task(turn(lease))
    used = (await _used(scene))["2026-01-01 ann tokens"]
    assert used == answered * 100
    assert small.limit <= used <= small.limit + 100


@pytest.mark.parametrize("how", ["failed", "released", "reclaimed"])
async def test_a_turn_that_ends_without_an_answer_leaves_nothing(scene: Scene, clock: FakeClock, how: str) -> None:
    """A failure, a shutdown and a crash: the reservation counts while its turn is held."""
    first, second = await _lease(scene), await _lease(scene, 1)
    await _reserve(scene, first, tokens=1_000)
    assert await _reserve(scene, second) is BUSY
    if how == "failed":
        await scene.store.finish_turn(first, TurnState.FAILED, answer=None, given=(), slots=(), timers=())
    elif how == "released":
        await scene.store.release(first)
    else:
        clock.advance(16)
        assert await scene.store.reclaim() == 2
        second = await scene.claim()
    assert await _reserve(scene, second) is RESERVED
    assert set((await _used(scene)).values()) == {0}


async def test_a_crash_before_settling_counts_the_second_answer_alone(scene: Scene, clock: FakeClock) -> None:
    """The turn is claimed again and its request made again; the first holder can settle nothing."""
    first = await _lease(scene)
    await _reserve(scene, first, tokens=1_000)
    clock.advance(16)
    assert await scene.store.reclaim() == 1
    second = await scene.claim()
    assert second.turn == first.turn
    with pytest.raises(LeaseLost):
        await scene.store.reserve(first, wanted())
    with pytest.raises(LeaseLost):
        await _answer(scene, first)
    assert await _reserve(scene, second, tokens=1_000) is RESERVED
    await _answer(scene, second)
    assert await _used(scene) == {"2026-01-01 ann tokens": 100}


async def test_the_person_is_told_at_80_percent_and_at_the_end_once(scene: Scene) -> None:
    """In the conversation of the reservation."""
    told: list[str] = []
    for n, used in enumerate((799, 1, 100, 99, 1)):
        lease = await _lease(scene, n)
        assert (await scene.store.reserve(lease, replace(wanted(), place=OTHER_CHAT))).outcome is RESERVED
        await _answer(scene, lease, Usage(input_tokens=used))
        notes = [slot for slot in await _all_notes(scene) if slot.conversation == OTHER_CHAT]
        told.append(" ".join(slot.text for slot in notes))
    assert told == ["", "Nearly.", "Nearly.", "Nearly.", "Nearly. All."]


async def _all_notes(scene: Scene) -> list[Slot]:
    found: list[Slot] = []
    for n in range(5):
        page = await scene.store.older(SessionId(f"chat:{n}"), None, 1_000)
        found += [row.item for row in page.rows if isinstance(row.item, Slot) and row.item.kind is SlotKind.NOTE]
    return found


async def test_a_raised_limit_is_reported_again(scene: Scene) -> None:
    """The owner gave more; that is used up too."""
    for n, (limit, used) in enumerate(((1_000, 1_000), (10_000, 1), (10_000, 9_000))):
        lease = await _lease(scene, n)
        assert await _reserve(scene, lease, replace(ANNS, limit=limit)) is RESERVED
        await _answer(scene, lease, Usage(input_tokens=used))
    assert [slot.text for slot in await _all_notes(scene)] == ["All.", "All."]


async def test_the_end_alone_is_told_when_one_answer_passes_both(scene: Scene) -> None:
    """Not that it is nearly used up."""
    lease = await _lease(scene)
    await _reserve(scene, lease)
    await _answer(scene, lease, Usage(input_tokens=2_000))
    assert [slot.text for slot in await _all_notes(scene)] == ["All."]


async def test_an_account_opens_with_what_the_books_say(scene: Scene) -> None:
    """Once: later figures of the books are its own."""
    opened = replace(ANNS, opening=950)
    lease = await _lease(scene)
    assert await _reserve(scene, lease, opened) is RESERVED
    await _answer(scene, lease)
    assert await _used(scene) == {"2026-01-01 ann tokens": 1_050}
    second = await _lease(scene, 1)
    assert await _reserve(scene, second, replace(opened, opening=0)) is SPENT


async def test_an_account_is_forgotten_after_its_time(scene: Scene, clock: FakeClock) -> None:
    """A day's account is of no use two days later."""
    lease = await _lease(scene)
    await _reserve(scene, lease, replace(ANNS, kept_for=timedelta(hours=1)))
    await _answer(scene, lease)
    clock.advance(3_600)
    assert await _used(scene) == {}
    await scene.store.alive(NODE)
    assert await _used(scene) == {}


async def test_an_answer_without_a_reservation_is_in_the_books_alone(scene: Scene) -> None:
    """As before there were budgets."""
    lease = await _lease(scene)
    await _answer(scene, lease)
    assert await _used(scene) == {}
    assert [one.usage for one in await scene.store.spent(EPOCH.date())] == [USED]


async def test_a_summary_reserves_without_a_lease_for_ten_minutes(scene: Scene, clock: FakeClock) -> None:
    """Its usage settles it; one that was never written counts no longer than that."""
    lease = await _lease(scene)
    assert (await scene.store.reserve_summary(MAIN, wanted(tokens=1_000))).outcome is RESERVED
    assert await _reserve(scene, lease) is BUSY
    clock.advance(599)
    assert await _reserve(scene, lease) is BUSY
    clock.advance(1)
    assert await _reserve(scene, lease) is RESERVED
    assert (await scene.store.reserve_summary(MAIN, replace(wanted(), place=None))).outcome is RESERVED
    spent = Spent(day=EPOCH.date(), principal=ANN_TELEGRAM, model="test", answers=1, usage=USED)
    assert not await scene.store.compact(MAIN, 9, lease.turn, "In short.", spent)
    assert await _used(scene) == {"2026-01-01 ann tokens": 100}


async def test_a_model_without_figures_counts_as_estimated(scene: Scene) -> None:
    """Closed by default: what is not known is not free."""
    lease = await _lease(scene)
    await _reserve(scene, lease, ANNS, MONEY, tokens=300)
    await _answer(scene, lease, Usage())
    assert await _used(scene) == {"2026-01-01 ann tokens": 300, "2026-01-01 ann money": 7}
