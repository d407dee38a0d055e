"""Quarantine of crashing events: redelivered, then put aside, with bounded memory."""

from __future__ import annotations

import pytest

from channels._shared.poison import POISON_KEPT, TRIES, TRIES_KEPT, Poison
from gateway.domain.messages import RefusedReason
from gateway.errors import StoreError
from tests.support.surroundings import FakeSink

BUG = RuntimeError("with a secret in it")


@pytest.fixture
def sink() -> FakeSink:
    return FakeSink()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def poison(sink: FakeSink, told: list[str]) -> Poison:
    return Poison(channel="slack", account="main", sink=sink, broken=lambda: told.append("broken"))


async def test_an_event_is_put_aside_at_the_last_try(poison: Poison, sink: FakeSink, told: list[str]) -> None:
    assert [await poison.put_aside("a", "x" * 9_999, BUG) for _ in range(TRIES)] == [False] * (TRIES - 1) + [True]
    (refused,) = sink.refused
    assert (refused.channel, refused.account, refused.event_key) == ("slack", "main", "a")
    assert (refused.reason, refused.detail) == (RefusedReason.POISON, "the gateway failed 3 times: RuntimeError")
    assert len(refused.raw) == POISON_KEPT
    assert told == ["broken"]


async def test_each_event_has_its_own_tries(poison: Poison, sink: FakeSink) -> None:
    for _ in range(TRIES - 1):
        assert not await poison.put_aside("a", "", BUG)
        assert not await poison.put_aside("b", "", BUG)
    assert await poison.put_aside("b", "", BUG)
    assert [refused.event_key for refused in sink.refused] == ["b"]


async def test_event_that_cannot_be_put_aside_comes_again(poison: Poison, sink: FakeSink, told: list[str]) -> None:
    sink.fail = lambda _: StoreError("the disk is full")
    assert not any([await poison.put_aside("a", "", BUG) for _ in range(TRIES)])
    assert told == []


async def test_a_crowd_of_them_is_forgotten_from_its_beginning(poison: Poison) -> None:
    for _ in range(TRIES - 1):
        await poison.put_aside("first", "", BUG)
    for n in range(TRIES_KEPT):
        await poison.put_aside(str(n), "", BUG)
    assert not await poison.put_aside("first", "", BUG)
