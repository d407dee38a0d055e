"""Beside a library model's answer: what it raised, in words with a cure. The key appears in none of them."""

from __future__ import annotations

from gateway.domain.proxy import Proxy
from gateway.errors import ModelError
from gateway.llm.openai_errors import ErrorBody, Peer, to_error


class NotWhole(ModelError):
    """The model's stream ended before its answer was whole."""

    def __init__(self, name: str) -> None:
        """`name` as configured."""
        super().__init__(f"{name}'s stream ended before its answer was whole.", cure="Ask again.", retryable=True)


def from_library(error: Exception, name: str, api_key: str | None, proxy: Proxy | None = None) -> ModelError:
    """Say what happened and what to do about it. Unknown kinds are failures that asking again does not mend."""
    from pydantic_ai import exceptions as theirs

    peer = Peer(server=name.partition(":")[0], model=name, api_key=api_key)
    said = peer.redacted(str(error)) or type(error).__name__
    match error:
        case theirs.ModelContextWindowExceededError():
            return ModelError(
                f"The conversation is too long for {name} ({said}).",
                cure="Say /new to begin a new history, or use a model with a larger context.",
                too_long=True,
            )
        case theirs.ModelHTTPError():
            refusal = ErrorBody(status=error.status_code, code=error.provider_error_code or "", message=said)
            return to_error(refusal, peer, error.retry_after)
        case theirs.ModelConnectionError():
            return ModelError(
                f"The connection to {name}{f' through the proxy {proxy}' if proxy else ''} failed: {said}.",
                cure=f"Check the network, and [model] {'proxy' if proxy else 'base_url if it is set'}.",
                retryable=True,
                retry_after_s=error.retry_after,
            )
        case theirs.ModelRateLimitError() | theirs.ModelUnavailableError() | theirs.ModelServerError():
            return ModelError(
                f"{name} cannot answer now ({said}).",
                cure="Ask again in a moment.",
                retryable=True,
                retry_after_s=error.retry_after,
            )
        case theirs.UnexpectedModelBehavior():  # an empty stream, chunks that make no sense
            return ModelError(f"{name} gave no usable answer ({said}).", cure="Ask again.", retryable=True)
        case _:  # a picture or a word that the library could not put into a request, for instance
            cure = "Dragoman's log tells more; check [model] name."
            return ModelError(f"{name} failed: {said}.", cure=cure, about_request=True)
