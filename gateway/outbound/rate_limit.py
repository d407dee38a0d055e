"""Before anything leaves: whether a message may go out now, and whose turn it is when not all may.

`TokenBuckets` is the arithmetic, `RateLimiter` adds the clock and the waiting. The last part stores bans.
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
"""Who would wait longer is told so: a place to send from is worth more than one in a queue."""
SHORTEST_BAN = timedelta(seconds=1)
UNTOLD_BAN = timedelta(seconds=5)
"""When a platform says "wait" and not until when."""
ACCOUNT_MEANT = 3
"""So many chats of one account refused within `NEAR_S` mean that the account is refused."""
NEAR_S = 10.0
BANS = "bans"
"""The room of the notes: scope and time."""
REMEMBERED = 1_000
"""Scopes kept before those that stand still are forgotten."""


class SendPriority(IntEnum):
    """What goes first among those that wait. Edits that stream and typing never wait: see `RateLimiter.at_once`."""

    TEXT = 0
    CARD = 1
    REFUSAL = 2

    @staticmethod
    def of(kind: SlotKind) -> SendPriority:
        """The rank of a slot."""
        return {SlotKind.CARD: SendPriority.CARD, SlotKind.REFUSAL: SendPriority.REFUSAL}.get(kind, SendPriority.TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendPath:
    """What a message to one conversation passes: the scopes whose bans hold for it, and its rate_limits."""

    account: str
    chat: str
    scopes: tuple[str, ...]
    rate_limits: tuple[RateLimit, ...]

    @staticmethod
    def to(conversation: Conversation, rate_limits: Sequence[RateLimit]) -> SendPath:
        """The way to a conversation: a ban holds there whether or not its scope has a pace."""
        account, chat = conversation.account_scope, conversation.chat_scope
        scopes = dict.fromkeys([account, chat, conversation.key, *(pace.scope for pace in rate_limits)])
        return SendPath(account=account, chat=chat, scopes=tuple(scopes), rate_limits=tuple(rate_limits))

    def every_s(self) -> float:
        """Seconds between two messages of the chat, by its own pace; 0 without one."""
        return next((pace.every_s for pace in self.rate_limits if pace.scope == self.chat), 0.0)


def seconds_until_room(pace: RateLimit, full_at: float, now: float, *, ahead: int = 0) -> float:
    """Seconds until a message may go out under one pace, 0 for now.

    A bucket of `burst` messages fills by one each `every_s`; `full_at` is when it will be full if nothing is taken.
    `ahead`: messages that go before this one. Times in seconds of one clock.
    """
    spare_s = (max(pace.burst, 1) - 1) * pace.every_s
    return max(0.0, max(full_at, now) + ahead * pace.every_s - spare_s - now)


def full_again(pace: RateLimit, full_at: float, now: float) -> float:
    """When the bucket will be full again after a message was taken from it."""
    return max(full_at, now) + pace.every_s


@dataclass(slots=True)
class TokenBuckets:
    """What was taken and what is banned, by scope. Times in seconds of one clock; reads none itself."""

    _full_at: dict[str, float] = field(default_factory=dict[str, float])
    _banned_until: dict[str, float] = field(default_factory=dict[str, float])

    def banned(self, way: SendPath, now: float) -> float:
        """Seconds until nothing on this way is banned."""
        return max(0.0, max(self._banned_until.get(scope, now) for scope in way.scopes) - now)

    def room(self, way: SendPath, now: float, ahead: Mapping[str, int] | None = None) -> float:
        """Seconds until a message may go this way, 0 for now; `ahead`: how many go before it, by scope."""
        before = ahead or {}
        paced = (
            seconds_until_room(pace, self._full_at.get(pace.scope, now), now, ahead=before.get(pace.scope, 0))
            for pace in way.rate_limits
        )
        return max(self.banned(way, now), *paced, 0.0)

    def take(self, way: SendPath, now: float) -> None:
        """A message goes this way."""
        for pace in way.rate_limits:
            self._full_at[pace.scope] = full_again(pace, self._full_at.get(pace.scope, now), now)
        if len(self._full_at) > REMEMBERED:
            self._full_at = {scope: at for scope, at in self._full_at.items() if at > now}

    def ban(self, scope: str, until: float, now: float) -> float:
        """Ban a scope, or lengthen its ban; return until when it holds."""
        if len(self._banned_until) > REMEMBERED:
            self._banned_until = {name: at for name, at in self._banned_until.items() if at > now}
        until = max(until, self._banned_until.get(scope, until))
        self._banned_until[scope] = until
        return until


@dataclass(slots=True, kw_only=True)
class _Waiter:
    way: SendPath
    rank: SendPriority
    since: float
    patience_s: float
    told: asyncio.Future[float]
    """0: it may go. Otherwise the seconds that it would still have to wait."""


@dataclass(slots=True)
class RateLimiter:
    """The one limiter of all that leaves. The best rank goes first, then who came first; who is held up in one scope
    does not hold up those that do not pass it.
    """

    _clock: Clock
    _ledger: TokenBuckets = field(default_factory=TokenBuckets)
    _waiting: list[_Waiter] = field(default_factory=list[_Waiter])
    """In the order in which they go."""
    _timer: asyncio.TimerHandle | None = None
    _refused: dict[str, dict[str, tuple[float, datetime]]] = field(
        default_factory=dict[str, dict[str, tuple[float, datetime]]]
    )
    """By account and chat: when it was refused, and until when."""
    _closed: bool = False

    async def turn(self, way: SendPath, rank: SendPriority, *, patience_s: float = PATIENCE_S) -> float:
        """Wait for a turn to send one message this way. Return 0 when it has come: the message is counted.

        Otherwise the seconds until there will be room, about: those who go before make it longer than `patience_s`, or
        a ban longer than `PATIENCE_S`. That is said at once where it is known at once, and never later than twice the
        patience.
        """
        now = self._clock.monotonic()
        if not self._waiting and self._ledger.room(way, now) <= 0:
            self._ledger.take(way, now)
            return 0.0
        told = asyncio.get_running_loop().create_future()
        waiter = _Waiter(way=way, rank=rank, since=now, patience_s=patience_s, told=told)
        bisect.insort(self._waiting, waiter, key=lambda one: one.rank)
        self._let_through()
        return await told

    def at_once(self, way: SendPath) -> bool:
        """Take a turn for what need not arrive, if there is room now; it leaves room for one message that must."""
        self._let_through()
        now = self._clock.monotonic()
        spare = {pace.scope: 1 for pace in way.rate_limits if pace.burst > 1}
        if self._closed or self._ledger.room(way, now, spare) > 0:
            return False
        self._ledger.take(way, now)
        return True

    def ban(self, scope: str, until: datetime) -> datetime:
        """Let nothing pass a scope until then; return until when it is banned, for an earlier ban may last longer."""
        now, left_s = self._clock.monotonic(), (until - self._clock.now()).total_seconds()
        longer_s = self._ledger.ban(scope, now + left_s, now) - (now + left_s)
        self._let_through()
        return until + timedelta(seconds=longer_s)

    def obey(self, way: SendPath, refused: SendFailed) -> dict[str, datetime]:
        """Ban what a `WAIT` names, the chat when it names nothing on this way; return the bans, by scope, to be stored.

        A platform may mean the account without saying so: the third chat within 10 s bans that too, until the first of
        those chats opens; not when one did by then. When it is not open then, refusals say so again: one chat's long
        ban must not silence all.
        """
        now = self._clock.now()
        until = max(refused.until or now + UNTOLD_BAN, now + SHORTEST_BAN)
        scope = refused.scope if refused.scope in way.scopes else way.chat
        bans = {scope: until}
        if scope != way.account:
            chats = self._refused_chats(way, until)
            opens = min(until for _, until in chats.values())
            if len(chats) >= ACCOUNT_MEANT and opens > now:
                bans[way.account] = opens
        return {scope: self.ban(scope, until) for scope, until in bans.items()}

    def close(self) -> None:
        """From now on nobody waits: who would is told how long, so that nothing is cut off while it waits."""
        self._closed = True
        self._let_through()

    def _refused_chats(self, way: SendPath, until: datetime) -> dict[str, tuple[float, datetime]]:
        """The chats of this account refused within the last 10 s, this one among them."""
        now = self._clock.monotonic()
        known = self._refused.get(way.account, {})
        near = {chat: seen for chat, seen in known.items() if now - seen[0] <= NEAR_S}
        near[way.chat] = (now, until)
        self._refused[way.account] = near
        return near

    def _let_through(self) -> None:
        """Let go who may, tell those for whom it takes too long, and look again when the next may have room."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now, ahead, soonest = self._clock.monotonic(), Counter[str](), math.inf
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if waiter.told.done():
                continue  # cancelled
            room_s = self._ledger.room(waiter.way, now)
            expected_s = self._ledger.room(waiter.way, now, ahead)
            if room_s <= 0:
                self._ledger.take(waiter.way, now)
                waiter.told.set_result(0.0)
            elif self._too_long(waiter, expected_s, now):
                waiter.told.set_result(expected_s)
            else:
                self._waiting.append(waiter)
                ahead.update(pace.scope for pace in waiter.way.rate_limits)
                soonest = min(soonest, room_s)
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(soonest, self._let_through)

    def _too_long(self, waiter: _Waiter, expected_s: float, now: float) -> bool:
        waited_s = now - waiter.since
        # Who was let in waits on when others went before it, up to a limit: leaving just before its turn helps nobody.
        bearable_s = waiter.patience_s if waited_s <= 0 else 2 * waiter.patience_s - waited_s
        return self._closed or expected_s > bearable_s or self._ledger.banned(waiter.way, now) > PATIENCE_S


async def write_bans(key_value: KeyValue, bans: Mapping[str, datetime], now: datetime) -> None:
    """Store bans, so that a restart does not send into them. Raises `StoreError`; twice is safe."""
    for scope, until in bans.items():
        left = until - now
        await key_value.note(BANS, scope, f"{until.isoformat()} {left.total_seconds()}", ttl=left)


async def read_bans(key_value: KeyValue, limiter: RateLimiter, now: datetime) -> None:
    """Take up the bans that an earlier life stored. Raises `StoreError`."""
    for scope, value in (await key_value.notes(BANS)).items():
        until = _until(value, now)
        if until is None:
            _log().error("a stored ban cannot be read", scope=scope, value=value)
        else:
            limiter.ban(scope, until)


def _until(value: str, now: datetime) -> datetime | None:
    """Until when a stored ban holds: no longer from now on than it was told, or a clock that was set back since would
    silence a chat for as long. An earlier version did not store that.
    """
    time, _, told_s = value.partition(" ")
    try:
        found = datetime.fromisoformat(time)
        latest = now + timedelta(seconds=float(told_s)) if told_s else found
    except (ValueError, OverflowError):
        return None
    return min(found, latest) if found.tzinfo else None


def _log() -> Any:
    return log("pace")
