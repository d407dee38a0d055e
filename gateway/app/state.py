"""State folder: made private at start, with the secret key that signs button tokens. Used by `app.core`."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import tempfile
from pathlib import Path

from gateway.errors import StartError
from gateway.system.flushing import flush
from gateway.system.logging_setup import log

KEY = "state.key"
KEY_BYTES = 32
OURS = frozenset({KEY, "dragoman.db"})
"""Files at least one of which is in every state folder that was used before or restored from a backup."""
LOST_AND_FOUND = "lost+found"
"""Folder in the root of every ext4 disk."""
NAME_ANOTHER = "Correct that, or name another one with --state."


def open_state(state: Path) -> None:
    """Make the state folder with access for this user only. Raises `StartError` with the cure when it is unusable."""
    if what := instead_of_it(state):
        raise StartError(f"The state folder {state} is {what}.", cure=NAME_ANOTHER)
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = state.stat()
        if found.st_uid != os.geteuid():  # root could use it, and would trust files of another user
            raise StartError(
                f"The state folder {state} belongs to another user.",
                cure=f"Run: chown -R {os.geteuid()} {state}, or name another one with --state.",
            )
        if stat.S_IMODE(found.st_mode) & 0o077:
            if not may_be_closed(state):
                raise StartError(
                    f"The folder {state} is open to other users, and something else is kept in it.",
                    cure="Name a folder of its own with --state.",
                )
            state.chmod(0o700)
        tempfile.TemporaryFile(dir=state).close()
    except OSError as error:
        raise StartError(f"The state folder {state} cannot be used: {error.strerror}.", cure=cure_of(error)) from error


def instead_of_it(state: Path) -> str:
    """Describe what blocks the path of the state folder; empty when it is a folder or does not exist."""
    if os.path.isdir(state) or not os.path.lexists(state):
        return ""
    return "not a folder" if os.path.exists(state) else "a link that leads nowhere"


def may_be_closed(state: Path) -> bool:
    """Return whether a folder that others can enter is empty or ours, so that closing it is safe.

    Never true for a shared folder such as `/tmp`. Raises `OSError` when the folder cannot be read.
    """
    if state.stat().st_mode & stat.S_ISVTX:
        return False
    names = {entry.name for entry in os.scandir(state)} - {LOST_AND_FOUND}
    return not names or bool(names & OURS)


def cure_of(error: OSError) -> str:
    """Return the cure for a state folder that cannot be written."""
    if is_full(error):
        return "Free space on its disk, or name another one with --state."
    return "Make it writable for this user, or name another one with --state."


def is_full(error: OSError) -> bool:
    """Return whether the disk is full, or this user's quota."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def state_key(state: Path, *, known: bool = False) -> bytes:
    """Return the secret key of this state folder, made once; button tokens are signed with it.

    `known`: a store exists already. Without its original key its open cards cannot be pressed.
    """
    key = read_key(state)
    if key is None:
        key = _new_key(state / KEY)
        if known:
            log("state").warning("made a new key for an existing store: its open cards cannot be pressed")
    return key


def read_key(state: Path) -> bytes | None:
    """Return the secret key, None when there is none yet. Raises `StartError` for an unusable one."""
    path = state / KEY
    # Checked first: opening a named pipe would block until something writes to it.
    if os.path.exists(path) and not os.path.isfile(path):
        raise StartError(f"{path} is not a file.", cure="Move it away, and put the key of a backup there.")
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StartError(
            f"{path} cannot be read: {error.strerror}.",
            cure=f"Give it to this user: chown -R {os.geteuid()} {state}",
        ) from error
    if len(key) != KEY_BYTES:
        raise StartError(f"{path} is damaged.", cure="Remove it; buttons on open cards stop working.")
    return key


def put_key(state: Path, key: bytes) -> None:
    """Store the key of a backup in a state folder that has none. Raises `StartError`."""
    _write_key(state / KEY, key)


def _new_key(path: Path) -> bytes:
    key = secrets.token_bytes(KEY_BYTES)
    _write_key(path, key)
    return key


def _write_key(path: Path, key: bytes) -> None:
    fresh = path.with_suffix(".new")
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        flush(path.parent)
    except OSError as error:
        raise StartError(
            f"{path} cannot be made: {error.strerror}.",
            cure="Free space on the disk of the state folder, or name another folder with --state.",
        ) from error
