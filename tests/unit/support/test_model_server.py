from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.support.model_server import HUGE, MANY, Call, Nonsense, Question, Reply, Rule, ScriptedModel, count_events
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]


def question(text: str, results: int = 0) -> dict[str, object]:
    messages = [{"role": "user", "content": text}, *[{"role": "tool", "content": "x"}] * results]
    return {"model": "m", "messages": messages}


@pytest_asyncio.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as found:
        yield found


async def streamed(session: aiohttp.ClientSession, base_url: str, body: dict[str, Any]) -> list[str]:
    """The `data:` lines of a streamed answer; what came before the line was cut, if it was."""
    lines: list[str] = []
    async with session.post(f"{base_url}/chat/completions", json={**body, "stream": True}) as response:
        try:
            async for line in response.content:
                lines += [line.decode().removeprefix("data: ").strip()] if line.strip() else []
        except aiohttp.ClientPayloadError:
            lines.append("cut")
    return lines


def delta_of(line: str) -> dict[str, Any]:
    choices: list[dict[str, Any]] = json.loads(line)["choices"] if line.startswith("{") else []
    return choices[0]["delta"] if choices else {}


async def said(session: aiohttp.ClientSession, base_url: str, text: str, results: int = 0) -> str:
    async with session.post(f"{base_url}/chat/completions", json=question(text, results)) as response:
        return (await response.json())["choices"][0]["message"]["content"]


async def test_rules_come_first_then_replies_then_an_echo() -> None:
    rules = [
        Rule(text="weather", results=0, reply=Reply(text="Let me look.")),
        Rule(text="weather", results=1, reply=Reply(text="Rain.")),
    ]
    async with ScriptedModel([Reply(text="Next.")], rules) as server, aiohttp.ClientSession() as session:
        assert await said(session, server.base_url, "the weather?") == "Let me look."
        assert await said(session, server.base_url, "the weather?", results=1) == "Rain."
        assert await said(session, server.base_url, "Hello") == "Next."
        assert await said(session, server.base_url, "Hello") == "You said: Hello"


async def test_a_wrong_key_is_refused_and_none_is_kept() -> None:
    async with ScriptedModel(api_key="right") as server, aiohttp.ClientSession() as session:
        headers = {"Authorization": "Bearer wrong"}
        async with session.post(f"{server.base_url}/chat/completions", json=question("x"), headers=headers) as response:
            assert response.status == 401

    [asked] = server.requests
    assert not asked.key_is_right
    assert "wrong" not in repr(asked)


async def test_model_server_runs_as_a_program(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": [{"text": "From the file."}]}))
    command = [sys.executable, "-m", "tests.support.model_server", "--port", "0", "--script", str(script)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as session:
            started = json.loads(await process.stdout.readline())
            root = started["base_url"].removesuffix("/v1")
            assert await said(session, started["base_url"], "Hi") == "From the file."
            async with session.post(f"{root}/_script", json={"replies": [{"text": "Added."}]}) as response:
                assert response.status == 204
            async with session.post(f"{root}/_script", json={"replies": [{"txt": "?"}]}) as response:
                assert response.status == 400
                assert "replies.0.txt" in await response.text()
            assert await said(session, started["base_url"], "Hi") == "Added."
            async with session.get(f"{root}/_log") as response:
                assert [asked["ended"] for asked in await response.json()] == ["whole", "whole"]
            async with session.get(f"{started['base_url']}/models") as response:
                assert (await response.json())["data"][0]["id"] == "scripted"
    finally:
        process.terminate()
        await process.wait()


def test_a_script_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValueError, match="txt"):
        Reply.model_validate({"txt": "?"})


# --- rules ----------------------------------------------------------------------------------

CONVERSATION: dict[str, Any] = {
    "model": "clever",
    "messages": [
        {"role": "system", "content": "You are a scout."},
        {"role": "user", "content": "First."},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": [{"type": "text", "text": "Which kernel?"}]},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": "{}"}},
                {"id": "c2", "type": "function", "function": {"name": "browser", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": 'Linux "6"'},
        {"role": "tool", "tool_call_id": "c2", "content": "an {nth} page"},
    ],
    "tools": [{"type": "function", "function": {"name": "shell"}}],
}


def test_a_question_is_read_from_its_request() -> None:
    question = Question.of(CONVERSATION)
    assert (question.text, question.nth, question.model) == ("Which kernel?", 2, "clever")
    assert question.system == "You are a scout."
    assert question.tools == {"shell"}
    assert [(one.call, one.tool, one.text) for one in question.outcomes] == [
        ("c1", "shell", 'Linux "6"'),
        ("c2", "browser", "an {nth} page"),
    ]
    assert Question.of({}) == Question()


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({}, True),
        ({"text": "kernel", "results": 2, "nth": 2, "system": "scout", "model": "clever"}, True),
        ({"text": "disk"}, False),
        ({"results": 1}, False),
        ({"nth": 1}, False),
        ({"system": "cook"}, False),
        ({"model": "clev"}, False),
        ({"offers": ["shell"], "hides": ["browser"]}, True),
        ({"offers": ["shell", "browser"]}, False),
        ({"hides": ["shell"]}, False),
        ({"result": "Linux"}, True),
        ({"result": "Windows"}, False),
        ({"result": "Linux", "result_of": "shell"}, True),
        ({"result": "Linux", "result_of": "c2"}, False),
        ({"result_of": "files"}, False),
    ],
)
def test_a_rule_fits_what_it_names(fields: dict[str, Any], fits: bool) -> None:
    rule = Rule.model_validate({**fields, "reply": {"text": "x"}})
    assert rule.fits(Question.of(CONVERSATION)) is fits


