"""Figures for people, and lines without secrets."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.system.figures import count, duration, money
from gateway.system.redaction import Redactor, redacted_line


@pytest.mark.parametrize(
    ("micros", "currency", "text"),
    [
        (12_000, "USD", "$0.012"),
        (12_000, "€", "€0.012"),
        (3_400_000, "CHF", "3.40 CHF"),
        (1_234_567_890, "EUR", "€1,234.57"),
        (999, "USD", "<$0.001"),
        (5, "CHF", "<0.001 CHF"),
        (0, "USD", "$0.000"),
    ],
)
def test_money(micros: int, currency: str, text: str) -> None:
    assert money(micros, currency) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (0.4, "0 s"),
        (11.6, "12 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86_399, "23 h 59 min"),
        (86_400, "1 day"),
        (2 * 86_400 + 7500, "2 days 2 h"),
        (30 * 86_400, "30 days"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(timedelta(seconds=seconds)) == text


def test_count() -> None:
    assert [count(1, "call"), count(2, "call")] == ["1 call", "2 calls"]


@given(st.text(), st.integers(1, 300))
def test_redacted_line(text: str, limit: int) -> None:
    once = redacted_line(text, limit, Redactor())

    assert len(once) <= limit
    assert redacted_line(once, limit, Redactor()) == once


@pytest.mark.parametrize("long", ["sk-" + "b" * 6_000, "ValueError: bearer " + "a" * 6_000])
def test_redacted_line_is_never_empty_for_a_long_secret(long: str) -> None:
    line = redacted_line(long, 500, Redactor())
    assert line
    assert "b" * 16 not in line
    assert "a" * 16 not in line
