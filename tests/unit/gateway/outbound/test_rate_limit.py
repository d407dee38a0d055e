from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.slots import RateLimit, SlotKind
from gateway.errors import SendFailed, SendOutcome
from gateway.outbound.rate_limit import (
    BANS,
    RateLimiter,
    SendPath,
    SendPriority,
    TokenBuckets,
    full_again,
    read_bans,
    seconds_until_room,
    write_bans,
)
from gateway.store.memory import MemoryStore
from gateway.system.clock import SystemClock
from tests.support.clock import FakeClock
from tests.support.fakes import in_background
from tests.support.makers import chat

SLOW = RateLimit(scope="a", every_s=3, burst=3)
SINGLE = RateLimit(scope="a", every_s=1, burst=1)
ACCOUNT = "telegram/default"


def path(number: int, *rate_limits: RateLimit) -> SendPath:
    """Return the path to one of many chats."""
    return SendPath.to(chat(number), rate_limits)


def per_chat(number: int, every_s: float, burst: int = 1) -> RateLimit:
    """Return a limit of one chat."""
    return RateLimit(scope=f"{ACCOUNT}/{number}", every_s=every_s, burst=burst)


def overall(every_s: float, burst: int = 1) -> RateLimit:
    """Return a limit of the whole account."""
    return RateLimit(scope=ACCOUNT, every_s=every_s, burst=burst)


def told(clock: FakeClock, seconds: float, scope: str = "") -> SendFailed:
    """Return the failure of a 429 response."""
    then = clock.now() + timedelta(seconds=seconds)
    return SendFailed("429", outcome=SendOutcome.WAIT, until=then, scope=scope)


# --- arithmetic -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "full_at", "now", "ahead", "expected"),
    [
        # a full bucket lets its burst through at once
        (SLOW, 0, 100, 0, 0),
        (SLOW, 100, 100, 0, 0),
        (SLOW, 103, 100, 0, 0),
        (SLOW, 106, 100, 0, 0),
        # then one comes every three seconds
        (SLOW, 106.5, 100, 0, 0.5),
        (SLOW, 109, 100, 0, 3),
        # those that go before take their part
        (SLOW, 0, 100, 2, 0),
        (SLOW, 0, 100, 3, 3),
        (SLOW, 109, 100, 2, 9),
        # no burst
        (SINGLE, 100, 100, 0, 0),
        (SINGLE, 101, 100, 0, 1),
        (SINGLE, 100.25, 100, 1, 1.25),
        # a burst of none cannot be meant
        (RateLimit(scope="a", every_s=1, burst=0), 100, 100, 0, 0),
        # no limit
        (RateLimit(scope="a", every_s=0, burst=1), 100, 100, 50, 0),
    ],
)
def test_seconds_until_room(limit: RateLimit, full_at: float, now: float, ahead: int, expected: float) -> None:
    assert seconds_until_room(limit, full_at, now, ahead=ahead) == pytest.approx(expected)


@given(
    every_s=st.floats(min_value=0.01, max_value=60),
    burst=st.integers(min_value=1, max_value=20),
    pauses=st.lists(st.floats(min_value=0, max_value=100), max_size=30),
)
def test_messages_never_exceed_burst_and_rate(every_s: float, burst: int, pauses: list[float]) -> None:
    limit, full_at, now, sent = RateLimit(scope="a", every_s=every_s, burst=burst), 0.0, 0.0, list[float]()
    for pause in pauses:
        now += pause
        now += seconds_until_room(limit, full_at, now)
        full_at = full_again(limit, full_at, now)
        sent.append(now)
    for first, at in enumerate(sent):
        for last, then in enumerate(sent[first:]):
            assert last + 1 <= burst + (then - at) / every_s + 1e-6


def test_a_message_needs_room_in_all_its_scopes() -> None:
    buckets = TokenBuckets()
    both = path(1, overall(1), per_chat(1, 10))
    buckets.take(both, 0)

    assert buckets.room(both, 0) == 10
    assert buckets.room(path(2, overall(1), per_chat(2, 10)), 0) == 1
    assert buckets.room(path(2, overall(1), per_chat(2, 10)), 1) == 0


