"""Copies of a store in SQLite: a snapshot of a file as records, and a new file made of records or of another file.

Used by `gateway.store.copying`. Every `sqlite3` error comes out as a `StoreError`.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from gateway.domain.audit import AuditMark
from gateway.domain.turns import TurnKind
from gateway.errors import StoreDamaged, StoreError, StoreFull, StoreInUse
from gateway.store.codec import dump_json, load_json
from gateway.store.columns import RowColumns
from gateway.store.constants import HELD
from gateway.store.kernel.audit import REMOVED, mark_of
from gateway.store.kernel.nodes import MEMBERS, PLACES
from gateway.store.kernel.rows import Early
from gateway.store.records import KINDS, TABLES, Record, Snapshot, batches, list_key
from gateway.store.sqlite.damage import refuse_damaged
from gateway.store.sqlite.failures import FAILURES, store_error
from gateway.store.sqlite.opening import FileLock, check_file, check_library, connect, migrate, open_reader
from gateway.store.sqlite.statements import FOLDER, load_migrations, load_statements
from gateway.store.sqlite.tables import insertion
from gateway.store.sqlite.tx import ReadTx, Values
from gateway.system.flushing import flush

PARTIAL = ".partial"
"""Ends the name of a file that is being made. It gets its name when it is whole."""


def _statements() -> Mapping[str, str]:
    """Return the statements of the store, and those that read all of it."""
    return {**load_statements(), **load_statements(FOLDER / "copying")}


class SqliteSnapshot:
    """A file at one moment: all reads are in one transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        """Take a connection and begin."""
        self.db = db
        sql = _statements()
        self._sql = sql
        db.execute(sql["begin_reading"])
        self._tx = ReadTx(db, sql, 0)
        ((self._rev,),) = self._tx.run("read_rev")

    @property
    def rev(self) -> int:
        """Return its last revision."""
        return self._rev

    def records(self) -> Iterator[Record]:
        """Yield all rows."""
        places = dict(self._tx.run("all_places"))
        lists = {"session": self._lists_of_session, "turn": self._lists_of_turn}
        for kind, table in TABLES.items():
            yield from self._of_table(kind, table, places, lists.get(kind, _no_lists))
        yield from self._cards()
        for channel, account, key, outcome in self._all("all_events"):
            yield Record(kind="event", key=list_key((channel, account, key)), values=[outcome])
        for namespace, key, value, until in self._all("all_facts"):
            yield Record(kind="fact", key=list_key((namespace, key)), values=[value, until])
        for day, principal, model, *used in self._all("all_spent"):
            yield Record(kind="spent", key=list_key((day, principal, model)), values=[day, principal, model, *used])
        yield from self.audit(self.removed_audit())
        for channel, account, key, *rest in self._all("all_poison"):
            yield Record(kind="poison", key=list_key((channel, account, key)), values=rest)

    def removed_audit(self) -> AuditMark | None:
        """Return the last row of the audit that was removed."""
        found = self._tx.one("fact", *REMOVED)
        return mark_of(None if found is None else found[0])

    def audit(self, removed: AuditMark | None) -> Iterator[Record]:
        """Yield the rows of the audit in their order: all that this moment has are behind that one."""
        del removed
        for seq, *rest in self._all("all_audit"):
            yield Record(kind="audit", key=str(seq), values=[seq, *rest])

    def _all(self, name: str) -> Iterator[Values]:
        return self.db.execute(self._sql[name])

    def _of_table(
        self, kind: str, table: RowColumns[Any], places: dict[str, int], lists: Callable[[dict[str, Any]], list[Any]]
    ) -> Iterator[Record]:
        names = table.names
        for row in self.db.execute(f"SELECT {', '.join(names)} FROM {table.name}"):  # noqa: S608 - names of our own
            named = dict(zip(names, row, strict=True))
            key = f"{named['turn']}/{named['n']}" if kind == "step" else str(named["id"])
            place = places[key] if kind == "session" else 0
            yield Record(kind=kind, key=key, values=[*row, *lists(named)], place=place)

    def _lists_of_session(self, row: dict[str, Any]) -> list[Any]:
        unended = self._tx.run("unended_turns", row["id"])
        commands = [(turn, state) for turn, kind, state in unended if kind == TurnKind.COMMAND]
        below = self._ids("live_below", row["id"]) if row["lineage"] is None else []
        turns = [turn for turn, kind, _ in unended if kind == TurnKind.MODEL]
        last = self._tx.run("last_end", row["id"])
        held = sum(state in HELD for _, state in commands)
        return [turns, [turn for turn, _ in commands], held, below, last[0][0] if last else None]

    def _lists_of_turn(self, row: dict[str, Any]) -> list[Any]:
        turn = row["id"]
        ((steps,),) = self._tx.run("steps_of_turn", turn)
        early = self._tx.run("slots_of_turn", turn)
        drafts = [slot for slot, how in early if how == Early.DRAFT]
        status = [slot for slot, how in early if how == Early.STATUS]
        waits, tasks = self._ids("waits_of_turn", turn), self._ids("tasks_of_turn", turn)
        slots = [slot for slot, _ in early]
        return [self._ids("inputs_of_turn", turn), steps, waits, drafts, status, tasks, slots]

    def _ids(self, name: str, key: str) -> list[str]:
        return [id_ for (id_,) in self._tx.run(name, key)]

    def _cards(self) -> Iterator[Record]:
        wait, slots = "", list[str]()
        for of, slot in self._all("all_cards"):
            if of != wait:
                if slots:
                    yield Record(kind="cards", key=wait, values=slots)
                wait, slots = of, []
            slots.append(slot)
        if slots:
            yield Record(kind="cards", key=wait, values=slots)


