"""Machine checks of `dragoman check`: Python, SQLite, folders, disk, port, sandbox. Changes nothing.

`preflight` tries the start-up steps. The command prints the results (`gateway/cli`).
"""

from __future__ import annotations

import asyncio
import errno
import importlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gateway.app.state import NAME_ANOTHER, cure_of, instead_of_it, is_full, may_be_closed
from gateway.errors import DragomanError
from gateway.server.control_client import call, is_running
from gateway.server.control_wire import socket_path
from gateway.store.sqlite.opening import OLDEST_SQLITE

_OLDEST_PYTHON = (3, 11)
_FREE_AT_LEAST = 100 * 2**20
"""Bytes of free disk below which the check fails."""
_FREE_BETTER = 2**30
"""Bytes of free disk below which the check prints a note."""
_ANSWER_S = 5.0
"""Timeout in seconds for a running daemon to return its port."""


class Level(StrEnum):
    """Severity of a check result."""

    OK = "ok"
    NOTE = "note"
    """Works, but worth knowing."""
    PROBLEM = "problem"
    """Does not work as configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check."""

    level: Level
    what: str
    cure: str = ""


def look(*, state: Path, store_url: str, host: str, port: int, contained: Sequence[str]) -> Iterator[CheckResult]:
    """Run all checks, in order of importance. `contained` names the tools that must run in a sandbox."""
    yield _python()
    yield _sqlite()
    yield _state(state)
    yield from _store_folder(state, store_url)
    yield _disk(state)
    yield _port(state, host, port)
    yield from _sandbox(contained)


def _python() -> CheckResult:
    found = sys.version_info[:3]
    text = f"Python {'.'.join(map(str, found))}"
    if found < _OLDEST_PYTHON:
        return CheckResult(level=Level.PROBLEM, what=f"{text} is too old.", cure="Install Python 3.11 or newer.")
    return CheckResult(level=Level.OK, what=text)


def _sqlite() -> CheckResult:
    # Imported by name: only the store may use SQLite, and this needs only its version.
    version: str = importlib.import_module("sqlite3").sqlite_version
    if tuple(map(int, version.split("."))) < OLDEST_SQLITE:
        return CheckResult(level=Level.PROBLEM, what=f"SQLite {version} is too old.", cure="Use a newer Python build.")
    return CheckResult(level=Level.OK, what=f"SQLite {version}")


def _state(state: Path) -> CheckResult:
    if what := instead_of_it(state):
        return CheckResult(level=Level.PROBLEM, what=f"The state folder {state} is {what}.", cure=NAME_ANOTHER)
    if not os.path.exists(state):
        return _missing_folder("state folder", state, "name another one with --state")
    found = state.stat()
    if found.st_uid != os.geteuid():
        cure = f"Run: chown -R {os.geteuid()} {state}, or check as the daemon's user."
        return CheckResult(level=Level.PROBLEM, what=f"The state folder {state} belongs to another user.", cure=cure)
    try:
        _write_into(state)
        ours = not found.st_mode & 0o077 or may_be_closed(state)
    except OSError as error:
        what = f"The state folder {state} cannot be used: {error.strerror}."
        return CheckResult(level=Level.PROBLEM, what=what, cure=cure_of(error))
    if not ours:
        what = f"The folder {state} is open to other users, and something else is kept in it."
        return CheckResult(level=Level.PROBLEM, what=what, cure="Name a folder of its own with --state.")
    if found.st_mode & 0o077:
        what = f"The state folder {state} is open to other users; the next start closes it."
        return CheckResult(level=Level.NOTE, what=what, cure=f"To close it now: chmod 700 {state}")
    return CheckResult(level=Level.OK, what=f"state folder {state}")


def _missing_folder(what: str, folder: Path, cure: str) -> CheckResult:
    above = next(one for one in folder.parents if os.path.lexists(one))
    if not os.path.isdir(above):
        cure = f"{above} is not a folder: correct that, or {cure}."
    elif os.access(above, os.W_OK | os.X_OK):
        return CheckResult(level=Level.OK, what=f"{what} {folder} (made at the first start)")
    else:
        cure = f"Make {above} writable, or {cure}."
    return CheckResult(level=Level.PROBLEM, what=f"The {what} {folder} cannot be made in {above}.", cure=cure)


