"""Two daemons in one process on one store: as two machines would be, with one that can be suspended."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import aiohttp

from config.load import load
from config.plugins import tool_specs
from gateway.app import App, build
from gateway.app.core import Fakes
from gateway.app.state import open_state, state_key
from gateway.approvals import ButtonTokens, page_card
from gateway.domain.events import ANSWERS, SLOTS, TURNS, LiveEvent
from gateway.domain.ids import OwnerName, SessionId, WaitId, main_session, mint, web_principal
from gateway.domain.messages import Conversation, Inbound, Press
from gateway.domain.views import Item
from gateway.domain.waits import PressResult, Verb
from gateway.ports import Clock, Store
from gateway.sandbox import Containment, probe
from gateway.store.event_bus import LocalEventBus
from gateway.store.memory import MemoryStore
from gateway.toolcalls.workspaces import HOME
from tests.fault.oracle import the_audit_is_whole
from tests.support.patience import PATIENCE_S

WAKES = MappingProxyType({"claim": TURNS, "claim_slots": SLOTS})
"""Which topic wakes a claim that waits."""
SHARED_HOME = "00112233445566ff"


class NodeBus(LocalEventBus):
    """The event bus of one machine among `others`, itself included. While the machine is suspended it loses events."""

    def __init__(self, others: list[NodeBus], awake: asyncio.Event) -> None:
        """Join the others."""
        super().__init__()
        self._others, self._awake = others, awake
        self.accounts: set[tuple[str, str]] = set()
        others.append(self)

    def publish(self, topic: str, event: LiveEvent) -> None:
        """Reach all machines that are awake."""
        publish_to(self._others, topic, event)

    def publish_here(self, topic: str, event: LiveEvent) -> None:
        """Reach this machine, if it is awake."""
        if self._awake.is_set():
            super().publish_here(topic, event)

    def publish_to_sender(self, where: Conversation, event: LiveEvent) -> None:
        """Reach the sender's machine; without one, this."""
        account = (where.channel, where.account)
        next((one for one in self._others if account in one.accounts), self).publish_here(ANSWERS, event)

    def send_for(self, accounts: Collection[tuple[str, str]]) -> None:
        """Send for them instead of the others."""
        for one in self._others:
            one.accounts -= set(accounts)
        self.accounts |= set(accounts)


class StoreBus(LocalEventBus):
    """The event bus of the store itself: its commits reach all machines that are awake."""

    def __init__(self, machines: list[NodeBus]) -> None:
        """Reach these."""
        super().__init__()
        self._machines = machines

    def publish(self, topic: str, event: LiveEvent) -> None:
        """Reach all of them."""
        publish_to(self._machines, topic, event)


def publish_to(machines: list[NodeBus], topic: str, event: LiveEvent) -> None:
    """Publish on the bus of each machine."""
    for one in machines:
        one.publish_here(topic, event)


