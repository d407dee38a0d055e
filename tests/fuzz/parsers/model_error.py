"""Refusals of a model's server: a bounded text with a cure and without the key, for every error page."""

from __future__ import annotations

import json

from gateway.llm import dialects, server_errors
from gateway.llm.dialects import dialect_of, instead
from gateway.llm.server_errors import Peer, from_chunk, from_response, not_an_answer, to_error
from gateway.policy import retry
from gateway.policy.retry import Failure, next_try, retry_after_s
from tests.fuzz import givens

READS = (server_errors, dialects, retry)
WORDS = (
    *(b"error", b"message", b"code", b"type", b"metadata", b"raw", b"detail", b"<title>", b"</title>", b"<title"),
    *(b"context_length_exceeded", b"maximum context", b"insufficient_quota", b"model_not_found", b"sk-test-0123"),
    *(b"***", b"429", b"400", b"text/html", b"Retry-After", b"Wed, 21 Oct 2026 07:28:00 GMT", b"+9999", b"1e400"),
    *(b"input tokens", b"input token count", b"api key", b"max_tokens must be at least 1, got -", b"99999999999"),
    *(b"unsupported parameter", b"max_completion_tokens", b"temperature", b"stream_options", b"parallel_tool_calls"),
)
KEY = "sk-test-0123456789"
PEER = Peer(server="a.example", model="m", api_key=KEY)


def target(data: bytes) -> None:
    """The first line is the status, the second the type, the third `Retry-After`, the rest the body."""
    status, kind, after, body = givens.parts(data, 4)
    kind, after = kind[: givens.HEADER_AT_MOST], after[: givens.HEADER_AT_MOST]
    code = int(status) if status.isdigit() and len(status) == 3 else 400
    wait_s = retry_after_s(after.decode("utf-8", "surrogateescape"), givens.NOW)
    assert wait_s is None or wait_s >= 0
    content_type = kind.decode("utf-8", "surrogateescape")
    refusal = from_response(code, content_type, body, PEER)
    _check(to_error(refusal, PEER, wait_s))
    instead(dialect_of("a.example", "m"), code, f"{refusal.code} {refusal.message}", images=True)
    _check(not_an_answer(content_type, PEER))
    if wait_s is not None:
        next_try(1, Failure(retryable=True, retry_after_s=wait_s), 0.5)
    try:
        error = json.loads(body)
    except (ValueError, RecursionError):
        return
    _check(to_error(from_chunk(error, PEER), PEER))


def _check(error: Exception) -> None:
    assert KEY not in str(error), "the key is told"
    assert 0 < len(str(error)) < 2500
    assert "\n" not in str(error)
