from __future__ import annotations

import pytest

from gateway.domain.steps import Usage
from gateway.llm.chain import Price, cost_micros

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
