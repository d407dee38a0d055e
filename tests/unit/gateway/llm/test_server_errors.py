from __future__ import annotations

import json

import pytest

from gateway.llm.server_errors import MESSAGE_CHARS, Peer, from_chunk, from_response, not_an_answer, to_error

KEY = "sk-proj-0123456789abcdef"
PEER = Peer(server="api.example.org", model="gpt-5-mini", api_key=KEY)
KEYLESS = Peer(server="localhost:8000", model="llama", api_key=None)


def openai_error(message: str, code: str | None = None) -> bytes:
    return json.dumps({"error": {"message": message, "type": "t", "code": code}}).encode()


@pytest.mark.parametrize(
    ("status", "body", "peer", "words", "cure", "retryable"),
    [
        (401, openai_error("Incorrect"), PEER, "The key for api.example.org is refused", "[model] api_key", False),
        (403, openai_error("Forbidden"), PEER, "is refused (403: Forbidden)", "[model] api_key", False),
        (401, b"", KEYLESS, "localhost:8000 wants a key", "env:OPENAI_API_KEY", False),
        (404, openai_error("No such model"), PEER, "does not know the model gpt-5-mini", "name and base_url", False),
        (400, openai_error("x", "model_not_found"), PEER, "does not know the model", "name and base_url", False),
        (400, openai_error("x", "context_length_exceeded"), PEER, "context_length_exceeded", "/new", False),
        (400, openai_error("maximum context length is 8192"), PEER, "context_length_exceeded", "/new", False),
        (413, b"prompt is too long", PEER, "context_length_exceeded", "/new", False),
        (413, b"<html><title>413 Request Entity Too Large", PEER, "context_length_exceeded", "/new", False),
        (403, openai_error("Your input was flagged"), PEER, "refuses the content", "other words", False),
        (400, openai_error("API key not valid. Please pass a valid API key."), PEER, "is refused", "api_key", False),
        (
            401,
            openai_error("Your API key expired on 1 May"),
            PEER,
            "refused (401: Your API key expired",
            "a valid",
            False,
        ),
        (400, openai_error("registry.ollama.ai/library/x does not support tools"), PEER, "no tools", "--jinja", False),
        (400, openai_error('"auto" tool choice requires --enable-auto-tool-choice'), PEER, "no tools", "vLLM", False),
        (404, openai_error("No endpoints found that support tool use."), PEER, "no tools", "can call tools", False),
        (400, openai_error("bad field"), PEER, "refuses the request (400: bad field)", "[model]", False),
        (402, b"", PEER, "no quota left", "billing", False),
        (429, openai_error("x", "insufficient_quota"), PEER, "no quota left", "billing", False),
        (429, openai_error("slow down"), PEER, "limits how often", "Wait", True),
        (302, b"", PEER, "redirects requests", "base_url", False),
        (408, b"", PEER, "failed (408: no reason given)", "Ask again", True),
        (409, b"", PEER, "failed (409", "Ask again", True),
        (500, openai_error("boom"), PEER, "failed (500: boom)", "Ask again", True),
        (502, b"<html><title>Bad\n gateway</title>", PEER, "a web page, “Bad gateway”", "Ask again", True),
        (503, b"\xff\xfe", PEER, "failed (503", "Ask again", True),
        (504, b"[" * 60_000, PEER, "failed (504", "Ask again", True),
        (529, b'{"type":"error","error":{"type":"overloaded_error"}}', PEER, "529", "Ask again", True),
        (501, b"", PEER, "refuses the request (501", "[model]", False),
    ],
)
def test_refusal_of_a_server_has_words_and_a_cure(
    status: int, body: bytes, peer: Peer, words: str, cure: str, retryable: bool
) -> None:
    error = to_error(from_response(status, "application/json", body, peer), peer, 3.0)

    assert words in error.message
    assert cure in error.cure
    assert error.retryable is retryable
    assert error.retry_after_s == (3.0 if retryable else None)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens"),  # vLLM
        (400, "The prompt (total length 25938) is too long to fit into the model (context length 4096)."),
        (400, "max_tokens must be at least 1, got -186."),
        (400, "The decoder prompt (length 9000) is longer than the maximum model length of 8192."),
        (400, "the request exceeds the available context size. try increasing the context size"),  # llama.cpp
        (500, "the request exceeds the available context size. try increasing the context size"),
        (400, "prompt too long; exceeded max context length by 12 tokens"),  # Ollama
        (400, "This endpoint's maximum context length is 16384 tokens."),  # OpenRouter
        (400, "litellm.ContextWindowExceededError: AnthropicError - prompt is too long: 209303 tokens > 200000"),
        (400, "input length and `max_tokens` exceed context limit: 179413 + 32768 > 200000"),  # Anthropic
        (400, "Input tokens exceed the configured limit of 272000 tokens."),  # Azure
        (400, "The input token count (2800010) exceeds the maximum number of tokens allowed (1048575)."),  # Gemini
        (400, "Invalid request: Your request exceeded model token limit: 8192"),  # Moonshot
        (429, "Request too large for gpt-5 on tokens per min (TPM): Limit 30000, Requested 40000."),
    ],
)
def test_too_long_is_recognised_in_each_servers_words(status: int, words: str) -> None:
    error = to_error(from_response(status, "application/json", openai_error(words), PEER), PEER)

    assert error.too_long
    assert not error.retryable
    assert "/new" in error.cure


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (429, "Rate limit reached for gpt-5: tokens per min. The context window is fine."),
        (400, "max_tokens must be at least 1, got 0."),
        (401, "maximum context"),
        (400, "Invalid schema for function 'x'"),
    ],
)
def test_other_refusals_are_not_too_long(status: int, words: str) -> None:
    assert not to_error(from_response(status, "application/json", openai_error(words), PEER), PEER).too_long


