"""Backups: one file with the whole store and what a restore needs besides. Used by `dragoman backup` and `restore`.

A backup is an ordinary store in SQLite with one more table. That holds the state key, and the digest of all rows, by
which any damage shows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.domain.nodes import KeyMark, KeySource
from gateway.errors import ConfigError, StoreDamaged, StoreError
from gateway.ports import Clock
from gateway.store import open_store
from gateway.store.copying import Copied, copy_rows, export, migrate, path_of, tally_of
from gateway.store.homing import KeptFiles
from gateway.store.kernel.sweeps import begin_life, void_approvals
from gateway.store.kernel_store import KernelStore

DAMAGED = "Use another backup: this one is not what was written."
FRESH = ".fresh"
"""Ends the name of the file in which a restored store begins its new life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupKey:
    """The key that the gateway of a backup signs with."""

    mark: KeyMark
    root: bytes | None
    """The key of the state folder; None for a key of the cluster, which the configuration has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A backup that was read and verified."""

    copied: Copied
    version: str
    """Version of Dragoman that made it."""
    made_at: str
    key: BackupKey


def make_backup(url: str, path: str, key: BackupKey, version: str, clock: Clock) -> Copied:
    """Back up a store, which may be in use, to a new file (0600). Raises `ConfigError` or `StoreError`."""

    def about(copied: Copied) -> Mapping[str, str]:
        return {
            "version": version,
            "made_at": clock.now().isoformat(timespec="seconds"),
            "digest": copied.tally.digest,
            "audit": copied.audit.hash,
            "source": key.mark.source,
            "fingerprint": key.mark.fingerprint,
            "key": "" if key.root is None else key.root.hex(),
        }

    return export(url, path, about)


def check_backup(path: str) -> Backup:
    """Verify a backup row by row, and the audit's chain. Raises `StoreError` with its cure."""
    from gateway.store.sqlite.copying import check_whole, read_about, read_file

    if not os.path.exists(path):
        raise StoreError(f"There is no backup at {path}.", cure="Name the file that `dragoman backup` made.")
    about = read_about(path)
    if about is None:
        raise StoreError(f"{path} is a store, and no backup.", cure="Move it with `dragoman migrate`.")
    try:
        check_whole(path)
        with read_file(path) as snapshot:
            copied = tally_of(snapshot)
    except StoreDamaged as error:
        raise StoreDamaged(f"The backup {path} is damaged: {error.message}", cure=DAMAGED) from error
    if (copied.tally.digest, copied.audit.hash) != (about["digest"], about["audit"]):
        raise StoreDamaged(f"The backup {path} is damaged: its rows are not those that were written.", cure=DAMAGED)
    mark = KeyMark(fingerprint=about["fingerprint"], source=KeySource(about["source"]))
    key = BackupKey(mark=mark, root=bytes.fromhex(about["key"]) if about["key"] else None)
    return Backup(copied=copied, version=about["version"], made_at=about["made_at"], key=key)


def check_key(backup: Backup, known: KeyMark | None) -> None:
    """Raise `ConfigError` when the gateway signs with another key than that of the backup. None: it has none yet."""
    mark = backup.key.mark
    if known is None and mark.source is KeySource.CLUSTER:
        raise ConfigError(
            "The gateway of this backup had a [cluster] key, and there is none here.",
            cure="Set [cluster] key to the same one.",
        )
    if known is None or known.fingerprint == mark.fingerprint:
        return
    if known.source is KeySource.CLUSTER:
        raise ConfigError(
            "The gateway of this backup signed with another key than [cluster] key.",
            cure="Set [cluster] key to the one of that gateway"
            + (", or leave it out for the restore." if mark.source is KeySource.STATE else "."),
        )
    raise ConfigError(
        "The state folder has another key than this backup.",
        cure="Move its state.key away, or name another state folder with --state.",
    )


async def restore_backup(path: str, url: str, clock: Clock, files: KeptFiles | None = None) -> Copied:
    """Make a store of a verified backup at an empty place. It begins a new life.

    `path` is absolute. Leases are void, and so are approvals that nobody used: they are asked again. `files`: files of
    sessions that are back in their place; as in `migrate`.

    Raises `ConfigError` or `StoreError`.
    """
    from gateway.store.sqlite.copying import forget_about, new_file, refuse_existing, remove

    target = path_of(url)
    if target:
        refuse_existing(target)
    fresh = f"{target or path}{FRESH}"
    remove(fresh)
    try:
        with new_file(fresh) as made:
            copy_rows(path, made)
            forget_about(made)
        await _begin_life(fresh, clock)
        return migrate(fresh, url, clock.now(), files)
    finally:
        remove(fresh)


async def _begin_life(path: str, clock: Clock) -> None:
    store = open_store(f"sqlite://{path}", clock)
    assert isinstance(store, KernelStore), "every store runs the kernel"
    try:
        while await store.run(begin_life):
            pass
        while await store.expire_waits():
            pass
        while await store.run(void_approvals):
            pass
    finally:
        await store.close()
