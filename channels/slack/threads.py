"""Threads in which the bot takes part and needs no mention. Used by `updates`."""

from __future__ import annotations

from collections import OrderedDict
from datetime import timedelta

from channels.slack.ids import thread_key
from gateway.ports import ChannelKeyValue, Clock

GOOD_FOR = timedelta(days=30)
"""Time without a message in a thread after which the bot must be mentioned again."""
RENEWED_S = 86_400.0
"""Seconds between two writes for a thread in use."""
REMEMBERED_AT_MOST = 1_000
"""Threads of an account known without asking the store."""


class Threads:
    """Threads of one account, by channel and timestamp. Each has a key of its own in the channel's namespace.

    Several nodes may join threads at once: none overwrites what another one joined, and each asks for what it does not
    know.
    """

    def __init__(self, account: str, key_value: ChannelKeyValue, clock: Clock) -> None:
        """Take the key-value store; read nothing yet."""
        self._room = f"threads/{account}/"
        self._key_value = key_value
        self._clock = clock
        self._joined: OrderedDict[str, float] = OrderedDict()
        """Monotonic time at which each was stored, or found."""

    async def takes_part(self, channel: str, thread: str) -> bool:
        """Return True if the bot takes part in this thread. Raises `StoreError`."""
        name = thread_key(channel, thread)
        if name in self._joined:
            return True
        if await self._key_value.get(self._room + name) is None:
            return False
        self._remember(name, self._clock.monotonic() - RENEWED_S)
        return True

    async def join(self, channel: str, thread: str) -> None:
        """Store that the bot takes part from now on. Idempotent. Raises `StoreError`."""
        name, now = thread_key(channel, thread), self._clock.monotonic()
        if now - self._joined.get(name, now - RENEWED_S) >= RENEWED_S:
            await self._key_value.keep(self._room + name, "", GOOD_FOR)
            self._remember(name, now)

    def _remember(self, name: str, at: float) -> None:
        self._joined[name] = at
        self._joined.move_to_end(name)
        while len(self._joined) > REMEMBERED_AT_MOST:
            self._joined.popitem(last=False)
