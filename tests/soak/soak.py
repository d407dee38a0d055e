"""One soak from beginning to end: the lives of a daemon, people and bad weather around it, and the judge at its end."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.bench.measure import tree
from tests.fault.rig import unsent, until, until_quiet
from tests.soak.bars import Outcome, Rest, bar_of_rows, bars_of_lives, lives_of
from tests.soak.judge import Judge, asked_badly, rows_of_all
from tests.soak.people import People
from tests.soak.samples import Sampler, connections
from tests.soak.script import Script
from tests.soak.weather import Weather
from tests.soak.world import World, soaking

ENDS_WITHIN_S = 180.0
"""Until all is answered after the last word: bans, expiries and the pace of the platforms take their time."""
BACK_WITHIN_S = 45.0
"""Connections are kept open for some seconds after their last use."""
EARLY_PART = 3
"""The first rest of a life is in this part of it, or earlier."""
AFTER_REST = 0.06
"""The share of a life that comes after its last rest: it dies in the middle of its work."""
WORTH_TELLING_S = 3.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Duration and amounts of a soak."""

    minutes: float
    seed: int
    per_s: float = 1.0
    """Messages a second."""
    times: float = 1.0
    """Speed of people and models, as a multiple of the soak's."""
    sample_s: float = 10.0
    gust_s: float = 20.0
    """Mean time between two faults other than those of calls."""
    expiry_s: int = 20
    limited: bool = True
    """True if messages are sent at the platforms' rate limits."""
    warm_up_s: float = 900.0
    """Until everything was used once, and what is kept on purpose is full: decision 31."""
    still_s: float = 20.0
    """Rest before anything is counted, in which unused connections close."""
    lives: Sequence[float] = (0.7, 0.2)
    """Shares of the time. Each ends by `kill -9`; the first is long enough to see how it grows."""
    short_lives: Sequence[float] = (0.02, 0.02, 0.02, 0.02, 0.02)
    """The same; they only die."""

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.minutes * 60


def faster(plan: Plan, times: float) -> Plan:
    """The same in less time: what people write and what goes wrong in an hour happens in a part of one.

    Nothing is held back for the platforms then, whose pace is that of an hour. The model speaks, and people look and
    press, so much faster too, or more would be asked of a session than it can answer in its turn. What the daemon does
    by the clock, such as its tidying, it does more rarely for each message.
    """
    if times == 1:
        return plan
    return replace(
        plan,
        per_s=plan.per_s * times,
        times=times,
        gust_s=plan.gust_s / times,
        warm_up_s=plan.warm_up_s / times,
        expiry_s=max(round(plan.expiry_s / times), 2),
        limited=False,
    )


