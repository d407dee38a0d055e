"""The engine between ingress and delivery, wired as `gateway.app` wires it, over the memory store and fakes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import aiohttp

from config.load import Loaded, load
from config.settings import Settings
from gateway.agent.worker import TurnWorker
from gateway.app.core import Fakes, make_core
from gateway.app.sending import make_delivery, make_live_edits, make_messages
from gateway.app.wiring import (
    make_channel_host,
    make_compaction,
    make_context,
    make_ingress,
    make_page,
    make_turn_runner,
    make_turn_worker,
    make_web_access,
)
from gateway.approvals import ButtonTokens
from gateway.domain.budgets import BudgetLimits
from gateway.domain.children import Agent
from gateway.domain.events import Activity
from gateway.domain.ids import OwnerName, Principal, SessionId, TurnId, WaitId, main_session
from gateway.domain.messages import Conversation, Press
from gateway.domain.routes import WhileRunning
from gateway.domain.slots import Slot
from gateway.domain.steps import Answer, Step
from gateway.domain.tools import ResultStatus, ToolResult
from gateway.domain.turns import Lease, TurnKind, TurnLimits
from gateway.domain.views import Claimed, TurnView
from gateway.domain.waits import Pressed, Verb, Wait
from gateway.outbound.delivery import Delivery
from gateway.outbound.live_edits import LiveEdits
from gateway.outbound.status_line import activity_text
from gateway.policy.routing import AllowedPeople
from gateway.ports import COOKIE, Channel, ChannelContext
from gateway.sandbox import Containment
from gateway.server.channel_host import DaemonChannelHost
from gateway.server.http import HttpServer
from gateway.server.page.adapter import WebChannel
from gateway.server.request_guard import KEY_HEADER, Address
from gateway.server.web_access import WebAccess
from gateway.system.cancellation import Cancellation
from gateway.system.redaction import Redactor
from gateway.toolcalls.hooks import Hooks
from gateway.toolcalls.registry import ToolSource
from gateway.toolcalls.tool_set import Tool, ToolSet
from tests.support.clock import FakeClock
from tests.support.fakes import (
    GROUP,
    KEY,
    NO_SANDBOX,
    NODE,
    PEOPLE,
    FailingStore,
    FakeModels,
    FakeTool,
    ScriptedModel,
    calls,
    in_background,
)
from tests.support.makers import ANN, ANN_SLACK, ANN_TELEGRAM, CHAT, chat, inbound, route
from tests.support.patience import PATIENCE_S


@cache
def defaults() -> Loaded:
    """The configuration that says nothing."""
    return load(None, "/nowhere", {"HOME": "/nowhere"}, {})


@cache
def settings_of(context_tokens: int, running: WhileRunning) -> Settings:
    """The settings of an engine: Ann is the owner who has other chats than the page."""
    found = defaults().settings
    return replace(
        found,
        owners={ANN: (ANN_TELEGRAM, ANN_SLACK)},
        model=found.model.model_copy(update={"name": "scripted", "context_tokens": context_tokens}),
        sessions=found.sessions.model_copy(update={"message_while_running": running}),
    )


def limited(limits: TurnLimits, budgets: BudgetLimits | None) -> Loaded:
    """The defaults with these limits."""
    return replace(defaults(), limits=limits, budgets=budgets or BudgetLimits())


class Engine:
    """Everything between ingress and delivery, real, over one memory store and a clock that the test moves."""

    def __init__(
        self,
        folder: Path,
        tools: Iterable[FakeTool | Tool] = (),
        *,
        people: AllowedPeople = PEOPLE,
        script: Iterable[Answer | Exception] = (),
        secrets: Iterable[str] = (),
        steer: bool = True,
        running: WhileRunning | None = None,
        containment: Containment = NO_SANDBOX,
        store: FailingStore | None = None,
        limits: TurnLimits | None = None,
        budgets: BudgetLimits | None = None,
        context_tokens: int = 100_000,
        agents: Mapping[str, Agent] | None = None,
        instructions: str = "",
        sources: Sequence[ToolSource] = (),
    ) -> None:
        """Wire it; nothing runs yet. With `store` it is another life on the same rows and clock."""
        self.clock = store.moved if store else FakeClock()
        self.store = store or FailingStore(self.clock)
        self.people = people
        self.model, self.operator = ScriptedModel(list(script)), ScriptedModel(name="operator")
        self.models = FakeModels(self.model)
        self.tokens = ButtonTokens(KEY)
        self.limits = limits or TurnLimits()
        made = [one.tool() if isinstance(one, FakeTool) else one for one in tools]
        settings = settings_of(context_tokens, running or (WhileRunning.STEER if steer else WhileRunning.QUEUE))
        loaded = replace(limited(self.limits, budgets), settings=settings, state=folder)
        self.core = make_core(
            replace(loaded, agents=agents or {}, instructions=instructions),
            containment,
            {},
            cast(aiohttp.ClientSession, None),
            Fakes(
                clock=self.clock,
                store=self.store,
                node=NODE,
                people=people,
                tools=made,
                sources=sources,
                models=self.models,
                operator=self.operator,
                redactor=Redactor(secrets),
                key=KEY,
            ),
        )
        self.metrics, self.points, self.redactor = self.core.metrics, self.core.points, self.core.redactor
        self.approvals, self.registry, self.workspaces = self.core.approvals, self.core.registry, self.core.workspaces
        self.channels: dict[str, Channel] = {}
        """Channels whose files are fetched."""
        self.turns = make_turn_runner(self.core, self.channels)
        self.calls, self.subsessions = self.turns.calls, self.turns.subsessions
        self.execution = self.calls.execution
        self.turns.streams = frozenset({"telegram"})
        self.turns.prompts.system, self.turns.prompts.child_system = "You are a test.", "You are a sub-session."
        self.compaction = make_compaction(self.core)
        self.ingress = make_ingress(self.core)
        self._keys = iter(range(1_000_000))

    def use_hooks(self, hooks: Hooks) -> None:
        """Take these hooks, before and after calls."""
        self.calls.hooks = self.execution.hooks = hooks

    def worker(self) -> TurnWorker:
        """A worker of turns on this engine."""
        return make_turn_worker(self.core, self.turns, self.compaction)

    def delivery(self, *channels: Channel) -> Delivery:
        """A sender on this engine, in a life of its own: it remembers nothing of limits."""
        messages = make_messages(self.core, {channel.name: channel for channel in channels})
        return make_delivery(self.core, messages)

    def live_edits(self, delivery: Delivery, look_every_s: float = 0.002) -> LiveEdits:
        """The live edits of the messages that are delivered."""
        return replace(make_live_edits(self.core, delivery.messages), look_every_s=look_every_s)

    def host(self) -> DaemonChannelHost:
        """Return the channels' host, for all but pushed messages."""
        return make_channel_host(self.core)

    def context(self, name: str, settings: Any, client: aiohttp.ClientSession) -> ChannelContext:
        """Return the context of a channel on this engine."""
        return replace(make_context(self.core, name, settings), client=client)

    def web_access(self) -> WebAccess:
        """The web access of this engine."""
        return make_web_access(self.core)

    # --- doing --------------------------------------------------------------------------------

    async def say(self, text: str = "hello", *, who: Principal = ANN_TELEGRAM, where: Conversation = CHAT) -> TurnId:
        """A message arrives that must start or join a turn."""
        accepted = await self.ingress.message(inbound(text, who=who, where=where, direct=where != GROUP))
        assert accepted is not None
        return accepted.turn

    async def groups(self, count: int) -> list[SessionId]:
        """So many groups, in each of which somebody has just asked something; a second apart."""
        names = [SessionId(f"chat:telegram/default/-{n}") for n in range(count)]
        for n, name in enumerate(names):
            await self.store.accept(
                route(name), inbound(where=chat(n)), TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None
            )
            self.clock.advance(1)
        return names

    async def claim(self) -> Lease:
        """Claim a turn that must be there."""
        (claimed,) = await self.store.claim(NODE)
        return claimed.lease

    async def claim_twice(self) -> tuple[Lease, Lease]:
        """Claim a turn, and once more when the first lease has ended: the stale lease and the good one."""
        stale = await self.claim()
        self.clock.advance(16)
        await self.store.reclaim()
        return stale, await self.claim()

    async def planned(self, *named: str, who: Principal = ANN_TELEGRAM, where: Conversation = CHAT) -> Lease:
        """A held turn whose first answer called these tools."""
        turn = await self.say(who=who, where=where)
        lease = await self.claim()
        view = await self.store.turn(turn)
        given = view.inputs
        await self.store.plan(lease, calls(*named), given=given, slots=[])
        return lease

    def page(self) -> tuple[WebAccess, WebChannel]:
        """The page, and its door to the sessions."""
        access = make_web_access(self.core)
        return access, make_page(self.core, access)

    async def settle(
        self, lease: Lease, cancellation: Cancellation | None = None, *, tools: ToolSet | None = None
    ) -> bool:
        """Do all that can be done for the calls of a turn."""
        async with asyncio.timeout(PATIENCE_S):
            view = await self.store.turn(lease.turn)
            return (
                await self.calls.settle(
                    view, tools or self.registry.snapshot(), lease, cancellation or Cancellation(), lambda _: None
                )
                is not None
            )

    async def settle_telling(
        self, view: TurnView, lease: Lease, told: Callable[[str], None] = lambda _: None
    ) -> TurnView | None:
        """Do all that can be done for the calls of this view; pass each new text of the activity to `told`."""
        before = ""

        def tell(now: Activity) -> None:
            nonlocal before
            text = activity_text(now, self.redactor)
            if text != before:
                told(text)
            before = text

        return await self.calls.settle(view, self.registry.snapshot(), lease, Cancellation(), tell)

    async def works(self, lease: Lease, seconds: float) -> None:
        """Let its holder work for so long, with the lease renewed each 5 s, as the daemon does."""
        left = seconds
        while left > 0:
            self.clock.advance(min(5, left))
            await self.store.renew(lease)
            left -= 5

    async def run(self, lease: Lease) -> None:
        """Run a claimed turn until it ends or parks."""
        async with asyncio.timeout(PATIENCE_S):
            await self.turns.begin(Claimed(lease=lease, view=None)).run()

    async def press(
        self,
        wait: WaitId,
        verb: Verb = Verb.ONCE,
        *,
        who: Principal = ANN_TELEGRAM,
        where: Conversation = CHAT,
        reason: str = "",
    ) -> Pressed:
        """Press a button of the card that stands in a conversation."""
        shown = [slot for slot in await self.store.card_slots(wait) if slot.conversation == where]
        card = shown[-1].id if shown else f"page:{where.chat}"
        handle = self.tokens.make(wait, card, verb)
        key = f"press-{next(self._keys)}"
        return await self.ingress.press(
            Press(event_key=key, conversation=where, principal=who, handle=handle, reason=reason)
        )

    # --- looking ------------------------------------------------------------------------------

    async def step(self, turn: TurnId, n: int) -> Step:
        """One step."""
        return (await self.store.turn(turn)).steps[n]

    async def result(self, turn: TurnId, n: int) -> ToolResult:
        """A step's result, which must be there."""
        found = (await self.step(turn, n)).result
        assert found is not None, f"step {n} has no result"
        return found

    async def results(self, turn: TurnId) -> list[ResultStatus | None]:
        """Return the status of each call."""
        steps = (await self.store.turn(turn)).steps
        return [step.result.status if step.result else None for step in steps if step.call is not None]

    async def waits(self, turn: TurnId) -> list[Wait]:
        """The turn's waits in the order they were opened."""
        return list((await self.store.turn(turn)).waits)

    async def slots(self, owner: OwnerName = ANN, session: str = "") -> list[Slot]:
        """The slots of a session, oldest first."""
        rows = await self.store.older(SessionId(session) if session else main_session(owner), None, 10_000)
        return [row.item for row in rows.rows if isinstance(row.item, Slot)]

    async def texts(self, owner: OwnerName = ANN, session: str = "") -> list[str]:
        """Return the texts of a session."""
        return [slot.text for slot in await self.slots(owner, session) if slot.text]


