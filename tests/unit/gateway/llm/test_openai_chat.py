"""Chat completions over real connections to the scripted server on loopback."""

from __future__ import annotations

import asyncio
import traceback
from datetime import UTC, datetime
from email.utils import format_datetime
from itertools import pairwise

import aiohttp
import pytest

from gateway.domain.prompts import TextPart
from gateway.domain.proxy import Proxy
from gateway.domain.steps import Usage
from gateway.errors import ConfigError, ModelError
from gateway.llm.attempts import Timeouts
from gateway.llm.openai_answer import CUT_NOTE, AnswerLimits
from gateway.llm.openai_chat import OpenAIChat
from gateway.policy.retry import RetryLimits
from tests.support.clock import FakeClock
from tests.support.model_server import Call, Reply, ScriptedModel, UsageFigures
from tests.support.proxy_server import ProxyServer
from tests.unit.gateway.llm.asking import ASK, IMPATIENT, KEY, QUICK, ask, attached, failure

# --- answers ----------------------------------------------------------------------------------


async def test_text_streams_and_the_answer_is_all_of_it() -> None:
    reply = Reply(text="Hello, how are you?", delay_s=0.01, usage=UsageFigures(prompt=9, completion=6, cached=4))
    async with attached(ScriptedModel([reply])) as model:
        answer, texts = await ask(model)

    assert len(texts) > 2
    assert "".join(texts) == answer.text == "Hello, how are you?"
    assert answer.model == model.name == "openai:m"
    assert answer.usage == Usage(input_tokens=9, output_tokens=6, cached_tokens=4)


async def test_the_request_carries_the_transcript_and_the_key() -> None:
    server = ScriptedModel(api_key=KEY)
    async with attached(server) as model:
        answer, _ = await ask(model)

    [asked] = server.requests
    assert answer.text == "You said: Hi"
    assert asked.key_is_right
    assert asked.body["model"] == "m"
    assert asked.body["messages"] == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    assert asked.ended == "whole"


async def test_without_a_key_none_is_sent() -> None:
    server = ScriptedModel(api_key=KEY)
    async with attached(server, api_key=None) as model:
        error, _ = await failure(model)

    assert "wants a key" in error.message


async def test_parallel_calls_in_fragments() -> None:
    calls = (Call(name="shell", arguments='{"command":"ls -l"}'), Call(name="browser", arguments='{"url": oops'))
    async with attached(ScriptedModel([Reply(text="Looking.", calls=calls, fragments=7)])) as model:
        answer, _ = await ask(model)

    assert answer.text == "Looking."
    assert [(call.tool, call.arguments) for call in answer.calls] == [
        ("shell", '{"command":"ls -l"}'),
        ("browser", '{"url": oops'),
    ]


async def test_reasoning_is_kept_and_not_shown() -> None:
    async with attached(ScriptedModel([Reply(text="42", reasoning="six by nine")])) as model:
        answer, texts = await ask(model)

    assert texts == ["42"]
    assert answer.opaque == {"openai": {"reasoning_content": "six by nine"}}


async def test_a_server_that_does_not_stream_is_understood() -> None:
    reply = Reply(text="Hi", calls=(Call(name="shell", arguments="{}"),), stream=False)
    async with attached(ScriptedModel([reply])) as model:
        answer, texts = await ask(model)

    assert "".join(texts) == answer.text == "Hi"
    assert [call.tool for call in answer.calls] == ["shell"]


async def test_a_whole_answer_is_bounded_before_it_is_read() -> None:
    reply = Reply(text="Hi", reasoning="x" * 5_000_000, stream=False)
    async with attached(ScriptedModel([reply])) as model:
        error, _ = await failure(model)

    assert "answered with more than 4,194,304 bytes" in error.message
    assert not error.retryable


async def test_event_stream_is_read_under_another_content_type() -> None:
    async with attached(ScriptedModel([Reply(text="Hi", content_type="text/plain")])) as model:
        answer, _ = await ask(model)

    assert answer.text == "Hi"


async def test_the_connection_is_used_again() -> None:
    opened: list[object] = []

    async def count(*facts: object) -> None:
        opened.append(facts)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(count)
    async with ScriptedModel() as server, aiohttp.ClientSession(trace_configs=[trace]) as session:
        model = OpenAIChat(session, "m", base_url=server.base_url, api_key=None, clock=FakeClock())
        for _ in range(3):
            await ask(model)

    assert len(opened) == 1


async def test_text_cut_at_the_output_limit_ends_with_a_note() -> None:
    async with attached(ScriptedModel([Reply(text="Once upon", finish="length")])) as model:
        answer, texts = await ask(model)

    assert "".join(texts) == answer.text == f"Once upon{CUT_NOTE}"


