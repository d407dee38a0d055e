"""Commands on a whole store, such as export, migrate and backup, with or without a daemon."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from gateway.cli.options import Options, places
from gateway.errors import ConfigError, DragomanError

if TYPE_CHECKING:
    from config.load import Loaded
    from gateway.domain.audit import AuditHead, AuditMark
    from gateway.domain.nodes import KeySource
    from gateway.store.copying import Copied
    from gateway.store.homing import KeptFiles
    from gateway.system.secret_key import SecretKey


_NOTED_WITHIN_S = 30.0


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

    Afterwards set store.url to TO. FROM stays as it was; start no daemon on it again. Sessions whose files lie beside
    FROM, in its state folder, stay at home there: only a node with that folder runs them.
    """
    from gateway.domain.text import without_password
    from gateway.store.copying import migrate as copy
    from gateway.store.copying import path_of
    from gateway.system.clock import SystemClock

    path = path_of(source)
    copied = copy(source, target, SystemClock().now(), _files_in(os.path.dirname(path)) if path else None)
    click.echo(f"Copied to {without_password(target)}: {_said(copied)}")
    _say_homes(copied, os.path.dirname(path))
    click.echo("Now set store.url to it, and start no daemon on the old store again.")


@click.command()
@click.argument("target", metavar="[FILE]", required=False)
@places
@click.pass_obj
def backup(options: Options, target: str | None) -> None:
    """Back up the store and the state key to the new FILE, while daemons may go on. Keep it like a password.

    Workspaces and outputs of sessions are files of the state folder: back them up as files.
    """
    from gateway.app.node_entry import own_version
    from gateway.domain.nodes import KeyMark, KeySource
    from gateway.store.backup import BackupKey, make_backup
    from gateway.system.clock import SystemClock

    loaded, clock = _loaded(options), SystemClock()
    key, source = _key(loaded)
    if key is None:
        raise ConfigError("There is nothing to back up: this gateway never ran.", cure="Start it once: dragoman run.")
    mark = KeyMark(fingerprint=key.fingerprint, source=source)
    own = BackupKey(mark=mark, root=key.root if source is KeySource.STATE else None)
    file = target or f"dragoman-{clock.now():%Y%m%d-%H%M%S}.backup"
    copied = make_backup(loaded.settings.store.url, file, own, own_version(), clock)
    click.echo(f"Backed up to {file}: {_said(copied)}")
    if source is KeySource.CLUSTER:
        click.echo("[cluster] key is not in it: keep that one too.")


@click.command()
@click.argument("source", metavar="FILE")
@click.option("--check", "only_check", is_flag=True, help="Only verify FILE: every row, the audit, and the key.")
@places
@click.pass_obj
def restore(options: Options, source: str, *, only_check: bool) -> None:
    """Make the store of the backup FILE at store.url, where none may be yet, and put the state key in its place.

    The store begins a new life: running turns restart, and approvals that nobody used are asked again.
    """
    import asyncio

    from gateway.app.state import open_state, put_key
    from gateway.app.store_note import NOTE, forget_store
    from gateway.domain.nodes import KeyMark
    from gateway.store import is_shared
    from gateway.store.backup import check_backup, check_key, restore_backup
    from gateway.system.clock import SystemClock

    loaded = _loaded(options)
    found = check_backup(source)
    key, own = _key(loaded)
    check_key(found, None if key is None else KeyMark(fingerprint=key.fingerprint, source=own))
    click.echo(f"The backup of {found.made_at} is whole: {_said(found.copied)}")
    if only_check:
        return
    open_state(loaded.state)
    files, url = str(loaded.shared or loaded.state), loaded.settings.store.url
    copied = asyncio.run(restore_backup(os.path.abspath(source), url, SystemClock(), _files_in(files)))
    if key is None and found.key.root is not None:
        put_key(loaded.state, found.key.root)
    forget_store(loaded.state)
    click.echo(f"Restored: {_said(copied)}")
    _say_homes(copied, files)
    if is_shared(url):
        click.echo(f"On every other node remove {NOTE} from its state folder before it starts.")


@click.command("export")
@click.argument("file")
@places
@click.pass_obj
def export_audit(options: Options, file: str) -> None:
    """Write the audit to the new FILE, a JSON object a line, with its head. Keep it where this machine cannot write.

    The store notes the head: `[audit] keep` removes no row behind it.
    """
    from gateway.store.audit_files import export_audit as write

    loaded = _loaded(options)
    found = write(loaded.settings.store.url, file)
    click.echo(f"Exported to {file}: {found.rows} rows{_behind(found.removed)}. Their head: {found.head.hash}")
    if found.head.seq:
        _note_export(loaded, file, found.head)


