"""A machine that does anything a gateway could do, in any order, to two stores at once.

After each step both must show the same, and the promises of the store must hold. `DRAGOMAN_STATE_MACHINE_STEPS` sets how
many steps are made in all (2,000 by default, the same ones each time; with the variable, others each time).
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from gateway.errors import LeaseLost
from gateway.model.ids import NodeId, Principal, TurnId, WaitId
from gateway.model.messages import Received
from gateway.model.sessions import ENDED, Lease, TurnKind, TurnState
from gateway.model.slots import Slot, SlotId, SlotState
from gateway.model.tools import Step, StepState, ToolResult
from gateway.model.views import TurnView
from gateway.model.waits import Start, Verdict, Wait, WaitKind, WaitState
from gateway.ports import ControlEffect, Store
from gateway.store import open_store
from tests.contract.world import SESSIONS, Snapshot, World
from tests.support.clock import FakeClock
from tests.support.makers import (
    ANN,
    ANN_TELEGRAM,
    BOB,
    CHAT,
    OTHER_CHAT,
    PAGE,
    answer,
    approve,
    card,
    control,
    copy_timer,
    deny,
    drop,
    inbound,
    new_wait,
    press,
    refuse,
    result,
    said,
    seconds,
)

STEPS = int(os.environ.get("DRAGOMAN_STATE_MACHINE_STEPS", "2000"))
STEPS_A_RUN = 50
NODES = (NodeId("here#1"), NodeId("here#2"), NodeId("there#1"))
FINAL = frozenset(WaitState) - {WaitState.OPEN, WaitState.APPROVED}
VERDICTS = (approve(), approve(), deny(), deny(withdraw_siblings=True), refuse())
ENDS = (TurnState.DONE, TurnState.DONE, TurnState.STOPPED, TurnState.FAILED)

back = st.integers(0, 3)
nodes = st.sampled_from(NODES)
places = st.sampled_from((CHAT, OTHER_CHAT, PAGE))


class StoreMachine(RuleBasedStateMachine):
    """Two stores, one clock, one trace."""

    def __init__(self) -> None:
        """Open both."""
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = TemporaryDirectory()
        self.clock = FakeClock()
        self.numbers = count()
        urls = ("memory://", f"sqlite://{Path(self.folder.name) / 'dragoman.db'}")
        self.worlds = [self._world(url) for url in urls]
        self.seen = Seen()

    def _world(self, url: str) -> World:
        async def begin() -> World:
            def again() -> Store:
                return open_store(url, self.clock)

            return World(again, again())

        return self.runner.run(begin())

    def teardown(self) -> None:
        """Close both."""

        async def end() -> None:
            for world in self.worlds:
                await world.store.close()

        self.runner.run(end())
        self.runner.close()
        self.folder.cleanup()

    def both(self, doing: Callable[[World], Awaitable[object]]) -> None:
        """Do the same to both, compare what came of it and all that can be read, check the promises."""

        async def do() -> None:
            outcomes: list[str] = []
            snapshots: list[Snapshot] = []
            for world in self.worlds:
                try:
                    outcome = await doing(world)
                except LeaseLost:
                    outcome = "lease lost"
                outcomes.append(world.said(outcome))
                snapshots.append(await world.snapshot())
            assert outcomes[0] == outcomes[1]
            assert snapshots[0].text == snapshots[1].text
            self.seen.look(snapshots[1])

        self.runner.run(do())

    def leased(self, which: int, doing: Callable[[World, Lease], Awaitable[object]]) -> None:
        """Do something under one of the last leases."""

        async def do(world: World) -> object:
            lease = world.lease(which)
            return await doing(world, lease) if lease is not None else None

        self.both(do)

    def _key(self) -> str:
        return f"e{next(self.numbers)}"

    # --- ingress ----------------------------------------------------------------------------

    @rule(
        way=st.sampled_from(SESSIONS),
        who=st.sampled_from((ANN_TELEGRAM, BOB)),
        where=places,
        kind=st.sampled_from((TurnKind.MODEL, TurnKind.MODEL, TurnKind.COMMAND)),
        steer=st.booleans(),
    )
    def deliver(self, way: Any, who: Principal, where: Any, kind: TurnKind, steer: bool) -> None:
        """A new message."""
        message = inbound(who=who, where=where, key=self._key())
        self.seen.accepted.add(message.event_key)

        async def do(world: World) -> object:
            world.messages.append(message)
            return await world.store.accept(way, message, kind, steer=steer, say_if_waiting="Wait.")

        self.both(do)

    @rule(which=back, way=st.sampled_from(SESSIONS))
    def duplicate(self, which: int, way: Any) -> None:
        """A message that was delivered before, as any kind of event."""

        async def do(world: World) -> object:
            message = world.message(which)
            if message is None:
                return None
            accepted = await world.store.accept(way, message, TurnKind.MODEL, steer=True, say_if_waiting="Wait.")
            return (
                accepted,
                await world.store.drop(message, drop(), ""),
                await world.store.control(way, message, control()),
            )

        self.both(do)

    @rule(
        way=st.sampled_from(SESSIONS),
        effect=st.sampled_from((ControlEffect.STOP, ControlEffect.STOP, ControlEffect.RESET, ControlEffect.NONE)),
    )
    def command(self, way: Any, effect: ControlEffect) -> None:
        """/stop, /new, /status."""
        message = inbound("/cmd", key=self._key())
        self.seen.accepted.add(message.event_key)
        self.both(lambda world: world.store.control(way, message, control(effect)))

    @rule(which=st.integers(0, 7), verdict=st.sampled_from(VERDICTS), again=st.booleans())
    def button(self, which: int, verdict: Verdict, again: bool) -> None:
        """A press on one of the latest approvals, sometimes delivered twice."""
        wait = self.seen.wait(which)
        one = press(key=self._key())
        for _ in range(1 + again):
            self.both(lambda world: world.store.press(one, wait, verdict))

    # --- lanes ------------------------------------------------------------------------------

    @rule(node=nodes)
    def claim(self, node: NodeId) -> None:
        """A runner looks for work."""

        async def do(world: World) -> object:
            lease = await world.store.claim(node)
            if lease is not None:
                world.leases.append(lease)
                self.seen.claimed(world, lease)
            return lease

        self.both(do)

    @rule(which=back)
    def renew(self, which: int) -> None:
        """A holder says that it lives."""
        self.leased(which, lambda world, lease: world.store.renew(lease))

    @rule(which=back)
    def park(self, which: int) -> None:
        """A holder has nothing to run."""
        self.leased(which, lambda world, lease: world.store.park(lease))

    @rule(which=back)
    def release(self, which: int) -> None:
        """A holder shuts down."""
        self.leased(which, lambda world, lease: world.store.release(lease))

    @rule(which=back, state=st.sampled_from(ENDS), give=st.booleans(), where=places)
    def finish_turn(self, which: int, state: TurnState, give: bool, where: Any) -> None:
        """A holder ends its turn; what was said on the page has a timer."""
        slot = SlotId(f"said-{next(self.numbers)}")
        timers = [copy_timer(slot, expires_at=self.clock.now() + seconds(30))] if where == PAGE else []

        async def do(world: World, lease: Lease) -> object:
            given = [received.id for received in (await world.store.turn(lease.turn)).inputs] if give else []
            slots = [said(where=where, slot=slot)]
            return await world.store.finish_turn(lease, state, answer=last, given=given, slots=slots, timers=timers)

        last = answer()
        self.leased(which, do)

    # --- steps ------------------------------------------------------------------------------

    @rule(which=back, calls=st.integers(0, 3), give=st.booleans())
    def plan(self, which: int, calls: int, give: bool) -> None:
        """The model answered."""
        planned = answer(calls=calls)

        async def do(world: World, lease: Lease) -> object:
            inputs = (await world.store.turn(lease.turn)).inputs
            given = [received.id for received in inputs if received.given is None] if give else []
            return await world.store.plan(lease, planned, given=given, slots=[])

        self.leased(which, do)

    @rule(which=back, only_planned=st.sampled_from((True, True, True, False)), ttl_s=st.sampled_from((10, 60, 3600)))
    def open_waits(self, which: int, only_planned: bool, ttl_s: int) -> None:
        """Its calls are asked about, now and then also those that must not be."""
        until = self.clock.now() + seconds(ttl_s)
        number = next(self.numbers)

        async def do(world: World, lease: Lease) -> object:
            steps = await world.steps(lease)
            chosen = [step for step in steps if step.state is StepState.PLANNED or not only_planned][:3]
            waits = [new_wait(step.n, expires_at=until, id=WaitId(f"w{number}-{step.n}")) for step in chosen]
            slot = card(*(wait.id for wait in waits), slot=SlotId(f"card-{number}"))
            return await world.store.open_waits(lease, waits, [slot]) if waits else None

        self.leased(which, do)

    @rule(which=back, call=st.integers(0, 5), asked=st.booleans(), right=st.sampled_from((True, True, True, False)))
    def start_step(self, which: int, call: int, asked: bool, right: bool) -> None:
        """A call is begun, with its newest wait or without one."""

        async def do(world: World, lease: Lease) -> object:
            steps = await world.steps(lease)
            if not steps:
                return None
            step = steps[-1 - call % len(steps)]
            waits = [wait for wait in (await world.store.turn(lease.turn)).waits if wait.n == step.n]
            wait = waits[-1] if waits and asked else None
            start = await world.start(lease, step, wait.id if wait else None, right=right)
            self.seen.started(world, lease, step, wait, start)
            return start

        self.leased(which, do)

    @rule(which=back, call=st.integers(0, 5))
    def finish_step(self, which: int, call: int) -> None:
        """A call has its result."""

        async def do(world: World, lease: Lease) -> object:
            steps = await world.steps(lease)
            step = steps[-1 - call % len(steps)] if steps else None
            return await world.store.finish_step(lease, step.n, result()) if step else None

        self.leased(which, do)

    # --- time and machines ------------------------------------------------------------------

    @rule(by=st.sampled_from((0.5, 6, 16, 61, 301, 3600)))
    def advance(self, by: float) -> None:
        """Time passes."""
        self.clock.advance(by)

    @rule(what=st.sampled_from(("expire_waits", "reclaim", "reclaim", "fire_timers")))
    def sweep(self, what: str) -> None:
        """What time does."""
        self.both(lambda world: getattr(world.store, what)())

    @rule()
    def see_page(self) -> None:
        """The owner has the page open."""
        self.both(lambda world: world.store.saw_page(ANN))

    @rule(offer=st.booleans())
    def restart(self, offer: bool) -> None:
        """The daemon of this machine died: what was on disk is all there is; memory plays along."""

        async def do(world: World) -> object:
            if world is self.worlds[1]:
                await world.store.close()
                world.store = world.open()
            voided = await world.store.void_leases("here")
            return voided, await world.store.offer_again() if offer else 0

        self.both(do)

    # --- outbox -----------------------------------------------------------------------------

    @rule(node=nodes, limit=st.integers(1, 5))
    def claim_slots(self, node: NodeId, limit: int) -> None:
        """A sender looks for work."""

        async def do(world: World) -> object:
            slots = await world.store.claim_slots(node, ["telegram", "slack"], limit)
            world.claimed += slots
            return list(slots)

        self.both(do)

    @precondition(lambda self: bool(self.worlds[0].claimed))
    @rule(which=back, how=st.sampled_from(("sent", "sent", "sent", "retry", "uncertain", "dead")))
    def report(self, which: int, how: str) -> None:
        """What came of sending one of the last slots; sometimes said late, or twice."""

        async def do(world: World) -> object:
            slot = world.slot(which)
            assert slot is not None
            if how == "sent":
                return await world.store.slot_sent(slot.id, slot.version, slot.platform_id or f"m{slot.attempts}")
            if how == "dead":
                return await world.store.slot_dead(slot.id, slot.version, "gone")
            return await world.store.slot_retry(slot.id, slot.version, timedelta(), uncertain=how == "uncertain")

        self.both(do)

    # --- reading ----------------------------------------------------------------------------

    @rule(size=st.sampled_from((1, 3, 20)), way=st.sampled_from(SESSIONS))
    def follow(self, size: int, way: Any) -> None:
        """Replaying all changes gives what reading back gives, in each store."""

        async def do(world: World) -> None:
            found: dict[int, Any] = {}
            after, more = 0, True
            while more:
                page = await world.store.changes(way.session, after, size)
                found |= {row.ord: row for row in page.rows}
                after, more = page.rev, page.more
            rows = (await world.store.older(way.session, None, 1_000_000)).rows
            assert [found[place] for place in sorted(found)] == list(rows)

        self.both(do)


class Seen:
    """What was seen so far of one store, and what may never change after it was seen once."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.accepted: set[str] = set()
        self.waits: dict[WaitId, Wait] = {}
        self.results: dict[tuple[TurnId, int], ToolResult] = {}
        self.ended: dict[TurnId, TurnState] = {}
        self.slots: set[SlotId] = set()
        self.fences: dict[TurnId, int] = {}
        self.starts: Counter[str] = Counter()
        self.started_under: dict[str, int] = {}

    def wait(self, which: int) -> WaitId | None:
        """One of the latest approvals."""
        approvals = [wait.id for wait in self.waits.values() if wait.kind is WaitKind.APPROVAL]
        return approvals[-1 - which % len(approvals)] if approvals else None

    def claimed(self, world: World, lease: Lease) -> None:
        """Fences are monotone."""
        name = TurnId(world.said(lease.turn) + str(id(world)))
        assert lease.fence > self.fences.get(name, 0)
        self.fences[name] = lease.fence

    def started(self, world: World, lease: Lease, step: Step, wait: Wait | None, start: Start) -> None:
        """An approval starts one call once, and only after it was given; nobody starts a call twice in one life."""
        if start is not Start.STARTED:
            return
        mine = str(id(world))
        if wait is not None:
            self.starts[wait.id + mine] += 1
            assert wait.state is WaitState.APPROVED
            assert self.starts[wait.id + mine] == 1
        else:
            assert step.state in (StepState.PLANNED, StepState.STARTED)
        name = f"{lease.turn}/{step.n}"
        assert lease.fence > self.started_under.get(name, 0)
        self.started_under[name] = lease.fence

    def look(self, snapshot: Snapshot) -> None:
        """Check every promise on all that is stored."""
        for view in snapshot.views.values():
            self._turn(view)
        self._lanes(list(snapshot.views.values()))
        self._messages([row.item for row in snapshot.rows if isinstance(row.item, Received)])
        self._slots([row.item for row in snapshot.rows if isinstance(row.item, Slot)])

    def _turn(self, view: TurnView) -> None:
        for wait in view.waits:
            before = self.waits.get(wait.id)
            if before is not None and before.state in FINAL:
                assert wait == before, "a wait left a final state"
            self.waits[wait.id] = wait
        for step in view.steps:
            known = self.results.get((view.turn.id, step.n))
            if known is not None:
                assert step.result == known, "a result changed"
            if step.result is not None:
                self.results[view.turn.id, step.n] = step.result
        if view.turn.state in ENDED:
            self._ended(view)
        elif view.turn.state is TurnState.PARKED:
            _parked(view)

    def _ended(self, view: TurnView) -> None:
        assert self.ended.setdefault(view.turn.id, view.turn.state) is view.turn.state, "an ended turn went on"
        assert all(step.result is not None for step in view.steps if step.call is not None), "a call has no result"
        assert all(received.given is not None for received in view.inputs), "a message waits for ever"
        assert all(wait.state in FINAL or wait.kind is WaitKind.TIMER for wait in view.waits), "a dead wait is open"

    def _lanes(self, views: list[TurnView]) -> None:
        active = [view.turn for view in views if view.turn.started_at is not None and view.turn.state not in ENDED]
        models = Counter(turn.session for turn in active if turn.kind is TurnKind.MODEL)
        assert all(number == 1 for number in models.values()), "two model turns of a session"
        held = (TurnState.RUNNING, TurnState.STOPPING)
        commands = Counter(turn.session for turn in active if turn.kind is TurnKind.COMMAND and turn.state in held)
        assert all(number <= 4 for number in commands.values()), "more than four commands"

    def _messages(self, received: list[Received]) -> None:
        events = Counter(one.message.event_key for one in received)
        assert set(events) == self.accepted, "an accepted message is lost"
        assert set(events.values()) <= {1}, "a message was stored twice"
        assert all(one.turn is not None or one.message.text == "/cmd" for one in received), "a message has no turn"

    def _slots(self, slots: list[Slot]) -> None:
        ids = {slot.id for slot in slots}
        assert self.slots <= ids, "a slot is lost"
        self.slots = ids
        sending = Counter(slot.conversation for slot in slots if slot.state is SlotState.SENDING)
        assert set(sending.values()) <= {1}, "two slots of a conversation are being sent"
        for slot in slots:
            assert slot.sent_version <= slot.version
            if slot.state is SlotState.SENT:
                assert slot.sent_version == slot.version, "a version was never shown"


def _parked(view: TurnView) -> None:
    """Somebody must be able to wake it, and nobody may have decided already."""
    is_open = {wait.n for wait in view.waits if wait.state is WaitState.OPEN}
    unfinished = {step.n for step in view.steps if step.state is not StepState.FINISHED}
    assert is_open, "a parked turn that nothing can wake"
    assert unfinished <= is_open, "a parked turn with something to do"


TestStoreMachine = pytest.mark.timeout(60 + STEPS // 20)(StoreMachine.TestCase)
StoreMachine.TestCase.settings = settings(
    max_examples=max(1, STEPS // STEPS_A_RUN),
    stateful_step_count=STEPS_A_RUN,
    deadline=None,
    database=None,
    derandomize="DRAGOMAN_STATE_MACHINE_STEPS" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
