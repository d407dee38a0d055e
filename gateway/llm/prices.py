"""Beside a model's answer: what it cost. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.domain.steps import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a million tokens of one model cost, in the configured currency."""

    input: float
    output: float
    cached: float | None = None
    """Read from the provider's cache; None: as `input`."""


def cost_micros(usage: Usage, price: Price) -> int:
    """Return millionths of the currency, to the nearest; cached tokens are a part of those read.

    A price for a million tokens is, as a number, the millionths that one token costs.
    """
    cached = min(usage.cached_tokens, usage.input_tokens)
    read_again = price.input if price.cached is None else price.cached
    return round((usage.input_tokens - cached) * price.input + cached * read_again + usage.output_tokens * price.output)
