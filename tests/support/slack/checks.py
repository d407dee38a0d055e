"""Checks of calls, texts and metadata by the fake Slack, with the error codes of the real one.

The limits and codes are those of the method pages, https://docs.slack.dev/reference/methods/METHOD, unless another
page is named beside them. Pure: returns what was meant, or raises `Refusal`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

TEXT_AT_MOST = 40_000
"""https://docs.slack.dev/reference/methods/chat.postMessage (warning `message_truncated`)."""
UPDATED_TEXT_AT_MOST = 4_000
"""https://docs.slack.dev/reference/methods/chat.update (error `msg_too_long`)."""
MARKDOWN_AT_MOST = 12_000
"""`markdown_text` of the chat methods, and all markdown blocks of one message together."""
METADATA_AT_MOST = 16_000
"""Bytes of JSON; https://docs.slack.dev/messaging/message-metadata names no number, so this one is generous."""

Json = dict[str, Any]
_EVENT_TYPE = re.compile(r"[A-Za-z0-9_.:/#-]{1,255}")


class Refusal(Exception):
    """The answer of a call that is refused. `surprise`: the fake alone refuses it, and a test should hear of it."""

    def __init__(self, error: str, *messages: str, surprise: str = "", **more: Any) -> None:
        super().__init__(error)
        self.error = error
        self.messages = messages
        self.surprise = surprise
        self.more = more

    def answer(self) -> Json:
        """The body of the answer; its status is 200, as Slack's is."""
        body: Json = {"ok": False, "error": self.error, **self.more}
        return {**body, "response_metadata": {"messages": list(self.messages)}} if self.messages else body


def odd(what: str, error: str = "invalid_arguments") -> Refusal:
    """Return the refusal of a call that Slack would accept or answer otherwise, and no app of ours should send."""
    return Refusal(error, f"[ERROR] {what}", surprise=what)


def missing(name: str) -> Refusal:
    """A required argument is not there."""
    return Refusal("invalid_arguments", f"[ERROR] missing required field: {name}")


def text_of(p: Mapping[str, Any], *, updating: bool = False) -> str:
    """The `text` of a post or an edit. Too long a post is a surprise as well: the real one cuts it, and says so
    in a warning that nobody reads."""
    text: str = p.get("text", "")
    if not encodable(text):
        raise odd("half a symbol: the text was cut between its halves")
    if updating and len(text) > UPDATED_TEXT_AT_MOST:
        raise Refusal("msg_too_long")
    if len(text) > TEXT_AT_MOST:
        raise Refusal("msg_too_long", surprise=f"a text of {len(text)} characters: the real one cuts it at 40,000")
    return text


def markdown_of(p: Mapping[str, Any]) -> str:
    """The `markdown_text` of a call; empty for none."""
    text: str = p.get("markdown_text", "")
    if text and (p.get("text") or p.get("blocks")):
        raise Refusal("markdown_text_conflict")
    if len(text) > MARKDOWN_AT_MOST:
        raise Refusal("msg_too_long")
    return text


def metadata_of(p: Mapping[str, Any]) -> Json | None:
    """The `metadata` of a post; None for none. https://docs.slack.dev/messaging/message-metadata."""
    given = p.get("metadata")
    if given is None:
        return None
    if given == {}:
        return {}
    if given.keys() - {"event_type", "event_payload", "entities"}:
        raise Refusal("invalid_metadata_format")
    kind, payload = given.get("event_type"), given.get("event_payload")
    if not isinstance(kind, str) or not _EVENT_TYPE.fullmatch(kind) or not isinstance(payload, dict):
        raise Refusal("invalid_metadata_format")
    if len(json.dumps(given)) > METADATA_AT_MOST:
        raise Refusal("metadata_too_large")
    return given


def as_object(value: Any) -> Json | None:
    """A value as a JSON object; None when it is none."""
    return cast("Json", value) if isinstance(value, dict) else None


def as_array(value: Any) -> list[Any] | None:
    """A value as a JSON array; None when it is none."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def encodable(text: str) -> bool:
    """Return True for text without lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_json(value: Any, name: str, kind: type, error: str) -> Any:
    """An argument that is JSON, as text or already read."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as why:
            raise Refusal(error, f"[ERROR] failed to parse JSON [json-pointer:/{name}]") from why
    if not isinstance(value, kind):
        raise Refusal(
            error, f"[ERROR] must provide {'an object' if kind is dict else 'an array'} [json-pointer:/{name}]"
        )
    return value
