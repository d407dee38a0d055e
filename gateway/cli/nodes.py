"""`dragoman nodes`: the daemons that share one store. They are asked for by the control socket of any of them.

The daemon makes the rows in `gateway/server/control_commands.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import click

from gateway.cli.terminal import table

Ask: TypeAlias = Callable[[Any, str, Mapping[str, Any]], Any]
"""Sends a command to the running daemon, by the options of the command line."""
COLUMNS = ("name", "state", "roles", "turns", "version", "since", "alive", "differs")


def make_nodes(places: Callable[[Callable[..., Any]], Callable[..., Any]], ask: Ask) -> click.Group:
    """Return the command group. `places` adds the options that every command has."""

    @click.group(invoke_without_command=True)
    @click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
    @places
    @click.pass_context
    def nodes(context: click.Context, *, as_json: bool) -> None:
        """List the nodes of this gateway, or drain one."""
        if context.invoked_subcommand is not None:
            return
        rows = ask(context.obj, "nodes", {})
        if as_json:
            import json

            click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
            return
        shown = [{**row, **{name: ", ".join(row[name]) for name in ("roles", "differs")}} for row in rows]
        click.echo(table(COLUMNS, [{**row, "turns": len(row["turns"])} for row in shown]))

    @nodes.command("drain")
    @click.argument("name")
    @places
    @click.pass_obj
    def drain(options: Any, name: str) -> None:
        """Let the node NAME take no new work, also after a restart. It finishes what it runs."""
        done = ask(options, "drain", {"name": name, "drained": True})
        click.echo(f"{done['name']} takes no new work. `dragoman nodes` shows the turns that it still holds.")
        click.echo(
            "Sessions whose files no other node has wait until it is resumed, for ten times `[cluster] "
            "home_away_after` at most. Then others go on without the files."
        )

    @nodes.command("resume")
    @click.argument("name")
    @places
    @click.pass_obj
    def resume(options: Any, name: str) -> None:
        """Let a drained node work again."""
        done = ask(options, "drain", {"name": name, "drained": False})
        click.echo(f"{done['name']} works again.")

    return nodes
