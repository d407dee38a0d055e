"""Rate limiter for outgoing messages, with platform bans. Used by delivery and live edits.

`TokenBuckets` is the arithmetic; `RateLimiter` adds the clock and the queue of senders. The last part stores bans.
"""

from __future__ import annotations

import asyncio
import bisect
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any

from gateway.domain.messages import Conversation
from gateway.domain.slots import RateLimit, SlotKind
from gateway.errors import SendFailed
from gateway.ports import Clock, KeyValue
from gateway.system.logging_setup import log

PATIENCE_S = 2.0
"""Longest default wait in seconds. A longer one is refused at once: a send worker is worth more than a queue place."""
SHORTEST_BAN = timedelta(seconds=1)
"""Shortest ban, even if the platform names a shorter one."""
DEFAULT_BAN = timedelta(seconds=5)
"""Ban when a platform refuses a message without a retry time."""
CHATS_FOR_ACCOUNT_BAN = 3
"""Chats of one account refused within `NEAR_S` that mean a ban of the whole account."""
NEAR_S = 10.0
"""Seconds within which such refusals count together."""
BANS = "bans"
"""Namespace of stored bans in the key-value store: scope and time."""
REMEMBERED = 1_000
"""Scopes held in memory before full buckets and ended bans are dropped."""


