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


def way(number: int, *rate_limits: RateLimit) -> SendPath:
    """The way to one of many chats."""
    return SendPath.to(chat(number), rate_limits)


def per_chat(number: int, every_s: float, burst: int = 1) -> RateLimit:
    """A pace of one chat."""
    return RateLimit(scope=f"{ACCOUNT}/{number}", every_s=every_s, burst=burst)


def overall(every_s: float, burst: int = 1) -> RateLimit:
    """A pace of the whole account."""
    return RateLimit(scope=ACCOUNT, every_s=every_s, burst=burst)


def told(clock: FakeClock, seconds: float, scope: str = "") -> SendFailed:
    """A 429."""
    then = clock.now() + timedelta(seconds=seconds)
    return SendFailed("429", outcome=SendOutcome.WAIT, until=then, scope=scope)


# --- arithmetic -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pace", "full_at", "now", "ahead", "expected"),
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
def test_when_there_is_room(pace: RateLimit, full_at: float, now: float, ahead: int, expected: float) -> None:
    assert seconds_until_room(pace, full_at, now, ahead=ahead) == pytest.approx(expected)


@given(
    every_s=st.floats(min_value=0.01, max_value=60),
    burst=st.integers(min_value=1, max_value=20),
    pauses=st.lists(st.floats(min_value=0, max_value=100), max_size=30),
)
def test_whoever_waits_for_room_never_sends_more_than_burst_and_pace_allow(
    every_s: float, burst: int, pauses: list[float]
) -> None:
    pace, full_at, now, sent = RateLimit(scope="a", every_s=every_s, burst=burst), 0.0, 0.0, list[float]()
    for pause in pauses:
        now += pause
        now += seconds_until_room(pace, full_at, now)
        full_at = full_again(pace, full_at, now)
        sent.append(now)
    for first, at in enumerate(sent):
        for last, then in enumerate(sent[first:]):
            assert last + 1 <= burst + (then - at) / every_s + 1e-6


def test_a_message_needs_room_in_all_its_scopes() -> None:
    ledger = TokenBuckets()
    both = way(1, overall(1), per_chat(1, 10))
    ledger.take(both, 0)

    assert ledger.room(both, 0) == 10
    assert ledger.room(way(2, overall(1), per_chat(2, 10)), 0) == 1
    assert ledger.room(way(2, overall(1), per_chat(2, 10)), 1) == 0


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
def test_a_ban_holds_for_all_that_lies_in_its_scope_even_without_a_pace(scope: str, banned: bool) -> None:
    ledger = TokenBuckets()
    ledger.ban(scope, 30, 0)

    assert ledger.banned(way(1), 10) == (20 if banned else 0)
    assert ledger.room(way(1), 10) == (20 if banned else 0)
    assert ledger.room(way(1), 30) == 0


def test_a_shorter_ban_does_not_end_a_longer_one() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock)
    longer = clock.now() + timedelta(seconds=60)
    limiter.ban(ACCOUNT, longer)

    assert limiter.ban(ACCOUNT, clock.now() + timedelta(seconds=5)) == longer


def test_cards_come_after_texts_and_strangers_last() -> None:
    kinds = sorted(SlotKind, key=SendPriority.of)
    assert kinds[-2:] == [SlotKind.CARD, SlotKind.REFUSAL]
    assert {SendPriority.of(kind) for kind in kinds[:-2]} == {SendPriority.TEXT}


# --- waiting --------------------------------------------------------------------------------------


class Line:
    """Those who wait, and in which order they went."""

    def __init__(self, limiter: RateLimiter, group: asyncio.TaskGroup) -> None:
        """Nobody waits."""
        self.limiter = limiter
        self.group = group
        self.went: list[str] = []
        self.told: dict[str, float] = {}

    async def joined_by(
        self, name: str, passing: SendPath, rank: SendPriority = SendPriority.TEXT, patience_s: float = 2
    ) -> None:
        """Somebody more waits."""
        self.group.create_task(self._wait(name, passing, rank, patience_s), name=name)
        await asyncio.sleep(0)

    async def _wait(self, name: str, passing: SendPath, rank: SendPriority, patience_s: float) -> None:
        wait = await self.limiter.turn(passing, rank, patience_s=patience_s)
        self.told[name] = wait
        if not wait:
            self.went.append(name)


