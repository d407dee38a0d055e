"""Wait at the start of a daemon for a store whose server is away, or is not ready yet. Used by `run`."""

from __future__ import annotations

import asyncio

from gateway.domain.durability import StoreTerms
from gateway.errors import StoreAway
from gateway.store import check_store, is_shared
from gateway.system.logging_setup import log

WAITS_S = 300.0
"""Seconds of waiting: the unit gives up a daemon that ends ten times within this time."""
AGAIN_S = 0.5
"""Interval in seconds between checks."""


async def until_there(url: str, terms: StoreTerms) -> None:
    """Wait until the server of a store answers and takes writes. Raises `StoreAway` after a time, and `StoreError`.

    Each reason is logged once, with its cure.
    """
    clock, told = asyncio.get_running_loop().time, ""
    until = clock() + WAITS_S
    while is_shared(url):
        try:
            await asyncio.to_thread(check_store, url, terms)
        except StoreAway as away:
            if clock() > until:
                raise
            if away.cure != told:
                log("store").warning("the store waits", why=away.message, cure=away.cure)
            told = away.cure
        else:
            return
        await asyncio.sleep(AGAIN_S)
