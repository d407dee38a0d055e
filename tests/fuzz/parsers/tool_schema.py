"""The schema of a tool, as another server describes it: what each provider is sent is JSON of a bounded size."""

from __future__ import annotations

import json
from typing import Any, cast

from gateway.llm import schemas
from gateway.llm.schemas import Flavour, for_provider

READS = (schemas,)
WORDS = (
    *(b"$ref", b"#/$defs/a", b"#", b"#/properties/a", b"$defs", b"properties", b"required", b"items", b"prefixItems"),
    *(b"anyOf", b"oneOf", b"allOf", b"not", b"if", b"then", b"type", b"object", b"array", b"null", b"enum", b"const"),
    *(b"default", b"exclusiveMinimum", b"minimum", b"format", b"description", b"additionalProperties", b"%2F", b"~1"),
)


def _no_number(constant: str) -> None:
    """Refuse what Python reads and JSON has not: no schema brings it here, and NaN is not even equal to itself."""
    raise ValueError(constant)


def target(data: bytes) -> None:
    try:
        schema = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return
    if not isinstance(schema, dict):
        return
    given = cast("dict[str, Any]", schema)
    for flavour in Flavour:
        made = for_provider(given, flavour)
        assert made.get("type") == "object" or flavour in (Flavour.PLAIN, Flavour.GEMINI, Flavour.MOONSHOT)
        assert for_provider(given, flavour) == made, "the same schema becomes another"
        assert len(json.dumps(made)) < 4_000_000
