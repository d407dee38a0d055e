"""The tools `websearch` and `codesearch` over fake services: requests, results, and answers that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agent_tools import codesearch, websearch
from agent_tools.websearch import SearchSettings
from gateway.app.tool_hosts import DaemonToolHost
from gateway.domain.tools import ToolResult
from gateway.errors import BadRequest
from gateway.sandbox import Containment
from tests.support.clock import FakeClock
from tests.unit.agent_tools.web.conftest import Call, Web

HITS = [{"title": "A  page", "url": "https://a.example/", "content": "words", "description": "words", "text": "words"}]
SERVICES = [
    ("searxng", "/search", {"results": HITS}),
    ("brave", "/res/v1/web/search", {"web": {"results": HITS}}),
    ("tavily", "/search", {"results": HITS}),
    ("exa", "/search", {"results": HITS}),
]


class Rig:
    """Searches with one service."""

    def __init__(self, folder: Path, call: Call, the_web: Web, machine: Containment) -> None:
        self._folder = folder
        self._call = call
        self._web = the_web
        self._machine = machine

    async def __call__(self, provider: str, words: str = "apples", tool: Any = websearch, **more: Any) -> ToolResult:
        key = None if provider == "searxng" else "the-key"
        settings = SearchSettings.model_validate({"provider": provider, "url": "http://search.example", "api_key": key})
        host = DaemonToolHost(
            settings=settings, folder=self._folder, clock=FakeClock(), containment=self._machine,
            egress=self._web.egress(),
        )  # fmt: skip
        args = websearch.Args.model_validate({"query": words, **more})
        assert tool.scope(args, settings).subjects == ("host:search.example",)
        return await tool.create(host).run(self._call, args)


@pytest.fixture
def search(tmp_path: Path, call: Call, the_web: Web, machine: Containment) -> Rig:
    return Rig(tmp_path, call, the_web, machine)


@pytest.mark.parametrize(("provider", "path", "answer"), SERVICES)
async def test_each_service_is_asked_and_read(
    search: Rig, the_web: Web, provider: str, path: str, answer: dict[str, Any]
) -> None:
    the_web.page(path, json.dumps(answer), "application/json")
    result = await search(provider, "red apples", num_results=3)
    assert result.text == "1. A page\nhttps://a.example/\nwords"
    assert result.untrusted
    ((method, url, headers, body),) = the_web.requests
    sent = f"{url} {body.decode()}"
    assert "red" in sent
    assert "apples" in sent
    assert method == ("POST" if provider in ("tavily", "exa") else "GET")
    assert ("the-key" in str(headers)) == (provider != "searxng")
    assert "the-key" not in url


async def test_codesearch_asks_for_code(search: Rig, the_web: Web) -> None:
    the_web.page("/search", json.dumps({"results": HITS}), "application/json")
    await search("searxng", tool=codesearch)
    assert "categories=it" in the_web.requests[0][1]


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        ("<html>sign in</html>", 200, "answered with no JSON"),
        ("{}", 200, "has no results"),
        ('{"results": 3}', 200, "has no results"),
        ("[]", 200, "has no results"),
        ('{"results": []}', 500, "answered with 500"),
        ("{}", 401, "refused the key"),
        ("", 200, "no JSON"),
    ],
)
async def test_an_answer_that_is_none_is_reported(search: Rig, the_web: Web, body: str, status: int, why: str) -> None:
    the_web.page("/search", body, "application/json", status)
    with pytest.raises(BadRequest, match=why) as refused:
        await search("searxng")
    assert refused.value.cure


async def test_odd_results_are_left_out(search: Rig, the_web: Web) -> None:
    odd = [None, 3, {}, {"url": 3}, {"url": "javascript:x"}, {"url": "https://b.example", "title": None}]
    the_web.page("/search", json.dumps({"results": odd}), "application/json")
    assert (await search("searxng")).text == "1. https://b.example\nhttps://b.example"
    the_web.page("/search", json.dumps({"results": []}), "application/json")
    assert (await search("searxng")).text == "search.example found nothing."


@pytest.mark.parametrize(
    "settings",
    [
        {"provider": "searxng"}, {"provider": "brave"}, {"provider": "none"}, {"url": "https://x.example"},
        {"provider": "searxng", "url": "not an address"},
    ],
)  # fmt: skip
def test_incomplete_settings_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        SearchSettings.model_validate(settings)


def test_without_a_service_the_tool_does_not_exist() -> None:
    assert "provider in [tools.websearch]" in websearch.missing(SearchSettings())
    assert "provider in [tools.codesearch]" in codesearch.missing(SearchSettings())
    assert websearch.missing(SearchSettings.model_validate({"provider": "exa", "api_key": "k"})) == ""


@pytest.mark.parametrize("arguments", [{}, {"query": ""}, {"query": "a", "num_results": 0}, {"query": "a" * 501}])
def test_wrong_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        websearch.Args.model_validate(arguments)
