"""Encoding of stored values: payloads as JSON, times as microseconds, conversations as JSON arrays.

Used by every durable store, so that each can read what another wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Generic, TypeVar, cast

from pydantic import BeforeValidator, SerializerFunctionWrapHandler, TypeAdapter, WrapSerializer
from pydantic_core import CoreConfig, PydanticSerializationError, SchemaValidator, to_json

from gateway.domain.children import Lineage
from gateway.domain.hooks import HookOutcome
from gateway.domain.messages import Attachment, Conversation, FetchedFile
from gateway.domain.posts import Post
from gateway.domain.steps import Answer
from gateway.domain.text import mended
from gateway.domain.tools import Artifact, ToolCall, ToolResult
from gateway.domain.waits import ApprovalRequest

T = TypeVar("T")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Payload(Generic[T]):
    """JSON codec of one domain type. Unknown keys are ignored, absent ones take their defaults."""

    def __init__(self, adapter: TypeAdapter[T]) -> None:
        """Take pydantic's adapter of the type.

        By default pydantic caches the last 16,384 short strings for the life of the process: ids and commands that
        rarely recur, spread over the whole heap. Only keys are cached here.
        """
        self._adapter = adapter
        self._validator = SchemaValidator(adapter.core_schema, CoreConfig(cache_strings="keys"))

    def dump(self, value: T) -> str:
        """Return `value` as JSON. Half surrogate pairs, which no file can hold, become U+FFFD."""
        try:
            return self._adapter.dump_json(value).decode()
        except PydanticSerializationError:
            whole = self._adapter.validate_python(_all_storable(self._adapter.dump_python(value)))
            return self._adapter.dump_json(whole).decode()

    def load(self, text: str) -> T:
        """Read the text that `dump` wrote. Raises pydantic's `ValidationError` for any other."""
        return self._validator.validate_json(text)


def _with_sandbox(request: ApprovalRequest, dump: SerializerFunctionWrapHandler) -> Any:
    """Write an absent sandbox as an empty string, and leave out other absent fields, as earlier rows did."""
    data = dump(request)
    for absent in [
        key for key in ("summary", "parts", "prepared", "always", "node") if not data[key] and data[key] != {}
    ]:
        del data[absent]
    action = data["action"]
    action["sandbox"] = action["sandbox"] or ""
    for absent in [key for key in ("network", "read_only", "home") if not action[key]]:
        del action[absent]
    return data


def _without_sandbox(data: Any) -> Any:
    """Undo `_with_sandbox`: read an empty sandbox as None."""
    match data:
        case {"action": {"sandbox": ""}}:
            return {**data, "action": {**data["action"], "sandbox": None}}
        case _:
            return data


ANSWER = Payload(TypeAdapter(Answer))
CALL = Payload(TypeAdapter(ToolCall))
RESULT = Payload(TypeAdapter(ToolResult))
HOOK_OUTCOME = Payload(TypeAdapter(HookOutcome))
APPROVAL = Payload(
    TypeAdapter[ApprovalRequest](
        Annotated[ApprovalRequest, BeforeValidator(_without_sandbox), WrapSerializer(_with_sandbox)]
    )
)
LINEAGE = Payload(TypeAdapter(Lineage))
ATTACHMENTS = Payload(TypeAdapter(tuple[Attachment, ...]))
BROUGHT = Payload(TypeAdapter(tuple[FetchedFile, ...]))
KEPT_FILE = Payload(TypeAdapter(Artifact))
POST = Payload(TypeAdapter(Post))


def to_us(moment: datetime) -> int:
    """Return microseconds since 1970, UTC. Raises `TypeError` for a naive datetime."""
    return (moment - EPOCH) // MICROSECOND


def from_us(us: int) -> datetime:
    """Return the aware UTC datetime that `to_us` wrote."""
    return EPOCH + timedelta(microseconds=us)


def dump_json(value: Mapping[str, Any] | list[Any]) -> str:
    """Return plain data as JSON text."""
    return storable(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def dump_plain(values: list[Any]) -> str:
    """Return a list of texts, whole numbers and lists of them as `dump_json` does, at a quarter of its cost."""
    try:
        return to_json(values).decode()
    except PydanticSerializationError:  # half a surrogate pair
        return dump_json(values)


def load_json(text: str) -> Any:
    """Parse JSON text to plain data."""
    return json.loads(text)


def dump_conversation(place: Conversation) -> str:
    """Return the conversation as text: equal texts mean equal conversations, for ids of any characters."""
    return dump_plain([place.channel, place.account, place.chat, place.thread])


def load_conversation(text: str) -> Conversation:
    """Parse the text that `dump_conversation` wrote."""
    channel, account, chat, thread = json.loads(text)
    return Conversation(channel=channel, account=account, chat=chat, thread=thread)


def dump_message_ids(ids: tuple[str, ...]) -> str:
    """Return the ids of a slot's messages as text: joined by commas, which no id has."""
    return ",".join(ids)


def load_message_ids(text: str) -> tuple[str, ...]:
    """Read the text that `dump_message_ids` wrote."""
    return tuple(text.split(",")) if text else ()


def storable(text: str) -> str:
    """Return `text` with half surrogate pairs replaced by U+FFFD: platforms send them, and UTF-8 cannot hold them."""
    return mended(text)


def _all_storable(value: Any) -> Any:
    """Return `value` with every string in it storable, mapping keys included."""
    if type(value) is str:  # an enum of texts is ours, and stays what it is
        return storable(value)
    if isinstance(value, Mapping):
        pairs = cast(Mapping[Any, Any], value).items()
        return {_all_storable(key): _all_storable(one) for key, one in pairs}
    if isinstance(value, list | tuple):
        return [_all_storable(one) for one in cast(Sequence[Any], value)]
    return value


def head(text: str, most: int = 64 << 10) -> str:
    """Return the beginning of `text`, at most `most` bytes of UTF-8."""
    return storable(text).encode()[:most].decode(errors="ignore")