@click.command("compare")
@click.argument("file")
@places
@click.pass_obj
def compare_audit(options: Options, file: str) -> None:
    """Verify that the audit still holds the rows of FILE, an earlier export. Exit code 1 when it does not."""
    from gateway.store.audit_files import compare_audit as compare

    kept, now = compare(_loaded(options).settings.store.url, file)
    gone = 0 if now.removed is None else now.removed.seq
    there = kept.head.seq - max(gone, 0 if kept.removed is None else kept.removed.seq)
    after = now.head.seq - kept.head.seq
    click.echo(f"The {there} rows of {file} are in the audit{_behind(now.removed)}, and {after} after them.")


def _behind(removed: AuditMark | None) -> str:
    return "" if removed is None else f" (rows 1 to {removed.seq} were removed behind an export)"


def _note_export(loaded: Loaded, file: str, head: AuditHead) -> None:
    """Have the daemon note the export in the store, or do it where none runs here."""
    import asyncio

    from gateway.server.control_client import call, is_running
    from gateway.server.control_wire import socket_path

    path = socket_path(loaded.state)
    try:
        if is_running(path):
            noted = call(path, "audit_exported", {"seq": head.seq, "head": head.hash}, _NOTED_WITHIN_S)["noted"]
        else:
            noted = asyncio.run(_note_directly(loaded, head))
    except DragomanError as error:
        says = f"{file} is written, but the store did not note it: {error.message}"
        raise DragomanError(says, cure=error.cure) from None
    if not noted:
        raise DragomanError(f"{file} is written, but the store has no such row.", cure="Export again to another file.")


async def _note_directly(loaded: Loaded, head: AuditHead) -> bool:
    from gateway.store import open_store
    from gateway.system.clock import SystemClock

    store = open_store(loaded.settings.store.url, SystemClock(), loaded.settings.store.terms)
    try:
        return await store.note_export(head.seq, head.hash)
    finally:
        await store.close()


def _files_in(folder: str) -> KeptFiles | None:
    """Return the files of sessions in a state folder; None without any."""
    from pathlib import Path

    from gateway.store.homing import KeptFiles
    from gateway.toolcalls.workspaces import Workspaces

    if not (Path(folder) / "workspaces").is_dir():
        return None
    workspaces = Workspaces(Path(folder))
    return KeptFiles(
        home=workspaces.home(),
        name=folder,
        has=lambda session: workspaces.known_workspace(session).is_dir(),
    )


def _say_homes(copied: Copied, folder: str) -> None:
    """Print where sessions are at home now, and that their nodes are waited for."""
    from gateway.system.figures import count

    wait = (
        "wait for {} for ten times [cluster] home_away_after (10 minutes) from now; then they take these sessions with "
        "an empty folder."
    )
    if copied.settled:
        click.echo(
            f"{count(copied.settled, 'session')} at home in {folder}: let one of the "
            f"nodes have it as its state folder, and start that node first. The others {wait.format('it')}"
        )
    if copied.homes:
        click.echo(
            f"Sessions stay at home where their files are ({', '.join(copied.homes)}): start each of these nodes with "
            f"its state folder. Those that run {wait.format('them')}"
        )
    if copied.homeless:
        click.echo(
            f"{count(sum(copied.homeless.values()), 'session')} with files on the nodes that worked for them "
            f"({', '.join(f'{name}: {n}' for name, n in copied.homeless.items())}). The lone daemon uses "
            "its own state folder: copy the folders in workspaces and outputs of the other nodes there before it "
            "starts."
        )


def _loaded(options: Options) -> Loaded:
    from config.load import load
    from config.plugins import tool_specs

    return load(options.config, options.state, os.environ, tool_specs())


def _key(loaded: Loaded) -> tuple[SecretKey | None, KeySource]:
    """Return the key that this gateway signs with, None when it has none yet, and where that stands."""
    from gateway.app.state import read_key
    from gateway.domain.nodes import KeySource
    from gateway.system.secret_key import SecretKey, cluster_key

    configured = loaded.settings.cluster.key
    if configured is not None:
        return cluster_key(configured.get_secret_value()), KeySource.CLUSTER
    root = read_key(loaded.state)
    return None if root is None else SecretKey(root), KeySource.STATE


def _said(copied: Copied) -> str:
    from gateway.system.figures import count

    counts = copied.tally.counts
    rows = f"{count(copied.tally.total, 'row')}, {count(counts['session'], 'session')}, {count(counts['turn'], 'turn')}"
    behind = _behind(copied.removed)
    audit = f"The audit is whole: {count(counts['audit'], 'row')}{behind}. Its head: {copied.audit.hash}"
    return f"{rows}; each was compared. {audit}"
