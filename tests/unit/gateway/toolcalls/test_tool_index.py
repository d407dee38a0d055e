"""The index of tools: its lines, calls through it, and the search."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from config.plugins import tool_specs
from gateway.domain.ids import CallId
from gateway.domain.prompts import ToolOffer
from gateway.domain.steps import Answer
from gateway.domain.tools import ResultStatus, ToolCall
from gateway.toolcalls.arguments import ModelArguments
from gateway.toolcalls.tool_index import LINE_BYTES, TOOLS, answered, offer, promoted, search, unfold


def tool(name: str, description: str = "Does something.") -> ToolOffer:
    return ToolOffer(name=name, description=description, schema={"type": "object"})


def call(arguments: Any, name: str = TOOLS, id: str = "c1") -> ToolCall:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(id=CallId(id), tool=name, arguments=text)


def unfolded(*calls: ToolCall) -> list[tuple[str, str, str]]:
    return [(one.id, one.tool, one.arguments) for one in unfold(Answer(text="", calls=calls)).calls]


def test_a_call_becomes_a_call_of_the_real_tool() -> None:
    wanted = {"call": {"name": "browser", "arguments": {"action": "open"}}}
    assert unfolded(call(wanted)) == [("c1", "browser", '{"action": "open"}')]
    assert unfolded(call({"call": {"name": "undo"}})) == [("c1", "undo", "{}")]
    assert unfolded(call({"call": {"name": "undo", "arguments": "{}"}})) == [("c1", "undo", "{}")]


def test_several_calls_keep_their_order_and_get_ids() -> None:
    wanted = {"calls": [{"name": "read", "arguments": {"path": "a"}}, {"name": "read", "arguments": {"path": "b"}}]}
    assert unfolded(call({"path": "x"}, "read", "c0"), call(wanted), call({"find": "x"}, id="c2")) == [
        ("c0", "read", '{"path": "x"}'),
        ("c1", "read", '{"path": "a"}'),
        ("c1-2", "read", '{"path": "b"}'),
        ("c2", TOOLS, '{"find": "x"}'),
    ]


MALFORMED: list[tuple[Any, str]] = [
    ("{", "not JSON"),
    ("[" * 100_000, "not JSON"),
    ([], "no object"),
    ({}, "exactly one"),
    ({"find": "x", "call": {"name": "read"}}, "exactly one"),
    ({"find": "x", "other": 1}, "exactly one"),
    ({"find": " "}, "needs words"),
    ({"find": 1}, "needs words"),
    ({"call": "read"}, "is an object with"),
    ({"call": {"arguments": {}}}, "needs the `name`"),
    ({"call": {"name": 1}}, "needs the `name`"),
    ({"call": {"name": "read", "arguments": [1]}}, "`arguments` is no object"),
    ({"call": {"name": "tools", "arguments": {"find": "x"}}}, "cannot call itself"),
    ({"calls": {}}, "no list"),
    ({"calls": []}, "1 to 10 calls"),
    ({"calls": [{"name": "read"}] * 11}, "1 to 10 calls"),
    ({"calls": [{"name": "read"}, {"name": "tools"}]}, "cannot call itself"),
]


@pytest.mark.parametrize(("arguments", "why"), MALFORMED)
def test_a_malformed_call_stays_and_is_told_the_cure(arguments: Any, why: str) -> None:
    one = call(arguments)
    if why != "needs words":
        assert unfolded(one) == [("c1", TOOLS, one.arguments)]
    result = answered(one.arguments, [tool("read")])
    assert result.status is ResultStatus.ERROR
    assert why in result.hint
    assert '{"find": words}' in result.hint


def test_a_search_returns_the_arguments_of_what_fits() -> None:
    result = answered('{"find": "send a chart"}', [tool("undo", "Take back."), tool("send_file", "Send a file.")])
    assert [json.loads(line)["name"] for line in result.text.split("\n")] == ["send_file"]
    none = answered('{"find": "weather"}', [tool("undo", "Take back.")])
    assert none.text == "Nothing fits. There are: undo."


def test_the_index_has_a_short_line_for_each_tool() -> None:
    made = offer([tool("undo", "Take back the changes. More."), tool("long", "Übermäßig lange Rede " * 9)])
    lines = made.description.split("\n")[1:]
    assert lines[0] == "undo: Take back the changes"
    assert lines[1].startswith("long: Übermäßig")
    assert all(len(line.encode()) <= LINE_BYTES for line in lines)


def test_tools_of_earlier_turns_are_offered_whole() -> None:
    indexed = [tool(name) for name in "abcdefghij"]
    assert [one.name for one in promoted(["c", "read", "a", "c"], indexed)] == ["c", "a"]
    assert len(promoted("abcdefghij", indexed)) == 8


# --- the search over the real tools ------------------------------------------------------------

QUESTIONS = {
    "apply_patch": ["apply a patch", "change several files with one diff", "rename a file", "delete a file by patch"],
    "browser": [
        "open a web page",
        "click a button on a page",
        "take a screenshot of a site",
        "download from a link",
        "fill in a form on a page",
        "drag a slider on a web page",
    ],
    "edit": ["replace text in a file", "change one line of a file", "edit the configuration file"],
    "multiedit": ["replace in many files at once", "edit several files", "all or none of the edits"],
    "read": ["show a file with line numbers", "look at a picture", "read notes.md"],
    "send_file": ["send the chart to the person", "attach a report to the chat", "give me the file"],
    "sessions_history": ["read what a sub-session said", "history of a sub-session"],
    "sessions_list": ["which sub-sessions are there", "list running children", "state of the sub-sessions"],
    "sessions_send": ["write to a sub-session", "send a message to a sub-session", "let an ended sub-session go on"],
    "sessions_spawn": ["start a sub-session", "delegate a task to another agent", "spawn a child for research"],
    "sessions_stop": ["stop a sub-session", "end the child"],
    "shell": ["run a command", "execute a bash script", "print the disk usage with a shell"],
    "workflow": ["run a graph of tasks", "a workflow of steps that need each other"],
    "shell_kill": ["end a background job", "kill the running job of the shell"],
    "shell_poll": ["look at the output of a background job", "type into the terminal of a job"],
    "slack": ["pin a message on slack", "post to a slack channel", "upload a file to slack"],
    "telegram": ["make a poll on telegram", "react to a message with an emoji", "write to another telegram chat"],
    "task": ["give a task to an agent", "go on with an earlier task"],
    "todo_read": ["show the task list", "read the todo list"],
    "todo_write": ["write a todo list", "tick off an item of the task list", "keep a checklist"],
    "undo": ["take back the last change", "undo the edit", "revert the files of the last turn"],
    "write": ["create a new file", "write a text file", "replace a whole file"],
}


def real() -> list[ToolOffer]:
    found = [importlib.import_module(f"agent_tools.{name}") for name in tool_specs()]
    return [
        ToolOffer(name=one.SPEC.name, description=one.SPEC.description, schema=ModelArguments(one.Args).schema)
        for one in found
    ]


def test_the_search_finds_the_right_tool_among_the_first() -> None:
    offers = real()
    asked = [(question, name) for name, questions in QUESTIONS.items() for question in questions]
    first = [(question, name, [one.name for one in search(question, offers)[:8]]) for question, name in asked]
    missed = [(question, name) for question, name, found in first if name not in found]
    assert len(missed) <= len(asked) // 10, missed


def test_a_tool_that_is_named_comes_first() -> None:
    offers = real()
    assert all(search(f"please use {one.name} now", offers)[0].name == one.name for one in offers)
