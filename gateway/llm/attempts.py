"""Retries and timeouts of model requests. The only retry layer, shared by the models of all providers.

Headers are read where an answer is: `openai_chat` and `pydantic_ai` put the wait of `Retry-After` into their error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from copy import copy
from dataclasses import dataclass, replace
from typing import Self

from gateway.errors import ModelError
from gateway.policy.retry import Failure, GiveUp, RetryLimits, next_try

IMPATIENT_TRIES = 2
"""Number of attempts while a fallback is available."""
IMPATIENT_WAIT_S = 10.0
"""Longest wait in seconds between two such attempts; if the server asks for more, the fallback is asked at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Timeouts of one attempt, in seconds."""

    connect_s: float = 15.0
    """Limit for connecting."""
    stall_s: float = 120.0
    """Longest silence: before the first byte, and between any two."""
    first_byte_s: float = 30.0
    """Limit for the first byte while a fallback is available."""
    after_finish_s: float = 5.0
    """Wait for token usage after the answer is complete."""
    whole_s: float = 3600.0
    """Limit for the whole answer. It ends an answer that consists of keep-alives only."""


DEFAULT_TIMEOUTS = Timeouts()


class RetriedModel:
    """Base of models that are asked over a network: retries, and the timeouts of each attempt."""

    def __init__(self, who: str, retry: RetryLimits, timeouts: Timeouts, random: Callable[[], float]) -> None:
        """Store the limits. `who` names the model in the error for a silent server."""
        self._who = who
        self.retry = retry
        self._timeouts = timeouts
        self.first_byte_s = timeouts.stall_s
        """Timeout in seconds of an attempt for the first byte."""
        self._random = random

    def impatient(self) -> Self:
        """Return this model for use while a fallback is available: at most 2 attempts, 30 s each for the first byte.

        Both share their connections; closing either closes both.
        """
        other = copy(self)
        other.retry = _impatient(self.retry)
        other.first_byte_s = min(self._timeouts.first_byte_s, self.first_byte_s)
        return other

    async def _tried(self, ask: Callable[[], AsyncGenerator[str, None]]) -> AsyncGenerator[str, None]:
        """Yield the text of the first complete attempt; each attempt is one `ask()`.

        A failed attempt is retried only while no text of it was yielded, since text cannot be taken back. Otherwise,
        and after the last attempt, its `ModelError` is raised; the caller decides.
        """
        attempt = 0
        while True:
            attempt += 1
            yielded = False
            try:
                async with aclosing(ask()) as texts:
                    async for text in texts:
                        yielded = True
                        yield text
            except ModelError as error:
                if yielded:
                    raise
                delay_s = _delay_s(attempt, error, self._random(), self.retry)
            else:
                return
            await asyncio.sleep(delay_s)

    def _silent(self, wait_s: float) -> ModelError:
        return ModelError(f"{self._who} sent nothing for {wait_s:g} s.", cure="Ask again in a moment.", retryable=True)


def _impatient(limits: RetryLimits) -> RetryLimits:
    """Return the retry limits for a model with a fallback: a long wait for this one is useless."""
    attempts = IMPATIENT_TRIES if limits.attempts is None else min(limits.attempts, IMPATIENT_TRIES)
    return replace(limits, attempts=attempts, max_delay_s=min(limits.max_delay_s, IMPATIENT_WAIT_S))


def _delay_s(attempt: int, error: ModelError, random: float, limits: RetryLimits) -> float:
    """Return the backoff in seconds before the next attempt, or raise the final error."""
    failure = Failure(retryable=error.retryable, retry_after_s=error.retry_after_s)
    step = next_try(attempt, failure, random, limits)
    if not isinstance(step, GiveUp):
        return step.delay_s
    if not error.retryable:
        raise error
    raise ModelError(
        f"{error.message.rstrip('.')} ({step.because}).",
        cure=error.cure,
        retryable=True,
        retry_after_s=error.retry_after_s,
    ) from None
