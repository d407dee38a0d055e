"""Cache of ended turns in the SQLite store: bounded, least recently used evicted first."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from sys import getrefcount

import pytest

from gateway.domain.ids import TurnId, WaitId
from gateway.domain.routes import empty_session
from gateway.domain.sessions import Session
from gateway.domain.sizes import bytes_of
from gateway.domain.steps import Answer, Step, StepKind, StepState
from gateway.domain.turns import Turn, TurnKind, TurnState
from gateway.domain.views import TurnView
from gateway.domain.waits import Wait, WaitKind, WaitState
from gateway.store.sqlite import UNREAD_AT_MOST
from gateway.store.sqlite.turn_cache import BYTES_KEPT, TURNS_KEPT, TurnCache
from tests.contract.scene import MAIN, NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import ANN_TELEGRAM, CHAT, EPOCH, new_wait, result, route, seconds
from tests.unit.gateway.store.opened import opened

SESSION = empty_session(route(), EPOCH)


def view(text: str = "", waits: tuple[Wait, ...] = (), session: Session = SESSION) -> TurnView:
    """A turn that ended with this answer."""
    id_ = TurnId("t")
    turn = Turn(
        id=id_,
        session=session.id,
        epoch=0,
        kind=TurnKind.MODEL,
        state=TurnState.DONE,
        conversation=CHAT,
        principal=ANN_TELEGRAM,
        created_at=EPOCH,
        started_at=EPOCH,
        ended_at=EPOCH,
        active_ms=1,
    )
    step = Step(turn=id_, n=0, kind=StepKind.MODEL, state=StepState.FINISHED, answer=Answer(text=text))
    return TurnView(turn=turn, session=session, inputs=(), steps=(step,), waits=waits)


@pytest.mark.parametrize(
    ("text", "kept"),
    [("", TURNS_KEPT), ("x" * (BYTES_KEPT // 10), 9), ("я" * (BYTES_KEPT // 20), 9), ("x" * BYTES_KEPT, 0)],
)
def test_there_are_never_more_than_fit(text: str, kept: int) -> None:
    ended, places = TurnCache(), range(TURNS_KEPT + 10)
    for place in places:
        ended.keep({place: view(text)})
    assert sorted(ended.find(places, SESSION)) == list(places)[len(places) - kept :]


def test_requested_turns_stay_cached() -> None:
    ended = TurnCache()
    for place in range(2 * TURNS_KEPT):
        ended.keep({place: view()})
        assert ended.find([0], SESSION)


def test_a_turn_that_is_kept_twice_counts_once() -> None:
    ended = TurnCache()
    for _ in range(20):
        ended.keep({1: view("x" * (BYTES_KEPT // 4))})
    ended.keep({2: view("x" * (BYTES_KEPT // 4))})
    assert sorted(ended.find([1, 2], SESSION)) == [1, 2]


def test_text_of_a_sub_session_counts_for_the_cache() -> None:
    """It stands in the wait that its parent's turn waited on, as long as it was."""
    told = Wait(
        id=WaitId("w"),
        kind=WaitKind.CHILD,
        session=SESSION.id,
        turn=TurnId("t"),
        n=0,
        state=WaitState.CANCELLED,
        approval=None,
        payload={"child": "child:x", "text": "x" * (BYTES_KEPT // 4)},
        opened_at=EPOCH,
        expires_at=EPOCH,
    )
    ended = TurnCache()
    for place in range(10):
        ended.keep({place: view(waits=(told,))})
    assert len(ended.find(range(10), SESSION)) == 3


def test_cached_turn_has_the_current_session() -> None:
    """Each has another summary, of some thousand characters."""
    ended, earlier = TurnCache(), replace(SESSION, summary="In short.")
    holders = getrefcount(earlier)
    for place in range(5):
        ended.keep({place: view(session=earlier)})
    assert getrefcount(earlier) == holders
    assert [one.session.summary for one in ended.find(range(5), SESSION).values()] == [""] * 5


@pytest.mark.parametrize("text", ["short", "x" * 5_000, "я" * 5_000])
async def test_a_turn_is_said_to_take_about_what_it_takes(tmp_path: Path, text: str) -> None:
    """As it is read from a store: a message, an answer, a call that was asked for, an answer."""
    async with opened(str(tmp_path / "store.db")) as store:
        scene = Scene(store, FakeClock())
        for _ in range(51):
            await scene.say(text)
            lease = await scene.claim()
            await scene.plan(lease)
            wait = (await scene.ask(lease, [new_wait(1, expires_in=seconds(3600))])).wait
            await scene.press(wait)
            await scene.start(lease, 1, wait)
            await store.finish_step(lease, 1, result(text), slots=[])
            await scene.finish(lease)
        store.ended = TurnCache()
        await store.history(MAIN, 0, 1)  # what is made once, for the first turn that is read
        tracemalloc.start()
        history = await store.history(MAIN, 0, 51)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert sum(map(bytes_of, history[:50])) == pytest.approx(held, rel=0.25)


async def test_a_claim_does_not_read_a_long_history(tmp_path: Path) -> None:
    """It is made in the thread that writes, for which everybody waits; turns may be large."""
    async with opened(str(tmp_path / "store.db")) as store:
        scene = Scene(store, FakeClock())
        for _ in range(UNREAD_AT_MOST + 1):
            await scene.ended()
        store.ended = TurnCache()  # as after a restart
        await scene.say()
        (claimed,) = await store.claim(NODE, history=40)
        assert claimed.history is None
        assert len(await store.history(MAIN, 0, 40)) == UNREAD_AT_MOST + 1
        await store.release(claimed.lease)
        (claimed,) = await store.claim(NODE, history=40)
        assert len(claimed.history or ()) == UNREAD_AT_MOST + 1
