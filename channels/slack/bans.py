"""Rate-limit bans of Web API methods, persisted across restarts. Used by `request`.

Messages are limited per channel, and delivery keeps those bans. Every other method is limited per workspace: without
this, each process would relearn such a ban by a call that Slack wants fewer of.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from gateway.errors import StoreError
from gateway.ports import ChannelKeyValue, Clock

KEPT_FROM_S = 2.0
"""Shortest ban in seconds that is stored: a shorter one ends before the next process starts."""
LONGEST_S = 999_999
"""Longest ban in seconds: `Retry-After` is read up to six digits."""
METHODS_AT_MOST = 50
"""Bans stored per account, at most."""


@dataclass(frozen=True, slots=True)
class Ban:
    """Ban of one method."""

    told_s: float
    """Duration in seconds, from Slack: no process waits longer, even if the wall clock jumps."""
    until: datetime
    """End by the wall clock, for the next process."""
    ends_s: float
    """End by the monotonic clock, for this process."""


class Bans:
    """Banned methods of one account, for all its tokens. Stored under one key of the channel's namespace."""

    def __init__(self, account: str, key_value: ChannelKeyValue, clock: Clock) -> None:
        """Take the key-value store; read nothing yet."""
        self._key = f"bans/{account}"
        self._key_value = key_value
        self._clock = clock
        self._known: dict[str, Ban] = {}
        self._is_read = False
        self._log = logging.getLogger(__name__)

    async def left_s(self, method: str) -> float:
        """Return the seconds left of a method's ban; 0 without one. Never fails."""
        await self._read()
        ban = self._known.get(method)
        return max(ban.ends_s - self._clock.monotonic(), 0.0) if ban is not None else 0.0

    async def learn(self, method: str, told_s: float) -> None:
        """Record a ban of `told_s` seconds. It takes effect even if it cannot be stored."""
        now_s = self._clock.monotonic()
        until = self._clock.now() + timedelta(seconds=told_s)
        self._known[method] = Ban(told_s=told_s, until=until, ends_s=now_s + told_s)
        if told_s < KEPT_FROM_S:
            return
        await self._read()
        left = [(method, ban) for method, ban in self._known.items() if ban.ends_s > now_s]
        self._known = dict(sorted(left, key=lambda one: one[1].ends_s)[-METHODS_AT_MOST:])
        try:
            await self._key_value.keep(self._key, written(self._known))
        except StoreError as error:
            self._log.warning("a ban is not stored (%s): %s", self._key, error)

    async def _read(self) -> None:
        """Load the bans that an earlier process stored."""
        if self._is_read:
            return
        try:
            stored = await self._key_value.get(self._key) or ""
        except StoreError as error:
            self._log.warning("the stored bans cannot be read now (%s): %s", self._key, error)
            return
        if self._is_read:  # another call read it meanwhile
            return
        self._is_read = True
        found = taken_up(stored, self._clock.now(), self._clock.monotonic())
        if found is None:
            self._log.error("the stored bans cannot be read and are ignored (%s)", self._key)
        self._known = {**(found or {}), **self._known}


def written(bans: Mapping[str, Ban]) -> str:
    """Serialise bans for `taken_up`."""
    kept = {method: ban for method, ban in bans.items() if ban.told_s >= KEPT_FROM_S}
    return json.dumps({method: [ban.until.isoformat(), ban.told_s] for method, ban in kept.items()})


def taken_up(stored: str, now: datetime, now_s: float) -> Mapping[str, Ban] | None:
    """Return the stored bans still in force; None if any of it is not in the form of `written`: then none counts."""
    try:
        told = cast("dict[str, tuple[str, float]]", json.loads(stored or "{}"))
        bans = {method: _ban(until, told_s, now, now_s) for method, (until, told_s) in told.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    if len(bans) > METHODS_AT_MOST:
        return None
    return {method: ban for method, ban in bans.items() if ban.ends_s > now_s}


def _ban(until: str, told_s: float, now: datetime, now_s: float) -> Ban:
    """Return a stored ban. Raises `ValueError` or `TypeError` for an invalid one."""
    ends = datetime.fromisoformat(until)
    if isinstance(told_s, bool) or not 0 < told_s <= LONGEST_S:
        raise ValueError
    return Ban(told_s=told_s, until=ends, ends_s=now_s + min((ends - now).total_seconds(), told_s))