def _no_lists(row: dict[str, Any]) -> list[Any]:
    del row
    return []


class Lock:
    """The lock of a store's file, if this process could take it; `release` gives it back."""

    def __init__(self, path: str) -> None:
        """Take the lock, unless a daemon holds it."""
        self._lock: FileLock | None = None
        if not os.path.exists(path):
            raise StoreError(f"There is no store at {path}.", cure="Name the file of a store.")
        try:
            self._lock = FileLock(path)
        except StoreInUse:
            return

    @property
    def is_held(self) -> bool:
        """Return whether no daemon has the store."""
        return self._lock is not None

    def release(self) -> None:
        """Give it back. Idempotent."""
        if self._lock is not None:
            self._lock.release()


@contextmanager
def _up_to_date(db: sqlite3.Connection, sql: Mapping[str, str]) -> Generator[sqlite3.Connection]:
    """Open a copy of a store of an earlier schema, brought up to date. Its file has no name, and ends with it."""
    with closing(connect("")) as copy:
        db.backup(copy)
        migrate(copy, sql, load_migrations())
        yield copy


@contextmanager
def read_file(path: str, *, alone: bool = False) -> Generator[SqliteSnapshot]:
    """Open a snapshot of a store. `alone`: raise `StoreInUse` while a daemon has it; else it may go on writing.

    Raises `StoreError` for a file that cannot be read.
    """
    check_library()
    path, sql = os.path.realpath(path), _statements()
    check_file(path, len(load_migrations())) if os.path.exists(path) else None
    lock = Lock(path)
    try:
        if lock.is_held:
            refuse_damaged(path)
        elif alone:
            raise StoreInUse(f"A daemon has the store {path}.", cure="Stop the daemon: a copy must not miss anything.")
        with closing(open_reader(path, sql)) as db:
            ((version,),) = db.execute(sql["read_user_version"])
            if version == len(load_migrations()):
                yield SqliteSnapshot(db)
            else:
                with _up_to_date(db, sql) as copy:
                    yield SqliteSnapshot(copy)
    except FAILURES as error:
        raise store_error(error, path) from error
    finally:
        lock.release()


