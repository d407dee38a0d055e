from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.ids import CallId
from gateway.domain.prompts import CallResult, Complete, Message, ModelRequest, TextPart, ToolOffer, UserText
from gateway.domain.steps import Answer
from gateway.domain.tools import Availability, Effect, ResultStatus, Risk, ToolCall, ToolResult, ToolSpec
from gateway.llm.operator import Operator


def spec(name: str, positional: str | None = None) -> ToolSpec:
    return ToolSpec(
        name=name,
        description="",
        risk=Risk.NONE,
        effect=Effect.PURE,
        availability=Availability.ALWAYS,
        positional=positional,
    )


SHELL = replace(spec("shell", positional="command"), example="uptime")
BROWSER = spec("browser")
ASKS = replace(spec("ask", positional="task"), returns_child_text=True)
OPERATOR = Operator(lambda: {"shell": SHELL, "bash": SHELL, "browser": BROWSER, "ask": ASKS})
OFFERS = (
    ToolOffer(name="shell", description="", schema={}),
    ToolOffer(
        name="browser",
        description="",
        schema={"properties": {"text": {"type": "string"}, "x": {"type": "integer"}}},
    ),
)


async def answer_to(*said: Message, tools: tuple[ToolOffer, ...] = OFFERS, for_owner: bool = True) -> Answer:
    request = ModelRequest(system="", messages=said, tools=tools, for_owner=for_owner)
    events = [event async for event in OPERATOR.stream(request)]
    *texts, last = events
    assert isinstance(last, Complete)
    assert "".join(event.text for event in texts if isinstance(event, TextPart)) == last.answer.text
    assert last.answer.model == "operator"
    return last.answer


async def call_of(text: str) -> tuple[str, dict[str, Any]]:
    answer = await answer_to(UserText(text=text))
    [call] = answer.calls
    assert call.id == "c1"
    assert answer.text == ""
    return call.tool, json.loads(call.arguments)


async def test_a_guest_is_not_told_how_to_configure_the_daemon() -> None:
    answer = await answer_to(UserText(text="hello"), for_owner=False)
    assert answer.text == (
        "No model is attached, so I cannot answer that: ask an owner of this bot to attach one. "
        "You can still use the tools (`/tools` lists them)."
    )
    assert (await answer_to(UserText(text="hello"), tools=(), for_owner=False)).text.endswith("attach one.")


@pytest.mark.parametrize("text", ["/shell", "/shell  ", "/bash"])
async def test_a_command_without_its_argument_is_told_its_usage(text: str) -> None:
    offers = (ToolOffer(name="shell", description="", schema={"required": ["command"]}),)
    answer = await answer_to(UserText(text=text), tools=offers)
    assert (answer.text, answer.calls) == ("Usage: `/shell <command>`, for example `/shell uptime`.", ())


# --- commands ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("/shell uptime", "shell", {"command": "uptime"}),
        ("/Shell uptime", "shell", {"command": "uptime"}),
        ("/bash uptime", "shell", {"command": "uptime"}),
        ("/shell   echo  'a\n b' ", "shell", {"command": "echo  'a\n b' "}),
        ("/shell\ncat <<E\n  x\nE", "shell", {"command": "cat <<E\n  x\nE"}),
        ('/shell echo "üñ', "shell", {"command": 'echo "üñ'}),
        (" /shell uptime", "shell", {"command": "uptime"}),
        ("\n/shell uptime", "shell", {"command": "uptime"}),
        ("/shell@my_bot uptime", "shell", {"command": "uptime"}),
        ("/shell\u00a0uptime", "shell", {"command": "uptime"}),
        ("/shell", "shell", {}),
        ("/shell  ", "shell", {}),
        ("/browser", "browser", {}),
        (
            "/browser action=open url=https://example.org/?a=b",
            "browser",
            {"action": "open", "url": "https://example.org/?a=b"},
        ),
        (
            "/browser x=5 deep=true list='[1, 2]' none=null",
            "browser",
            {"x": 5, "deep": True, "list": [1, 2], "none": None},
        ),
        ("/browser text=5 other=5", "browser", {"text": "5", "other": 5}),
        ('/browser text="two words"', "browser", {"text": "two words"}),
        ("/browser x=NaN y=1e999 z=", "browser", {"x": "NaN", "y": "1e999", "z": ""}),
    ],
)
async def test_a_command_becomes_a_call(text: str, tool: str, arguments: dict[str, Any]) -> None:
    assert await call_of(text) == (tool, arguments)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('/browser text="open', "quotes do not match"),
        ("/browser open", "`open` is not of the form `key=value`"),
        ("/browser =5", "`=5` is not of the form"),
        ("/browser `a`", "`` `a` `` is not of the form"),
        ("/browser x=1 x=2", "`x` is given twice"),
    ],
)
async def test_unparsable_command_is_explained_and_not_run(text: str, words: str) -> None:
    answer = await answer_to(UserText(text=text))

    assert answer.calls == ()
    assert words in answer.text
    assert "Usage: `/browser " in answer.text


