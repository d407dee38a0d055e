"""Copies of a whole store: export to a file, and moving to another store. Each copy is read again and compared.

Used by the commands. A file gets its name when it is whole; a Redis that is filled is refused by daemons until then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib.util import find_spec

from gateway.domain.audit import AuditHead, AuditMark, AuditRow
from gateway.errors import ConfigError, StoreDamaged, StoreError
from gateway.policy.audit import begins_behind, cut_off, follow
from gateway.store import no_redis
from gateway.store.codec import EPOCH
from gateway.store.decode import audit_row_of
from gateway.store.homing import Homed, KeptFiles
from gateway.store.kernel.audit import REMOVED, mark_of
from gateway.store.records import Snapshot, Tally, list_key

SQLITE, REDIS = "sqlite://", ("redis://", "rediss://", "redis+sentinel://", "rediss+sentinel://")
STAGED = ".rows"
"""Ends the name of the file that keeps rows of a copy meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A copy that was compared with its source."""

    tally: Tally
    """Its records."""
    rev: int
    """Last revision of the store."""
    audit: AuditHead
    """End of the audit, whose chain is whole."""
    removed: AuditMark | None
    """The last row of the audit that was removed behind an export."""
    homeless: Mapping[str, int] = field(default_factory=dict[str, int])
    """Sessions whose files are at a place that the copy does not name any more, by the name of its node."""
    settled: int = 0
    """Sessions that are at home in the folder that was named, and had no home before."""
    homes: Sequence[str] = ()
    """Names of the other nodes that the copy waits for, since they may have files of sessions."""


class AuditVerifier:
    """Verification of the audit as its rows come, in their order."""

    def __init__(self, removed: AuditMark | None = None) -> None:
        """Begin behind the last row that was removed, or where every audit begins."""
        self.removed = removed
        self.head: AuditHead = begins_behind(removed, EPOCH)

    def add(self, rows: Sequence[AuditRow]) -> None:
        """Follow the next rows. Raises `StoreDamaged`."""
        self.head, broken = follow(self.head, rows)
        if broken is not None:
            raise StoreDamaged(broken.says)

    def end(self) -> AuditHead:
        """Return the head after the last row. Raises `StoreDamaged` when none is left behind the removed ones."""
        if (broken := cut_off(self.removed, self.head.seq)) is not None:
            raise StoreDamaged(broken.says)
        return self.head


def tally_of(snapshot: Snapshot) -> Copied:
    """Count all records of a snapshot and verify the audit. Raises `StoreDamaged`."""
    tally, chain = Tally(), AuditVerifier()
    for record in snapshot.records():
        tally.add(record)
        if record.kind == "fact" and record.key == list_key(REMOVED):
            chain = AuditVerifier(mark_of(record.values[0]))
        elif record.kind == "audit":
            chain.add([audit_row_of(tuple(record.values))])
    return Copied(tally=tally, rev=snapshot.rev, audit=chain.end(), removed=chain.removed)


def path_of(url: str) -> str:
    """Return the path of a store's file, given by URL or as a path; empty for another kind of store."""
    if url.startswith(f"{SQLITE}/"):
        return url.removeprefix(SQLITE)
    return "" if "://" in url else os.path.abspath(url)


def export(source: str, path: str, about: Callable[[Copied], Mapping[str, str]] | None = None) -> Copied:
    """Make a file of SQLite from a store, which may be in use. Raises `ConfigError` or `StoreError`.

    `about`: what is written beside the rows, in a table of its own.
    """
    from gateway.store.sqlite.copying import new_file, put_about

    with new_file(path) as made:
        copied = _to_file(source, made, alone=False)
        if about is not None:
            put_about(made, about(copied))
        return copied


def migrate(source: str, target: str, now: datetime, files: KeptFiles | None = None) -> Copied:
    """Copy a store that no daemon uses to an empty one. Raises `ConfigError` or `StoreError`.

    `files`: a folder with files of sessions, which becomes their home on a store of several nodes, if they have none.
    """
    if path := path_of(target):
        from gateway.store.sqlite.copying import forget_nodes, new_file

        with new_file(path) as made:
            copied = _to_file(source, made, alone=True)
            # A lone daemon takes every turn in its own folders: back on Redis an old home would hide the newer files.
            return replace(copied, homeless=forget_nodes(made))
    return _to_redis(source, target, now, files)


def copy_rows(source: str, made: str) -> Copied:
    """Fill a file that is being made with all rows of a store that no daemon uses. Raises `StoreError`."""
    return _to_file(source, made, alone=True)


def _to_file(source: str, made: str, *, alone: bool) -> Copied:
    from gateway.store.sqlite.copying import check_whole, copy_file, fill_file, read_file

    if path := path_of(source):
        with read_file(path, alone=alone) as snapshot:
            copy_file(snapshot, made)
            read = tally_of(snapshot)
    else:
        with _rows_of(source, f"{made}{STAGED}", alone=alone) as snapshot:
            fill_file(snapshot, made)
            read = tally_of(snapshot)
    check_whole(made)
    with read_file(made) as again:
        return _compared(read, tally_of(again))


@contextmanager
def _rows_of(url: str, path: str, *, alone: bool) -> Generator[Snapshot]:
    """Read all rows of a store of any kind; `path` is a file to keep those of a server in."""
    if own := path_of(url):
        from gateway.store.sqlite.copying import read_file

        with read_file(own, alone=alone) as snapshot:
            yield snapshot
        return
    refuse_other(url)
    from gateway.store.redis.copying import copy_of
    from gateway.store.sqlite.copying import Staging

    with copy_of(url) as copy, closing(Staging(path)) as staging:
        if alone:
            copy.refuse_running()
        copy.read_all(staging)
        yield staging


def _to_redis(source: str, target: str, now: datetime, files: KeptFiles | None) -> Copied:
    refuse_other(target)
    from gateway.store.redis.copying import copy_of

    path = path_of(source)
    if not path:
        raise ConfigError(
            "A store on Redis moves through a file.",
            cure="Export it to a file, then migrate that file: dragoman export, dragoman migrate.",
        )
    with copy_of(target) as copy, _rows_of(source, "", alone=True) as rows:
        homed = Homed(snapshot=rows, moved_at=now, files=files)
        copy.begin()
        copy.fill(homed)
        done = _compared(tally_of(homed), tally_of(copy))
        copy.finish()
        return replace(done, settled=len(homed.settled), homes=sorted(homed.homes))


def refuse_other(url: str) -> None:
    """Raise `ConfigError` for a store that is not on Redis, or without the library for it."""
    if not url.startswith(REDIS):
        raise ConfigError(
            f"No store can be copied at {url!r}.",
            cure="Use `sqlite:///` with an absolute path, the path of a file, or `redis://` with an address.",
        )
    if find_spec("redis") is None:
        raise no_redis()


def _compared(source: Copied, copy: Copied) -> Copied:
    """Return the copy. Raises `StoreError` when it is not what was read."""
    if kind := source.tally.difference(copy.tally):
        raise StoreError(
            f"The copy differs from what was read, in its rows of kind {kind}.",
            cure="Nothing was replaced. Check disk and memory of both machines, then begin again.",
        )
    if copy.rev < source.rev:
        raise StoreError("The copy knows less than what was read.", cure="Begin again.")
    return copy
