"""Plug-ins by configuration: tools and channels are imported when they are configured, and only here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import agent_tools
from config.load import Loaded
from config.settings import ChannelsSettings
from gateway.errors import ConfigError
from gateway.ports import Channel, ChannelContext, Endpoint
from gateway.registry import Tool


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


def load_channels(
    channels: ChannelsSettings, context: Callable[[str, Any], ChannelContext]
) -> tuple[dict[str, Channel], list[Endpoint]]:
    """Make the configured channels, and the routes that they bring. `context` is called with name and settings."""
    found: dict[str, Channel] = {}
    endpoints: list[Endpoint] = []
    for name, settings in _own(channels):
        channel = importlib.import_module(f"channels.{name}.adapter").build(context(name, settings))
        found[name] = channel
        endpoints += channel.endpoints()
    for name, table in channels.imported.items():
        found[name] = _factory(name, table.module)(context(name, table.options))
    return found, endpoints


def _own(channels: ChannelsSettings) -> list[tuple[str, Any]]:
    """The channels of this version that are configured, with their settings. Each has the same files."""
    own: list[tuple[str, Any]] = [("web", channels.web)] if channels.web.enabled else []
    if channels.telegram is not None:
        own.append(("telegram", channels.telegram))
    if channels.slack is not None:
        own.append(("slack", channels.slack))
    return own


def _factory(name: str, path: str) -> Callable[[ChannelContext], Channel]:
    module, _, factory = path.partition(":")
    try:
        return getattr(importlib.import_module(module), factory)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"The channel {name} cannot be loaded from {path}: {error}.",
            cure="Correct its `module`, or install what it needs.",
        ) from error
