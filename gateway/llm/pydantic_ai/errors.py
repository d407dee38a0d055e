"""Errors of pydantic-ai's models, explained with a cure. The API key is redacted from all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gateway.domain.proxy import Proxy
from gateway.errors import ModelError
from gateway.llm.server_errors import Peer, from_body, to_error
from gateway.llm.unreachable import CAUSES_AT_MOST, unreachable


class NotWhole(ModelError):
    """Stream that ended before its answer was whole."""

    def __init__(self, name: str) -> None:
        """Make the error for a model; `name` as configured."""
        super().__init__(f"{name}'s stream ended before its answer was whole.", cure="Ask again.", retryable=True)


def from_library(error: Exception, name: str, api_key: str | None, proxy: Proxy | None = None) -> ModelError:
    """Return the error with its explanation and cure. Unknown kinds are not retryable."""
    from pydantic_ai import exceptions as theirs

    peer = Peer(server=name.partition(":")[0], model=name, api_key=api_key)
    said = _said(error, peer)
    match error:
        case theirs.ModelContextWindowExceededError():
            return ModelError(
                f"The conversation is too long for {name} ({said}).",
                cure="Say /new to begin a new history, or use a model with a larger context.",
                too_long=True,
            )
        case theirs.ModelHTTPError():
            refusal = from_body(error.status_code, error.body, peer)
            refusal = replace(refusal, code=error.provider_error_code or refusal.code)
            return to_error(refusal, peer, error.retry_after)
        case theirs.ModelConnectionError():
            if proxy is not None:
                return ModelError(
                    f"The connection to {name} through the proxy {proxy} failed.",
                    cure="Check the network, and [model] proxy.",
                    retryable=True,
                    retry_after_s=error.retry_after,
                )
            return unreachable(error, _host(error) or peer.server, retry_after_s=error.retry_after)
        case theirs.ModelRateLimitError() | theirs.ModelUnavailableError() | theirs.ModelServerError():
            return ModelError(
                f"{name} cannot answer now ({said}).",
                cure="Ask again in a moment.",
                retryable=True,
                retry_after_s=error.retry_after,
            )
        case theirs.UnexpectedModelBehavior():  # an empty stream, invalid chunks
            return ModelError(f"{name} gave no usable answer ({said}).", cure="Ask again.", retryable=True)
        case _:  # for instance a picture or text that the library cannot encode
            cure = "Check [model] name; see Dragoman's log."
            return ModelError(f"{name} failed: {said}.", cure=cure, about_request=True)


def _said(error: Exception, peer: Peer) -> str:
    """Return a provider's message, without the library's frame of status, model and body."""
    body: object = getattr(error, "body", None)
    if body is not None and (said := from_body(0, body, peer).message):
        return said
    said = peer.redacted(str(error).partition(", body:")[0])
    return said if said and not said.startswith("status_code:") else "no reason given"


def _host(error: BaseException) -> str:
    """Return the host of the failed request, from the error or its causes; empty when none names it."""
    one: BaseException | None = error
    for _ in range(CAUSES_AT_MOST):
        if one is None:
            return ""
        try:
            request: Any = getattr(one, "request", None)
        except RuntimeError:  # raised by httpx when there was no request
            request = None
        if host := getattr(getattr(request, "url", None), "host", ""):
            return str(host)
        one = one.__cause__ or one.__context__
    return ""
