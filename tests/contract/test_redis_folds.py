"""Folded turns on Redis: nobody sees them, no node loses a row to them, and they take less memory."""

from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.domain.ids import mint
from gateway.domain.retention import Keep
from gateway.domain.slots import SlotKind
from gateway.domain.turns import Turn, TurnState
from gateway.domain.waits import Wait
from gateway.ports import Store
from gateway.store import open_store
from gateway.store.copying import export, migrate, tally_of
from gateway.store.records import Tally
from gateway.store.redis import folds
from gateway.store.redis.copying import copy_of
from tests.contract.family import SESSION, FamilyScene
from tests.contract.scene import MAIN, NODE
from tests.support.clock import FakeClock
from tests.support.makers import answer, fetched, result, said
from tests.support.redis_server import RedisServer

AT_ONCE = timedelta(0)


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return f"{redis_server.url}?prefix={mint('test')}"


@pytest.fixture
async def scene(url: str, clock: FakeClock) -> AsyncIterator[FamilyScene]:
    store = open_store(url, clock)
    yield FamilyScene(store, clock)
    await store.close()


async def fold(store: Store) -> int:
    total = 0
    while count := await store.fold(AT_ONCE):
        total += count
    return total


async def lived(scene: FamilyScene) -> None:
    """A history with each kind of row: approvals with a card, a child, attachments, replies, a turn at work."""
    asked = await scene.asked(2)
    message = (await scene.view(asked.turn)).inputs[0].id
    await scene.store.record_fetched(asked.lease, message, [fetched("inbox/a.png")])
    for n, wait in enumerate(asked.waits, 1):
        await scene.press(wait)
        await scene.start(asked.lease, n, wait)
        await scene.came(asked.lease, n, result("é" * 99), [said(f"{n}")])
    assert await scene.finish(asked.lease)
    child = await scene.child(SESSION)
    assert await scene.finish(child.parent)
    await scene.end(child)
    told = await scene.claim()
    assert await scene.finish(told)
    await scene.stop()
    await scene.send_all()
    scene.clock.advance(1)
    await scene.parked()


async def seen(scene: FamilyScene, store: Store) -> list[object]:
    """Everything that the queries of a store tell."""
    rows = [await store.older(MAIN, None, 1000), await store.older(MAIN, 20, 7)]
    turns = [row.item.id for row in rows[0].rows if isinstance(row.item, Turn)]
    waits = [row.item.id for row in rows[0].rows if isinstance(row.item, Wait)]
    return [
        *rows,
        await store.changes(MAIN, 0, 1000),
        await store.changes(MAIN, 15, 5),
        [await store.turn(turn) for turn in turns],
        [await store.children_of(turn) for turn in turns],
        [(await store.wait(wait), await store.card_slots(wait)) for wait in waits],
        await store.history(MAIN, 0, 40),
        await store.family(MAIN),
        await store.sessions(),
        await store.audit_rows(0, 99),
        await store.started_calls(0, 99),
        await store.open_approvals(),
        await store.counts(),
    ]


def records(url: str) -> Tally:
    with copy_of(url) as copy:
        return tally_of(copy).tally


def folded_in(url: str) -> int:
    with copy_of(url) as copy:
        return sum(key.startswith(f"{folds.FOLD}:") for key in iter(copy.keys()))


async def test_nobody_sees_that_a_turn_is_folded(scene: FamilyScene, url: str, clock: FakeClock) -> None:
    """A node that kept the rows, one that reads them anew, and a copy."""
    await lived(scene)
    before, counted = await seen(scene, scene.store), await asyncio.to_thread(records, url)
    assert await fold(scene.store) == 4  # all but the one that waits
    assert await seen(scene, scene.store) == before
    other = open_store(url, clock)
    try:
        assert await seen(scene, other) == before
    finally:
        await other.close()
    assert (await asyncio.to_thread(records, url)).difference(counted) == ""


async def test_a_folded_store_is_exported_row_by_row(scene: FamilyScene, url: str, tmp_path: Path) -> None:
    await lived(scene)
    plain = await asyncio.to_thread(export, url, str(tmp_path / "plain.db"))
    await fold(scene.store)
    folded = await asyncio.to_thread(export, url, str(tmp_path / "folded.db"))
    assert folded.tally.digest == plain.tally.digest
    back = f"{url}back"
    moved = await asyncio.to_thread(migrate, str(tmp_path / "folded.db"), back, scene.clock.now())
    assert moved.tally.digest == plain.tally.digest
    again = open_store(back, scene.clock)
    try:
        assert await fold(again) == 4
    finally:
        await again.close()


