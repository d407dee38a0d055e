"""Index of all configuration keys by table. Used for the cures of misplaced keys and variables."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

from config.plugins import tool_specs

_ANY_TOOL = "tools.<name>"
_SCHEMA = Path(__file__).parent / "schema.json"
"""File for editors, which says the same as `config.schema`; making that takes 20 ms, and imports all of `config`."""


def place_of(key: str, *, is_table: bool, exactly: bool) -> str:
    """Return a sentence naming the table of `key`, or unless `exactly` of a similar key; empty without one."""
    index = key_index()
    close = [] if exactly else difflib.get_close_matches(key.lower(), index, n=1, cutoff=0.8)
    name = key if key in index else next(iter(close), "")
    if not name:
        return ""
    homes = index[name]
    meant = "" if name == key else f'Did you mean "{name}"? '
    if is_table:
        home = next((one for one in homes if one != "[tools]"), homes[0])  # a channel's tool has the channel's name
        return f"{meant}Write [{home.strip('[]')}.{name}]"
    return f"{meant}{name} is a key of {' and '.join(homes)}: write it there"


def variables_for(rest: str) -> list[str]:
    """Return the variables, without prefix, that `DRAGOMAN_<rest>` may be a misspelling of.

    A match has `_` in place of `__`, or lacks it. Lists of tables and whole tables have no variables.
    """
    index = key_index()
    tables = {home.strip("[]") for homes in index.values() for home in homes}
    exact: list[str] = []
    bare: list[str] = []
    for key, homes in index.items():
        for home in homes:
            path = [*home.strip("[]").split("."), key]
            if home.startswith("[[") or ".".join(path) in tables or (path[0] == "tools" and len(path) == 2):
                continue
            short = path[1:] if path[0] in {"channels", "tools"} else path
            forms = "|".join(re.escape("_".join(form)).replace("<name>", "([a-z0-9-]+)") for form in (path, short))
            named = re.fullmatch(forms, rest.lower()) if len(short) > 1 else None
            if named:
                exact.append("__".join(path).replace("<name>", "".join(filter(None, named.groups()))).upper())
            elif key == rest.lower():
                bare.append("__".join(path).upper())
    return exact or bare


@cache
def key_index() -> Mapping[str, list[str]]:
    """Return the headers of each key's tables, such as `[http]`; keys that are names are left out.

    Made once, from the program's own files: a file with 200 mistakes asks for it 200 times.
    """
    whole = json.loads(_SCHEMA.read_text(encoding="utf-8"))
    index = {name: ["[tools]"] for name in tool_specs()}
    for key, header in _pairs(whole, whole["$defs"], ()):
        homes = index.setdefault(key, [])
        if header not in homes and not (_ANY_TOOL in "".join(homes) and "tools." in header):
            homes.append(header)
    return index


def _pairs(node: Mapping[str, Any], definitions: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield each key below `node` with the header of its table; `<name>` tables precede named ones."""
    inner = node.get("additionalProperties")
    if isinstance(inner, dict) and path and path != ("channels",):
        yield from _pairs(_resolved(inner, definitions), definitions, (*path, "<name>"))
    for key, below in cast("dict[str, Any]", node.get("properties", {})).items():
        if key == "accounts":
            continue  # has the keys of the table around it
        if path:
            yield key, f"[{'.'.join(path)}]"
        yield from _pairs(_resolved(below, definitions), definitions, (*path, key))
        several = _resolved(below.get("items"), definitions).get("properties", {})
        yield from ((one, f"[[{'.'.join((*path, key))}]]") for one in several)


def _resolved(node: Any, definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(node, dict):
        return {}
    table = cast("dict[str, Any]", node)
    reference = table.get("$ref", "")
    return definitions[reference.rpartition("/")[2]] if reference else table
