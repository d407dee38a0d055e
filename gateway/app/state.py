"""The state folder at start: private to this user, and the secret that button handles depend on."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from pathlib import Path

from gateway.errors import StartError

KEY = "state.key"
KEY_BYTES = 32
OURS = frozenset({KEY, "dragoman.db"})
"""One of them is in each folder that was used before, or that a backup was put into."""
LOST_AND_FOUND = "lost+found"
"""In the root of every ext4 disk."""


def open_state(state: Path) -> None:
    """Make the state folder for this user alone. Raises `StartError` with the cure when it cannot be used."""
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = state.stat()
        if found.st_uid != os.geteuid():  # root could use it, and would trust what another user put there
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
        raise StartError(
            f"The state folder {state} cannot be used: {error.strerror}.",
            cure="Make it writable for this user, or name another one with --state.",
        ) from error


def may_be_closed(state: Path) -> bool:
    """Whether a folder that others can enter is ours alone, or empty: never one that people share, as `/tmp`.

    Raises `OSError` when it cannot be read.
    """
    if state.stat().st_mode & stat.S_ISVTX:
        return False
    names = {entry.name for entry in os.scandir(state)} - {LOST_AND_FOUND}
    return not names or bool(names & OURS)


def state_key(state: Path) -> bytes:
    """Return the secret of this state folder, made once; button handles depend on it."""
    path = state / KEY
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        key = _new_key(path)
    except OSError as error:
        raise StartError(
            f"{path} cannot be read: {error.strerror}.",
            cure=f"Give it to this user: chown -R {os.geteuid()} {state}",
        ) from error
    if len(key) != KEY_BYTES:
        raise StartError(f"{path} is damaged.", cure="Remove it; buttons that are shown now stop working.")
    return key


def _new_key(path: Path) -> bytes:
    key = secrets.token_bytes(KEY_BYTES)
    fresh = path.with_suffix(".new")
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise StartError(
            f"{path} cannot be made: {error.strerror}.",
            cure="Free space on the disk of the state folder, or name another folder with --state.",
        ) from error
    return key
