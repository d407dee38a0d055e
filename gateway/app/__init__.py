"""The composition root: from settings to a daemon. The only module that knows plug-ins, stores and models."""

from __future__ import annotations

import platform
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import aiohttp

from config.load import Loaded
from gateway.app.plugins import load_channels, load_tools
from gateway.app.state import open_state, state_key
from gateway.approvals import Approvals, Handles
from gateway.clock import SystemClock
from gateway.control import ControlServer
from gateway.daemon import Daemon
from gateway.delivery import Delivery
from gateway.execution import Execution, PermitOffice, Workspaces
from gateway.failpoints import FailPoints
from gateway.helm import Helmsman, Room
from gateway.http import Address, HttpServer
from gateway.intake import Gate
from gateway.llm import open_model
from gateway.local import LocalCommands
from gateway.model.ids import NodeId, Principal, web_principal
from gateway.model.sessions import SessionKind
from gateway.observe import Meters, Redactor
from gateway.pace import Pacer
from gateway.pages import Pages
from gateway.ports import Channel, ChannelContext, Clock, Endpoint, Model, Store
from gateway.registry import Registry
from gateway.routing import People
from gateway.sandbox import Containment
from gateway.sessions import Sessions
from gateway.store import open_store
from gateway.streams import Streams
from gateway.sweeps import Sweeper
from gateway.toolcalls import ToolCalls
from gateway.turn import Turns

