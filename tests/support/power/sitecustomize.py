"""Recorder of SQLite's writes and syncs in this process. Python runs it at its start when its folder is on PYTHONPATH.

SQLite reaches files through a table of functions, its VFS. Here the functions that change something are led through
Python, which does what was asked and then appends a record of it to the file that `RECORD` names. Nothing needs to be
compiled, and the program that is watched is what it always is. A sync takes as long as on an ordinary disk, so that
what should wait for it, and does not, is seen.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import os
import time
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p, cast
from typing import Any, ClassVar

RECORD = "DRAGOMAN_TEST_RECORD"
SYNC_S = 0.004
KEPT = 0x100 | 0x800 | 0x80000
"""SQLite's flags of what is kept: databases, their journals, their write-ahead logs."""
DONE = 0

# What SQLite's C headers say of the first members of its tables; the rest is copied as it is.
OPEN = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_int, c_void_p)
DELETE = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)
WRITE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
TRUNCATE = CFUNCTYPE(c_int, c_void_p, c_int64)
SYNC = CFUNCTYPE(c_int, c_void_p, c_int)


class Vfs(Structure):
    """`sqlite3_vfs`."""

    _fields_: ClassVar = [
        ("version", c_int),
        ("size_of_file", c_int),
        ("longest_name", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("open", OPEN),
        ("delete", DELETE),
    ]


class Methods(Structure):
    """`sqlite3_io_methods`, version 3."""

    _fields_: ClassVar = [
        ("version", c_int),
        ("close", c_void_p),
        ("read", c_void_p),
        ("write", WRITE),
        ("truncate", TRUNCATE),
        ("sync", SYNC),
        ("others", c_void_p * 13),
    ]


class File(Structure):
    """`sqlite3_file`."""

    _fields_: ClassVar = [("methods", POINTER(Methods))]


class Watch:
    """The tables in between, and where each open file is. Alive as long as the process."""

    def __init__(self, record: str, vfs: Any) -> None:
        """Lead SQLite's opening and deleting of files through here. Before anything is open."""
        self._to = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._names: dict[int, bytes] = {}
        self._methods: dict[int, Any] = {}
        # What C calls has to be kept alive by somebody.
        self._really_open = OPEN(cast(vfs.open, c_void_p).value or 0)
        self._really_delete = DELETE(cast(vfs.delete, c_void_p).value or 0)
        self._open, self._delete = OPEN(self.open), DELETE(self.delete)
        vfs.open, vfs.delete = self._open, self._delete

    def open(self, vfs: int, name: bytes | None, file: int, flags: int, flags_out: int) -> int:
        """A file is opened: from now on its writes come here."""
        is_new = name is not None and not os.path.exists(name)
        code = self._really_open(vfs, name, file, flags, flags_out)
        if code == DONE and name is not None and flags & KEPT:
            self._names[file] = name
            opened = cast(file, POINTER(File)).contents
            address = ctypes.addressof(opened.methods.contents)
            if address not in self._methods:
                self._methods[address] = self._table(opened.methods.contents)
            opened.methods = ctypes.pointer(self._methods[address][0])
            self._tell("create" if is_new else "open", name)
        return code

    def delete(self, vfs: int, name: bytes, sync_folder: int) -> int:
        """A file is removed."""
        code = self._really_delete(vfs, name, sync_folder)
        if code == DONE:
            self._tell("delete", name, int(sync_folder != 0))
        return code

    def _table(self, methods: Any) -> tuple[Any, ...]:
        """A copy of a file's functions that come here first, with what keeps it alive."""
        really_write: Callable[..., int] = WRITE(cast(methods.write, c_void_p).value or 0)
        really_truncate: Callable[..., int] = TRUNCATE(cast(methods.truncate, c_void_p).value or 0)
        really_sync: Callable[..., int] = SYNC(cast(methods.sync, c_void_p).value or 0)

        def write(file: int, content: int, count: int, place: int) -> int:
            code = really_write(file, content, count, place)
            # What failed may have been written in part: that is for the disk to know, and not tried here.
            if code == DONE:
                self._tell("write", self._names[file], place, ctypes.string_at(content, count))
            return code

        def truncate(file: int, size: int) -> int:
            code = really_truncate(file, size)
            if code == DONE:
                self._tell("truncate", self._names[file], size)
            return code

        def sync(file: int, flags: int) -> int:
            time.sleep(SYNC_S)
            code = really_sync(file, flags)
            if code == DONE:
                self._tell("sync", self._names[file])
            return code

        copy = Methods.from_buffer_copy(methods)
        copy.write, copy.truncate, copy.sync = callbacks = WRITE(write), TRUNCATE(truncate), SYNC(sync)
        return copy, callbacks

    def _tell(self, what: str, name: bytes, number: int = 0, content: bytes = b"") -> None:
        """Append a record in one write: a line, and the content."""
        line = f"{what} {number} {len(content)} {os.path.basename(os.fsdecode(name))}\n"
        os.write(self._to, line.encode() + content)


def watch(record: str) -> Watch:
    """Begin. Raises `AttributeError` where Python's SQLite is built in so that its functions cannot be found."""
    library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
    library.sqlite3_initialize()
    library.sqlite3_vfs_find.restype = POINTER(Vfs)
    library.sqlite3_vfs_find.argtypes = [c_char_p]
    return Watch(record, library.sqlite3_vfs_find(None).contents)


if RECORD in os.environ:
    WATCH = watch(os.environ[RECORD])
