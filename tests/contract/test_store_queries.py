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
async def test_missing_rows_read_as_none(store: Store) -> None:
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
    """Enough to go on with it on any machine. Its waits come as they were opened: a step's last one counts."""
    asked = await scene.parked(2, ttl_s=60)
    view = await scene.view(asked.turn)
    assert view.session == await scene.store.session(MAIN)
    assert [wait.id for wait in view.waits] == list(asked.waits)
    assert [step.n for step in view.steps] == [0, 1, 2]
    scene.clock.advance(60)
    await scene.offer_again()
    wait = new_wait(1, expires_in=seconds(60))
    await scene.ask(await scene.claim(), [wait])
    assert [w.id for w in (await scene.view(asked.turn)).waits] == [*asked.waits, wait.id]


# --- history --------------------------------------------------------------------------------


@pytest.mark.conformance
async def test_history_is_the_last_turns_that_ended(scene: Scene) -> None:
    """Oldest first, in the order in which they ended, whatever way they ended; or the first since the last summary."""
    first = await scene.running()
    await scene.say("cmd", kind=TurnKind.COMMAND)
    second = await scene.claim()
    await scene.finish(second, TurnState.FAILED)
    await scene.finish(first)
    third = await scene.ended()
    await scene.running()
    turns = [second.turn, first.turn, third]

    async def found(limit: int, *, oldest: bool = False) -> list[TurnId]:
        return [view.turn.id for view in await scene.store.history(MAIN, 0, limit, oldest=oldest)]

    assert [await found(limit) for limit in (0, 2, 10)] == [[], turns[1:], turns]
    assert [await found(limit, oldest=True) for limit in (0, 2, 10)] == [[], turns[:2], turns]
    assert await scene.store.compact(MAIN, 0, turns[0], "In short.", None)
    assert await found(1, oldest=True) == turns[1:2]


@pytest.mark.conformance
async def test_history_is_of_one_epoch_of_one_session(scene: Scene) -> None:
    """Turns before /new, or of other sessions, are not in it. It has its session of now, however often it is read."""
    old, elsewhere = await scene.ended(), await scene.ended(GROUP)
    await scene.stop(ControlEffect.RESET)
    new = await scene.ended()
    turns = {
        (session, epoch): [view.turn.id for view in await scene.store.history(session, epoch, 10)]
        for session, epoch in ((MAIN, 0), (MAIN, 1), (GROUP.session, 0), (GROUP.session, 1))
    }
    assert turns == {(MAIN, 0): [old], (MAIN, 1): [new], (GROUP.session, 0): [elsewhere], (GROUP.session, 1): []}
    for title in ("one", "two"):
        await scene.say(to=replace(route(), title=title))
        assert await scene.store.history(MAIN, 1, 10) == [await scene.view(new)]


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
async def test_paging_forward_and_back_gives_the_same_rows(scene: Scene) -> None:
    """No gap, nothing twice: replaying the changes in any size of page ends where reading back does. Of one session."""
    await _busy(scene)
    whole = await _by_older(scene.store, 1000)
    for size in (1, 2, 3, 7, 1000):
        rows = await _by_older(scene.store, size)
        found, revs = await _by_changes(scene.store, size)
        assert rows == whole == [found[ord_] for ord_ in sorted(found)]
        assert revs == sorted(set(revs))
    assert len({_key(row.item) for row in whole}) == len(whole)
    assert {type(row.item).__name__ for row in whole} == {"Received", "Turn", "Step", "Wait", "Slot"}
    await scene.say(to=GROUP)
    assert await scene.rows() == whole
    assert not {row.ord for row in whole} & {row.ord for row in await scene.rows(GROUP.session)}


@pytest.mark.conformance
async def test_reading_on_after_every_transition_loses_nothing(scene: Scene) -> None:
    """Readers that follow while things change have, at the end, what is there, whatever the size of their pages."""
    seen: dict[int, dict[int, Row]] = {1: {}, 4: {}, 1000: {}}
    places: dict[str, int] = {}
    last = dict.fromkeys(seen, 0)
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
        for size, rows in seen.items():
            found, revs = await _by_changes(scene.store, size, last[size])
            rows |= found
            last[size] = max([last[size], *revs])
            for row in found.values():
                assert places.setdefault(_key(row.item), row.ord) == row.ord, "its place changed"
    whole = await _by_older(scene.store, 1000)
    assert [[rows[ord_] for ord_ in sorted(rows)] for rows in seen.values()] == [whole] * len(seen)


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


# --- lists ----------------------------------------------------------------------------------


@pytest.mark.conformance
async def test_sessions_are_listed_with_what_goes_on_in_them(scene: Scene, clock: FakeClock) -> None:
    """Most recently active first, with open approvals, held and queued turns; one of them always, if it is stored."""
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
    for line in lines:
        assert line.rev == max(row.rev for row in await scene.rows(line.session.id))
    for always, limit, found in (
        ("", 1, [GROUP.session]),
        (MAIN, 1, [GROUP.session, MAIN]),
        (MAIN, 0, [MAIN]),
        (SessionId("chat:x"), 0, []),
    ):
        some = await scene.store.sessions(limit, 0, always=SessionId(always) if always else None)
        assert [line.session.id for line in some] == found
        assert all(line in lines for line in some)
    assert await scene.store.sessions(2, always=MAIN) == lines
    clock.advance(1)
    await scene.say("again")
    assert [line.session.id for line in await scene.store.sessions()] == [MAIN, GROUP.session]


@pytest.mark.conformance
async def test_open_approvals_are_listed_oldest_first(scene: Scene, clock: FakeClock) -> None:
    """Those that can still be pressed, of every session. Each knows its cards only, wherever they are."""
    first = await scene.parked(2)
    clock.advance(1)
    second = await scene.parked(to=GROUP, where=PAGE)
    await scene.press(first.wait, deny())
    assert [wait.id for wait in await scene.store.open_approvals()] == [first.waits[1], second.wait]
    assert [wait.id for wait in await scene.store.open_approvals(1)] == [first.waits[1]]
    for asked, session in ((first, MAIN), (second, GROUP.session)):
        (slot,) = await scene.store.card_slots(asked.wait)
        assert [slot] == [one for one in await scene.slots(session, kind=SlotKind.CARD) if one.waits == asked.waits]


@pytest.mark.conformance
async def test_open_approvals_lists_200_by_default(scene: Scene) -> None:
    """A list that somebody reads; the oldest are those that expire first."""
    lease = await scene.planned(201)
    waits = [new_wait(n, expires_in=seconds(60)) for n in range(1, 202)]
    assert await scene.store.open_waits(lease, waits, [])
    assert [wait.n for wait in await scene.store.open_approvals()] == list(range(1, 201))


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
    """It only proves that writing works, until the store is closed; closing it twice is safe."""
    await scene.store.accept(route(), inbound(), TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
    before = await scene.rows()
    await scene.store.probe()
    assert await scene.rows() == before
    await scene.store.close()
    await scene.store.close()
    assert scene.store.event_bus is not None
