"""Factory of pydantic-ai's models, with the configured key and address. Kept apart, as its imports may fail."""

from __future__ import annotations

import inspect
from typing import Any

from httpx2 import URL, AsyncClient, InvalidURL
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class

from gateway.errors import ConfigError


def their_model(
    name: str, *, base_url: str | None, api_key: str | None, client: AsyncClient, proxied: bool = False
) -> Model:
    """Return the model, which uses `client`; the client belongs to the caller. Sends nothing.

    `proxied`: the client goes through a proxy, so a provider with a client of its own is refused. Raises `ConfigError`,
    also for a provider whose package is missing.
    """
    if not name.partition(":")[2].strip():
        raise ConfigError(f"{name} names no model.", cure='Correct [model] name, as in "anthropic:claude-sonnet-5".')
    try:
        URL(base_url or "")
        return infer_model(name, lambda provider: _provider(provider, base_url, api_key, client, proxied))
    except ImportError as error:
        raise ConfigError(
            f"The model {name} needs a package that is not installed: {error}.",
            cure="The extra `providers` brings Anthropic's and Google's; install others' into the same environment. "
            'A server that speaks OpenAI\'s protocol needs none: write "openai:<model>" and its base_url.',
        ) from error
    except InvalidURL as error:  # httpx2 is stricter about host names than aiohttp
        raise ConfigError(
            f"The model {name} cannot be asked at its base_url: {error}.",
            cure='Correct [model] base_url, as in "https://example.org/v1".',
        ) from error
    except (UserError, ValueError) as error:
        raise ConfigError(
            f"The model {name} cannot be used: {error}.",
            cure='Correct [model] name, as in "anthropic:claude-sonnet-5", and set [model] api_key.',
        ) from error


def _provider(
    name: str, base_url: str | None, api_key: str | None, client: AsyncClient, proxied: bool
) -> Provider[Any]:
    """Make a provider with the configured values; its package may still read others from the environment."""
    made = infer_provider_class(name)
    known = inspect.signature(made.__init__).parameters
    given = {key: value for key, value in (("base_url", base_url), ("api_key", api_key)) if value is not None}
    unknown = [key for key in given if key not in known]
    if unknown:
        raise ConfigError(
            f"The provider {name} takes no {' and no '.join(unknown)}.",
            cure="Remove it from [model], and set the provider up in the environment as its own guide says.",
        )
    if proxied and "http_client" not in known:
        raise ConfigError(
            f"The provider {name} takes no proxy: it connects by itself.",
            cure="Remove proxy from [model], and set the proxy up in the environment as the provider's own guide says.",
        )
    return made(**given, **({"http_client": client} if "http_client" in known else {}))
