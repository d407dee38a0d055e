"""`Queries`: complete reads for any page size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.ids import SessionId, TurnId, WaitId
from gateway.domain.routes import WhileRunning
from gateway.domain.slots import SlotKind
from gateway.domain.steps import Step
from gateway.domain.turns import TurnKind, TurnState
from gateway.domain.views import Item, Row
from gateway.errors import NotFound
from gateway.ports import ControlEffect, Store
from tests.contract.scene import MAIN, NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import EPOCH, PAGE, deny, inbound, new_wait, result, route, seconds

GROUP = route(SessionId("chat:g"))


@pytest.mark.conformance
async def test_what_is_not_there_is_not_there(store: Store) -> None:
    """None or nothing; a turn that is named must exist."""
    assert await store.session(MAIN) is None
    assert await store.wait(WaitId("w")) is None
    assert await store.card_slots(WaitId("w")) == []
    assert await store.history(MAIN, 0, 10) == []
    assert await store.open_approvals() == []
    empty = await store.older(MAIN, None, 10)
    assert (empty.session, empty.rows, empty.more) == (MAIN, (), False)
    none = await store.changes(MAIN, 0, 10)
    assert (none.session, none.rows, none.rev, none.more) == (MAIN, (), 0, False)
    with pytest.raises(NotFound):
        await store.turn(TurnId("t"))


@pytest.mark.conformance
async def test_a_turn_is_seen_with_its_session(scene: Scene) -> None:
    """Enough to go on with it on any machine."""
    asked = await scene.parked(2)
    view = await scene.view(asked.turn)
    assert view.session == await scene.store.session(MAIN)
    assert [wait.id for wait in view.waits] == list(asked.waits)
    assert [step.n for step in view.steps] == [0, 1, 2]


@pytest.mark.conformance
async def test_waits_of_a_turn_come_in_the_order_they_were_opened(scene: Scene) -> None:
    """The last one of a step is the one that counts."""
    first = await scene.parked(ttl_s=60)
    scene.clock.advance(60)
    await scene.offer_again()
    wait = new_wait(1, expires_in=seconds(60))
    await scene.ask(await scene.claim(), [wait])
    assert [w.id for w in (await scene.view(first.turn)).waits] == [first.wait, wait.id]


# --- history --------------------------------------------------------------------------------


@pytest.mark.conformance
async def test_history_is_the_last_turns_that_ended(scene: Scene) -> None:
    """Oldest first, in the order in which they ended, whatever way they ended."""
    first = await scene.running()
    await scene.say("cmd", kind=TurnKind.COMMAND)
    second = await scene.claim()
    await scene.finish(second, TurnState.FAILED)
    await scene.finish(first)
    third = await scene.ended()
    await scene.running()
    assert [v.turn.id for v in await scene.store.history(MAIN, 0, 10)] == [second.turn, first.turn, third]
    assert [v.turn.id for v in await scene.store.history(MAIN, 0, 2)] == [first.turn, third]
    assert await scene.store.history(MAIN, 0, 0) == []


@pytest.mark.conformance
async def test_the_oldest_of_a_history_are_the_first_that_ended(scene: Scene) -> None:
    """Since the last summary, in the same order."""
    turns = [await scene.ended() for _ in range(4)]

    async def oldest(limit: int) -> list[TurnId]:
        return [view.turn.id for view in await scene.store.history(MAIN, 0, limit, oldest=True)]

    assert [await oldest(limit) for limit in (0, 2, 10)] == [[], turns[:2], turns]
    assert await scene.store.compact(MAIN, 0, turns[0], "In short.", None)
    assert await oldest(2) == turns[1:3]


@pytest.mark.conformance
async def test_history_is_current_however_often_it_is_read(scene: Scene) -> None:
    """With its session of now: a title may change."""
    turns = [await scene.ended() for _ in range(3)]
    for title in ("one", "two"):
        await scene.say(to=replace(route(), title=title))
        assert await scene.store.history(MAIN, 0, 10) == [await scene.view(turn) for turn in turns]


@pytest.mark.conformance
async def test_history_is_of_one_epoch_of_one_session(scene: Scene) -> None:
    """Turns before /new, or of other sessions, are not in it."""
    old, elsewhere = await scene.ended(), await scene.ended(GROUP)
    await scene.stop(ControlEffect.RESET)
    new = await scene.ended()
    turns = {
        (session, epoch): [view.turn.id for view in await scene.store.history(session, epoch, 10)]
        for session, epoch in ((MAIN, 0), (MAIN, 1), (GROUP.session, 0), (GROUP.session, 1))
    }
    assert turns == {(MAIN, 0): [old], (MAIN, 1): [new], (GROUP.session, 0): [elsewhere], (GROUP.session, 1): []}


# --- rows -----------------------------------------------------------------------------------


async def _busy(scene: Scene) -> None:
    """A session with every kind of row, most of them changed several times; another one beside it."""
    asked = await scene.parked(3)
    await scene.say("steer", running=WhileRunning.STEER)
    await scene.parked(to=GROUP)
    await scene.send_all()
    await scene.press(asked.waits[0])
    await scene.press(asked.waits[1], deny(withdraw_siblings=True))
    lease = await scene.claim()
    await scene.start(lease, 1, asked.waits[0])
    for n in (1, 2, 3):
        await scene.store.finish_step(lease, n, result())
    await scene.say("next")
    await scene.finish(lease)
    await scene.send_all()
    await scene.stop()


def _key(item: Item) -> str:
    return f"{item.turn}/{item.n}" if isinstance(item, Step) else item.id


async def _by_changes(store: Store, size: int, after: int = 0) -> tuple[dict[int, Row], list[int]]:
    """Read on from a revision in pages of `size`, upserting by place."""
    found: dict[int, Row] = {}
    revs: list[int] = []
    while True:
        page = await store.changes(MAIN, after, size)
        assert len(page.rows) <= size
        found |= {row.ord: row for row in page.rows}
        revs += [row.rev for row in page.rows]
        if page.rows:
            assert page.rev >= page.rows[-1].rev
        after = page.rev
        if not page.more:
            return found, revs


async def _by_older(store: Store, size: int) -> list[Row]:
    """Read back from the newest in pages of `size`."""
    rows: list[Row] = []
    before: int | None = None
    while True:
        page = await store.older(MAIN, before, size)
        assert [row.ord for row in page.rows] == sorted(row.ord for row in page.rows)
        assert len(page.rows) <= size
        rows = [*page.rows, *rows]
        if not page.more:
            return rows
        before = page.rows[0].ord


@pytest.mark.conformance
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_paging_forward_and_back_gives_the_same_rows(scene: Scene, size: int) -> None:
    """No gap, nothing twice: replaying the changes in any size of page ends where reading back does."""
    await _busy(scene)
    rows = await _by_older(scene.store, size)
    found, revs = await _by_changes(scene.store, size)
    assert [found[ord_] for ord_ in sorted(found)] == rows
    assert revs == sorted(set(revs))
    assert len({_key(row.item) for row in rows}) == len(rows)
    assert {type(row.item).__name__ for row in rows} == {"Received", "Turn", "Step", "Wait", "Slot"}


@pytest.mark.conformance
@pytest.mark.parametrize("size", [1, 4, 1000])
async def test_reading_on_after_every_transition_loses_nothing(scene: Scene, size: int) -> None:
    """A reader that follows while things change has, at the end, what is there."""
    seen: dict[int, Row] = {}
    places: dict[str, int] = {}
    last = 0
    asked = await scene.asked(2)
    steps = [
        scene.store.park(asked.lease),
        scene.say("more", running=WhileRunning.STEER),
        scene.press(asked.waits[0]),
        scene.send_all(),
        scene.press(asked.waits[1], deny()),
        scene.stop(ControlEffect.RESET),
        scene.say("after"),
    ]
    for step in [None, *steps]:
        if step is not None:
            await step
        found, revs = await _by_changes(scene.store, size, last)
        seen |= found
        last = max([last, *revs])
        for row in found.values():
            assert places.setdefault(_key(row.item), row.ord) == row.ord, "its place changed"
    assert [seen[ord_] for ord_ in sorted(seen)] == await _by_older(scene.store, 1000)


async def test_the_newest_page_says_from_where_to_read_on(scene: Scene) -> None:
    """Nothing happens between `older` and `changes` that the reader would miss or read again."""
    await _busy(scene)
    newest = await scene.store.older(MAIN, None, 3)
    assert newest.more
    assert (await scene.store.changes(MAIN, newest.rev, 10)).rows == ()
    accepted = await scene.say("later")
    items = [row.item for row in (await scene.store.changes(MAIN, newest.rev, 10)).rows]
    assert {_key(item) for item in items} == {accepted.inbound, accepted.turn}


async def test_reading_when_nothing_changed_stays_where_it_was(scene: Scene) -> None:
    """A reader that is up to date keeps its revision, or gets a higher one, never a lower."""
    await scene.say()
    rev = (await scene.store.changes(MAIN, 0, 100)).rev
    page = await scene.store.changes(MAIN, rev, 100)
    assert (page.rows, page.more) == ((), False)
    assert page.rev >= rev


@pytest.mark.conformance
async def test_rows_of_another_session_are_not_mixed_in(scene: Scene) -> None:
    """Each session is read alone."""
    await scene.parked()
    mine = await scene.rows()
    await scene.parked(to=GROUP)
    assert await scene.rows() == mine
    assert not {row.ord for row in mine} & {row.ord for row in await scene.rows(GROUP.session)}


# --- lists ----------------------------------------------------------------------------------


@pytest.mark.conformance
async def test_sessions_are_listed_with_what_goes_on_in_them(scene: Scene, clock: FakeClock) -> None:
    """Most recently active first, with open approvals, held and queued turns."""
    await scene.parked(2)
    await scene.say("next")
    clock.advance(1)
    await scene.parked(to=GROUP)
    await scene.running(GROUP, kind=TurnKind.COMMAND)
    lines = await scene.store.sessions()
    assert [(line.session.id, line.waiting, line.running, line.queued) for line in lines] == [
        (GROUP.session, 1, 1, 0),
        (MAIN, 2, 0, 1),
    ]
    assert [line.session.id for line in await scene.store.sessions(1)] == [GROUP.session]
    for line in lines:
        assert line.rev == max(row.rev for row in await scene.rows(line.session.id))
    clock.advance(1)
    await scene.say("again")
    assert [line.session.id for line in await scene.store.sessions()] == [MAIN, GROUP.session]


@pytest.mark.conformance
async def test_one_is_listed_whenever_it_was_active(scene: Scene, clock: FakeClock) -> None:
    """Once, with what goes on in it, and only if it is stored."""
    await scene.parked(2)
    clock.advance(1)
    await scene.parked(to=GROUP)
    for always, limit, found in ((MAIN, 1, [GROUP.session, MAIN]), (MAIN, 0, [MAIN]), (SessionId("chat:x"), 0, [])):
        lines = await scene.store.sessions(limit, 0, always=always)
        assert [line.session.id for line in lines] == found
        assert all(line.waiting == 2 for line in lines if line.session.id == MAIN)
    assert await scene.store.sessions(2, always=MAIN) == await scene.store.sessions(2)


@pytest.mark.conformance
async def test_open_approvals_are_listed_oldest_first(scene: Scene, clock: FakeClock) -> None:
    """Those that can still be pressed, of every session."""
    first = await scene.parked(2)
    clock.advance(1)
    second = await scene.parked(to=GROUP)
    await scene.press(first.wait, deny())
    assert [wait.id for wait in await scene.store.open_approvals()] == [first.waits[1], second.wait]
    assert [wait.id for wait in await scene.store.open_approvals(1)] == [first.waits[1]]


async def test_open_approvals_lists_200_by_default(scene: Scene) -> None:
    """A list that somebody reads; the oldest are those that expire first."""
    lease = await scene.planned(201)
    waits = [new_wait(n, expires_in=seconds(60)) for n in range(1, 202)]
    assert await scene.store.open_waits(lease, waits, [])
    assert [wait.n for wait in await scene.store.open_approvals()] == list(range(1, 201))


@pytest.mark.conformance
async def test_a_wait_knows_the_cards_that_show_it(scene: Scene) -> None:
    """Its cards only, wherever they are."""
    first = await scene.parked(where=PAGE)
    await scene.parked(to=GROUP)
    (slot,) = await scene.store.card_slots(first.wait)
    assert slot == await scene.slot_of(first.turn, SlotKind.CARD)


async def test_an_empty_store_counts_nothing(store: Store) -> None:
    """Zero and None."""
    counts = await store.counts()
    assert (counts.queued_turns, counts.running_turns, counts.parked_turns, counts.open_approvals) == (0, 0, 0, 0)
    assert (counts.due_slots, counts.dead_slots) == (0, 0)
    assert counts.oldest_queued_at is None


@pytest.mark.conformance
async def test_counts_are_of_the_whole_store(scene: Scene, clock: FakeClock) -> None:
    """Turns by where they stand, open approvals, slots on their way, and since when the oldest turn waits."""
    await scene.parked(2)
    clock.advance(1)
    await scene.parked(to=GROUP)
    clock.advance(1)
    await scene.say("queued")
    clock.advance(1)
    await scene.say("queued too")
    await scene.running(kind=TurnKind.COMMAND)
    (slot, *_) = await scene.store.claim_slots(NODE, ["telegram"], 1)
    counts = await scene.store.counts()
    assert (counts.queued_turns, counts.running_turns, counts.parked_turns, counts.open_approvals) == (2, 1, 2, 3)
    assert counts.due_slots == 1
    assert counts.oldest_queued_at == EPOCH + seconds(2)
    await scene.store.slot_dead(slot, "gone")
    assert (await scene.store.counts()).dead_slots == 1


async def test_a_stopping_turn_counts_as_running(scene: Scene) -> None:
    """It is held."""
    await scene.running()
    await scene.stop()
    assert (await scene.store.counts()).running_turns == 1
    (line,) = await scene.store.sessions()
    assert line.running == 1


@pytest.mark.conformance
async def test_a_probe_writes_and_changes_nothing(scene: Scene) -> None:
    """It only proves that writing works."""
    await scene.store.accept(route(), inbound(), TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
    before = await scene.rows()
    await scene.store.probe()
    assert await scene.rows() == before


@pytest.mark.conformance
async def test_a_store_closes_twice(store: Store) -> None:
    """The second time does nothing."""
    await store.close()
    await store.close()
    assert store.live is not None
