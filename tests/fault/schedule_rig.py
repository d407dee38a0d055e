"""A schedule: some machines on one store, people, and what goes wrong, all in the order of a seed.

A machine can be suspended, killed, cut down in the middle of anything by a cancellation, told to stop, or lose the
store for a while; it begins again soon, late or never. In the end nothing goes wrong any more, and all must settle.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import cast

from structlog.testing import capture_logs

from gateway.domain.ids import TurnId
from gateway.domain.routes import WhileRunning
from gateway.domain.slots import SlotState
from gateway.domain.turns import ENDED, TurnState
from gateway.toolcalls.workspaces import HOME
from tests.fault.schedule_checks import complaints
from tests.fault.schedule_machine import EXPIRY_S, Act, Machine, Ran, is_of_the_store, make_daemon
from tests.fault.schedule_people import OUTSIDE, Crowd, Moods, Platform
from tests.support.fakes import FailingStore
from tests.support.schedules import LoopClock, ScheduledLoop, Stuck, drawn_from

CALM_AFTER_S = 36.0
SETTLES_WITHIN_S = 600
STOPS_WITHIN_S = 15.0
TOLD_AT_MOST = 60
"""Lines of a trace."""
TOLD_CHARS = 180
MINTED = re.compile(r"[tiow][0-9a-f]{16}\b")
BEHIND = (
    "accept",
    "claim",
    "plan",
    "open_waits",
    "park",
    "press",
    "start_step",
    "finish_step",
    "finish_turn",
    "open_slot",
    "renew",
    "claim_slots",
    "slot_sent",
    "slot_retry",
    "expire_waits",
    "reclaim",
    "control",
    "turn",
)
"""Transitions behind which things are made to happen."""
POLLS = frozenset({"claim", "claim_slots", "expire_waits", "reclaim"})
"""Those that count only when they found something."""
AT_CALLS = ("finish_step", "finish_step", "start_step", "claim", "turn", "park", "expire_waits")
"""Those behind which people press."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Approximate rates of the events of a schedule."""

    machines: tuple[int, ...] = (2,)
    messages: int = 6
    stops: int = 0
    faults: tuple[str, ...] = ()
    """Kinds of faults, of which some happen."""
    faults_at_most: int = 2
    tools: tuple[str, ...] = ()
    moods: Moods = field(default_factory=Moods)
    running: tuple[WhileRunning, ...] = tuple(WhileRunning)
    commands: bool = False
    lossy: bool = False
    """True if wake-ups may be lost."""


