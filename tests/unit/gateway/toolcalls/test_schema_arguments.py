"""Arguments of an own tool, validated against the schema of its text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.errors import ConfigError
from gateway.toolcalls.arguments import InvalidArguments
from gateway.toolcalls.schema_arguments import SchemaArguments

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "count": {"type": "integer", "default": 2},
        "size": {"type": "number", "default": None},
        "on": {"type": "boolean"},
        "kind": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "ages": {"type": "object", "additionalProperties": {"type": "integer"}},
        "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "any": {},
    },
    "required": ["name"],
}
DEFAULTS = {"count": 2, "size": None}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"name": "x"}, {"name": "x", **DEFAULTS}),
        ({"name": "x", "count": 3, "size": 1.5}, {"name": "x", "count": 3, "size": 1.5}),
        ({"name": "x", "on": True, "kind": "b"}, {"name": "x", **DEFAULTS, "on": True, "kind": "b"}),
        ({"name": "x", "tags": ["a"], "ages": {"a": 1}}, {"name": "x", **DEFAULTS, "tags": ["a"], "ages": {"a": 1}}),
        ({"name": "x", "either": None, "any": [1]}, {"name": "x", **DEFAULTS, "either": None, "any": [1]}),
    ],
)
def test_valid_arguments_get_their_defaults(given: dict[str, Any], found: dict[str, Any]) -> None:
    arguments = SchemaArguments(SCHEMA)
    parsed = arguments.parse(json.dumps(given))
    assert parsed == found
    assert arguments.restore(arguments.dump(parsed)) == found
    assert arguments.schema is SCHEMA


@pytest.mark.parametrize(
    ("given", "about"),
    [
        ({}, "name"),
        ({"name": 1}, "name"),
        ({"name": "x", "count": "many"}, "count"),
        ({"name": "x", "kind": "c"}, "kind"),
        ({"name": "x", "tags": [1]}, "tags"),
        ({"name": "x", "ages": {"a": "b"}}, "ages"),
        ({"name": "x", "either": "b"}, "either"),
        ({"name": "x", "other": 1}, "other"),
        ({"name": "x", "count": None}, "count"),
        ({"name": None}, "name"),
    ],
)
def test_invalid_arguments_are_refused_by_name(given: dict[str, Any], about: str) -> None:
    for read in (
        lambda: SchemaArguments(SCHEMA).parse(json.dumps(given)),
        lambda: SchemaArguments(SCHEMA).restore(given),
    ):
        with pytest.raises(InvalidArguments, match=about):
            read()


def test_number_without_an_end_is_no_argument() -> None:
    with pytest.raises(InvalidArguments, match="size"):
        SchemaArguments(SCHEMA).parse('{"name": "x", "size": Infinity}')


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"a": {"type": "integer", "default": "x"}}, "^a default is not of its argument's type: "),
        ({"a": {"type": "date"}}, r"^the type date is not supported\. Use text, numbers, lists and dictionaries\.$"),
        ({"a": {"type": "array", "items": {"type": "date"}}}, "the type date is not supported"),
    ],
)
def test_schema_that_cannot_be_used_says_why(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        SchemaArguments({"properties": schema})
