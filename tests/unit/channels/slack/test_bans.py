"""Rate-limit bans: each process knows those of the earlier ones."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest

from channels.slack import bans
from channels.slack.bans import KEPT_FROM_S, METHODS_AT_MOST, Bans
from channels.slack.request import SlackClient, SlackDeclined
from gateway.errors import StoreError
from tests.support.clock import FakeClock
from tests.support.slack import FakeSlack, faults
from tests.support.surroundings import FakeNotes, refusing

ANN = "U0ANN"
LOOKUP = "users.info"
UPLOAD = "files.getUploadURLExternal"
KEY = "bans/main"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def notes() -> FakeNotes:
    return FakeNotes()


async def test_a_ban_is_known_to_the_next_life(notes: FakeNotes, clock: FakeClock) -> None:
    await Bans("main", notes, clock).learn(LOOKUP, 20)
    clock.advance(5)
    again = Bans("main", notes, clock)
    assert await again.left_s(LOOKUP) == 15
    assert await again.left_s(UPLOAD) == 0
    assert await Bans("other", notes, clock).left_s(LOOKUP) == 0
    clock.advance(15)
    assert await again.left_s(LOOKUP) == 0
    assert await Bans("main", notes, clock).left_s(LOOKUP) == 0


async def test_stored_bans_survive_new_bans_before_the_first_read(notes: FakeNotes, clock: FakeClock) -> None:
    await Bans("main", notes, clock).learn(LOOKUP, 20)
    await Bans("main", notes, clock).learn(UPLOAD, 30)
    third = Bans("main", notes, clock)
    assert (await third.left_s(LOOKUP), await third.left_s(UPLOAD)) == (20, 30)


async def test_the_last_word_of_slack_holds(notes: FakeNotes, clock: FakeClock) -> None:
    first = Bans("main", notes, clock)
    await first.learn(LOOKUP, 60)
    await first.learn(LOOKUP, 10)
    assert await first.left_s(LOOKUP) == 10
    assert await Bans("main", notes, clock).left_s(LOOKUP) == 10


async def test_a_short_ban_costs_no_write(notes: FakeNotes, clock: FakeClock) -> None:
    short = Bans("main", notes, clock)
    await short.learn(LOOKUP, KEPT_FROM_S - 0.5)
    assert await short.left_s(LOOKUP) == KEPT_FROM_S - 0.5
    assert notes.kept == {}


async def test_expired_ban_is_dropped_and_bans_are_bounded(notes: FakeNotes, clock: FakeClock) -> None:
    known = Bans("main", notes, clock)
    await known.learn("over.soon", 10)
    await known.learn("lasts.long", 1_000)
    clock.advance(10)
    for n in range(METHODS_AT_MOST):
        await known.learn(f"method.{n}", 100 + n)
    kept = json.loads(notes.kept[KEY])
    assert len(kept) == METHODS_AT_MOST
    assert "over.soon" not in kept
    assert "method.0" not in kept, "the one that ends first makes room"
    assert "lasts.long" in kept


@pytest.mark.parametrize("moved", [timedelta(days=-30), timedelta(hours=-1), timedelta(hours=1), timedelta(days=30)])
async def test_a_wall_clock_that_was_moved_makes_no_ban_longer(notes: FakeNotes, moved: timedelta) -> None:
    before = datetime(2026, 1, 1, tzinfo=UTC)
    await Bans("main", notes, FakeClock(before)).learn(LOOKUP, 20)
    assert 0 <= await Bans("main", notes, FakeClock(before + moved)).left_s(LOOKUP) <= 20


UNTIL = "2026-01-01T00:10:00+00:00"


@pytest.mark.parametrize(
    "stored",
    [
        "nonsense",
        "[",
        "[" * 100_000,
        "7",
        "null",
        "[5, null]",
        '{"users.info": 5}',
        '{"users.info": [1, 2, 3]}',
        '{"users.info": ["tomorrow", 20]}',
        '{"users.info": ["2026-01-01T00:10:00", 20]}',
        f'{{"users.info": ["{UNTIL}", "20"]}}',
        f'{{"users.info": ["{UNTIL}", true]}}',
        f'{{"users.info": ["{UNTIL}", -20]}}',
        f'{{"users.info": ["{UNTIL}", NaN]}}',
        f'{{"users.info": ["{UNTIL}", Infinity]}}',
        f'{{"users.info": ["{UNTIL}", 1{"0" * 400}]}}',
        json.dumps({f"method.{n}": [UNTIL, 20] for n in range(bans.METHODS_AT_MOST + 1)}),
    ],
)
async def test_malformed_stored_bans_are_ignored_and_logged_once(
    clock: FakeClock, stored: str, caplog: pytest.LogCaptureFixture
) -> None:
    notes = FakeNotes(kept={KEY: stored})
    known = Bans("main", notes, clock)
    with caplog.at_level(logging.ERROR):
        assert await known.left_s(LOOKUP) == 0
        assert await known.left_s(LOOKUP) == 0
    assert len(caplog.records) == 1
    await known.learn(LOOKUP, 20)
    assert await Bans("main", notes, clock).left_s(LOOKUP) == 20


async def test_a_ban_holds_though_the_store_does_not_take_it(clock: FakeClock) -> None:
    known = Bans("main", FakeNotes(broken=True), clock)
    await known.learn(LOOKUP, 20)
    assert await known.left_s(LOOKUP) == 20


async def test_a_store_that_cannot_be_read_is_asked_again(notes: FakeNotes, clock: FakeClock) -> None:
    await Bans("main", notes, clock).learn(LOOKUP, 20)

    class Torn(FakeNotes):
        async def get(self, key: str) -> str | None:
            if self.broken:
                raise StoreError("the disk is gone")
            return self.kept.get(key)

    torn = Torn(kept=notes.kept, broken=True)
    known = Bans("main", torn, clock)
    assert await known.left_s(LOOKUP) == 0
    torn.broken = False
    assert await known.left_s(LOOKUP) == 20


# --- at the wire --------------------------------------------------------------------------------


@pytest.fixture
def slack(slack: FakeSlack) -> FakeSlack:
    slack.person(ANN)
    return slack


async def test_a_banned_method_is_not_called_by_the_next_client_either(
    slack: FakeSlack, notes: FakeNotes, clock: FakeClock
) -> None:
    async def passed(_: str) -> None:
        return None

    async with aiohttp.ClientSession() as session:

        def born() -> SlackClient:
            return SlackClient(slack.bot_token, slack.api_root, session, passed, Bans("main", notes, clock))

        slack.script(refusing(LOOKUP, faults.too_many(20), 1))
        with pytest.raises(SlackDeclined):
            await born().call(LOOKUP, {"user": ANN})
        clock.advance(12)
        with pytest.raises(SlackDeclined) as caught:
            await born().call(LOOKUP, {"user": ANN})
        assert (caught.value.error, caught.value.status, caught.value.retry_after_s) == ("ratelimited", 429, 8)
        assert len(slack.calls(LOOKUP)) == 1
        await born().call("auth.test", {})
        clock.advance(8)
        assert (await born().call(LOOKUP, {"user": ANN}))["ok"] is True
