"""Counters and histograms behind /metrics, one set per daemon. `server.http` adds the gauges at each request.

Outcomes of refused messages are the values of `gateway.domain.routes.DropReason`.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram


class Metrics:
    """Counters and histograms of one daemon. No global registry, so that tests can have many."""

    def __init__(self) -> None:
        """Register all metrics at zero."""
        self.registry = CollectorRegistry()
        self.messages = Counter(
            "dragoman_messages",
            "Messages taken at ingress, by outcome.",
            ["outcome"],
            registry=self.registry,
        )
        self.presses = Counter("dragoman_presses", "Presses, by outcome.", ["outcome"], registry=self.registry)
        ended = "Turns that ended, by state; not those that the store ended while they were parked."
        self.turns = Counter("dragoman_turns", ended, ["state"], registry=self.registry)
        self.calls = Counter(
            "dragoman_tool_calls", "Tool calls, by tool and result.", ["tool", "status"], registry=self.registry
        )
        self.call_seconds = Histogram(
            "dragoman_tool_seconds", "Seconds a tool call ran.", ["tool"], registry=self.registry
        )
        self.decisions = Counter(
            "dragoman_decisions", "Decisions about tool calls.", ["decision", "reason"], registry=self.registry
        )
        self.model_seconds = Histogram(
            "dragoman_model_seconds", "Seconds a model answer took.", ["model"], registry=self.registry
        )
        self.tokens = Counter(
            "dragoman_model_tokens",
            "Tokens of model answers, by model and kind: input (cached ones as well), output, cached.",
            ["model", "kind"],
            registry=self.registry,
        )
        self.cost = Counter(
            "dragoman_model_cost", "Cost of model answers in [model] currency.", ["model"], registry=self.registry
        )
        self.over_budget = Counter(
            "dragoman_over_budget", "Turns that a used-up budget of tokens or money ended.", registry=self.registry
        )
        self.sends = Counter(
            "dragoman_sends", "Sends, by channel and outcome.", ["channel", "outcome"], registry=self.registry
        )
        self.sweeps = Counter("dragoman_swept", "Rows that sweeps moved.", ["sweep"], registry=self.registry)
