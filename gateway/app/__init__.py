"""The composition root: from settings to a daemon. The only module that knows plug-ins, stores and models."""

from __future__ import annotations

import asyncio
import importlib
import os
import platform
import secrets
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp

import agent_tools
from channels.web import adapter as web_adapter
from config.load import Loaded
from gateway.approvals import Approvals, Handles
from gateway.clock import SystemClock
from gateway.control import ControlServer
from gateway.daemon import Daemon
from gateway.delivery import Delivery
from gateway.errors import ConfigError, DragomanError, StartError
from gateway.execution import Execution, PermitOffice, Workspaces
from gateway.failpoints import FailPoints
from gateway.http import Address, HttpServer
from gateway.intake import Gate
from gateway.llm import open_model
from gateway.local import LocalCommands
from gateway.model.ids import NodeId, Principal, web_principal
from gateway.model.sessions import SessionKind
from gateway.observe import Meters, Redactor, log, set_up_logs
from gateway.pages import Pages
from gateway.ports import Channel, ChannelContext, Clock, Endpoint, Model, Store
from gateway.registry import Registry, Tool
from gateway.routing import People
from gateway.sandbox import Containment, probe
from gateway.sessions import Sessions
from gateway.store import open_store
from gateway.sweeps import Sweeper
from gateway.toolcalls import ToolCalls
from gateway.turn import Turns

SYSTEM_PROMPT = Path(__file__).with_name("system_prompt.md")
KEY_BYTES = 32
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
    channels, endpoints = _channels(core, pages)
    gate = _gate(core)
    http = _http(core, pages, endpoints)
    local = LocalCommands(
        pages=pages,
        http=http,
        gate=gate,
        views=core.store,
        live=core.store.live,
        clock=core.clock,
        owners=list(core.people.owners),
    )
    daemon = Daemon(
        machine=core.machine,
        store=core.store,
        clock=core.clock,
        gate=gate,
        channels=channels,
        http=http,
        control=ControlServer(loaded.state / "control.sock", local.commands(), limits={"send": SEND_WAITS_S}),
        sessions=_sessions(core),
        delivery=_delivery(core, channels),
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
    )


def _http(core: Core, pages: Pages, endpoints: list[Endpoint]) -> HttpServer:
    settings = core.loaded.settings.http
    address = Address(
        host=settings.host,
        port=settings.port,
        public_url=settings.public_url or "",
        allowed_hosts=settings.allowed_hosts,
        trusted_proxies=settings.trusted_proxies,
    )
    return HttpServer(
        address=address, endpoints=endpoints, desks=pages, store=core.store, meters=core.meters, clock=core.clock
    )


def _sessions(core: Core) -> Sessions:
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


def _delivery(core: Core, channels: Mapping[str, Channel]) -> Delivery:
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


# --- plug-ins -----------------------------------------------------------------------------------


def load_tools(loaded: Loaded) -> list[Tool]:
    """Import the tools that the configuration has a policy for. Raises `ConfigError` for one that is not complete."""
    return [
        _tool(importlib.import_module(loaded.own_tools.get(name, f"{agent_tools.__name__}.{name}")), name, loaded)
        for name in loaded.tools
    ]


def _tool(module: ModuleType, name: str, loaded: Loaded) -> Tool:
    try:
        return Tool(spec=module.SPEC, policy=loaded.tools[name], arguments=module.Args, run=module.run)
    except AttributeError as error:
        raise ConfigError(f"The tool {name} is not complete: {error}.", cure="Give it SPEC, Args and run.") from error


def _channels(core: Core, pages: Pages) -> tuple[dict[str, Channel], list[Endpoint]]:
    """Make the configured channels, and the routes that they bring."""
    settings = core.loaded.settings.channels
    found: dict[str, Channel] = {}
    endpoints: list[Endpoint] = []
    if settings.web.enabled:
        web = web_adapter.build(_context(core, pages, "web", settings.web))
        found["web"] = web
        endpoints += web.endpoints()
    for name, table in settings.imported.items():
        found[name] = _factory(name, table.module)(_context(core, pages, name, table.options))
    return found, endpoints


def _factory(name: str, path: str) -> Callable[[ChannelContext], Channel]:
    module, _, factory = path.partition(":")
    try:
        return getattr(importlib.import_module(module), factory)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"The channel {name} cannot be loaded from {path}: {error}.",
            cure="Correct its `module`, or install what it needs.",
        ) from error


def _context(core: Core, pages: Pages, name: str, settings: Any) -> ChannelContext:
    return ChannelContext(name=name, settings=settings, desk=pages, clock=core.clock, fail_point=core.points.hit)


# --- the state folder ---------------------------------------------------------------------------


def open_state(state: Path) -> None:
    """Make the state folder for this user alone. Raises `StartError` with the cure when it cannot be used."""
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = state.stat()
        if found.st_uid != os.geteuid():  # root could use it, and would trust what another user put there
            raise StartError(
                f"The state folder {state} belongs to another user.",
                cure=f"Run: chown -R {os.geteuid()} {state}, or name another one with --state.",
            )
        if stat.S_IMODE(found.st_mode) & 0o077:
            state.chmod(0o700)
        tempfile.TemporaryFile(dir=state).close()
    except OSError as error:
        raise StartError(
            f"The state folder {state} cannot be used: {error.strerror}.",
            cure="Make it writable for this user, or name another one with --state.",
        ) from error


def state_key(state: Path) -> bytes:
    """Return the secret of this state folder, made once; button handles depend on it."""
    path = state / "state.key"
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        key = _new_key(path)
    if len(key) != KEY_BYTES:
        raise StartError(f"{path} is damaged.", cure="Remove it; buttons that are shown now stop working.")
    return key


def _new_key(path: Path) -> bytes:
    key = secrets.token_bytes(KEY_BYTES)
    fresh = path.with_suffix(".new")
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise StartError(
            f"{path} cannot be made: {error.strerror}.",
            cure="Free space on the disk of the state folder, or name another folder with --state.",
        ) from error
    return key


def own_version() -> str:
    """The installed version of Dragoman."""
    try:
        return version("dragoman")
    except PackageNotFoundError:
        return "0"


# --- running ------------------------------------------------------------------------------------


def serve(loaded: Loaded) -> int:
    """Run the daemon until it is told to stop. Return the exit code; errors are `DragomanError`s with their cure."""
    os.umask(0o077)
    set_up_logs(loaded.settings.log.level, Redactor([one.get_secret_value() for one in loaded.secrets]))
    for warning in loaded.warnings:
        log("config").warning(warning)
    try:
        asyncio.run(_serve(loaded))
    except* DragomanError as group:
        raise group.exceptions[0] from None
    return 0


async def _serve(loaded: Loaded) -> None:
    containment = await probe()
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)
    # No limit here (aiohttp's is 100 connections): how many turns ask a model at once is the sessions' affair.
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False) as client:
        app = build(loaded, containment=containment, environ=os.environ, client=client)

        async def ready() -> None:
            await _greet(app)

        await app.daemon.run(ready)


async def _greet(app: App) -> None:
    """Tell a person at a terminal how to sign in. The link never goes into a log or a pipe."""
    out = sys.stdout
    where = app.local.http.address.link(app.local.http.port)
    if out.isatty():
        link = await app.local.link(app.local.owners[0])
        out.write(f"\nDragoman is ready. Open this once, within ten minutes:\n\n  {link}\n\n")
        out.write("`dragoman link` makes another one. Ctrl-C stops.\n\n")
    else:
        out.write(f"Dragoman is ready on {where}. Run `dragoman link` for a sign-in link.\n")
    out.flush()