SYSTEM_PROMPT = Path(__file__).with_name("system_prompt.md")
SEND_WAITS_S = 3600.0
"""Seconds that `dragoman send --wait` may wait for its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """A wired daemon, and the part of it that makes sign-in links."""

    daemon: Daemon
    local: LocalCommands


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """What nearly every part is built with."""

    loaded: Loaded
    clock: Clock
    store: Store
    node: NodeId
    machine: str
    redactor: Redactor
    meters: Meters
    points: FailPoints
    registry: Registry
    people: People
    approvals: Approvals
    workspaces: Workspaces
    containment: Containment
    client: aiohttp.ClientSession


def build(
    loaded: Loaded,
    *,
    containment: Containment,
    environ: Mapping[str, str],
    client: aiohttp.ClientSession,
    clock: Clock | None = None,
    store: Store | None = None,
) -> App:
    """Wire a daemon; nothing runs yet. Raises `ConfigError` or `StoreError`. Tests pass their own clock and store."""
    core = _core(loaded, containment, environ, client, clock or SystemClock(), store)
    pages = _pages(core)
    channels, endpoints = load_channels(loaded.settings.channels, partial(_context, core, pages))
    pacer = Pacer(core.clock)
    streams = Streams(
        channels=channels,
        live=core.store.live,
        notes=core.store,
        pacer=pacer,
        redactor=core.redactor,
        clock=core.clock,
    )
    gate = _gate(core)
    http = _http(core, pages, endpoints, channels)
    local = _local(core, pages, http, gate)
    daemon = Daemon(
        machine=core.machine,
        store=core.store,
        clock=core.clock,
        gate=gate,
        channels=channels,
        http=http,
        control=ControlServer(loaded.state / "control.sock", local.commands(), limits={"send": SEND_WAITS_S}),
        sessions=_sessions(core, [name for name, channel in channels.items() if channel.streams]),
        delivery=_delivery(core, channels, pacer, streams),
        streams=streams,
        sweeper=Sweeper(node_id=core.node, sweeps=core.store, node=core.store, meters=core.meters),
        closers=[client.close],
    )
    return App(daemon=daemon, local=local)


def _core(
    loaded: Loaded,
    containment: Containment,
    environ: Mapping[str, str],
    client: aiohttp.ClientSession,
    clock: Clock,
    store: Store | None,
) -> Core:
    settings, state = loaded.settings, loaded.state
    open_state(state)
    machine = f"{platform.node()}:{state}"
    people = People(
        owners={name: frozenset([web_principal(name), *who]) for name, who in settings.owners.items()},
        allowed=frozenset(Principal(one) for one in settings.people.allow),
        chats=frozenset(settings.chats.allow),
    )
    store = store or open_store(settings.store.url, clock)
    return Core(
        loaded=loaded,
        clock=clock,
        store=store,
        node=NodeId(f"{machine}#{secrets.token_hex(4)}"),
        machine=machine,
        redactor=Redactor([one.get_secret_value() for one in loaded.secrets]),
        meters=Meters(),
        points=FailPoints.read(environ),
        registry=Registry(load_tools(loaded), sandboxed=containment.can_bwrap),
        people=people,
        approvals=Approvals(people, store, Handles(state_key(state))),
        workspaces=Workspaces(state),
        containment=containment,
        client=client,
    )


def _context(core: Core, pages: Pages, name: str, settings: Any) -> ChannelContext:
    """What a channel is built with."""
    helm = Helmsman(
        node_id=core.node,
        node=core.store,
        outbox=core.store,
        owners=core.loaded.settings.owners,
        registry=core.registry,
        clock=core.clock,
    )
    return ChannelContext(
        name=name,
        settings=settings,
        desk=pages,
        helm=helm,
        memory=Room(notes=core.store, name=f"channel/{name}"),
        client=core.client,
        public_url=core.loaded.settings.http.public_url or "",
        clock=core.clock,
        fail_point=core.points.hit,
    )


def _local(core: Core, pages: Pages, http: HttpServer, gate: Gate) -> LocalCommands:
    return LocalCommands(
        pages=pages,
        http=http,
        gate=gate,
        views=core.store,
        live=core.store.live,
        clock=core.clock,
        owners=list(core.people.owners),
    )


def _pages(core: Core) -> Pages:
    return Pages(
        accounts=core.store,
        views=core.store,
        live=core.store.live,
        registry=core.registry,
        approvals=core.approvals,
        clock=core.clock,
        outputs=core.workspaces.outputs,
        model_name=core.loaded.settings.model.name,
        version=own_version(),
        signed_in_for=core.loaded.settings.channels.web.cookie_lifetime,
    )


def _gate(core: Core) -> Gate:
    return Gate(
        store=core.store,
        views=core.store,
        people=core.people,
        registry=core.registry,
        approvals=core.approvals,
        clock=core.clock,
        meters=core.meters,
        points=core.points,
        model_name=core.loaded.settings.model.name,
        steer=core.loaded.settings.sessions.message_while_running.value == "steer",
        notes=core.store,
    )


def _http(core: Core, pages: Pages, endpoints: list[Endpoint], channels: Mapping[str, Channel]) -> HttpServer:
    settings = core.loaded.settings.http
    address = Address(
        host=settings.host,
        port=settings.port,
        public_url=settings.public_url or "",
        allowed_hosts=settings.allowed_hosts,
        trusted_proxies=settings.trusted_proxies,
    )
    return HttpServer(
        address=address,
        endpoints=endpoints,
        desks=pages,
        store=core.store,
        meters=core.meters,
        clock=core.clock,
        troubles=lambda: [found for channel in channels.values() if (found := channel.trouble())],
    )


def _sessions(core: Core, streaming: Collection[str]) -> Sessions:
    store, settings = core.store, core.loaded.settings
    other = settings.sessions.approval_expiry_other
    calls = ToolCalls(
        registry=core.registry,
        steps=store,
        views=store,
        live=store.live,
        approvals=core.approvals,
        execution=Execution(
            office=PermitOffice(),
            workspaces=core.workspaces,
            containment=core.containment,
            clock=core.clock,
            live=store.live,
            meters=core.meters,
            redactor=core.redactor,
        ),
        clock=core.clock,
        meters=core.meters,
        points=core.points,
        expiry={
            SessionKind.MAIN: settings.sessions.approval_expiry_main,
            SessionKind.DM: other,
            SessionKind.NON_MAIN: other,
        },
    )
    turns = Turns(
        lanes=store,
        steps=store,
        views=store,
        live=store.live,
        calls=calls,
        registry=core.registry,
        model=_model(core, settings.model.name),
        operator=_model(core, "operator"),
        system=SYSTEM_PROMPT.read_text(encoding="utf-8"),
        clock=core.clock,
        meters=core.meters,
        points=core.points,
        redactor=core.redactor,
        elsewhere=settings.owners,
        streams=streaming,
    )
    return Sessions(
        node=core.node,
        lanes=store,
        views=store,
        live=store.live,
        turns=turns,
        meters=core.meters,
        points=core.points,
    )


def _delivery(core: Core, channels: Mapping[str, Channel], pacer: Pacer, streams: Streams) -> Delivery:
    return Delivery(
        node=core.node,
        outbox=core.store,
        views=core.store,
        live=core.store.live,
        channels=channels,
        approvals=core.approvals,
        clock=core.clock,
        meters=core.meters,
        points=core.points,
        redactor=core.redactor,
        notes=core.store,
        owners=core.loaded.settings.owners,
        pacer=pacer,
        streams=streams,
    )


def _model(core: Core, name: str) -> Model:
    settings = core.loaded.settings.model
    key = settings.api_key.get_secret_value() if settings.api_key else None
    return open_model(
        name,
        session=core.client,
        base_url=settings.base_url,
        api_key=key,
        specs=core.registry.specs,
        clock=core.clock,
    )


def own_version() -> str:
    """The installed version of Dragoman."""
    try:
        return version("dragoman")
    except PackageNotFoundError:
        return "0"
