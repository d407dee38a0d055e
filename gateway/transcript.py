"""The history a model is given, built from stored turns: pure, and always valid for a provider.

Each answer's calls are followed by exactly their results, in call order, before any text of a person.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gateway.model.ids import InboundId
from gateway.model.messages import Received
from gateway.model.prompts import CallResult, Message, UserText
from gateway.model.sessions import SessionKind
from gateway.model.tools import ResultStatus, Step, StepKind, ToolResult
from gateway.model.views import TurnView

HISTORY_TURNS = 40
"""Ended turns that a model is given."""

_NO_RESULT = ToolResult(status=ResultStatus.UNKNOWN, text="", code="unknown", hint="Outcome unknown.")


def messages(history: Sequence[TurnView], turn: TurnView) -> tuple[Message, ...]:
    """Return the whole conversation: the ended turns, oldest first, then this one with every message it has so far."""
    out: list[Message] = []
    for view in [*history, turn]:
        out += _of_turn(view)
    return tuple(out)


def ungiven(turn: TurnView) -> tuple[InboundId, ...]:
    """The messages of the turn that no answer has seen yet."""
    return tuple(received.id for received in turn.inputs if received.given is None)


def _of_turn(view: TurnView) -> Iterable[Message]:
    named = view.session.kind is SessionKind.NON_MAIN
    waiting = list(view.inputs)
    for step in view.steps:
        if step.kind is not StepKind.MODEL or step.answer is None:
            continue
        yield from _said([r for r in waiting if r.given is not None and r.given <= step.n], named)
        waiting = [r for r in waiting if r.given is None or r.given > step.n]
        yield step.answer
        yield from _results(view.steps, step.n)
    yield from _said(waiting, named)


def _said(received: Iterable[Received], named: bool) -> Iterable[UserText]:
    for one in received:
        yield UserText(text=one.message.text, name=one.message.name if named else "")


def _results(steps: Sequence[Step], answer_n: int) -> Iterable[CallResult]:
    for step in steps:
        if step.call is not None and step.answer_n == answer_n:
            yield CallResult(call=step.call.id, tool=step.call.tool, result=step.result or _NO_RESULT)
