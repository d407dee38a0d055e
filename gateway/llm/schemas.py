"""Conversion of a tool's JSON Schema to the form that its provider accepts. Used by the OpenAI payload. Pure.

The registry stores pydantic's schema, and arguments are always validated against that. The schema sent is smaller:
references are resolved, titles and nulls removed. Each provider refuses other keywords, and then all tools at once, so
one odd schema would disable the model. The sources are their documentation and the threads named at each transform. A
looser schema is sent rather than none, never a different one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeAlias, TypeGuard
from urllib.parse import unquote

from gateway.domain.nesting import LEVELS_AT_MOST, is_deeper

Schema: TypeAlias = dict[str, Any]

_DEPTH_AT_MOST = 40
_NODES_AT_MOST = 2_000
"""Nodes of one schema: a few mutual references can expand to an endless tree, or one that fills the memory."""

_SAFE_INTEGER = 2**53 - 1
"""Largest integer that a server reading numbers as doubles preserves."""

_OF_MANY = frozenset({"properties", "patternProperties", "dependentSchemas"})
_OF_LIST = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_OF_ONE = frozenset({"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"})
_NOISE = frozenset({"title", "$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "$ref", "discriminator"})


class Flavour(StrEnum):
    """Provider whose rules a schema follows."""

    PLAIN = "plain"
    """Cleaned only: llama.cpp and vLLM compile it to a grammar, and know more keywords than most."""
    OPENAI = "openai"
    GEMINI = "gemini"
    MOONSHOT = "moonshot"
    ANTHROPIC = "anthropic"


def for_provider(schema: Mapping[str, Any], flavour: Flavour) -> Schema:
    """Return the schema of a tool's arguments in a provider's form. Deterministic."""
    made = cleaned(schema)
    if flavour is Flavour.PLAIN:
        return made
    return _mapped(_object_at_top(made), _FITS[flavour])


def cleaned(schema: Mapping[str, Any]) -> Schema:
    """Inline references; drop titles, null defaults, and null for optional properties.

    A recursive reference ends at its second occurrence, with the type alone; so does a tree beyond the limits.
    """
    made = _Inlining(schema).node(schema, (), 0)
    made.pop("description", None)  # of the arguments' class; the tool has its own
    return {"type": "object", **made}


class _Inlining:
    """Inlining pass over one schema, with the number of nodes that it may still create."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = _NODES_AT_MOST

    def node(self, value: object, seen: tuple[str, ...], depth: int) -> Schema:
        """Return a schema without references; `seen`: the references being resolved around it."""
        self._left -= 1
        schema = _schema(value)
        ref = schema.get("$ref")
        if self._left < 0 or depth > _DEPTH_AT_MOST:
            return _stub(schema)
        if isinstance(ref, str):
            return self._inlined(ref, schema, seen, depth)
        required = _strings(schema.get("required"))
        made: Schema = {}
        for key, part in schema.items():
            if key in _OF_MANY and _is_object(part):
                made[key] = self._properties(part, required, seen, depth)
            elif key in _OF_LIST and _is_list(part):
                made[key] = [self.node(one, seen, depth + 1) for one in part]
            elif key in _OF_ONE and _is_object(part):
                made[key] = self.node(part, seen, depth + 1)
            elif key not in _NOISE and not is_deeper(part, LEVELS_AT_MOST):
                made[key] = part
        return _simple(made)

    def _properties(self, given: Schema, required: Sequence[str], seen: tuple[str, ...], depth: int) -> Schema:
        made: Schema = {}
        for name, part in given.items():
            property_ = self.node(part, seen, depth + 1)
            made[name] = property_ if name in required else _without_null(property_)
        return made

    def _inlined(self, ref: str, schema: Schema, seen: tuple[str, ...], depth: int) -> Schema:
        beside = {key: part for key, part in schema.items() if key != "$ref"}
        target = self._target(ref)
        if ref in seen:
            target = _stub(target)
        return self.node({**target, **beside}, (*seen, ref), depth + 1)

    def _target(self, ref: str) -> Schema:
        """Return the target of a reference; an external or dangling one allows anything."""
        if not ref.startswith("#"):
            return {}
        found: object = self._root
        for part in filter(None, unquote(ref[1:]).split("/")):
            found = _schema(found).get(part.replace("~1", "/").replace("~0", "~"))
        return _schema(found)