@contextmanager
def new_file(path: str) -> Generator[str]:
    """Give the name of a file to be made, and give it the name `path` when that is done and flushed.

    What an earlier attempt left is removed. Raises `StoreError` when something stands at `path`.
    """
    target = Path(os.path.realpath(path))
    refuse_existing(path)
    made = target.with_name(target.name + PARTIAL)
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        remove(str(made))
        os.close(os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        yield str(made)
        flush(made)
        made.replace(target)
        flush(target.parent)
    except OSError as error:
        raise _not_written(str(target), error) from error
    except FAILURES as error:
        raise store_error(error, str(target)) from error
    finally:
        remove(str(made))


def refuse_existing(path: str) -> None:
    """Raise `StoreError` when something stands at the place of a new file."""
    if os.path.lexists(path) and (not os.path.isfile(path) or os.path.getsize(path) > 0):
        raise StoreError(f"{path} exists already.", cure="Name a file that does not exist, or move this one away.")


def remove(path: str) -> None:
    """Remove a database and what SQLite makes beside it, where it exists."""
    for name in (path, f"{path}-wal", f"{path}-shm", f"{path}-journal", f"{path}.lock"):
        Path(name).unlink(missing_ok=True)


def _not_written(path: str, error: OSError) -> StoreError:
    if isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError):
        return StoreError(
            f"{path} cannot be written: {error.strerror}.", cure="Name a file in a folder that you may write."
        )
    return StoreFull(f"{path} cannot be written: {error.strerror}.", cure="Free space on its disk, then begin again.")


@contextmanager
def _written(path: str) -> Generator[sqlite3.Connection]:
    """Open a file that is being made. Its errors differ from those of the store that is read."""
    try:
        with closing(connect(path)) as db:
            yield db
    except FAILURES as error:
        failure = store_error(error, path)
        if isinstance(failure, StoreFull):
            cure = "Free space on its disk or name another place, then begin again."
            raise StoreFull(f"There is no room for {path.removesuffix(PARTIAL)}.", cure=cure) from error
        raise failure from error


def copy_file(snapshot: SqliteSnapshot, path: str) -> None:
    """Copy the pages of a snapshot to a file, as a store that was closed."""
    sql = _statements()
    with _written(path) as db:
        snapshot.db.backup(db)
        db.execute(sql["mark_clean"], (snapshot.rev,))
        db.execute(sql["checkpoint"]).fetchall()


def fill_file(snapshot: Snapshot, path: str) -> None:
    """Make a store of records in an empty file, closed."""
    sql = _statements()
    with _written(path) as db:
        for name in ("without_log", "unsynchronized", "off"):
            db.execute(sql[name]).fetchall()
        migrate(db, sql, load_migrations())
        db.execute(sql["begin"])
        for records in batches(_in_order(snapshot.records())):
            _insert(db, sql, records)
        db.execute(sql["mark_clean"], (snapshot.rev,))
        db.execute(sql["commit"])
        if found := db.execute(sql["foreign_key_check"]).fetchone():
            raise StoreDamaged(f"A row of {found[0]} names a row of {found[2]} that is not there.")
    with _written(path) as db:
        db.execute(sql["journal_mode"]).fetchall()


def forget_nodes(path: str) -> Mapping[str, int]:
    """Take the homes from all sessions and turns of a closed file, and the members of the gateway.

    Return how many sessions had their files at each place, by the name of its node, or its id where no name is known.
    """
    sql = _statements()
    with _written(path) as db:
        db.execute(sql["begin"])
        homes = Counter(load_json(homes)[-1] for (homes,) in db.execute(sql["all_homes"]))
        cleared = Counter[str]()
        for home, sessions in homes.items():
            found = db.execute(sql["fact"], (PLACES, home)).fetchone()
            cleared[home if found is None else load_json(found[0])["name"]] += sessions
        db.execute(sql["clear_homes"])
        db.execute(sql["clear_homes_of_turns"])
        db.execute(sql["forget_members"], (MEMBERS,))
        db.execute(sql["commit"])
        db.execute(sql["checkpoint"]).fetchall()
        return cleared


