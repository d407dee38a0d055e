"""Usage lines of commands: what a person must type behind a tool's name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_tools import edit, multiedit, sessions_list, todo_read, workflow
from gateway.domain.tools import Risk, ToolSpec
from gateway.toolcalls.arguments import ModelArguments
from gateway.toolcalls.command_syntax import NAME_CHARS, command_syntax
from gateway.toolcalls.typed_arguments import arguments_of


@pytest.mark.parametrize(
    ("tool", "line"),
    [
        (workflow, """/workflow steps='[{"name": "<text>", "task": "<text>"}]'"""),
        (multiedit, """/multiedit files='[{"path": "<text>", "edits": [{"old": "<text>", "new": "<text>"}]}]'"""),
        (edit, "/edit path=<text> [old=… new=… replace_all=… edits=…]"),
        (sessions_list, "/sessions_list [state=… name=… limit=…]"),
        (todo_read, "/todo_read"),
    ],
)
def test_usage_shows_what_a_tool_needs(tool: Any, line: str) -> None:
    assert command_syntax(tool.SPEC, ModelArguments(tool.Args).schema) == f"Usage: {line}"


def test_nested_usage_can_be_filled_in_and_sent() -> None:
    schema = ModelArguments(workflow.Args).schema
    line = command_syntax(workflow.SPEC, schema).partition(" /workflow ")[2]
    read = arguments_of(workflow.SPEC, line.replace("<text>", "plan"), schema)
    found = ModelArguments(workflow.Args).parse(json.dumps(read))
    assert isinstance(found, workflow.Args)
    assert (found.steps[0].name, found.steps[0].task) == ("plan", "plan")


def test_bare_command_is_told_what_it_needs() -> None:
    told = arguments_of(workflow.SPEC, "", ModelArguments(workflow.Args).schema)
    assert told == """Usage: `/workflow steps='[{"name": "<text>", "task": "<text>"}]'`."""
    assert arguments_of(todo_read.SPEC, "", ModelArguments(todo_read.Args).schema) == {}


FOREIGN = ToolSpec(name="foreign", description="", risk=Risk.READ, effect=todo_read.SPEC.effect,
                   availability=todo_read.SPEC.availability)  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "line"),
    [
        ({}, "name=value …"),
        ({"properties": 3, "required": "a"}, ""),
        ({"properties": {"a": {"$ref": "#/x/y"}}, "required": ["a"]}, "a=<text>"),
        ({"properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}, "a=<x or y>"),
        ({"properties": {"a": {"type": ["string", "null"]}}, "required": ["a", "b"]}, "a=<text> b=<text>"),
        ({"properties": {}, "required": ["a\n`" + "x" * 99]}, f"a `{'x' * (NAME_CHARS - 4)}…=<text>"),
    ],
    ids=["none", "nonsense", "broken reference", "choice", "two types", "hostile name"],
)
def test_usage_bears_any_schema_of_a_server(schema: dict[str, Any], line: str) -> None:
    assert command_syntax(FOREIGN, schema) == f"Usage: /foreign {line}".rstrip()


def test_usage_of_a_schema_within_itself_ends() -> None:
    itself = {"type": "array", "items": {"$ref": "#/$defs/a"}}
    schema = {"$defs": {"a": itself}, "properties": {"a": itself}, "required": ["a"]}
    assert command_syntax(FOREIGN, schema) == """Usage: /foreign a='[[[["<JSON>"]]]]'"""
