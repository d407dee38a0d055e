"""State machine that does anything a gateway could do, in any order, to two stores at once.

After each step both must show the same, and the store's invariants must hold. The run's seed fixes the steps;
`./run test --large` makes 100,000, or the number in `DRAGOMAN_STATE_MACHINE_STEPS`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from gateway.domain.budgets import BudgetLine, Measure, Reservation
from gateway.domain.ids import NodeId, Person, Principal, SlotId, WaitId
from gateway.domain.routes import Drop, DropReason, WhileRunning
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import StepState, Usage
from gateway.domain.turns import Lease, TurnKind, TurnState
from gateway.domain.views import Spent
from gateway.domain.waits import PressVerdict, WaitState
from gateway.ports import ControlEffect
from tests.contract.machine import NODES, TIMES, WayOut, back, nodes
from tests.contract.world import NOTHING, SESSIONS, World
from tests.support.makers import (
    ANN_TELEGRAM,
    BOB,
    CHAT,
    OTHER_CHAT,
    PAGE,
    WAITING,
    answer,
    approve,
    beginning,
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
from tests.support.proof import figure, seed, times

VOTES = tuple(
    PressVerdict(
        refusal=None,
        state=WaitState.APPROVED,
        quorum=2,
        person=Person(who),
        among=frozenset([Person("ann"), Person("cleo")]),
    )
    for who in ("ann", "cleo")
)
"""Votes of two persons, where both must allow a call."""
STEPS = int(os.environ.get("DRAGOMAN_STATE_MACHINE_STEPS") or times(2_000, 100_000, small=250))
RULES_A_RUN = 8
STEPS_A_RUN = 38
"""At least, on average: a rule is one move, or ten."""
RUNS = STEPS // STEPS_A_RUN + 1
VERDICTS = (*VOTES, approve(), approve(), deny(), deny(withdraw_siblings=True), deny(written=True), refuse())
USED = Usage(input_tokens=3, output_tokens=1, cost_micros=2)
TOKENS_USED = USED.input_tokens + USED.output_tokens
FOR_GOOD = timedelta(days=10_000)
BUDGETS = (
    BudgetLine(account="ann", measure=Measure.TOKENS, limit=40, nearly="Nearly.", ended="All.", kept_for=FOR_GOOD),
    BudgetLine(account="here", measure=Measure.MONEY, limit=12, nearly="Nearly.", ended="All.", kept_for=FOR_GOOD),
)
EFFECTS = (ControlEffect.STOP, ControlEffect.STOP, ControlEffect.RESET, ControlEffect.NONE)
ENDS = (TurnState.DONE, TurnState.DONE, TurnState.STOPPED, TurnState.FAILED)

places = st.sampled_from((CHAT, OTHER_CHAT, PAGE))


def early_id(lease: Lease) -> SlotId:
    """The slot in which a turn's answer is shown while it is written."""
    return SlotId(f"early-{lease.turn}")


def status(lease: Lease, text: str) -> NewSlot:
    """Return a status slot."""
    return NewSlot(conversation=CHAT, kind=SlotKind.STATUS, text=text, id=SlotId(f"status-{lease.turn}"))


def has_leases(machine: StoreMachine) -> bool:
    """Return whether anything was ever claimed."""
    return bool(machine.worlds[0].leases)


def has_calls(machine: StoreMachine) -> bool:
    """Return whether any call was ever planned."""
    return any(len(view.steps) > 1 for view in machine.worlds[0].last.views.values())


def has_waits(machine: StoreMachine) -> bool:
    """Return whether any wait was ever opened."""
    return any(view.waits for view in machine.worlds[0].last.views.values())


def has_open_waits(machine: StoreMachine) -> bool:
    """Return whether any wait is open."""
    waits = [wait for view in machine.worlds[0].last.views.values() for wait in view.waits]
    return any(wait.state is WaitState.OPEN and wait.expires_at > machine.clock.now() for wait in waits)


