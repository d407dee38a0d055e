from __future__ import annotations

import json

import pytest

from gateway.llm.openai_errors import MESSAGE_CHARS, Peer, from_chunk, from_response, not_an_answer, to_error

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
        (400, openai_error("bad field"), PEER, "refuses the request (400: bad field)", "[model]", False),
        (402, b"", PEER, "no quota left", "billing", False),
        (429, openai_error("x", "insufficient_quota"), PEER, "no quota left", "billing", False),
        (429, openai_error("slow down"), PEER, "limits how often", "Wait", True),
        (302, b"", PEER, "sends us elsewhere", "base_url", False),
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
def test_what_a_server_refused_in_words_with_a_cure(
    status: int, body: bytes, peer: Peer, words: str, cure: str, retryable: bool
) -> None:
    error = to_error(from_response(status, "application/json", body, peer), peer, 3.0)

    assert words in error.message
    assert cure in error.cure
    assert error.retryable is retryable
    assert error.retry_after_s == (3.0 if retryable else None)


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


def test_the_key_is_not_shown_by_the_peer_itself() -> None:
    assert KEY not in repr(PEER)


@pytest.mark.parametrize(
    ("error", "status", "retryable"),
    [
        ({"code": 429, "message": "busy"}, 429, True),
        ({"code": "502", "message": "upstream"}, 502, True),
        ({"type": "overloaded_error"}, 529, True),
        ({"code": "context_length_exceeded", "message": "long"}, 400, False),
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
