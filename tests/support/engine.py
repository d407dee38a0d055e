"""The engine between ingress and delivery, wired of real parts over the memory store, for unit tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import aiohttp

from channels.web.adapter import WebChannel
from channels.web.settings import WebSettings
from gateway.agent.attachments import Attachments
from gateway.agent.compaction import Compaction
from gateway.agent.prompt import PromptBuilder
from gateway.agent.runner import TurnWorker
from gateway.agent.turn import TurnRunner
from gateway.approvals import Approvals, ButtonTokens
from gateway.domain.children import Agent
from gateway.domain.ids import OwnerName, Principal, SessionId, TurnId, WaitId, main_session
from gateway.domain.messages import Conversation, Press
from gateway.domain.routes import WhileRunning
from gateway.domain.sessions import SessionKind
from gateway.domain.slots import Slot
from gateway.domain.steps import Answer, Step
from gateway.domain.tools import ResultStatus, ToolResult
from gateway.domain.turns import Lease, TurnKind, TurnLimits
from gateway.domain.views import Claimed
from gateway.domain.waits import Pressed, Verb, Wait
from gateway.inbound.ingress import Ingress
from gateway.outbound.delivery import Delivery
from gateway.outbound.live_edits import LiveEdits
from gateway.outbound.rate_limit import RateLimiter
from gateway.policy.routing import AllowedPeople
from gateway.ports import COOKIE, Channel, ChannelContext, Model
from gateway.sandbox import Containment
from gateway.server.channel_host import DaemonChannelHost, NamespacedKeyValue
from gateway.server.http import HttpServer
from gateway.server.http_checks import KEY_HEADER, Address
from gateway.server.web_access import WebAccess
from gateway.system.cancellation import Cancellation
from gateway.system.failpoints import FailPoints
from gateway.system.metrics import Metrics
from gateway.system.redaction import Redactor
from gateway.toolcalls.execution import Execution
from gateway.toolcalls.permits import PermitOffice
from gateway.toolcalls.registry import Registry, Tool
from gateway.toolcalls.scheduler import ToolCalls
from gateway.toolcalls.subsessions import SubsessionService
from gateway.toolcalls.workspaces import Workspaces
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


class TurnsOfFakes(TurnRunner):
    """Turns whose model a test can put another one in the place of."""

    @property
    def model(self) -> Model:
        """Who answers in every session that names no model."""
        return cast(FakeModels, self.models).model

    @model.setter
    def model(self, model: Model) -> None:
        cast(FakeModels, self.models).model = model


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
        context_tokens: int = 100_000,
        agents: Mapping[str, Agent] | None = None,
        instructions: str = "",
    ) -> None:
        """Wire it; nothing runs yet. With `store` it is another life on the same rows and clock."""
        self.clock = store.moved if store else FakeClock()
        self.store = store or FailingStore(self.clock)
        self.people = people
        self.metrics = Metrics()
        self.points = FailPoints()
        self.redactor = Redactor(secrets)
        self.handles = ButtonTokens(KEY)
        self.approvals = Approvals(people, self.store, self.handles)
        made = [one.tool() if isinstance(one, FakeTool) else one for one in tools]
        self.registry = Registry(made, sandboxed=containment.can_bwrap)
        self.workspaces = Workspaces(folder)
        self.model, self.operator = ScriptedModel(list(script)), ScriptedModel(name="operator")
        self.models = FakeModels(self.model)
        self.limits, self.agents, self.context_tokens = limits or TurnLimits(), agents or {}, context_tokens
        self.instructions = instructions
        self.channels: dict[str, Channel] = {}
        """Whose files are fetched."""
        self.families = self._families()
        self.execution = self._execution(containment)
        self.calls = self._calls()
        self.turns = self._turns()
        self.compaction = self._compaction()
        self.ingress = Ingress(
            intake=self.store,
            children=self.store,
            usage=self.store,
            queries=self.store,
            people=people,
            registry=self.registry,
            approvals=self.approvals,
            key_value=self.store,
            clock=self.clock,
            metrics=self.metrics,
            points=self.points,
            model_name="scripted",
            running=running or (WhileRunning.STEER if steer else WhileRunning.QUEUE),
        )
        self._keys = iter(range(1_000_000))

    def _families(self) -> SubsessionService:
        return SubsessionService(
            children=self.store,
            queries=self.store,
            registry=self.registry,
            agents=self.agents,
            models=self.models,
            limits=self.limits,
            clock=self.clock,
            redactor=self.redactor,
        )

    def _execution(self, containment: Containment) -> Execution:
        return Execution(
            office=PermitOffice(),
            workspaces=self.workspaces,
            containment=containment,
            clock=self.clock,
            events=self.store.live,
            metrics=self.metrics,
            redactor=self.redactor,
            subsessions=self.families,
        )

    def _compaction(self) -> Compaction:
        return Compaction(
            queries=self.store,
            usage=self.store,
            models=self.models,
            clock=self.clock,
            redactor=self.redactor,
            context_tokens=self.context_tokens,
        )

    def _calls(self) -> ToolCalls:
        expiry = {SessionKind.MAIN: timedelta(hours=1)}
        return ToolCalls(
            registry=self.registry,
            journal=self.store,
            queries=self.store,
            events=self.store.live,
            approvals=self.approvals,
            execution=self.execution,
            clock=self.clock,
            metrics=self.metrics,
            points=self.points,
            expiry={kind: expiry.get(kind, timedelta(minutes=15)) for kind in SessionKind},
            limits=self.limits,
        )

    def _turns(self) -> TurnsOfFakes:
        return TurnsOfFakes(
            queue=self.store,
            journal=self.store,
            queries=self.store,
            events=self.store.live,
            calls=self.calls,
            subsessions=self.families,
            prompts=PromptBuilder(
                queries=self.store,
                registry=self.registry,
                outputs=self.workspaces.outputs,
                workspaces=self.workspaces.workspace,
                system="You are a test.",
                child_system="You are a sub-session.",
                instructions=self.instructions,
                agents=self.agents,
                context_tokens=self.context_tokens,
            ),
            attachments=Attachments(
                channels=self.channels, workspaces=self.workspaces.workspace, journal=self.store, redactor=self.redactor
            ),
            models=self.models,
            operator=self.operator,
            clock=self.clock,
            metrics=self.metrics,
            points=self.points,
            redactor=self.redactor,
            elsewhere=[ANN],
            streams=frozenset({"telegram"}),
            limits=self.limits,
        )

    def sessions(self) -> TurnWorker:
        """A runner of turns on this engine."""
        return TurnWorker(
            node=NODE,
            queue=self.store,
            queries=self.store,
            events=self.store.live,
            turns=self.turns,
            compaction=self.compaction,
            metrics=self.metrics,
            points=self.points,
        )

    def delivery(self, *channels: Channel) -> Delivery:
        """A sender on this engine, in a life of its own: it remembers nothing of limits."""
        by_name = {channel.name: channel for channel in channels}
        limiter = RateLimiter(self.clock)
        return Delivery(
            node=NODE,
            outbox=self.store,
            key_value=self.store,
            queries=self.store,
            events=self.store.live,
            channels=by_name,
            approvals=self.approvals,
            clock=self.clock,
            metrics=self.metrics,
            points=self.points,
            redactor=self.redactor,
            owners={ANN: (ANN_TELEGRAM, ANN_SLACK)},
            limiter=limiter,
            live_edits=LiveEdits(
                channels=by_name,
                events=self.store.live,
                key_value=self.store,
                outbox=self.store,
                limiter=limiter,
                redactor=self.redactor,
                clock=self.clock,
                look_every_s=0.002,
            ),
            kept=self.workspaces.kept,
        )

    def host(self) -> DaemonChannelHost:
        """What channels may do beside pushing messages."""
        return DaemonChannelHost(
            node_id=NODE,
            node=self.store,
            outbox=self.store,
            owners={ANN: (ANN_TELEGRAM, ANN_SLACK)},
            registry=self.registry,
            clock=self.clock,
        )

    def context(self, name: str, settings: Any, client: aiohttp.ClientSession) -> ChannelContext:
        """What a channel on this engine is built with."""
        return ChannelContext(
            name=name,
            settings=settings,
            web_api=self.pages(),
            host=self.host(),
            key_value=NamespacedKeyValue(key_value=self.store, room=f"channel/{name}"),
            client=client,
            public_url="",
            clock=self.clock,
            fail_point=self.points.hit,
        )

    def pages(self) -> WebAccess:
        """The desk of the web page on this engine."""
        return WebAccess(
            accounts=self.store,
            queries=self.store,
            events=self.store.live,
            registry=self.registry,
            approvals=self.approvals,
            clock=self.clock,
            kept=self.workspaces.kept,
            model_name="scripted",
            version="0",
            signed_in_for=timedelta(days=30),
            redactor=self.redactor,
        )

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

    async def planned(self, *named: str, who: Principal = ANN_TELEGRAM, where: Conversation = CHAT) -> Lease:
        """A held turn whose first answer called these tools."""
        turn = await self.say(who=who, where=where)
        lease = await self.claim()
        view = await self.store.turn(turn)
        given = [one.id for one in view.inputs]
        await self.store.plan(lease, calls(*named), given=given, slots=[])
        return lease

    async def settle(self, lease: Lease, cancellation: Cancellation | None = None) -> bool:
        """Do all that can be done for the calls of a turn."""
        async with asyncio.timeout(10):
            view = await self.store.turn(lease.turn)
            return await self.calls.settle(view, lease, cancellation or Cancellation(), lambda _: None) is not None

    async def works(self, lease: Lease, seconds: float) -> None:
        """Let its holder work for so long, with the lease renewed each 5 s, as the daemon does."""
        left = seconds
        while left > 0:
            self.clock.advance(min(5, left))
            await self.store.renew(lease)
            left -= 5

    async def run(self, lease: Lease) -> None:
        """Run a claimed turn until it ends or parks."""
        async with asyncio.timeout(10):
            await self.turns.run(Claimed(lease=lease, view=None), Cancellation())

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
        handle = self.handles.make(wait, card, verb)
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
        """How each call stands."""
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
        """What was said in a session."""
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
        """Where it is, without a slash."""
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
    context = engine.context("web", WebSettings(), client)
    pages, web = cast(WebAccess, context.web_api), WebChannel(context)
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
