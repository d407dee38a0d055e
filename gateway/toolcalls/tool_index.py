"""Index of the tools that a model is not offered whole: one line each, found and called through `tools`. Pure.

`tools` is no tool of its own. `unfold` turns its calls into calls of the real tools before anything is stored: rules,
cards, limits and the audit see those. What is left, a search or a malformed call, is answered by `answered`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

from gateway.domain.ids import CallId
from gateway.domain.prompts import ToolOffer
from gateway.domain.steps import Answer
from gateway.domain.tools import ResultStatus, ToolCall, ToolResult, call_of

TOOLS = "tools"
"""Name that models call. No tool may have it."""
CALLS_AT_MOST = 10
"""Calls of one `calls`."""
FOUND_AT_MOST = 5
"""Tools whose whole schema a search returns."""
LINE_BYTES = 60
"""Bytes of a tool's line in the index."""
PROMOTED_AT_MOST = 8
"""Tools of the index that are offered whole because an earlier turn called them."""
_USE = 'Use {"find": words}, {"call": {"name": …, "arguments": {…}}}, or {"calls": [up to 10 of these]}.'
_ONE = {"type": "object", "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}}}
_SCHEMA = {
    "type": "object",
    "properties": {
        "find": {"type": "string", "description": "Words; returns matching tools with their arguments."},
        "call": {**_ONE, "required": ["name", "arguments"]},
        "calls": {"type": "array", "maxItems": CALLS_AT_MOST, "items": _ONE},
    },
}


def offer(indexed: Sequence[ToolOffer]) -> ToolOffer:
    """Return the offer of `tools`, with a line for each tool of the index."""
    lines = [_line(one) for one in indexed]
    about = "Find and call further tools. `find` first, unless you know the arguments. There are:"
    return ToolOffer(name=TOOLS, description="\n".join([about, *lines]), schema=_SCHEMA)


def _line(one: ToolOffer) -> str:
    text = f"{one.name}: {one.description.split('. ')[0].rstrip('.')}"
    data = text.encode()
    return text if len(data) <= LINE_BYTES else f"{data[: LINE_BYTES - 3].decode(errors='ignore').rstrip()}…"


# --- calls --------------------------------------------------------------------------------------


def unfold(answer: Answer) -> Answer:
    """Return the answer with each well-formed call of `tools` replaced by calls of the tools that it names.

    The first keeps the call's id. A malformed call stays, and `answered` has its fault.
    """
    if not any(call.tool == TOOLS for call in answer.calls):
        return answer
    return replace(answer, calls=tuple(real for call in answer.calls for real in _unfolded(call)))


def _unfolded(call: ToolCall) -> Sequence[ToolCall]:
    if call.tool != TOOLS:
        return (call,)
    wanted = _wanted(call.arguments)
    if isinstance(wanted, str) or not wanted.calls:
        return (call,)
    return [
        call_of(call.id if n == 0 else CallId(f"{call.id}-{n + 1}"), name, arguments)
        for n, (name, arguments) in enumerate(wanted.calls)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """Request of one call of `tools`: words to search for, or calls by name and JSON text."""

    words: str = ""
    calls: tuple[tuple[str, str], ...] = ()


def _wanted(arguments: str) -> _Wanted | str:
    """Return the request of a `tools` call, or the reason why it is malformed."""
    try:
        given: object = json.loads(arguments)
    except (ValueError, RecursionError):
        return "The arguments are not JSON."
    if not isinstance(given, dict):
        return "The arguments are no object."
    table = cast("dict[str, Any]", given)
    kinds = [key for key in ("find", "call", "calls") if table.get(key) is not None]
    if len(kinds) != 1 or table.keys() - {"find", "call", "calls"}:
        return "Give exactly one of `find`, `call` and `calls`."
    value = table[kinds[0]]
    if kinds[0] == "find":
        return _Wanted(words=value) if isinstance(value, str) and value.strip() else "`find` needs words."
    listed: object = value if kinds[0] == "calls" else [value]
    if not isinstance(listed, list):
        return "`calls` is no list."
    ones = cast("list[object]", listed)
    if not 1 <= len(ones) <= CALLS_AT_MOST:
        return f"`calls` takes 1 to {CALLS_AT_MOST} calls."
    calls = [_one(one) for one in ones]
    wrong = next((one for one in calls if isinstance(one, str)), None)
    return wrong or _Wanted(calls=tuple(one for one in calls if isinstance(one, tuple)))


def _one(given: object) -> tuple[str, str] | str:
    if not isinstance(given, dict):
        return "A call is an object with `name` and `arguments`."
    table = cast("dict[str, Any]", given)
    name, arguments = table.get("name"), table.get("arguments", {})
    if not isinstance(name, str) or not name:
        return "A call needs the `name` of a tool."
    if name == TOOLS:
        return f"`{TOOLS}` cannot call itself."
    if isinstance(arguments, str):  # some models write JSON within JSON
        return name, arguments
    return (name, json.dumps(arguments)) if isinstance(arguments, dict) else "`arguments` is no object."


def answered(arguments: str, visible: Sequence[ToolOffer]) -> ToolResult:
    """Return the result of a call of `tools` that was not unfolded. `visible`: every tool of the session."""
    wanted = _wanted(arguments)
    if isinstance(wanted, str):
        return ToolResult(status=ResultStatus.ERROR, text="", code="invalid_arguments", hint=f"{wanted} {_USE}")
    found = search(wanted.words, visible)[:FOUND_AT_MOST]
    if not found:
        names = ", ".join(one.name for one in visible)
        return ToolResult(status=ResultStatus.OK, text=f"Nothing fits. There are: {names}.")
    shown = [{"name": one.name, "description": one.description, "arguments": dict(one.schema)} for one in found]
    return ToolResult(status=ResultStatus.OK, text="\n".join(json.dumps(one, ensure_ascii=False) for one in shown))


def promoted(called: Iterable[str], indexed: Sequence[ToolOffer]) -> list[ToolOffer]:
    """Return the tools of the index that earlier turns called, in order of their first call, at most 8."""
    names = dict.fromkeys(called)
    if not names:
        return []
    by_name = {one.name: one for one in indexed}
    return [by_name[name] for name in names if name in by_name][:PROMOTED_AT_MOST]


# --- search -------------------------------------------------------------------------------------

_WORD = re.compile(r"[^\W_]+")
_NAME_WEIGHT = 4.0
_PREFIX = 4
"""Fewest letters in which two words must begin alike to count as one: `download` and `downloads`."""
_COMMON = re.compile(r"(?:an?|and|are|at|be|by|can|do|for|from|how|in|is|it|me|my|of|on|or|that|the|this|to|what|with)")
"""Words that say nothing about a tool."""


def search(words: str, offers: Sequence[ToolOffer]) -> list[ToolOffer]:
    """Return the tools that fit words, best first. A tool that is named comes first of all."""
    wanted = [word for word in _words(words) if not _COMMON.fullmatch(word)]
    texts = [_counted(one.name, one.description, json.dumps(one.schema)) for one in offers]
    rare = {word: math.log(1 + len(offers) / (1 + sum(_in(word, text) > 0 for text in texts))) for word in wanted}
    scores = [
        (one.name in words.lower(), sum(rare[word] * _in(word, text) for word in wanted))
        for one, text in zip(offers, texts, strict=True)
    ]
    ranked = sorted(zip(scores, offers, strict=True), key=lambda pair: pair[0], reverse=True)
    return [one for (named, score), one in ranked if named or score > 0]


def _in(word: str, text: Mapping[str, float]) -> float:
    """Return the weight of a word in a text; of words that only begin alike, half."""
    if word in text:
        return min(text[word], 2 * _NAME_WEIGHT)
    alike = [weight for other, weight in text.items() if _begin_alike(word, other)]
    return max(alike, default=0.0) / 2


def _begin_alike(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return len(short) >= _PREFIX and long.startswith(short[: max(_PREFIX, len(short) - 2)])


@lru_cache(maxsize=512)
def _counted(name: str, description: str, schema: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for text, weight in ((schema, 0.5), (description, 1.0), (name, _NAME_WEIGHT)):
        for word in _words(text):
            found[word] = max(found.get(word, 0.0), weight)
    return found


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
