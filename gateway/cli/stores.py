"""Commands on a whole store: copies of it, with or without a daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from gateway.store.copying import Copied


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="FILE")
def export(source: str, target: str) -> None:
    """Copy the store at FROM to the new FILE, an ordinary SQLite store. Daemons may go on meanwhile.

    FROM is the store.url of the configuration, or the path of a store's file. All rows are of one moment; each is read
    again and compared, and the audit is verified.
    """
    from gateway.store.copying import export as copy

    click.echo(f"Exported to {target}: {_said(copy(source, target))}")


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
def migrate(source: str, target: str) -> None:
    """Copy the store at FROM to the empty store at TO, while no daemon runs: from SQLite to Redis, or back.

    Afterwards set store.url to TO. FROM stays as it was; start no daemon on it again.
    """
    from gateway.store.copying import migrate as copy

    click.echo(f"Copied to {target.rpartition('@')[2]}: {_said(copy(source, target))}")
    click.echo("Now set store.url to it, and start no daemon on the old store again.")


def _said(copied: Copied) -> str:
    counts = copied.tally.counts
    rows = f"{copied.tally.total} rows, {counts['session']} sessions, {counts['turn']} turns; each was compared."
    return f"{rows} The audit is whole: {counts['audit']} rows. Its head: {copied.audit.hash}"
