"""Protocols of language models. Implemented by `gateway.llm`, used by `gateway.agent`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from gateway.domain.prompts import ModelEvent, ModelRequest
from gateway.domain.sessions import Session


class Model(Protocol):
    """Language model, or the operator that stands in for one."""

    @property
    def name(self) -> str:
        """Configured name, for records: `operator`, `openai:gpt-5-mini`."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Send a request. Yield text as it streams, and `Complete` last.

        Raises `ModelError`, never a shortened answer. Retries happen only inside. Closing the iterator cancels the
        request.
        """
        ...


class Models(Protocol):
    """Configured models, each with its fallbacks and prices."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the models that a child may be given."""
        ...

    def of(self, session: Session) -> Model:
        """Return the model of a session: the configured one, or the one that a child was given.

        Its stream is final. `AnswerRestarted` voids the text of a failed model. The answer's `note` names the fallback
        and the reason; its usage contains the cost.
        """
        ...
