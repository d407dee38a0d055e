"""Small fakes around the engine: tools, a model, a channel, a store that fails when told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from gateway.domain.ids import CallId, NodeId, OwnerName, Principal, TurnId
from gateway.domain.messages import Attachment, Conversation
from gateway.domain.nodes import NodeLine
from gateway.domain.prompts import Complete, ModelEvent, ModelRequest, TextPart
from gateway.domain.sessions import Session
from gateway.domain.slots import RateLimit, RenderedSlot, Slot
from gateway.domain.steps import Answer
from gateway.domain.tools import (
    ApprovalMode,
    Availability,
    Effect,
    Park,
    ResultStatus,
    Risk,
    SandboxPolicy,
    ToolCall,
    ToolPolicy,
    ToolResult,
    ToolSpec,
)
from gateway.domain.views import Claimed, TurnView
from gateway.errors import ModelError, SendFailed, StoreError
from gateway.policy.routing import AllowedPeople
from gateway.ports import Model, Progress, Sink, ToolContext
from gateway.sandbox import Containment
from gateway.store.memory import MemoryStore
from gateway.toolcalls.arguments import ModelArguments
from gateway.toolcalls.tool_set import Tool
from tests.support.clock import FakeClock
from tests.support.makers import ANN, ANN_SLACK, ANN_TELEGRAM, BOB
from tests.support.patience import PATIENCE_S

CLEO = OwnerName("cleo")
CLEO_TELEGRAM = Principal("telegram:3003")
CLEO_CHAT = Conversation(channel="telegram", account="default", chat="3003")
BOB_CHAT = Conversation(channel="telegram", account="default", chat="2002")
ANN_PAGE = Conversation(channel="web", account="page", chat="ann")
CLEO_PAGE = Conversation(channel="web", account="page", chat="cleo")
GROUP = Conversation(channel="telegram", account="default", chat="-1003")
NODE = NodeId("here#1")
PEOPLE = AllowedPeople(
    owners={
        ANN: frozenset([Principal("web:ann"), ANN_TELEGRAM, ANN_SLACK]),
        CLEO: frozenset([Principal("web:cleo"), CLEO_TELEGRAM]),
    },
    allowed=frozenset([BOB]),
    chats=frozenset(["telegram:-1003"]),
)
NO_SANDBOX = Containment(can_bwrap=False, can_pid_namespace=False)
KEY = b"k" * 32


class Text(BaseModel):
    """Arguments of a fake tool."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = ""


Body = Callable[[ToolContext, Text], Awaitable[ToolResult | Park]]


def done(text: str = "done") -> ToolResult:
    """A call that went well."""
    return ToolResult(status=ResultStatus.OK, text=text)


@dataclass(slots=True, kw_only=True)
class FakeTool:
    """A tool that remembers its calls; while `hold` is set each waits until `release`."""

    name: str
    risk: Risk = Risk.NONE
    effect: Effect = Effect.PURE
    availability: Availability = Availability.ALWAYS
    timeout_s: float = 30.0
    sandbox: SandboxPolicy | None = None
    speaks: bool = False
    approval: dict[str, ApprovalMode] = field(default_factory=dict[str, ApprovalMode])
    arguments: type[BaseModel] = Text
    body: Body | None = None
    hold: bool = False
    calls: list[str] = field(default_factory=list[str])
    keys: list[str] = field(default_factory=list[str])
    running: int = 0
    most: int = 0
    begun: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, ctx: ToolContext, args: Text) -> ToolResult | Park:
        """Remember, then do what the test said."""
        self.calls.append(args.text)
        self.keys.append(ctx.step_key)
        self.running += 1
        self.most = max(self.most, self.running)
        self.begun.release()
        try:
            if self.hold:
                await self.release.wait()
            return await self.body(ctx, args) if self.body else done(f"{self.name} {args.text}".strip())
        finally:
            self.running -= 1

    async def until_begun(self, times: int = 1) -> None:
        """Wait until so many more calls have begun."""
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(times):
                await self.begun.acquire()

    def tool(self) -> Tool:
        """As the registry takes it."""
        spec = ToolSpec(
            name=self.name,
            description=f"The fake {self.name}.",
            risk=self.risk,
            effect=self.effect,
            availability=self.availability,
            timeout_s=self.timeout_s,
            sandbox=self.sandbox,
            positional="text",
            shows="text",
            of_children=self.speaks,
            returns_child_text=self.speaks,
        )
        policy = ToolPolicy(
            availability=self.availability,
            approval=self.approval,
            timeout_s=self.timeout_s,
            actions={},
            sandbox=self.sandbox,
        )
        return Tool(spec=spec, policy=policy, arguments=ModelArguments(self.arguments), run=self.run)