def _store_folder(state: Path, url: str) -> Iterator[CheckResult]:
    scheme, _, path = url.partition("://")
    folder = Path(path).parent
    if scheme != "sqlite" or folder == state:
        return
    folder = Path(os.path.realpath(path)).parent
    if not os.path.lexists(folder):
        yield _missing_folder("store's folder", folder, "change store.url")
        return
    try:
        _write_into(folder)
    except OSError as error:
        what = f"Nothing can be written into the store's folder {folder}: {error.strerror}."
        cure = (
            "Free some space." if is_full(error) else "Make it a folder that this user may write, or change store.url."
        )
        yield CheckResult(level=Level.PROBLEM, what=what, cure=cure)
    else:
        yield CheckResult(level=Level.OK, what=f"store in {folder}")


def _disk(state: Path) -> CheckResult:
    free = shutil.disk_usage(next(one for one in (state, *state.parents) if os.path.exists(one))).free
    text = f"{free / 2**30:.1f} GiB free on the disk of the state folder"
    if free < _FREE_AT_LEAST:
        return CheckResult(level=Level.PROBLEM, what=f"Only {text}.", cure="Free some space.")
    return CheckResult(level=Level.OK if free >= _FREE_BETTER else Level.NOTE, what=text)


def _port(state: Path, host: str, port: int) -> CheckResult:
    if not port:
        return CheckResult(level=Level.OK, what="any free port is taken")
    try:
        family, kind, proto, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        return _port_refused(error, state, host, port)
    return CheckResult(level=Level.OK, what=f"{host}:{port} is free")


def _port_refused(error: OSError, state: Path, host: str, port: int) -> CheckResult:
    if error.errno == errno.EADDRINUSE:
        return _port_taken(state, host, port)
    if error.errno == errno.EACCES:
        cure = "Set http.port to 1024 or more, or allow this user lower ones."
        return CheckResult(level=Level.PROBLEM, what=f"This user may not listen on port {port}.", cure=cure)
    what = f"Nothing can listen on {host}:{port}: {error.strerror}."
    return CheckResult(level=Level.PROBLEM, what=what, cure="Set http.host to an address of this machine.")


def _port_taken(state: Path, host: str, port: int) -> CheckResult:
    path = socket_path(state)
    ours = _own_port(path) if is_running(path) else 0
    if ours in (port, None):
        return CheckResult(level=Level.OK, what=f"{host}:{port} is taken, and the daemon of this state folder runs")
    what = f"Another program has taken {host}:{port}."
    if ours:
        what += f" The daemon of this state folder runs on port {ours}."
    return CheckResult(level=Level.PROBLEM, what=what, cure="Stop that program, or set another http.port.")


def _own_port(path: Path) -> int | None:
    """Return the running daemon's port; None when it does not answer, so it may hold this one."""
    try:
        return int(call(path, "port", {}, _ANSWER_S)["port"])
    except DragomanError:
        return None


def _sandbox(contained: Sequence[str]) -> Iterator[CheckResult]:
    # Imported here, because no other command needs it.
    from gateway.sandbox import probe

    if why := _no_temporary_folder():
        what = f"sandbox: not tried, because no temporary folder can be written: {why}."
        cure = "Free some space there, or set TMPDIR to a folder with room."
        yield CheckResult(level=Level.PROBLEM if contained else Level.NOTE, what=what, cure=cure)
        return
    found = asyncio.run(probe())
    if found.can_bwrap:
        yield CheckResult(level=Level.OK, what="sandbox: tools can be contained")
    elif contained:
        what = f"sandbox: none works here, and {', '.join(contained)} must have one. {found.why_no_bwrap}".strip()
        yield CheckResult(level=Level.PROBLEM, what=what, cure="Install bubblewrap, and allow user namespaces.")
    else:
        what = f"sandbox: none works here. {found.why_no_bwrap}".strip()
        cure = "Tools run on the host in main sessions, cards say so, and they do not exist elsewhere."
        yield CheckResult(level=Level.NOTE, what=what, cure=cure)


def _no_temporary_folder() -> str:
    """Return why the temporary folder is not writable; empty when it is."""
    try:
        _write_into(Path(tempfile.gettempdir()))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _write_into(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"dragoman check")
