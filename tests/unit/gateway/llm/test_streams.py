"""Streams of several providers, written by hand from their documentation, which each file names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.prompts import ModelRequest
from gateway.domain.steps import Answer, Usage
from gateway.errors import ModelError
from gateway.llm.dialects import Dialect, dialect_of
from gateway.llm.openai_answer import AnswerParser
from gateway.llm.openai_payload import messages
from gateway.llm.server_errors import Peer, from_chunk, to_error

STREAMS = Path(__file__).parent / "streams"
PEER = Peer(server="example.org", model="m", api_key=None)
KERNEL = '{"command":"uname -r"}'
DISK = '{"command":"df -h"}'


@dataclass(frozen=True)
class Expected:
    text: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    usage: Usage = Usage()  # noqa: RUF009 - frozen
    opaque: tuple[str, Any] | None = None
    """Field that is sent back, and its value."""


EXPECTED = {
    "openai": Expected(
        text="Let me look.",
        calls=(("call_k", "shell", KERNEL), ("call_d", "shell", DISK)),
        usage=Usage(input_tokens=1500, output_tokens=60, cached_tokens=1280),
    ),
    "openai_refusal": Expected(text="I can't help with that."),
    "azure": Expected(text="Good morning."),
    "openrouter": Expected(
        text="Looking.",
        calls=(("toolu_1", "shell", '{"command": "uname -r"}'),),
        usage=Usage(input_tokens=900, output_tokens=70),
        opaque=(
            "reasoning_details",
            [
                {
                    "type": "reasoning.text",
                    "text": "The kernel, then.",
                    "format": "anthropic-claude-v1",
                    "index": 0,
                    "signature": "c2ln",
                }
            ],
        ),
    ),
    "ollama": Expected(
        calls=(("call_u", "shell", KERNEL), ("call_v", "shell", DISK)),
        usage=Usage(input_tokens=310, output_tokens=44),
        opaque=("reasoning", "Two calls."),
    ),
    "vllm": Expected(
        calls=(("chatcmpl-tool-9a", "shell", '{"command": "uname"}'),),
        usage=Usage(input_tokens=200, output_tokens=31),
        opaque=("reasoning", "Ask the system."),
    ),
    "llamacpp": Expected(
        calls=(("Yx81", "shell", '{"command":"uptime"}'),),
        usage=Usage(input_tokens=180, output_tokens=21),
        opaque=("reasoning_content", "Hm."),
    ),
    "litellm": Expected(
        text="Both.",
        calls=(("6d1e", "shell", '{"command": "uname -r"}'), ("77aa", "shell", '{"command": "df -h"}')),
        usage=Usage(input_tokens=80, output_tokens=12),
    ),
    "deepseek": Expected(
        text="9.8 is greater.",
        usage=Usage(input_tokens=17, output_tokens=120, cached_tokens=16),
        opaque=("reasoning_content", "9.11 or 9.8?"),
    ),
    "gemini": Expected(
        calls=(("call_1", "shell", KERNEL), ("call_2", "shell", DISK)),
        usage=Usage(input_tokens=70, output_tokens=30),
    ),
    "moonshot": Expected(text="Hello.", usage=Usage(input_tokens=19, output_tokens=3, cached_tokens=12)),
}
ERRORS = {"openrouter_error": "upstream went away", "llamacpp_too_long": "context_length_exceeded"}


def stream(name: str) -> bytes:
    return (STREAMS / f"{name}.txt").read_bytes()


def read(data: bytes) -> tuple[Answer, str]:
    """Return the answer and the streamed text. Raises `ModelError`."""
    assembly = AnswerParser(lambda error: to_error(from_chunk(error, PEER), PEER))
    streamed = assembly.feed(data) + assembly.end()
    streamed += assembly.finish()
    return assembly.answer("openai:m", ()), streamed


def calls(answer: Answer) -> tuple[tuple[str, str, str], ...]:
    return tuple((call.id, call.tool, call.arguments) for call in answer.calls)


def test_every_stream_has_its_meaning_here() -> None:
    assert {path.stem for path in STREAMS.glob("*.txt")} == EXPECTED.keys() | ERRORS.keys()
    for path in STREAMS.glob("*.txt"):
        assert path.read_text(encoding="utf-8").startswith(": Written by hand after http")


@pytest.mark.parametrize("name", EXPECTED)
def test_a_providers_stream_is_read_as_it_must_be(name: str) -> None:
    expected = EXPECTED[name]
    answer, streamed = read(stream(name))

    assert (answer.text, calls(answer), answer.usage) == (expected.text, expected.calls, expected.usage)
    assert streamed == expected.text
    if expected.opaque is not None:
        field, value = expected.opaque
        assert answer.opaque["openai"][field] == value


@pytest.mark.parametrize("name", EXPECTED)
def test_cut_after_any_event_it_is_the_whole_answer_or_an_error(name: str) -> None:
    expected = EXPECTED[name]
    events = stream(name).split(b"\n\n")
    wholes, retryable = 0, set[bool]()
    for end in range(len(events) + 1):
        try:
            answer, _ = read(b"\n\n".join(events[:end]))
        except ModelError as error:
            retryable.add(error.retryable)
            continue
        wholes += 1
        assert (answer.text, calls(answer)) == (expected.text, expected.calls)
    assert wholes >= 1
    assert retryable == {True}


@pytest.mark.parametrize("name", EXPECTED)
def test_cut_after_any_byte_it_is_the_whole_answer_or_an_error(name: str) -> None:
    expected, data = EXPECTED[name], stream(name)
    for end in range(len(data)):
        try:
            answer, _ = read(data[:end])
        except ModelError:
            continue
        assert (answer.text, calls(answer)) == (expected.text, expected.calls)


@pytest.mark.parametrize(("name", "words"), ERRORS.items())
def test_an_error_in_a_stream_is_an_error(name: str, words: str) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        read(stream(name))

    assert caught.value.too_long is (name == "llamacpp_too_long")
    assert caught.value.retryable is (name == "openrouter_error")


@pytest.mark.parametrize(
    ("name", "host", "fields"),
    [
        ("openrouter", "openrouter.ai", {"reasoning_details"}),
        ("ollama", "localhost", {"reasoning"}),
        ("vllm", "localhost", {"reasoning"}),
        ("llamacpp", "localhost", {"reasoning_content"}),
        ("litellm", "api.deepseek.com", {"reasoning_content"}),
        ("deepseek", "api.deepseek.com", {"reasoning_content"}),
        ("llamacpp", "api.groq.com", set[str]()),
        ("openai", "api.openai.com", set[str]()),
    ],
)
def test_reasoning_goes_back_as_each_provider_wants_it(name: str, host: str, fields: set[str]) -> None:
    answer, _ = read(stream(name))
    dialect = dialect_of(host, "m")
    [sent] = messages(ModelRequest(system="", messages=(answer,), tools=()), answered_by="openai:m", dialect=dialect)

    assert {key for key in sent if key.startswith("reasoning")} == fields


def test_a_signature_goes_back_with_its_call() -> None:
    answer, _ = read(stream("gemini"))
    [sent] = messages(ModelRequest(system="", messages=(answer,), tools=()), answered_by="openai:m", dialect=Dialect())
    first, second = sent["tool_calls"]

    assert first["extra_content"] == {"google": {"thought_signature": "c2lnbmF0dXJl"}}
    assert "extra_content" not in second
