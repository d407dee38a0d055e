"""Supervision of accounts: a crashed one restarts, and the others are unaffected."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import pytest

from channels._shared.accounts import serve, troubles
from gateway.ports import Sink
from tests.support.surroundings import FakeSink, until


@dataclass(slots=True)
class Shaky:
    """An account that breaks so many times."""

    name: str
    breaks: int = 0
    runs: int = 0
    wrong: str = ""

    async def run(self, sink: Sink) -> None:
        self.runs += 1
        self.wrong = ""
        if self.runs <= self.breaks:
            raise RuntimeError("a bug")
        await asyncio.Event().wait()

    def broke(self) -> None:
        self.wrong = f"{self.name} broke."

    def trouble(self) -> str:
        return self.wrong


async def test_an_account_that_breaks_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    good, bad = Shaky("good"), Shaky("bad", breaks=2)
    with caplog.at_level(logging.ERROR):
        task = asyncio.create_task(serve("Somewhere", [good, bad], FakeSink(), 0.01))
        await until(lambda: bad.runs == 3)
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()
    assert good.runs == 1
    assert [record.getMessage() for record in caplog.records] == ["the Somewhere account bad broke"] * 2


def test_what_is_wrong_is_said_of_each() -> None:
    one, two, three = Shaky("one", wrong="One."), Shaky("two"), Shaky("three", wrong="Three.")
    assert troubles([one, two, three]) == "One. Three."
    assert troubles([two]) == ""