class SendPriority(IntEnum):
    """Priority among waiting senders. Live edits and typing never wait: see `RateLimiter.try_acquire`."""

    TEXT = 0
    CARD = 1
    REFUSAL = 2

    @staticmethod
    def of(kind: SlotKind) -> SendPriority:
        """Return the priority of a slot."""
        return {SlotKind.CARD: SendPriority.CARD, SlotKind.REFUSAL: SendPriority.REFUSAL}.get(kind, SendPriority.TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendPath:
    """Scopes and rate limits that apply to a message to one conversation. Bans of any of the scopes hold for it."""

    account: str
    chat: str
    scopes: tuple[str, ...]
    rate_limits: tuple[RateLimit, ...]

    @staticmethod
    def to(conversation: Conversation, rate_limits: Sequence[RateLimit]) -> SendPath:
        """Return the path to a conversation. Bans apply whether or not their scope has a rate limit."""
        account, chat = conversation.account_scope, conversation.chat_scope
        scopes = dict.fromkeys([account, chat, conversation.key, *(limit.scope for limit in rate_limits)])
        return SendPath(account=account, chat=chat, scopes=tuple(scopes), rate_limits=tuple(rate_limits))

    def every_s(self, *, created: bool = False) -> float:
        """Return the seconds between two messages by the chat's own limit; 0 without one.

        `created`: the seconds from a message to its first edit.
        """
        own = (limit for limit in self.rate_limits if limit.scope == self.chat)
        return next((limit.every_s for limit in own if limit.spaces_edits or not created), 0.0)


def seconds_until_room(limit: RateLimit, full_at: float, now: float, *, ahead: int = 0) -> float:
    """Return the seconds until one limit allows a message, 0 for now.

    A bucket of `burst` tokens gains one every `every_s`; `full_at` is when it is full if none is taken.
    `ahead`: messages queued before this one. Times in seconds of one clock.
    """
    spare_s = (max(limit.burst, 1) - 1) * limit.every_s
    return max(0.0, max(full_at, now) + ahead * limit.every_s - spare_s - now)


def full_again(limit: RateLimit, full_at: float, now: float) -> float:
    """Return when the bucket will be full again after one token is taken."""
    return max(full_at, now) + limit.every_s


@dataclass(slots=True)
class TokenBuckets:
    """Token buckets and bans, by scope. Times in seconds of one clock, which the caller reads."""

    _full_at: dict[str, float] = field(default_factory=dict[str, float])
    _banned_until: dict[str, float] = field(default_factory=dict[str, float])

    def banned(self, path: SendPath, now: float) -> float:
        """Return the seconds until no scope of the path is banned."""
        return max(0.0, max(self._banned_until.get(scope, now) for scope in path.scopes) - now)

    def room(self, path: SendPath, now: float, ahead: Mapping[str, int] | None = None) -> float:
        """Return the seconds until a message may be sent, 0 for now; `ahead`: messages before it, by scope."""
        queued = ahead or {}
        waits = (
            seconds_until_room(limit, self._full_at.get(limit.scope, now), now, ahead=queued.get(limit.scope, 0))
            for limit in path.rate_limits
        )
        return max(self.banned(path, now), *waits, 0.0)

    def take(self, path: SendPath, now: float) -> None:
        """Take a token from each bucket of the path."""
        for limit in path.rate_limits:
            self._full_at[limit.scope] = full_again(limit, self._full_at.get(limit.scope, now), now)
        if len(self._full_at) > REMEMBERED:
            self._full_at = {scope: at for scope, at in self._full_at.items() if at > now}

    def ban(self, scope: str, until: float, now: float) -> float:
        """Ban a scope or lengthen its ban; return its end."""
        if len(self._banned_until) > REMEMBERED:
            self._banned_until = {name: at for name, at in self._banned_until.items() if at > now}
        until = max(until, self._banned_until.get(scope, until))
        self._banned_until[scope] = until
        return until


@dataclass(slots=True, kw_only=True)
class _Waiter:
    path: SendPath
    priority: SendPriority
    since: float
    patience_s: float
    result: asyncio.Future[float]
    """0: send now. Otherwise the seconds that it would still have to wait."""


@dataclass(slots=True)
class RateLimiter:
    """Rate limiter of all outgoing messages. Order: priority, then arrival.

    A sender held up in one scope does not hold up those outside of it.
    """

    _clock: Clock
    _buckets: TokenBuckets = field(default_factory=TokenBuckets)
    _waiting: list[_Waiter] = field(default_factory=list[_Waiter])
    """Sorted by priority, then arrival."""
    _timer: asyncio.TimerHandle | None = None
    _refused: dict[str, dict[str, tuple[float, datetime]]] = field(
        default_factory=dict[str, dict[str, tuple[float, datetime]]]
    )
    """Time and end of the last refusal, by account and chat."""
    _closed: bool = False

    async def acquire(self, path: SendPath, priority: SendPriority, *, patience_s: float = PATIENCE_S) -> float:
        """Wait for permission to send one message. Return 0 when granted: its tokens are taken.

        Otherwise return about how many seconds remain: the queue needs longer than `patience_s`, or a ban longer than
        `PATIENCE_S`. Returns at once where that is known at once, and never later than twice the patience.
        """
        now = self._clock.monotonic()
        if not self._waiting and self._buckets.room(path, now) <= 0:
            self._buckets.take(path, now)
            return 0.0
        result = asyncio.get_running_loop().create_future()
        waiter = _Waiter(path=path, priority=priority, since=now, patience_s=patience_s, result=result)
        bisect.insort(self._waiting, waiter, key=lambda one: one.priority)
        self._admit()
        return await result

    def try_acquire(self, path: SendPath) -> bool:
        """Take tokens for an optional message if there is room now, leaving room for one that must arrive."""
        self._admit()
        now = self._clock.monotonic()
        spare = {limit.scope: 1 for limit in path.rate_limits if limit.burst > 1}
        if self._closed or self._buckets.room(path, now, spare) > 0:
            return False
        self._buckets.take(path, now)
        return True

    def ban(self, scope: str, until: datetime) -> datetime:
        """Ban a scope until then; return the end of the ban, since an earlier one may last longer."""
        now, left_s = self._clock.monotonic(), (until - self._clock.now()).total_seconds()
        longer_s = self._buckets.ban(scope, now + left_s, now) - (now + left_s)
        self._admit()
        return until + timedelta(seconds=longer_s)

    def apply_retry_after(self, path: SendPath, refused: SendFailed) -> dict[str, datetime]:
        """Ban the scope of a `WAIT`, or the chat when it names none on this path; return the bans to store, by scope.

        A platform may mean the account without naming it. So the third chat refused within 10 s bans the account too,
        until the first of those chats opens; not if one has opened by then. If the account is still refused after that,
        the next refusals ban it again: one chat's long ban must not silence all.
        """
        now = self._clock.now()
        until = max(refused.until or now + DEFAULT_BAN, now + SHORTEST_BAN)
        scope = refused.scope if refused.scope in path.scopes else path.chat
        bans = {scope: until}
        if scope != path.account:
            chats = self._refused_chats(path, until)
            opens = min(until for _, until in chats.values())
            if len(chats) >= CHATS_FOR_ACCOUNT_BAN and opens > now:
                bans[path.account] = opens
        return {scope: self.ban(scope, until) for scope, until in bans.items()}

    def close(self) -> None:
        """End all waiting, now and later: `acquire` returns the remaining seconds, so no cancellation hits a waiter."""
        self._closed = True
        self._admit()

    def _refused_chats(self, path: SendPath, until: datetime) -> dict[str, tuple[float, datetime]]:
        """Return the chats of this account refused within the last 10 s, including this one."""
        now = self._clock.monotonic()
        known = self._refused.get(path.account, {})
        near = {chat: seen for chat, seen in known.items() if now - seen[0] <= NEAR_S}
        near[path.chat] = (now, until)
        self._refused[path.account] = near
        return near

    def _admit(self) -> None:
        """Admit waiters that have room, refuse those that would wait too long, and schedule the next check."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now, ahead, soonest = self._clock.monotonic(), Counter[str](), math.inf
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if waiter.result.done():
                continue  # cancelled
            room_s = self._buckets.room(waiter.path, now)
            expected_s = self._buckets.room(waiter.path, now, ahead)
            if room_s <= 0:
                self._buckets.take(waiter.path, now)
                waiter.result.set_result(0.0)
            elif self._too_long(waiter, expected_s, now):
                waiter.result.set_result(expected_s)
            else:
                self._waiting.append(waiter)
                ahead.update(limit.scope for limit in waiter.path.rate_limits)
                soonest = min(soonest, room_s)
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(soonest, self._admit)

    def _too_long(self, waiter: _Waiter, expected_s: float, now: float) -> bool:
        waited_s = now - waiter.since
        # A queued waiter overtaken by others may wait longer, up to a limit: leaving just before its turn helps nobody.
        allowed_s = waiter.patience_s if waited_s <= 0 else 2 * waiter.patience_s - waited_s
        return self._closed or expected_s > allowed_s or self._buckets.banned(waiter.path, now) > PATIENCE_S


async def write_bans(key_value: KeyValue, bans: Mapping[str, datetime], now: datetime) -> None:
    """Store bans, so that a restart does not send into them. Idempotent. Raises `StoreError`."""
    for scope, until in bans.items():
        left = until - now
        await key_value.put(BANS, scope, f"{until.isoformat()} {left.total_seconds()}", ttl=left)


async def read_bans(key_value: KeyValue, limiter: RateLimiter, now: datetime) -> None:
    """Load the bans that an earlier process stored. Raises `StoreError`."""
    for scope, value in (await key_value.items(BANS)).items():
        until = _end_of(value, now)
        if until is None:
            _log().error("a stored ban cannot be read", scope=scope, value=value)
        else:
            limiter.ban(scope, until)


def _end_of(value: str, now: datetime) -> datetime | None:
    """Return the end of a stored ban, or None if unreadable; at most the original duration from now.

    Otherwise a clock that was set back would silence a chat for as long. An earlier version did not store the duration.
    """
    time, _, duration_s = value.partition(" ")
    try:
        found = datetime.fromisoformat(time)
        latest = now + timedelta(seconds=float(duration_s)) if duration_s else found
    except (ValueError, OverflowError):
        return None
    return min(found, latest) if found.tzinfo else None


def _log() -> Any:
    return log("rate_limit")
