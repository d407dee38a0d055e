"""The ended turns that the SQLite store keeps in memory: bounded, and those asked for last stay."""

from __future__ import annotations

import pytest

from gateway.model.ids import TurnId
from gateway.model.sessions import Turn, TurnKind, TurnState, empty_session
from gateway.model.tools import Answer, Step, StepKind, StepState
from gateway.model.views import TurnView
from gateway.store.sqlite.ended import CHARS_KEPT, TURNS_KEPT, EndedTurns
from tests.support.makers import ANN_TELEGRAM, CHAT, EPOCH, route


def view(text: str = "") -> TurnView:
    """A turn that ended with this answer."""
    id_, session = TurnId("t"), empty_session(route(), EPOCH)
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
    return TurnView(turn=turn, session=session, inputs=(), steps=(step,), waits=())


@pytest.mark.parametrize(
    ("text", "kept"),
    [("", TURNS_KEPT), ("x" * (CHARS_KEPT // 10), 9), ("x" * CHARS_KEPT, 0)],
)
def test_there_are_never_more_than_fit(text: str, kept: int) -> None:
    ended, places = EndedTurns(), range(TURNS_KEPT + 10)
    for place in places:
        ended.keep({place: view(text)})
    assert sorted(ended.find(places)) == list(places)[len(places) - kept :]


def test_what_is_asked_for_stays() -> None:
    ended = EndedTurns()
    for place in range(2 * TURNS_KEPT):
        ended.keep({place: view()})
        assert ended.find([0])


def test_a_turn_that_is_kept_twice_counts_once() -> None:
    ended = EndedTurns()
    for _ in range(20):
        ended.keep({1: view("x" * (CHARS_KEPT // 4))})
    ended.keep({2: view("x" * (CHARS_KEPT // 4))})
    assert sorted(ended.find([1, 2])) == [1, 2]