@pytest.mark.parametrize(
    ("scope", "banned"),
    [
        (ACCOUNT, True),
        (f"{ACCOUNT}/1", True),
        ("telegram", False),
        (f"{ACCOUNT}/11", False),
        ("slack/default", False),
    ],
)
def test_ban_holds_in_its_scope_even_without_a_limit(scope: str, banned: bool) -> None:
    buckets = TokenBuckets()
    buckets.ban(scope, 30, 0)

    assert buckets.banned(path(1), 10) == (20 if banned else 0)
    assert buckets.room(path(1), 10) == (20 if banned else 0)
    assert buckets.room(path(1), 30) == 0


def test_a_shorter_ban_does_not_end_a_longer_one() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock)
    longer = clock.now() + timedelta(seconds=60)
    limiter.ban(ACCOUNT, longer)

    assert limiter.ban(ACCOUNT, clock.now() + timedelta(seconds=5)) == longer


def test_priority_texts_then_cards_then_refusals() -> None:
    kinds = sorted(SlotKind, key=SendPriority.of)
    assert kinds[-2:] == [SlotKind.CARD, SlotKind.REFUSAL]
    assert {SendPriority.of(kind) for kind in kinds[:-2]} == {SendPriority.TEXT}


# --- waiting --------------------------------------------------------------------------------------


class Line:
    """Waiting senders, and the order in which they were admitted."""

    def __init__(self, limiter: RateLimiter, group: asyncio.TaskGroup) -> None:
        """Start empty."""
        self.limiter = limiter
        self.group = group
        self.went: list[str] = []
        self.told: dict[str, float] = {}

    async def joined_by(
        self, name: str, passing: SendPath, priority: SendPriority = SendPriority.TEXT, patience_s: float = 2
    ) -> None:
        """Add a waiting sender."""
        self.group.create_task(self._wait(name, passing, priority, patience_s), name=name)
        await asyncio.sleep(0)

    async def _wait(self, name: str, passing: SendPath, priority: SendPriority, patience_s: float) -> None:
        wait = await self.limiter.acquire(passing, priority, patience_s=patience_s)
        self.told[name] = wait
        if not wait:
            self.went.append(name)


async def test_acquire_returns_at_once_without_a_limit() -> None:
    limiter = RateLimiter(FakeClock())
    assert [await limiter.acquire(path(1), SendPriority.TEXT) for _ in range(100)] == [0.0] * 100


async def test_order_is_priority_then_arrival() -> None:
    limiter = RateLimiter(SystemClock())
    limit = overall(0.05)
    async with asyncio.TaskGroup() as group:
        line = Line(limiter, group)
        await line.joined_by("first", path(1, limit))
        await line.joined_by("card", path(2, limit), SendPriority.CARD)
        await line.joined_by("text", path(3, limit))
        await line.joined_by("later card", path(4, limit), SendPriority.CARD)
        await line.joined_by("later text", path(5, limit))

    assert line.went == ["first", "text", "later text", "card", "later card"]


async def test_full_scope_does_not_hold_up_another() -> None:
    limiter = RateLimiter(SystemClock())
    async with asyncio.TaskGroup() as group:
        line = Line(limiter, group)
        for name in ("a", "b"):
            await line.joined_by(f"slow {name}", path(1, overall(0.001, 3), per_chat(1, 0.2)))
        await line.joined_by("quick", path(2, overall(0.001, 3), per_chat(2, 0.2)))
        await asyncio.sleep(0.05)
        assert line.went == ["slow a", "quick"]

    assert line.went == ["slow a", "quick", "slow b"]


async def test_limit_holds_among_many() -> None:
    limiter, clock = RateLimiter(SystemClock()), SystemClock()
    began = clock.monotonic()
    async with asyncio.TaskGroup() as group:
        line = Line(limiter, group)
        for number in range(13):
            await line.joined_by(str(number), path(number, overall(0.02, 3)))

    assert line.went == [str(number) for number in range(13)]
    assert clock.monotonic() - began >= 0.2


