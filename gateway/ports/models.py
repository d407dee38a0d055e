"""Something that answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from gateway.model.prompts import ModelEvent, ModelRequest


class Model(Protocol):
    """Something that answers."""

    @property
    def name(self) -> str:
        """As configured, for records: `operator`, `openai:gpt-5-mini`."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Ask. Yields text as it comes and `Complete` last. Raises `ModelError`; never a shorter answer.

        Retries inside are the only ones. Closing the iterator stops the request.
        """
        ...
