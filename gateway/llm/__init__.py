"""Where a turn's questions are answered: opens the configured model. Each kind is imported only when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gateway.errors import ConfigError
from gateway.model.tools import ToolSpec
from gateway.ports import Clock, Model

if TYPE_CHECKING:
    import aiohttp

OPENAI_URL = "https://api.openai.com/v1"


def open_model(
    name: str,
    *,
    session: aiohttp.ClientSession,
    base_url: str | None,
    api_key: str | None,
    specs: Mapping[str, ToolSpec],
    clock: Clock,
) -> Model:
    """Return the model called `name`: `operator` or `openai:<model>`. Raises `ConfigError` for anything else.

    `specs` are all registered tools by name and alias; the session stays the caller's.
    """
    if name == "operator":
        from gateway.llm.operator import Operator

        return Operator(specs)
    provider, _, model = name.partition(":")
    if provider == "openai" and model:
        from gateway.llm.openai_chat import OpenAIChat

        return OpenAIChat(session, model, base_url=base_url or OPENAI_URL, api_key=api_key, clock=clock)
    raise ConfigError(
        f"There is no model {name!r}.",
        cure='Set [model] name to "operator" or "openai:<model>", for instance "openai:gpt-5-mini".',
    )
