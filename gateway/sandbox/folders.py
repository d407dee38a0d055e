"""Private folder of a sandbox session, and the paths that `basic` shows to its program. Used by `session`."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pwd
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from gateway.errors import BadRequest, NotFound
from gateway.sandbox import inside
from gateway.sandbox.plan import SYSTEM

PREFIX = "sandbox-session-"
SWEPT = (PREFIX, "enclosure-")
"""Prefixes of folders that the sweep removes once their daemon is gone; the second one is an earlier version's."""
TMP_LINK = "tmp"
NEVER_WHOLE = ("/etc", "/home", "/root", "/run", "/var/lib", "/srv", "/tmp", "/proc", "/sys", "/dev")  # noqa: S108 - not used
"""Folders that are never shown whole."""


def program_file(program: Path) -> Path:
    """Return the program's path with links resolved. Raises `NotFound`."""
    file = program.resolve()
    if not (file.is_file() and os.access(file, os.X_OK)):
        raise NotFound(f"There is no program {program}.", cure="Install it, or configure where it is.")
    return file


def visible(program: Path, readable: Sequence[Path], parent: Path) -> tuple[Path, ...]:
    """Return the paths that `basic` shows read-only besides the system: the program's folder, `readable`, and Python.

    Each path keeps the name that it has here, even if it is a link. Raises `BadRequest` when a path would show the
    home, the daemon's own folders or half the machine.
    """
    own = [Path(sys.base_prefix).resolve(), Path(sys.executable).resolve(), Path(inside.__file__)]
    shown: list[Path] = []
    for path in (program.parent, *readable, *own):
        if _beneath(path, [*map(Path, SYSTEM), *shown]):
            continue
        target = path.resolve()
        if above := next((one for one in _protected(parent) if _beneath(one, [path, target])), None):
            cure = "Put it into a folder of its own."
            raise BadRequest(f"{path} cannot be shown in the sandbox: {above} is in it.", cure=cure)
        shown.append(path)
    return tuple(shown)


def _protected(parent: Path) -> Iterator[Path]:
    yield parent.resolve()
    yield Path.home().resolve()
    with suppress(KeyError):
        yield Path(pwd.getpwuid(os.geteuid()).pw_dir).resolve()
    yield from map(Path, NEVER_WHOLE)


def _beneath(path: Path, roots: Sequence[Path]) -> bool:
    return any(path.is_relative_to(root) for root in roots)


@asynccontextmanager
async def folder_of_its_own(parent: Path) -> AsyncGenerator[Path]:
    """Make a new private folder beneath `parent`, and remove it at the end.

    Folders of killed daemons are removed first: a live daemon holds a lock on its folder.
    """
    await asyncio.to_thread(_sweep, parent)
    folder, lock = _make(parent)
    try:
        yield folder
    finally:
        try:
            await asyncio.to_thread(_remove, folder)
        finally:
            os.close(lock)


def short_tmp(folder: Path) -> Path:
    """Make a short temporary folder in the machine's temporary directory; it is removed together with `folder`.

    A browser makes a socket in its temporary folder and dies when the address exceeds 107 bytes, 46 of which are its
    own. A state folder's path is often too long for that.
    """
    path = Path(tempfile.mkdtemp(prefix="dragoman-"))
    (folder / TMP_LINK).symlink_to(path)
    return path


def _make(parent: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent.resolve()))
        lock = _lock(folder)
        if lock is not None:
            return folder, lock


def _lock(folder: Path) -> int | None:
    """Lock a folder; None when it is locked, was removed meanwhile, or is no folder."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_nlink:
            return fd
    except BlockingIOError:
        pass
    os.close(fd)
    return None


def _sweep(parent: Path) -> None:
    for folder in (one for prefix in SWEPT for one in parent.glob(f"{prefix}*")):
        lock = _lock(folder)
        if lock is not None:
            _remove(folder)
            os.close(lock)


def _remove(folder: Path) -> None:
    """Remove the folder, including unreadable sub-folders. The next sweep retries what cannot be removed."""
    tmp = folder / TMP_LINK
    if tmp.is_symlink():
        _remove(tmp.readlink())
    for path, folders, _ in os.walk(folder):
        for name in folders:
            below = os.path.join(path, name)
            if not os.path.islink(below):
                os.chmod(below, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def above(fd: int) -> int:
    """Duplicate a descriptor to a number of 10 or more: programs on the way use the low ones."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
