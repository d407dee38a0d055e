"""Shared dependencies of a daemon: store, people, tools and models, opened from the settings. Used by `app.build`."""

from __future__ import annotations

import platform
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import aiohttp

from config.load import Loaded
from gateway.app.channel_loader import redactor_of
from gateway.app.membership import gates_of
from gateway.app.node_entry import roles_of
from gateway.app.own_tools import FolderSource, load_folder, make_workers, program_limits
from gateway.app.state import open_state, state_key
from gateway.app.store_note import note_store, noted_store
from gateway.app.tool_hosts import ToolHosts
from gateway.app.tool_loader import load_tools
from gateway.approvals import Approvals, ButtonTokens
from gateway.domain.approvers import NOBODY_DECIDES, ApproverRules
from gateway.domain.children import with_own_agents
from gateway.domain.ids import NodeId, Principal, web_principal
from gateway.domain.nodes import KeyMark, KeySource, Role
from gateway.egress import Egress
from gateway.llm import ChainedModels, Choice, Price, open_models
from gateway.llm.operator import Operator
from gateway.policy.routing import AllowedPeople
from gateway.ports import Clock, Model, Models, StatefulTool, Store
from gateway.sandbox import Containment
from gateway.store import is_shared, is_there, open_store
from gateway.system.clock import SystemClock
from gateway.system.failpoints import FailPoints
from gateway.system.gate import Gate
from gateway.system.metrics import Metrics
from gateway.system.redaction import Redactor
from gateway.system.secret_key import SecretKey, cluster_key
from gateway.toolcalls.delegates import Delegates
from gateway.toolcalls.jobs import Jobs
from gateway.toolcalls.registry import FixedSource, Registry, ToolSource
from gateway.toolcalls.tool_set import Tool
from gateway.toolcalls.workers import Workers
from gateway.toolcalls.workspaces import Workspaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The dependencies that nearly every part of a daemon shares."""

    loaded: Loaded
    clock: Clock
    store: Store
    node: NodeId
    machine: str
    key: SecretKey
    """Key from which all signing keys of this gateway are derived."""
    key_mark: KeyMark | None
    """Fingerprint of that key in the store; None for a store that no other node can open."""
    gates: dict[Role, Gate]
    """Open for the roles of this node, while it is not drained."""
    redactor: Redactor
    metrics: Metrics
    points: FailPoints
    registry: Registry
    stateful_tools: Mapping[str, StatefulTool]
    """Stateful tools by name."""
    people: AllowedPeople
    approvals: Approvals
    workspaces: Workspaces
    home: str
    """Id of the place of the workspaces, by which turns are claimed; empty for a store that no other node can open."""
    jobs: Jobs
    workers: Workers
    """Contained workers of own tools."""
    folder: FolderSource | None
    """The owner's folder of tools; None without one."""
    containment: Containment
    models: Models
    operator: Model
    """The model that answers commands, whichever model is configured."""
    client: aiohttp.ClientSession
    closers: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    """Run at the end of a drain, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fakes:
    """Parts that a test passes in place of those that the settings name. None: the daemon's own."""

    clock: Clock | None = None
    store: Store | None = None
    node: NodeId | None = None
    people: AllowedPeople | None = None
    tools: Sequence[Tool] | None = None
    sources: Sequence[ToolSource] = ()
    """Sources besides the configured tools."""
    models: Models | None = None
    operator: Model | None = None
    redactor: Redactor | None = None
    key: bytes | None = None
    """The secret key."""


NO_FAKES = Fakes()
NO_STATEFUL_TOOLS: Mapping[str, StatefulTool] = MappingProxyType({})


