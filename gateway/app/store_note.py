"""Note in the state folder of the store on Redis that its node worked on last. Used by `app.core`.

A node that runs notices that its store was emptied. One that starts has only this note to know it by.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from gateway.app.state import cure_of
from gateway.domain.durability import NotedStore
from gateway.domain.text import without_password
from gateway.errors import StartError
from gateway.system.flushing import flush

NOTE = "store.json"
_PARTIAL = f"{NOTE}.partial"


def noted_store(state: Path, url: str) -> NotedStore:
    """Return the store that was last at this address, with an empty id when none was noted. Raises `StartError`."""
    path = state / NOTE
    nothing = NotedStore(store="", note=str(path))
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        address, store = _word(found["url"]), _word(found["store"])
        if address != without_password(url):  # another address was configured: another store is meant
            return nothing
        return NotedStore(store=store, note=str(path))
    except FileNotFoundError:
        return nothing
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StartError(
            f"{path} cannot be read: {error}.", cure="Remove it: the node then takes the store for its own."
        ) from error


def _word(value: object) -> str:
    if isinstance(value, str) and value:
        return value
    raise TypeError(f"{value!r} stands where a node writes a word")


def note_store(state: Path, url: str, store: str) -> None:
    """Note the store that is at this address now, when that is news. Raises `StartError`."""
    if noted_store(state, url).store == store:
        return
    made = state / _PARTIAL
    try:
        with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            json.dump({"url": without_password(url), "store": store}, file)
            file.flush()
            os.fsync(file.fileno())
        made.replace(state / NOTE)
        flush(state)
    except OSError as error:
        raise StartError(f"{state / NOTE} cannot be written: {error.strerror}.", cure=cure_of(error)) from error


def forget_store(state: Path) -> None:
    """Remove the note: the next store is meant, whatever was there before."""
    (state / NOTE).unlink(missing_ok=True)
