"""Per-turn cache: a cached value equals a fresh one, and the cache stays within its limits."""

from __future__ import annotations

from dataclasses import replace

from gateway.agent.turn_cache import BYTES_AT_MOST, BYTES_KEPT, TURNS_KEPT, PerTurnCache
from gateway.domain.ids import TurnId
from gateway.domain.sizes import bytes_of
from gateway.domain.steps import Answer
from gateway.domain.views import TurnView
from tests.unit.gateway.agent.test_transcript import received, said, view


class Counted:
    """Counter of computations over a turn's answers."""

    def __init__(self) -> None:
        """Start at 0."""
        self.times = 0

    def __call__(self, turn: TurnView) -> list[str]:
        """Count the call and return the answers' text."""
        self.times += 1
        return [step.answer.text for step in turn.steps if step.answer]


def turn(text: str = "Hello.", number: int = 0) -> TurnView:
    """Return an ended turn."""
    made = view([received("hi", 0)], [said(0, Answer(text=text))])
    return replace(made, turn=replace(made.turn, id=TurnId(f"t{number}")))


def test_value_is_computed_once_for_a_turn() -> None:
    counted, one = Counted(), turn()
    of = PerTurnCache(counted)
    later = replace(one, session=replace(one.session, summary="in short"))
    assert [of.of(one), of.of(one), of.of(later)] == [["Hello."]] * 3
    assert counted.times == 1


def test_changed_turn_is_computed_again() -> None:
    counted, one = Counted(), turn()
    of = PerTurnCache(counted)
    assert of.of(one) == ["Hello."]
    assert of.of(turn("Goodbye.")) == ["Goodbye."]
    assert of.of(replace(one, inputs=(*one.inputs, received("and", 0)))) == ["Hello."]
    assert counted.times == 3


def test_long_turn_is_not_cached() -> None:
    counted, long = Counted(), turn("x" * BYTES_AT_MOST)
    of = PerTurnCache(counted)
    assert of.of(long) == of.of(long)
    assert counted.times == 2


def test_fewer_turns_are_cached_when_they_are_large() -> None:
    counted = Counted()
    of = PerTurnCache(counted)
    turns = [turn("я" * (BYTES_AT_MOST // 3), number=n) for n in range(TURNS_KEPT)]
    for one in turns:
        of.of(one)
    kept = BYTES_KEPT // bytes_of(turns[0])
    assert 0 < kept < TURNS_KEPT
    for one in turns[-kept:]:
        of.of(one)
    assert counted.times == TURNS_KEPT
    of.of(turns[-kept - 1])
    assert counted.times == TURNS_KEPT + 1


def test_the_oldest_of_too_many_is_forgotten() -> None:
    counted = Counted()
    of, turns = PerTurnCache(counted), [turn(number=n) for n in range(TURNS_KEPT + 1)]
    for one in turns:
        of.of(one)
    of.of(turns[-1])
    assert counted.times == TURNS_KEPT + 1
    of.of(turns[0])
    assert counted.times == TURNS_KEPT + 2