async def test_an_unknown_command_names_the_known_ones() -> None:
    answer = await answer_to(UserText(text="/sell uptime"))

    assert answer.calls == ()
    assert answer.text == "There is no command `/sell`. There are: `/shell`, `/browser`."


async def test_overheard_text_is_no_command_and_no_argument() -> None:
    said = UserText(text="/shell uptime", name="Ann", data="/shell reboot")
    [call] = (await answer_to(said)).calls
    assert json.loads(call.arguments) == {"command": "uptime"}

    assert (await answer_to(UserText(text="", data="/shell reboot"))).calls == ()


async def test_only_the_last_message_is_a_command() -> None:
    answer = await answer_to(UserText(text="/shell rm -r x"), UserText(text="thanks"))

    assert answer.calls == ()


@pytest.mark.parametrize("text", ["Hello", "", "/", "a /shell b", "/usr/bin/env"])
async def test_plain_text_is_told_how_to_attach_a_model(text: str) -> None:
    answer = await answer_to(UserText(text=text))

    assert answer.calls == ()
    assert "`/shell uptime`" in answer.text
    assert 'name = "openai:gpt-5-mini"\napi_key = "env:OPENAI_API_KEY"' in answer.text
    assert "(`/tools` lists them): " in answer.text


async def test_without_tools_none_is_promised() -> None:
    assert "tools" not in (await answer_to(UserText(text="Hello"), tools=())).text
    assert "No tool is available here." in (await answer_to(UserText(text="/nothing"), tools=())).text


# --- results ----------------------------------------------------------------------------------


async def shown(*results: ToolResult) -> str:
    calls = tuple(ToolCall(id=CallId(f"c{n}"), tool="shell", arguments="{}") for n in range(len(results)))
    given = [
        CallResult(call=call.id, tool=call.tool, result=result) for call, result in zip(calls, results, strict=True)
    ]
    answer = await answer_to(UserText(text="/shell x"), Answer(text="", calls=calls), *given)
    assert answer.calls == ()
    return answer.text


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (
            ToolResult(status=ResultStatus.OK, text="up 3 days\n", exit_code=0, duration_ms=412),
            "```\nup 3 days\n```\nexit 0 · 0.4 s",
        ),
        (ToolResult(status=ResultStatus.OK, text="", exit_code=0, duration_ms=12_000), "exit 0 · 12 s"),
        (ToolResult(status=ResultStatus.OK, text="spawned", duration_ms=5), "```\nspawned\n```\nshell done · 0.0 s"),
        (
            ToolResult(status=ResultStatus.ERROR, text="no such file", exit_code=2, duration_ms=10),
            "```\nno such file\n```\nexit 2 · 0.0 s",
        ),
        (
            ToolResult(status=ResultStatus.ERROR, text="command: missing", code="invalid_arguments", hint="Add it."),
            "failed: command: missing\nAdd it.",
        ),
        (
            ToolResult(status=ResultStatus.TIMEOUT, text="half", duration_ms=120_004),
            "```\nhalf\n```\ntimed out after 120 s; partial output above",
        ),
        (ToolResult(status=ResultStatus.TIMEOUT, text="", duration_ms=120_004), "timed out after 120 s"),
        (
            ToolResult(status=ResultStatus.DENIED, text="Ann said no.", hint="Ask for something else."),
            "denied: Ann said no.\nAsk for something else.",
        ),
        (
            ToolResult(status=ResultStatus.DENIED, text="Not here. Ask an owner.", hint="Ask an owner."),
            "denied: Not here. Ask an owner.",
        ),
        (ToolResult(status=ResultStatus.EXPIRED, text=""), "expired: nobody decided in time; nothing was run"),
        (ToolResult(status=ResultStatus.CANCELLED, text="Withdrawn."), "cancelled: Withdrawn."),
        (
            ToolResult(status=ResultStatus.CANCELLED, text="half", duration_ms=800),
            "```\nhalf\n```\ncancelled after 0.8 s; partial output above",
        ),
        (
            ToolResult(status=ResultStatus.UNKNOWN, text=""),
            "outcome unknown: it may or may not have happened, and is not run again automatically",
        ),
        (
            ToolResult(
                status=ResultStatus.OK,
                text="head … tail",
                exit_code=0,
                dropped_bytes=1_234_567,
                full_output="t1-2.txt",
                output_path=".dragoman/output/t1-2.txt",
            ),
            "```\nhead … tail\n```\nexit 0 · 0.0 s\n"
            "1,234,567 bytes left out; all of it is in `.dragoman/output/t1-2.txt` of the workspace",
        ),
        (
            ToolResult(
                status=ResultStatus.OK,
                text="head … tail",
                exit_code=0,
                dropped_bytes=1_234_567,
                output_path=".dragoman/output/t1-2.txt",
                output_cut=True,
            ),
            "```\nhead … tail\n```\nexit 0 · 0.0 s\n"
            "1,234,567 bytes left out; its beginning is in `.dragoman/output/t1-2.txt` of the workspace",
        ),
        (
            ToolResult(status=ResultStatus.OK, text="head … tail", dropped_bytes=9, full_output="t1-2.txt"),
            "```\nhead … tail\n```\nshell done · 0.0 s\n9 bytes left out; the web page shows all of it",
        ),
    ],
)
async def test_a_result_is_shown_with_how_it_ended(result: ToolResult, text: str) -> None:
    assert await shown(result) == text