async def test_a_rule_answers_as_often_as_it_says(session: aiohttp.ClientSession) -> None:
    async with ScriptedModel(rules=[Rule(times=2, reply=Reply(text="Rule."))]) as server:
        answers = [await said(session, server.base_url, "Hi") for _ in range(3)]
    assert answers == ["Rule.", "Rule.", "You said: Hi"]


async def test_a_model_has_replies_of_its_own(session: aiohttp.ClientSession) -> None:
    models = {"broken": [Reply(status=500), Reply(text="Mended.")]}
    async with ScriptedModel([Reply(text="Other.")], models=models) as server:
        url = f"{server.base_url}/chat/completions"
        async with session.post(url, json={"model": "broken", "messages": []}) as response:
            assert response.status == 500
        assert await said(session, server.base_url, "Hi") == "Other."
        async with session.post(url, json={"model": "broken", "messages": []}) as response:
            assert (await response.json())["choices"][0]["message"]["content"] == "Mended."
        async with session.get(f"{server.base_url}/models") as response:
            assert [one["id"] for one in (await response.json())["data"]] == ["scripted", "broken"]


async def test_a_reply_takes_up_what_the_question_brought(session: aiohttp.ClientSession) -> None:
    reply = Reply(
        text="{text} {nth} {model}: {result1} | {result2} | {result3}",
        calls=(Call(name="shell", arguments='{"command": "echo {result1}"}'),),
    )
    async with (
        ScriptedModel([reply]) as server,
        session.post(f"{server.base_url}/chat/completions", json=CONVERSATION) as response,
    ):
        message = (await response.json())["choices"][0]["message"]
    assert message["content"] == 'Which kernel? 2 clever: Linux "6" | an {nth} page | {result3}'
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"command": 'echo Linux "6"'}


async def test_a_function_can_answer(session: aiohttp.ClientSession) -> None:
    def answering(question: Question) -> Reply | None:
        return Reply(text=question.text.upper()) if question.nth == 1 and question.text != "quiet" else None

    async with ScriptedModel([Reply(text="Next.")], answering=answering) as server:
        assert await said(session, server.base_url, "loud") == "LOUD"
        assert await said(session, server.base_url, "quiet") == "Next."


# --- what goes wrong ------------------------------------------------------------------------


async def test_model_server_cuts_after_any_event(session: aiohttp.ClientSession) -> None:
    whole = Reply(text="All is well.", chunks=3, calls=(Call(name="shell"),))
    async with ScriptedModel() as server:
        for count in range(count_events(whole)):
            server.replies.append(whole.model_copy(update={"cut_after": count}))
            lines = await streamed(session, server.base_url, question("x"))
            assert len([line for line in lines if line != "cut"]) == count
        server.replies.append(whole)
        lines = await streamed(session, server.base_url, question("x"))
        assert len(lines) == count_events(whole)
        assert [asked.ended for asked in server.requests] == ["cut"] * (len(server.requests) - 1) + ["whole"]


async def nonsense(session: aiohttp.ClientSession, kind: Nonsense, *calls: Call) -> list[str]:
    async with ScriptedModel([Reply(nonsense=kind, calls=calls, text="Hm.")]) as server:
        return await streamed(session, server.base_url, question("x"))


async def test_nonsense_in_words(session: aiohttp.ClientSession) -> None:
    with pytest.raises(json.JSONDecodeError):
        [json.loads(line) for line in await nonsense(session, "bad_json") if line != "[DONE]"]
    assert delta_of((await nonsense(session, "wrong_role"))[0])["role"] == "user"
    empty = await nonsense(session, "empty", Call(name="shell"))
    assert not any(delta_of(line).get("content") or delta_of(line).get("tool_calls") for line in empty)
    assert (await nonsense(session, "html"))[0].startswith("<!doctype html>")


async def test_nonsense_in_calls(session: aiohttp.ClientSession) -> None:
    async def calls(kind: Nonsense) -> list[dict[str, Any]]:
        lines = await nonsense(session, kind, Call(name="shell"))
        return [call for line in lines for call in delta_of(line).get("tool_calls", [])]

    assert [call["id"] for call in await calls("duplicate_ids") if "id" in call] == ["call_same"] * 2
    assert len({call["id"] for call in await calls("many_calls") if "id" in call}) == MANY
    assert sum(len(call["function"]["arguments"]) for call in await calls("huge_arguments")) > HUGE


async def test_an_endless_answer_ends_when_nobody_listens(session: aiohttp.ClientSession) -> None:
    async with ScriptedModel([Reply(nonsense="endless")]) as server:
        body = {**question("x"), "stream": True}
        async with session.post(f"{server.base_url}/chat/completions", json=body) as response:
            assert len(await response.content.readexactly(20_000)) == 20_000
            assert server.at_once == 1
            response.close()
        await server.until(lambda: server.requests[0].ended == "left")
        assert server.at_once == 0


async def test_model_server_counts_parallel_requests(session: aiohttp.ClientSession) -> None:
    async with ScriptedModel(rules=[Rule(reply=Reply(text="Hm.", think_s=0.3))]) as server:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(said(session, server.base_url, "Hi"))
        await said(session, server.base_url, "Hi")
    assert [asked.at_once for asked in server.requests] == [1, 2, 3, 1]
    assert server.most_at_once == 3
