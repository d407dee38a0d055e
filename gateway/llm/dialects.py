"""Deviations of model servers from plain chat completions: tables and two pure lookups. Used by `openai_chat`.

One table has the deviations known from a server's address or a model's name. The other has the error texts of servers
that refuse a part of a request; the request is then repeated without that part. Fields that some servers refuse and
nobody needs are never sent: `max_tokens` (newer OpenAI models want `max_completion_tokens`), `temperature`,
`tool_choice`, `parallel_tool_calls`.

Oddities of answers need no table: `openai_answer` reads every form from every server. Ollama, and LiteLLM before it,
give all calls the index 0, arguments as an object, and `stop` after calls
(https://github.com/BerriAI/litellm/pull/37792, https://github.com/ollama/ollama/pull/7963). Chunks without choices
carry usage (OpenAI with `include_usage`) or a content filter's report (Azure). Moonshot has usage inside the choice.
OpenRouter sends comments between events (https://openrouter.ai/docs/api/reference/streaming) and errors as an event
after a good beginning (https://openrouter.ai/docs/api/reference/errors-and-debugging). Others leave out ids of calls,
or `[DONE]` after the finish.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gateway.llm.schemas import Flavour


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Form of requests that one server accepts."""

    schemas: Flavour = Flavour.PLAIN
    """Provider whose rules apply to the schemas of tools."""
    system_role: str = "system"
    usage: bool = True
    """It accepts `stream_options`, and then reports token usage."""
    images: bool = True
    """It accepts pictures."""
    reasoning: bool = True
    """It accepts its own reasoning back."""
    reasoning_everywhere: bool = False
    """It requires reasoning in every answer with calls, even in one of another model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """Known deviation of servers and models whose address and name match. Empty matches all."""

    host: str = ""
    model: str = ""
    sets: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """Change of the dialect after an error text that matches `words`."""

    words: str
    sets: Mapping[str, Any]
    role: str = ""
    """Applies only if the system prompt was sent in this role."""
    images: bool = False
    """Applies only if the request had pictures."""


_KNOWN = (
    # Schemas follow the provider's rules even behind OpenRouter, LiteLLM or another proxy, which passes them on. The
    # model's name identifies the provider (`google/gemini-…`, `moonshotai/kimi-…`, `claude-…`).
    _Known(model=r"(^|[/:.])gemini", sets={"schemas": Flavour.GEMINI}),
    _Known(model=r"(^|[/:.])(kimi|moonshot)", sets={"schemas": Flavour.MOONSHOT}),
    _Known(model=r"(^|[/:.])claude", sets={"schemas": Flavour.ANTHROPIC}),
    _Known(model=r"(^|[/:.])(gpt-[345]|chatgpt|o[134]\b)", sets={"schemas": Flavour.OPENAI}),
    _Known(host=r"(^|\.)openai\.(com|azure\.com)$", sets={"schemas": Flavour.OPENAI}),
    _Known(host=r"^generativelanguage\.googleapis\.com$", sets={"schemas": Flavour.GEMINI}),
    _Known(host=r"(^|\.)(moonshot\.(ai|cn)|kimi\.com)$", sets={"schemas": Flavour.MOONSHOT}),
    _Known(host=r"(^|\.)anthropic\.com$", sets={"schemas": Flavour.ANTHROPIC}),
    # A conversation that another model began: https://github.com/earendil-works/pi/pull/3640,
    # https://api-docs.deepseek.com/guides/thinking_mode#tool-calls
    _Known(host=r"(^|\.)deepseek\.com$", sets={"reasoning_everywhere": True}),
    # Both refuse unknown fields: https://github.com/charmbracelet/crush/issues/1590,
    # https://github.com/janhq/jan/issues/8136
    _Known(host=r"(^|\.)(mistral\.ai|groq\.com)$", sets={"reasoning": False}),
)
"""Known deviations in order; a later one overrides."""

_REFUSED = (
    # Mistral's 422, https://github.com/openai/openai-agents-python/issues/442; Azure's and Databricks' 400,
    # https://github.com/langgenius/dify-plugin-sdks/pull/50, https://github.com/anomalyco/opencode/issues/4698
    _Refused(words=r"stream_options|include_usage", sets={"usage": False}),
    # o1-mini takes neither: https://github.com/pydantic/pydantic-ai/issues/974,
    # https://github.com/QuantumNous/new-api/issues/847
    _Refused(words=r"role\W.*\bsystem\b", role="system", sets={"system_role": "developer"}),
    _Refused(words=r"role\W.*\bdeveloper\b|\bdeveloper\b.*role", role="developer", sets={"system_role": "user"}),
    # Before the next entry, which matches these texts too.
    # https://github.com/decolua/9router/issues/355, https://github.com/Gitlawb/openclaude/issues/878
    _Refused(
        words=r"missing .{0,3}reasoning_content|reasoning_content.* must be passed back",
        sets={"reasoning": True, "reasoning_everywhere": True},
    ),
    _Refused(
        words=r"reasoning(_content|_details)?\b.*(unsupported|not supported|not permitted|extra_forbidden|unrecognized)"
        r"|(extra_forbidden|not permitted|unknown field).*reasoning(_content|_details)?\b",
        sets={"reasoning": False, "reasoning_everywhere": False},
    ),
    # llama.cpp's 500, https://github.com/ggml-org/llama.cpp/issues/13566; OpenRouter's 404,
    # https://github.com/JohnnyZ93/oai-compatible-copilot/issues/229; Ollama's 400,
    # https://github.com/ollama/ollama/issues/17301; DeepSeek's, https://github.com/lessweb/deepcode-cli/issues/50;
    # vLLM's, https://github.com/vllm-project/vllm/issues/23402
    _Refused(
        words=r"(image|vision).{0,40}(not support|unsupported|n't support)|support.{0,20}(image|vision)"
        r"|unknown variant .?image_url|not a multimodal model|at most 0 image|image_url is only supported",
        images=True,
        sets={"images": False},
    ),
    # Behind a proxy whose model name does not show the provider. https://github.com/MoonshotAI/kimi-cli/issues/1595
    _Refused(words=r"moonshot flavored json schema", sets={"schemas": Flavour.MOONSHOT}),
    # https://github.com/pizza-bot-app/pizza-bot/issues/62
    _Refused(words=r"function_?declarations", sets={"schemas": Flavour.GEMINI}),
    # https://github.com/anthropics/claude-code/issues/27337
    _Refused(words=r"input_schema", sets={"schemas": Flavour.ANTHROPIC}),
    # https://github.com/langchain-ai/langchainjs/issues/9804
    _Refused(words=r"invalid schema for function", sets={"schemas": Flavour.OPENAI}),
)
"""Refusals in order; the first that matches and changes anything applies."""

_MAY_BE_A_PART = frozenset({400, 404, 415, 422, 500, 501})
"""HTTP statuses with which servers refuse a part of a request; llama.cpp sends 500, OpenRouter 404."""


def dialect_of(host: str, model: str) -> Dialect:
    """Return the dialect known for a server and its model before the first request."""
    found = Dialect()
    for known in _KNOWN:
        if re.search(known.host, host, re.IGNORECASE) and re.search(known.model, model, re.IGNORECASE):
            found = replace(found, **known.sets)
    return found


def instead(dialect: Dialect, status: int, said: str, *, images: bool) -> Mapping[str, Any]:
    """Return the change of a dialect after a refusal with this text; empty when no entry applies.

    `images`: the request had pictures.
    """
    if status not in _MAY_BE_A_PART:
        return {}
    for refused in _REFUSED:
        applies = (not refused.role or refused.role == dialect.system_role) and (images or not refused.images)
        if applies and re.search(refused.words, said, re.IGNORECASE | re.DOTALL):
            changed = {key: value for key, value in refused.sets.items() if getattr(dialect, key) != value}
            if changed:
                return changed
    return {}