def make_core(
    loaded: Loaded,
    containment: Containment,
    environ: Mapping[str, str],
    client: aiohttp.ClientSession,
    fakes: Fakes = NO_FAKES,
) -> Core:
    """Open what the settings name, except for what the fakes replace. Raises `ConfigError` or `StoreError`."""
    settings, state = loaded.settings, loaded.state
    open_state(state)
    machine = settings.cluster.node or f"{platform.node()}:{state}"
    clock, people = fakes.clock or SystemClock(), fakes.people or _people(loaded)
    limits = program_limits(loaded.sandbox)
    hosts = ToolHosts(state=state, clock=clock, containment=containment, egress=Egress(), limits=limits)
    if fakes.tools is None:
        sources, stateful_tools = load_tools(loaded, hosts.of)
    else:
        sources, stateful_tools = [FixedSource("fakes", fakes.tools)], NO_STATEFUL_TOOLS
    workers = make_workers(loaded, containment)
    folder = load_folder(loaded, [*sources, *fakes.sources], workers, containment) if fakes.tools is None else None
    sources = [*sources, *fakes.sources, *([] if folder is None else [folder])]
    models = None if fakes.models is not None else settings.model.names
    known = Delegates(agents=frozenset(with_own_agents(loaded.agents)), models=models)
    registry = Registry(sources, sandboxed=containment.can_bwrap, presets=loaded.presets, delegates=known)
    metrics = Metrics()
    operator = fakes.operator or Operator(lambda: registry.snapshot().commands)
    redactor = fakes.redactor or redactor_of(loaded)
    # Read before the store is opened: a store without its key is one whose key was lost.
    key = SecretKey(fakes.key) if fakes.key else _key(loaded)
    store = fakes.store or _store(loaded, clock)
    workspaces, models, close = _workspaces(loaded), fakes.models, ()
    if models is None:
        chained = models_of(loaded, operator, redactor, client, clock, metrics)
        models, close = chained, (chained.close,)
    node = fakes.node or NodeId(f"{machine}#{secrets.token_hex(4)}")
    return Core(
        loaded=loaded,
        clock=clock,
        store=store,
        node=node,
        machine=machine,
        key=key,
        key_mark=_mark(loaded, key) if is_shared(settings.store.url) else None,
        gates=gates_of(roles_of(loaded)),
        redactor=redactor,
        metrics=metrics,
        points=FailPoints.read(environ),
        registry=registry,
        stateful_tools=stateful_tools,
        people=people,
        approvals=_approvals(loaded, people, store, key, registry),
        workspaces=workspaces,
        home=workspaces.home() if is_shared(settings.store.url) else "",
        jobs=Jobs(key_value=store, events=store.event_bus, clock=clock, node=node, nodes=store),
        workers=workers,
        folder=folder,
        containment=containment,
        models=models,
        operator=operator,
        client=client,
        closers=close,
    )


def _store(loaded: Loaded, clock: Clock) -> Store:
    """Open the store; on Redis only the one that this node worked on last, which it notes."""
    url, terms = loaded.settings.store.url, loaded.settings.store.terms
    if not is_shared(url):
        return open_store(url, clock, terms)
    noted = noted_store(loaded.state, url)
    store = open_store(url, clock, terms, noted)
    note_store(loaded.state, url, store.identity, noted.reached)
    return store


def _workspaces(loaded: Loaded) -> Workspaces:
    """Return the folders of all sessions. Raises `DragomanError` when the disk of all nodes is not there."""
    found = Workspaces(loaded.state, loaded.shared)
    if loaded.shared is not None:
        found.look()
    return found


def _key(loaded: Loaded) -> SecretKey:
    """Return the key of all nodes, or that of this state folder, made once."""
    configured = loaded.settings.cluster.key
    if configured is not None:
        return cluster_key(configured.get_secret_value())
    return SecretKey(state_key(loaded.state, known=is_there(loaded.settings.store.url)))


def _mark(loaded: Loaded, key: SecretKey) -> KeyMark:
    source = KeySource.STATE if loaded.settings.cluster.key is None else KeySource.CLUSTER
    return KeyMark(fingerprint=key.fingerprint, source=source)


def _approvals(loaded: Loaded, people: AllowedPeople, store: Store, key: SecretKey, registry: Registry) -> Approvals:
    expiry = loaded.settings.sessions.grant_expiry
    return Approvals(people, store, ButtonTokens(key.root), partial(_deciding, registry), expiry)


def _deciding(registry: Registry, tool: str) -> ApproverRules:
    """Return the present approver rules of a tool; nobody decides about a tool that is gone."""
    found = registry.snapshot().get(tool)
    return NOBODY_DECIDES if found is None else found.policy.deciding


def _people(loaded: Loaded) -> AllowedPeople:
    settings = loaded.settings
    return AllowedPeople(
        owners={name: frozenset([web_principal(name), *who]) for name, who in settings.owners.items()},
        allowed=frozenset(Principal(one) for one in settings.people.allow),
        chats=frozenset(settings.chats.allow),
        approvers=settings.chats.approvers,
    )


def models_of(
    loaded: Loaded,
    operator: Model,
    redactor: Redactor,
    client: aiohttp.ClientSession,
    clock: Clock,
    metrics: Metrics | None = None,
) -> ChainedModels:
    """Open the configured model and its fallbacks; the caller closes them. Raises `ConfigError`."""
    settings = loaded.settings.model
    choices = [
        Choice(
            name=one.name,
            base_url=one.base_url,
            api_key=one.api_key.get_secret_value() if one.api_key else None,
            proxy=one.proxy.way if one.proxy else None,
        )
        for one in (settings, *settings.fallback)
    ]
    prices = {name: Price(input=p.input, output=p.output, cached=p.cached) for name, p in settings.prices.items()}
    return open_models(
        choices, prices, session=client, operator=operator, redactor=redactor, clock=clock, metrics=metrics
    )
