from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.support.model_server import Reply, Rule, ScriptedModel

ROOT = Path(__file__).parents[3]


def question(text: str, results: int = 0) -> dict[str, object]:
    messages = [{"role": "user", "content": text}, *[{"role": "tool", "content": "x"}] * results]
    return {"model": "m", "messages": messages}


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


async def test_as_a_program(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": [{"text": "From the file."}]}))
    command = [sys.executable, "-m", "tests.support.model_server", "--port", "0", "--script", str(script)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20), aiohttp.ClientSession() as session:
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
