"""Settings of `[model]`: the model, its fallbacks and prices. Reads no file and no variable."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, StrictInt, WithJsonSchema, model_validator

from channels._shared.settings import ProxySetting
from config.basics import SettingsTable, address, is_in_clear, is_loopback
from config.values import Flaw

OPERATOR = "operator"
PROVIDERS: Final = frozenset({
    "alibaba", "anthropic", "azure", "azure-responses", "bedrock", "bedrock-mantle", "cerebras", "cohere",
    "crusoe", "deepseek", "fireworks", "github", "github-copilot", "google", "google-cloud", "google-decisions",
    "groq", "heroku", "huggingface", "litellm", "meta", "mistral", "moonshotai", "nebius", "ollama", "openai",
    "openai-chat", "openai-chatgpt", "openai-codex", "openai-decisions", "openai-responses", "openrouter",
    "ovhcloud", "sambanova", "snowflake", "system-one", "together", "typesafe", "vercel", "vllm", "xai", "zai",
})  # fmt: skip
"""`openai` needs no library; pydantic-ai makes the models of all others."""
_ALIASES: Final = types.MappingProxyType({
    "claude": "anthropic", "gemini": "google", "chatgpt": "openai", "gpt": "openai", "grok": "xai", "aws": "bedrock",
    "vertex": "google-cloud", "kimi": "moonshotai", "qwen": "alibaba", "llama": "ollama", "lmstudio": "openai",
    "llamacpp": "openai", "local": "openai",
})  # fmt: skip
"""Providers by names of products and servers that people write instead."""
_KEYS: Mapping[str, str] = types.MappingProxyType(
    {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "google": "GOOGLE_API_KEY"}
)
"""Usual variable of the key, by provider that always requires one."""
_PROVIDER = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_ENDPOINT = "/chat/completions"
_PATHS: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


# --- single values --------------------------------------------------------------------------


def _base_url(text: str) -> str:
    parts = address(text, "https://example.org/v1")
    if parts.path.rstrip("/").endswith(_ENDPOINT):
        cure = f'Write "{text.rstrip("/").removesuffix(_ENDPOINT)}"'
        raise Flaw(f"the address goes on to {_ENDPOINT}, which is added to it", cure)
    return text.rstrip("/")


def _model_name(text: str) -> str:
    return text if text == OPERATOR else _provider_name(text)


def _provider_name(text: str) -> str:
    provider, colon, model = text.partition(":")
    if text in PROVIDERS:
        raise Flaw(f"{text!r} is a provider without a model", f'Write, for instance, "{text}:<model>"')
    if not colon:
        raise Flaw(f"{text!r} names no provider", f'Write "operator" or "openai:{text}"')
    if provider == OPERATOR or not _PROVIDER.fullmatch(provider):
        lower = provider.lower() in PROVIDERS
        cure = 'Write a provider in lower case and its model, as in "openai:gpt-5-mini" or "anthropic:<model>"'
        cure = f'Write it in lower case: "{provider.lower()}:{model}"' if lower else cure
        raise Flaw(f"{provider!r} cannot be a provider", cure)
    if not model.strip() or model.strip() != model or not model.isprintable():
        example = "openai:gpt-5-mini" if provider == "openai" else f"{provider}:<model>"
        raise Flaw("no model is named", f'Write, for instance, "{example}"')
    if provider not in PROVIDERS:
        raise Flaw(f"there is no provider {provider!r}", _provider_cure(provider, text))
    return text


def _provider_cure(name: str, model: str) -> str:
    """Return the cure for an unknown provider: a likely one, a self-hosted server, all known ones."""
    close = difflib.get_close_matches(name.lower(), PROVIDERS, n=1)
    meant = _ALIASES.get(name.lower()) or next(iter(close), "")
    likely = f'Did you mean "{meant}:…"? ' if meant else ""
    return (
        f'{likely}For a server that speaks OpenAI\'s protocol write base_url, and "openai:{model}". '
        f"Known are: {', '.join(sorted(PROVIDERS))}"
    )


def _priced_name(text: str) -> str:
    if text == OPERATOR:
        raise Flaw("the operator is no model that costs", 'Name a model: "openai:<model>"')
    if ":" not in text:
        example = "gpt-5-mini" if text in PriceSettings.model_fields else text
        cure = f'Write a table for each model: [model.prices."openai:{example}"]'
        raise Flaw(f"{text!r} is not the name of a model", cure)
    return _provider_name(text)


def _currency(text: str) -> str:
    if not 1 <= len(text) <= 8 or not text.isprintable() or text != text.strip():
        raise Flaw(f"{text!r} cannot be a currency", 'Write 1 to 8 characters, for instance "USD" or "€"')
    return text


def a_path(text: str) -> str:
    """Return a text that can be a path. Raises `Flaw`."""
    if not text.strip() or not text.isprintable():
        raise Flaw("a path is empty, or has characters that cannot be seen", "Name a text file, or leave the key out")
    return text


def _one_or_several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


# --- tables ---------------------------------------------------------------------------------


class ProviderSettings(SettingsTable):
    """Settings shared by a model and its fallbacks."""

    base_url: Annotated[str, AfterValidator(_base_url)] | None = Field(
        default=None, description="The server to ask, when it is not the provider's own."
    )
    api_key: SecretStr | None = Field(
        default=None, description='"env:NAME" or "file:PATH". Not needed when base_url is on this machine.'
    )

    proxy: ProxySetting | None = Field(
        default=None, description='An HTTP proxy on the way there: "http://host:port", "env:NAME" or "file:PATH".'
    )

    def check_key(self, name: str) -> None:
        """Raise `Flaw` when the model `name` requires a key and none is set.

        Requirements of other than the usual providers (a key, a profile, nothing) are checked when they are opened.
        """
        variable = _KEYS.get(name.partition(":")[0])
        if variable is None or self.api_key is not None or self._is_here():
            return
        cure = f'Write api_key = "env:{variable}", or the base_url of a server on this machine'
        raise Flaw(f"{name} needs an api_key", cure, key="api_key")

    def sends_key_in_clear(self) -> bool:
        """Return whether the key leaves this machine without TLS."""
        return self.api_key is not None and is_in_clear(self.base_url or "")

    def _is_here(self) -> bool:
        return self.base_url is not None and is_loopback(urlsplit(self.base_url).hostname or "")


class FallbackSettings(ProviderSettings):
    """`[[model.fallback]]`: models tried in order when the ones before fail."""

    name: Annotated[str, AfterValidator(_model_name)] = Field(description='"<provider>:<model>", as in [model].')

    @model_validator(mode="after")
    def _can_be_asked(self) -> FallbackSettings:
        if self.name == OPERATOR:
            raise Flaw("the operator cannot be a fallback", 'Name a model: "openai:<model>"', key="name")
        self.check_key(self.name)
        return self


_Price = Annotated[float, Field(strict=True, ge=0, le=1_000_000, allow_inf_nan=False)]


class PriceSettings(SettingsTable):
    """`[model.prices."<name>"]`: prices of a million tokens of a model, in `currency`."""

    input: _Price = Field(description="A million tokens that it reads.")
    output: _Price = Field(description="A million tokens that it writes.")
    cached: _Price | None = Field(
        default=None, description="A million tokens that it reads from its provider's cache. Default: as input."
    )

    @property
    def cached_or_input(self) -> float:
        """The price of a million cached tokens."""
        return self.input if self.cached is None else self.cached


class ModelSettings(ProviderSettings):
    """`[model]`."""

    name: Annotated[str, AfterValidator(_model_name)] = Field(
        default=OPERATOR,
        description='"operator" (no model: people drive the tools themselves), "openai:<model>", "anthropic:<model>", '
        '"google:<model>", or another provider\'s.',
    )
    fallback: tuple[FallbackSettings, ...] = Field(default=(), description="Models that are asked when this one fails.")
    context_tokens: StrictInt = Field(
        default=100_000, ge=4_000, le=100_000_000, description="Tokens of a conversation that the models are given."
    )
    instructions: Annotated[
        tuple[Annotated[str, AfterValidator(a_path)], ...], BeforeValidator(_one_or_several), WithJsonSchema(_PATHS)
    ] = Field(default=(), description="Text files that follow the system prompt; relative to the configuration file.")
    currency: Annotated[str, AfterValidator(_currency)] = Field(default="USD", description="What prices are in.")
    prices: dict[Annotated[str, AfterValidator(_priced_name)], PriceSettings] = Field(
        default_factory=dict[str, PriceSettings], description="Prices by a model's name."
    )

    @model_validator(mode="after")
    def _can_be_asked(self) -> ModelSettings:
        if self.name == OPERATOR and self.fallback:
            raise Flaw("the operator needs no fallback", "Set model.name, or remove [[model.fallback]]", key="fallback")
        self.check_key(self.name)
        self._check_twice()
        return self

    def _check_twice(self) -> None:
        """Raise `Flaw` for two models of one name: reasoning, prices and lookup are keyed by it."""
        seen = {self.name}
        for one in self.fallback:
            if one.name in seen:
                cure = (
                    "Remove one; for the same model at two servers, let one server call it otherwise (vLLM: "
                    "--served-model-name, Ollama: `ollama cp`)"
                )
                raise Flaw(f"two models are called {one.name!r}", cure, key="fallback")
            seen.add(one.name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the model and its fallbacks, without duplicates."""
        return tuple(dict.fromkeys([self.name, *(one.name for one in self.fallback)]))
