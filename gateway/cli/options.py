"""Options that all commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import click


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Paths that were given on the command line."""

    config: str | None = None
    state: str | None = None


def _keep(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Store a path in the options of `context`; it overrides one given before the command."""
    if value is not None:
        context.obj = replace(context.obj or Options(), **{str(option.name): value})


def places(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--config` and `--state`, accepted before or after the command's name."""
    for name, metavar, what in (("--state", "DIR", "The state folder"), ("--config", "FILE", "The configuration")):
        default = f"Default: $DRAGOMAN_{name[2:].upper()}, then the user's own."
        option = click.option(name, metavar=metavar, expose_value=False, callback=_keep, help=f"{what}. {default}")
        command = option(command)
    return command
