"""Threads in which the bot takes part and needs no mention. Used by `updates`."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import cast

from channels.slack.ids import thread_key
from gateway.errors import StoreError
from gateway.ports import ChannelKeyValue

KEPT_AT_MOST = 1_000
"""Threads per account, at most; in the least recently used ones the bot must be mentioned again."""


class Threads:
    """Threads of one account, by channel and timestamp. Stored under one key of the channel's namespace."""

    def __init__(self, account: str, key_value: ChannelKeyValue) -> None:
        """Take the key-value store; read nothing yet."""
        self._key = f"threads/{account}"
        self._key_value = key_value
        self._known: OrderedDict[str, None] | None = None

    async def takes_part(self, channel: str, thread: str) -> bool:
        """Return True if the bot takes part in this thread. Raises `StoreError`."""
        known = await self._read()
        return thread_key(channel, thread) in known

    async def join(self, channel: str, thread: str) -> None:
        """Store that the bot takes part from now on. Idempotent. Raises `StoreError`."""
        known = await self._read()
        name = thread_key(channel, thread)
        if name in known:
            known.move_to_end(name)
            return
        known[name] = None
        while len(known) > KEPT_AT_MOST:
            known.popitem(last=False)
        try:
            await self._key_value.keep(self._key, json.dumps(list(known)))
        except StoreError:
            known.pop(name, None)
            raise

    async def _read(self) -> OrderedDict[str, None]:
        if self._known is None:
            stored = _names((await self._key_value.read()).get(self._key, ""))
            if self._known is None:  # else another call read it meanwhile and may have added a thread
                self._known = OrderedDict.fromkeys(stored[-KEPT_AT_MOST:])
        return self._known


def _names(stored: str) -> list[str]:
    try:
        found = json.loads(stored or "[]")
    except ValueError:
        return []
    names = cast("list[object]", found) if isinstance(found, list) else []
    return [name for name in names if isinstance(name, str)]
