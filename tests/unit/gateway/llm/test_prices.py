from __future__ import annotations

import pytest

from gateway.llm.prices import Price, cost_micros, price_of
from gateway.model.steps import Usage

MINI = Price(input=0.25, output=2.0, cached=0.025)


@pytest.mark.parametrize(
    ("usage", "price", "micros"),
    [
        (Usage(), MINI, 0),
        (Usage(input_tokens=1_000_000), MINI, 250_000),
        (Usage(input_tokens=1_000_000, cached_tokens=1_000_000), MINI, 25_000),
        (Usage(input_tokens=1_000, cached_tokens=400, output_tokens=10), MINI, 180),
        (Usage(input_tokens=1_000, cached_tokens=400), Price(input=0.25, output=2.0), 250),
        (Usage(input_tokens=1_000, cached_tokens=400), Price(input=0.25, output=2.0, cached=0.0), 150),
        (Usage(input_tokens=10, cached_tokens=99), Price(input=3.0, output=15.0, cached=0.3), 3),
        (Usage(input_tokens=10**9, output_tokens=10**9), Price(input=75.0, output=150.0), 225 * 10**9),
    ],
)
def test_cached_tokens_are_a_part_of_those_read_and_priced_apart(usage: Usage, price: Price, micros: int) -> None:
    assert cost_micros(usage, price) == micros


@pytest.mark.parametrize(
    ("model", "found"),
    [("openai:gpt-5-mini", True), ("library:gpt-5-mini", True), ("openai:gpt-5", False), ("operator", False)],
)
def test_a_price_is_found_with_or_without_the_provider(model: str, found: bool) -> None:
    assert (price_of({"gpt-5-mini": MINI}, model) is MINI) is found


def test_the_full_name_comes_first() -> None:
    other = Price(input=1, output=1)

    assert price_of({"m": MINI, "openai:m": other}, "openai:m") is other
    assert price_of({}, "openai:m") is None