class World:
    """Everything of one schedule."""

    def __init__(self, seed: str, profile: Profile, folder: Path) -> None:
        """Make it; nothing runs yet."""
        self.seed, self.profile, self.folder = seed, profile, folder
        self.loop = ScheduledLoop(f"{seed}/loop")
        self.dice = Random(f"{seed}/world")
        self.clock = LoopClock(self.loop)
        self.store = FailingStore(self.clock)
        self.acts: list[Act] = []
        self.ran: list[Ran] = []
        self.told: list[str] = []
        """Log of events at machines, each with the number of the act before it."""
        self.listening = 0
        self.called = 0
        """Calls of tools by a model."""
        self.stopped: dict[TurnId, Act] = {}
        """Turns that a message stopped, and which."""
        self.gone_at: dict[str, float] = {}
        """When lives of machines ended."""
        self.over = False
        self.broken: list[str] = []
        self.counts: Counter[str] = Counter()
        self.due: list[tuple[str, int, int, Callable[[], None]]] = []
        """Scheduled events: the name of an act, its count, steps to wait, and the event."""
        self.running = self.dice.choice(profile.running)
        self.lossy = profile.lossy and self.dice.random() < 0.5
        self.platform = Platform(loop=self.loop, dice=self.dice, clock=self.clock, moods=profile.moods)
        self.crowd = Crowd(platform=self.platform, dice=self.dice, expiry_s=EXPIRY_S)
        self.platform.decide = self.crowd.decide
        self.crowd.behind = lambda happen: self.behind(happen, AT_CALLS, 2)
        self.machines = [Machine(name) for name in ("here", "there", "yonder")[: self.dice.choice(profile.machines)]]

    # --- what happens -------------------------------------------------------------------------

    def tell(self, what: str) -> None:
        """Remember something for the trace."""
        self.told.append(f"{self.loop.time():9.3f} {what}")

    def record(self, act: Act) -> None:
        """A transition was made."""
        self.acts.append(act)
        if act.what in ("control", "accept"):
            for row in self.store.turns.values():
                if row.turn.state in (TurnState.STOPPING, TurnState.STOPPED):
                    self.stopped.setdefault(row.turn.id, act)
        if act.what in POLLS and not act.outcome:
            return
        self.counts[act.what] += 1
        for what, nth, steps, happen in [one for one in self.due if one[:2] == (act.what, self.counts[act.what])]:
            self.due.remove((what, nth, steps, happen))
            self.loop.in_steps(steps, happen)

    async def story(self) -> None:
        """Let it all happen, then wait until everything is done, and stop."""
        for machine in self.machines:
            self.start(machine)
        self._plan()
        await asyncio.sleep(CALM_AFTER_S)
        self.calm()
        for _ in range(SETTLES_WITHIN_S):
            if not self.unsettled():
                break
            await asyncio.sleep(1)
        self.broken += self.unsettled()
        self.over = True
        await asyncio.sleep(3)  # what streams still shows is shown, and everybody is at rest
        for machine in self.machines:
            if machine.daemon is not None and machine.is_up:
                machine.daemon.stop()
        tasks = [machine.task for machine in self.machines if machine.task is not None and not machine.dead]
        _, slow = await asyncio.wait(tasks, timeout=STOPS_WITHIN_S)
        if slow:
            raise Stuck(f"did not stop within {STOPS_WITHIN_S} s: {[task.get_name() for task in slow]}")

    def _plan(self) -> None:
        """Choose what people and fate do, and when."""
        dice, profile = self.dice, self.profile
        for _ in range(dice.randint(2, profile.messages)):
            self._sometime(self._say)
        for _ in range(dice.randint(0, profile.stops)):
            self._sometime(self._stop)
        for _ in range(dice.randint(1, profile.faults_at_most)):
            kind = dice.choice(profile.faults)
            self._sometime(lambda kind=kind: self._harm(kind))

    def _sometime(self, happen: Callable[[], None]) -> None:
        """At some time, or right behind some transition."""
        if self.dice.random() < 0.4:
            self.loop.at(OUTSIDE, self.dice.uniform(0, 20), happen)
        else:
            self.behind(happen)

    def behind(self, happen: Callable[[], None], what: Sequence[str] = BEHIND, later: int = 4) -> None:
        """Right behind one of the next transitions of some kind; in the end without it."""
        dice = self.dice
        name = dice.choice(what)
        one = (name, self.counts[name] + dice.randint(1, later), dice.choice((0, 0, 1, 2, 3, 5, 8, 13)), happen)
        self.due.append(one)
        self.loop.at(OUTSIDE, dice.uniform(12, 24), lambda: self._anyway(one))

    def _anyway(self, one: tuple[str, int, int, Callable[[], None]]) -> None:
        """Run an event although the act before it did not happen."""
        if one in self.due:
            self.due.remove(one)
            one[3]()

    def _say(self) -> None:
        tools = self.profile.tools
        if self.profile.commands and tools and self.dice.random() < 0.25:
            self.crowd.say(f"/{self.dice.choice(tools)} m{self.crowd.said + 1}")
        else:
            self.crowd.say()

    def _stop(self) -> None:
        self.crowd.say("/stop", self.dice.randrange(3))

    # --- what goes wrong ----------------------------------------------------------------------

    def _harm(self, kind: str) -> None:
        """Mostly the machine that did something last."""
        busy = [one for one in self.machines if self.acts and one.name == self.acts[-1].machine]
        machine = self.dice.choice(busy if busy and self.dice.random() < 0.8 else self.machines)
        if not machine.is_up:
            return
        machine.harmed.add(kind)
        self.tell(f"{machine.place} {kind}")
        {
            "suspend": self._suspend,
            "kill": self._kill,
            "cancel": self._cancel,
            "stop": self._end,
            "no store": self._no_store,
        }[kind](machine)

    def _suspend(self, machine: Machine) -> None:
        place, seconds = machine.place, self.dice.choice((3.0, 14.0, 17.0, 17.0, 20.0, 40.0, 70.0, 320.0))
        self.loop.suspend(place)
        machine.away.append((self.loop.time(), self.loop.time() + seconds))
        self.loop.at(OUTSIDE, seconds, lambda: self._wake(machine, place))

    def _wake(self, machine: Machine, place: str) -> None:
        if machine.place == place and not machine.dead:
            self.loop.resume(place)

    def _kill(self, machine: Machine) -> None:
        """It is no more: what of it was under way never goes on."""
        machine.dead = True
        self.gone_at[machine.place] = self.loop.time()
        self.loop.suspend(machine.place)
        self.platform.inboxes.pop(machine.name, None)
        self._again(machine)

    def _cancel(self, machine: Machine) -> None:
        """It is cut down in the middle of whatever it does."""
        if machine.task is not None:
            machine.task.cancel()

    def _end(self, machine: Machine) -> None:
        if machine.daemon is not None:
            machine.daemon.stop()

    def _no_store(self, machine: Machine) -> None:
        now = self.loop.time()
        machine.no_store_until = now + self.dice.choice((0.5, 3.0, 20.0))
        machine.away.append((now, machine.no_store_until + 1))

    def _again(self, machine: Machine) -> None:
        """Somebody starts it again, soon or late; or never, when there is another one."""
        place = machine.place
        later = self.dice.choice((0.1, 3.0, 30.0, math.inf))
        alone = all(one is machine or not one.is_up for one in self.machines)
        if alone or later < math.inf:
            self.loop.at(OUTSIDE, min(later, 60.0), lambda: self._restart(machine, place))

    def _restart(self, machine: Machine, place: str) -> None:
        if machine.place == place and not machine.is_up and not self.over:
            self.start(machine)

    def calm(self) -> None:
        """From now on nothing goes wrong."""
        self.tell("calm")
        self.platform.moods = Moods()
        for one in list(self.due):
            self._anyway(one)

    # --- machines -----------------------------------------------------------------------------

    def start(self, machine: Machine) -> None:
        """Begin a life of a machine's daemon."""
        machine.life += 1
        machine.dead = False
        place = machine.place
        self.tell(f"{place} starts")
        daemon = machine.daemon = self.loop.there(place, lambda: make_daemon(self, machine))

        async def ready() -> None:
            pass

        machine.task = self.loop.begin(place, daemon.run(ready), f"daemon {place}")
        machine.task.add_done_callback(lambda task: self._ended(machine, task))

    def _ended(self, machine: Machine, task: asyncio.Task[None]) -> None:
        """A daemon is started again however it ended, unless all is over."""
        self.gone_at.setdefault(machine.place, self.loop.time())
        error = None if task.cancelled() else task.exception()
        if error is not None and not is_of_the_store(error):
            self.broken.append(f"{task.get_name()} ended by {error!r}")
        elif error is None and not task.cancelled() and machine.no_store_until + 5 < self.loop.time():
            held = [row.turn.id for row in self.store.turns.values() if row.node == machine.place]
            self.broken += [f"{machine.place} stopped in good order and still holds {turn}" for turn in held]
        if not self.over:
            self.tell(f"{machine.place} ended")
            self._again(machine)

    def unsettled(self) -> list[str]:
        """Return the unsettled rows."""
        turns = [
            f"turn {row.turn.id} is {row.turn.state}"
            for row in self.store.turns.values()
            if row.turn.state not in ENDED
        ]
        slots = [
            f"slot {row.slot.id} is {row.slot.state}"
            for row in self.store.slots.values()
            if row.slot.state in (SlotState.DUE, SlotState.SENDING)
        ] + [f"slot {row.slot.id} is shown again" for row in self.store.slots.values() if row.again_at is not None]
        away = [f"{one.place} is suspended" for one in self.machines if one.is_up and self.loop.suspended(one.place)]
        if not any(one.is_up for one in self.machines):
            away.append("no machine is up")
        if self.loop.time() < self.platform.in_doubt_until:
            away.append("the platform may still do something")
        return [*turns, *slots, *away, *(f"event {key} is not taken" for key in self.platform.unread)]

    # --- what is told of it -------------------------------------------------------------------

    def trace(self) -> str:
        """The end of what happened, with short names for ids."""
        names: dict[str, str] = {}

        def short(text: str) -> str:
            return MINTED.sub(lambda found: names.setdefault(found[0], f"{found[0][0]}{len(names)}"), text)[:TOLD_CHARS]

        lines = [(float(line[:9]), line) for line in self.told]
        for act in self.acts:
            arguments = " ".join(_brief(one) for one in act.args)
            if act.outcome:
                at = f"{act.at:9.3f} {act.machine}#{act.life}"
                lines.append((act.at, f"{at} {act.what} {arguments} → {_brief(act.outcome)}"))
        for ran in self.ran:
            lines.append((ran.at, f"{ran.at:9.3f} {ran.machine}#{ran.life} RAN {ran.tool} {ran.key}"))
        for seen in self.platform.shown:
            how = "new" if seen.new else "changed"
            lines.append((seen.at, f"{seen.at:9.3f} {how} {seen.id}: {seen.slot} version {seen.version} {seen.text!r}"))
        told = [short(line) for _, line in sorted(lines, key=lambda one: one[0])]
        return "\n".join([*told[-TOLD_AT_MOST:], *(short(one) for one in self.broken)])


