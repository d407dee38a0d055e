"""Golden files of schemas: the registry's schema first, then each provider's form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.llm.schemas import Flavour, cleaned, for_provider
from tests.support.proof import examples

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))
FLAVOURS = list(Flavour)


def golden(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def nodes(schema: object) -> Iterator[dict[str, Any]]:
    """Yield all schemas in a schema."""
    if isinstance(schema, list):
        for one in cast("list[object]", schema):
            yield from nodes(one)
    if not isinstance(schema, dict):
        return
    node = cast("dict[str, Any]", schema)
    yield node
    for key, part in node.items():
        if key == "properties":
            for one in cast("dict[str, object]", part).values():
                yield from nodes(one)
        elif key in ("items", "anyOf", "oneOf", "allOf", "prefixItems", "additionalProperties"):
            yield from nodes(part)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_each_provider_is_given_what_it_takes(path: Path, flavour: Flavour) -> None:
    expected = golden(path)

    assert for_provider(expected["given"], flavour) == expected[flavour]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_no_provider_gets_references_titles_or_defaults(path: Path) -> None:
    expected = golden(path)
    for flavour in FLAVOURS:
        assert "$ref" not in json.dumps(expected[flavour])
        assert expected[flavour]["type"] == "object"
        for node in nodes(expected[flavour]):
            assert not {"title", "$defs", "$schema", "discriminator"} & node.keys()
            assert node.get("default", "") is not None


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_keywords_refused_by_a_provider_are_absent(path: Path) -> None:
    expected = golden(path)
    for flavour in (Flavour.OPENAI, Flavour.ANTHROPIC, Flavour.MOONSHOT, Flavour.GEMINI):
        assert not {"anyOf", "oneOf", "allOf", "enum", "not"} & expected[flavour].keys()
    for node in nodes(expected[Flavour.OPENAI]):
        assert not {"allOf", "oneOf", "const", "prefixItems"} & node.keys()
        assert node.get("type") != "array" or "items" in node
    for node in nodes(expected[Flavour.MOONSHOT]):
        assert ("type" in node) != ("anyOf" in node)
        assert not isinstance(node.get("items"), list)
    for node in nodes(expected[Flavour.GEMINI]):
        assert set(node) == {"anyOf"} or isinstance(node["type"], str)
        assert all(isinstance(one, str) for one in node.get("enum", []))
        assert set(node.get("required", [])) <= set(node.get("properties", {}))
        assert "additionalProperties" not in node
    for node in nodes(expected[Flavour.ANTHROPIC]):
        assert not isinstance(node.get("items"), list)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_fitting_twice_changes_nothing_more(flavour: Flavour) -> None:
    for path in GOLDEN:
        once = for_provider(golden(path)["given"], flavour)
        assert for_provider(once, flavour) == once


def test_the_registrys_schema_stays_as_it_is() -> None:
    for path in GOLDEN:
        schema = golden(path)["given"]
        before = json.dumps(schema)
        for flavour in FLAVOURS:
            for_provider(schema, flavour)
        assert json.dumps(schema) == before


def test_properties_may_be_called_like_keywords() -> None:
    properties = {name: {"type": "string"} for name in ("title", "$ref", "type", "properties", "default", "$defs")}
    schema = {"type": "object", "properties": properties, "required": ["title"]}

    for flavour in FLAVOURS:
        assert for_provider(schema, flavour)["properties"] == properties


def test_null_stays_where_leaving_out_is_no_way() -> None:
    union = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    made = cleaned({"type": "object", "properties": {"a": union, "b": union}, "required": ["a"]})

    assert made["properties"] == {"a": union, "b": {"type": "string"}}


# --- schemas without end ------------------------------------------------------------------------------


def test_a_schema_that_holds_itself_ends_in_its_type() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node", "description": "The next."}}}
    made = cleaned({"properties": {"list": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}})

    assert made["properties"]["list"]["properties"]["next"] == {"type": "object", "description": "The next."}


@pytest.mark.parametrize(
    "definitions",
    [
        {"A": {"$ref": "#/$defs/A"}},
        {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}},
        {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}]}},
        {"A": {"allOf": [{"$ref": "#/$defs/A"}]}},
        {"A": {"items": {"$ref": "#"}}},
    ],
)
def test_circles_end(definitions: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": definitions}

    for flavour in FLAVOURS:
        assert "a" in for_provider(schema, flavour)["properties"]


def test_references_that_double_at_each_step_are_bounded() -> None:
    definitions: dict[str, Any] = {
        f"D{n}": {"properties": {side: {"$ref": f"#/$defs/D{n + 1}"} for side in "ab"}} for n in range(64)
    }
    made = cleaned({"properties": {"all": {"$ref": "#/$defs/D0"}}, "$defs": definitions})

    assert sum(1 for _ in nodes(made)) < 10_000


@pytest.mark.parametrize("flavour", Flavour)
@pytest.mark.parametrize("key", ["enum", "default", "const", "x-other"])
def test_a_value_deeper_than_any_is_left_out(key: str, flavour: Flavour) -> None:
    value: list[Any] = []
    for _ in range(400):
        value = [value]
    made = for_provider({"type": "object", "properties": {"a": {"type": "array", key: value}}}, flavour)
    assert len(json.dumps(made)) < 300
    assert "[[[" not in json.dumps(made)


def test_a_schema_deeper_than_any_is_cut_off() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(10_000):
        schema = {"type": "array", "items": schema}

    for flavour in FLAVOURS:
        assert len(json.dumps(for_provider({"properties": {"deep": schema}}, flavour))) < 5_000


WORDS = st.sampled_from(["a", "type", "$ref", "items", "anyOf", "allOf", "properties", "required", "enum", "const"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["object", "array", "null", "#/$defs/a", "#", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None, max_examples=examples(300))
@given(schema=st.dictionaries(WORDS | st.just("$defs"), VALUES, max_size=5))
def test_malformed_schema_becomes_an_object(schema: dict[str, Any]) -> None:
    for flavour in FLAVOURS:
        json.dumps(for_provider(schema, flavour))
        if flavour is not Flavour.PLAIN:
            assert for_provider(schema, flavour)["type"] == "object"