class ToolBox:
    """One tool of each risk, and one that nobody may use."""

    def __init__(self) -> None:
        """Make them."""
        self.read = FakeTool(name="read", risk=Risk.READ)
        self.think = FakeTool(name="think", risk=Risk.NONE)
        self.write = FakeTool(name="write", risk=Risk.WRITE, effect=Effect.IDEMPOTENT)
        self.shell = FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE)
        self.trusted = FakeTool(
            name="trusted", risk=Risk.EXECUTE, effect=Effect.UNSAFE, approval={"main": ApprovalMode.ALLOW}
        )
        self.blocked = FakeTool(name="blocked", availability=Availability.BLOCKED)

    @property
    def all(self) -> list[FakeTool]:
        """Every one of them."""
        return [self.read, self.think, self.write, self.shell, self.trusted, self.blocked]


def calls(*named: str, text: str = "") -> Answer:
    """An answer that calls tools: `name` or `name:text`."""
    found: list[ToolCall] = []
    for i, one in enumerate(named):
        name, _, words = one.partition(":")
        found.append(ToolCall(id=CallId(f"c{i}"), tool=name, arguments=Text(text=words).model_dump_json()))
    return Answer(text=text, calls=tuple(found), model="scripted")


@dataclass(slots=True)
class ScriptedModel:
    """`ports.Model` that gives the next thing of its script, then "That is all."."""

    script: list[Answer | ModelError | Exception] = field(default_factory=list[Answer | ModelError | Exception])
    requests: list[ModelRequest] = field(default_factory=list[ModelRequest])
    name: str = "scripted"
    asked: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    go: asyncio.Event = field(default_factory=asyncio.Event)
    hold: bool = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Answer."""
        self.requests.append(request)
        self.asked.release()
        if self.hold:
            await self.go.wait()
        found = self.script.pop(0) if self.script else Answer(text="That is all.", model=self.name)
        if isinstance(found, Exception):
            raise found
        for word in found.text.split(" "):
            yield TextPart(text=f"{word} ")
        yield Complete(answer=found)

    async def until_asked(self) -> None:
        """Wait for the next question."""
        async with asyncio.timeout(PATIENCE_S):
            await self.asked.acquire()


@dataclass(slots=True)
class FakeModels:
    """`ports.Models` that knows one model, and others by name for children that were given one."""

    model: Model
    others: dict[str, Model] = field(default_factory=dict[str, Model])

    @property
    def names(self) -> Sequence[str]:
        """The others."""
        return sorted(self.others)

    def of(self, session: Session) -> Model:
        """The one that the session was given, else the one."""
        named = session.lineage.model if session.lineage else ""
        return self.others.get(named, self.model)


class FailingStore(MemoryStore):
    """The memory store, whose named methods fail so often."""

    def __init__(self, clock: FakeClock) -> None:
        """Begin healthy."""
        super().__init__(clock)
        self.moved = clock
        self.failing: dict[str, int] = {}

    def _maybe(self, name: str) -> None:
        if self.failing.get(name, 0) > 0:
            self.failing[name] -= 1
            raise StoreError(f"The store failed: {name}.")

    async def claim(
        self, node: NodeId, limit: int = 1, *, wait_s: float = 0, history: int = 0, home: str = ""
    ) -> Sequence[Claimed]:
        """Fail, or claim."""
        self._maybe("claim")
        return await super().claim(node, limit, wait_s=wait_s, history=history, home=home)

    async def turn(self, turn: TurnId) -> TurnView:
        """Fail, or read."""
        self._maybe("turn")
        return await super().turn(turn)

    async def claim_slots(
        self, node: NodeId, channels: Sequence[str], limit: int, *, wait_s: float = 0
    ) -> Sequence[Slot]:
        """Fail, or claim."""
        self._maybe("claim_slots")
        return await super().claim_slots(node, channels, limit, wait_s=wait_s)

    async def slot_sent(self, slot: Slot, message_ids: tuple[str, ...], *, unsettled: bool = False) -> None:
        """Fail, or record."""
        self._maybe("slot_sent")
        await super().slot_sent(slot, message_ids, unsettled=unsettled)

    async def expire_waits(self) -> int:
        """Fail, or sweep."""
        self._maybe("expire_waits")
        return await super().expire_waits()

    async def alive(self, node: NodeId) -> NodeLine | None:
        """Fail, or say so."""
        self._maybe("alive")
        return await super().alive(node)

    async def probe(self) -> None:
        """Fail, or be well."""
        self._maybe("probe")
        await super().probe()


@dataclass(slots=True)
class FakeChannel:
    """`ports.Channel` that keeps what it was asked to show and fails as told: one outcome for each try."""

    name: str = "telegram"
    outcomes: list[SendFailed | Exception | None] = field(default_factory=list[SendFailed | Exception | None])
    sent: list[RenderedSlot] = field(default_factory=list[RenderedSlot])
    edited: list[RenderedSlot] = field(default_factory=list[RenderedSlot])
    slow: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    """Chats whose sends wait."""
    breaks: int = 0
    runs: int = 0
    streams: bool = False
    pace: tuple[RateLimit, ...] = ()
    typed: list[Conversation] = field(default_factory=list[Conversation])
    files: dict[str, Sequence[bytes | Exception | None]] = field(
        default_factory=dict[str, Sequence[bytes | Exception | None]]
    )
    """Content of each source: pieces, a failure, or None for a piece that never comes. The next try gets the rest."""
    fetched: list[str] = field(default_factory=list[str])

    async def run(self, sink: Sink) -> None:
        """Break so often, then serve until cancelled."""
        self.runs += 1
        if self.runs <= self.breaks:
            raise RuntimeError("the platform said something strange")
        await asyncio.Event().wait()

    async def show(self, showing: RenderedSlot, progress: Progress) -> tuple[str, ...]:
        """Show, or change."""
        if showing.slot.message_ids:
            self._fail()
            self.edited.append(showing)
            return showing.slot.message_ids
        gate = self.slow.get(showing.slot.conversation.chat)
        if gate is not None:
            await gate.wait()
        self._fail()
        self.sent.append(showing)
        return (f"m{len(self.sent)}",)

    async def typing(self, conversation: Conversation) -> None:
        """Keep where."""
        self.typed.append(conversation)

    async def fetch(self, conversation: Conversation, file: Attachment, write: Callable[[bytes], None]) -> None:
        """As told."""
        self.fetched.append(file.source)
        pieces = list(self.files[file.source])
        while pieces:
            piece = pieces.pop(0)
            self.files[file.source] = tuple(pieces)
            if isinstance(piece, Exception):
                raise piece
            if piece is None:
                await asyncio.Event().wait()
            else:
                write(piece)

    def rate_limits(self, conversation: Conversation) -> Sequence[RateLimit]:
        """As told."""
        return self.pace

    def trouble(self) -> str:
        """None."""
        return ""

    def _fail(self) -> None:
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is not None:
            raise outcome


async def until(wanted: Callable[[], Awaitable[Any]], within_s: float = PATIENCE_S) -> None:
    """Wait until something holds; raise `AssertionError` when it does not in time."""
    for _ in range(round(within_s / 0.005)):
        if await wanted():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come to hold")


@asynccontextmanager
async def in_background(work: Awaitable[object]) -> AsyncGenerator[asyncio.Task[None]]:
    """Run something beside the test; cancel it at the end. What it raises by itself is raised here."""

    async def _work() -> None:
        await work

    async with asyncio.TaskGroup() as group:
        task = group.create_task(_work(), name="beside the test")
        await asyncio.sleep(0)  # it has begun
        try:
            yield task
        finally:
            task.cancel()
