"""Model over OpenAI-compatible chat completions, through the daemon's own HTTP session. Used by turns."""

from __future__ import annotations

import asyncio
import random as _random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO

import aiohttp
from yarl import URL

from gateway.domain.prompts import Complete, ModelEvent, ModelRequest, TextPart
from gateway.domain.proxy import WANTS_PASSWORD, Proxy, through
from gateway.domain.steps import Answer
from gateway.domain.text import media_type
from gateway.errors import ConfigError, ModelError
from gateway.llm.attempts import DEFAULT_TIMEOUTS, RetriedModel, Timeouts
from gateway.llm.dialects import Dialect, dialect_of, instead
from gateway.llm.openai_answer import DEFAULT_LIMITS as DEFAULT_ANSWER_LIMITS
from gateway.llm.openai_answer import AnswerLimits, AnswerParser
from gateway.llm.openai_payload import MessageJsonCache, ToolJsonCache, has_images, request_body
from gateway.llm.server_errors import (
    RETRYABLE,
    Peer,
    RefusedRequest,
    from_chunk,
    from_response,
    not_an_answer,
    to_error,
)
from gateway.llm.unreachable import in_words, unreachable
from gateway.policy.retry import DEFAULT_LIMITS as DEFAULT_RETRY_LIMITS
from gateway.policy.retry import RetryLimits, retry_after_s
from gateway.ports import Clock
from gateway.system.logging_setup import log

_ERROR_BODY_BYTES = 64 * 1024
_SENT_AT_ONCE = 1_000_000
"""Bytes of a request that are sent in one piece; a longer one is streamed."""
_DRAIN_S = 0.2
"""Timeout in seconds for the end of a response after its last event."""
_CHANGES_AT_MOST = 4
"""Number of parts of one request that may be left out, one after the other."""


@dataclass(slots=True)
class _Learned:
    """Dialect of one server as far as it is known; shared by a model and its impatient copy."""

    dialect: Dialect


