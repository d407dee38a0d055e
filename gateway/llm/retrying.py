"""Beside a model's answer: the one layer of retries that every provider's model is asked through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from copy import copy
from dataclasses import dataclass, replace
from typing import Self

from gateway.errors import ModelError
from gateway.policy.retry import Failure, GiveUp, RetryLimits, next_try

HASTY_TRIES = 2
HASTY_WAIT_S = 10.0
"""Between two tries, also when the server asks for more: then the other is asked at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long one try may take, in seconds."""

    connect_s: float = 15.0
    stall_s: float = 120.0
    """Without a byte: before the first, and between any two."""
    hasty_s: float = 30.0
    """The same before the first, when another model could answer instead."""
    after_finish_s: float = 5.0
    """For figures, once the answer is whole."""
    whole_s: float = 3600.0
    """All of it, so that a server that only keeps the line alive does not hold a turn for ever."""


DEFAULT_PATIENCE = Timeouts()


class Trying:
    """What every model has that is asked over a network: how often, and for how long each time."""

    def __init__(self, who: str, retry: RetryLimits, patience: Timeouts, random: Callable[[], float]) -> None:
        """`who`: what it is called in an error when it sent nothing."""
        self._who = who
        self.retry = retry
        self._patience = patience
        self.first_s = patience.stall_s
        """Seconds of a try until something comes."""
        self._random = random

    def hasty(self) -> Self:
        """The same model for when another could answer instead: at most 2 tries, and 30 s until each says something.

        It asks over the same connections; what closes those of either ends both.
        """
        other = copy(self)
        other.retry = _in_haste(self.retry)
        other.first_s = min(self._patience.hasty_s, self.first_s)
        return other

    async def _tried(self, ask: Callable[[], AsyncGenerator[str, None]]) -> AsyncGenerator[str, None]:
        """Yield the text of the first try that comes to its end; each try is one `ask()`.

        A failed try is repeated only while no text of it was yielded: there is no way to take text back. Afterwards,
        and when the tries are used up, its `ModelError` is raised; the caller decides.
        """
        attempt = 0
        while True:
            attempt += 1
            said = False
            try:
                async with aclosing(ask()) as texts:
                    async for text in texts:
                        said = True
                        yield text
            except ModelError as error:
                if said:
                    raise
                delay_s = _delay_s(attempt, error, self._random(), self.retry)
            else:
                return
            await asyncio.sleep(delay_s)

    def _silent(self, wait_s: float) -> ModelError:
        return ModelError(f"{self._who} sent nothing for {wait_s:g} s.", cure="Ask again in a moment.", retryable=True)


def _in_haste(limits: RetryLimits) -> RetryLimits:
    """Return the limits for a model whose place another could take: waiting long for this one helps nobody."""
    attempts = HASTY_TRIES if limits.attempts is None else min(limits.attempts, HASTY_TRIES)
    return replace(limits, attempts=attempts, longest_s=min(limits.longest_s, HASTY_WAIT_S))


def _delay_s(attempt: int, error: ModelError, random: float, limits: RetryLimits) -> float:
    """Return how long to wait before the next try, or raise the error for good."""
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
