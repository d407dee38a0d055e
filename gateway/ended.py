"""Before a model is asked: what is worked out of ended turns is kept, because they come again with each question."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from sys import getsizeof
from typing import Any, Generic, TypeVar, cast

from gateway.model.ids import TurnId
from gateway.model.steps import Step
from gateway.model.views import TurnView
from gateway.model.waits import Wait

T = TypeVar("T")

TURNS_KEPT = 160
BYTES_AT_MOST = 16_000
"""Of a turn, such as ten steps and 4,000 characters; what comes of longer ones is not kept, because what it is worked
out of stays with it."""
BYTES_KEPT = 2_000_000
"""Of those turns."""
A_TURN, A_MESSAGE, A_STEP, A_WAIT = 700, 900, 600, 1_500
"""Bytes that each takes besides its texts, as weighed with the turns of a soak."""


class OfEnded(Generic[T]):
    """One thing that is worked out of each turn by itself.

    It is kept for as long as the turn's messages and steps are the very same objects, which never change: a store that
    gives others has it worked out anew.
    """

    def __init__(self, work_out: Callable[[TurnView], T]) -> None:
        """Know none yet. `work_out` must look at nothing but the turn, and its session's kind."""
        self._work_out = work_out
        self._kept: dict[TurnId, tuple[object, object, int, T]] = {}
        """With the turn's messages and steps, and their bytes."""
        self._bytes = 0

    def of(self, view: TurnView) -> T:
        """Return it, worked out now or before."""
        known = self._kept.get(view.turn.id)
        if known is not None and known[0] is view.inputs and known[1] is view.steps:
            return known[3]
        found = self._work_out(view)
        self._forget(view.turn.id)
        size = bytes_of(view)
        if size <= BYTES_AT_MOST:
            self._kept[view.turn.id] = view.inputs, view.steps, size, found
            self._bytes += size
            while len(self._kept) > TURNS_KEPT or self._bytes > BYTES_KEPT:
                self._forget(next(iter(self._kept)))
        return found

    def _forget(self, turn: TurnId) -> None:
        known = self._kept.pop(turn, None)
        self._bytes -= known[2] if known is not None else 0


def bytes_of(view: TurnView) -> int:
    """Return about how many bytes of memory a turn takes, without its session. Costs 5 µs for three steps."""
    size = A_TURN + A_MESSAGE * len(view.inputs)
    for one in view.inputs:
        size += getsizeof(one.message.text) + getsizeof(one.message.quoted)
    for step in view.steps:
        size += A_STEP + _of_step(step)
    for wait in view.waits:
        size += A_WAIT + _of_wait(wait)
    return size


def _of_step(step: Step) -> int:
    size = 0
    if step.answer is not None:
        size += getsizeof(step.answer.text) + sum([getsizeof(call.arguments) for call in step.answer.calls])
        size += sum(map(getsizeof, texts_in(step.answer.opaque))) if step.answer.opaque else 0
    if step.call is not None:
        size += getsizeof(step.call.arguments)
    if step.result is not None:
        size += getsizeof(step.result.text)
    return size


def _of_wait(wait: Wait) -> int:
    size = getsizeof(wait.reason) + sum(map(getsizeof, texts_in(wait.payload)))
    if wait.approval is not None:
        size += getsizeof(wait.approval.rendered) + sum(map(getsizeof, texts_in(wait.approval.action.arguments)))
    return size


def texts_in(value: object) -> Iterator[str]:
    """Yield the texts in something that came of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in cast("Mapping[str, Any]", value).values():
            yield from texts_in(one)
    elif isinstance(value, list | tuple):
        for one in cast("list[Any]", value):
            yield from texts_in(one)
