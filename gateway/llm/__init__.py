"""Factory of the configured models, which answer a turn's prompts. Each kind is imported only when used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.domain.proxy import Proxy
from gateway.errors import ConfigError
from gateway.llm.chain import ChainedModels, Price
from gateway.ports import Clock, Model
from gateway.system.metrics import Metrics
from gateway.system.redaction import Redactor

if TYPE_CHECKING:
    import aiohttp

__all__ = ["OPENAI_URL", "Choice", "Price", "open_model", "open_models"]

OPENAI_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Configuration of one model."""

    name: str
    """`operator` or `<provider>:<model>`."""
    base_url: str | None = None
    """URL of the server. None: the provider's own."""
    api_key: str | None = field(default=None, repr=False)
    proxy: Proxy | None = None


def open_models(
    choices: Sequence[Choice],
    prices: Mapping[str, Price],
    *,
    session: aiohttp.ClientSession,
    operator: Model,
    redactor: Redactor,
    clock: Clock,
    metrics: Metrics | None = None,
) -> ChainedModels:
    """Return the configured model with its fallbacks in order; `close` it in the end.

    `prices` are keyed by a model's name with its provider; `operator` is the model of that name; `redactor` is applied
    to failures that people see. Raises `ConfigError` for a model that cannot be opened.
    """
    opened = [
        operator
        if choice.name == operator.name
        else open_model(
            choice.name,
            session=session,
            base_url=choice.base_url,
            api_key=choice.api_key,
            clock=clock,
            proxy=choice.proxy,
        )
        for choice in choices
    ]
    if not opened:
        raise ConfigError("No model is configured.", cure='Set [model] name; "operator" is no model at all.')
    return ChainedModels(opened, prices, clock, redactor, metrics)


def open_model(
    name: str,
    *,
    session: aiohttp.ClientSession,
    base_url: str | None,
    api_key: str | None,
    clock: Clock,
    proxy: Proxy | None = None,
) -> Model:
    """Return the model called `name`: `<provider>:<model>`. Raises `ConfigError` for anything else.

    The session belongs to the caller and is used for `openai:` alone.
    """
    provider, _, model = name.partition(":")
    if not model or not provider or provider == "operator":
        raise ConfigError(
            f"There is no model {name!r}.",
            cure='Set [model] name to "operator" or "<provider>:<model>", for instance "openai:gpt-5-mini".',
        )
    if provider == "openai":
        from gateway.llm.openai_chat import OpenAIChat

        url = base_url or OPENAI_URL
        return OpenAIChat(session, model, base_url=url, api_key=api_key, clock=clock, proxy=proxy)
    return _from_library(name, base_url, api_key, proxy)


def _from_library(name: str, base_url: str | None, api_key: str | None, proxy: Proxy | None) -> Model:
    from gateway.llm.pydantic_ai import open_library

    return open_library(name, base_url=base_url, api_key=api_key, proxy=proxy)
