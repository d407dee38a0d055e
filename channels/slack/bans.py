"""On the way in and out: methods that Slack wants not to be called for a while. Kept over a restart.

Messages are counted by channel, and delivery keeps their bans. Every other method is counted for the workspace: without
this, each life would learn such a ban anew, by a call that Slack wants less of.
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
"""A shorter ban ends before the next life begins, so it costs no write."""
LONGEST_S = 999_999
"""Seconds that Slack can ask for: `Retry-After` is read up to six digits."""
METHODS_AT_MOST = 50


@dataclass(frozen=True, slots=True)
class Ban:
    """Until when a method may not be called."""

    told_s: float
    """For how long, as Slack said it: no life waits longer, whatever became of the wall clock."""
    until: datetime
    """By the wall clock, for the next life."""
    ends_s: float
    """By the clock that never goes back, for this one."""


class Bans:
    """The banned methods of one account, whichever of its tokens they take. One of the channel's notes."""

    def __init__(self, account: str, key_value: ChannelKeyValue, clock: Clock) -> None:
        """Read nothing yet."""
        self._key = f"bans/{account}"
        self._key_value = key_value
        self._clock = clock
        self._known: dict[str, Ban] = {}
        self._is_read = False
        self._log = logging.getLogger(__name__)

    async def left_s(self, method: str) -> float:
        """Seconds for which a method may not be called yet; 0 when it may. Never fails."""
        await self._read()
        ban = self._known.get(method)
        return max(ban.ends_s - self._clock.monotonic(), 0.0) if ban is not None else 0.0

    async def learn(self, method: str, told_s: float) -> None:
        """Slack wants a method not to be called for so many seconds. It holds even where it cannot be kept."""
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
            self._log.warning("a ban is not kept (%s): %s", self._key, error)

    async def _read(self) -> None:
        """Take up what an earlier life kept."""
        if self._is_read:
            return
        try:
            stored = (await self._key_value.read()).get(self._key, "")
        except StoreError as error:
            self._log.warning("the stored bans cannot be read now (%s): %s", self._key, error)
            return
        if self._is_read:  # somebody else did meanwhile
            return
        self._is_read = True
        found = taken_up(stored, self._clock.now(), self._clock.monotonic())
        if found is None:
            self._log.error("the stored bans cannot be read and are ignored (%s)", self._key)
        self._known = {**(found or {}), **self._known}


def written(bans: Mapping[str, Ban]) -> str:
    """Write bans down for `taken_up`."""
    kept = {method: ban for method, ban in bans.items() if ban.told_s >= KEPT_FROM_S}
    return json.dumps({method: [ban.until.isoformat(), ban.told_s] for method, ban in kept.items()})


def taken_up(stored: str, now: datetime, now_s: float) -> Mapping[str, Ban] | None:
    """Read bans that still hold; None when any of it is not what `written` writes: then none of it is believed."""
    try:
        told = cast("dict[str, tuple[str, float]]", json.loads(stored or "{}"))
        bans = {method: _ban(until, told_s, now, now_s) for method, (until, told_s) in told.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    if len(bans) > METHODS_AT_MOST:
        return None
    return {method: ban for method, ban in bans.items() if ban.ends_s > now_s}


def _ban(until: str, told_s: float, now: datetime, now_s: float) -> Ban:
    """Raises `ValueError` or `TypeError` for what cannot be a ban."""
    ends = datetime.fromisoformat(until)
    if isinstance(told_s, bool) or not 0 < told_s <= LONGEST_S:
        raise ValueError
    return Ban(told_s=told_s, until=ends, ends_s=now_s + min((ends - now).total_seconds(), told_s))