def _stub(schema: Schema) -> Schema:
    return {key: schema[key] for key in ("type", "description") if key in schema}


def _simple(schema: Schema) -> Schema:
    """Return an equivalent, shorter schema."""
    made = dict(schema)
    if len(every := _schemas(made.get("allOf"))) == 1:
        del made["allOf"]
        made = {**every[0], **made}
    if "default" in made and made["default"] is None:
        del made["default"]
    for bound in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if isinstance(made.get(bound), bool):  # as in an early draft
            del made[bound]
        elif isinstance(limit := made.get(bound), int) and abs(limit) > _SAFE_INTEGER:
            made[bound] = _SAFE_INTEGER if limit > 0 else -_SAFE_INTEGER
    return made


def _without_null(schema: Schema) -> Schema:
    """Drop null from an optional property, so that models are not tempted to send it."""
    made = dict(schema)
    if _is_list(types := made.get("type")):
        kept = [one for one in types if one != "null"]
        made["type"] = kept[0] if len(kept) == 1 else kept
    if _is_list(values := made.get("enum")) and any(one is not None for one in values):
        made["enum"] = [one for one in values if one is not None]
    for key in ("anyOf", "oneOf"):
        options = _schemas(made.get(key))
        kept = [one for one in options if not _is_null(one)]
        if not kept or len(kept) == len(options):
            continue
        del made[key]
        made = {**kept[0], **made} if len(kept) == 1 else {**made, key: kept}
    return made


def _is_null(schema: Schema) -> bool:
    return schema.get("type") == "null" or schema.get("enum") == [None] or ("const" in schema and not _values(schema))


# --- the transforms ---------------------------------------------------------------------------------


def _mapped(schema: Schema, fit: Callable[[Schema], Schema]) -> Schema:
    """Apply `fit` to every schema in a schema, the inner ones first."""
    made: Schema = {}
    for key, part in schema.items():
        if key in _OF_MANY and _is_object(part):
            made[key] = {name: _mapped(_schema(one), fit) for name, one in part.items()}
        elif (key in _OF_LIST or key == "items") and _is_list(part):
            made[key] = [_mapped(one, fit) for one in _schemas(part)]
        elif key in _OF_ONE and _is_object(part):
            made[key] = _mapped(part, fit)
        else:
            made[key] = part
    return fit(made)


def _object_at_top(schema: Schema) -> Schema:
    """Merge `anyOf`, `oneOf` and `allOf` at the top into one object: OpenAI and Anthropic refuse them there.

    https://github.com/langchain-ai/langchainjs/issues/9804, https://github.com/anthropics/claude-code/issues/27337
    """
    made = _all_of_merged(schema)
    options = [_all_of_merged(one) for key in ("anyOf", "oneOf") for one in _schemas(made.get(key))]
    properties = dict(_schema(made.get("properties")))
    for option in options:
        for name, part in _schema(option.get("properties")).items():
            properties.setdefault(name, part)
    required = _strings(made.get("required"))
    if options:
        common = set[str].intersection(*(set(_strings(option.get("required"))) for option in options))
        required += sorted(common - set(required))
    refused = ("type", "anyOf", "oneOf", "enum", "const", "not", "if", "then", "else", "properties", "required")
    rest = {key: part for key, part in made.items() if key not in refused}
    return {"type": "object", "properties": properties, **rest, **({"required": required} if required else {})}


def _openai(schema: Schema) -> Schema:
    """Fit a schema to OpenAI and Azure: only documented keywords, and every array has `items`.

    https://platform.openai.com/docs/guides/structured-outputs#supported-schemas,
    https://github.com/makenotion/notion-mcp-server/issues/102 (`allOf`)
    """
    made = _any_of(_enumerated(_items_alike(_all_of_merged(schema))))
    made = {key: part for key, part in made.items() if key in _KEPT_BY_OPENAI}
    made = _typed(made)
    return {**made, "items": {}} if made.get("type") == "array" and "items" not in made else made


def _anthropic(schema: Schema) -> Schema:
    """Fit a schema to Anthropic, which requires draft 2020-12: an earlier draft's tuples are an error.

    https://github.com/anthropics/claude-code/issues/5319; the top is `_object_at_top`'s.
    """
    if not _is_list(schema.get("items")):
        return schema
    made = {key: part for key, part in schema.items() if key != "items"}
    return {**made, "prefixItems": schema["items"]}