@pytest.mark.parametrize(
    ("priority", "passing", "expected"),
    [
        (SendPriority.TEXT, path(1, overall(0.5), per_chat(1, 3)), 3),  # the limit of its chat
        (SendPriority.TEXT, path(9, overall(0.5)), 2.5),  # four wait before it
        (SendPriority.CARD, path(9, overall(0.5)), 2.5),
        (SendPriority.TEXT, path(9, RateLimit(scope="elsewhere", every_s=9, burst=1)), 0),
    ],
)
async def test_long_wait_is_returned_at_once(priority: SendPriority, passing: SendPath, expected: float) -> None:
    limiter = RateLimiter(FakeClock())
    assert await limiter.acquire(path(1, overall(0.5), per_chat(1, 3)), SendPriority.TEXT) == 0
    async with asyncio.TaskGroup() as group:
        line = Line(limiter, group)
        for number in range(2, 6):
            await line.joined_by(str(number), path(number, overall(0.5)))
        assert line.told == {}  # two seconds are borne
        async with asyncio.timeout(1):
            assert await limiter.acquire(passing, priority) == pytest.approx(expected)
        limiter.close()


async def test_ban_ends_the_wait_of_queued_senders() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock)
    async with asyncio.TaskGroup() as group:
        line = Line(limiter, group)
        for name in ("first", "second"):
            await line.joined_by(name, path(1, per_chat(1, 1)))
        await line.joined_by("patient", path(1, per_chat(1, 1)), patience_s=100)
        await line.joined_by("other", path(2, per_chat(2, 1)))
        assert line.went == ["first", "other"]
        limiter.ban(f"{ACCOUNT}/1", clock.now() + timedelta(seconds=30))

    assert {name: line.told[name] >= 30 for name in ("second", "patient")} == {"second": True, "patient": True}


async def test_acquire_does_not_wait_after_close() -> None:
    limiter = RateLimiter(FakeClock())
    async with asyncio.TaskGroup() as group:
        line = Line(limiter, group)
        for name in ("first", "second"):
            await line.joined_by(name, path(1, per_chat(1, 1)))
        limiter.close()
        await line.joined_by("third", path(1, per_chat(1, 1)))

    assert (line.went, line.told["second"], line.told["third"]) == (["first"], 1, 1)


async def test_cancelled_waiter_takes_no_token() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock)
    await limiter.acquire(path(1, per_chat(1, 1)), SendPriority.TEXT)
    async with in_background(limiter.acquire(path(1, per_chat(1, 1)), SendPriority.TEXT)):
        pass
    clock.advance(1)

    assert await limiter.acquire(path(1, per_chat(1, 1)), SendPriority.TEXT) == 0


@pytest.mark.parametrize(
    ("burst", "before", "allowed"), [(3, 0, True), (3, 1, True), (3, 2, False), (2, 1, False), (1, 0, True)]
)
async def test_try_acquire_leaves_room_for_one_message(burst: int, before: int, allowed: bool) -> None:
    limiter, passing = RateLimiter(FakeClock()), path(1, per_chat(1, 1, burst))
    for _ in range(before):
        await limiter.acquire(passing, SendPriority.TEXT)

    assert limiter.try_acquire(passing) is allowed
    if allowed and burst > 1:
        assert await limiter.acquire(passing, SendPriority.TEXT) == 0


# --- bans -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "expected"),
    [("", f"{ACCOUNT}/1"), (ACCOUNT, ACCOUNT), (f"{ACCOUNT}/1", f"{ACCOUNT}/1"), ("of another chat", f"{ACCOUNT}/1")],
)
async def test_429_bans_the_named_scope_or_the_chat(scope: str, expected: str) -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock)

    assert limiter.apply_retry_after(path(1), told(clock, 30, scope)) == {expected: clock.now() + timedelta(seconds=30)}
    assert await limiter.acquire(path(1), SendPriority.TEXT) == 30
    assert not limiter.try_acquire(path(1))


