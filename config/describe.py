"""Summary of the settings for `dragoman check`. Never shows a secret, only that it is set."""

from __future__ import annotations

import shlex

from config.cluster import ClusterSettings
from config.load import Loaded
from config.model import OPERATOR, ModelSettings
from config.retention import KeepSettings
from config.settings import SandboxSettings
from config.tools import describe
from config.values import spoken
from gateway.domain.children import Agent
from gateway.domain.hooks import HookConfig
from gateway.domain.nodes import Role
from gateway.domain.text import without_password
from gateway.domain.turns import TurnLimits


def lines(loaded: Loaded) -> list[tuple[str, str]]:
    """Return (name, setting) pairs, in the order of the configuration's tables."""
    settings = loaded.settings
    rows = [
        ("configuration", str(loaded.file or f"no file at {loaded.looked_at}: all defaults")),
        *((f"${name}", "overrides it") for name in loaded.variables),
        ("state folder", str(loaded.state)),
        *((f"owner {name}", ", ".join(who) or "the web page only") for name, who in settings.owners.items()),
        ("store", without_password(settings.store.url)),
        *([("replicas", str(settings.store.replicas))] if settings.store.replicas else []),
        *_cluster(settings.cluster),
        ("listens on", f"{settings.http.host}:{settings.http.port or 'any free port'}"),
        *([("reached as", settings.http.public_url)] if settings.http.public_url else []),
        *_model(settings.model),
        *([("instructions", f"{len(loaded.instructions)} characters of your own")] if loaded.instructions else []),
        ("limits of a turn", _limits(loaded.limits)),
        ("limits of a program", _program_limits(loaded.sandbox)),
        *((f"agent {name}", _agent(agent)) for name, agent in loaded.agents.items()),
        ("channel web", _web(loaded)),
        *(
            (f"channel {name}/{account}" if account else f"channel {name}", how)
            for name, channel in loaded.channels.items()
            for account, how in channel.describe()
        ),
        ("other people", ", ".join(settings.people.allow) or "nobody"),
        ("groups", ", ".join(settings.chats.allow) or "none"),
        ("message while running", settings.sessions.message_while_running.value),
        ("kept of a history", _kept(settings.sessions.keep)),
        ("kept of the audit", f"the last {days} days" if (days := settings.audit.keep.days) else "everything"),
        *((f"hook {hook.event.value}", _hook(hook)) for hook in loaded.hooks),
        *((f"tool {name}", describe(name, policy)) for name, policy in sorted(loaded.tools.items())),
    ]
    return [(what, how) for what, how in rows]


def _cluster(cluster: ClusterSettings) -> list[tuple[str, str]]:
    shown = [
        ("cluster key", "set" if cluster.key else ""),
        ("node", cluster.node),
        ("workspaces", cluster.workspaces),
        ("roles", ", ".join(cluster.roles) if set(cluster.roles) != set(Role) else ""),
    ]
    return [(what, how) for what, how in shown if how]


def _model(model: ModelSettings) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for what, one in (("model", model), *(("fallback", one) for one in model.fallback)):
        parts = [one.name, f"at {one.base_url}" if one.base_url else "", "key set" if one.api_key else ""]
        rows.append((what, ", ".join(part for part in parts if part)))
    if model.name != OPERATOR:
        rows.append(("context", f"{model.context_tokens} tokens"))
    for name, price in model.prices.items():
        parts = [f"{price.input:g} read", f"{price.cached_or_input:g} read from a cache", f"{price.output:g} written"]
        rows.append((f"price of {name}", f"{', '.join(parts)} ({model.currency} a million tokens)"))
    return rows


def _kept(keep: KeepSettings) -> str:
    parts = [f"the last {keep.turns} turns" if keep.turns else "", f"the last {keep.days} days" if keep.days else ""]
    return " and ".join(part for part in parts if part) or "everything"


def _limits(limits: TurnLimits) -> str:
    tokens = f"{limits.tokens} tokens" if limits.tokens else "any number of tokens"
    child = spoken(limits.child_active)
    asked = f"{limits.open_approvals} open approvals a person"
    return f"{limits.calls} calls, {spoken(limits.active)} of work, {tokens}; a sub-session {child}; {asked}"


def _program_limits(limits: SandboxSettings) -> str:
    together = f"{limits.tree_mb} MB together" if limits.tree_mb else "any number together"
    memory = f"{limits.memory_mb} MB of memory a process, {together}"
    return f"{memory}, {limits.file_mb} MB a file, {limits.tmp_mb} MB of /tmp"


def _agent(agent: Agent) -> str:
    tools = None if agent.tools is None else f"tools {', '.join(agent.tools) or 'none'}"
    return ", ".join(filter(None, [agent.description, agent.model, tools, agent.instructions and "instructions set"]))


def _hook(hook: HookConfig) -> str:
    seen = ", ".join(sorted(hook.tools)) or "every tool"
    return f"{shlex.join(hook.command) if hook.command else f'package {hook.package}'} for {seen}"


def _web(loaded: Loaded) -> str:
    web = loaded.settings.web
    return f"on, a sign-in lasts {spoken(web.cookie_lifetime)}" if web.enabled else "off"