@dataclass(slots=True, kw_only=True)
class Soak:
    """Everything that takes part."""

    plan: Plan
    world: World
    people: People
    weather: Weather
    sampler: Sampler
    say: Say
    rests: list[tuple[Rest, Rest]] = field(default_factory=list[tuple[Rest, Rest]])
    badly: list[str] = field(default_factory=list[str])

    async def run(self) -> Outcome:
        """Live all lives; judge. Raises `AssertionError` when a life does not become ready, or quiet."""
        await self.world.live()
        async with self.world.visited(), self._background():
            for number, share in enumerate(self.plan.lives):
                if number:
                    await self._next()
                await self._long_life(share * self.plan.seconds)
            for share in self.plan.short_lives:
                await self._next()
                await asyncio.sleep(share * self.plan.seconds)
            await self._next()
            await self._pause()
            await self._settled()
            await self.sampler.take()
        assert await self.world.stop() == 0, self.world.daemon.log[-3000:]
        return await self._outcome()

    @asynccontextmanager
    async def _background(self) -> AsyncGenerator[None]:
        """People write and press, and things go wrong, until the end."""
        self.weather.begin()
        self._go_on()
        async with asyncio.TaskGroup() as group:
            acts = (self.people.write, self.people.press, self.weather.blow, self.sampler.run, self._forget)
            tasks = [group.create_task(act(), name=act.__name__) for act in acts]
            yield
            for task in tasks:
                task.cancel()

    async def _next(self) -> None:
        """Die and live again, while people write."""
        await self.world.kill()
        await self.world.live()

    async def _long_life(self, seconds: float) -> None:
        """Work, rest, work, rest and work again."""
        began = time.monotonic()
        await asyncio.sleep(min(self.plan.warm_up_s, seconds / EARLY_PART))
        early = await self._rest()
        await asyncio.sleep(seconds * (1 - AFTER_REST) - (time.monotonic() - began) - self.plan.still_s)
        late = await self._rest(early)
        self.rests.append((early, late))
        self.say(f"life {late.life}: {early} … {late}")
        await asyncio.sleep(seconds * AFTER_REST)

    async def _rest(self, early: Rest | None = None) -> Rest:
        """Let all come to an end; return what the daemon holds then. `early`: it is given time to come back to that."""
        await self._pause()
        await self._settled()
        self.sampler.resting = True
        await asyncio.sleep(self.plan.still_s)
        found = await self._held()
        end = time.monotonic() + BACK_WITHIN_S
        while early is not None and not _within(found, early) and time.monotonic() < end:
            await asyncio.sleep(0.5)
            found = await self._held()
        if early is not None and found.descriptors > early.descriptors:
            self.say(f"at rest there are still: {'; '.join(connections(self.world.pid))}")
        self.sampler.resting = False
        self._go_on()
        return found

    async def _held(self) -> Rest:
        sample = await self.sampler.take()
        assert sample is not None, f"it does not answer at rest: {self.world.daemon.log[-3000:]}"
        return Rest(
            life=sample.life,
            descriptors=sample.descriptors,
            files=sample.files,
            threads=sample.threads,
            tasks=sample.tasks,
        )

    def _go_on(self) -> None:
        self.people.going.set()
        self.weather.going.set()
        self.world.script.calm = False

    async def _pause(self) -> None:
        self.people.going.clear()
        self.weather.going.clear()
        self.world.script.calm = True

    async def _settled(self) -> None:
        """Wait until everything was heard, done and shown, and no program of a tool is left."""
        world = self.world
        for what, done in (
            ("Telegram", lambda: not world.telegram.updates.pending()),
            ("the page", lambda: not self.people.insisting),
            ("Slack", lambda: not [one for one in world.slack.app.pending if one.retried]),
        ):
            await self._in_time(what, until(done, ENDS_WITHIN_S))
        await self._in_time("turns", until_quiet(world.daemon, ENDS_WITHIN_S))
        await self._in_time("messages", until(lambda: not unsent(world.daemon), ENDS_WITHIN_S))
        await self._in_time("tools", until(lambda: not tree(world.pid), ENDS_WITHIN_S))

    async def _in_time(self, what: str, ended: Awaitable[None]) -> None:
        began = time.monotonic()
        try:
            await ended
        except TimeoutError:
            raise AssertionError(f"{what}: not done after {ENDS_WITHIN_S} s\n{self.world.daemon.log[-4000:]}") from None
        if time.monotonic() - began > WORTH_TELLING_S:
            self.say(f"waited {time.monotonic() - began:.0f} s for the end of what is under way: {what}")

    async def _forget(self) -> None:
        """Look at the questions to the model as they come, and keep none: an hour of them is a gigabyte."""
        while True:
            await asyncio.sleep(1)
            self._look_at_questions()

    def _look_at_questions(self) -> None:
        asked = self.world.model.requests
        self.badly += asked_badly([one.body for one in asked])
        asked.clear()
        self.world.page.frames.clear()

    async def _outcome(self) -> Outcome:
        self._look_at_questions()
        rows = await rows_of_all(self.world.daemon.state)
        judge = Judge(world=self.world, people=self.people, weather=self.weather, rows=rows, asked_badly=self.badly)
        samples = self.sampler.samples
        lives = lives_of(samples, self.plan.warm_up_s, self.plan.per_s)
        return Outcome(
            minutes=self.plan.minutes,
            per_s=self.plan.per_s,
            seed=self.plan.seed,
            lives=lives,
            bars=[*judge.bars(), *bars_of_lives(lives, self.rests), bar_of_rows(samples)],
            kills=len(self.world.deaths),
            counts=judge.counts(),
            samples=samples,
        )


def _within(found: Rest, early: Rest) -> bool:
    pairs = (
        (found.descriptors, early.descriptors),
        (found.files, early.files),
        (found.threads, early.threads),
        (found.tasks, early.tasks),
    )
    return all(now <= before for now, before in pairs)


@asynccontextmanager
async def soaked(plan: Plan, folder: Path, say: Say) -> AsyncGenerator[Outcome]:
    """Do all of it. What it found is there before anything is closed, so that nothing can hide it."""

    def chance(what: str) -> random.Random:
        return random.Random(f"{plan.seed}/{what}")

    script = Script(chance("model"), plan.expiry_s, plan.times)
    async with soaking(folder, script, plan.expiry_s, limited=plan.limited) as world:
        soak = Soak(
            plan=plan,
            world=world,
            people=People(world=world, chance=chance("people"), per_s=plan.per_s, times=plan.times),
            weather=Weather(world=world, chance=chance("weather"), every_s=plan.gust_s),
            sampler=Sampler(daemon=world.daemon, every_s=plan.sample_s),
            say=say,
        )
        try:
            outcome = await soak.run()
        except BaseException:
            lives = lives_of(soak.sampler.samples, plan.warm_up_s, plan.per_s)
            say(f"it ended early; so far: {lives}, at rest {soak.rests}")
            raise
        yield outcome
