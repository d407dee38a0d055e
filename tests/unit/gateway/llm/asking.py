"""Rig with a model attached to the scripted server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp

from gateway.domain.prompts import Complete, ModelRequest, TextPart, UserText
from gateway.domain.proxy import Proxy
from gateway.domain.steps import Answer
from gateway.errors import ModelError
from gateway.llm.attempts import DEFAULT_TIMEOUTS, Timeouts
from gateway.llm.openai_answer import AnswerLimits
from gateway.llm.openai_chat import OpenAIChat
from gateway.policy.retry import RetryLimits
from tests.support.clock import FakeClock
from tests.support.model_server import ScriptedModel

KEY = "sk-test-0123456789"
ASK = ModelRequest(system="Be kind.", messages=(UserText(text="Hi"),), tools=())
QUICK = RetryLimits(min_delay_s=0.01, max_delay_s=60)
IMPATIENT = Timeouts(stall_s=0.5, after_finish_s=0.15)
"""Short timeouts, only for servers that stay silent: a server that waits for the CPU could exceed them."""


@asynccontextmanager
async def attached(
    server: ScriptedModel,
    *,
    retry: RetryLimits = QUICK,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    limits: AnswerLimits | None = None,
    clock: FakeClock | None = None,
    api_key: str | None = KEY,
    proxy: Proxy | None = None,
) -> AsyncGenerator[OpenAIChat]:
    """Start the server and yield a model that asks it."""
    async with server, aiohttp.ClientSession() as session:
        yield OpenAIChat(
            session,
            "m",
            base_url=server.base_url,
            api_key=api_key,
            proxy=proxy,
            clock=clock or FakeClock(),
            retry=retry,
            timeouts=timeouts,
            limits=limits or AnswerLimits(),
            random=lambda: 0.0,
        )


async def ask(model: OpenAIChat) -> tuple[Answer, list[str]]:
    """Return the answer and the streamed texts."""
    texts: list[str] = []
    async for event in model.stream(ASK):
        if isinstance(event, Complete):
            return event.answer, texts
        assert isinstance(event, TextPart)
        texts.append(event.text)
    raise AssertionError("the stream ended without an answer")


async def failure(model: OpenAIChat) -> tuple[ModelError, list[str]]:
    """Return the error and the texts streamed before it."""
    texts: list[str] = []
    try:
        async for event in model.stream(ASK):
            assert isinstance(event, TextPart)
            texts.append(event.text)
    except ModelError as error:
        return error, texts
    raise AssertionError("the stream ended without an error")
