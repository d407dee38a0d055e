"""Note in the state folder of the store on Redis that its node worked on last. Used by `app.core`.

A node that runs notices that its store was emptied. One that starts has only this note to know it by.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path

from gateway.app.state import cure_of
from gateway.domain.durability import NotedStore, Reached
from gateway.domain.text import without_password
from gateway.errors import StartError
from gateway.ports import Store
from gateway.system.flushing import flush
from gateway.system.logging_setup import log

NOTE = "store.json"
NOWHERE = Reached()
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
        reached = Reached(life=_number(found.get("life", 0)), revision=_number(found.get("revision", 0)))
        return NotedStore(store=store, note=str(path), reached=reached)
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


def _number(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} stands where a node writes a number")


def note_store(state: Path, url: str, store: str, reached: Reached = NOWHERE) -> None:
    """Note the store that is at this address now, and how far it is, when that is news. Raises `StartError`."""
    noted = noted_store(state, url)
    if (noted.store, noted.reached) == (store, reached):
        return
    made = state / _PARTIAL
    try:
        with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            json.dump(
                {
                    "url": without_password(url),
                    "store": store,
                    "life": reached.life,
                    "revision": reached.revision,
                },
                file,
            )
            file.flush()
            os.fsync(file.fileno())
        made.replace(state / NOTE)
        flush(state)
    except OSError as error:
        raise StartError(f"{state / NOTE} cannot be written: {error.strerror}.", cure=cure_of(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreNote:
    """The note of a daemon that runs."""

    state: Path
    url: str
    store: Store

    async def keep(self) -> None:
        """Note the store's progress. A failure is logged: without a note a loss may be reported later, or by others."""
        try:
            await asyncio.to_thread(note_store, self.state, self.url, self.store.identity, self.store.reached)
        except StartError as error:
            log("store").warning("it is not noted how far the store is", error=str(error))


def forget_store(state: Path) -> None:
    """Remove the note, so that the next store is accepted."""
    (state / NOTE).unlink(missing_ok=True)
