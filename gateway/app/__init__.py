"""Composition root: builds a daemon from settings. The only package that knows plug-ins, stores and models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import aiohttp

from config.load import Loaded
from gateway.app.channel_loader import load_channels
from gateway.app.core import NO_FAKES, Fakes, make_core
from gateway.app.daemon import Daemon
from gateway.app.homes import make_home_keeper
from gateway.app.maintenance import Sweeper
from gateway.app.memory_tuning import keep_tidy
from gateway.app.sending import make_delivery, make_live_edits, make_messages
from gateway.app.wiring import (
    make_compaction,
    make_context,
    make_control_commands,
    make_history_trimmer,
    make_http,
    make_ingress,
    make_membership,
    make_page,
    make_turn_runner,
    make_turn_worker,
    make_web_access,
)
from gateway.domain.ids import PAGE
from gateway.sandbox import Containment
from gateway.server.control_commands import ControlCommands
from gateway.server.control_server import ControlServer
from gateway.server.control_wire import AUDIT_TAKES_S, SEND_WAITS_S, socket_path


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """A wired daemon, and its control commands, which make sign-in links."""

    daemon: Daemon
    control_commands: ControlCommands


def build(
    loaded: Loaded,
    *,
    containment: Containment,
    environ: Mapping[str, str],
    client: aiohttp.ClientSession,
    fakes: Fakes = NO_FAKES,
) -> App:
    """Wire a daemon without starting it. Raises `ConfigError` or `StoreError`. Tests pass fakes."""
    core = make_core(loaded, containment, environ, client, fakes)
    web_access = make_web_access(core)
    channels, endpoints = load_channels(loaded.channels, partial(make_context, core))
    if loaded.settings.web.enabled:
        page = make_page(core, web_access)
        channels, endpoints = {PAGE: page, **channels}, [*page.endpoints(), *endpoints]
    messages = make_messages(core, channels)
    turns, membership = make_turn_runner(core, channels), make_membership(core)
    turns.calls.node = membership.shown_name
    ingress = make_ingress(core)
    http = make_http(core, web_access, endpoints, channels, membership.standing)
    answers = make_control_commands(core, web_access, http, ingress)
    daemon = Daemon(
        machine=core.machine,
        store=core.store,
        clock=core.clock,
        ingress=ingress,
        channels=channels,
        stateful_tools=core.stateful_tools,
        http=http,
        control=ControlServer(
            socket_path(loaded.state),
            answers.commands(),
            limits={"send": SEND_WAITS_S, "audit": AUDIT_TAKES_S},
        ),
        worker=make_turn_worker(core, turns, make_compaction(core)),
        delivery=make_delivery(core, messages),
        live_edits=make_live_edits(core, messages),
        sweeper=Sweeper(
            node_id=core.node,
            sweeps=core.store,
            node=core.store,
            metrics=core.metrics,
            approvers=core.approvals.approvers_later,
        ),
        membership=membership,
        chores={
            "tidy": keep_tidy,
            "jobs": core.jobs.run,
            **({"homes": make_home_keeper(core).run} if core.home else {}),
            "retention": make_history_trimmer(core).run,
            **({} if core.folder is None else {"workers": core.workers.run, "own tools": core.folder.follow}),
        },
        closers=(*core.closers, client.close),
    )
    return App(daemon=daemon, control_commands=answers)
