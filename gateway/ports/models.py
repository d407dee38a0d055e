"""Something that answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from gateway.domain.prompts import ModelEvent, ModelRequest
from gateway.domain.sessions import Session


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


class Models(Protocol):
    """The models that are configured, each with those that step in for it, and what they cost."""

    @property
    def names(self) -> Sequence[str]:
        """Those that a child may be given by name."""
        ...

    def of(self, session: Session) -> Model:
        """Who answers in a session: the configured model, or for a child the one it was given.

        What it yields is final. `AnswerRestarted` takes back the text of a failed model. The answer's `note` names the
        fallback and the reason, its usage carries the cost.
        """
        ...
