from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.retry import Failure, GiveUp, RetryLimits, When, next_try, retry_after_s

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LIMITS = RetryLimits(attempts=4, min_delay_s=1, max_delay_s=60)
ENDLESS = RetryLimits(attempts=None, min_delay_s=1, max_delay_s=60)


@pytest.mark.parametrize(
    ("attempt", "failure", "random", "limits", "expected"),
    [
        # the delay doubles, and is drawn from the upper half of its ceiling
        (1, Failure(retryable=True), 0.0, LIMITS, When(delay_s=1)),
        (1, Failure(retryable=True), 0.5, LIMITS, When(delay_s=1.5)),
        (2, Failure(retryable=True), 0.0, LIMITS, When(delay_s=2)),
        (3, Failure(retryable=True), 0.0, LIMITS, When(delay_s=4)),
        (9, Failure(retryable=True), 0.0, ENDLESS, When(delay_s=30)),
        (9999, Failure(retryable=True), 0.0, ENDLESS, When(delay_s=30)),
        # a Retry-After is honoured, never undercut
        (1, Failure(retryable=True, retry_after_s=7), 0.0, LIMITS, When(delay_s=7)),
        (1, Failure(retryable=True, retry_after_s=7), 0.5, LIMITS, When(delay_s=7 * 1.05)),
        (1, Failure(retryable=True, retry_after_s=60), 0.0, LIMITS, When(delay_s=60)),
        (1, Failure(retryable=True, retry_after_s=0), 0.0, LIMITS, When(delay_s=1)),
        # these end the attempts
        (1, Failure(retryable=True, retry_after_s=60.5), 0.0, LIMITS, GiveUp(because="asked to wait 61 s")),
        (4, Failure(retryable=True), 0.0, LIMITS, GiveUp(because="tried 4 times")),
        (4, Failure(retryable=True, retry_after_s=1), 0.0, LIMITS, GiveUp(because="tried 4 times")),
        (1, Failure(retryable=False), 0.0, LIMITS, GiveUp(because="a retry would not help")),
        (1, Failure(retryable=False, retry_after_s=1), 0.0, ENDLESS, GiveUp(because="a retry would not help")),
    ],
)
def test_next_try(attempt: int, failure: Failure, random: float, limits: RetryLimits, expected: When | GiveUp) -> None:
    assert next_try(attempt, failure, random, limits) == expected


@given(
    attempt=st.integers(min_value=1, max_value=10_000),
    random=st.floats(min_value=0, max_value=1, exclude_max=True),
)
def test_backoff_stays_within_its_limits(attempt: int, random: float) -> None:
    step = next_try(attempt, Failure(retryable=True), random, ENDLESS)

    assert isinstance(step, When)
    assert 1 <= step.delay_s <= 60


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        (" 1.5 ", 1.5),
        ("-3", 0.0),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30.0),
        ("Sun, 01 Mar 2026 11:59:00 GMT", 0.0),
        ("Sun, 01 Mar 2026 13:00:30 +0100", 30.0),
        ("Sun, 01 Mar 2026 12:00:30", 30.0),
        (None, None),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("Sun, 99 Mar 2026 12:00:30 GMT", None),
    ],
)
def test_retry_after_parses_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header, NOW) == seconds
