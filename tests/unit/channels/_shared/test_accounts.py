"""Supervision of accounts: a crashed one restarts, and the others are unaffected."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import pytest

from channels._shared.accounts import STARTING, AccountsChannel, PlatformAccount, backoff, limits
from gateway.ports import ChannelContext, Sink
from tests.support.surroundings import FakeSink, until


class Shaky(PlatformAccount):
    """An account that breaks so many times."""

    platform = "Somewhere"

    def __init__(self, name: str, *, breaks: int = 0, wrong: str = STARTING) -> None:
        super().__init__(name, cast("ChannelContext", None))
        self.breaks = breaks
        self.runs = 0
        self._trouble = wrong

    async def run(self, sink: Sink) -> None:
        self.runs += 1
        if self.runs <= self.breaks:
            raise RuntimeError("a bug")
        await asyncio.Event().wait()

    def trouble(self) -> str:
        return self._trouble


def channel(*accounts: Shaky) -> AccountsChannel[Shaky]:
    return AccountsChannel("Somewhere", {account.name: account for account in accounts}, 0.01)


async def test_an_account_that_breaks_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    good, bad = Shaky("good"), Shaky("bad", breaks=2)
    with caplog.at_level(logging.ERROR):
        task = asyncio.create_task(channel(good, bad).run(FakeSink()))
        await until(lambda: bad.runs == 3)
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()
    assert (good.runs, good.trouble()) == (1, STARTING)
    assert bad.trouble().startswith("It broke and is being started again")
    assert [record.getMessage() for record in caplog.records] == ["the Somewhere account bad broke"] * 2


def test_trouble_names_each_failing_account() -> None:
    one, two, three = Shaky("one", wrong="One."), Shaky("two", wrong=""), Shaky("three", wrong="Three.")
    assert channel(one, two, three).trouble() == "One. Three."
    assert channel(two).trouble() == ""
    assert channel(one, two).accounts_up() == {"one": False, "two": True}


def test_limits_leave_out_those_of_zero() -> None:
    assert [(one.scope, one.every_s, one.burst) for one in limits(("a", 4, 3), ("b", 0, 1))] == [("a", 0.25, 3)]


@pytest.mark.parametrize(("failures", "pause_s"), [(0, 1), (1, 2), (5, 32), (6, 60), (10_000, 60)])
def test_backoff_doubles_up_to_the_longest(failures: int, pause_s: float) -> None:
    assert backoff(1, failures, 60) == pause_s
