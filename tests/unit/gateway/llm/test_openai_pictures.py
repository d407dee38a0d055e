"""Large pictures in a request do not block the event loop."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gateway.domain.prompts import Complete, Image, ModelRequest, ToolOffer, UserText
from gateway.llm.openai_payload import request_body
from tests.support.model_server import Reply, ScriptedModel
from tests.unit.gateway.llm.asking import ASK, attached

LARGE = Image(media_type="image/png", data=bytes(2_000_000), name="inbox/a.png")
TOOL = ToolOffer(name="t", description="T.", schema={})


class Watched(tuple[Image, ...]):
    """Pictures that record the threads that read them."""

    def __new__(cls, images: tuple[Image, ...], threads: set[int]) -> Watched:
        """Store pictures and threads."""
        made = super().__new__(cls, images)
        made.threads = threads
        return made

    threads: set[int]

    def __iter__(self) -> Iterator[Image]:
        """Record the thread."""
        self.threads.add(threading.get_ident())
        return super().__iter__()


async def test_pictures_are_encoded_in_a_thread_and_sent_in_pieces() -> None:
    """Eight of 10 MB blocked the loop for 0.5 s; sending them in one piece, 0.2 s more (aiohttp warns of that)."""
    threads: set[int] = set()
    shown = UserText(text="Look", images=Watched((LARGE, LARGE), threads))
    server = ScriptedModel([Reply(text="Black.")])
    async with attached(server) as model:
        *_, last = [event async for event in model.stream(replace(ASK, messages=(shown,)))]
    assert isinstance(last, Complete)
    assert threads
    assert threading.get_ident() not in threads
    (asked,) = server.requests
    assert len(asked.body["messages"][-1]["content"][2]["image_url"]["url"]) > 2_600_000


@pytest.mark.parametrize("tools", [(), (TOOL,)])
def test_a_request_with_pictures_is_written_as_one_without(tools: tuple[ToolOffer, ...]) -> None:
    small = UserText(text="Schön \ud800", images=(replace(LARGE, data=b"png"),))
    request = ModelRequest(system='Be "kind".', messages=(small,), tools=tools, mark="abc")
    body = request_body("m", request, answered_by="openai:m")
    read = json.loads(body)
    assert body == json.dumps(read, ensure_ascii=False, separators=(",", ":")).encode()
    assert [part["type"] for part in read["messages"][1]["content"]] == ["text", "text", "image_url"]
    assert ("tools" in read) == bool(tools)