# --- never a shorter answer ---------------------------------------------------------------------


async def test_cut_after_any_event_gives_a_whole_answer_or_an_error() -> None:
    reply = Reply(
        text="Half of this would be wrong.",
        chunks=3,
        calls=(Call(id="a", name="shell", arguments='{"command":"rm -r x"}'),),
        fragments=3,
    )
    once = RetryLimits(attempts=1)
    wholes, retryable = 0, set[bool]()
    for events in range(11):
        async with attached(ScriptedModel([reply.model_copy(update={"cut_after": events})]), retry=once) as model:
            try:
                answer, _ = await ask(model)
            except ModelError as error:
                retryable.add(error.retryable)
                continue
        wholes += 1
        assert answer.text == reply.text
        assert [(call.id, call.arguments) for call in answer.calls] == [("a", '{"command":"rm -r x"}')]
    assert retryable == {True}
    assert wholes == 2  # cut after the finish reason, and after the figures


async def test_a_stream_without_a_finish_reason_is_an_error() -> None:
    async with attached(ScriptedModel([Reply(text="Hi", finish="")])) as model:
        error, texts = await failure(model)

    assert "".join(texts) == "Hi"
    assert "ended before its answer was whole" in error.message
    assert error.retryable


async def test_a_whole_answer_does_not_wait_for_done() -> None:
    replies = [Reply(text="Hi", done=False), Reply(text="Ho", done=False, chunks=1, stall_after=3)]
    async with attached(ScriptedModel(replies), timeouts=IMPATIENT) as model:
        assert (await ask(model))[0].text == "Hi"
        assert (await ask(model))[0].text == "Ho"


async def test_a_server_that_stays_on_the_line_after_done_is_left() -> None:
    server = ScriptedModel([Reply(text="Hi", chunks=1, stall_after=5)])
    async with attached(server) as model, asyncio.timeout(2):
        assert (await ask(model))[0].text == "Hi"
        await server.until(lambda: server.requests[0].ended == "left")


@pytest.mark.parametrize("silent", [Reply(think_s=60), Reply(stall_after=0)])
async def test_hasty_model_gives_up_a_silent_server_after_two(silent: Reply) -> None:
    server = ScriptedModel([silent] * 4)
    async with attached(server, timeouts=Timeouts(first_byte_s=0.2)) as model, asyncio.timeout(10):
        error, _ = await failure(model.impatient())

    assert "sent nothing for 0.2 s (tried 2 times)" in error.message
    assert len(server.requests) == 2


async def test_hasty_model_skips_long_waits_but_ends_a_begun_answer() -> None:
    busy = Reply(status=429, error="slow", headers={"Retry-After": "30"})
    slow = Reply(text="Slow but sure", chunks=2, stall_after=2, stall_s=0.5)
    server = ScriptedModel([busy, slow])
    async with attached(server, timeouts=Timeouts(first_byte_s=0.2)) as model:
        error, _ = await failure(model.impatient())
        answer, _ = await ask(model.impatient())

    assert "asked to wait 30 s" in error.message
    assert answer.text == "Slow but sure"


async def test_refused_field_is_known_to_the_impatient_model_too() -> None:
    server = ScriptedModel([Reply(status=400, error="Unknown parameter: stream_options"), Reply(), Reply()])
    async with attached(server) as model:
        await ask(model)
        await ask(model.impatient())

    assert len(server.requests) == 3


async def test_silence_after_text_is_an_error_without_a_retry() -> None:
    server = ScriptedModel([Reply(text="Hello", chunks=2, stall_after=2)])
    async with attached(server, timeouts=IMPATIENT) as model:
        error, texts = await failure(model)
        await server.until(lambda: server.requests[0].ended == "left")

    assert texts == ["Hel"]
    assert "sent nothing for 0.5 s" in error.message
    assert error.retryable
    assert len(server.requests) == 1


# --- one retry layer ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        *(Reply(status=status) for status in (408, 409, 429, 500, 502, 503, 504, 529)),
        Reply(text="Hi", cut_after=0),
        Reply(text="Hi", cut_after=1),
        Reply(calls=(Call(name="shell", arguments='{"command":"ls"}'),), fragments=4, cut_after=3),
        Reply(text="Hi", stall_after=0),
        Reply(text="Hi", think_s=5),
        Reply(raw=""),
        Reply(raw='data: {"error":{"message":"overloaded","code":529}}\n\n'),
        Reply(raw="data: {oops\n\n"),
    ],
    ids=lambda reply: str(reply.model_dump(exclude_defaults=True)),
)
async def test_trouble_before_any_text_is_retried(trouble: Reply) -> None:
    server = ScriptedModel([trouble, Reply(text="Fine")])
    async with attached(server, timeouts=IMPATIENT) as model:
        answer, texts = await ask(model)

    assert "".join(texts) == answer.text == "Fine"
    assert answer.calls == ()
    assert len(server.requests) == 2


