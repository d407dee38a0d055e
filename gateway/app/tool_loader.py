"""Loader of tools: imports the configured ones, and makes the stateful ones. Used by `app.build`."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import agent_tools
from config.load import Loaded
from config.tools import BUILT_IN
from gateway.domain.tools import CallScope, ToolPolicy, ToolSpec
from gateway.egress import vet_call_scope
from gateway.errors import ConfigError, NotFound
from gateway.ports import StatefulTool, ToolHost
from gateway.toolcalls.arguments import ModelArguments
from gateway.toolcalls.registry import FixedSource
from gateway.toolcalls.tool_set import Tool


def load_tools(
    loaded: Loaded, host_of: Callable[[str, ToolPolicy], ToolHost]
) -> tuple[list[FixedSource], Mapping[str, StatefulTool]]:
    """Import each tool that has a policy; return all tools by source, and the stateful ones by name.

    `host_of` takes name and policy. Raises `ConfigError` for an incomplete tool.
    """
    sources: dict[str, list[Tool]] = {}
    stateful_tools: dict[str, StatefulTool] = {}
    for name, policy in loaded.tools.items():
        if _is_declared(loaded, name):
            continue  # of the owner's folder: `FolderSource` has it
        module = _module(loaded, name)
        try:
            if hasattr(module, "create"):
                stateful_tools[name] = module.create(host_of(name, policy))
            run = stateful_tools[name].run if name in stateful_tools else module.run
            own = loaded.own_tools.get(name)
            sources.setdefault(BUILT_IN if own is None else own.source, []).append(
                Tool(
                    spec=module.SPEC,
                    policy=policy,
                    arguments=(arguments := ModelArguments(module.Args)),
                    run=run,
                    call_scope=_call_scope(module, policy),
                    prepare=getattr(module, "prepare", None),
                    check=getattr(module, "check", None),
                    schema=_schema(module, policy, arguments, checked=own is not None),
                    keeps=name in stateful_tools,
                    missing=_missing(module.SPEC) or _without_channel(loaded, module.SPEC) or _unusable(module, policy),
                )
            )
        except AttributeError as error:
            cure = "Give it SPEC, Args, and run or create."
            raise ConfigError(f"The tool {name} is not complete: {error}.", cure=cure) from error
    return [FixedSource(source, tools) for source, tools in sources.items()], stateful_tools


def check_tools(loaded: Loaded) -> Iterator[tuple[str, str]]:
    """Yield (state, cure) of each tool with requirements on this machine; the cure is empty when they are met."""
    for name, policy in loaded.tools.items():
        if _is_declared(loaded, name):
            continue
        module = _module(loaded, name)
        spec: ToolSpec = module.SPEC
        if _missing(spec):
            yield f"{name}: {spec.needs} is not installed, so the tool does not exist.", _install_hint(spec)
        elif hasattr(module, "look"):
            try:
                yield f"{name}: {module.look(policy.settings)}", ""
            except NotFound as error:
                yield f"{name}: {error.message}", error.cure


def _is_declared(loaded: Loaded, name: str) -> bool:
    own = loaded.own_tools.get(name)
    return own is not None and bool(own.file)


def _module(loaded: Loaded, name: str) -> ModuleType:
    own = loaded.own_tools.get(name)
    return importlib.import_module(f"{agent_tools.__name__}.{name}" if own is None else own.module)


def _call_scope(module: ModuleType, policy: ToolPolicy) -> Callable[[Any], CallScope] | None:
    """Return the function for a call's scope: the tool's own `scope`, vetted; None when the tool has none."""
    scope = getattr(module, "scope", None)
    return None if scope is None else lambda arguments: vet_call_scope(scope(arguments, policy.settings))


def _schema(module: ModuleType, policy: ToolPolicy, arguments: ModelArguments, *, checked: bool) -> Any:
    """Return the schema that settings change; None without one, unless it is `checked` at the start."""
    if hasattr(module, "schema"):
        return module.schema(policy.settings)
    return arguments.schema if checked else None


def _missing(spec: ToolSpec) -> str:
    """Return why the tool is unavailable here; empty when it is available."""
    if not spec.needs or importlib.util.find_spec(spec.needs) is not None:
        return ""
    return f"{spec.name} needs {spec.needs}, which is not installed. For the owner: {_install_hint(spec)}"


def _without_channel(loaded: Loaded, spec: ToolSpec) -> str:
    """Return why a tool of a channel does not exist here; empty when it does, and for every other tool."""
    if not spec.channel:
        return ""
    channel = loaded.channels.get(spec.channel)
    if channel is None:
        return f"{spec.name} needs the channel {spec.channel}. For the owner: configure [channels.{spec.channel}]."
    lacks = ", ".join(sorted(spec.posts - channel.spec.posts))
    return f"The channel {spec.channel} cannot show {lacks}. For the owner: update it." if lacks else ""


def _unusable(module: ModuleType, policy: ToolPolicy) -> str:
    """Return why a tool cannot work with its settings, as its own `missing(settings)` says; empty when it can."""
    return module.missing(policy.settings) if hasattr(module, "missing") else ""


def _install_hint(spec: ToolSpec) -> str:
    if not spec.extra:
        return f"Install {spec.needs} beside Dragoman."
    return f"Install Dragoman with the extra `{spec.extra}` (in a clone `./run add {spec.extra}`)."
