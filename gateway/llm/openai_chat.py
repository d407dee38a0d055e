"""Where a turn asks a language model: OpenAI-compatible chat completions over the daemon's own HTTP session."""

from __future__ import annotations

import asyncio
import random as _random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

import aiohttp
from yarl import URL

from gateway.errors import ConfigError, ModelError
from gateway.llm.openai_answer import DEFAULT_LIMITS as DEFAULT_ANSWER_LIMITS
from gateway.llm.openai_answer import AnswerLimits, Assembly
from gateway.llm.openai_errors import Peer, from_chunk, from_response, not_an_answer, to_error
from gateway.llm.openai_payload import request_body
from gateway.model.prompts import Complete, ModelEvent, ModelRequest, TextPart
from gateway.model.tools import Answer
from gateway.ports import Clock
from gateway.retry import DEFAULT_LIMITS as DEFAULT_RETRY_LIMITS
from gateway.retry import Failure, GiveUp, RetryLimits, next_try, retry_after_s

_ERROR_BODY_BYTES = 64 * 1024
_DRAIN_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long one try may take, in seconds."""

    connect_s: float = 15.0
    stall_s: float = 120.0
    """Without a byte: before the first, and between any two."""
    after_finish_s: float = 5.0
    """For figures, once the answer is whole."""
    whole_s: float = 3600.0
    """All of it, so that a server that only keeps the line alive does not hold a turn for ever."""


DEFAULT_PATIENCE = Patience()


class OpenAIChat:
    """`ports.Model` over `POST {base_url}/chat/completions`. Holds no state between questions.

    A failed try is repeated (`gateway.retry`) only while no text of it was yielded: there is no way to take text back.
    Afterwards a failure is a `ModelError` with `retryable`, and the caller decides.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        model: str,
        *,
        base_url: str,
        api_key: str | None,
        clock: Clock,
        retry: RetryLimits = DEFAULT_RETRY_LIMITS,
        patience: Patience = DEFAULT_PATIENCE,
        limits: AnswerLimits = DEFAULT_ANSWER_LIMITS,
        random: Callable[[], float] = _random.random,
    ) -> None:
        """The session stays the caller's. Raises `ConfigError` for an address or a key that cannot be used."""
        self._session = session
        self._model = model
        self._url, server = _endpoint(base_url)
        self._peer = Peer(server=server, model=model, api_key=_usable_key(api_key))
        self._clock = clock
        self._retry = retry
        self._patience = patience
        self._limits = limits
        self._random = random

    @property
    def name(self) -> str:
        """As configured: `openai:<model>`."""
        return f"openai:{self._model}"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Ask; see `ports.Model.stream`. The request is closed before `Complete` is yielded, and by `aclose()`."""
        body = request_body(self._model, request, answered_by=self.name)
        taken = {call.id for message in request.messages if isinstance(message, Answer) for call in message.calls}
        attempt = 0
        while True:
            attempt += 1
            assembly = Assembly(self._refused, self._limits)
            said = False
            try:
                async with aclosing(self._try(body, assembly)) as texts:
                    async for text in texts:
                        said = True
                        yield TextPart(text=text)
            except ModelError as error:
                delay_s = self._delay(attempt, error, said=said)
            else:
                break
            await asyncio.sleep(delay_s)
        yield Complete(answer=assembly.answer(self.name, taken))

    def _delay(self, attempt: int, error: ModelError, *, said: bool) -> float:
        """Return how long to wait before the next try, or raise the error for good."""
        if said:
            raise error
        failure = Failure(retryable=error.retryable, retry_after_s=error.retry_after_s)
        step = next_try(attempt, failure, self._random(), self._retry)
        if not isinstance(step, GiveUp):
            return step.delay_s
        if not error.retryable:
            raise error
        raise ModelError(
            f"{error.message.rstrip('.')} ({step.because}).",
            cure=error.cure,
            retryable=True,
            retry_after_s=error.retry_after_s,
        ) from None

    async def _try(self, body: bytes, assembly: Assembly) -> AsyncGenerator[str, None]:
        """Ask once and yield text; when it returns, the answer in `assembly` is whole."""
        response = await self._open(body)
        try:
            if not 200 <= response.status < 300:
                raise await self._refusal(response)
            if response.content_type == "application/json":
                yield assembly.feed_completion(await self._whole(response))
            elif response.content_type == "text/html":
                raise not_an_answer(response.content_type, self._peer)
            else:
                async with aclosing(self._chunks(response, assembly)) as texts:
                    async for text in texts:
                        yield text
            tail = assembly.finish()
        finally:
            response.close()  # a connection that was read to its end has gone back to the pool already
        if tail:
            yield tail

    async def _open(self, body: bytes) -> aiohttp.ClientResponse:
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",  # a compressed stream comes in lumps
        }
        if self._peer.api_key:
            headers["Authorization"] = f"Bearer {self._peer.api_key}"
        times = aiohttp.ClientTimeout(total=None, sock_connect=self._patience.connect_s)
        try:
            async with asyncio.timeout(self._patience.stall_s):
                # Redirects are not followed: they would lose the body, and take the key where nobody sent it.
                return await self._session.post(
                    self._url, data=body, headers=headers, timeout=times, allow_redirects=False
                )
        except TimeoutError:
            raise self._silent() from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from None  # the cause may carry the request's headers, and the key

    async def _chunks(self, response: aiohttp.ClientResponse, assembly: Assembly) -> AsyncGenerator[str, None]:
        began = self._clock.monotonic()
        while data := await self._read(response, assembly):
            if text := assembly.feed(data):
                yield text
            if assembly.done:
                await _drain(response)
                return
            if self._clock.monotonic() - began > self._patience.whole_s:
                raise ModelError(f"The model took over {self._patience.whole_s:.0f} s.", cure="Ask for less at once.")
        if text := assembly.end():
            yield text
        if not assembly.began and response.content_type != "text/event-stream":
            raise not_an_answer(response.content_type, self._peer)

    async def _read(self, response: aiohttp.ClientResponse, assembly: Assembly) -> bytes:
        """Return the next bytes; nothing at the end, which once the answer is whole may also be a broken line."""
        patience = self._patience
        try:
            async with asyncio.timeout(patience.after_finish_s if assembly.complete else patience.stall_s):
                return await response.content.readany()
        except TimeoutError:
            failure = self._silent()
        except (aiohttp.ClientError, OSError) as error:
            failure = self._unreachable(error)
        if assembly.complete:
            return b""
        raise failure

    async def _whole(self, response: aiohttp.ClientResponse) -> bytes:
        most = 4 * (self._limits.text_chars + self._limits.argument_chars)
        body = bytearray()
        try:
            async with asyncio.timeout(self._patience.stall_s):
                while data := await response.content.readany():
                    body += data
                    if len(body) > most:
                        raise ModelError(f"The model's server answered with more than {most} bytes.")
        except TimeoutError:
            raise self._silent() from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from None
        return bytes(body)

    async def _refusal(self, response: aiohttp.ClientResponse) -> ModelError:
        body = b""
        try:
            async with asyncio.timeout(min(10.0, self._patience.stall_s)):
                while len(body) < _ERROR_BODY_BYTES and (data := await response.content.readany()):
                    body += data
        except (TimeoutError, aiohttp.ClientError, OSError):
            pass  # the status says enough
        wait_s = retry_after_s(response.headers.get("Retry-After"), self._clock.now())
        refusal = from_response(response.status, response.content_type, body[:_ERROR_BODY_BYTES], self._peer)
        return to_error(refusal, self._peer, wait_s)

    def _refused(self, error: object) -> ModelError:
        return to_error(from_chunk(error, self._peer), self._peer)

    def _silent(self) -> ModelError:
        return ModelError(
            f"The model's server {self._peer.server} sent nothing for {self._patience.stall_s:g} s.",
            cure="Ask again in a moment.",
            retryable=True,
        )

    def _unreachable(self, error: Exception) -> ModelError:
        if isinstance(error, aiohttp.ClientSSLError):
            return ModelError(
                f"The certificate of the model's server {self._peer.server} is not trusted.",
                cure="Check [model] base_url, and the certificates this machine trusts.",
            )
        reason = self._peer.redacted(str(error)) or type(error).__name__
        return ModelError(
            f"The connection to the model's server {self._peer.server} failed: {reason}.",
            cure="Check [model] base_url and the network.",
            retryable=True,
        )


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read the end that follows the last event, so that the connection can be used again; it is not waited for."""
    try:
        async with asyncio.timeout(_DRAIN_S):
            await response.content.readany()
    except (TimeoutError, aiohttp.ClientError, OSError):
        pass


def _endpoint(base_url: str) -> tuple[URL, str]:
    """Return the address to ask and how the server is called in messages."""
    cure = 'Set [model] base_url, for instance to "https://api.openai.com/v1".'
    try:
        url = URL(base_url.strip())
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError("The model's base_url is not a web address.", cure=cure)
    if url.user or url.password or url.query_string or url.fragment:
        raise ConfigError("The model's base_url carries more than an address.", cure="Put the key in [model] api_key.")
    path = url.path.rstrip("/").removesuffix("/chat/completions")
    return url.with_path(f"{path}/chat/completions"), url.authority


def _usable_key(api_key: str | None) -> str | None:
    key = (api_key or "").strip()
    if not all("!" <= char <= "~" for char in key):
        raise ConfigError("The model's key is not a key.", cure="Set [model] api_key to the bare key, without spaces.")
    return key or None
