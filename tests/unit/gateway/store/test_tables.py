"""Tables of SQLite: a new row is written whole, of a changed one the columns that changed, and one row is removed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import pytest

from gateway.store.columns import Column, RowColumns
from gateway.store.sqlite.tables import RowTable, insertion


@dataclass(frozen=True, slots=True)
class Thing:
    name: str


@dataclass(frozen=True, slots=True)
class Row:
    thing: Thing
    place: int
    note: str | None = None
    born: int = 0


KIND = RowColumns[Row](
    "rows",
    "id",
    [
        Column("born", "born", fixed=True),
        Column("id", "place", fixed=True),
        Column("name", "thing.name"),
        Column("note", "note", encode=str.upper),
    ],
)
ONE, TWO = Row(Thing("one"), 1, "a", 7), Row(Thing("two"), 2, None, 1)


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.execute("CREATE TABLE rows (born, id, name, note)")
        for row in (ONE, TWO):
            RowTable(KIND).insert(db, row)
        yield db


def stored(db: sqlite3.Connection) -> list[tuple[object, ...]]:
    return db.execute("SELECT born, id, name, note FROM rows ORDER BY id").fetchall()


def test_a_row_is_written_whole(db: sqlite3.Connection) -> None:
    assert insertion(KIND) == "INSERT INTO rows (born, id, name, note) VALUES (?, ?, ?, ?)"
    assert stored(db) == [(7, 1, "one", "A"), (1, 2, "two", None)]


def test_a_change_writes_what_changed_of_its_row_alone(db: sqlite3.Connection) -> None:
    said: list[str] = []
    db.set_trace_callback(said.append)
    table = RowTable(KIND)
    table.update(db, ONE, replace(ONE, thing=Thing("one"), born=8))
    assert said == []
    table.update(db, ONE, replace(ONE, note="b"))
    table.update(db, TWO, replace(TWO, thing=Thing("2"), note="c"))
    table.update(db, ONE, replace(ONE, note=None))
    assert said == [
        "UPDATE rows SET note = 'B' WHERE id = 1",
        "UPDATE rows SET name = '2', note = 'C' WHERE id = 2",
        "UPDATE rows SET note = NULL WHERE id = 1",
    ]
    assert stored(db) == [(7, 1, "one", None), (1, 2, "2", "C")]


def test_a_row_is_removed_by_its_key(db: sqlite3.Connection) -> None:
    RowTable(KIND).delete(db, replace(TWO, thing=Thing("another")))
    assert stored(db) == [(7, 1, "one", "A")]


def test_half_a_surrogate_pair_is_stored_as_a_mark(db: sqlite3.Connection) -> None:
    RowTable(KIND).update(db, ONE, replace(ONE, thing=Thing("half \ud83d")))
    assert stored(db)[0] == (7, 1, "half \ufffd", "A")