async def test_without_a_limit_nobody_waits() -> None:
    limiter = RateLimiter(FakeClock())
    assert [await limiter.turn(way(1), SendPriority.TEXT) for _ in range(100)] == [0.0] * 100


async def test_texts_go_before_cards_and_then_who_came_first() -> None:
    limiter = RateLimiter(SystemClock())
    pace = overall(0.05)
    async with asyncio.TaskGroup() as group:
        line = Line(limiter, group)
        await line.joined_by("first", way(1, pace))
        await line.joined_by("card", way(2, pace), SendPriority.CARD)
        await line.joined_by("text", way(3, pace))
        await line.joined_by("later card", way(4, pace), SendPriority.CARD)
        await line.joined_by("later text", way(5, pace))

    assert line.went == ["first", "text", "later text", "card", "later card"]


async def test_who_waits_in_one_scope_does_not_hold_up_another() -> None:
    limiter = RateLimiter(SystemClock())
    async with asyncio.TaskGroup() as group:
        line = Line(limiter, group)
        for name in ("a", "b"):
            await line.joined_by(f"slow {name}", way(1, overall(0.001, 3), per_chat(1, 0.2)))
        await line.joined_by("quick", way(2, overall(0.001, 3), per_chat(2, 0.2)))
        await asyncio.sleep(0.05)
        assert line.went == ["slow a", "quick"]

    assert line.went == ["slow a", "quick", "slow b"]


async def test_a_pace_holds_among_many() -> None:
    limiter, clock = RateLimiter(SystemClock()), SystemClock()
    began = clock.monotonic()
    async with asyncio.TaskGroup() as group:
        line = Line(limiter, group)
        for number in range(13):
            await line.joined_by(str(number), way(number, overall(0.02, 3)))

    assert line.went == [str(number) for number in range(13)]
    assert clock.monotonic() - began >= 0.2


@pytest.mark.parametrize(
    ("rank", "passing", "expected"),
    [
        (SendPriority.TEXT, way(1, overall(0.5), per_chat(1, 3)), 3),  # the pace of its chat
        (SendPriority.TEXT, way(9, overall(0.5)), 2.5),  # four wait before it
        (SendPriority.CARD, way(9, overall(0.5)), 2.5),
        (SendPriority.TEXT, way(9, RateLimit(scope="elsewhere", every_s=9, burst=1)), 0),
    ],
)
async def test_a_long_wait_is_told_at_once(rank: SendPriority, passing: SendPath, expected: float) -> None:
    limiter = RateLimiter(FakeClock())
    assert await limiter.turn(way(1, overall(0.5), per_chat(1, 3)), SendPriority.TEXT) == 0
    async with asyncio.TaskGroup() as group:
        line = Line(limiter, group)
        for number in range(2, 6):
            await line.joined_by(str(number), way(number, overall(0.5)))
        assert line.told == {}  # two seconds are borne
        async with asyncio.timeout(1):
            assert await limiter.turn(passing, rank) == pytest.approx(expected)
        limiter.close()


async def test_a_ban_tells_those_who_wait_already() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock)
    async with asyncio.TaskGroup() as group:
        line = Line(limiter, group)
        for name in ("first", "second"):
            await line.joined_by(name, way(1, per_chat(1, 1)))
        await line.joined_by("patient", way(1, per_chat(1, 1)), patience_s=100)
        await line.joined_by("other", way(2, per_chat(2, 1)))
        assert line.went == ["first", "other"]
        limiter.ban(f"{ACCOUNT}/1", clock.now() + timedelta(seconds=30))

    assert {name: line.told[name] >= 30 for name in ("second", "patient")} == {"second": True, "patient": True}


async def test_after_the_end_nobody_waits() -> None:
    limiter = RateLimiter(FakeClock())
    async with asyncio.TaskGroup() as group:
        line = Line(limiter, group)
        for name in ("first", "second"):
            await line.joined_by(name, way(1, per_chat(1, 1)))
        limiter.close()
        await line.joined_by("third", way(1, per_chat(1, 1)))

    assert (line.went, line.told["second"], line.told["third"]) == (["first"], 1, 1)


async def test_one_who_gave_up_waiting_is_not_counted() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock)
    await limiter.turn(way(1, per_chat(1, 1)), SendPriority.TEXT)
    async with in_background(limiter.turn(way(1, per_chat(1, 1)), SendPriority.TEXT)):
        pass
    clock.advance(1)

    assert await limiter.turn(way(1, per_chat(1, 1)), SendPriority.TEXT) == 0


