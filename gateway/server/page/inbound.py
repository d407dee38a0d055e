"""Parser of the page's WebSocket frames. Used by `adapter`; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias, cast

from gateway.domain.ids import Handle, OwnerName, SessionId
from gateway.domain.messages import Attachment, Inbound, Press
from gateway.domain.questions import ANSWER_CHARS
from gateway.errors import BadRequest
from gateway.server.page import ids

TEXT_AT_MOST = 200_000
"""Characters of one message, at most."""
_NOT_TEXT = re.compile(r"[\x00\ud800-\udfff]")  # JSON can name halves of characters; no store can keep them


@dataclass(frozen=True, slots=True)
class Open:
    """Request to show and follow a session."""

    session: SessionId
    after: int | None


@dataclass(frozen=True, slots=True)
class Close:
    """Request to stop following a session."""

    session: SessionId


@dataclass(frozen=True, slots=True)
class Older:
    """Request for rows before a position."""

    session: SessionId
    before: int


@dataclass(frozen=True, slots=True)
class Say:
    """Message from the page."""

    id: str
    message: Inbound
    files: tuple[str, ...] = ()
    """Keys of its uploads."""


@dataclass(frozen=True, slots=True)
class PagePress:
    """Button press on the page."""

    id: str
    press: Press


Frame: TypeAlias = Open | Close | Older | Say | PagePress


def unpack(text: str) -> dict[str, Any]:
    """Return a frame's JSON object; parse it once, since a large one takes long. Raises `BadRequest` if it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest("This frame is not JSON.") from error
    if not isinstance(found, dict):
        raise BadRequest("A frame is a JSON object.")
    return cast(dict[str, Any], found)


def parse(frame: dict[str, Any], owner: OwnerName, now: datetime) -> Frame:
    """Return the request in a frame. Raises `BadRequest` with the fault."""
    match frame.get("op"):
        case "open":
            after = frame.get("after")
            return Open(_session(frame), None if after is None else _number(frame, "after"))
        case "close":
            return Close(_session(frame))
        case "older":
            return Older(_session(frame), _number(frame, "before"))
        case "say":
            return _say(frame, owner, now)
        case "press":
            return _press(frame, owner)
        case other:
            raise BadRequest(f"There is no op {other[:40] if isinstance(other, str) else None!r}.")


def _say(frame: dict[str, Any], owner: OwnerName, now: datetime) -> Say:
    text, files = _text(frame, "text"), _files(frame)
    if not text.strip() and not files:
        raise BadRequest("text: it is empty.")
    if len(text) > TEXT_AT_MOST:
        raise BadRequest(f"text: longer than {TEXT_AT_MOST:,} characters. Send it in parts.")
    message = Inbound(
        event_key=_event_key(frame, owner),
        conversation=ids.conversation(owner),
        principal=ids.principal(owner),
        name=owner,
        direct=True,
        addressed=True,
        text=text,
        sent_at=now,
    )
    return Say(_text(frame, "id"), message, files)


def with_speech(text: str, files: Sequence[Attachment]) -> tuple[Attachment, ...]:
    """Return the files of a message; recordings that came without a text are its words."""
    silent = not text.strip()
    return tuple(replace(one, spoken=silent and one.media_type.startswith("audio/")) for one in files)


def _press(frame: dict[str, Any], owner: OwnerName) -> PagePress:
    reason = "" if frame.get("reason") is None else _text(frame, "reason")
    press = Press(
        event_key=_event_key(frame, owner),
        conversation=ids.conversation(owner),
        principal=ids.principal(owner),
        handle=Handle(_text(frame, "handle")[:128]),
        reason=reason[:ANSWER_CHARS],
    )
    return PagePress(_text(frame, "id"), press)


def _event_key(frame: dict[str, Any], owner: OwnerName) -> str:
    try:
        return ids.event_key(owner, _text(frame, "id"))
    except ValueError as error:
        raise BadRequest(str(error)) from error


def _session(frame: dict[str, Any]) -> SessionId:
    return SessionId(_text(frame, "session")[:512])


def _files(frame: dict[str, Any]) -> tuple[str, ...]:
    found: object = frame.get("files") or []
    keys = cast("list[object]", found) if isinstance(found, list) else [None]
    if not all(isinstance(key, str) and ids.is_client_id(key) for key in keys):
        raise BadRequest("files: a list of upload ids is wanted.")
    return tuple(cast("list[str]", keys))


def _text(frame: dict[str, Any], key: str) -> str:
    value = frame.get(key)
    if not isinstance(value, str) or _NOT_TEXT.search(value):
        raise BadRequest(f"{key}: text is wanted.")
    return value


def _number(frame: dict[str, Any], key: str) -> int:
    value = frame.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise BadRequest(f"{key}: a whole number is wanted.")
    return value
