"""One machine of a schedule: a daemon that is real but for its server, its socket, its model and its tools.

Every request to the store travels there and back, and is recorded where the store carries it out.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from gateway.app.daemon import Daemon
from gateway.app.maintenance import Sweeper
from gateway.app.membership import Membership
from gateway.domain.events import LiveEvent
from gateway.domain.ids import NodeId
from gateway.domain.messages import Conversation
from gateway.domain.nodes import NodeEntry
from gateway.domain.prompts import Complete, ModelEvent, ModelRequest, TextPart, UserText
from gateway.domain.sessions import SessionKind
from gateway.domain.steps import Answer
from gateway.domain.tools import ApprovalMode, Effect, Park, Risk, ToolResult
from gateway.errors import ModelError, StoreError
from gateway.llm.operator import Operator
from gateway.ports import Task, ToolContext
from gateway.server.control_server import ControlServer
from gateway.server.http import HttpServer
from tests.fault.schedule_people import PlatformChannel
from tests.support.engine import Engine
from tests.support.fakes import FailingStore, FakeTool, Text, calls, done

if TYPE_CHECKING:
    from tests.fault.schedule_rig import World

EXPIRY_S = 20.0
"""Of every approval."""
MESSAGE = re.compile(r"\bm\d+\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One transition that the store made for a machine, in order."""

    n: int
    at: float
    machine: str
    life: int
    what: str
    args: tuple[Any, ...]
    named: dict[str, Any]
    outcome: Any
    """Returned value, or the raised error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One run of a tool's effect."""

    at: float
    machine: str
    life: int
    key: str
    """The step's: `<turn>/<n>`."""
    tool: str


@dataclass(slots=True)
class Machine:
    """One machine: a life of its daemon after the other."""

    name: str
    life: int = 0
    task: asyncio.Task[None] | None = None
    daemon: Daemon | None = None
    dead: bool = False
    no_store_until: float = 0.0
    harmed: set[str] = field(default_factory=set[str])
    """By what."""
    away: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """From when until when it was suspended, or without the store."""

    @property
    def place(self) -> str:
        """Return the loop's name for this life of it."""
        return f"{self.name}#{self.life}"

    @property
    def is_up(self) -> bool:
        """Return True if its daemon runs, or will when it is resumed."""
        return not self.dead and self.task is not None and not self.task.done()


