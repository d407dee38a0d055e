"""Arguments as people type them behind a command. Read by the operator, and where a decision is explained. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, cast

from gateway.domain.text import as_code
from gateway.domain.tools import ToolSpec
from gateway.toolcalls.command_syntax import command_syntax


def syntax_text_of(spec: ToolSpec, schema: Mapping[str, Any]) -> str:
    """Return the usage line of a tool, with its example."""
    example = f", for example {as_code(f'/{spec.by_hand} {spec.example}')}" if spec.example else ""
    return f"Usage: {as_code(command_syntax(spec, schema).removeprefix('Usage: '))}{example}."


def arguments_of(spec: ToolSpec, rest: str, schema: Mapping[str, Any]) -> dict[str, Any] | str:
    """Return the arguments in the text of a command, or a text: its syntax or a parse error. Not validated."""
    if not rest.strip():
        needs = schema.get("required") if spec.positional is None else spec.positional in schema.get("required", ())
        return syntax_text_of(spec, schema) if needs else {}
    if spec.positional is not None:
        return {spec.positional: rest}
    try:
        words = shlex.split(rest)
    except ValueError as error:
        return _unread(spec, schema, f"the quotes do not match ({error})")
    arguments: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            return _unread(spec, schema, f"{as_code(word)} is not of the form `key=value`")
        if key in arguments:
            return _unread(spec, schema, f"{as_code(key)} is given twice")
        arguments[key] = value if _is_text(schema, key) else _value(value)
    return arguments


def _unread(spec: ToolSpec, schema: Mapping[str, Any], why: str) -> str:
    how = 'Quote what has spaces, as in `name="two words"`; a value may be JSON.'
    return f"I cannot read that command: {why}. {syntax_text_of(spec, schema)} {how} Nothing was run."


def _value(text: str) -> Any:
    """Return the JSON value, or the text itself if it is not JSON."""
    try:
        value: Any = json.loads(text)
        json.dumps(value, allow_nan=False)  # Python reads NaN and 1e999, which are not JSON
    except (ValueError, RecursionError):
        return text
    return value


def _is_text(schema: Mapping[str, Any], key: str) -> bool:
    """Return True if the tool takes text there, so that `5` stays "5"."""
    properties: object = schema.get("properties")
    if not isinstance(properties, dict):
        return False
    field: object = cast("dict[str, object]", properties).get(key)
    return isinstance(field, dict) and cast("dict[str, object]", field).get("type") == "string"