class StoreMachine(WayOut):
    """Two stores, one clock, one trace."""

    # --- ingress ----------------------------------------------------------------------------

    @rule(
        way=st.sampled_from(SESSIONS),
        who=st.sampled_from((ANN_TELEGRAM, BOB)),
        where=places,
        kind=st.sampled_from((TurnKind.MODEL, TurnKind.MODEL, TurnKind.COMMAND)),
        running=st.sampled_from(WhileRunning),
        cut=st.sampled_from((False, False, True)),
    )
    def deliver(
        self, way: Any, who: Principal, where: Any, kind: TurnKind, running: WhileRunning, cut: bool = False
    ) -> None:
        """A new message, now and then the beginning of one."""
        message = replace(inbound(who=who, where=where, key=self.fresh_key()), cut=cut)
        self.seen.accepted.add(message.event_key)

        async def do(world: World) -> object:
            world.messages.append(message)
            return await world.store.accept(way, message, kind, running=running, say_if_waiting=WAITING)

        self.both(do)

    @rule(way=st.sampled_from(SESSIONS))
    def overhear(self, way: Any) -> None:
        """Drop an overheard message."""
        message = inbound("beside", who=BOB, direct=False, key=self.fresh_key())
        self.seen.accepted.add(message.event_key)
        said_beside = Drop(reason=DropReason.CONTEXT, told=False, route=way)

        async def do(world: World) -> object:
            world.messages.append(message)
            return await world.store.drop(message, said_beside, "")

        self.both(do)

    @rule(which=back, again=st.booleans())
    def edit(self, which: int, again: bool) -> None:
        """One of the last messages is changed, in time or too late, sometimes delivered twice."""
        key = self.fresh_key()

        async def do(world: World) -> object:
            message = world.message(which)
            if message is None:
                return NOTHING
            return await world.store.amend(replace(message, event_key=key, edits=message.event_key, text=f"new {key}"))

        for _ in range(1 + again):
            self.both(do)

    @rule(which=back, way=st.sampled_from(SESSIONS))
    def duplicate(self, which: int, way: Any) -> None:
        """A message that was delivered before, as any kind of event."""

        async def do(world: World) -> object:
            message = world.message(which)
            if message is None:
                return NOTHING
            accepted = await world.store.accept(
                way, message, TurnKind.MODEL, running=WhileRunning.STEER, say_if_waiting=WAITING
            )
            return (
                accepted,
                await world.store.drop(message, drop(), ""),
                await world.store.control(way, message, control()),
            )

        self.both(do)

    @rule(way=st.sampled_from(SESSIONS), effect=st.sampled_from(EFFECTS))
    def command(self, way: Any, effect: ControlEffect) -> None:
        """/stop, /new, /status."""
        message = inbound("/cmd", key=self.fresh_key())
        self.seen.accepted.add(message.event_key)
        self.both(lambda world: world.store.control(way, message, control(effect)))

    @precondition(has_waits)
    @rule(which=back, verdict=st.sampled_from(VERDICTS), again=st.booleans())
    def button(self, which: int, verdict: PressVerdict, again: bool) -> None:
        """A press on one of the latest approvals, sometimes delivered twice."""
        wait = self.worlds[0].approval(which)
        one = press(key=self.fresh_key())
        for _ in range(1 + again):
            self.both(lambda world: world.store.press(one, wait, verdict))

    @initialize(seed=st.integers(0, 2**32 - 1))
    def begin(self, seed: int) -> None:
        """Most things only happen to a turn that has come some way."""
        for n in range(3):
            self.wander(seed + n)

    @rule(way=st.sampled_from(SESSIONS), kind=st.sampled_from(TurnKind), calls=st.integers(1, 3), parked=st.booleans())
    def work(self, way: Any, kind: TurnKind, calls: int, parked: bool) -> None:
        """A message, and what its turn does at first, as far as it may."""
        self.deliver(way, ANN_TELEGRAM, CHAT, kind, running=WhileRunning.QUEUE)
        self.claim(NODES[0])
        if has_leases(self):
            self.plan(0, calls, give=True)
            self.open_waits(0, only_planned=True, ttl_s=60)
            if parked:
                self.hold(0, "park")

    @precondition(has_open_waits)
    @rule(which=back, verdict=st.sampled_from((approve(), approve(), deny())), far=st.sampled_from((2, 3, 3, 4, 5)))
    def go_on(self, which: int, verdict: PressVerdict, far: int) -> None:
        """A decision, and what its turn does then, as far as it comes."""
        self.button(which, verdict, again=False)
        moves: list[Callable[[], None]] = [
            lambda: self.claim(NODES[0]),
            lambda: self.claim(NODES[2]),
            lambda: self.start_step(0, asked=True, right=True),
            lambda: self.finish_step(0),
            lambda: self.finish_turn(0, TurnState.DONE, give=True, where=PAGE),
        ]
        for move in moves[:far]:
            if has_leases(self):
                move()

    @rule(seed=st.integers(0, 2**32 - 1))
    def wander(self, seed: int) -> None:
        """Ten moves by a die: single rules alone, in runs this short, seldom come deep enough."""
        die = Random(seed)
        pick, which = die.choice, die.randrange(5)
        moves: list[tuple[Callable[[], None], Callable[[StoreMachine], bool] | None]] = [
            (
                lambda: self.deliver(
                    pick(SESSIONS), ANN_TELEGRAM, CHAT, pick(list(TurnKind)), pick(list(WhileRunning))
                ),
                None,
            ),
            (lambda: self.claim(pick(NODES)), None),
            (
                lambda: self.deliver(
                    SESSIONS[0], ANN_TELEGRAM, CHAT, pick(list(TurnKind)), WhileRunning.QUEUE, cut=True
                ),
                None,
            ),
            (lambda: self.overhear(pick(SESSIONS)), None),
            (lambda: self.edit(which, die.random() < 0.2), None),
            (lambda: self.begin_answer(which, pick(("Once", "Once upon"))), has_leases),
            (lambda: self.begin_answer(0, "Once upon a time"), has_leases),
            (lambda: self.do_something(0, pick(("thinking", "shell: date"))), has_leases),
            (lambda: self.compact(which, pick(SESSIONS), die.random() < 0.5), has_leases),
            (lambda: self.tell(pick(("a", "b"))), None),
            (lambda: self.claim(pick(NODES)), None),
            (lambda: self.plan(0, die.randrange(1, 4), give=True, over=die.random() < 0.5), has_leases),
            (lambda: self.open_waits(which, die.random() < 0.9, pick((60, 3600))), has_calls),
            (lambda: self.go_on(which, pick(VERDICTS), pick((0, 0, 3, 5))), has_open_waits),
            (lambda: self.start_step(which, die.random() < 0.8, die.random() < 0.8), has_calls),
            (lambda: self.start_step(0, asked=True, right=True), has_calls),
            (lambda: self.finish_step(which), has_calls),
            (lambda: self.hold(which, pick(("park", "park", "release", "renew"))), has_leases),
            (
                lambda: self.finish_turn(which, pick(ENDS), die.random() < 0.8, pick((CHAT, PAGE)), die.random() < 0.3),
                has_leases,
            ),
            (lambda: self.time(pick((0.5, 1.5, 6, 16, 61, 301)), pick(TIMES)), None),
            (lambda: self.command(pick(SESSIONS), pick(EFFECTS)), None),
            (lambda: self.restart(die.random() < 0.5), None),
            (lambda: self.work(pick(SESSIONS), pick(list(TurnKind)), die.randrange(1, 4), die.random() < 0.5), None),
            (self.send, None),
        ]
        for _ in range(10):
            move, possible = pick(moves)
            if possible is None or possible(self):
                move()

    # --- lanes ------------------------------------------------------------------------------

    @rule(node=nodes)
    def claim(self, node: NodeId) -> None:
        """A runner looks for work."""

        async def do(world: World) -> object:
            claimed = await world.store.claim(node)
            for one in claimed:
                world.leases.append(one.lease)
                self.seen.claimed(one.lease)
            return claimed

        self.both(do)

    @precondition(has_leases)
    @rule(which=back, how=st.sampled_from(("renew", "park", "park", "release")))
    def hold(self, which: int, how: str) -> None:
        """A holder lives, has nothing to run, or shuts down."""

        async def do(world: World, lease: Lease) -> object:
            if how == "renew":
                return await world.store.renew(lease)
            return await (world.store.park(lease) if how == "park" else world.store.release(lease))

        self.leased(which, do)

    @precondition(has_leases)
    @rule(which=back, state=st.sampled_from(ENDS), give=st.booleans(), where=places, over=st.booleans())
    def finish_turn(self, which: int, state: TurnState, give: bool, where: Any, over: bool = False) -> None:
        """A holder ends its turn; what was said on the page has a timer."""
        slot = SlotId(f"said-{next(self.numbers)}")
        timers = [copy_timer(slot, expires_in=seconds(30))] if where == PAGE else []

        async def do(world: World, lease: Lease) -> object:
            given = (await world.store.turn(lease.turn)).inputs if give else ()
            slots = [said(where=where, slot=early_id(lease) if over else slot)]
            slots += [status(lease, "2 s")] if over else []
            return await world.store.finish_turn(lease, state, answer=last, given=given, slots=slots, timers=timers)

        last = replace(answer(), usage=USED)
        self.leased(which, do)

    # --- steps ------------------------------------------------------------------------------

    @precondition(has_leases)
    @rule(which=back, lines=st.sampled_from((BUDGETS[:1], BUDGETS)))
    def reserve(self, which: int, lines: tuple[BudgetLine, ...]) -> None:
        """A model is about to be asked: as much is reserved as every answer uses."""
        wanted = Reservation(lines=lines, tokens=TOKENS_USED, micros=USED.cost_micros, place=CHAT)

        async def do(world: World, lease: Lease) -> object:
            return await world.store.reserve(lease, wanted)

        self.leased(which, do)

    @precondition(has_leases)
    @rule(which=back, text=st.sampled_from(("Once", "Once upon")))
    def begin_answer(self, which: int, text: str) -> None:
        """The model writes."""

        async def do(world: World, lease: Lease) -> object:
            return await world.store.open_slot(lease, replace(said(text, slot=early_id(lease)), n=7))

        self.leased(which, do)

    @precondition(has_leases)
    @rule(which=back, text=st.sampled_from(("thinking", "shell: date")))
    def do_something(self, which: int, text: str) -> None:
        """The turn's line says what it does."""
        self.leased(which, lambda world, lease: world.store.open_slot(lease, status(lease, text)))

    @precondition(has_leases)
    @rule(which=back, way=st.sampled_from(SESSIONS), paid=st.booleans())
    def compact(self, which: int, way: Any, paid: bool) -> None:
        """A long history is summed up, now and then one that is over, or up to a turn that has not ended."""
        day, summary = self.clock.now().date(), f"summary {next(self.numbers)}"
        spent = Spent(day=day, principal=BOB, model="small", answers=1, usage=USED) if paid else None

        async def do(world: World) -> object:
            turn = world.ended(which, way.session)
            if turn is None:
                return NOTHING
            return await world.store.compact(way.session, turn.epoch, turn.id, summary, spent)

        self.both(do)

    @precondition(has_leases)
    @rule(which=back, calls=st.integers(0, 3), give=st.booleans(), over=st.booleans())
    def plan(self, which: int, calls: int, give: bool, over: bool = False) -> None:
        """The model answered, now and then with the text that was seen before."""
        planned = replace(answer(calls=calls), usage=USED)

        async def do(world: World, lease: Lease) -> object:
            inputs = (await world.store.turn(lease.turn)).inputs
            given = [received for received in inputs if received.given is None] if give else []
            slots = [said("Once upon a time.", slot=early_id(lease))] if over else []
            return await world.store.plan(lease, planned, given=given, slots=slots)

        self.leased(which, do)

    @precondition(has_calls)
    @rule(which=back, only_planned=st.sampled_from((True, True, True, False)), ttl_s=st.sampled_from((10, 60, 3600)))
    def open_waits(self, which: int, only_planned: bool, ttl_s: int) -> None:
        """Its calls are asked about, now and then also those that must not be."""
        ttl = seconds(ttl_s)
        number = next(self.numbers)

        async def do(world: World) -> object:
            lease = world.asking(which)
            if lease is None:
                return NOTHING
            steps = [step for step in (await world.store.turn(lease.turn)).steps if step.call is not None]
            chosen = [step for step in steps if step.state is StepState.PLANNED or not only_planned][:3]
            waits = [new_wait(step.n, expires_in=ttl, id=WaitId(f"w{number}-{step.n}")) for step in chosen]
            slot = card(*(wait.id for wait in waits), slot=SlotId(f"card-{number}"))
            return await world.store.open_waits(lease, waits, [slot]) if waits else NOTHING

        self.both(do)

    @precondition(has_calls)
    @rule(
        which=back, asked=st.sampled_from((True, True, True, False)), right=st.sampled_from((True, True, True, False))
    )
    def start_step(self, which: int, asked: bool, right: bool) -> None:
        """A call is begun, with its newest wait or without one."""

        async def do(world: World) -> object:
            found = world.starting(which)
            if found is None:
                return NOTHING
            lease, step = found
            waits = [wait for wait in (await world.store.turn(lease.turn)).waits if wait.n == step.n]
            wait = waits[-1] if waits and asked else None
            bound = beginning(step.n, action_sha=None if right else "other")
            start = await world.store.start_step(lease, step.n, wait.id if wait else None, bound)
            self.seen.started(lease, step, wait, start)
            return start

        self.both(do)

    @precondition(has_calls)
    @rule(which=back)
    def finish_step(self, which: int) -> None:
        """A call has its result."""

        async def do(world: World) -> object:
            found = world.finishing(which)
            return await world.store.finish_step(found[0], found[1].n, done) if found else NOTHING

        done = result()
        self.both(do)


@pytest.mark.timeout(600 + STEPS // 10)
class TestStoreMachine(hypothesis.seed(seed())(StoreMachine).TestCase):
    """All of its runs."""

    def runTest(self) -> None:
        """State what was tried when it held; a step for which it does not hold is an error that shows all steps."""
        StoreMachine.moves.clear()
        StoreMachine.struck.clear()
        super().runTest()
        assert min(Counter(StoreMachine.struck).values()) > sum(StoreMachine.moves) // 40, "faults strike both stores"
        figure(
            "STORE",
            "moves after each of which two stores agree and every promise holds",
            sum(StoreMachine.moves),
            STEPS,
            least=True,
        )


StoreMachine.TestCase.settings = settings(
    max_examples=RUNS,
    stateful_step_count=RULES_A_RUN,
    deadline=None,
    database=None,
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large),
)
