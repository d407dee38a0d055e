"""Judge of a fault: compares the views of people, platform and model with the rows of the store afterwards.

It knows nothing of how the daemon works. Every rule is a promise that holds whenever and wherever the daemon died.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gateway.domain.messages import Received
from gateway.domain.slots import Slot, SlotKind, SlotState
from gateway.domain.steps import Step, StepKind, StepState
from gateway.domain.tools import ResultStatus
from gateway.domain.turns import ENDED, Turn
from gateway.domain.views import Item
from gateway.domain.waits import Wait, WaitKind, WaitState
from gateway.policy.audit import verify
from gateway.ports import Audit
from tests.support.proof import LOST, RAN_TWICE, TWICE, figure

Json = dict[str, Any]
FINAL = frozenset(WaitState) - {WaitState.OPEN, WaitState.APPROVED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Observations from outside, and the rows of the session."""

    said: Sequence[str]
    """Messages of people, each text once, in the order that must be kept."""
    ran: Mapping[str, int]
    """By command: how often its effect was seen."""
    frames: Sequence[Json]
    """The platform's log."""
    asked: Sequence[Json]
    """The bodies of the questions to the model."""
    page: Sequence[Json]
    """The rows of a page that stayed open."""
    items: Sequence[Item]
    in_flight: int = 1
    """Creates that may have been under way when it died."""

    def of(self, kind: type[Any]) -> list[Any]:
        """Stored rows of a kind, in order."""
        return [item for item in self.items if isinstance(item, kind)]


def tell(fault: str, evidence: Evidence) -> None:
    """State how many messages, commands and calls there were, and how many of them fared otherwise than promised."""
    said = Counter(evidence.said)
    received: list[Received] = evidence.of(Received)
    got = Counter(one.message.text for one in received if one.turn is not None and one.given is not None)
    figure(fault, LOST, (said - got).total(), 0, of=said.total())
    figure(fault, TWICE, (got - said).total() + _answered_twice(evidence), 0, of=said.total())
    if evidence.ran:
        figure(fault, RAN_TWICE, sum(count > 1 for count in evidence.ran.values()), 0, of=len(evidence.ran))
    calls = [step for step in _steps(evidence) if step.call is not None]
    figure(fault, "calls left without a result", sum(step.result is None for step in calls), 0, of=len(calls))


def tell_shown(fault: str, evidence: Evidence) -> None:
    """State how often a platform was given the same thing to show again: without a mark, and with one."""
    creates = [frame for frame in evidence.frames if frame["op"] == "send"]
    first = {frame["slot"]: number for number, frame in reversed(list(enumerate(creates)))}
    again = [frame for number, frame in enumerate(creates) if first[frame["slot"]] != number]
    figure(fault, "shown twice without a mark", sum(not frame["repeated"] for frame in again), 0, of=len(first))
    marked = sum(frame["repeated"] for frame in creates)
    figure(fault, "shown again and marked, of what was on its way, at one death", marked, evidence.in_flight)


def _answered_twice(evidence: Evidence) -> int:
    """Return the number of answers beyond one for each model answer of a turn."""
    answers = Counter((slot.turn, slot.n) for slot in evidence.of(Slot) if slot.kind is SlotKind.ANSWER)
    return sum(count - 1 for count in answers.values())


def judge(evidence: Evidence) -> None:
    """Raise `AssertionError` for the first promise that was broken."""
    nothing_is_lost(evidence)
    order_is_kept(evidence)
    every_turn_ended_with_one_answer(evidence)
    every_call_has_one_result(evidence)
    what_was_allowed_ran_once(evidence)
    every_slot_is_shown_once(evidence)
    the_model_was_asked_properly(evidence)
    the_page_shows_what_is_stored(evidence)


async def the_audit_is_whole(store: Audit) -> None:
    """Every call that ever started in this store has its row, and no row was changed, removed or moved."""
    found = await verify(store)
    if found.broken is not None:
        sys.stdout.write(f"{found.broken.says}\n")
    figure("F30", "calls that started without a row of the audit", found.broken is not None, 0, of=found.calls)


def nothing_is_lost(evidence: Evidence) -> None:
    """Every message is stored once, belongs to a turn and was given to it."""
    received: list[Received] = evidence.of(Received)
    assert Counter(one.message.text for one in received) == Counter(evidence.said)
    assert all(one.turn is not None and one.given is not None for one in received), received