async def test_four_tries_and_no_more() -> None:
    server = ScriptedModel([Reply(status=503, error="overloaded")] * 9)
    async with attached(server) as model:
        error, _ = await failure(model)

    assert len(server.requests) == 4
    assert "503: overloaded" in error.message
    assert "tried 4 times" in error.message
    assert error.retryable


async def test_the_waits_grow() -> None:
    server = ScriptedModel([Reply(status=500)] * 4)
    async with attached(server, retry=RetryLimits(min_delay_s=0.05)) as model:
        await failure(model)

    times = [asked.at_s for asked in server.requests]
    waits = [after - before for before, after in pairwise(times)]
    assert waits[0] >= 0.05
    assert waits[1] >= 0.10
    assert waits[2] >= 0.20


@pytest.mark.parametrize("as_date", [False, True])
async def test_a_wish_to_wait_is_honoured(as_date: bool) -> None:
    clock = FakeClock(datetime(2026, 3, 1, tzinfo=UTC))
    wish = format_datetime(datetime(2026, 3, 1, 0, 0, 1, tzinfo=UTC), usegmt=True) if as_date else "1"
    server = ScriptedModel([Reply(status=429, headers={"Retry-After": wish}), Reply(text="Fine")])
    async with attached(server, clock=clock) as model:
        answer, _ = await ask(model)

    assert answer.text == "Fine"
    assert 1.0 <= server.requests[1].at_s - server.requests[0].at_s < 2.0


async def test_a_wish_for_a_long_wait_is_handed_on() -> None:
    server = ScriptedModel([Reply(status=429, headers={"Retry-After": "3600"})])
    async with attached(server) as model:
        error, _ = await failure(model)

    assert len(server.requests) == 1
    assert "asked to wait 3600 s" in error.message
    assert error.retryable
    assert error.retry_after_s == 3600


async def test_nobody_listens() -> None:
    async with aiohttp.ClientSession() as session:
        async with ScriptedModel() as server:
            base_url = server.base_url
        model = OpenAIChat(session, "m", base_url=base_url, api_key=KEY, clock=FakeClock(), retry=QUICK)
        error, _ = await failure(model)

    assert "tried 4 times" in error.message
    assert "base_url" in error.cure
    assert error.retryable


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "words", "cure"),
    [
        (Reply(status=401, error="no"), "The key for 127.0.0.1", "[model] api_key"),
        (Reply(status=404, error="no model m"), "does not know the model m", "[model] name"),
        (Reply(status=400, error="bad field"), "400: bad field", "[model]"),
        (Reply(status=400, code="context_length_exceeded"), "context_length_exceeded", "/new"),
        (Reply(status=307, headers={"Location": "http://127.0.0.1:1/"}), "redirects requests", "base_url"),
        (Reply(raw="<html>Welcome</html>", content_type="text/html"), "a web page", "base_url"),
        (Reply(raw="Welcome", content_type="text/plain"), "“text/plain” instead of an answer", "base_url"),
        (Reply(raw="Welcome", content_type=";h*"), "“no content type” instead of an answer", "base_url"),
        (Reply(status=404, raw="<html><title>nginx</title>", content_type="text/html"), "“nginx”", "base_url"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_refusal_is_not_tried_again_and_names_the_cure(reply: Reply, words: str, cure: str) -> None:
    server = ScriptedModel([reply])
    async with attached(server) as model:
        error, texts = await failure(model)

    assert texts == []
    assert words in error.message
    assert cure in error.cure
    assert not error.retryable
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=401, error=f"Incorrect API key provided: {KEY}"),
        Reply(status=400, error=f"{'x' * 490}{KEY}"),
        Reply(status=500, raw=f"Authorization: Bearer {KEY}", content_type="text/plain"),
        Reply(raw=f'data: {{"error": "{KEY}"}}\n\n'),
        Reply(raw=f"data: {KEY}\n\n"),
        Reply(raw=KEY, content_type=f"text/{KEY}"),
        Reply(cut_after=0),
        Reply(think_s=5),
    ],
    ids=["401", "400", "500", "in a stream", "no chunk", "content type", "cut", "silent"],
)
async def test_the_key_is_in_no_error_and_no_traceback(reply: Reply) -> None:
    async with attached(ScriptedModel([reply] * 4), timeouts=IMPATIENT) as model:
        error, _ = await failure(model)

    assert KEY not in "".join(traceback.format_exception(error))
    assert KEY not in repr(error)