def _moonshot(schema: Schema) -> Schema:
    """Fit a schema to Moonshot (Kimi): a type for each, but none beside `anyOf`; no references, tuples or `oneOf`.

    https://github.com/MoonshotAI/kimi-cli/issues/1595, https://github.com/anomalyco/opencode/issues/39995,
    https://github.com/Hmbown/Codewhale/issues/2438
    """
    made = _one_type(_any_of(_enumerated(_items_alike(_all_of_merged(schema)))))
    made = {key: part for key, part in made.items() if key in _KEPT_BY_OPENAI}
    if "anyOf" not in made:
        return _typed(made, otherwise="string")
    outer = {"type": made.pop("type")} if "type" in made else {}
    made["anyOf"] = [one if "anyOf" in one else {**outer, **one} for one in _schemas(made["anyOf"])]
    return made


def _gemini(schema: Schema) -> Schema:
    """Fit a schema to Gemini: only fields of its own `Schema`, text enumerations only, arrays with a known type.

    https://ai.google.dev/api/caching#Schema, https://github.com/hideya/langchain-mcp-tools-ts/issues/36 (formats),
    https://github.com/microsoft/azure-devops-mcp/issues/145 (enumerations),
    https://github.com/pizza-bot-app/pizza-bot/issues/62 (exclusive bounds),
    https://github.com/lambda-alpha-labs/Graphenium/issues/37 (nothing may stand beside `anyOf`)
    """
    made = _one_type(_any_of(_enumerated(_items_alike(_all_of_merged(schema)))))
    made = _nullable(_inclusive(_enumeration_in_words(made)))
    if made.get("format") not in _FORMATS_OF_GEMINI:
        made.pop("format", None)
    made = {key: part for key, part in made.items() if key in _KEPT_BY_GEMINI}
    if options := _schemas(made.get("anyOf")):
        beside = {key: part for key, part in made.items() if key in ("description", "nullable", "type")}
        return {"anyOf": [{**beside, **options[0]}, *options[1:]]}
    made = _typed(made, otherwise="string")
    if made.get("type") == "array":
        made["items"] = made.get("items") or {"type": "string"}
    known = _schema(made.get("properties"))
    required = [name for name in _strings(made.pop("required", None)) if name in known]
    if made.get("type") != "object":
        made.pop("properties", None)
    elif required:
        made["required"] = required
    return made


_FITS: Mapping[Flavour, Callable[[Schema], Schema]] = {
    Flavour.OPENAI: _openai,
    Flavour.GEMINI: _gemini,
    Flavour.MOONSHOT: _moonshot,
    Flavour.ANTHROPIC: _anthropic,
}
_EXCLUSIVE = ("exclusiveMinimum", "exclusiveMaximum")
_KEPT_BY_OPENAI = frozenset(
    {
        "type",
        "description",
        "enum",
        "properties",
        "required",
        "items",
        "additionalProperties",
        "anyOf",
        "default",
        "format",
        "pattern",
        "multipleOf",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
    }
)
_KEPT_BY_GEMINI = frozenset(
    {
        "type",
        "description",
        "enum",
        "properties",
        "required",
        "items",
        "anyOf",
        "nullable",
        "format",
        "pattern",
        "minimum",
        "maximum",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
    }
)
_FORMATS_OF_GEMINI = ("enum", "date-time", "int32", "int64", "float", "double")
"""A tuple, since the format in a schema may be a list, which a set cannot be asked for."""


# --- shared steps -----------------------------------------------------------------------------------


def _all_of_merged(schema: Schema) -> Schema:
    """Merge `allOf` into one schema: properties are united; for other keywords the outer value wins, then the first."""
    made = {key: part for key, part in schema.items() if key != "allOf"}
    for one in map(_all_of_merged, _schemas(schema.get("allOf"))):
        mine = _schema(made.get("properties"))
        properties = mine | {name: part for name, part in _schema(one.get("properties")).items() if name not in mine}
        required = list(dict.fromkeys([*_strings(made.get("required")), *_strings(one.get("required"))]))
        made = {**one, **made}
        made.update({"properties": properties} if properties else {}, **({"required": required} if required else {}))
    return made


def _any_of(schema: Schema) -> Schema:
    """Replace `oneOf` by the looser `anyOf`, which suffices for models."""
    if "oneOf" not in schema:
        return schema
    made = {key: part for key, part in schema.items() if key != "oneOf"}
    return {**made, "anyOf": [*_schemas(made.get("anyOf")), *_schemas(schema["oneOf"])]}