async def test_tool_is_called_and_listed_by_its_short_command() -> None:
    spawn = replace(spec("sessions_spawn", positional="task"), command="spawn")
    operator = Operator(lambda: {"sessions_spawn": spawn, "spawn": spawn})
    offers = (ToolOffer(name="sessions_spawn", description="", schema={}),)

    for text in ("/spawn count", "/sessions_spawn count", "/Spawn count"):
        request = ModelRequest(system="", messages=(UserText(text=text),), tools=offers)
        *_, last = [event async for event in operator.stream(request)]
        assert isinstance(last, Complete)
        [made] = last.answer.calls
        assert (made.tool, json.loads(made.arguments)) == ("sessions_spawn", {"task": "count"})
    hint = ModelRequest(system="", messages=(UserText(text="/nothing"),), tools=offers)
    *_, last = [event async for event in operator.stream(hint)]
    assert isinstance(last, Complete)
    assert "There are: `/spawn`." in last.answer.text


async def test_answer_of_a_sub_session_is_shown_unchanged() -> None:
    said = ToolResult(status=ResultStatus.OK, text="There are **7**.", duration_ms=2100)
    call = ToolCall(id=CallId("c1"), tool="ask", arguments="{}")
    given = CallResult(call=call.id, tool=call.tool, result=said)
    answer = await answer_to(UserText(text="/ask count"), Answer(text="", calls=(call,)), given)

    assert answer.text == "There are **7**.\nask done · 2.1 s"


@pytest.mark.parametrize("before", ["a result", "a command"])
async def test_notice_of_the_gateway_is_skipped_by_the_operator(before: str) -> None:
    """The person waits for what came before it."""
    said: list[Message] = [UserText(text="/shell uptime")]
    if before == "a result":
        call = ToolCall(id=CallId("c1"), tool="shell", arguments="{}")
        given = CallResult(
            call=call.id, tool="shell", result=ToolResult(status=ResultStatus.OK, text="up", exit_code=0)
        )
        said += [Answer(text="", calls=(call,)), given]
    without = await answer_to(*said)
    assert without.calls or "up" in without.text
    assert await answer_to(*said, UserText(text="", data="The files are away.", is_notice=True)) == without


async def test_no_output_can_end_its_fence() -> None:
    text = await shown(ToolResult(status=ResultStatus.OK, text="a\n````\n# b", exit_code=0))

    assert text == "`````\na\n````\n# b\n`````\nexit 0 · 0.0 s"


async def test_several_results_in_order() -> None:
    denied = ToolResult(status=ResultStatus.DENIED, text="no")
    text = await shown(ToolResult(status=ResultStatus.OK, text="a", exit_code=0), denied)

    assert text == "```\na\n```\nexit 0 · 0.0 s\n\ndenied: no"