@dataclass(slots=True, kw_only=True)
class Served:
    """The engine's page on a real port of loopback."""

    engine: Engine
    web_access: WebAccess
    web: WebChannel
    http: HttpServer

    @property
    def url(self) -> str:
        """Return its address, without a slash."""
        return f"http://127.0.0.1:{self.http.port}"

    async def cookie(self, owner: OwnerName = ANN) -> str:
        """Sign an owner in; return `<cookie>.<key>`."""
        found = await self.web_access.sign_in(await self.web_access.mint_code(owner), "here")
        assert found is not None
        return found[1].text

    def client(self, cookie: str = "", *, origin: str | None = None) -> aiohttp.ClientSession:
        """A client that says where it comes from, with `<cookie>.<key>` or without."""
        cookie, _, key = cookie.partition(".")
        headers = {"Origin": self.url if origin is None else origin} | ({KEY_HEADER: key} if key else {})
        cookies = {COOKIE: cookie} if cookie else {}
        return aiohttp.ClientSession(headers=headers, cookies=cookies, cookie_jar=aiohttp.CookieJar(unsafe=True))


@asynccontextmanager
async def served(engine: Engine) -> AsyncGenerator[Served]:
    """Serve the page of an engine for one test."""
    client = aiohttp.ClientSession()
    pages, web = engine.page()
    http = HttpServer(
        address=Address(host="127.0.0.1", port=0),
        endpoints=web.endpoints(),
        sign_ins=pages,
        health=engine.store,
        metrics=engine.metrics,
        clock=engine.clock,
    )
    await http.start()
    try:
        async with in_background(web.run(engine.ingress)):
            yield Served(engine=engine, web_access=pages, web=web, http=http)
    finally:
        await http.stop()
        await client.close()
