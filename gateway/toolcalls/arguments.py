"""Arguments of tools: their JSON Schema, and the validation and size limit of a call's JSON. Used by `decide`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError

from gateway.domain.decisions import Deny, DenyReason
from gateway.domain.nesting import LEVELS_AT_MOST, is_too_deep
from gateway.domain.tools import ARGUMENTS_AT_MOST, NAMED_AT_MOST

PROBLEMS_SAID = 5
"""Invalid arguments that a hint describes."""
PROBLEMS_AT_MOST = 100
"""Invalid arguments of one call beyond which the hint gives only their number."""
PARTS_AT_MOST = 100_000
"""Opening brackets and braces in one call's arguments: 300,000 lists, in 1 MB, took a quarter of a second to parse."""


class InvalidArguments(Exception):
    """Refusal of a validator. Its text describes the first problems in a sentence without a full stop."""


class Arguments(Protocol):
    """Validator of one tool's arguments."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON Schema of an object, as models are offered it. The same object each time."""
        ...

    def parse(self, text: str) -> Any:
        """Return the arguments of a call, from JSON text of bounded size. Raises `InvalidArguments`."""
        ...

    def restore(self, values: Mapping[str, Any]) -> Any:
        """Return arguments that `dump` wrote. Raises `InvalidArguments` when the tool has changed since."""
        ...

    def dump(self, arguments: Any) -> Mapping[str, Any]:
        """Return validated arguments as JSON values, with defaults filled in. A person approves exactly these."""
        ...


_OF_TEXT = ("minLength", "maxLength")
"""Limits of texts in a schema: a violation is reported, and no model counts characters."""


def _shorten(schema: dict[str, Any]) -> None:
    """Drop what a model need not read of an object's schema: an optional field may be left out."""
    schema.pop("title", None)
    schema.pop("description", None)
    fields: dict[str, dict[str, Any]] = schema.get("properties", {})
    for name, field in fields.items():
        field.pop("title", None)
        if field.get("default", ...) is None:
            del field["default"]
        kinds = [kind for kind in field.get("anyOf", ()) if kind != {"type": "null"}]
        if len(kinds) == 1:
            del field["anyOf"]
            field = fields[name] = {**kinds[0], **field}
        for one in (field, field.get("items", {})):
            for limit in _OF_TEXT:
                one.pop(limit, None)


class ModelArguments:
    """Arguments described by a pydantic model, whose instances the tool gets."""

    def __init__(self, model: type[BaseModel]) -> None:
        """Take the model. It should forbid unknown keys."""
        self._model = model
        self._schema: Mapping[str, Any] | None = None

    @property
    def schema(self) -> Mapping[str, Any]:
        """Schema of the model without titles, docstrings of classes and `null`: each request would repeat them."""
        if self._schema is None:
            schema = self._model.model_json_schema()
            for one in (schema, *schema.get("$defs", {}).values()):
                _shorten(one)
            self._schema = schema
        return self._schema

    def parse(self, text: str) -> BaseModel:
        """Validate JSON text."""
        try:
            return self._model.model_validate_json(text)
        except ValidationError as error:
            raise InvalidArguments(problems_of(error)) from error

    def restore(self, values: Mapping[str, Any]) -> BaseModel:
        """Validate stored values."""
        try:
            return self._model.model_validate(dict(values))
        except ValidationError as error:
            raise InvalidArguments(problems_of(error)) from error

    def dump(self, arguments: Any) -> Mapping[str, Any]:
        """Return the fields as JSON values, by their own names."""
        return arguments.model_dump(mode="json", by_alias=False)


def check_arguments(arguments: Arguments, text: str, syntax: str) -> Any | Deny:
    """Return the validated arguments, or the refusal. Text that is not JSON is never taken for `{}`.

    `syntax`: added to the problems that the validator found.
    """
    if len(text) > ARGUMENTS_AT_MOST:
        return _invalid("The arguments are longer than a million characters.")
    if text.count("[") + text.count("{") > PARTS_AT_MOST:
        return _invalid(f"The arguments have more than {PARTS_AT_MOST} opening brackets and braces.")
    try:
        read = arguments.parse(text)
    except InvalidArguments as error:
        return _invalid(f"{error}. {syntax}")
    if is_too_deep(text):
        return _invalid(f"The arguments are nested more than {LEVELS_AT_MOST} deep.")
    return read


def _invalid(hint: str) -> Deny:
    return Deny(reason=DenyReason.INVALID_ARGUMENTS, hint=hint)


def problems_of(error: ValidationError) -> str:
    """Describe the first errors. Beyond `PROBLEMS_AT_MOST` only count them: rendering 100,000 took half a second."""
    if error.error_count() > PROBLEMS_AT_MOST:
        return f"{error.error_count()} of the arguments are wrong or unknown"
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(_problem(one) for one in found[:PROBLEMS_SAID])


def _problem(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])[:NAMED_AT_MOST] or "arguments"
    said = str(error["msg"]).removeprefix("Value error, ")  # pydantic's prefix for a tool's own message
    return f"{where}: {said}"
