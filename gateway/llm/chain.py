"""Chain of a model and its fallbacks, with a cooldown after failures, and the cost of answers. Used by turns.

Each model does its own retries; a chain asks each at most once for one answer. One exception: a first model that failed
in the middle of its text is asked once more if no fallback is left. It could not retry with text shown.

A cooldown follows failures that other requests would meet too. A failure caused by one request or answer falls back
without a cooldown: a content filter, an output limit, too many calls, a too long text.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from gateway.domain.prompts import AnswerRestarted, Complete, ModelEvent, ModelRequest
from gateway.domain.sessions import Session
from gateway.domain.steps import Answer, Usage
from gateway.domain.text import cut, plain
from gateway.errors import ModelError
from gateway.ports import Clock, Model
from gateway.system.logging_setup import log
from gateway.system.metrics import Metrics
from gateway.system.redaction import Redactor

FIRST_REST_S = 60.0
"""Cooldown in seconds after the first failure."""
LONGEST_REST_S = 600.0
"""Longest cooldown in seconds, even if a server asks for more by mistake: one request in ten minutes is cheap."""

_REASON_CHARS = 120
_NOTHING = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Price of a million tokens of one model, in the configured currency."""

    input: float
    output: float
    cached: float | None = None
    """Price of tokens read from the provider's cache; None: as `input`."""


