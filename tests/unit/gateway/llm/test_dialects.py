from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.llm.dialects import Dialect, dialect_of, instead
from gateway.llm.schemas import Flavour

USUAL = Dialect()


@pytest.mark.parametrize(
    ("host", "model", "expected"),
    [
        ("localhost", "qwen3:8b", USUAL),
        ("example.org", "m", USUAL),
        ("api.openai.com", "gpt-5-mini", Dialect(schemas=Flavour.OPENAI)),
        ("mine.openai.azure.com", "my-deployment", Dialect(schemas=Flavour.OPENAI)),
        ("notopenai.com", "m", USUAL),
        ("openrouter.ai", "google/gemini-3-flash", Dialect(schemas=Flavour.GEMINI)),
        ("openrouter.ai", "moonshotai/kimi-k2", Dialect(schemas=Flavour.MOONSHOT)),
        ("openrouter.ai", "anthropic/claude-x", Dialect(schemas=Flavour.ANTHROPIC)),
        ("openrouter.ai", "openai/gpt-5", Dialect(schemas=Flavour.OPENAI)),
        ("openrouter.ai", "meta-llama/llama-4", USUAL),
        ("localhost", "gpt-oss:20b", USUAL),
        ("generativelanguage.googleapis.com", "models/x", Dialect(schemas=Flavour.GEMINI)),
        ("api.moonshot.cn", "m", Dialect(schemas=Flavour.MOONSHOT)),
        ("api.kimi.com", "m", Dialect(schemas=Flavour.MOONSHOT)),
        ("api.anthropic.com", "m", Dialect(schemas=Flavour.ANTHROPIC)),
        ("api.deepseek.com", "deepseek-v4-pro", Dialect(reasoning_everywhere=True)),
        ("api.groq.com", "m", Dialect(reasoning=False)),
        ("api.mistral.ai", "m", Dialect(reasoning=False)),
        ("127.0.0.1", "gemini/gemini-2.5-flash", Dialect(schemas=Flavour.GEMINI)),
    ],
)
def test_dialect_is_known_by_host_and_model(host: str, model: str, expected: Dialect) -> None:
    assert dialect_of(host, model) == expected


@pytest.mark.parametrize(
    ("status", "said", "changes"),
    [
        (400, "Unrecognized request argument supplied: stream_options", {"usage": False}),
        (422, "extra_forbidden body stream_options include_usage Extra inputs are not permitted", {"usage": False}),
        (
            400,
            "unsupported_value Unsupported value: 'messages[0].role' does not support 'system' with this model.",
            {"system_role": "developer"},
        ),
        (500, "image input is not supported by this server", {"images": False}),
        (500, "image input is not supported - hint: you may need to provide the mmproj", {"images": False}),
        (404, "No endpoints found that support image input", {"images": False}),
        (400, "this model does not support image input (ref: b8bd)", {"images": False}),
        (400, "m is not a multimodal model", {"images": False}),
        (400, "At most 0 image(s) may be provided in one prompt.", {"images": False}),
        (
            400,
            "Failed to deserialize the JSON body: messages[1]: unknown variant `image_url`, expected `text`",
            {"images": False},
        ),
        (
            400,
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
            {"reasoning_everywhere": True},
        ),
        (400, "Missing `reasoning_content` field in the assistant message at index 2", {"reasoning_everywhere": True}),
        (
            400,
            "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property "
            "'reasoning_content' is unsupported)]",
            {"reasoning": False},
        ),
        (
            422,
            '[{"type": "extra_forbidden", "loc": ["body", "messages", 3, "assistant", "reasoning_content"]}]',
            {"reasoning": False},
        ),
        (
            400,
            "tools.function.parameters is not a valid moonshot flavored json schema, details: <At path 'root'>",
            {"schemas": Flavour.MOONSHOT},
        ),
        (
            400,
            "Invalid JSON payload received. Unknown name \"exclusiveMinimum\" at 'tools[0].function_declarations[6]'",
            {"schemas": Flavour.GEMINI},
        ),
        (
            400,
            "tools.202.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level",
            {"schemas": Flavour.ANTHROPIC},
        ),
        (
            400,
            "Invalid schema for function 'x': schema must have type 'object'",
            {"schemas": Flavour.OPENAI},
        ),
        (400, "bad field", {}),
        (401, "stream_options", {}),
        (429, "image input is not supported", {}),
        (503, "image input is not supported", {}),
    ],
)
def test_refused_field_is_left_out_of_the_next_request(status: int, said: str, changes: dict[str, Any]) -> None:
    assert instead(USUAL, status, said, images=True) == changes
    assert instead(replace(USUAL, **changes), status, said, images=True) == {}


def test_without_pictures_none_are_left_out() -> None:
    assert instead(USUAL, 500, "image input is not supported by this server", images=False) == {}


def test_system_prompt_is_sent_as_user_when_roles_are_refused() -> None:
    said = "Unsupported value: 'messages[0].role' does not support '{}' with this model."
    once = replace(USUAL, **instead(USUAL, 400, said.format("system"), images=False))
    twice = replace(once, **instead(once, 400, said.format("developer"), images=False))

    assert (once.system_role, twice.system_role) == ("developer", "user")
    assert instead(twice, 400, said.format("user"), images=False) == {}
