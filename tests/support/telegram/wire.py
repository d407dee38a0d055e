"""Reads the parameters of a call, however they were written, and knows which parameters each method has.

A name that no method has is an error: Telegram ignores it, and the misspelt field is never found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web
from aiohttp.multipart import BodyPartReader

from tests.support.telegram.checks import Json, as_json, bad, odd

_SENDING = {
    "chat_id": "chat",
    "message_thread_id": "int",
    "disable_notification": "bool",
    "protect_content": "bool",
    "reply_parameters": "object",
    "reply_markup": "object",
}
_SHOWN = {"chat_id": "chat", "message_id": "int", "reply_markup": "object"}
_TEXT = {"text": "str", "entities": "list", "parse_mode": "str", "link_preview_options": "object"}

PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "getMe": {},
    "getUpdates": {"offset": "int", "limit": "int", "timeout": "int", "allowed_updates": "list"},
    "setWebhook": {
        "url": "str",
        "secret_token": "str",
        "max_connections": "int",
        "allowed_updates": "list",
        "drop_pending_updates": "bool",
    },
    "deleteWebhook": {"drop_pending_updates": "bool"},
    "getWebhookInfo": {},
    "sendMessage": {**_SENDING, **_TEXT},
    "sendMessageDraft": {"chat_id": "chat", "message_thread_id": "int", "draft_id": "int", **_TEXT},
    "sendDocument": {
        **_SENDING,
        "document": "file",
        "caption": "str",
        "caption_entities": "list",
        "parse_mode": "str",
        "disable_content_type_detection": "bool",
    },
    "sendPhoto": {**_SENDING, "photo": "file", "caption": "str", "caption_entities": "list", "parse_mode": "str"},
    "sendVoice": {**_SENDING, "voice": "file", "caption": "str", "caption_entities": "list", "parse_mode": "str"},
    "editMessageCaption": {**_SHOWN, "caption": "str", "caption_entities": "list", "parse_mode": "str"},
    "sendChatAction": {"chat_id": "chat", "message_thread_id": "int", "action": "str"},
    "editMessageText": {**_SHOWN, **_TEXT},
    "editMessageReplyMarkup": _SHOWN,
    "deleteMessage": {"chat_id": "chat", "message_id": "int"},
    "deleteMessages": {"chat_id": "chat", "message_ids": "list"},
    "answerCallbackQuery": {
        "callback_query_id": "str",
        "text": "str",
        "show_alert": "bool",
        "url": "str",
        "cache_time": "int",
    },
    "sendPoll": {
        "chat_id": "chat",
        "message_thread_id": "int",
        "question": "str",
        "options": "list",
        "is_anonymous": "bool",
        "disable_notification": "bool",
    },
    "setMessageReaction": {"chat_id": "chat", "message_id": "int", "reaction": "list", "is_big": "bool"},
    "pinChatMessage": {"chat_id": "chat", "message_id": "int", "disable_notification": "bool"},
    "setMyCommands": {"commands": "list", "scope": "object", "language_code": "str"},
    "deleteMyCommands": {"scope": "object", "language_code": "str"},
    "getMyCommands": {"scope": "object", "language_code": "str"},
    "getChat": {"chat_id": "chat"},
    "getFile": {"file_id": "str"},
}


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that came with a call."""

    name: str
    content: bytes


async def read_parameters(request: web.BaseRequest) -> Json:
    """Return the call's arguments, unchecked. Raises `Refusal` when it cannot be read."""
    raw: Json = dict(request.query) if request.query_string else {}
    if request.method == "GET" or not request.can_read_body:
        return raw
    kind = request.content_type
    if kind == "multipart/form-data":
        return raw | await _multipart(request)
    body = await request.read()
    if kind == "application/json":
        try:
            raw |= as_json(body.decode(), "request", dict)
        except UnicodeDecodeError as error:
            raise bad("strings must be encoded in UTF-8") from error
        return raw
    if kind == "application/x-www-form-urlencoded":
        return raw | dict(parse_qsl(body.decode(), keep_blank_values=True))
    raise odd(f"this fake reads no {kind}")


async def _multipart(request: web.BaseRequest) -> Json:
    raw: Json = {}
    async for part in await request.multipart():
        if not isinstance(part, BodyPartReader) or not part.name:
            raise odd("this fake reads named parts only")
        content = bytes(await part.read())
        raw[part.name] = content.decode() if part.filename is None else Upload(part.filename, content)
    return raw


def typed(method: str, raw: Json) -> Json:
    """The parameters in their types. Raises `Refusal` for a misspelt or malformed one."""
    known = PARAMETERS[method]
    field = next((name for name, kind in known.items() if kind == "file"), "")
    files = {name: value for name, value in raw.items() if isinstance(value, Upload)} if field else {}
    p: Json = {}
    for name, value in raw.items():
        if name not in known:
            if name in files and f"attach://{name}" in raw.values():
                continue
            raise odd(f"this fake knows no parameter {name!r} of {method}")
        if value is not None:
            p[name] = _as(known[name], name, value)
    attached = p.get(field)
    if isinstance(attached, str) and attached.startswith("attach://"):
        if (upload := files.get(attached.removeprefix("attach://"))) is None:
            raise bad("file must be non-empty")
        p[field] = upload
    return p


def _as(kind: str, name: str, value: Any) -> Any:
    if kind == "int":
        return _as_int(name, value)
    if kind == "chat":
        return value if isinstance(value, str) and value.startswith("@") else _as_chat(value)
    if kind == "str":
        if not isinstance(value, str):
            raise odd(f"this fake wants {name} as a string")
        return value
    if kind == "bool":
        return value if isinstance(value, bool) else str(value).lower() in ("true", "yes", "1")
    if kind == "file":
        return value
    return as_json(value, name, dict if kind == "object" else list)


def _as_int(name: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise bad(f"parameter {name} must be of type Number") from error


def _as_chat(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise bad("chat not found") from error
