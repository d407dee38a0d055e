"""Parser of messages that begin with `/`, and of the operator's commands for tools."""

from __future__ import annotations

import asyncio
import json

from agent_tools import sessions_spawn, shell
from gateway.domain.prompts import Complete, ModelRequest, TextPart, ToolOffer, UserText
from gateway.domain.text import as_code
from gateway.inbound import commands
from gateway.inbound.commands import (
    CONTROL,
    START,
    ControlCommand,
    PlainText,
    ToolCommand,
    UnknownCommand,
    parse,
    unknown_text,
)
from gateway.llm import operator
from gateway.llm.operator import Operator
from tests.fuzz import givens

READS = (commands, operator)
WORDS = (
    *(b"/help", b"/status@dragoman_bot", b"/shell ", b"/browser ", b"/spawn task=x ", b'="a b"', b"={}", b"=[1]"),
    *(b"=NaN", b"=1e999", b"a=1", b"/", b"//", b"@", b"\\", b'"', b"'"),
)
COMMANDS = {"shell": shell.SPEC, "sessions_spawn": sessions_spawn.SPEC, "spawn": sessions_spawn.SPEC}
SCHEMA = {"type": "object", "properties": {"task": {"type": "string"}, "n": {"type": "integer"}}}
OFFERS = tuple(ToolOffer(name=name, description="", schema=SCHEMA) for name in ("shell", "sessions_spawn"))
TOOLS = frozenset(COMMANDS)


def target(data: bytes) -> None:
    text = givens.text(data)
    match parse(text, TOOLS):
        case PlainText():
            pass
        case ControlCommand(name):
            assert name in CONTROL or name == START
        case ToolCommand(tool):
            assert tool in TOOLS
        case UnknownCommand(name):
            assert as_code(f"/{name}") in unknown_text(name, TOOLS)
    _coded(text)
    asyncio.run(_driven(text))


def _coded(text: str) -> None:
    """Nothing in a name ends the code that it stands in."""
    shown = as_code(text)
    fence = shown[: len(shown) - len(shown.lstrip("`"))]
    inside = shown.removeprefix(fence).removesuffix(fence)
    assert shown.startswith(fence)
    assert shown.endswith(fence)
    assert fence not in inside
    assert shown.isprintable()
    assert inside.strip()


async def _driven(text: str) -> None:
    request = ModelRequest(system="", messages=(UserText(text=text),), tools=OFFERS)
    said: list[str] = []
    async for event in Operator(lambda: COMMANDS).stream(request):
        if isinstance(event, TextPart):
            said.append(event.text)
        elif isinstance(event, Complete):
            assert event.answer.text == "".join(said)
            assert bool(event.answer.calls) != bool(event.answer.text), "a call or words, never both"
            for call in event.answer.calls:
                assert COMMANDS[call.tool].name == call.tool, "called by its name, whatever word was said"
                assert isinstance(json.loads(call.arguments), dict)
