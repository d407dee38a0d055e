"""Fences: two daemons on one store, and one of them is suspended past its lease. It may change nothing any more."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

from gateway.domain.events import SESSIONS, Changed, LiveEvent, LookAgain, SlotsDue, TurnsDue
from gateway.domain.ids import OwnerName, main_session
from gateway.domain.slots import Slot, SlotKind
from gateway.domain.steps import Step
from gateway.domain.turns import ENDED, Turn, TurnState
from gateway.domain.waits import PressResult, Verb, Wait, WaitState
from gateway.system.clock import SystemClock
from tests.fault.rig import lines_of, marked, until
from tests.fault.two import Pair, pair
from tests.support.clock import FakeClock
from tests.support.model_server import Reply, ScriptedModel
from tests.support.patience import PATIENCE_S
from tests.support.proof import RAN_TWICE, figure

MAIN = main_session(OwnerName("owner"))
LEASE_S = 15
STALE = "writes accepted from a machine that had lost its lease"
MODEL = '[model]\nname = "openai:scripted"\nbase_url = "{url}"\n'


async def ended(two: Pair, turns: int = 1, owner: str = "owner", within_s: float = PATIENCE_S) -> list[Turn]:
    """Wait until so many turns of a session have ended."""
    async with asyncio.timeout(within_s):
        while True:
            found = [item for item in await two.items(owner) if isinstance(item, Turn)]
            if len(found) == turns and all(turn.state in ENDED for turn in found):
                return found
            await asyncio.sleep(0.02)


async def test_suspended_holder_writes_nothing_and_loses_its_tool(tmp_path: Path) -> None:
    """The other takes the turn and tells that the outcome is unknown; awake again, the first one only cleans up."""
    clock = FakeClock()
    marker = f"8{time.monotonic_ns() % 10**9}"
    async with pair(tmp_path, clock) as two:
        await two.say(0, f"/shell echo x >> ran; sleep {marker}")
        assert await two.press(1, await two.asked()) is PressResult.APPROVED
        await until(lambda: marked(f"sleep {marker}"))
        stale = two.holder()
        stale.suspend()
        clock.advance(LEASE_S + 1)
        [turn] = await ended(two)
        assert turn.state is TurnState.DONE
        assert marked(f"sleep {marker}") != {}
        before = await two.rev(MAIN)
        stale.wake()
        await until(lambda: not marked(f"sleep {marker}"), within_s=8)
        await asyncio.sleep(0.3)
        figure("F03", STALE, await two.rev(MAIN) - before, 0, of=1)
        [step] = [item for item in await two.items() if isinstance(item, Step) and item.call]
        assert step.result is not None
        assert step.result.status == "unknown"
        ran = lines_of(tmp_path, "ran")
        figure("F03", RAN_TWICE, len(ran) - 1, 0, of=1)
        assert ran == ["x"]


async def test_a_tool_that_ended_meanwhile_is_not_stored(tmp_path: Path) -> None:
    """The command of the suspended one ends by itself; its result comes too late."""
    clock = FakeClock()
    async with pair(tmp_path, clock) as two:
        await two.say(0, "/shell echo x >> ran; sleep 0.5; echo late")
        await two.press(0, await two.asked())
        await until(lambda: lines_of(tmp_path, "ran"))
        stale = two.holder()
        stale.suspend()
        clock.advance(LEASE_S + 1)
        await ended(two)
        before = await two.rev(MAIN)
        await asyncio.sleep(0.6)
        stale.wake()
        await asyncio.sleep(1)
        figure("F03", STALE, await two.rev(MAIN) - before, 0, of=1)
        answers = [item for item in await two.items() if isinstance(item, Slot) and item.kind is SlotKind.ANSWER]
        assert len(answers) == 1
        assert "outcome unknown" in answers[0].text.lower()


async def test_a_models_late_answer_is_not_stored(tmp_path: Path) -> None:
    """Suspended while the model answers: the other asks again, and only its answer is shown."""
    clock = FakeClock()
    replies = [Reply(text="The first answer.", think_s=0.5), Reply(text="The second answer.")]
    async with ScriptedModel(replies) as model, pair(tmp_path, clock, MODEL.format(url=model.base_url)) as two:
        await two.say(0, "hello")
        await model.until(lambda: len(model.requests) == 1)
        [stale] = [one for one in two.machines if one.way.answered["claim"]]
        stale.suspend()
        clock.advance(LEASE_S + 1)
        await ended(two)
        await asyncio.sleep(0.6)
        stale.wake()
        await asyncio.sleep(1)
        answers = [item for item in await two.items() if isinstance(item, Slot) and item.kind is SlotKind.ANSWER]
        assert [answer.text for answer in answers] == ["The second answer."]
        assert len(model.requests) == 2


async def test_turn_of_a_stopping_node_is_taken_over_at_once(tmp_path: Path) -> None:
    """An orderly stop in the middle of an answer: the other is asked at once, long before a lease would run out."""
    replies = [Reply(text="one two three", chunks=3, delay_s=5), Reply(text="Here.")]
    async with ScriptedModel(replies) as model, pair(tmp_path, SystemClock(), MODEL.format(url=model.base_url)) as two:
        await two.say(0, "hello")
        await model.until(lambda: len(model.requests) == 1)
        [first] = [one for one in two.machines if one.way.answered["claim"]]
        first.app.daemon.stop()
        await ended(two, within_s=5)
        answers = [item for item in await two.items() if isinstance(item, Slot) and item.kind is SlotKind.ANSWER]
        assert [answer.text for answer in answers] == ["Here."]


async def test_one_turn_at_a_time_and_both_work(tmp_path: Path) -> None:
    """Three sessions, ten messages each, to either machine, of which one leaves: in order, one at a time, once each."""
    owners = ("ann", "bob", "cat")
    config = "[owners]\n" + "".join(f"{name} = []\n" for name in owners)
    config += '[sessions]\nmessage_while_running = "queue"\n'
    async with ScriptedModel() as model:
        async with pair(tmp_path, SystemClock(), config + MODEL.format(url=model.base_url)) as two:
            for n in range(10):
                if n == 5:
                    await model.until(lambda: len(model.requests) > 3)
                    [first, *_] = [one for one in two.machines if one.way.answered["claim"]]
                    first.app.daemon.stop()
                for owner in owners:
                    await two.say(n % 2, f"{owner} {n}", owner)
            for owner in owners:
                turns = await ended(two, 10, owner, within_s=30)
                for earlier, later in pairwise(turns):
                    assert earlier.ended_at is not None
                    assert later.started_at is not None
                    assert earlier.ended_at <= later.started_at
                answers = [item for item in await two.items(owner) if isinstance(item, Slot)]
                assert [answer.text for answer in answers] == [f"You said: {owner} {n}" for n in range(10)]
            assert all(one.way.answered["claim"] > 0 for one in two.machines)
        assert 30 <= len(model.requests) <= 33  # what was being answered when it left was asked again


async def test_a_press_counts_once_wherever_it_arrives(tmp_path: Path) -> None:
    """Two hundred presses, half on each machine: one wins, one execution."""
    async with pair(tmp_path, SystemClock()) as two:
        await two.say(0, "/shell echo x >> ran")
        wait = await two.asked()
        verbs = (Verb.ONCE, Verb.ONCE, Verb.DENY)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(two.press(n % 2, wait, verbs[n % 3])) for n in range(200)]
        told = Counter(task.result() for task in tasks)
        await ended(two)
        assert told[PressResult.APPROVED] + told[PressResult.DENIED] == 1
        figure("F26", "presses beyond one that counted", 199 - told[PressResult.ALREADY], 0, of=200)
        assert told[PressResult.ALREADY] == 199
        [stored] = [item for item in await two.items() if isinstance(item, Wait) and item.approval]
        assert stored.state is (WaitState.CONSUMED if told[PressResult.APPROVED] else WaitState.DENIED)
        assert len(lines_of(tmp_path, "ran")) == told[PressResult.APPROVED]


async def test_an_approval_runs_only_where_its_files_are(tmp_path: Path) -> None:
    """It was given for the files of one machine; the other one takes the turn, and would run it on files of its own."""
    async with pair(tmp_path, SystemClock(), shares_files=False) as two:
        await two.say(0, "/shell echo x >> ran")
        wait = await two.asked()
        [first] = [one for one in two.machines if one.way.answered["open_waits"]]
        await until(lambda: [row.turn.state for row in two.store.turns.values()] == [TurnState.PARKED])
        first.suspend()
        other = 1 - two.machines.index(first)
        assert (await two.press(other, wait)) is PressResult.APPROVED
        await ended(two, within_s=5)
        [step] = [item for item in await two.items() if isinstance(item, Step) and item.result]
        assert step.result is not None
        assert (step.result.code, "another machine" in step.result.hint) == ("elsewhere", True)
        assert lines_of(tmp_path, "ran") == []


async def test_the_same_event_at_both_is_one_message(tmp_path: Path) -> None:
    """A platform that delivers to both: one turn, one answer."""
    async with pair(tmp_path, SystemClock()) as two:
        async with asyncio.TaskGroup() as group:
            for n in range(20):
                group.create_task(two.say(n % 2, "hello", key="the-same-event"))
        await ended(two, 1)
        await asyncio.sleep(0.3)
        assert len([item for item in await two.items() if isinstance(item, Slot)]) == 1


async def test_subscriber_that_missed_wake_ups_reads_again(tmp_path: Path) -> None:
    """A machine that was away hears of no change from then, and is told that it missed some. Each looks for itself."""
    async with pair(tmp_path, FakeClock()) as two:
        one, other = (machine.way.event_bus for machine in two.machines)
        async with one.subscribe(SESSIONS) as heard, other.subscribe(SESSIONS) as missed:
            two.machines[1].suspend()
            await two.say(0, "hello")
            assert isinstance(await anext(heard), Changed)
            two.machines[1].wake()
            assert await anext(missed) == LookAgain()
            other.publish_here(SESSIONS, TurnsDue())
            one.publish(SESSIONS, SlotsDue())
            assert TurnsDue() in [event async for event in until_event(missed, SlotsDue())]
            assert TurnsDue() not in [event async for event in until_event(heard, SlotsDue())]


async def until_event(events: AsyncIterator[LiveEvent], last: LiveEvent) -> AsyncIterator[LiveEvent]:
    """Yield events up to `last`."""
    async for event in events:
        yield event
        if event == last:
            return
