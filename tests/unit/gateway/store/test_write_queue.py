"""Waiting claims in the SQLite store: the work they get, in which commit, and failures of it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Sequence
from pathlib import Path

import pytest

from gateway.domain.events import TURNS
from gateway.domain.ids import NodeId
from gateway.domain.messages import Received
from gateway.domain.turns import Lease, TurnState
from gateway.errors import StoreError
from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite.tx import Tx
from tests.support.makers import answer, said
from tests.unit.gateway.store.opened import first, opened, say

NODE = NodeId("here#1")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state" / "dragoman.db")


async def test_waiting_claim_gets_its_turn_in_the_same_commit(path: str) -> None:
    async with opened(path) as store, store.event_bus.subscribe(TURNS) as events:
        waiting = asyncio.create_task(store.claim(NODE, 5, wait_s=10))
        await asyncio.sleep(0.05)
        commits = store.writer.commits
        accepted = await say(store)
        assert [one.lease.turn for one in await waiting] == [accepted.turn]
        assert store.writer.commits == commits + 1
        waking = asyncio.create_task(first(events))
        await asyncio.sleep(0.05)
        assert not waking.done(), "there is nothing left for anybody else"
        waking.cancel()


async def test_waiting_claim_gets_no_uncommitted_work(path: str) -> None:
    async with opened(path) as store:
        waiting = asyncio.create_task(store.claim(NODE, 5, wait_s=0.5))
        await asyncio.sleep(0.05)

        def fail(tx: Tx) -> None:
            tx.touched.turns_due = True
            raise sqlite3.OperationalError("disk I/O error")

        with pytest.raises(StoreError):
            await store.writer.submit(fail)
        assert await waiting == []
        accepted = await say(store)
        assert [one.lease.turn for one in await store.claim(NODE, 5, wait_s=10)] == [accepted.turn]


async def test_a_history_that_was_not_committed_is_forgotten(path: str) -> None:
    """One commit ends a turn and hands out the next one with it; where it fails, the turn may end otherwise."""

    def fail(_tx: Tx) -> list[object]:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    async with opened(path) as store, asyncio.TaskGroup() as group:
        await say(store)
        lease = (await store.claim(NODE))[0].lease
        await say(store)
        given = (await store.turn(lease.turn)).inputs
        assert await store.claim_slots(NODE, [], 1, wait_s=0.01) == []  # the next one need not look
        claims = [store.claim(NODE, wait_s=10, history=40), store.writer.claim_slots(fail, 1, 10)]
        waiting = [group.create_task(_refused(claim), name="a claim that waits") for claim in claims]
        await asyncio.sleep(0.05)
        with pytest.raises(StoreError):
            await end(store, lease, given, "no")
        assert [await one for one in waiting] == [True, True]
        await end(store, lease, given, "yes")
        (claimed,) = await store.claim(NODE, history=40)
        assert [step.answer.text for view in claimed.history or () for step in view.steps if step.answer] == ["yes"]


async def _refused(claim: Awaitable[object]) -> bool:
    try:
        await claim
    except StoreError:
        return True
    return False


async def end(store: SqliteStore, lease: Lease, given: Sequence[Received], text: str) -> None:
    assert await store.finish_turn(
        lease, TurnState.DONE, answer=answer(text), given=given, slots=[said(text)], timers=[]
    )


async def test_closing_ends_the_waiting_of_claims(path: str) -> None:
    async with opened(path) as store:
        waiting = asyncio.create_task(store.claim_slots(NODE, ["telegram"], 5, wait_s=60))
        await asyncio.sleep(0.05)
    async with asyncio.timeout(5):
        assert await waiting == []
