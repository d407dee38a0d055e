"""Errors of model servers, explained with a cure. Pure; the API key is redacted from all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from gateway.domain.text import one_line
from gateway.errors import ModelError
from gateway.llm.json_access import as_object

MESSAGE_CHARS = 500
"""Characters of a server's message that are shown."""

RETRYABLE = frozenset({408, 409, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
"""HTTP statuses after which a retry may succeed."""

_TOO_LONG = re.compile(
    "|".join(
        (
            # OpenAI, vLLM, OpenRouter, Mistral: `context_length_exceeded`, “This model's maximum context length is …”
            # (https://github.com/vllm-project/vllm/issues/20409, https://github.com/topoteretes/cognee/issues/1061).
            r"context[ _](?:length|window|size|limit)",
            r"maximum context",
            # llama.cpp: https://github.com/ggml-org/llama.cpp/pull/15780 (at first with the status 500).
            r"exceed_context_size",
            # vLLM: the prompt leaves no room (https://github.com/vllm-project/vllm/issues/4667), or is too long itself
            # (https://github.com/vllm-project/vllm/issues/12165).
            r"max_tokens must be at least 1, got -",
            r"maximum model length|too long to fit into the model",
            # Anthropic, Ollama: https://github.com/OpenHands/OpenHands/issues/5350.
            r"(?:prompt|input|request|conversation)(?: is|'s)? too (?:long|large)",
            r"too many tokens",
            # Azure (https://github.com/BerriAI/litellm/issues/15968), Gemini (…/18282), Moonshot, xAI.
            r"input tokens? (?:count.{0,20} )?exceeds?",
            r"exceeded model token limit|maximum prompt length",
            # LiteLLM in front of any of them: https://github.com/BerriAI/litellm/issues/228.
            r"ContextWindowExceeded",
        )
    ),
    re.IGNORECASE,
)
_LARGER_THAN_LIMIT = re.compile(r"request too large", re.IGNORECASE)
"""A 429 of OpenAI and Groq: this one request exceeds the rate limit of a minute, so waiting does not help."""

_QUOTA = re.compile(r"insufficient_quota|billing_hard_limit|credit balance|insufficient balance", re.IGNORECASE)
_KEY = re.compile(
    r"api[ _]key.{0,20}(?:invalid|expired|not valid|incorrect)|(?:invalid|incorrect|expired) api[ _]key", re.I
)
"""Google refuses an invalid key with 400."""
_NO_TOOLS = re.compile(
    # Ollama, https://github.com/ollama/ollama/issues/5793; vLLM, https://github.com/vllm-project/vllm/issues/9986;
    # OpenRouter; llama.cpp.
    r"(?:not|n't) support (?:tools|tool use|function)|--enable-auto-tool-choice|support tool use"
    r"|tools param requires --jinja",
    re.IGNORECASE,
)
_FLAGGED = re.compile(r"moderation|flagged|content.?(?:policy|filter)|content management policy", re.IGNORECASE)
_MASKED_KEY = re.compile(r"\S*\*{3,}\S*")
_TITLE = re.compile(r"<title[^<>]{0,200}>([^<]{0,1000})", re.IGNORECASE)  # bounded: a page may be nothing but titles
_STATUS_OF_CODE = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "insufficient_quota": 429,
    "invalid_api_key": 401,
    "authentication_error": 401,
    "permission_error": 403,
    "model_not_found": 404,
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "overloaded_error": 529,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Server, model and key of a request, for error texts."""

    server: str
    """Host and port."""
    model: str
    api_key: str | None = field(repr=False)

    def redacted(self, text: str) -> str:
        """Shorten a server's text and redact the key, even if the server masked a part of it."""
        if self.api_key:
            text = text.replace(self.api_key, "[key]")
        return one_line(_MASKED_KEY.sub("[key]", text[: 4 * MESSAGE_CHARS]), MESSAGE_CHARS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBody:
    """Error that a server sent instead of an answer. `message` is redacted and bounded."""

    status: int
    code: str
    message: str


class RefusedRequest(ModelError):
    """Request refused by a server; `refusal` is its error, for a caller that can change the request."""

    def __init__(
        self,
        refusal: ErrorBody,
        message: str,
        *,
        cure: str,
        retryable: bool = False,
        retry_after_s: float | None = None,
        too_long: bool = False,
        about_request: bool = False,
    ) -> None:
        """Store the refusal and its explanation."""
        super().__init__(
            message,
            cure=cure,
            retryable=retryable,
            retry_after_s=retry_after_s,
            too_long=too_long,
            about_request=about_request,
        )
        self.refusal = refusal


def from_response(status: int, content_type: str, body: bytes, peer: Peer) -> ErrorBody:
    """Parse an HTTP error: the JSON of OpenAI or others, a web page, or plain text."""
    text = body.decode("utf-8", "replace")
    if "html" in content_type or text.lstrip()[:1] == "<":
        title = _TITLE.search(text)
        words = f"a web page, “{title.group(1)}”" if title else "a web page"
        return ErrorBody(status=status, code="", message=peer.redacted(words))
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError):
        return ErrorBody(status=status, code="", message=peer.redacted(text))
    code, message = _code_and_message(parsed)
    return ErrorBody(status=status, code=peer.redacted(code), message=peer.redacted(message))


def from_body(status: int, body: object, peer: Peer) -> ErrorBody:
    """Parse the body of an HTTP error as a library returns it: parsed, as text, or none."""
    if isinstance(body, str | bytes):
        return from_response(status, "", body.encode() if isinstance(body, str) else body, peer)
    code, message = _code_and_message(body) if body is not None else ("", "")
    return ErrorBody(status=status, code=peer.redacted(code), message=peer.redacted(message))


def from_chunk(error: object, peer: Peer) -> ErrorBody:
    """Parse an error inside a stream that started well. Unknown ones count as status 500."""
    code, message = _code_and_message({"error": error})
    words = code.split()
    status = next((int(word) for word in words if re.fullmatch(r"[45]\d\d", word)), 0)
    status = status or next((_STATUS_OF_CODE[word] for word in words if word in _STATUS_OF_CODE), 500)
    return ErrorBody(status=status, code=peer.redacted(code), message=peer.redacted(message))


def to_error(refusal: ErrorBody, peer: Peer, retry_after_s: float | None = None) -> RefusedRequest:
    """Return the error with its explanation and cure."""
    detail = refusal.message or "no reason given"
    text = f"{refusal.code} {detail}"
    for applies, explain in _EXPLANATIONS:
        if applies(refusal.status, text):
            message, cure, retryable = explain(peer, f"{refusal.status}: {detail}")
            wait_s = retry_after_s if retryable else None
            return RefusedRequest(
                refusal,
                message,
                cure=cure,
                retryable=retryable,
                retry_after_s=wait_s,
                too_long=explain is _too_long,
                about_request=explain is _flagged,
            )
    message = f"The model's server {peer.server} refuses the request ({refusal.status}: {detail})."
    cure = "Check [model] name and base_url against what the server says."
    return RefusedRequest(refusal, message, cure=cure, about_request=refusal.status in (400, 422))


def not_an_answer(content_type: str, peer: Peer) -> ModelError:
    """Return the error of a successful response that is neither an event stream nor a completion."""
    what = "a web page" if "html" in content_type else f"“{peer.redacted(content_type) or 'no content type'}”"
    return ModelError(
        f"The model's server {peer.server} answered with {what} instead of an answer.",
        cure="Check [model] base_url: it usually ends in /v1.",
    )


def _code_and_message(parsed: object) -> tuple[str, str]:
    """Return codes joined by spaces, and the message. llama.cpp and OpenRouter put a status beside the kind."""
    outer = as_object(parsed)
    error = outer.get("error", outer.get("detail", outer))
    if not isinstance(error, dict):
        return "", _words(error)
    inner = as_object(cast("object", error))
    code = " ".join(str(inner[key]) for key in ("code", "type") if isinstance(inner.get(key), str | int))
    message = _words(inner.get("message") or inner.get("detail") or inner or "")
    # OpenRouter says “Provider returned error”, and gives the cause only here.
    raw = as_object(inner.get("metadata")).get("raw")
    return code, f"{message}: {raw}" if isinstance(raw, str) and raw else message


def _words(value: object) -> str:
    """Return a text unchanged, anything else as JSON; empty if it is nested too deeply."""
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return ""


# --- explanations: message, cure, whether a retry may help ------------------------------------------


def _too_long(peer: Peer, detail: str) -> tuple[str, str, bool]:
    text = f"The conversation is too long for {peer.model} (context_length_exceeded, {detail})."
    return text, "Say /new to begin a new history, or use a model with a larger context.", False


def _no_tools(peer: Peer, detail: str) -> tuple[str, str, bool]:
    text = f"{peer.server} lets {peer.model} use no tools ({detail})."
    cure = "Use a model that can call tools; vLLM wants --enable-auto-tool-choice, llama.cpp --jinja."
    return text, cure, False


def _flagged(peer: Peer, detail: str) -> tuple[str, str, bool]:
    return f"{peer.server} refuses the content ({detail}).", "Ask in other words.", False


def _no_quota(peer: Peer, detail: str) -> tuple[str, str, bool]:
    text = f"The account at {peer.server} has no quota left ({detail})."
    return text, "Check the plan and billing of the account that [model] api_key belongs to.", False


def _key_refused(peer: Peer, detail: str) -> tuple[str, str, bool]:
    if peer.api_key:
        return f"The key for {peer.server} is refused ({detail}).", "Set [model] api_key to a valid key.", False
    return f"{peer.server} wants a key ({detail}).", 'Set [model] api_key, for instance to "env:OPENAI_API_KEY".', False


def _unknown(peer: Peer, detail: str) -> tuple[str, str, bool]:
    text = f"{peer.server} does not know the model {peer.model}, or has no chat completions there ({detail})."
    return text, "Check [model] name and base_url.", False


def _elsewhere(peer: Peer, detail: str) -> tuple[str, str, bool]:
    text = f"The model's server {peer.server} redirects requests ({detail}); the key is not sent there."
    return text, "Set [model] base_url to the address itself.", False


def _busy(peer: Peer, detail: str) -> tuple[str, str, bool]:
    return f"{peer.server} limits how often it may be asked ({detail}).", "Wait a moment and ask again.", True


def _down(peer: Peer, detail: str) -> tuple[str, str, bool]:
    return f"The model's server {peer.server} failed ({detail}).", "Ask again in a moment.", True


_Explain = Callable[[Peer, str], tuple[str, str, bool]]
_EXPLANATIONS: tuple[tuple[Callable[[int, str], bool], _Explain], ...] = (
    (lambda status, _: status == 413, _too_long),
    (lambda status, text: status == 429 and bool(_LARGER_THAN_LIMIT.search(text)), _too_long),
    (lambda status, text: status in (400, 422, 500) and bool(_TOO_LONG.search(text)), _too_long),
    (lambda status, text: status == 402 or bool(_QUOTA.search(text)), _no_quota),
    (lambda status, text: status in (400, 403) and bool(_FLAGGED.search(text)), _flagged),
    (lambda status, text: status in (401, 403) or (status == 400 and bool(_KEY.search(text))), _key_refused),
    (lambda status, text: status in (400, 404) and bool(_NO_TOOLS.search(text)), _no_tools),
    (lambda status, text: status == 404 or (status == 400 and "model_not_found" in text), _unknown),
    (lambda status, _: 300 <= status < 400, _elsewhere),
    (lambda status, _: status == 429, _busy),
    (lambda status, _: status in RETRYABLE, _down),
)
"""Explanations in order; the first that applies is used."""