def _in_order(records: Iterable[Record]) -> Iterator[Record]:
    """Yield the records, sessions in the order in which they were made: their table numbers them."""
    sessions = list[Record]()
    for record in records:
        if record.kind == "session":
            sessions.append(record)
            continue
        yield from sorted(sessions, key=lambda one: one.place)
        sessions.clear()
        yield record
    yield from sorted(sessions, key=lambda one: one.place)


def _insert(db: sqlite3.Connection, sql: Any, records: Iterable[Record]) -> None:
    for record in records:
        kind, values = record.kind, record.values
        table = TABLES.get(kind)
        if table is not None:
            db.execute(insertion(table), values[: len(table.names)])
        elif kind == "cards":
            db.executemany(sql["copy_card"], [(record.key, slot) for slot in values])
        elif kind in ("event", "poison"):
            db.execute(sql["put_event" if kind == "event" else "add_poison"], (*load_json(record.key), *values))
        elif kind == "fact":
            db.execute(sql["put_fact"], (*load_json(record.key), *values))
        else:
            db.execute(sql["add_spent" if kind == "spent" else "add_audit_row"], values)


class Staging:
    """Records beside a store that goes on writing: each is kept as it was read last. Its file is removed at the end."""

    def __init__(self, path: str) -> None:
        """Begin with an empty file."""
        self._path = path
        self._sql = _statements()
        remove(path)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        self._db = connect(path)
        for name in ("without_log", "unsynchronized", "make_staged"):
            self._db.execute(self._sql[name]).fetchall()
        self._rev = 0

    def close(self) -> None:
        """Remove the file."""
        self._db.close()
        remove(self._path)

    @property
    def rev(self) -> int:
        """Return the revision of the moment at which the rows stand."""
        return self._rev

    def settle(self, rev: int) -> None:
        """Set the revision."""
        self._rev = rev

    def put(self, records: Iterable[Record]) -> None:
        """Keep records in place of earlier ones."""
        rows = [(one.kind, one.key, one.place, dump_json(one.values)) for one in records]
        self._db.execute(self._sql["begin"])
        self._db.executemany(self._sql["put_staged"], rows)
        self._db.execute(self._sql["commit"])

    def drop(self, kind: str, key: str) -> None:
        """Forget a record that is gone."""
        self._db.execute(self._sql["delete_staged"], (kind, key))

    def records(self) -> Iterator[Record]:
        """Yield all records, kinds in their order."""
        for kind in KINDS:
            for key, place, text in self._db.execute(self._sql["all_staged"], (kind,)):
                yield Record(kind=kind, key=key, values=load_json(text), place=place)


def check_whole(path: str) -> None:
    """Raise `StoreDamaged` for a file whose pages are not in order."""
    sql = _statements()
    try:
        with closing(open_reader(path, sql)) as db:
            ((found,),) = db.execute(sql["integrity_check"]).fetchall()
    except FAILURES as error:
        raise store_error(error, path) from error
    if found != "ok":
        raise StoreDamaged(f"The store {path} is damaged: {found}.")


def put_about(path: str, about: Mapping[str, str]) -> None:
    """Write what a backup says of itself into its file."""
    sql = _statements()
    with _written(path) as db:
        db.execute(sql["begin"])
        db.execute(sql["make_about"])
        db.executemany(sql["put_about"], list(about.items()))
        db.execute(sql["commit"])
        db.execute(sql["checkpoint"]).fetchall()


def read_about(path: str) -> Mapping[str, str] | None:
    """Return the facts about a backup; None for a store that is no backup. Raises `StoreError`."""
    sql = _statements()
    check_file(path, len(load_migrations()))
    try:
        with closing(open_reader(path, sql)) as db:
            return dict(db.execute(sql["all_about"])) if db.execute(sql["has_about"]).fetchone() == (1,) else None
    except FAILURES as error:
        raise store_error(error, path) from error


def forget_about(path: str) -> None:
    """Remove from a copy of a backup what that said of itself."""
    sql = _statements()
    with closing(connect(path)) as db:
        db.execute(sql["drop_about"])
        db.execute(sql["checkpoint"]).fetchall()