async def test_ban_lasts_5_s_without_a_time_and_1_s_for_a_past_one() -> None:
    clock = FakeClock()
    bare = RateLimiter(clock).apply_retry_after(path(1), SendFailed("429", outcome=SendOutcome.WAIT))
    past = RateLimiter(clock).apply_retry_after(path(1), told(clock, -3))

    assert [*bare.values(), *past.values()] == [clock.now() + timedelta(seconds=s) for s in (5, 1)]


@pytest.mark.parametrize(
    ("refusals", "account_banned_s"),
    [
        ([(0, 1, 40), (5, 2, 40), (10, 3, 25)], 25),  # the first of them to end
        ([(0, 1, 600), (5, 2, 12), (10, 3, 20)], 7),
        ([(0, 1, 2), (5, 2, 600), (10, 3, 20)], 0),  # one was open again: it is not the account
        ([(0, 1, 1), (3, 2, 1), (6, 3, 600)], 0),
        ([(0, 1, 30), (5, 2, 40), (10.5, 3, 20)], 0),  # not within ten seconds
        ([(0, 1, 30), (1, 2, 30), (2, 1, 30), (3, 2, 30)], 0),  # only two chats
    ],
)
async def test_three_chats_refused_within_10_s_ban_the_account(
    refusals: list[tuple[float, int, float]], account_banned_s: float
) -> None:
    clock = FakeClock()
    limiter, at = RateLimiter(clock), 0.0
    for when, number, seconds in refusals:
        clock.advance(when - at)
        at = when
        limiter.apply_retry_after(path(number), told(clock, seconds))

    assert await limiter.acquire(path(99), SendPriority.TEXT) == account_banned_s


async def test_bans_outlive_a_restart() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    await write_bans(store, RateLimiter(clock).apply_retry_after(path(1), told(clock, 30)), clock.now())
    await store.put(BANS, "broken", "soon")
    await store.put(BANS, "naive", "2030-01-01T00:00:00 30")
    for n, told_s in enumerate(("long", "nan", "-1", "30 30")):
        await store.put(BANS, f"{ACCOUNT}/{n + 3}", f"{(clock.now() + timedelta(days=1)).isoformat()} {told_s}")
    clock.advance(10)
    again = RateLimiter(clock)
    await read_bans(store, again, clock.now())

    assert await again.acquire(path(1), SendPriority.TEXT) == 20
    for number in (2, 3, 4, 5, 6):
        assert await again.acquire(path(number), SendPriority.TEXT) == 0
    clock.advance(21)
    assert f"{ACCOUNT}/1" not in await store.items(BANS)


async def test_stored_ban_is_not_longer_when_the_clock_is_set_back() -> None:
    """A machine without a hardware clock boots days in the past until it gets the time."""
    clock = FakeClock()
    store = MemoryStore(clock)
    await write_bans(store, RateLimiter(clock).apply_retry_after(path(1), told(clock, 30)), clock.now())
    clock.advance(-2 * 24 * 3600)
    again = RateLimiter(clock)
    await read_bans(store, again, clock.now())
    assert await again.acquire(path(1), SendPriority.TEXT) == 30


async def test_stored_ban_of_an_older_version_holds() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    await store.put(BANS, f"{ACCOUNT}/1", (clock.now() + timedelta(seconds=30)).isoformat())
    again = RateLimiter(clock)
    await read_bans(store, again, clock.now())
    assert await again.acquire(path(1), SendPriority.TEXT) == 30


async def test_sending_resumes_after_a_ban() -> None:
    clock = SystemClock()
    limiter = RateLimiter(clock)
    limiter.ban(ACCOUNT, clock.now() + timedelta(seconds=0.1))
    began = clock.monotonic()
    assert await limiter.acquire(path(1), SendPriority.TEXT) == 0
    assert clock.monotonic() - began >= 0.09
