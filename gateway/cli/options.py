"""Options that all commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import click


class TextCommand(click.Command):
    """Command with a text as its last argument: people forget the quotes around several words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and say in an error about further words what to do with them."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if not isinstance(error, click.NoSuchOption) and "unexpected extra" not in error.message:
                raise
            raise click.UsageError(
                f"{error.format_message().rstrip('.')}. Put a text of several words in quotes.", ctx
            ) from error


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