@pytest.mark.parametrize("length", range(9))
def test_a_folded_value_is_read_as_it_was_written(length: int) -> None:
    rows = {f"turn:t{n}": "é" * n * length for n in range(length)} or {"turn:t": ""}
    assert folds.unpacked(folds.packed(rows)) == rows


async def test_turns_that_an_earlier_version_folded_are_read(scene: FamilyScene, url: str, clock: FakeClock) -> None:
    """Its values are of another form, and each of its pointers names the turn."""
    await lived(scene)
    before = await seen(scene, scene.store)
    await fold(scene.store)
    with copy_of(url) as copy:
        for key in list(copy.keys()):
            if key.startswith(f"{folds.FOLD}:"):
                rows, turn = folds.unpacked(copy.client.get(copy.key(key))), key.partition(":")[2]
                copy.client.set(copy.key(key), earlier(rows))
                stamps = [copy.client.get(copy.key(one)).partition(" ")[0] for one in rows]
                copy.client.mset({copy.key(one): f"{stamp} >{turn}" for one, stamp in zip(rows, stamps, strict=True)})
    other = open_store(url, clock)
    try:
        assert await seen(scene, other) == before
    finally:
        await other.close()


def earlier(rows: dict[str, str]) -> str:
    """Return rows as the version before folded them."""
    compressor = zlib.compressobj(level=9, wbits=-15, zdict=folds.words())
    text = "\x1e".join(f"{key}\x1f{row}" for key, row in rows.items())
    return "1" + base64.b85encode(compressor.compress(text.encode()) + compressor.flush()).decode()


async def test_unsettled_turn_is_not_folded(scene: FamilyScene) -> None:
    lease = await scene.running()
    given = (await scene.view(lease.turn)).inputs
    assert await scene.store.finish_turn(lease, TurnState.DONE, answer=answer(), given=given, slots=[said()], timers=[])
    assert await fold(scene.store) == 1  # looked at, and put off
    assert await fold(scene.store) == 0
    (slot,) = await scene.store.claim_slots(NODE, ["telegram"], 5)
    await scene.store.slot_sent(slot, ("m1",))
    scene.clock.advance(3601)
    assert await fold(scene.store) == 1
    assert (await scene.slot_of(lease.turn, SlotKind.ANSWER)).message_ids == ("m1",)


async def test_a_folded_row_that_changes_is_stored_whole(scene: FamilyScene, url: str) -> None:
    """An old card that is shown anew, and a sub-session that is asked again."""
    await lived(scene)
    (answered,) = [one for one in await scene.slots() if one.kind is SlotKind.CARD and len(one.waits) == 2]
    await fold(scene.store)
    other = open_store(url, scene.clock)
    try:
        assert await other.slot_overwritten(answered.id, answered.version - 1)
        await scene.send_all()
    finally:
        await other.close()
    shown = await scene.slot(answered.id)
    assert shown.version == answered.version + 1
    assert shown.sent_version == shown.version
    assert await fold(scene.store) == 0


async def test_removed_turns_leave_nothing_folded(scene: FamilyScene, url: str) -> None:
    await lived(scene)
    await fold(scene.store)
    passed: int | None = 0
    while passed is not None:
        passed = (await scene.store.trim(MAIN, Keep(turns=1), passed)).passed
    assert await asyncio.to_thread(folded_in, url) == 1


async def test_two_nodes_that_fold_lose_no_row(scene: FamilyScene, url: str) -> None:
    """While one folds, the other removes, shows again and goes on."""
    other = open_store(url, scene.clock)
    try:
        for _ in range(30):
            lease = await scene.running()
            given = (await scene.view(lease.turn)).inputs
            end = scene.store.finish_turn(
                lease, TurnState.DONE, answer=answer(), given=given, slots=[said()], timers=[]
            )
            assert await end
            await scene.send_all()
        slots = [slot for slot in await scene.slots() if slot.kind is SlotKind.ANSWER]

        async def show() -> None:
            for slot in slots:
                assert await scene.store.slot_overwritten(slot.id, slot.version - 1)

        async with asyncio.TaskGroup() as group:
            group.create_task(fold(other), name="fold")
            group.create_task(fold(scene.store), name="fold too")
            group.create_task(show(), name="show")
        found = {slot.id: slot for slot in await scene.slots()}
        assert [found[slot.id].version for slot in slots] == [slot.version + 1 for slot in slots]
        assert len(await other.history(MAIN, 0, 99)) == 30
        assert len((await other.older(MAIN, None, 999)).rows) == 4 * 30
    finally:
        await other.close()
