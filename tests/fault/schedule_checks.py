"""Checks after every schedule, on the store's transitions, the tools' runs and the shown messages."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from gateway.domain.ids import SessionId, SlotId, TurnId, WaitId
from gateway.domain.messages import Inbound
from gateway.domain.slots import Slot, SlotKind, SlotState
from gateway.domain.tools import ResultStatus
from gateway.domain.turns import ENDED, Lease, Turn, TurnKind, TurnState
from gateway.domain.waits import Pressed, PressResult, StartOutcome, WaitKind, WaitState

if TYPE_CHECKING:
    from tests.fault.schedule_machine import Act, Ran
    from tests.fault.schedule_people import Shown
    from tests.fault.schedule_rig import World

UNSAFE = frozenset({"trusted", "shell"})
ASKED = frozenset({"shell", "save"})
UNDER_A_LEASE = frozenset(
    {"park", "plan", "finish_turn", "open_waits", "start_step", "finish_step", "open_slot", "renew"}
)
STOPS_WITHIN_S = 1.0
LONG_AWAY_S = 200
TAKEN_BACK_WITHIN_S = 5.0
"""On a platform that just does what it is asked to."""
HEARS_WITHIN_S = 6.5
"""When wake-ups may be lost: a keeper looks every 5 s."""


def complaints(world: World) -> list[str]:
    """Everything that does not hold."""
    checks: Sequence[Callable[[World], Iterator[str]]] = (
        _nothing_is_left,
        _nothing_runs_twice,
        _what_was_allowed_runs,
        _nothing_runs_without_its_start,
        _nothing_starts_after_a_stop,
        _nothing_is_allowed_after_a_stop,
        _what_was_not_harmed_is_known,
        _stale_holders_write_nothing,
        _messages_are_answered,
        _turns_go_in_order,
        _slots_are_shown,
    )
    return [complaint for check in checks for complaint in check(world)]


def _nothing_is_left(world: World) -> Iterator[str]:
    for wait in (row.wait for row in world.store.waits.values()):
        if wait.state in (WaitState.OPEN, WaitState.APPROVED) and wait.kind is not WaitKind.TIMER:
            yield f"wait {wait.id} is {wait.state} at the end"
    yield from world.loop.troubles


def _starts(world: World) -> Iterator[tuple[Act, TurnId, int, WaitId | None]]:
    for act in world.acts:
        if act.what == "start_step" and act.outcome is StartOutcome.STARTED:
            lease, n, wait, _ = act.args
            yield act, lease.turn, n, wait


def _nothing_runs_twice(world: World) -> Iterator[str]:
    effects = Counter(ran.key for ran in world.ran if ran.tool in UNSAFE)
    yield from (f"step {key} ran {times} times" for key, times in effects.items() if times > 1)
    approved: Counter[WaitId] = Counter()
    for act in world.acts:
        if act.what == "press" and isinstance(act.outcome, Pressed) and act.outcome.result is PressResult.APPROVED:
            approved[act.args[1]] += 1
        if act.what == "start_step" and act.outcome is StartOutcome.STARTED and (wait := act.args[2]) is not None:
            approved[wait] -= 1
            if approved[wait] < 0:
                yield f"approval {wait} started a call without a decision, or a second one"


def _what_was_allowed_runs(world: World) -> Iterator[str]:
    """An approval that nobody used in five minutes was forgotten, unless a machine was away for long."""
    away_s = sum(until - begin for machine in world.machines for begin, until in machine.away)
    for wait in (row.wait for row in world.store.waits.values()):
        if wait.state is WaitState.EXPIRED and wait.decided_at is not None and away_s < LONG_AWAY_S:
            yield f"approval {wait.id} was given and never used"


def _nothing_runs_without_its_start(world: World) -> Iterator[str]:
    began: dict[str, list[Act]] = defaultdict(list)
    consumed: set[str] = set()
    for act, turn, n, wait in _starts(world):
        began[f"{turn}/{n}"].append(act)
        if wait is not None:
            consumed.add(f"{turn}/{n}")
    for ran in world.ran:
        if not any(act.machine == ran.machine and act.life == ran.life and act.at <= ran.at for act in began[ran.key]):
            yield f"{ran.tool} of {ran.key} ran on {ran.machine}#{ran.life}, which did not start it"
        if ran.tool in ASKED and ran.key not in consumed:
            yield f"{ran.tool} of {ran.key} ran without an approval"
    yield from _late(world)


def _late(world: World) -> Iterator[str]:
    """Yield calls that ran although their result was stored, by a machine that was there to know."""
    finished: dict[str, float] = {}
    for act in world.acts:
        if act.what == "finish_step" and act.outcome is True:
            finished.setdefault(f"{act.args[0].turn}/{act.args[1]}", act.at)
    for ran in world.ran:
        at = finished.get(ran.key)
        if at is not None and ran.at > at and _there_for(world, ran, at) > _told_within_s(world):
            yield f"{ran.tool} of {ran.key} ran at {ran.at:.3f} s, after its result at {at:.3f} s"


def _there_for(world: World, ran: Ran, since: float) -> float:
    """Seconds that the machine of a run was there and had a store, since then."""
    [machine] = [one for one in world.machines if one.name == ran.machine]
    gone = sum(max(0.0, min(until, ran.at) - max(begin, since)) for begin, until in machine.away)
    return ran.at - since - gone


def _told_within_s(world: World) -> float:
    return HEARS_WITHIN_S if world.lossy else STOPS_WITHIN_S


def _nothing_starts_after_a_stop(world: World) -> Iterator[str]:
    for act, turn, n, _ in _starts(world):
        stop = world.stopped.get(turn)
        if stop is not None and stop.n < act.n:
            yield f"call {turn}/{n} was started after its turn was stopped"
    for ran in world.ran:
        stop = world.stopped.get(TurnId(ran.key.partition("/")[0]))
        if stop is not None and ran.at > stop.at and _there_for(world, ran, stop.at) > _told_within_s(world):
            yield f"{ran.tool} of {ran.key} ran at {ran.at:.3f} s, its turn was stopped at {stop.at:.3f} s"


def _nothing_is_allowed_after_a_stop(world: World) -> Iterator[str]:
    for act in world.acts:
        if act.what == "press" and isinstance(act.outcome, Pressed) and act.outcome.wait is not None:
            stop = world.stopped.get(act.outcome.wait.turn)
            if stop is not None and stop.n < act.n and act.outcome.result in (PressResult.APPROVED, PressResult.DENIED):
                yield f"{act.outcome.wait.id} was decided after its turn was stopped"


def _what_was_not_harmed_is_known(world: World) -> Iterator[str]:
    if len(world.machines) > 1 or any(machine.harmed - {"no store"} for machine in world.machines):
        return
    for row in world.store.turns.values():
        for step in world.store.view_of(row.turn.id).steps:
            if step.result is not None and step.result.status is ResultStatus.UNKNOWN:
                yield f"nobody knows what became of {row.turn.id}/{step.n}, and no machine was harmed"


def _stale_holders_write_nothing(world: World) -> Iterator[str]:
    newest: dict[TurnId, int] = {}
    for act in world.acts:
        if act.what == "claim" and not isinstance(act.outcome, Exception):
            for one in act.outcome:
                if one.lease.fence <= newest.get(one.lease.turn, 0):
                    yield f"the fence of {one.lease.turn} did not grow"
                newest[one.lease.turn] = one.lease.fence
        elif act.what in UNDER_A_LEASE and not isinstance(act.outcome, Exception):
            lease: Lease = act.args[0]
            if lease.fence != newest.get(lease.turn):
                yield f"{act.machine}#{act.life} did {act.what} to {lease.turn} under a lease that was lost"


def _messages_are_answered(world: World) -> Iterator[str]:
    stored = Counter(one.received.message.event_key for one in world.store.messages.values())
    for event in world.platform.taken:
        if isinstance(event, Inbound) and stored[event.event_key] != 1:
            yield f"message {event.event_key} ({event.text}) is stored {stored[event.event_key]} times"
    slots: dict[TurnId | None, list[Slot]] = defaultdict(list)
    for row in world.store.slots.values():
        if row.slot.kind is SlotKind.ANSWER and row.slot.text:
            slots[row.slot.turn].append(row.slot)
    for row in world.store.turns.values():
        if row.turn.state in ENDED:
            yield from _turn_is_answered(world, row.turn, slots[row.turn.id])
    replies = sum(row.slot.text in REPLIES for row in world.store.slots.values() if row.slot.kind is SlotKind.REPLY)
    stops = sum(one.received.message.text == "/stop" for one in world.store.messages.values())
    if replies != stops:
        yield f"{stops} times /stop was said, and answered {replies} times"


REPLIES = ("Stopped.", "Nothing is running or waiting here.")


def _turn_is_answered(world: World, turn: Turn, slots: Sequence[Slot]) -> Iterator[str]:
    view = world.store.view_of(turn.id)
    whole = [step.answer for step in view.steps if step.answer is not None and not step.answer.calls]
    said = [slot for slot in slots if slot.text != "Working."]
    match turn.state:
        case TurnState.DONE:
            if len(said) != len(whole) or not whole:
                yield f"{turn.id} has {len(whole)} answers and shows {[slot.text for slot in said]}"
            elif turn.kind is TurnKind.MODEL:
                words = said[-1].text.split()
                lost = [one.message.text for one in view.inputs if one.message.text not in words]
                yield from (f"{text} is not answered in {turn.id}" for text in lost)
        case _:
            last = [slot for slot in said if slot.n is None]
            told = turn.state is TurnState.STOPPED and world.store.turns[turn.id].stopped_text == ""
            if len(last) != 1 and not (told and not last):  # the reply to /stop says it
                yield f"{turn.id} is {turn.state} and says {[slot.text for slot in said]}"
    if any(one.given is None for one in view.inputs):
        yield f"a message of {turn.id} was not given"
    if any(step.call is not None and step.result is None for step in view.steps):
        yield f"a call of {turn.id} has no result"


def _turns_go_in_order(world: World) -> Iterator[str]:
    lanes: dict[SessionId, list[Turn]] = defaultdict(list)
    for row in world.store.turns.values():
        if row.turn.kind is TurnKind.MODEL:
            lanes[row.turn.session].append(row.turn)
    for turns in lanes.values():
        for earlier, later in pairwise(turns):
            if later.started_at is None:
                continue
            if earlier.ended_at is None or earlier.ended_at > later.started_at:
                yield f"{later.id} began before {earlier.id} had ended"


def _slots_are_shown(world: World) -> Iterator[str]:
    shown: dict[SlotId, list[Shown]] = defaultdict(list)
    for one in world.platform.shown:
        shown[one.slot].append(one)
    for row in world.store.slots.values():
        slot, seen = row.slot, shown[row.slot.id]
        unmarked = sum(one.new and not one.marked for one in seen)
        if unmarked > 1:
            yield f"slot {slot.id} ({slot.kind}) appeared {unmarked} times unmarked"
        if slot.state is not SlotState.SENT or slot.conversation.channel != "telegram":
            continue
        last = [one for one in seen if (one.id,) == slot.message_ids][-1:]
        if not last or last[0].version != slot.version or last[0].partial:
            yield f"slot {slot.id} ({slot.kind}) is at version {slot.version} and shows {last}"
        if not any(machine.away for machine in world.machines):
            yield from _goes_back(world, slot, [one for one in seen if (one.id,) == slot.message_ids])


def _goes_back(world: World, slot: Slot, seen: Sequence[Shown]) -> Iterator[str]:
    """An older version after a newer one. Of an edit that was not answered, or was on its way when its machine died,
    nobody can know: what is newer is shown once more. A beginning may meet the end that another machine sends.
    """
    for at, (earlier, later) in enumerate(pairwise(seen)):
        gone_at = world.gone_at.get(later.by, math.inf)
        if later.version >= earlier.version or gone_at < later.at or later.doubtful:
            continue
        if not later.partial or (len(world.machines) == 1 and later.by not in world.gone_at):
            yield f"slot {slot.id} ({slot.kind}) went back from version {earlier.version} to {later.version}"
        until = later.at + TAKEN_BACK_WITHIN_S
        in_time = any(one.version >= earlier.version and one.at <= until for one in seen[at + 2 :])
        if gone_at > until and not in_time and world.profile.moods == type(world.profile.moods)():
            yield f"slot {slot.id} ({slot.kind}) showed version {later.version} over {earlier.version} for long"