class OpenAIChat(RetriedModel):
    """`ports.Model` over `POST {base_url}/chat/completions`.

    Between prompts it stores only the parts of a request that its server refused (`dialects`), and cached JSON.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        model: str,
        *,
        base_url: str,
        api_key: str | None,
        clock: Clock,
        proxy: Proxy | None = None,
        retry: RetryLimits = DEFAULT_RETRY_LIMITS,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        limits: AnswerLimits = DEFAULT_ANSWER_LIMITS,
        random: Callable[[], float] = _random.random,
    ) -> None:
        """Check address and key; the session belongs to the caller. Raises `ConfigError` for an invalid one."""
        self._url, server = _endpoint(base_url)
        super().__init__(f"The model's server {server}", retry, timeouts, random)
        self._session = session
        self._proxy = proxy
        self._model = model
        self._peer = Peer(server=server, model=model, api_key=_usable_key(api_key))
        self._learned = _Learned(dialect_of(self._url.host or "", model))
        self._offered = ToolJsonCache()
        self._written = MessageJsonCache()
        self._log = log("openai_chat")
        self._clock = clock
        self._limits = limits

    @property
    def name(self) -> str:
        """Return the name as configured: `openai:<model>`."""
        return f"openai:{self._model}"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Send the prompt; see `ports.Model.stream`. The request is closed before `Complete`, and by `aclose()`."""
        taken = {call.id for message in request.messages if isinstance(message, Answer) for call in message.calls}
        whole: list[AnswerParser] = []
        async with aclosing(self._tried(lambda: self._ask(request, whole))) as texts:
            async for text in texts:
                yield TextPart(text=text)
        yield Complete(answer=whole[-1].answer(self.name, taken))

    async def _ask(self, request: ModelRequest, whole: list[AnswerParser]) -> AsyncGenerator[str, None]:
        """Make one attempt: yield text, and at the end append the answer to `whole`.

        A part that the server refuses is left out and the request is repeated. That is no retry, since the same request
        would never have succeeded.
        """
        dialect, changed = self._learned.dialect, 0
        while True:
            assembly = AnswerParser(self._refused, self._limits)
            yielded = False
            try:
                body = await self._body(request, dialect)
                async with aclosing(self._once(body, assembly)) as texts:
                    async for text in texts:
                        yielded = True
                        yield text
            except RefusedRequest as error:
                text = f"{error.refusal.code} {error.refusal.message}"
                changes = instead(dialect, error.refusal.status, text, images=has_images(request))
                changed += 1
                if yielded or not changes or changed > _CHANGES_AT_MOST:
                    raise
            else:
                whole.append(assembly)
                return
            dialect = replace(dialect, **changes)
            # For the next prompts too; another task may have changed other parts meanwhile.
            self._learned.dialect = replace(self._learned.dialect, **changes)
            self._log.info("the server takes this otherwise", model=self.name, **changes)

    async def _body(self, request: ModelRequest, dialect: Dialect) -> bytes:
        made = partial(
            request_body,
            self._model,
            request,
            answered_by=self.name,
            dialect=dialect,
            offered=self._offered,
            written=self._written,
        )
        # Eight large pictures take half a second to encode; for a text, starting a thread takes longer than encoding.
        return await asyncio.to_thread(made) if has_images(request) else made()

    async def _once(self, body: bytes, assembly: AnswerParser) -> AsyncGenerator[str, None]:
        """Send one request and yield text; when it returns, the answer in `assembly` is whole."""
        response = await self._open(body)
        try:
            if not 200 <= response.status < 300:
                raise await self._refusal(response)
            if (kind := _type_of(response)) == "application/json":
                if text := assembly.feed_completion(await self._whole(response)):
                    yield text
            elif kind == "text/html":
                raise not_an_answer(kind, self._peer)
            else:
                async with aclosing(self._chunks(response, assembly)) as texts:
                    async for text in texts:
                        yield text
            tail = assembly.finish()
        finally:
            response.close()  # a connection read to its end is back in the pool already
        if tail:
            yield tail

    async def _open(self, body: bytes) -> aiohttp.ClientResponse:
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",  # a compressed stream arrives in large blocks
        }
        if self._peer.api_key:
            headers["Authorization"] = f"Bearer {self._peer.api_key}"
        times = aiohttp.ClientTimeout(total=None, sock_connect=self._timeouts.connect_s)
        try:
            async with asyncio.timeout(self.first_byte_s):
                # Redirects are not followed: they would lose the body, and send the key to another host.
                # A file is sent in pieces: 100 MB of pictures, as bytes, blocked the event loop.
                data = body if len(body) <= _SENT_AT_ONCE else BytesIO(body)
                return await self._session.post(
                    self._url,
                    data=data,
                    headers=headers,
                    timeout=times,
                    allow_redirects=False,
                    proxy=through(self._proxy),
                )
        except TimeoutError:
            raise self._silent(self.first_byte_s) from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from None  # the cause may contain the request's headers, and the key

    async def _chunks(self, response: aiohttp.ClientResponse, assembly: AnswerParser) -> AsyncGenerator[str, None]:
        began = self._clock.monotonic()
        while data := await self._read(response, assembly):
            if text := assembly.feed(data):
                yield text
            if assembly.done:
                await _drain(response)
                return
            if self._clock.monotonic() - began > self._timeouts.whole_s:
                words = f"The model took over {self._timeouts.whole_s:.0f} s."
                raise ModelError(words, cure="Ask for less at once.", about_request=True)
        if text := assembly.end():
            yield text
        if not assembly.began and (kind := _type_of(response)) != "text/event-stream":
            raise not_an_answer(kind, self._peer)

    async def _read(self, response: aiohttp.ClientResponse, assembly: AnswerParser) -> bytes:
        """Return the next bytes; none at the end. Once the answer is complete, a lost connection counts as the end."""
        timeouts = self._timeouts
        wait_s = timeouts.stall_s if assembly.began else self.first_byte_s
        try:
            async with asyncio.timeout(timeouts.after_finish_s if assembly.complete else wait_s):
                return await response.content.readany()
        except TimeoutError:
            failure = self._silent(wait_s)
        except (aiohttp.ClientError, OSError) as error:
            failure = self._unreachable(error)
        if assembly.complete:
            return b""
        raise failure

    async def _whole(self, response: aiohttp.ClientResponse) -> bytes:
        most = self._limits.chunk_bytes
        body = bytearray()
        try:
            async with asyncio.timeout(self._timeouts.stall_s):
                while data := await response.content.readany():
                    body += data
                    if len(body) > most:
                        words = f"The model's server answered with more than {most:,} bytes."
                        raise ModelError(words, cure="Ask for less at once.", about_request=True)
        except TimeoutError:
            raise self._silent(self._timeouts.stall_s) from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from None
        return bytes(body)

    async def _refusal(self, response: aiohttp.ClientResponse) -> ModelError:
        body = b""
        try:
            async with asyncio.timeout(min(10.0, self._timeouts.stall_s)):
                while len(body) < _ERROR_BODY_BYTES and (data := await response.content.readany()):
                    body += data
        except (TimeoutError, aiohttp.ClientError, OSError):
            pass  # the status is enough
        if self._proxy is not None and response.status == WANTS_PASSWORD:
            return _by_proxy(self._proxy.refused(WANTS_PASSWORD), retryable=False)
        wait_s = retry_after_s(response.headers.get("Retry-After"), self._clock.now())
        refusal = from_response(response.status, _type_of(response), body[:_ERROR_BODY_BYTES], self._peer)
        return to_error(refusal, self._peer, wait_s)

    def _refused(self, error: object) -> ModelError:
        return to_error(from_chunk(error, self._peer), self._peer)

    def _unreachable(self, error: Exception) -> ModelError:
        if self._proxy is not None and isinstance(error, aiohttp.ClientHttpProxyError):
            return _by_proxy(self._proxy.refused(error.status), retryable=error.status in RETRYABLE)
        if self._proxy is not None and isinstance(error, aiohttp.ClientProxyConnectionError):
            return _by_proxy(self._proxy.unreached(in_words(error)), retryable=True)
        why = self._peer.redacted(f"{type(error).__name__}: {error}")
        self._log.info("connection failed", model=self.name, why=why)
        return unreachable(error, self._peer.server)


def _by_proxy(explanation: tuple[str, str], *, retryable: bool) -> ModelError:
    what, cure = explanation
    return ModelError(what, cure=cure, retryable=retryable)


def _type_of(response: aiohttp.ClientResponse) -> str:
    return media_type(response.headers.get("Content-Type", ""))


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read the end after the last event, so that the connection can be reused; give up after `_DRAIN_S`."""
    try:
        async with asyncio.timeout(_DRAIN_S):
            await response.content.readany()
    except (TimeoutError, aiohttp.ClientError, OSError):
        pass


def _endpoint(base_url: str) -> tuple[URL, str]:
    """Return the URL of requests and the server's name for messages."""
    cure = 'Set [model] base_url, for instance to "https://api.openai.com/v1".'
    try:
        url = URL(base_url.strip())
        host = url.host  # decoding may fail too
    except ValueError:
        url, host = URL(), None
    if url.scheme not in ("http", "https") or not host:
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