@pytest.mark.parametrize(
    ("base_url", "api_key", "words"),
    [
        ("api.example.org/v1", None, "not a web address"),
        ("ftp://example.org", None, "not a web address"),
        ("", None, "not a web address"),
        ("http://[bad", None, "not a web address"),
        ("https://xn--a/v1", None, "not a web address"),
        ("https://user:pass@example.org/v1", None, "more than an address"),
        ("https://example.org/v1?key=1", None, "more than an address"),
        ("https://example.org/v1", "two words", "not a key"),
        ("https://example.org/v1", "line\nbreak", "not a key"),
    ],
)
async def test_an_unusable_configuration_is_refused_at_once(base_url: str, api_key: str | None, words: str) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(ConfigError, match=words) as caught:
            OpenAIChat(session, "m", base_url=base_url, api_key=api_key, clock=FakeClock())

    assert caught.value.cure
    assert api_key is None or api_key not in str(caught.value)


@pytest.mark.parametrize("ending", ["", "/", "/chat/completions"])
async def test_the_address_may_end_in_several_ways(ending: str) -> None:
    async with ScriptedModel() as server, aiohttp.ClientSession() as session:
        model = OpenAIChat(session, "m", base_url=server.base_url + ending, api_key=f" {KEY}\n", clock=FakeClock())

        assert (await ask(model))[0].text == "You said: Hi"


# --- bounds and ends ------------------------------------------------------------------------------


async def test_an_endless_answer_is_an_error() -> None:
    server = ScriptedModel([Reply(text="x" * 100_000, chunks=100, stall_after=60)])
    async with attached(server, limits=AnswerLimits(text_chars=10_000)) as model:
        error, texts = await failure(model)
        await server.until(lambda: server.requests[0].ended == "left")

    assert "longer than 10000 characters" in error.message
    assert len("".join(texts)) <= 10_000
    assert not error.retryable


async def test_endless_arguments_are_an_error() -> None:
    reply = Reply(calls=(Call(name="shell", arguments="x" * 100_000),), fragments=1_000)
    server = ScriptedModel([reply])
    async with attached(server, limits=AnswerLimits(argument_chars=10_000)) as model:
        error, _ = await failure(model)

    assert "exceed 10000 characters" in error.message
    assert len(server.requests) == 1


async def test_ten_megabytes_of_arguments_at_the_real_limits() -> None:
    reply = Reply(calls=(Call(name="shell", arguments="x" * (11 * 1024 * 1024)),), fragments=20)
    async with attached(ScriptedModel([reply])) as model:
        error, _ = await failure(model)

    assert "exceed 10485760 characters" in error.message


async def test_server_that_only_sends_keep_alives_times_out() -> None:
    clock = FakeClock()
    server = ScriptedModel([Reply(text="x" * 1_000, chunks=1_000, delay_s=0.01)])
    async with attached(server, clock=clock, timeouts=Timeouts(whole_s=60)) as model:
        events = model.stream(ASK)
        await anext(events)
        clock.advance(61)
        with pytest.raises(ModelError, match="took over 60 s"):
            await anext(events)


async def test_closing_the_iterator_stops_the_request() -> None:
    server = ScriptedModel([Reply(text="Hello there", delay_s=0.02, stall_after=3)])
    async with attached(server) as model:
        events = model.stream(ASK)
        first = await anext(events)
        await events.aclose()
        await server.until(lambda: server.requests[0].ended == "left")

    assert isinstance(first, TextPart)
    assert len(server.requests) == 1


async def test_cancelling_the_asker_stops_the_request() -> None:
    server = ScriptedModel([Reply(think_s=60)])
    async with attached(server) as model:
        task = asyncio.create_task(ask(model))
        await server.until(lambda: len(server.requests) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until(lambda: server.requests[0].ended == "left")

    assert len(server.requests) == 1


# --- through a proxy --------------------------------------------------------------------------


async def test_question_goes_through_proxy() -> None:
    async with (
        ProxyServer(user="ann:secret").serve() as proxy,
        attached(ScriptedModel(), proxy=Proxy(proxy.url_with("ann:secret"))) as model,
    ):
        answer, _ = await ask(model)
        assert answer.text == "You said: Hi"
        assert len(proxy.asked) == 1


async def test_proxy_in_the_way_is_named_with_cure() -> None:
    async with (
        ProxyServer(user="ann:secret").serve() as proxy,
        attached(ScriptedModel(), proxy=Proxy(proxy.url_with("ann:wrong"))) as model,
    ):
        error, _ = await failure(model)
        assert error.message == f"The proxy {proxy.url} does not take this user and password (407)."
        assert "setting proxy" in error.cure
    async with attached(ScriptedModel(), proxy=Proxy("http://ann:secret@127.0.0.1:9")) as model:
        error, _ = await failure(model)
        assert error.message.startswith("The proxy http://127.0.0.1:9 cannot be reached (it refuses connections)")
        assert error.retryable
