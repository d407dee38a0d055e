"""Budgets over `kill -9`: a reservation of a dead life counts no longer, and an answer counts once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fault.telegram_rig import ANN, wire

DAY = "DRAGOMAN_BUDGETS__TOKENS_PER_PERSON_PER_DAY"
LIMIT = 6_000
"""Less than two estimates of a request: a reservation that stayed would keep every later one waiting."""


@pytest.mark.parametrize("point", ["J6", "J15"])
@pytest.mark.sampled(1)
async def test_an_answer_counts_once_whatever_dies(point: str, tmp_path: Path) -> None:
    """Killed between the answer and its store (J6), and after that (J15)."""
    async with wire(tmp_path) as one:
        one.env[DAY] = str(LIMIT)
        await one.start(f"{point}:kill")
        one.telegram.say(ANN, "good morning")
        await one.killed()
        await one.start()
        await one.telegram.see(ANN, "You said: good morning")
        one.telegram.say(ANN, "and good night")
        await one.telegram.see(ANN, "You said: and good night")
        one.telegram.say(ANN, "/usage")
        shown = await one.telegram.see(ANN, "Budgets:")
        books = re.search(r"You, today:\s+.*?([\d,]+) tokens read.*?([\d,]+) written", shown.text)
        budget = re.search(r"ann today, until 00:00 UTC: ([\d,]+) of 6,000 tokens", shown.text)
        assert books, shown.text
        assert budget, shown.text
        read, written, used = (int(figure.replace(",", "")) for figure in (*books.groups(), *budget.groups()))
        assert used == read + written > 0
        await one.settled()
