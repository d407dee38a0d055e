"""Tables of SQLite: a new row is written whole, a changed one by the columns that changed."""

from __future__ import annotations

import sqlite3
from itertools import compress
from operator import attrgetter, is_not
from typing import Any, Generic, TypeVar

from gateway.store import columns
from gateway.store.codec import storable
from gateway.store.columns import RowColumns

R = TypeVar("R")


class RowTable(Generic[R]):
    """A table: writes new rows whole, and of changed ones the columns that changed."""

    def __init__(self, kind: RowColumns[R]) -> None:
        """Take the columns, of which the table has the name and the key."""
        self._kind = kind
        self._where = f"WHERE {kind.key} = ?"
        self._insert = insertion(kind)
        self._delete = f"DELETE FROM {kind.name} {self._where}"  # noqa: S608 - names of our own
        self._changing = [one for one in kind.columns if not one.fixed]
        self._places = range(len(self._changing))
        self._changeable = attrgetter(*(one.path for one in self._changing))
        self._key = attrgetter(next(one.path for one in kind.columns if one.name == kind.key))
        self._updates: dict[tuple[str, ...], str] = {}

    def insert(self, db: sqlite3.Connection, row: R) -> None:
        """Write a new row."""
        _execute(db, self._insert, self._kind.values(row))

    def update(self, db: sqlite3.Connection, before: R, row: R) -> None:
        """Write the columns of a row that changed, if there are any."""
        names: list[str] = []
        values: list[Any] = []
        old, new = self._changeable(before), self._changeable(row)
        # Most values are the very same objects: these are passed over without a loop.
        for at in compress(self._places, map(is_not, old, new)):
            column, value = self._changing[at], new[at]
            if old[at] != value:
                names.append(column.name)
                values.append(value if value is None or column.encode is None else column.encode(value))
        if names:
            values.append(self._key(row))
            _execute(db, self._update(tuple(names)), values)

    def delete(self, db: sqlite3.Connection, row: R) -> None:
        """Remove a row."""
        _execute(db, self._delete, [self._key(row)])

    def _update(self, names: tuple[str, ...]) -> str:
        if names not in self._updates:
            assignments = ", ".join(f"{name} = ?" for name in names)
            statement = f"UPDATE {self._kind.name} SET {assignments} {self._where}"  # noqa: S608 - names of our own
            self._updates[names] = statement
        return self._updates[names]


def insertion(kind: RowColumns[Any]) -> str:
    """Return the statement that writes a whole row; its parameters are all columns in their order."""
    names, marks = ", ".join(kind.names), ", ".join("?" for _ in kind.names)
    return f"INSERT INTO {kind.name} ({names}) VALUES ({marks})"  # noqa: S608 - names of our own


def _execute(db: sqlite3.Connection, statement: str, values: list[Any]) -> None:
    try:
        db.execute(statement, values)
    except UnicodeEncodeError:  # half surrogate pairs, which UTF-8 cannot hold
        db.execute(statement, [storable(value) if isinstance(value, str) else value for value in values])


SESSIONS = RowTable(columns.SESSIONS)
TURNS = RowTable(columns.TURNS)
MESSAGES = RowTable(columns.MESSAGES)
STEPS = RowTable(columns.STEPS)
WAITS = RowTable(columns.WAITS)
GRANTS = RowTable(columns.GRANTS)
SLOTS = RowTable(columns.SLOTS)
