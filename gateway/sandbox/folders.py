"""Where an enclosure stands: a folder of its own, and what of the machine `basic` shows. For `enclosure`."""

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

PREFIX = "enclosure-"
TMP_LINK = "tmp"
NEVER_WHOLE = ("/etc", "/home", "/root", "/run", "/var/lib", "/srv", "/tmp", "/proc", "/sys", "/dev")  # noqa: S108 - kept out


def program_file(program: Path) -> Path:
    """Return where the program really is. Raises `NotFound`."""
    file = program.resolve()
    if not (file.is_file() and os.access(file, os.X_OK)):
        raise NotFound(f"There is no program {program}.", cure="Install it, or configure where it is.")
    return file


def visible(program: Path, readable: Sequence[Path], parent: Path) -> tuple[Path, ...]:
    """Return what `basic` shows, read-only, besides the system: the program's folder, `readable`, and Python.

    Each under the name that it has here, wherever that leads. Raises `BadRequest` when that would show the home, the
    daemon's own folders or half the machine.
    """
    own = [Path(sys.base_prefix).resolve(), Path(sys.executable).resolve(), Path(inside.__file__)]
    shown: list[Path] = []
    for path in (program.parent, *readable, *own):
        if _beneath(path, [*map(Path, SYSTEM), *shown]):
            continue
        led_to = path.resolve()
        if above := next((kept for kept in _kept(parent) if _beneath(kept, [path, led_to])), None):
            cure = "Put it into a folder of its own."
            raise BadRequest(f"{path} cannot be shown in the sandbox: {above} is in it.", cure=cure)
        shown.append(path)
    return tuple(shown)


def _kept(parent: Path) -> Iterator[Path]:
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

    Folders whose daemon was killed are removed first: a lock on each tells whether somebody lives there.
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
    """Make a temporary folder that goes with a folder of its own, in the machine's place for such.

    A browser makes a socket in its temporary folder, dies when its address has more than 107 bytes, and needs 46 of
    them itself: beneath a state folder there would often be no room.
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
    """Take a folder; None when it is taken, or was removed meanwhile, or is none."""
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
    for folder in parent.glob(f"{PREFIX}*"):
        lock = _lock(folder)
        if lock is not None:
            _remove(folder)
            os.close(lock)


def _remove(folder: Path) -> None:
    """Remove all of it, also what a program made unreadable. What cannot be removed waits for the next sweep."""
    tmp = folder / TMP_LINK
    if tmp.is_symlink():
        _remove(tmp.readlink())
    for path, folders, _ in os.walk(folder):
        for name in folders:
            below = os.path.join(path, name)
            if not os.path.islink(below):
                os.chmod(below, 0o700)
    shutil.rmtree(folder, ignore_errors=True)