def _enumerated(schema: Schema) -> Schema:
    """Replace a constant by an enumeration of one."""
    if "const" not in schema:
        return schema
    return {**{key: part for key, part in schema.items() if key != "const"}, "enum": [schema["const"]]}


def _items_alike(schema: Schema) -> Schema:
    """Replace a tuple by an array of its first type; its length stays."""
    items: object = schema.get("prefixItems", schema.get("items"))
    if not _is_list(items):
        return schema
    first = _schemas(items)[:1]
    made = {key: part for key, part in schema.items() if key not in ("prefixItems", "items")}
    return {**made, "items": first[0]} if first else made


def _one_type(schema: Schema) -> Schema:
    """Split a list of types into several schemas; null stays one of them."""
    types = schema.get("type")
    if not _is_list(types):
        return schema
    made = {key: part for key, part in schema.items() if key != "type"}
    names = _strings(types)
    if len(names) < 2:
        return {**made, "type": names[0]} if names else made
    about = {key: made.pop(key) for key in ("description", "default") if key in made}
    return {**about, "anyOf": [{"type": name, **_of_type(name, made)} for name in names]}


def _of_type(name: str, schema: Schema) -> Schema:
    """Return the keywords of a schema that apply to a type."""
    words = _WORDS_OF_TYPE.get(name, frozenset[str]())
    return {key: part for key, part in schema.items() if key in words}


_WORDS_OF_TYPE: Mapping[str, frozenset[str]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
}


def _nullable(schema: Schema) -> Schema:
    options = _schemas(schema.get("anyOf"))
    kept = [one for one in options if not _is_null(one)]
    if not kept or len(kept) == len(options):
        return schema
    made = {key: part for key, part in schema.items() if key != "anyOf"}
    return {**kept[0], **made, "nullable": True} if len(kept) == 1 else {**made, "anyOf": kept, "nullable": True}


def _inclusive(schema: Schema) -> Schema:
    """Replace exclusive bounds by the nearest inclusive ones; for fractions by the bound itself, left to validation."""
    made = {key: part for key, part in schema.items() if key not in _EXCLUSIVE}
    for exclusive, inclusive, step in zip(_EXCLUSIVE, ("minimum", "maximum"), (1, -1), strict=True):
        bound = schema.get(exclusive)
        if isinstance(bound, int | float) and not isinstance(bound, bool):
            made.setdefault(inclusive, bound + step if schema.get("type") == "integer" else bound)
    return made


def _enumeration_in_words(schema: Schema) -> Schema:
    """Move enumerated numbers to the description: as strings they would come back as strings, and be refused."""
    values = schema.get("enum")
    if not _is_list(values) or all(isinstance(one, str) for one in values):
        return schema
    kinds = _typed({"enum": values})
    made = {key: part for key, part in {**kinds, **schema}.items() if key != "enum"}
    words = f"One of {', '.join(json.dumps(one, ensure_ascii=False) for one in values)}."
    return {**made, "description": f"{made['description']} {words}" if made.get("description") else words}


def _typed(schema: Schema, otherwise: str = "") -> Schema:
    """Add the type that a schema's other keywords imply."""
    if "type" in schema or "anyOf" in schema:
        return schema
    inferred = otherwise
    if _is_list(values := schema.get("enum")):
        alike = {_TYPE_OF_VALUE.get(type(one).__name__, "") for one in values}
        inferred = alike.pop() if len(alike) == 1 else otherwise
    else:
        inferred = next((name for name, words in _WORDS_OF_TYPE.items() if words & schema.keys()), otherwise)
    return {"type": inferred, **schema} if inferred else schema


_TYPE_OF_VALUE: Mapping[str, str] = {"str": "string", "bool": "boolean", "int": "integer", "float": "number"}


# --- access to untrusted values ---------------------------------------------------------------------


def _is_object(value: object) -> TypeGuard[Schema]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _schema(value: object) -> Schema:
    """Return the value if it is an object, else an empty schema, as for `true` and `false`."""
    return value if _is_object(value) else {}


def _schemas(value: object) -> list[Schema]:
    return [_schema(one) for one in value] if _is_list(value) else []


def _strings(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if _is_list(value) else []


def _values(schema: Schema) -> list[Any]:
    """Return the enumerated values except null."""
    given: object = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return [one for one in given if one is not None] if _is_list(given) else []
