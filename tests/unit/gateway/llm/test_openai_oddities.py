"""Servers that refuse a part of a request or send invalid answers, over real connections."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web

from gateway.domain.ids import CallId
from gateway.domain.prompts import CallResult, Complete, Image, ModelRequest, ToolOffer, UserText
from gateway.domain.steps import Answer
from gateway.domain.tools import ResultStatus, ToolCall, ToolResult
from gateway.llm.openai_chat import OpenAIChat
from gateway.policy.retry import RetryLimits
from tests.support.clock import FakeClock
from tests.support.model_server import Call, Reply, ScriptedModel
from tests.support.ports import free_port
from tests.unit.gateway.llm.asking import ask, attached, failure

# --- refused parts ----------------------------------------------------------------------------------

SYSTEM_ROLE = "Unsupported value: 'messages[0].role' does not support '{}' with this model."
PICTURE = CallResult(
    call=CallId("a"),
    tool="browser",
    result=ToolResult(status=ResultStatus.OK, text="a page"),
    images=(Image(media_type="image/png", data=b"png"),),
)
SHOWN = ModelRequest(
    system="Be kind.",
    messages=(
        UserText(text="Hi"),
        Answer(text="", calls=(ToolCall(id=CallId("a"), tool="browser", arguments="{}"),)),
        PICTURE,
    ),
    tools=(ToolOffer(name="t", description="T.", schema={"properties": {"a": {"const": "x"}}}),),
)


async def answered(model: OpenAIChat, request: ModelRequest = SHOWN) -> str:
    *_, last = [event async for event in model.stream(request)]
    assert isinstance(last, Complete)
    return last.answer.text


@pytest.mark.parametrize(
    ("status", "refusal", "gone"),
    [
        (400, "Unrecognized request argument supplied: stream_options", '"stream_options"'),
        (400, SYSTEM_ROLE.format("system"), '"role": "system"'),
        (500, "image input is not supported by this server", "image_url"),
        (404, "No endpoints found that support image input", "image_url"),
        (400, "Invalid schema for function 't'", '"const"'),
    ],
)
async def test_refused_part_is_left_out_at_once_and_remembered(status: int, refusal: str, gone: str) -> None:
    server = ScriptedModel([Reply(status=status, error=refusal), Reply(text="Fine"), Reply(text="Again")])
    once = RetryLimits(attempts=1)  # it is no new try
    async with attached(server, retry=once) as model:
        assert await answered(model) == "Fine"
        assert await answered(model) == "Again"

    bodies = [json.dumps(asked.body) for asked in server.requests]
    assert [gone in body for body in bodies] == [True, False, False]


async def test_a_model_without_pictures_is_told_of_them() -> None:
    server = ScriptedModel([Reply(status=400, error="this model does not support image input"), Reply(text="Fine")])
    async with attached(server) as model:
        await answered(model)

    first, second = (asked.body["messages"] for asked in server.requests)
    assert first[-1]["content"][1]["image_url"]["url"] == "data:image/png;base64,cG5n"
    assert second[-1]["content"] == "a page\n[1 picture is not shown: this model takes none]"


async def test_several_parts_may_be_refused_one_after_the_other() -> None:
    refusals = [
        Reply(status=400, error="stream_options?"),
        Reply(status=400, error=SYSTEM_ROLE.format("system")),
        Reply(status=400, error=SYSTEM_ROLE.format("developer")),
        Reply(status=500, error="image input is not supported by this server"),
    ]
    server = ScriptedModel([*refusals, Reply(text="Fine")])
    async with attached(server) as model:
        assert await answered(model) == "Fine"

    assert server.requests[-1].body["messages"][0] == {"role": "user", "content": "Be kind."}


async def test_the_same_refusal_twice_is_an_error() -> None:
    server = ScriptedModel([Reply(status=400, error="stream_options?")] * 3)
    async with attached(server) as model:
        error, _ = await failure(model)

    assert "400: stream_options?" in error.message
    assert len(server.requests) == 2


async def test_parts_that_are_refused_in_turns_come_to_an_end() -> None:
    flavours = ["not a valid moonshot flavored json schema", "tools[0].function_declarations[6]"]
    server = ScriptedModel([Reply(status=400, error=flavours[n % 2]) for n in range(20)])
    async with attached(server) as model:
        error, _ = await failure(model)

    assert not error.retryable
    assert len(server.requests) <= 5


async def test_a_refusal_within_a_stream_is_a_refusal() -> None:
    inside = Reply(raw='data: {"error":{"code":400,"message":"stream_options is not supported"}}\n\n')
    server = ScriptedModel([inside, Reply(text="Fine")])
    async with attached(server, retry=RetryLimits(attempts=1)) as model:
        assert await answered(model) == "Fine"


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=400, error="This model's maximum context length is 8192 tokens."),
        Reply(raw='data: {"error":{"code":400,"type":"exceed_context_size_error","message":"x"}}\n\n'),
    ],
)
async def test_request_too_long_is_reported_and_not_retried(reply: Reply) -> None:
    server = ScriptedModel([reply])
    async with attached(server) as model:
        error, _ = await failure(model)

    assert error.too_long
    assert len(server.requests) == 1


# --- invalid answers --------------------------------------------------------------------------------


async def test_two_hundred_parallel_calls_with_one_id() -> None:
    calls = tuple(Call(id="same", name="shell", arguments='{"command":"ls"}') for _ in range(200))
    async with attached(ScriptedModel([Reply(calls=calls)])) as model:
        answer, _ = await ask(model)

    assert len({call.id for call in answer.calls}) == 200


async def test_calls_without_ids_have_one_each() -> None:
    calls = (Call(id="", name="shell", arguments='{"command":"ls"}'), Call(id="", name="shell", arguments="{}"))
    async with attached(ScriptedModel([Reply(calls=calls, finish="stop")])) as model:
        answer, _ = await ask(model)

    assert [(call.id, call.arguments) for call in answer.calls] == [("call_1", '{"command":"ls"}'), ("call_2", "{}")]


async def test_an_answer_of_nothing_is_whole_and_empty() -> None:
    async with attached(ScriptedModel([Reply(text="")])) as model:
        answer, texts = await ask(model)

    assert (answer.text, answer.calls, texts) == ("", (), [])


async def test_another_role_is_still_the_models() -> None:
    raw = 'data: {"choices":[{"delta":{"role":"user","content":"Hi"},"finish_reason":"stop"}]}\n\n'
    async with attached(ScriptedModel([Reply(raw=raw)])) as model:
        assert (await ask(model))[0].text == "Hi"


async def test_announced_but_missing_call_is_retried() -> None:
    server = ScriptedModel([Reply(finish="tool_calls"), Reply(text="Fine")])
    async with attached(server) as model:
        assert (await ask(model))[0].text == "Fine"


async def test_a_stream_of_comments_is_left_in_the_end() -> None:
    clock = FakeClock()

    async def comments(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while True:
            await response.write(b": OPENROUTER PROCESSING\n\n")
            clock.advance(30)
            await asyncio.sleep(0.005)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", comments)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    base_url = f"http://127.0.0.1:{port}/v1"
    try:
        async with aiohttp.ClientSession() as session:
            model = OpenAIChat(session, "m", base_url=base_url, api_key=None, clock=clock)
            error, texts = await failure(model)
    finally:
        await runner.cleanup()

    assert "took over 3600 s" in error.message
    assert texts == []


async def test_an_expired_key_is_named_with_its_cure() -> None:
    async with attached(ScriptedModel([Reply(status=401, error="Your API key expired on 1 May")])) as model:
        error, _ = await failure(model)

    assert "expired" in error.message
    assert error.cure == "Set [model] api_key to a valid key."
