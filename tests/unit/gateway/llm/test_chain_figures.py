"""Metrics of a chain's answers."""

from __future__ import annotations

import pytest

from gateway.domain.steps import Usage
from gateway.llm.chain import ChainedModels, Price
from gateway.system.metrics import Metrics
from gateway.system.redaction import Redactor
from tests.support.clock import FakeClock
from tests.unit.gateway.llm.test_chain import KEY, Scripted, ask, session


async def test_tokens_and_cost_are_counted_by_the_model_that_answered() -> None:
    metrics, usage = Metrics(), Usage(input_tokens=1000, output_tokens=200, cached_tokens=300)
    answering = Scripted("openai:b", usage=usage)
    models = ChainedModels(
        [Scripted("openai:a", [KEY]), answering],
        {"openai:b": Price(input=2.0, output=10.0)},
        FakeClock(),
        Redactor(),
        metrics,
    )
    await ask(models.of(session()))

    def counted(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels)

    kinds = {
        kind: counted("dragoman_model_tokens_total", model="openai:b", kind=kind)
        for kind in ("input", "output", "cached")
    }
    assert kinds == {"input": 1000, "output": 200, "cached": 300}
    assert counted("dragoman_model_cost_total", model="openai:b") == pytest.approx(0.004)
    assert counted("dragoman_model_cost_total", model="openai:a") is None