def order_is_kept(evidence: Evidence) -> None:
    """Messages are stored as they were said; the model turns of a session ran one after the other."""
    received: list[Received] = evidence.of(Received)
    assert [one.message.text for one in received] == list(evidence.said)
    turns: list[Turn] = [turn for turn in evidence.of(Turn) if turn.kind.value == "model"]
    for earlier, later in pairwise(turns):
        assert earlier.ended_at is not None
        assert later.started_at is not None
        assert earlier.ended_at <= later.started_at


def every_turn_ended_with_one_answer(evidence: Evidence) -> None:
    """No turn is left; each has exactly one slot with its last words."""
    slots: list[Slot] = evidence.of(Slot)
    turns: list[Turn] = evidence.of(Turn)
    assert {one.turn for one in evidence.of(Received)} == {turn.id for turn in turns}
    for turn in turns:
        assert turn.state in ENDED, turn
        last = max(step.n for step in _steps(evidence) if step.turn == turn.id and step.kind is StepKind.MODEL)
        answers = [slot for slot in slots if slot.turn == turn.id and slot.kind is SlotKind.ANSWER]
        assert len([slot for slot in answers if slot.n == last]) == 1, answers


def every_call_has_one_result(evidence: Evidence) -> None:
    """Each planned call is finished, and each wait is decided for good."""
    for step in _steps(evidence):
        assert step.state is StepState.FINISHED, step
        assert step.call is None or step.result is not None
    for wait in _approvals(evidence):
        assert wait.state in FINAL, wait


def what_was_allowed_ran_once(evidence: Evidence) -> None:
    """By the result: `ok` ran once, `unknown` at most once, everything else never."""
    waits = {(wait.turn, wait.n): wait for wait in _approvals(evidence)}
    for step in (step for step in _steps(evidence) if step.call is not None and step.result is not None):
        wait = waits[step.turn, step.n]
        assert wait.approval is not None
        times = evidence.ran[str(wait.approval.action.arguments["command"])]
        match step.result.status if step.result else None:
            case ResultStatus.OK:
                assert (times, wait.state) == (1, WaitState.CONSUMED), step
            case ResultStatus.UNKNOWN:
                assert times <= 1, step
                assert wait.state is WaitState.CONSUMED
            case _:
                assert (times, wait.state) != (1, WaitState.CONSUMED), step
                assert times == 0, step


def every_slot_is_shown_once(evidence: Evidence) -> None:
    """Each slot was created once on the platform, and repeated, marked, for what was in flight at most."""
    repeats = 0
    creates = [frame for frame in evidence.frames if frame["op"] == "send"]
    for slot in evidence.of(Slot):
        assert slot.state is SlotState.SENT, slot
        mine = [frame for frame in creates if frame["slot"] == slot.id]
        if slot.conversation.channel != "web":
            assert slot.sent_version == slot.version
            assert mine, slot
        assert all(frame["repeated"] for frame in mine[1:]), mine
        repeats += sum(1 for frame in mine if frame["repeated"])
        assert len(mine) <= 2, mine
    assert repeats <= evidence.in_flight


def the_model_was_asked_properly(evidence: Evidence) -> None:
    """In every question each answer's calls are followed by exactly their results, in call order."""
    for body in evidence.asked:
        owed: list[str] = []
        for message in body["messages"]:
            if message["role"] == "tool":
                assert message["tool_call_id"] == owed.pop(0)
                continue
            assert owed == [], body["messages"]
            calls: list[Json] = message.get("tool_calls") or []
            owed = [call["id"] for call in calls]
        assert owed == []


def the_page_shows_what_is_stored(evidence: Evidence) -> None:
    """The page that stayed open over the fault has the last state of everything that it shows."""
    page = {(row["type"], row["id"]): row for row in evidence.page}
    for turn in evidence.of(Turn):
        assert page["turn", turn.id]["state"] == turn.state
    for wait in _approvals(evidence):
        assert page["approval", wait.id]["state"] == wait.state
    for step in _steps(evidence):
        shown = page["step", f"{step.turn}/{step.n}"]
        assert shown["state"] == step.state
        assert step.result is None or shown["result"]["status"] == step.result.status
    texts = [row["text"] for row in evidence.page if row["type"] == "message"]
    assert Counter(texts) == Counter(evidence.said)


def _steps(evidence: Evidence) -> list[Step]:
    return evidence.of(Step)


def _approvals(evidence: Evidence) -> list[Wait]:
    return [wait for wait in evidence.of(Wait) if wait.kind is WaitKind.APPROVAL]