def test_providers_error_behind_a_router_is_reported() -> None:
    inner = {"message": "Provider returned error", "code": 400, "metadata": {"raw": "maximum context length is 9"}}
    refusal = from_response(400, "application/json", json.dumps({"error": inner}).encode(), PEER)

    assert refusal.message == "Provider returned error: maximum context length is 9"
    assert to_error(refusal, PEER).too_long


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (openai_error("of OpenAI"), "of OpenAI"),
        (b'{"detail":"of FastAPI"}', "of FastAPI"),
        (b'{"detail":[{"msg":"of pydantic"}]}', '[{"msg": "of pydantic"}]'),
        (b'{"error":"a string"}', "a string"),
        (b'{"message":"flat"}', "flat"),
        (b"[1]", ""),
        (b"plain\n\x00 text", "plain text"),
    ],
)
def test_errors_of_many_shapes(body: bytes, message: str) -> None:
    assert from_response(400, "application/json", body, PEER).message == message


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
@pytest.mark.parametrize(
    "said", [f"bad key {KEY}!", f"{'x' * 480} {KEY}", "Incorrect API key provided: sk-proj-********cdef. See"]
)
def test_the_key_is_never_said_and_the_message_is_bounded(status: int, said: str) -> None:
    for body, kind in ((openai_error(said, KEY), "application/json"), (said.encode(), "text/plain")):
        error = to_error(from_response(status, kind, body, PEER), PEER)

        assert "sk-proj" not in str(error)
        assert "cdef" not in str(error)
        assert len(error.message) < MESSAGE_CHARS + 200


@pytest.mark.parametrize(
    ("status", "said", "about_request"),
    [
        (400, "flagged by moderation", True),
        (403, "content policy", True),
        (400, "messages[3] is odd", True),
        (422, "messages[3] is odd", True),
        (401, "expired", False),
        (402, "no credit", False),
        (404, "model_not_found", False),
        (429, "slow", False),
        (500, "oops", False),
        (405, "no", False),
    ],
)
def test_errors_about_the_request_differ_from_server_errors(status: int, said: str, about_request: bool) -> None:
    error = to_error(from_response(status, "application/json", openai_error(said, ""), PEER), PEER)

    assert error.about_request is about_request


def test_the_key_is_not_shown_by_the_peer_itself() -> None:
    assert KEY not in repr(PEER)


@pytest.mark.parametrize(
    ("error", "status", "retryable"),
    [
        ({"code": 429, "message": "busy"}, 429, True),
        ({"code": "502", "message": "upstream"}, 502, True),
        ({"type": "overloaded_error"}, 529, True),
        ({"code": "context_length_exceeded", "message": "long"}, 400, False),
        ({"code": 500, "type": "exceed_context_size_error", "message": "x"}, 500, False),
        ({"code": None, "type": "rate_limit_error", "message": "x"}, 429, True),
        ({"code": "invalid_api_key", "message": "no"}, 401, False),
        ({"code": None, "message": "?"}, 500, True),
        ("just words", 500, True),
        (["odd"], 500, True),
    ],
)
def test_errors_inside_a_stream(error: object, status: int, retryable: bool) -> None:
    refusal = from_chunk(error, PEER)

    assert refusal.status == status
    assert to_error(refusal, PEER).retryable is retryable


def test_a_web_page_instead_of_an_answer_points_to_the_address() -> None:
    error = not_an_answer("text/html", PEER)

    assert "a web page" in error.message
    assert "base_url" in error.cure
