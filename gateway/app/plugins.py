"""Plug-in loader: imports the configured tools and channels. Nothing else imports them. Used by `app.build`."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any, cast

import agent_tools
import channels as own_channels
from config.load import Loaded
from config.plugins import SAID_CHARS, own_module, part_of, said
from config.settings import ChannelsSettings
from gateway.domain.text import cut
from gateway.domain.tools import CallScope, ToolPolicy, ToolSpec
from gateway.egress import vet_call_scope
from gateway.errors import ConfigError, NotFound
from gateway.ports import Channel, ChannelContext, Endpoint, StatefulTool, ToolHost
from gateway.system.redaction import Redactor
from gateway.toolcalls.arguments import ModelArguments
from gateway.toolcalls.tool_set import Tool


def load_tools(
    loaded: Loaded, host_of: Callable[[str, ToolPolicy], ToolHost]
) -> tuple[list[Tool], Mapping[str, StatefulTool]]:
    """Import each tool that has a policy; return all tools, and the stateful ones by name.

    `host_of` takes name and policy. Raises `ConfigError` for an incomplete tool.
    """
    tools: list[Tool] = []
    kept: dict[str, StatefulTool] = {}
    for name, policy in loaded.tools.items():
        module = importlib.import_module(loaded.own_tools.get(name, f"{agent_tools.__name__}.{name}"))
        try:
            if hasattr(module, "create"):
                kept[name] = module.create(host_of(name, policy))
            run = kept[name].run if name in kept else module.run
            tools.append(
                Tool(
                    spec=module.SPEC,
                    policy=policy,
                    arguments=ModelArguments(module.Args),
                    run=run,
                    call_scope=_call_scope(module, policy),
                    prepare=getattr(module, "prepare", None),
                    schema=module.schema(policy.settings) if hasattr(module, "schema") else None,
                    keeps=name in kept,
                    missing=_missing(module.SPEC),
                )
            )
        except AttributeError as error:
            cure = "Give it SPEC, Args, and run or create."
            raise ConfigError(f"The tool {name} is not complete: {error}.", cure=cure) from error
    return tools, kept


def check_tools(loaded: Loaded) -> Iterator[tuple[str, str]]:
    """Yield (state, cure) of each tool with requirements on this machine; the cure is empty when they are met."""
    for name, policy in loaded.tools.items():
        module = importlib.import_module(loaded.own_tools.get(name, f"{agent_tools.__name__}.{name}"))
        spec: ToolSpec = module.SPEC
        if _missing(spec):
            yield f"{name}: {spec.needs} is not installed, so the tool does not exist.", _install_hint(spec)
        elif hasattr(module, "look"):
            try:
                yield f"{name}: {module.look(policy.settings)}", ""
            except NotFound as error:
                yield f"{name}: {error.message}", error.cure


def _call_scope(module: ModuleType, policy: ToolPolicy) -> Callable[[Any], CallScope] | None:
    """Return the function for a call's scope: the tool's own `scope`, vetted; None when the tool has none."""
    scope = getattr(module, "scope", None)
    return None if scope is None else lambda arguments: vet_call_scope(scope(arguments, policy.settings))


def _missing(spec: ToolSpec) -> str:
    """Return why the tool is unavailable here; empty when it is available."""
    if not spec.needs or importlib.util.find_spec(spec.needs) is not None:
        return ""
    return f"{spec.name} needs {spec.needs}, which is not installed. For the owner: {_install_hint(spec)}"


def _install_hint(spec: ToolSpec) -> str:
    if not spec.extra:
        return f"Install {spec.needs} beside Dragoman."
    return f"Install Dragoman with the extra `{spec.extra}` (in a clone `./run add {spec.extra}`)."


def import_channels(channels: ChannelsSettings) -> None:
    """Import the configured built-in channels; `load_channels` makes them.

    Raises `ConfigError` for a channel whose packages are not installed.
    """
    for name, _ in _own(channels):
        try:
            importlib.import_module(_adapter(name))
        except ImportError as error:
            raise ConfigError(
                f"The channel {name} needs packages that are not installed ({error.name or error}).",
                cure=f"Install Dragoman with the extra `{name}`; `./run` does that by itself.",
            ) from error


def check_channels(channels: ChannelsSettings) -> Iterator[ConfigError]:
    """Import the owner's channels without making them; yield an error for each that fails."""
    for name, table in channels.imported.items():
        try:
            _factory(table.module)
        except ConfigError as error:
            yield _not_loaded(name, table.module, error.message)


def load_channels(
    channels: ChannelsSettings, context: Callable[[str, Any], ChannelContext]
) -> tuple[dict[str, Channel], list[Endpoint]]:
    """Make the configured channels; return them and their HTTP routes. `context` takes name and settings."""
    found: dict[str, Channel] = {}
    endpoints: list[Endpoint] = []
    for name, settings in _own(channels):
        channel = importlib.import_module(_adapter(name)).build(context(name, settings))
        found[name] = channel
        endpoints += channel.endpoints()
    for name, table in channels.imported.items():
        found[name], own = _made(name, table.module, partial(context, name, table.options))
        endpoints += own
    return found, endpoints


def redactor_of(loaded: Loaded) -> Redactor:
    """Return a redactor for the configured secrets and for anything that looks like a platform token.

    Covers every built-in channel, configured or not: people paste tokens, and errors quote them.
    """
    named = [one.name for one in pkgutil.iter_modules(own_channels.__path__) if not one.name.startswith("_")]
    settings = [importlib.import_module(f"{own_channels.__name__}.{name}.settings") for name in named]
    return Redactor(
        [one.get_secret_value() for one in loaded.secrets], [form for one in settings for form in one.SECRETS]
    )


def _adapter(name: str) -> str:
    return f"{own_channels.__name__}.{name}.adapter"


def _own(channels: ChannelsSettings) -> list[tuple[str, Any]]:
    """Return the configured built-in channels with their settings. Each has the same files."""
    own: list[tuple[str, Any]] = [("web", channels.web)] if channels.web.enabled else []
    if channels.telegram is not None:
        own.append(("telegram", channels.telegram))
    if channels.slack is not None:
        own.append(("slack", channels.slack))
    return own


def _made(name: str, path: str, context: Callable[[], ChannelContext]) -> tuple[Channel, Sequence[Endpoint]]:
    """Make a channel with the owner's factory; return it and its routes. Raises `ConfigError` for any failure."""
    try:
        channel = _factory(path)(context())
        endpoints = channel.endpoints() if hasattr(channel, "endpoints") else ()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        why = error.message if isinstance(error, ConfigError) else f"{type(error).__name__}: {said(error)}"
        raise _not_loaded(name, path, why) from error
    lacking = [each for each in ("run", "show") if not callable(getattr(channel, each, None))]
    if lacking:
        raise ConfigError(
            f"The channel {name} that {path} makes has no {lacking[0]}.",
            cure="Let the factory return a channel as `gateway.ports.Channel` says.",
        )
    return channel, endpoints


def _not_loaded(name: str, path: str, why: str) -> ConfigError:
    return ConfigError(
        f"The channel {name} cannot be loaded from {path}: {cut(why, SAID_CHARS)}.",
        cure="Correct its `module`, or install what it needs.",
    )


def _factory(path: str) -> Callable[[ChannelContext], Any]:
    module, _, named = path.partition(":")
    make = part_of(own_module(module), named)
    if not callable(make):
        raise ConfigError(f"{cut(module, 100)} has no {cut(named, 100)!r} that can be called")
    return cast("Callable[[ChannelContext], Any]", make)
