"""Models of providers without OpenAI's protocol, through pydantic-ai. Imported only when one is configured."""

from __future__ import annotations

import asyncio
import random as _random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any

from gateway.domain.prompts import Complete, ModelEvent, ModelRequest, TextPart
from gateway.domain.proxy import Proxy
from gateway.domain.steps import Answer
from gateway.errors import ConfigError, ModelError
from gateway.llm.attempts import DEFAULT_TIMEOUTS, RetriedModel, Timeouts
from gateway.llm.openai_answer import CUT_NOTE, DEFAULT_LIMITS, filtered, refuse_useless_cut
from gateway.llm.pydantic_ai.errors import NotWhole, from_library
from gateway.llm.text_buffer import TextBuffer
from gateway.policy.retry import DEFAULT_LIMITS as DEFAULT_RETRY_LIMITS
from gateway.policy.retry import RetryLimits

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model as TheirModel
    from pydantic_ai.models import StreamedResponse

ANSWER_TOKENS = 8_192
"""Output limit in tokens for providers that require one with each request; the library's default is 4,096."""


def open_library(name: str, *, base_url: str | None, api_key: str | None, proxy: Proxy | None = None) -> LibraryModel:
    """Return the model `<provider>:<model>`. Raises `ConfigError` for a missing provider or package."""
    try:
        from httpx2 import AsyncClient, Timeout

        from gateway.llm.pydantic_ai.opening import their_model
    except ImportError as error:
        raise ConfigError(
            f"The model {name} needs packages that are not installed ({error.name or error}).",
            cure="Say `./run add providers`, or install Dragoman with the extra `providers`.",
        ) from error
    limits = Timeout(DEFAULT_TIMEOUTS.stall_s, connect=DEFAULT_TIMEOUTS.connect_s)
    client = AsyncClient(timeout=limits, proxy=proxy.url if proxy else None)
    model = their_model(name, base_url=base_url, api_key=api_key, client=client, proxied=proxy is not None)
    return LibraryModel(name, model, close=client.aclose, api_key=api_key, proxy=proxy)


class LibraryModel(RetriedModel):
    """`ports.Model` over one of pydantic-ai's models. Stateless between prompts."""

    def __init__(
        self,
        name: str,
        model: TheirModel,
        *,
        close: Callable[[], Awaitable[None]],
        api_key: str | None = None,
        proxy: Proxy | None = None,
        retry: RetryLimits = DEFAULT_RETRY_LIMITS,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        random: Callable[[], float] = _random.random,
    ) -> None:
        """Wrap a model. `name` as configured; `close` closes its connections; the key is only needed to redact it."""
        super().__init__(name, retry, timeouts, random)
        self.close = close
        self._name = name
        self._model = model
        self._api_key = api_key
        self._proxy = proxy

    @property
    def name(self) -> str:
        """Return the name as configured: `anthropic:claude-sonnet-5`."""
        return self._name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Send the prompt; see `ports.Model.stream`. The request is closed before `Complete`, and by `aclose()`."""
        whole: list[Answer] = []
        async with aclosing(self._tried(lambda: self._try(request, whole))) as texts:
            async for text in texts:
                yield TextPart(text=text)
        yield Complete(answer=whole[-1])

    async def _try(self, request: ModelRequest, whole: list[Answer]) -> AsyncGenerator[str, None]:
        """Make one attempt: yield text, and at the end append the answer to `whole`."""
        from gateway.llm.pydantic_ai.payload import answer_of, messages_of, parameters_of

        messages, parameters = messages_of(request, answered_by=self._name), parameters_of(request)
        said, chars = TextBuffer(), 0
        try:
            async with asyncio.timeout(self._timeouts.whole_s), AsyncExitStack() as held:
                streamed = await self._entered(held, self._opened(messages, parameters))
                async with aclosing(self._texts(streamed)) as texts:
                    async for text in texts:
                        chars += len(text)
                        DEFAULT_LIMITS.check_text(chars)
                        if text := said.add(text):
                            yield text
                response = streamed.get()
            tail = self._checked(response)
            if end := said.end() + tail:
                yield end
            whole.append(answer_of(response, self._name, request, tail))
        except (ModelError, GeneratorExit, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - any error of the library is its model's failure (house rule 9)
            raise from_library(error, self._name, self._api_key, self._proxy) from None  # the cause may contain the key

    def _opened(self, messages: Any, parameters: Any) -> Any:
        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.settings import ModelSettings

        settings = ModelSettings(timeout=self._timeouts.stall_s, max_retries=0, max_tokens=ANSWER_TOKENS)
        return model_request_stream(self._model, messages, model_settings=settings, model_request_parameters=parameters)

    async def _entered(self, held: AsyncExitStack, opened: Any) -> StreamedResponse:
        try:
            async with asyncio.timeout(self.first_byte_s):
                return await held.enter_async_context(opened)
        except TimeoutError:
            raise self._silent(self.first_byte_s) from None

    async def _texts(self, streamed: StreamedResponse) -> AsyncGenerator[str, None]:
        from gateway.llm.pydantic_ai.payload import text_of

        events, wait_s = aiter(streamed), self.first_byte_s
        while True:
            try:
                async with asyncio.timeout(wait_s):
                    event = await anext(events)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise self._silent(wait_s) from None
            wait_s = self._timeouts.stall_s
            if text := text_of(event):
                yield text

    def _checked(self, response: ModelResponse) -> str:
        """Return the text to append to a whole answer; raise `ModelError` for one that is not whole.

        A stream that was cut yields calls with the arguments `{}` and no error; only its finish reason is missing.
        """
        reason = response.finish_reason
        if reason is None or response.state != "complete":
            raise NotWhole(self._name)
        if reason == "error":
            raise ModelError(f"{self._name} broke off its answer.", cure="Ask again.", retryable=True)
        if reason == "content_filter":
            raise filtered()
        if reason != "length":
            return ""
        refuse_useless_cut(calls=bool(response.tool_calls), text=bool(response.text))
        return CUT_NOTE
