"""Names of the model providers, the part of `[model] name` before its colon."""

from __future__ import annotations

import difflib
import types
from typing import Final

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
"""Providers by the names of products and servers that people write in their place."""


def cure_for(name: str, model: str) -> str:
    """Return the cure for a provider that does not exist: the likely one, a server of one's own, all known ones."""
    close = difflib.get_close_matches(name.lower(), PROVIDERS, n=1)
    meant = _ALIASES.get(name.lower()) or next(iter(close), "")
    likely = f'Did you mean "{meant}:…"? ' if meant else ""
    return (
        f'{likely}For a server that speaks OpenAI\'s protocol write base_url, and "openai:{model}". '
        f"Known are: {', '.join(sorted(PROVIDERS))}"
    )
