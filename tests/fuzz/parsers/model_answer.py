"""Answers of a model's server: whole and storable, however their bytes arrive, or a `ModelError`."""

from __future__ import annotations

from random import Random

from gateway.domain import nesting
from gateway.domain.ids import CallId
from gateway.domain.steps import Answer
from gateway.errors import ModelError
from gateway.llm import openai_answer, sse
from gateway.llm.openai_answer import AnswerLimits, AnswerParser
from gateway.llm.server_errors import Peer, from_chunk, to_error
from gateway.store.codec import ANSWER

READS = (sse, openai_answer, nesting)
WORDS = (
    *(b"data: ", b"data:", b": comment", b"event: error", b"[DONE]", b"\r\n\r\n", b"choices", b"delta", b"content"),
    *(b"tool_calls", b"function", b"arguments", b"name", b"index", b"finish_reason", b"stop", b"length", b"usage"),
    *(b"prompt_tokens", b"prompt_tokens_details", b"cached_tokens", b"reasoning_content", b"reasoning_details"),
    *(b"extra_content", b"error", b"message", b"content_filter", b"tool_calls", b"text", b"type", b"refusal"),
)
PEER = Peer(server="a.example", model="m", api_key="sk-test")
LIMITS = AnswerLimits(text_chars=50_000, argument_chars=50_000, calls=20)
TAKEN = frozenset({CallId("call_1")})
LARGEST = 2**63 - 1
"""Largest whole number of a store."""


def target(data: bytes) -> None:
    """A stream, at once and in pieces; then the same bytes as a whole completion."""
    whole = _streamed([data])
    size = 1 + len(data) % 97
    assert _streamed([data[n : n + size] for n in range(0, len(data), size)]) == whole, "where it is cut matters"
    random = Random(len(data))
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(5))
    assert _streamed([data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]) == whole
    _completed(data)


def _streamed(pieces: list[bytes]) -> Answer | str:
    assembly = _assembly()
    texts: list[str] = []
    try:
        for piece in pieces:
            texts.append(assembly.feed(piece))
            if assembly.done:
                break
        else:
            texts.append(assembly.end())
        texts.append(assembly.finish())
    except ModelError as error:
        return _refused(error)
    answer = assembly.answer("openai:m", TAKEN)
    assert answer.text == "".join(texts), "what was shown is not what is kept"
    return _checked(answer)


def _completed(data: bytes) -> Answer | str:
    assembly = _assembly()
    try:
        assembly.feed_completion(data)
        assembly.finish()
    except ModelError as error:
        return _refused(error)
    return _checked(assembly.answer("openai:m", TAKEN))


def _assembly() -> AnswerParser:
    return AnswerParser(lambda error: to_error(from_chunk(error, PEER), PEER), LIMITS)


def _refused(error: ModelError) -> str:
    assert "sk-test" not in str(error)
    assert len(str(error)) < 2000
    str(error).encode()
    return str(error)


def _checked(answer: Answer) -> Answer:
    ids = [call.id for call in answer.calls]
    assert len({*ids, *TAKEN}) == len(ids) + 1, "two calls of one id"
    assert len(ids) <= LIMITS.calls
    assert len(answer.text) <= LIMITS.text_chars + 100
    for text in (answer.text, *ids, *(call.tool for call in answer.calls), *(call.arguments for call in answer.calls)):
        text.encode()
    usage = answer.usage
    assert all(0 <= n <= LARGEST for n in (usage.input_tokens, usage.output_tokens, usage.cached_tokens))
    again = ANSWER.load(ANSWER.dump(answer))
    assert (again.text, again.calls, again.usage) == (answer.text, answer.calls, answer.usage)
    return answer
