"""Ready-made ways in which a model or its server is wrong, each laid over a reply."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tests.support.model.scripts import Call, Nonsense, Reply

HUGE = 10 * 1024 * 1024
"""Characters of huge arguments."""
MANY = 200
"""Calls at once."""

_HALF = (
    'data: {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "All is "}}]}\n\n'
    'data: {"choices": [{"index": 0, "delta": {"content": "we\n\n'
    "data: [DONE]\n\n"
)
_PAGE = (
    "<!doctype html>\n<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>\n"
)


def made(reply: Reply) -> Reply:
    """Return the reply as its `nonsense` makes it."""
    return reply if reply.nonsense is None else reply.model_copy(update=_KINDS[reply.nonsense](reply))


def _first(reply: Reply) -> Call:
    return reply.calls[0] if reply.calls else Call(name="shell", arguments='{"command": "true"}')


def _same_ids(reply: Reply) -> dict[str, Any]:
    calls = reply.calls if len(reply.calls) > 1 else (_first(reply), _first(reply))
    return {"calls": tuple(call.model_copy(update={"id": "call_same"}) for call in calls)}


def _huge(reply: Reply) -> dict[str, Any]:
    arguments = json.dumps({"command": "x" * HUGE})
    return {"calls": (_first(reply).model_copy(update={"arguments": arguments}),), "fragments": 64}


def _many(reply: Reply) -> dict[str, Any]:
    return {"calls": (_first(reply),) * MANY}


_KINDS: Mapping[Nonsense, Callable[[Reply], dict[str, Any]]] = MappingProxyType(
    {
        "bad_json": lambda _: {"raw": _HALF},
        "wrong_role": lambda _: {"role": "user"},
        "duplicate_ids": _same_ids,
        "huge_arguments": _huge,
        "many_calls": _many,
        "endless": lambda reply: {"endless": True, "text": reply.text or "And so on. "},
        "empty": lambda _: {"text": "", "calls": ()},
        "html": lambda _: {"raw": _PAGE, "content_type": "text/html"},
    }
)
