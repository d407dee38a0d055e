"""Loader of channels: imports the configured adapters and makes the channels. Used by `app.build`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from config.channels import ConfiguredChannel, built_in
from config.load import Loaded
from config.plugins import SAID_CHARS, said
from gateway.domain.text import cut
from gateway.errors import ConfigError
from gateway.ports import Build, Channel, ChannelContext, Endpoint
from gateway.system.redaction import Redactor


def import_channels(channels: Mapping[str, ConfiguredChannel]) -> None:
    """Import the adapters of the configured channels. Raises `ConfigError` for one that cannot be imported."""
    for name, channel in channels.items():
        _imported(name, channel)


def load_channels(
    channels: Mapping[str, ConfiguredChannel], context: Callable[[str, Any], ChannelContext]
) -> tuple[dict[str, Channel], list[Endpoint]]:
    """Make the channels; return them and their HTTP routes. `context` takes name and settings.

    Raises `ConfigError` for one that cannot be made, for any error of its code.
    """
    found: dict[str, Channel] = {}
    endpoints: list[Endpoint] = []
    for name, channel in channels.items():
        found[name], own = _made(name, channel, context)
        endpoints += own
    return found, endpoints


def redactor_of(loaded: Loaded) -> Redactor:
    """Return a redactor for the configured secrets and for anything that looks like a platform token.

    Covers every built-in channel, configured or not: people paste tokens, and errors quote them.
    """
    specs = {**built_in(), **{name: channel.spec for name, channel in loaded.channels.items()}}
    return Redactor(
        [one.get_secret_value() for one in loaded.secrets],
        [form for spec in specs.values() for form in spec.secret_patterns],
    )


def _imported(name: str, channel: ConfiguredChannel) -> Build:
    try:
        return channel.spec.load()
    except ImportError as error:
        extra = channel.spec.extra or channel.origin
        cure = f"Install Dragoman with the extra `{extra}`; `./run` does that by itself."
        raise ConfigError(
            f"The channel {name} needs packages that are not installed ({error.name or said(error)}).",
            cure=f"Install what {channel.origin} needs." if channel.origin else cure,
        ) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _not_loaded(name, channel, f"{type(error).__name__}: {said(error)}") from error


def _made(
    name: str, channel: ConfiguredChannel, context: Callable[[str, Any], ChannelContext]
) -> tuple[Channel, Sequence[Endpoint]]:
    build = _imported(name, channel)
    try:
        made = build(context(name, channel.settings))
        endpoints: Sequence[Endpoint] = getattr(made, "endpoints", tuple)()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        why = error.message if isinstance(error, ConfigError) else f"{type(error).__name__}: {said(error)}"
        raise _not_loaded(name, channel, why) from error
    lacking = [each for each in ("run", "show") if not callable(getattr(made, each, None))]
    if lacking:
        raise ConfigError(
            f"The channel {name} that {channel.origin or name} makes has no {lacking[0]}.",
            cure="Let `load` return a function that returns a `gateway.ports.Channel`.",
        )
    return made, endpoints


def _not_loaded(name: str, channel: ConfiguredChannel, why: str) -> ConfigError:
    return ConfigError(
        f"The channel {name} cannot be loaded from {channel.origin or name}: {cut(why, SAID_CHARS)}.",
        cure="Correct its `module`, or install what it needs.",
    )
