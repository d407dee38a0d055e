"""Retry policy with backoff. Used after failed requests to models (`llm.attempts`) and platforms; pure.

Each user has its own limits: `outbound.message_actor.SEND_LIMITS` for messages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLimits:
    """Limits on the number of attempts and on delays."""

    attempts: int | None = 4
    """Maximum attempts, the first one included; None: no limit."""
    min_delay_s: float = 1.0
    """Minimum delay in seconds."""
    max_delay_s: float = 60.0
    """Maximum delay in seconds. A longer Retry-After ends the attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Known facts about a failed attempt."""

    retryable: bool
    """True when a retry may help and is safe."""
    retry_after_s: float | None = None
    """Seconds the other side asked us to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """Retry after `delay_s` seconds."""

    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """Stop retrying."""

    because: str


NextTry: TypeAlias = When | GiveUp

DEFAULT_LIMITS = RetryLimits()


def next_try(attempt: int, failure: Failure, random: float, limits: RetryLimits = DEFAULT_LIMITS) -> NextTry:
    """Decide after attempt number `attempt` (from 1) failed; `random` is in [0, 1).

    Without a Retry-After the delay is drawn from the upper half of 2, 4, 8 … times `min_delay_s`, up to `max_delay_s`.
    So clients that failed together come back spread out. A Retry-After is never undercut, and exceeded by a tenth at
    most. One beyond `max_delay_s` ends the attempts, because an earlier attempt is known to fail.
    """
    if not failure.retryable:
        return GiveUp(because="a retry would not help")
    if limits.attempts is not None and attempt >= limits.attempts:
        return GiveUp(because=f"tried {attempt} times")
    if failure.retry_after_s is None:
        return When(delay_s=_backoff(attempt, random, limits))
    if failure.retry_after_s > limits.max_delay_s:
        return GiveUp(because=f"asked to wait {math.ceil(failure.retry_after_s)} s")
    return When(delay_s=max(failure.retry_after_s, limits.min_delay_s) * (1 + random / 10))


def _backoff(attempt: int, random: float, limits: RetryLimits) -> float:
    doublings = min(max(attempt, 1), 32)  # more would exceed any ceiling; 2.0 ** 2000 raises
    ceiling = min(limits.max_delay_s, limits.min_delay_s * 2.0**doublings)
    return max(limits.min_delay_s, ceiling * (1 + random) / 2)


def retry_after_s(header: str | None, now: datetime) -> float | None:
    """Parse a `Retry-After` header: seconds or an HTTP date. Return None when it is missing or neither; never
    negative.
    """
    text = (header or "").strip()
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        return _seconds_until(text, now)
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _seconds_until(date: str, now: datetime) -> float | None:
    try:
        when = parsedate_to_datetime(date)
    except (ValueError, OverflowError):  # OverflowError: an hour or a zone of ten digits
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - now).total_seconds())