def cost_micros(usage: Usage, price: Price) -> int:
    """Return the cost in millionths of the currency, rounded; cached tokens are a part of the input tokens.

    The price of a million tokens equals the millionths that one token costs.
    """
    cached = min(usage.cached_tokens, usage.input_tokens)
    read_again = price.input if price.cached is None else price.cached
    return round((usage.input_tokens - cached) * price.input + cached * read_again + usage.output_tokens * price.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelHealth:
    """Recent failures of a model, in this process."""

    failures: int = 0
    """Number of failures since its last answer; those during a cooldown count as one."""
    rests_until: float = -math.inf
    """End of the cooldown, on the monotonic clock."""
    because: str = ""
    """Reason of the last failure, one short line."""


WELL = ModelHealth()


def after_failure(before: ModelHealth, because: str, retry_after_s: float | None, now: float) -> ModelHealth:
    """Return the health with a cooldown: 60 s, doubled each time, or as long as the server asked; 10 min at most."""
    rests = now < before.rests_until
    failures = before.failures if rests else before.failures + 1
    rest_s = max(FIRST_REST_S * 2.0 ** min(max(failures, 1) - 1, 16), retry_after_s or 0.0)
    until = max(now + min(rest_s, LONGEST_REST_S), before.rests_until)
    return ModelHealth(failures=failures, rests_until=until, because=because)


def next_choice(
    healths: Sequence[ModelHealth], asked: Collection[int], now: float, *, even_resting: bool = False
) -> int | None:
    """Return the next model to ask: the first in order that was not asked yet and has no cooldown. None: none is left.

    `even_resting`: then those with a cooldown, the shortest first. For use when all have one.
    """
    left = [n for n in range(len(healths)) if n not in asked]
    well = [n for n in left if now >= healths[n].rests_until]
    if well or not even_resting:
        return next(iter(well), None)
    return min(left, key=lambda n: healths[n].rests_until, default=None)


@runtime_checkable
class Impatient(Protocol):
    """Model that can be asked with shorter timeouts."""

    def impatient(self) -> Model:
        """Return the model for use while a fallback is available. Raises nothing."""
        ...


@dataclass(slots=True, kw_only=True)
class Candidate:
    """Model in chains, with its health, which all its chains share."""

    model: Model
    health: ModelHealth = WELL
    impatient: Model = field(init=False)
    """The model with short timeouts, for use while a fallback is available."""

    def __post_init__(self) -> None:
        """Set `impatient`."""
        self.impatient = self.model.impatient() if isinstance(self.model, Impatient) else self.model


class Chain:
    """`ports.Model` over several models, in order."""

    def __init__(
        self,
        members: Sequence[Candidate],
        prices: Mapping[str, Price],
        clock: Clock,
        redactor: Redactor,
        metrics: Metrics | None = None,
    ) -> None:
        """Ask `members` in this order; at least one is needed."""
        self._metrics = metrics
        self._redactor = redactor
        self._members = tuple(members)
        self._prices = prices
        self._clock = clock
        self._log = log("chain")

    @property
    def name(self) -> str:
        """Return the first model's name."""
        return self._members[0].model.name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Ask one model after the other; see `ports.Model.stream` and `ports.Models.of`.

        Raises the first model's `ModelError` when all failed, but rather one with `too_long`, since the caller can
        shorten the prompt.
        """
        failures: dict[int, ModelError] = {}
        all_rest = all(map(self._rests, range(len(self._members))))
        n = self._next(failures, all_rest)
        while n is not None:
            member, shown = self._members[n], False
            others = next_choice(self._healths, {*failures, n}, self._clock.monotonic(), even_resting=all_rest)
            model = member.model if others is None else member.impatient
            failed = ModelError("The model's stream ended before its answer did.", cure="Ask again.", retryable=True)
            try:
                async with aclosing(model.stream(request)) as events:
                    async for event in events:
                        if isinstance(event, Complete):
                            yield Complete(answer=self._finished(event.answer, n, failures))
                            return
                        shown = not isinstance(event, AnswerRestarted)
                        yield event
            except ModelError as error:
                failed = error
            self._failed(member, failed)
            again = n if shown and failed.retryable and n not in failures else None
            failures[n] = failed
            n = self._next(failures, all_rest, again)
            if n is not None and shown:
                yield AnswerRestarted(because=failed.message)
        raise self._all_failed(failures)

    def _reason(self, error: ModelError) -> str:
        """Return the reason as one short line, redacted: a provider's text may quote secrets."""
        return cut(plain(self._redactor.text(error.message)).rstrip("."), _REASON_CHARS)

    @property
    def _healths(self) -> list[ModelHealth]:
        return [member.health for member in self._members]

    def _rests(self, n: int) -> bool:
        return self._clock.monotonic() < self._members[n].health.rests_until

    def _next(self, failures: Mapping[int, ModelError], all_rest: bool, again: int | None = None) -> int | None:
        """Return the next model to ask; `again` just failed in the middle of its text."""
        # A too long prompt is shortened rather than given to a model in cooldown, which is likely to fail anyway.
        even_resting = all_rest and not any(error.too_long for error in failures.values())
        n = next_choice(self._healths, failures, self._clock.monotonic(), even_resting=even_resting)
        return again if n is None and len(failures) == 1 else n

    def _failed(self, member: Candidate, error: ModelError) -> None:
        if not error.about_request and not error.too_long:
            because = self._reason(error)
            member.health = after_failure(member.health, because, error.retry_after_s, self._clock.monotonic())
        rest_s = max(0.0, member.health.rests_until - self._clock.monotonic())
        self._log.warning("model failed", model=member.model.name, error=str(error), rests_s=round(rest_s))

    def _finished(self, answer: Answer, n: int, failures: Mapping[int, ModelError]) -> Answer:
        """Return the answer with its cost, and with a note if a fallback gave it."""
        member = self._members[n]
        member.health = WELL
        price = self._prices.get(member.model.name)
        usage = answer.usage
        if price is not None:
            usage = replace(usage, cost_micros=cost_micros(usage, price))
        self._count(member.model.name, usage)
        return replace(answer, usage=usage, note=self._note(n, failures))

    def _count(self, model: str, usage: Usage) -> None:
        if self._metrics is None or usage == _NOTHING:
            return
        kinds = {"input": usage.input_tokens, "output": usage.output_tokens, "cached": usage.cached_tokens}
        for kind, tokens in kinds.items():
            self._metrics.tokens.labels(model, kind).inc(tokens)
        self._metrics.cost.labels(model).inc(usage.cost_micros / 1_000_000)

    def _note(self, n: int, failures: Mapping[int, ModelError]) -> str:
        if n == 0:
            return ""
        first = self._members[0]
        why = self._reason(failures[0]) if 0 in failures else first.health.because
        how = "failed" if 0 in failures else "rests after a failure"
        return f"{called(self._members[n])} answered: {called(first)} {how}" + (f" ({why})" if why else "")

    def _all_failed(self, failures: Mapping[int, ModelError]) -> ModelError:
        """Return the first model's error; it names the others, including those with a cooldown."""
        first = min(failures)
        error = next((failures[n] for n in sorted(failures) if failures[n].too_long), failures[first])
        others = [
            f"{called(member)} ({self._reason(failures[n]) if n in failures else f'rests: {member.health.because}'})"
            for n, member in enumerate(self._members)
            if n != first
        ]
        if error.too_long or not others:
            return error
        return ModelError(
            f"{error.message.rstrip('.')}. Others did not answer either: {'; '.join(others)}.",
            cure=error.cure,
            retryable=error.retryable,
            retry_after_s=error.retry_after_s,
            about_request=error.about_request,
        )


class ChainedModels:
    """`ports.Models` over the configured models: the first one answers, the others are its fallbacks in order.

    A child's model comes first in its own chain; the others follow in their order.
    """

    def __init__(
        self,
        models: Sequence[Model],
        prices: Mapping[str, Price],
        clock: Clock,
        redactor: Redactor,
        metrics: Metrics | None = None,
    ) -> None:
        """Take the configured model and its fallbacks, at least one. Their health is stored here, for this process.

        `metrics` count tokens and cost.
        """
        self._members = members = [Candidate(model=model) for model in models]
        self._log: Any = log("chain")
        self._default = Chain(members, prices, clock, redactor, metrics)
        self._named: dict[str, Chain] = {}
        for member in members:
            chain = [member, *(other for other in members if other is not member)]
            self._named.setdefault(member.model.name, Chain(chain, prices, clock, redactor, metrics))

    @property
    def names(self) -> Sequence[str]:
        """Return the names of all configured models, in order; a child may be given any of them."""
        return tuple(self._named)

    def of(self, session: Session) -> Model:
        """Return the model of a session. For a name no longer configured, log it and return the default."""
        wanted = session.lineage.model if session.lineage else ""
        if not wanted:
            return self._default
        chain = self._named.get(wanted)
        if chain is None:
            self._log.warning("no such model is configured any more", model=wanted, session=session.id)
        return chain or self._default

    async def close(self) -> None:
        """Close the models' own connections. Call once, after the last request."""
        for member in self._members:
            if isinstance(member.model, _Closing):
                await member.model.close()


@runtime_checkable
class _Closing(Protocol):
    """Model with connections of its own."""

    close: Callable[[], Awaitable[None]]


def called(member: Candidate) -> str:
    """Return a model's name for people: without its provider."""
    name = member.model.name
    return name.partition(":")[2] or name