@dataclass(slots=True)
class Suspended:
    """A store as one machine reaches it: while the machine is suspended, whatever it asks waits until it wakes."""

    store: MemoryStore
    event_bus: NodeBus
    awake: asyncio.Event
    asked: Counter[str] = field(default_factory=Counter[str])
    """Calls of each method while the machine was awake."""
    answered: Counter[str] = field(default_factory=Counter[str])
    """Calls of each method that returned a value: not None, False or an empty one."""

    def __getattr__(self, name: str) -> Any:
        """Return the store's own method, behind the gate."""
        found = getattr(self.store, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def asked(*args: Any, wait_s: float = 0, **kwargs: Any) -> Any:
            await self.awake.wait()
            self.asked[name] += 1
            answer = await cast(Callable[..., Awaitable[Any]], found)(*args, **kwargs)
            if wait_s and not answer:  # waiting is the machine's own: one that was suspended meanwhile takes nothing
                await self.event_bus.wait_for(WAKES[name], wait_s)
                await self.awake.wait()
                answer = await cast(Callable[..., Awaitable[Any]], found)(*args, **kwargs)
            self.answered[name] += bool(answer)
            return answer

        return asked


@dataclass(slots=True)
class Machine:
    """One daemon and its way to the store."""

    app: App
    way: Suspended
    running: asyncio.Task[None]

    @property
    def suspended(self) -> bool:
        """Return True while it is suspended."""
        return not self.way.awake.is_set()

    def suspend(self) -> None:
        """From now on it gets no answer from the store; its tools go on, as processes do under SIGSTOP."""
        self.way.awake.clear()

    def wake(self) -> None:
        """It goes on where it was. What it was told meanwhile is lost."""
        self.way.awake.set()
        self.way.event_bus.look_again()


@dataclass(slots=True)
class Pair:
    """Both machines, and what people do."""

    store: MemoryStore
    machines: tuple[Machine, Machine]
    handles: ButtonTokens
    state: Path
    """Folder of the state folders of both."""

    async def say(self, at: int, text: str, owner: str = "owner", key: str = "") -> None:
        """Say something on the page of one machine."""
        name = OwnerName(owner)
        message = Inbound(
            event_key=key or mint("e"),
            conversation=Conversation(channel="web", account="page", chat=owner),
            principal=web_principal(name),
            name=owner,
            direct=True,
            addressed=True,
            text=text,
            sent_at=self.store.clock.now(),
        )
        assert await self.machines[at].app.control_commands.ingress.message(message) is not None

    async def press(self, at: int, wait: WaitId, verb: Verb = Verb.ONCE, owner: str = "owner") -> PressResult:
        """Press a button on the page of one machine."""
        name = OwnerName(owner)
        press = Press(
            event_key=mint("p"),
            conversation=Conversation(channel="web", account="page", chat=owner),
            principal=web_principal(name),
            handle=self.handles.make(wait, page_card(name), verb),
        )
        return (await self.machines[at].app.control_commands.ingress.press(press)).result

    async def asked(self) -> WaitId:
        """Wait for an open approval."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if found := await self.store.open_approvals():
                    return found[0].id
                await asyncio.sleep(0.01)

    async def items(self, owner: str = "owner") -> list[Item]:
        """Every row of an owner's main session; the audit of the store is whole."""
        await the_audit_is_whole(self.store)
        rows = await self.store.changes(main_session(OwnerName(owner)), 0, 100_000)
        return [row.item for row in sorted(rows.rows, key=lambda row: row.ord)]

    async def rev(self, session: SessionId) -> int:
        """The session's last revision."""
        return (await self.store.changes(session, 0, 100_000)).rev

    def holder(self) -> Machine:
        """Which of the two started a call."""
        [found] = [one for one in self.machines if one.way.answered["start_step"]]
        return found


@asynccontextmanager
async def pair(folder: Path, clock: Clock, config: str = "", *, shares_files: bool = True) -> AsyncGenerator[Pair]:
    """Two daemons on one memory store, with one key for their buttons, and one home for their files."""
    store, buses = MemoryStore(clock), list[NodeBus]()
    store.local_bus = StoreBus(buses)
    containment = await probe()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(aiohttp.ClientSession())
        machines: list[Machine] = []
        for n in range(2):
            state = folder / f"machine-{n}"
            open_state(state)
            if machines:
                (state / "state.key").write_bytes((folder / "machine-0" / "state.key").read_bytes())
            if shares_files:
                (state / "workspaces").mkdir()
                (state / "workspaces" / HOME).write_text(SHARED_HOME)
            machines.append(await _start(stack, state, config, client, clock, store, buses, containment))
        try:
            yield Pair(store, (machines[0], machines[1]), ButtonTokens(state_key(folder / "machine-0")), folder)
        finally:
            for one in machines:
                one.wake()
                one.app.daemon.stop()
            for one in machines:
                await one.running


async def _start(
    stack: AsyncExitStack,
    state: Path,
    config: str,
    client: aiohttp.ClientSession,
    clock: Clock,
    store: MemoryStore,
    buses: list[NodeBus],
    containment: Containment,
) -> Machine:
    path = state.with_suffix(".toml")
    path.write_text(f"[http]\nport = 0\n{config}")
    awake = asyncio.Event()
    awake.set()
    way = Suspended(store, NodeBus(buses, awake), awake)
    app = build(
        load(path, state, {"HOME": str(state)}, tool_specs()),
        containment=containment,
        environ={},
        client=client,
        fakes=Fakes(clock=clock, store=cast(Store, way)),
    )
    app.daemon.closers = ()  # the client belongs to both
    ready = asyncio.Event()

    async def is_ready() -> None:
        ready.set()

    running = asyncio.create_task(app.daemon.run(is_ready), name=f"daemon {state.name}")
    stack.callback(running.cancel)
    async with asyncio.timeout(PATIENCE_S):
        await ready.wait()
    return Machine(app, way, running)