def _brief(thing: object) -> str:
    """A lease, a slot, a message by its id; other things as they are."""
    for name in ("turn", "lease", "id", "event_key", "text"):
        if hasattr(thing, name):
            fence = getattr(thing, "fence", "")
            return f"{_brief(getattr(thing, name))}{f'^{fence}' if fence else ''}"
    return " ".join(map(_brief, cast("list[object]", thing))) if isinstance(thing, list) else str(thing)[:50]


def play(seed: str, profile: Profile, folder: Path) -> World:
    """Run a schedule to its end; what is broken then is in the world's `broken`."""
    home = folder / "workspaces" / HOME  # its id is in what an approval binds, so it is the same each time
    home.parent.mkdir(exist_ok=True)
    home.write_text("0123456789abcdef")
    world = World(seed, profile, folder)
    with drawn_from(Random(f"{seed}/ids")), capture_logs() as logs:
        try:
            world.loop.run_until_complete(world.story())
        except Stuck as stuck:
            world.broken.append(str(stuck))
        world.broken += complaints(world)
        world.broken += [f"task {task.get_name()} is left" for task in world.loop.left_running()]
        world.broken += [f"unforeseen: {line['event']}: {line['exc_info']!r}" for line in logs if "exc_info" in line]
        world.loop.bury()
    if world.listening:
        world.broken.append(f"{world.listening} still listen")
    return world
