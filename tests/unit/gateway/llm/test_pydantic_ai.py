"""pydantic-ai's models over real connections to fakes of Anthropic and Google on loopback."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from types import ModuleType
from typing import Any

import pytest
from httpx2 import AsyncClient

from gateway.domain.ids import CallId
from gateway.domain.prompts import CallResult, Complete, Image, ModelRequest, TextPart, ToolOffer, UserText
from gateway.domain.proxy import Proxy
from gateway.domain.steps import Answer, Usage
from gateway.domain.tools import ARGUMENTS_AT_MOST, ResultStatus, ToolCall, ToolResult
from gateway.errors import ConfigError, ModelError
from gateway.llm.attempts import Timeouts
from gateway.llm.pydantic_ai import LibraryModel, open_library
from gateway.llm.pydantic_ai.opening import their_model
from gateway.policy.retry import RetryLimits
from tests.support.patience import PATIENCE_S
from tests.support.providers import FakeProvider, Said, anthropic_calls, anthropic_text, google
from tests.support.proxy_server import ProxyServer

KEY = "sk-ant-0123456789abcdef"
SHELL = ToolOffer(
    name="shell",
    description="Runs a command.",
    schema={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
ASK = ModelRequest(system="Be kind.", messages=(UserText(text="Which kernel?"),), tools=(SHELL,))
UNAME = '{"command": "uname -r"}'
CLAUDE, GEMINI = "anthropic:claude-sonnet-5", "google:gemini-3-flash"


@asynccontextmanager
async def attached(
    *answers: Said, name: str = CLAUDE, stall_s: float = 5.0
) -> AsyncGenerator[tuple[FakeProvider, LibraryModel]]:
    """Start a fake provider with these answers, and yield a model that asks it."""
    async with FakeProvider(*answers) as server, AsyncClient(timeout=30) as client:
        yield (
            server,
            LibraryModel(
                name,
                their_model(name, base_url=server.url, api_key=KEY, client=client),
                close=client.aclose,
                api_key=KEY,
                retry=RetryLimits(min_delay_s=0.01, max_delay_s=60),
                timeouts=Timeouts(stall_s=stall_s, first_byte_s=0.2),
            ),
        )


async def ask(model: LibraryModel, request: ModelRequest = ASK) -> tuple[list[str], Answer]:
    """Return the streamed texts and the answer."""
    texts: list[str] = []
    async for event in model.stream(request):
        match event:
            case TextPart(text=text):
                texts.append(text)
            case Complete(answer=answer):
                return texts, answer
            case _:
                raise AssertionError(event)
    raise AssertionError("no answer")


async def test_a_text_streams_and_is_whole() -> None:
    async with attached(Said(events=anthropic_text("Linux 6.1, I think."))) as (server, model):
        texts, answer = await ask(model)
    assert "".join(texts) == answer.text == "Linux 6.1, I think."
    assert len(texts) >= 2
    assert answer.model == CLAUDE
    assert answer.usage == Usage(input_tokens=25, output_tokens=12, cached_tokens=5)
    assert server.keys == [f"Bearer {KEY}"]
    (asked,) = server.asked
    assert asked["messages"][0]["content"][0]["text"] == "Which kernel?"
    assert asked["tools"][0]["name"] == "shell"


async def test_calls_come_whole_and_in_order() -> None:
    said = anthropic_calls(("toolu_1", "shell", UNAME), ("toolu_2", "shell", '{"command": "df -h"}'))
    async with attached(Said(events=said)) as (_, model):
        _, answer = await ask(model)
    assert [(call.id, call.arguments) for call in answer.calls] == [
        ("toolu_1", UNAME),
        ("toolu_2", '{"command": "df -h"}'),
    ]


async def test_too_long_call_is_cut_to_just_above_its_limit() -> None:
    long = '{"command": "' + "x" * ARGUMENTS_AT_MOST + '"}'
    async with attached(Said(events=anthropic_calls(("toolu_1", "t" * 300, long)))) as (_, model):
        _, answer = await ask(model)
    assert [(call.tool, call.arguments) for call in answer.calls] == [("t" * 200, long[: ARGUMENTS_AT_MOST + 1])]


@pytest.mark.parametrize("kind", ["text", "calls"])
async def test_a_stream_that_is_cut_after_any_event_is_never_an_answer(kind: str) -> None:
    events = anthropic_text("Half of it.") if kind == "text" else anthropic_calls(("t1", "shell", UNAME))
    whole = len(events) - 2  # the reason for the end is the last event but one: after it nothing is missing
    for n in range(whole + 1):
        cut = Said(events=events, cut_after=n)
        async with attached(cut, cut, cut, cut) as (_, model):
            with pytest.raises(ModelError) as failed:
                await ask(model)
        assert failed.value.retryable or "whole" in str(failed.value), n


async def test_an_output_limit_in_a_call_runs_nothing() -> None:
    async with attached(Said(events=anthropic_calls(("t1", "shell", UNAME), stop="max_tokens"))) as (_, model):
        with pytest.raises(ModelError, match="in the middle of a call"):
            await ask(model)


async def test_a_busy_provider_is_asked_again_and_no_one_else_retries() -> None:
    busy = Said(
        status=529,
        body={"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    )
    async with attached(busy, busy, Said(events=anthropic_text("Now."))) as (server, model):
        _, answer = await ask(model)
    assert answer.text == "Now."
    assert len(server.asked) == 3
    async with attached(busy, busy, busy, busy) as (server, model):
        with pytest.raises(ModelError, match="tried 4 times"):
            await ask(model)
    assert len(server.asked) == 4


async def test_a_wish_to_wait_is_honoured() -> None:
    limited = Said(
        status=429,
        headers={"retry-after": "7200"},
        body={"type": "error", "error": {"type": "rate_limit_error", "message": "Too fast"}},
    )
    async with attached(limited) as (server, model):
        with pytest.raises(ModelError, match="asked to wait 7200 s"):
            await ask(model)
    assert len(server.asked) == 1


async def test_a_refused_key_is_named_with_its_cure_and_not_shown() -> None:
    refused = Said(
        status=401,
        body={"type": "error", "error": {"type": "authentication_error", "message": f"invalid x-api-key {KEY}"}},
    )
    async with attached(refused) as (server, model):
        with pytest.raises(ModelError, match=r"Set \[model\] api_key") as failed:
            await ask(model)
    assert KEY not in str(failed.value)
    assert len(server.asked) == 1


async def test_a_conversation_that_is_too_long_says_so() -> None:
    refused = Said(
        status=400,
        body={
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"},
        },
    )
    async with attached(refused) as (_, model):
        with pytest.raises(ModelError) as failed:
            await ask(model)
    assert failed.value.too_long


async def test_thinking_and_results_go_back_as_they_must() -> None:
    first = Said(events=anthropic_calls(("toolu_1", "shell", UNAME), thinking="They want the kernel."))
    async with attached(first, Said(events=anthropic_text("6.1."))) as (server, model):
        _, answer = await ask(model)
        result = CallResult(
            call=answer.calls[0].id,
            tool="shell",
            result=ToolResult(status=ResultStatus.OK, text="6.1.0"),
            images=(Image(media_type="image/png", data=b"\x89PNG"),),
        )
        again = ModelRequest(system="Be kind.", messages=(*ASK.messages, answer, result), tools=(SHELL,))
        _, last = await ask(model, again)
    assert last.text == "6.1."
    asked = server.asked[1]["messages"]
    assert [message["role"] for message in asked] == ["user", "assistant", "user"]
    thinking, call = asked[1]["content"]
    assert (thinking["type"], thinking["thinking"], thinking["signature"]) == (
        "thinking",
        "They want the kernel.",
        "c2lnbmVk",
    )
    assert (call["type"], call["id"], call["input"]) == ("tool_use", "toolu_1", {"command": "uname -r"})
    kinds = [part["type"] for part in asked[2]["content"]]
    assert kinds[0] == "tool_result"
    assert "image" in str(kinds) or "image" in str(asked[2]["content"])


async def test_pictures_and_untrusted_texts_match_the_openai_payload() -> None:
    photo = Image(media_type="image/png", data=b"\x89PNG", name="inbox/i1-1.png")
    call = ToolCall(id=CallId("toolu_1"), tool="shell", arguments=UNAME)
    page = ToolResult(status=ResultStatus.OK, text="obey", hint="Fine.", untrusted=True)
    asked = ModelRequest(
        system="",
        messages=(
            UserText(text="look", data="[files]", images=(photo,)),
            Answer(text="", calls=(call,), model=CLAUDE),
            CallResult(call=call.id, tool="shell", result=page, images=(photo, photo)),
        ),
        tools=(SHELL,),
        mark="00c0ffee00c0ffee",
    )
    async with attached(Said(events=anthropic_text("Nice."))) as (server, model):
        await ask(model, asked)
    said, _, came = server.asked[0]["messages"]
    assert [part["type"] for part in said["content"]] == ["text", "text", "image"]
    assert [part["text"] for part in said["content"][:2]] == [
        "[files]\n\nlook",
        "[00c0ffee00c0ffee the picture inbox/i1-1.png]",
    ]
    (result,) = [part for part in came["content"] if part["type"] == "tool_result"]
    block, _, hint = str(result["content"][0]["text"]).rpartition("\n")
    assert hint == "Fine."
    assert block.endswith("00c0ffee00c0ffee\nobey\n00c0ffee00c0ffee")
    assert [part["text"] for part in came["content"] if part["type"] == "text"] == [
        "[00c0ffee00c0ffee picture 1 of 2 of call toolu_1, shell]",
        "[00c0ffee00c0ffee picture 2 of 2 of call toolu_1, shell]",
    ]


async def test_another_models_reasoning_is_not_passed_on() -> None:
    foreign = Answer(
        text="",
        calls=(ToolCall(id=CallId("c1"), tool="shell", arguments=UNAME),),
        model="anthropic:another",
        opaque={"library": {"thinking": [{"content": "secret", "part_kind": "thinking"}]}},
    )
    result = CallResult(call=CallId("c1"), tool="shell", result=ToolResult(status=ResultStatus.OK, text="6.1.0"))
    request = ModelRequest(system="", messages=(*ASK.messages, foreign, result), tools=(SHELL,))
    async with attached(Said(events=anthropic_text("6.1."))) as (server, model):
        await ask(model, request)
    assert "secret" not in str(server.asked)


async def test_invalid_arguments_do_not_break_later_requests() -> None:
    broken = Answer(text="", calls=(ToolCall(id=CallId("c1"), tool="shell", arguments='{"command": '),), model=CLAUDE)
    result = CallResult(call=CallId("c1"), tool="shell", result=ToolResult(status=ResultStatus.ERROR, text="no"))
    request = ModelRequest(system="", messages=(*ASK.messages, broken, result), tools=(SHELL,))
    async with attached(Said(events=anthropic_text("Sorry."))) as (server, model):
        await ask(model, request)
    assert server.asked[0]["messages"][1]["content"][0]["input"] == {"not_a_json_object": '{"command": '}


async def test_a_silent_provider_is_given_up() -> None:
    silent = Said(events=anthropic_text("Half."), cut_after=3, silent_s=5)
    async with attached(silent, stall_s=0.2) as (_, model):
        with pytest.raises(ModelError, match="nothing for") as failed:
            await ask(model)
    assert failed.value.retryable


async def test_hasty_model_gives_up_a_silent_provider_after_two() -> None:
    silent = Said(events=anthropic_text("Half."), cut_after=0, silent_s=5)
    first = Said(events=anthropic_text("Whole."))
    async with attached(first, silent, silent, silent) as (server, model):
        await ask(model)  # imports and connects: a fifth of a second would not do
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(ModelError, match=r"sent nothing for 0.2 s \(tried 2 times\)"):
                await ask(model.impatient())
    assert len(server.asked) <= 3  # beside other load a request may be given up before it arrives


async def test_closed_listener_ends_the_request_at_once() -> None:
    async with attached(Said(events=anthropic_text("Half."), cut_after=4, silent_s=1)) as (_, model):
        left: list[str] = []  # to the garbage collector, which closes later

        def finalizer(generator: Any) -> None:
            left.append(str(generator.__qualname__))

        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(hooks.firstiter, finalizer)
        try:
            async with aclosing(model.stream(ASK)) as events:
                await anext(events)
            await asyncio.sleep(0)
        finally:
            sys.set_asyncgen_hooks(*hooks)
        assert [name for name in left if name.startswith(("LibraryModel", "tried"))] == []


async def test_foreign_ids_and_names_are_sent_in_a_valid_form() -> None:
    made_up = (("functions.shell:0", "shell.run it"), ("c2", "x" * 210), ("c3", ""))
    calls = tuple(ToolCall(id=CallId(id_), tool=tool, arguments="{}") for id_, tool in made_up)
    failed = ToolResult(status=ResultStatus.ERROR, text=" ")
    results = [CallResult(call=CallId(id_), tool=tool, result=failed) for id_, tool in made_up]
    said = (UserText(text="Hi"), Answer(text=" \n", calls=calls, model="openai:kimi"), *results)
    request = ModelRequest(
        system="", messages=(*said, Answer(text=" ", model="openai:kimi"), UserText(text="Again")), tools=(SHELL,)
    )
    async with attached(Said(events=anthropic_text("Sorry."))) as (server, model):
        await ask(model, request)
    _, asked, told = server.asked[0]["messages"]
    assert [(one["id"], one["name"]) for one in asked["content"]] == [
        ("functions_shell_0_0e09fe37", "shell_run_it"),
        ("c2", "x" * 64),
        ("c3", "unknown"),
    ]
    *answers, again = told["content"]
    assert [one["tool_use_id"] for one in answers] == ["functions_shell_0_0e09fe37", "c2", "c3"]
    assert again["text"] == "Again"


@pytest.mark.parametrize("stop", ["refusal", "max_tokens"])
async def test_fault_of_one_request_is_no_fault_of_the_model(stop: str) -> None:
    async with attached(Said(events=anthropic_calls(("t1", "shell", UNAME), stop=stop))) as (_, model):
        with pytest.raises(ModelError) as failed:
            await ask(model)
    assert failed.value.about_request


# --- Google -------------------------------------------------------------------------------------


async def test_google_answers_with_text_and_calls() -> None:
    said = google(
        {"text": "Let me "}, {"text": "look."}, {"functionCall": {"name": "shell", "args": {"command": "ls"}}}
    )
    async with attached(Said(events=said), name=GEMINI) as (_, model):
        texts, answer = await ask(model)
    assert "".join(texts) == "Let me look."
    assert [(call.tool, call.arguments) for call in answer.calls] == [("shell", '{"command":"ls"}')]
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (20, 12)


async def test_a_stream_of_google_that_is_cut_is_never_an_answer() -> None:
    events = google({"text": "Let me "}, {"text": "look."})
    cut = Said(events=events, cut_after=1)
    async with attached(cut, name=GEMINI) as (_, model):
        with pytest.raises(ModelError):
            await ask(model)


# --- invalid characters -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"), [("\ud83d\ude00", "😀"), ("ab\ud83dcd", "ab\ufffdcd"), ("abc\ud83d", "abc\ufffd")]
)
async def test_halves_of_characters_are_joined_or_replaced(text: str, shown: str) -> None:
    """The fake splits a text in the middle of a character. Halves can be neither stored nor shown."""
    async with attached(Said(events=anthropic_text(text))) as (_, model):
        texts, answer = await ask(model)
    assert "".join(texts) == answer.text == shown


async def test_halves_of_characters_in_calls_and_thinking_are_replaced() -> None:
    events = anthropic_calls(("toolu_1", "sh\ud83dell", '{"command": "\ud83d\ude00\ud83d"}'), thinking="hm\ud83d")
    async with attached(Said(events=events)) as (_, model):
        _, answer = await ask(model)
    assert [(call.tool, call.arguments) for call in answer.calls] == [("sh\ufffdell", '{"command": "😀\ufffd"}')]
    assert answer.opaque["library"]["thinking"][0]["content"] == "hm\ufffd"


async def test_half_a_character_in_a_call_of_googles_is_replaced() -> None:
    said = Said(events=google({"functionCall": {"name": "shell", "args": {"command": "é\ud83d"}}}))
    async with attached(said, name=GEMINI) as (_, model):
        _, answer = await ask(model)
    assert [call.arguments for call in answer.calls] == ['{"command":"é\ufffd"}']


async def test_tokens_that_nobody_can_count_do_not_cost_the_answer() -> None:
    events = anthropic_text("Hello")
    events[0][1]["message"]["usage"] = {"input_tokens": 10**30, "output_tokens": 10**30}
    async with attached(Said(events=events)) as (_, model):
        _, answer = await ask(model)
    assert answer.text == "Hello"
    assert answer.usage.input_tokens == 10**9


async def test_a_text_without_end_is_an_error() -> None:
    async with attached(Said(events=anthropic_text("x" * 3_000_000))) as (_, model):
        with pytest.raises(ModelError, match="longer than 1048576 characters") as caught:
            await ask(model)
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (anthropic_calls(("a", "shell", '{"command": "' + "x" * 11_000_000 + '"}')), "calls exceed 10485760"),
        (anthropic_calls(*[(f"a{n}", "shell", UNAME) for n in range(513)]), "more than 512 calls"),
        (anthropic_calls(("a", "shell", UNAME), thinking="x" * 5_000_000), "reasoning is longer than 4194304"),
    ],
    ids=["arguments", "calls", "reasoning"],
)
async def test_an_answer_is_bounded(events: list[Any], words: str) -> None:
    async with attached(Said(events=events)) as (_, model):
        with pytest.raises(ModelError, match=words):
            await ask(model)


# --- opening ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nosuch:model", "anthropic:"])
def test_malformed_model_name_is_refused_with_a_cure(name: str) -> None:
    with pytest.raises(ConfigError, match="Correct"):
        open_library(name, base_url=None, api_key=KEY)


@pytest.mark.parametrize("name", [CLAUDE, GEMINI])
@pytest.mark.parametrize("base_url", ["https://ｅxample.org/", "https://256.1.1.1/"])
def test_an_address_that_nobody_can_ask_is_refused_with_a_cure(name: str, base_url: str) -> None:
    with pytest.raises(ConfigError, match=f"The model {name} cannot be asked at its base_url") as refused:
        open_library(name, base_url=base_url, api_key=KEY)
    assert "[model] base_url" in refused.value.cure


@pytest.mark.parametrize("name", ["groq:llama", "mistral:large", "bedrock:eu.some-model", "deepseek:chat"])
def test_a_provider_whose_package_is_missing_is_said_with_a_cure(name: str) -> None:
    with pytest.raises(ConfigError, match=f"The model {name} needs a package that is not installed") as refused:
        open_library(name, base_url=None, api_key=None if name.startswith("bedrock") else KEY)
    assert "the extra `providers`" in refused.value.cure.lower()
    assert "base_url" in refused.value.cure


async def test_question_goes_through_proxy() -> None:
    async with (
        ProxyServer(user="ann:secret").serve() as proxy,
        FakeProvider(Said(events=anthropic_text("Linux 6.1, I think."))) as server,
    ):
        way = Proxy(proxy.url_with("ann:secret"))
        model = open_library(CLAUDE, base_url=server.url, api_key=KEY, proxy=way)
        try:
            _, answer = await ask(model)
        finally:
            await model.close()
        assert answer.text == "Linux 6.1, I think."
        assert len(proxy.asked) == 1


def test_proxy_that_a_provider_would_pass_by_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its package speaks gRPC over connections of its own."""
    package = ModuleType("xai_sdk")
    package.__dict__["AsyncClient"] = type("AsyncClient", (), {})
    monkeypatch.setitem(sys.modules, "xai_sdk", package)
    sys.modules.pop("pydantic_ai.providers.xai", None)
    with pytest.raises(ConfigError, match="The provider xai takes no proxy") as refused:
        open_library("xai:grok-5", base_url=None, api_key=KEY, proxy=Proxy("http://ann:secret@127.0.0.1:9"))
    assert "Remove proxy from [model]" in refused.value.cure
    assert "secret" not in str(refused.value)
    sys.modules.pop("pydantic_ai.providers.xai", None)


async def test_proxy_that_is_not_there_is_named() -> None:
    way = Proxy("http://ann:secret@127.0.0.1:9")
    async with AsyncClient(proxy=way.url) as client:
        theirs = their_model(CLAUDE, base_url="http://127.0.0.1:9", api_key=KEY, client=client)
        model = LibraryModel(CLAUDE, theirs, close=client.aclose, retry=RetryLimits(attempts=1), proxy=way)
        with pytest.raises(ModelError) as caught:
            await ask(model)
    assert "through the proxy http://127.0.0.1:9 failed" in caught.value.message
    assert "[model] proxy" in caught.value.cure