class Way:
    """Path of one life of a machine to the store. A life that is over reaches nothing."""

    def __init__(self, world: World, machine: Machine) -> None:
        """Belong to the present life."""
        self._world, self._machine, self._life = world, machine, machine.life
        self.live = Ears(world)

    def __getattr__(self, name: str) -> Any:
        """Return the store's own method at the end of the way; looked for once."""
        found = getattr(self._world.store, name)
        if inspect.iscoroutinefunction(found):
            inner = found

            async def asked(*args: Any, **named: Any) -> Any:
                return await self._ask(name, inner, args, named)

            found = asked
        setattr(self, name, found)
        return found

    def check(self) -> None:
        """Raise when this life is over."""
        if self._machine.dead or self._machine.life != self._life:
            raise asyncio.CancelledError

    async def _ask(
        self, name: str, found: Callable[..., Awaitable[Any]], args: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        world, machine = self._world, self._machine
        await self._travel()
        self.check()
        if world.loop.time() < machine.no_store_until:
            raise StoreError("The store is away.")
        try:
            outcome = await found(*args, **named)
        except Exception as error:  # noqa: BLE001 - it travels back to whoever asked
            outcome = error
        world.record(
            Act(
                n=len(world.acts),
                at=world.loop.time(),
                machine=machine.name,
                life=self._life,
                what=name,
                args=args,
                named=named,
                outcome=outcome,
            )
        )
        await self._travel()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _travel(self) -> None:
        dice = self._world.dice.random()
        await asyncio.sleep(0 if dice < 0.8 else 0.002 if dice < 0.97 else (dice - 0.97) * 5)


class Ears:
    """`ports.EventBus` of one machine."""

    def __init__(self, world: World) -> None:
        """Hear what the store tells."""
        self._world = world

    def publish(self, topic: str, event: LiveEvent) -> None:
        """Tell everybody."""
        self._world.store.event_bus.publish(topic, event)

    def publish_here(self, topic: str, event: LiveEvent) -> None:
        """Tell everybody: who looks for nothing is woken for nothing."""
        self._world.store.event_bus.publish(topic, event)

    def publish_to_sender(self, where: Conversation, event: LiveEvent) -> None:
        """Tell all that follow answers."""
        self._world.store.event_bus.publish_to_sender(where, event)

    def send_for(self, accounts: Collection[tuple[str, str]]) -> None:
        """Take no notice: nobody edits here."""

    @asynccontextmanager
    async def subscribe(self, *topics: str) -> AsyncGenerator[AsyncIterator[LiveEvent]]:
        """Listen; it is counted that somebody does."""
        async with self._world.store.event_bus.subscribe(*topics) as events:
            self._world.listening += 1
            try:
                yield _Heard(self._world, events)
            finally:
                self._world.listening -= 1


class _Heard:
    """A machine's subscription, which may lose events."""

    def __init__(self, world: World, events: AsyncIterator[LiveEvent]) -> None:
        self._world, self._events = world, events

    def __aiter__(self) -> AsyncIterator[LiveEvent]:
        return self

    async def __anext__(self) -> LiveEvent:
        while True:
            event = await anext(self._events)
            if not self._world.lossy or self._world.dice.random() > 0.3:
                return event


class Thinker:
    """`ports.Model` that calls tools for a while, then says which messages it was given."""

    name = "scripted"

    def __init__(self, world: World, way: Way) -> None:
        """Belong to a life of a machine."""
        self._world, self._way = world, way

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Think, then write."""
        dice = self._world.dice
        await asyncio.sleep(dice.choice((0, 0, 0.1, 0.3, 2, 6, 20)))
        self._way.check()
        if dice.random() < 0.03:
            raise ModelError("It does not feel like it.")
        answer = self._answer(request)
        for word in answer.text.split(" "):
            await asyncio.sleep(dice.choice((0, 0, 0.4)))
            yield TextPart(text=f"{word} ")
        yield Complete(answer=answer)

    def _answer(self, request: ModelRequest) -> Answer:
        world, dice = self._world, self._world.dice
        answers = [one for one in request.messages if isinstance(one, Answer)]
        called = next((n for n, one in enumerate(reversed(answers)) if not one.calls), len(answers))
        if world.profile.tools and called < 3 and dice.random() < 0.6:
            world.called += 1
            named = [f"{dice.choice(world.profile.tools)}:{world.called}.{n}" for n in range(dice.choice((1, 1, 2, 3)))]
            return calls(*named, text=dice.choice(("", "Working.")))
        read = [word for one in request.messages if isinstance(one, UserText) for word in MESSAGE.findall(one.text)]
        return Answer(text=f"re: {' '.join(read)}", model=self.name)


def _tools(world: World, machine: Machine, way: Way) -> list[FakeTool]:
    life = machine.life

    def tool(name: str, risk: Risk, effect: Effect, approval: dict[str, ApprovalMode] | None = None) -> FakeTool:
        async def act(ctx: ToolContext, _args: Text) -> ToolResult:
            dice = world.dice
            long_s = dice.choice((0, 0, 0.01, 0.5, 3, 12))
            await asyncio.sleep(long_s * dice.random())
            way.check()
            world.ran.append(Ran(at=world.loop.time(), machine=machine.name, life=life, key=ctx.step_key, tool=name))
            await asyncio.sleep(long_s * dice.random())
            return done(f"{name} was here")

        return FakeTool(name=name, risk=risk, effect=effect, approval=approval or {}, body=act)

    async def spawn(ctx: ToolContext, _args: Text) -> ToolResult | Park:
        way.check()
        world.called += 1
        return await ctx.sessions.spawn(Task(text=f"m{1_000 + world.called}"))

    everywhere = {kind.value: ApprovalMode.ALLOW for kind in SessionKind}
    return [
        tool("look", Risk.READ, Effect.PURE),
        tool("mark", Risk.WRITE, Effect.IDEMPOTENT, everywhere),
        tool("trusted", Risk.EXECUTE, Effect.UNSAFE, everywhere),
        tool("shell", Risk.EXECUTE, Effect.UNSAFE),
        FakeTool(name="spawn", risk=Risk.NONE, effect=Effect.IDEMPOTENT, body=spawn),
        tool("save", Risk.WRITE, Effect.IDEMPOTENT, dict.fromkeys(everywhere, ApprovalMode.ASK)),
    ]


def make_daemon(world: World, machine: Machine) -> Daemon:
    """A whole daemon but for its server and its control socket."""
    way, node = Way(world, machine), NodeId(machine.place)
    tools = _tools(world, machine, way)
    engine = Engine(world.folder, tools, store=cast(FailingStore, way), running=world.running)
    engine.calls.expiry = {kind: timedelta(seconds=EXPIRY_S) for kind in SessionKind}
    engine.models.model = Thinker(world, way)
    engine.turns.operator = Operator(lambda: engine.registry.snapshot().commands)
    channel = PlatformChannel(world.platform, machine.name)
    worker, delivery = engine.worker(), engine.delivery(channel)
    worker.node = delivery.node = node
    return Daemon(
        machine=machine.name,
        store=engine.store,
        clock=engine.clock,
        ingress=engine.ingress,
        channels={channel.name: channel},
        stateful_tools={},
        http=cast(HttpServer, _NoServer()),
        control=cast(ControlServer, _NoControl()),
        worker=worker,
        delivery=delivery,
        live_edits=engine.live_edits(delivery, look_every_s=0.4),
        membership=Membership(entry=NodeEntry(node=node, key=None), node=engine.store, events=engine.store.event_bus),
        sweeper=Sweeper(node_id=node, sweeps=engine.store, node=engine.store, metrics=engine.metrics),
    )


def is_of_the_store(error: BaseException) -> bool:
    """Return True for an error of an absent store, at any depth."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(is_of_the_store(one) for one in group.exceptions)
    return isinstance(error, StoreError)


class _NoServer:
    """A server without visitors."""

    port = 0

    async def start(self) -> None:
        """Serve nobody."""

    async def stop(self) -> None:
        """Go on so."""


class _NoControl:
    """A control socket without commands."""

    def check_place(self) -> None:
        """Nobody else has its place."""

    async def run(self, reachable: asyncio.Event) -> None:
        """Wait for the end."""
        reachable.set()
        await asyncio.Event().wait()