@pytest.mark.parametrize(
    ("burst", "before", "allowed"), [(3, 0, True), (3, 1, True), (3, 2, False), (2, 1, False), (1, 0, True)]
)
async def test_what_need_not_arrive_leaves_room_for_what_must(burst: int, before: int, allowed: bool) -> None:
    limiter, passing = RateLimiter(FakeClock()), way(1, per_chat(1, 1, burst))
    for _ in range(before):
        await limiter.turn(passing, SendPriority.TEXT)

    assert limiter.at_once(passing) is allowed
    if allowed and burst > 1:
        assert await limiter.turn(passing, SendPriority.TEXT) == 0


# --- bans -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "expected"),
    [("", f"{ACCOUNT}/1"), (ACCOUNT, ACCOUNT), (f"{ACCOUNT}/1", f"{ACCOUNT}/1"), ("of another chat", f"{ACCOUNT}/1")],
)
async def test_a_429_bans_the_scope_it_names_or_the_chat(scope: str, expected: str) -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock)

    assert limiter.obey(way(1), told(clock, 30, scope)) == {expected: clock.now() + timedelta(seconds=30)}
    assert await limiter.turn(way(1), SendPriority.TEXT) == 30
    assert not limiter.at_once(way(1))


async def test_a_429_that_says_no_time_is_obeyed_for_five_seconds_and_one_of_the_past_for_one() -> None:
    clock = FakeClock()
    bare = RateLimiter(clock).obey(way(1), SendFailed("429", outcome=SendOutcome.WAIT))
    past = RateLimiter(clock).obey(way(1), told(clock, -3))

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
async def test_three_chats_refused_within_ten_seconds_mean_the_account(
    refusals: list[tuple[float, int, float]], account_banned_s: float
) -> None:
    clock = FakeClock()
    limiter, at = RateLimiter(clock), 0.0
    for when, number, seconds in refusals:
        clock.advance(when - at)
        at = when
        limiter.obey(way(number), told(clock, seconds))

    assert await limiter.turn(way(99), SendPriority.TEXT) == account_banned_s


async def test_bans_outlive_a_restart() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    await write_bans(store, RateLimiter(clock).obey(way(1), told(clock, 30)), clock.now())
    await store.note(BANS, "broken", "soon")
    await store.note(BANS, "naive", "2030-01-01T00:00:00 30")
    for n, told_s in enumerate(("long", "nan", "-1", "30 30")):
        await store.note(BANS, f"{ACCOUNT}/{n + 3}", f"{(clock.now() + timedelta(days=1)).isoformat()} {told_s}")
    clock.advance(10)
    again = RateLimiter(clock)
    await read_bans(store, again, clock.now())

    assert await again.turn(way(1), SendPriority.TEXT) == 20
    for number in (2, 3, 4, 5, 6):
        assert await again.turn(way(number), SendPriority.TEXT) == 0
    clock.advance(21)
    assert f"{ACCOUNT}/1" not in await store.notes(BANS)


async def test_a_clock_that_was_set_back_makes_no_ban_longer_than_it_was_told() -> None:
    """A machine without a clock of its own begins days ago, until somebody tells it the time."""
    clock = FakeClock()
    store = MemoryStore(clock)
    await write_bans(store, RateLimiter(clock).obey(way(1), told(clock, 30)), clock.now())
    clock.advance(-2 * 24 * 3600)
    again = RateLimiter(clock)
    await read_bans(store, again, clock.now())
    assert await again.turn(way(1), SendPriority.TEXT) == 30


async def test_what_an_older_version_stored_is_a_ban_too() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    await store.note(BANS, f"{ACCOUNT}/1", (clock.now() + timedelta(seconds=30)).isoformat())
    again = RateLimiter(clock)
    await read_bans(store, again, clock.now())
    assert await again.turn(way(1), SendPriority.TEXT) == 30


async def test_after_a_ban_sending_goes_on_by_itself() -> None:
    clock = SystemClock()
    limiter = RateLimiter(clock)
    limiter.ban(ACCOUNT, clock.now() + timedelta(seconds=0.1))
    began = clock.monotonic()
    assert await limiter.turn(way(1), SendPriority.TEXT) == 0
    assert clock.monotonic() - began >= 0.09
