"""The composition root: from settings to a daemon. The only module that knows plug-ins, stores and models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import aiohttp

from config.load import Loaded
from gateway.app.core import Core, make_core
from gateway.app.daemon import Daemon
from gateway.app.engine import make_sessions
from gateway.app.maintenance import Sweeper
from gateway.app.memory_tuning import keep_tidy
from gateway.app.plugins import load_channels
from gateway.inbound.ingress import Ingress
from gateway.outbound.delivery import Delivery
from gateway.outbound.live_edits import LiveEdits
from gateway.outbound.rate_limit import RateLimiter
from gateway.ports import Channel, ChannelContext, Clock, Endpoint, Store, WithAccounts
from gateway.sandbox import Containment
from gateway.server.channel_host import DaemonChannelHost, NamespacedKeyValue
from gateway.server.control_commands import ControlCommands
from gateway.server.control_server import ControlServer
from gateway.server.control_wire import AUDIT_TAKES_S, SEND_WAITS_S, socket_path
from gateway.server.http import HttpServer
from gateway.server.http_checks import Address
from gateway.server.web_access import WebAccess
from gateway.system.clock import SystemClock


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """A wired daemon, and the part of it that makes sign-in links."""

    daemon: Daemon
    answers: ControlCommands


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
    core = make_core(loaded, containment, environ, client, clock or SystemClock(), store)
    pages = _pages(core)
    channels, endpoints = load_channels(loaded.settings.channels, partial(_context, core, pages))
    limiter = RateLimiter(core.clock)
    streams = LiveEdits(
        channels=channels,
        events=core.store.live,
        key_value=core.store,
        outbox=core.store,
        limiter=limiter,
        redactor=core.redactor,
        clock=core.clock,
    )
    ingress = _ingress(core)
    http = _http(core, pages, endpoints, channels)
    answers = _answers(core, pages, http, ingress)
    daemon = Daemon(
        machine=core.machine,
        store=core.store,
        clock=core.clock,
        ingress=ingress,
        channels=channels,
        kept=core.kept,
        http=http,
        control=ControlServer(
            socket_path(loaded.state),
            answers.commands(),
            limits={"send": SEND_WAITS_S, "audit": AUDIT_TAKES_S},
        ),
        sessions=make_sessions(core, channels),
        delivery=_delivery(core, channels, limiter, streams),
        live_edits=streams,
        sweeper=Sweeper(node_id=core.node, sweeps=core.store, node=core.store, metrics=core.metrics),
        chores={"tidy": keep_tidy},
        closers=[core.models.close, client.close],
    )
    return App(daemon=daemon, answers=answers)


def _context(core: Core, web_access: WebAccess, name: str, settings: Any) -> ChannelContext:
    """What a channel is built with."""
    host = DaemonChannelHost(
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
        web_api=web_access,
        host=host,
        key_value=NamespacedKeyValue(key_value=core.store, room=f"channel/{name}"),
        client=core.client,
        public_url=core.loaded.settings.http.public_url or "",
        clock=core.clock,
        fail_point=core.points.hit,
    )


def _answers(core: Core, web_access: WebAccess, http: HttpServer, ingress: Ingress) -> ControlCommands:
    return ControlCommands(
        web_access=web_access,
        http=http,
        ingress=ingress,
        queries=core.store,
        audit=core.store,
        events=core.store.live,
        clock=core.clock,
        owners=list(core.people.owners),
        page=core.loaded.settings.channels.web.enabled,
    )


def _pages(core: Core) -> WebAccess:
    return WebAccess(
        accounts=core.store,
        queries=core.store,
        events=core.store.live,
        registry=core.registry,
        approvals=core.approvals,
        clock=core.clock,
        kept=core.workspaces.kept,
        model_name=core.loaded.settings.model.name,
        version=own_version(),
        signed_in_for=core.loaded.settings.channels.web.cookie_lifetime,
        currency=core.loaded.settings.model.currency,
        redactor=core.redactor,
    )


def _ingress(core: Core) -> Ingress:
    return Ingress(
        intake=core.store,
        children=core.store,
        usage=core.store,
        queries=core.store,
        people=core.people,
        registry=core.registry,
        approvals=core.approvals,
        clock=core.clock,
        metrics=core.metrics,
        points=core.points,
        model_name=core.loaded.settings.model.name,
        running=core.loaded.settings.sessions.message_while_running,
        key_value=core.store,
        currency=core.loaded.settings.model.currency,
    )


def _http(core: Core, web_access: WebAccess, endpoints: list[Endpoint], channels: Mapping[str, Channel]) -> HttpServer:
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
        sign_ins=web_access,
        health=core.store,
        metrics=core.metrics,
        clock=core.clock,
        troubles=lambda: [found for channel in channels.values() if (found := channel.trouble())],
        accounts_up=partial(_accounts_up, channels),
    )


def _accounts_up(channels: Mapping[str, Channel]) -> dict[tuple[str, str], bool]:
    """Say whether each account works now; of a channel that does not know its accounts, whether all of it does."""
    up: dict[tuple[str, str], bool] = {}
    for name, channel in channels.items():
        accounts = channel.accounts_up() if isinstance(channel, WithAccounts) else {"": not channel.trouble()}
        up.update({(name, account): works for account, works in accounts.items()})
    return up


def _delivery(core: Core, channels: Mapping[str, Channel], limiter: RateLimiter, live_edits: LiveEdits) -> Delivery:
    return Delivery(
        node=core.node,
        outbox=core.store,
        queries=core.store,
        events=core.store.live,
        channels=channels,
        approvals=core.approvals,
        clock=core.clock,
        metrics=core.metrics,
        points=core.points,
        redactor=core.redactor,
        key_value=core.store,
        owners=core.loaded.settings.owners,
        limiter=limiter,
        live_edits=live_edits,
        kept=core.workspaces.kept,
    )


def own_version() -> str:
    """The installed version of Dragoman."""
    try:
        return version("dragoman")
    except PackageNotFoundError:
        return "0"
