"""Arguments described by a small part of JSON Schema, as the text of an own tool's file gives it. Used by `app`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, Literal, NotRequired, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # typing's own is not accepted by pydantic before Python 3.12

from gateway.errors import ConfigError
from gateway.toolcalls.arguments import InvalidArguments, problems_of

_PLAIN: Mapping[str, Any] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "null": None,
}  # fmt: skip


class SchemaArguments:
    """Arguments as a dictionary, validated against the schema of an object. Unknown ones are refused."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Take the schema. Raises `ConfigError` for what is not supported, and a wrong default."""
        self._schema = schema
        properties: Mapping[str, Any] = schema["properties"]
        required = set(schema.get("required", ()))
        fields = {name: _type(one) if name in required else NotRequired[_type(one)] for name, one in properties.items()}
        shape = cast("Any", TypedDict)("Arguments", fields)
        shape.__pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)
        self._adapter: TypeAdapter[Any] = TypeAdapter(shape)
        self._defaults = {name: one["default"] for name, one in properties.items() if "default" in one}
        given = {name: value for name, value in self._defaults.items() if value is not None}
        try:
            for name, value in given.items():
                TypeAdapter(_type(properties[name])).validate_python(value)
        except ValidationError as error:
            raise ConfigError(f"a default is not of its argument's type: {problems_of(error)}") from error

    @property
    def schema(self) -> Mapping[str, Any]:
        """The schema itself."""
        return self._schema

    def parse(self, text: str) -> Mapping[str, Any]:
        """Validate JSON text, and fill in the defaults."""
        try:
            return {**self._defaults, **self._adapter.validate_json(text)}
        except ValidationError as error:
            raise InvalidArguments(problems_of(error)) from error

    def restore(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Validate stored values."""
        # A default of None need not be of the argument's type.
        given = {
            name: one for name, one in values.items() if one is not None or self._defaults.get(name, 0) is not None
        }
        try:
            return {**self._defaults, **self._adapter.validate_python(given)}
        except ValidationError as error:
            raise InvalidArguments(problems_of(error)) from error

    def dump(self, arguments: Any) -> Mapping[str, Any]:
        """Return the arguments: they are JSON values."""
        return dict(arguments)


def _type(schema: Mapping[str, Any]) -> Any:
    """Return the Python type of a schema. Raises `ConfigError`."""
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    if "anyOf" in schema:
        return reduce(lambda one, other: one | other, (_type(one) for one in schema["anyOf"]))
    match schema.get("type"):
        case None:
            return Any
        case "array":
            return list[_type(schema["items"])]
        case "object":
            return dict[str, _type(schema["additionalProperties"])]
        case str() as name if name in _PLAIN:
            return _PLAIN[name]
        case other:
            raise ConfigError(f"the type {other} is not supported.", cure="Use text, numbers, lists and dictionaries.")
