"""Syntax of tool commands (`Usage: /shell <command>`), made from the schemas of their arguments. Used by `tool_set`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from gateway.domain.text import one_line
from gateway.domain.tools import ToolSpec

LEVELS = 4
"""Levels of nested arguments that a line shows; deeper ones are only named."""
WORDS_AT_MOST = 5
"""Required arguments that a line shows, and names of others."""
NAME_CHARS = 40
"""Characters of a name."""
_PLACES: Mapping[str, str] = {"integer": "number", "number": "number", "boolean": "true or false"}
"""Words for the types of values; everything else is text."""


def command_syntax(spec: ToolSpec, schema: Mapping[str, Any]) -> str:
    """Return the syntax of the tool's command. `schema`: of its arguments.

    Arguments that hold others are shown as JSON to be filled in.
    """
    if spec.positional:
        return f"Usage: /{spec.by_hand} <{spec.positional}>"
    required, fields = _required(schema), _table(schema.get("properties"))
    words = [f"{_shown(name)}={_word(_table(fields.get(name)), schema)}" for name in required[:WORDS_AT_MOST]]
    if "properties" not in schema:
        words = ["name=value …"]
    elif optional := [_shown(name) for name in fields if name not in required]:
        named = " ".join(f"{name}=…" for name in optional[:WORDS_AT_MOST])
        words.append(f"[{named}{' …' if len(optional) > WORDS_AT_MOST else ''}]")
    return " ".join([f"Usage: /{spec.by_hand}", *words])


def _word(field: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return the placeholder for one argument's value: a word in angle brackets, or JSON in quotes."""
    value = _filled(field, schema, LEVELS)
    return value if isinstance(value, str) else f"'{json.dumps(value, ensure_ascii=False)}'"


def _filled(field: Mapping[str, Any], schema: Mapping[str, Any], levels: int) -> Any:
    """Return an example of a value: words in angle brackets, in lists and tables with the required names."""
    field = _resolved(field, schema)
    kind = field.get("type")
    if levels and kind == "array":
        return [_filled(_table(field.get("items")), schema, levels - 1)]
    names = _required(field)
    if levels and names:
        fields = _table(field.get("properties"))
        return {_shown(name): _filled(_table(fields.get(name)), schema, levels - 1) for name in names[:WORDS_AT_MOST]}
    choices = cast("Sequence[object]", field.get("enum") or ())
    if choices and all(isinstance(one, str) for one in choices):
        return f"<{' or '.join(_shown(str(one)) for one in choices[:WORDS_AT_MOST])}>"
    return f"<{_PLACES.get(str(kind), 'JSON' if kind in ('array', 'object') else 'text')}>"


def _shown(name: str) -> str:
    """Return a name that may be a foreign server's, on one line."""
    return one_line(name, NAME_CHARS)


def _resolved(field: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the table of a field, behind its reference."""
    name = str(field.get("$ref", "")).rpartition("/")[2]
    return _table(_table(schema.get("$defs")).get(name)) if name else field


def _required(schema: Mapping[str, Any]) -> list[str]:
    """Return the names of required arguments, in order."""
    names: object = schema.get("required")
    return [str(name) for name in cast("list[object]", names)] if isinstance(names, list) else []


def _table(value: object) -> Mapping[str, Any]:
    """Return the value if it is a table: schemas of foreign servers have anything there."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
