"""Reads the arguments of a call, however they were written, and knows each method: arguments, scope, rate tier.

A name that no method has is a surprise: Slack ignores it, and the misspelt field is never found.
The facts are those of https://docs.slack.dev/reference/methods/METHOD.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

from tests.support.slack.checks import Json, Refusal, as_json, missing, odd

ARGUMENTS_AT_MOST = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Method:
    """Facts of one method."""

    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name and type: str, bool, int, list, object, blocks."""
    needed: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    """Any of these is enough; none is needed when it is empty."""
    per_minute: int = 100
    """Its tier: https://docs.slack.dev/apis/web-api/rate-limits (1: 1, 2: 20, 3: 50, 4: 100 a minute and workspace)."""
    reads_json: bool = True
    app_token: bool = False
    """True when it takes the app's token, and no bot's."""


_CHAT = {
    "channel": "str",
    "text": "str",
    "blocks": "blocks",
    "attachments": "list",
    "markdown_text": "str",
    "metadata": "object",
    "thread_ts": "str",
    "mrkdwn": "bool",
    "parse": "str",
    "link_names": "bool",
    "unfurl_links": "bool",
    "unfurl_media": "bool",
    "reply_broadcast": "bool",
    "client_msg_id": "str",
    "as_user": "bool",
}
_LOOK = {"icon_emoji": "str", "icon_url": "str", "username": "str"}
_STREAM = {"channel": "str", "ts": "str", "markdown_text": "str", "chunks": "list"}
_PAGE = {
    "channel": "str",
    "cursor": "str",
    "limit": "int",
    "oldest": "str",
    "latest": "str",
    "inclusive": "bool",
    "include_all_metadata": "bool",
}
_THREAD = {"channel_id": "str", "thread_ts": "str"}
_HISTORY = ("channels:history", "groups:history", "im:history", "mpim:history")
_READ = ("channels:read", "groups:read", "im:read", "mpim:read")
_WRITE = ("chat:write",)

METHODS: Mapping[str, Method] = {
    "api.test": Method({"error": "str", "foo": "str"}),
    "auth.test": Method(per_minute=600),
    "apps.connections.open": Method(per_minute=60, app_token=True, scope=("connections:write",)),
    # One a second and channel besides, see `limits`; "several hundred a minute" a workspace.
    "chat.postMessage": Method({**_CHAT, **_LOOK}, ("channel",), _WRITE, 600),
    "chat.postEphemeral": Method({**_CHAT, **_LOOK, "user": "str"}, ("channel", "user"), _WRITE, 100),
    "chat.update": Method({**_CHAT, "ts": "str", "file_ids": "list"}, ("channel", "ts"), _WRITE, 50),
    "chat.delete": Method({"channel": "str", "ts": "str", "as_user": "bool"}, ("channel", "ts"), _WRITE, 50),
    "chat.startStream": Method(
        {
            "channel": "str",
            "thread_ts": "str",
            "markdown_text": "str",
            "chunks": "list",
            "recipient_user_id": "str",
            "recipient_team_id": "str",
            "task_display_mode": "str",
            **_LOOK,
        },
        ("channel", "thread_ts"),
        _WRITE,
        20,
    ),
    "chat.appendStream": Method(_STREAM, ("channel", "ts"), _WRITE, 100),
    "chat.stopStream": Method({**_STREAM, "blocks": "blocks", "metadata": "object"}, ("channel", "ts"), _WRITE, 20),
    "conversations.info": Method(
        {"channel": "str", "include_locale": "bool", "include_num_members": "bool"},
        ("channel",),
        _READ,
        50,
        reads_json=False,
    ),
    "conversations.open": Method(
        {"users": "str", "channel": "str", "return_im": "bool", "prevent_creation": "bool"},
        scope=("im:write", "mpim:write"),
        per_minute=50,
    ),
    "conversations.history": Method(_PAGE, ("channel",), _HISTORY, 50, reads_json=False),
    "conversations.replies": Method({**_PAGE, "ts": "str"}, ("channel", "ts"), _HISTORY, 50, reads_json=False),
    "reactions.add": Method(
        {"channel": "str", "name": "str", "timestamp": "str"},
        ("channel", "name", "timestamp"),
        ("reactions:write",),
        50,
    ),
    "reactions.remove": Method(
        {"channel": "str", "name": "str", "timestamp": "str"}, ("name",), ("reactions:write",), 20
    ),
    "pins.add": Method({"channel": "str", "timestamp": "str"}, ("channel", "timestamp"), ("pins:write",), 20),
    "views.open": Method({"trigger_id": "str", "interactivity_pointer": "str", "view": "object"}, ("view",)),
    "views.update": Method({"view_id": "str", "external_id": "str", "hash": "str", "view": "object"}, ("view",)),
    # chat:write is enough since https://docs.slack.dev/changelog/2026/03/05/set-status-scope-update.
    "assistant.threads.setStatus": Method(
        {**_THREAD, "status": "str", "loading_messages": "list", **_LOOK},
        ("channel_id", "thread_ts", "status"),
        ("chat:write", "assistant:write"),
        600,
    ),
    "assistant.threads.setTitle": Method(
        {**_THREAD, "title": "str"}, ("channel_id", "thread_ts", "title"), ("assistant:write",)
    ),
    "assistant.threads.setSuggestedPrompts": Method(
        {**_THREAD, "title": "str", "prompts": "list"},
        ("channel_id", "prompts"),
        ("assistant:write",),
    ),
    "agents.sessions.setStatus": Method(
        {**_THREAD, "status": "str", "title": "str", "initiator_user_id": "str", **_LOOK},
        ("channel_id", "status"),
        ("chat:write",),
        50,
    ),
    "users.info": Method({"user": "str", "include_locale": "bool"}, ("user",), ("users:read",), reads_json=False),
    "files.getUploadURLExternal": Method(
        {"filename": "str", "length": "int", "alt_txt": "str", "snippet_type": "str"},
        ("filename", "length"),
        ("files:write",),
        reads_json=False,
    ),
    "files.completeUploadExternal": Method(
        {
            "files": "list",
            "channel_id": "str",
            "channels": "str",
            "thread_ts": "str",
            "initial_comment": "str",
            "blocks": "blocks",
        },
        ("files",),
        ("files:write",),
    ),
    "files.info": Method({"file": "str", "count": "int"}, ("file",), ("files:read",), reads_json=False),
}

SCOPES = frozenset({scope for method in METHODS.values() for scope in method.scope} | {"app_mentions:read", "commands"})
"""Every scope that a bot here can have; `connections:write` is the app's."""


_ALWAYS = frozenset({"token", "team_id"})
"""Every method takes these; the SDK names the workspace with each call."""


async def read_arguments(request: web.BaseRequest, method: str) -> Json:
    """Return the call's arguments, unchecked. Raises `Refusal` when it cannot be read."""
    raw: Json = dict(request.query) if request.query_string else {}
    if request.method == "GET" or not request.body_exists:
        return raw
    kind = request.content_type
    body = await request.read()
    if not body:
        return raw
    if kind == "application/x-www-form-urlencoded":
        return raw | dict(parse_qsl(body.decode(), keep_blank_values=True))
    if kind == "multipart/form-data":
        raise odd("this fake reads forms and JSON, no multipart arguments")
    if kind != "application/json":
        raise Refusal("invalid_post_type")
    if method in METHODS and not METHODS[method].reads_json:
        raise odd(f"{method} reads no JSON: the real one takes it for a call without arguments")
    raw |= as_json(body.decode(errors="replace"), "request", dict, "invalid_json")
    if "token" in raw:
        raise odd("a token in a JSON body is not looked at: it belongs into the Authorization header", "not_authed")
    return raw


def typed(name: str, raw: Json) -> Json:
    """The arguments in their types. Raises `Refusal` for a misspelt, malformed or missing one."""
    method = METHODS[name]
    p: Json = {}
    for key, value in raw.items():
        if key in _ALWAYS:
            continue
        if key not in method.arguments:
            raise odd(f"this fake knows no argument {key!r} of {name}")
        if value is not None:
            p[key] = _as(method.arguments[key], key, value)
    for key in method.needed:
        if p.get(key) in (None, "") and not (key == "status" and key in p):  # an empty status takes it away
            raise _missing(name, key)
    return p


def _missing(method: str, key: str) -> Refusal:
    if key == "channel":
        return Refusal("channel_not_found")
    if method == "files.getUploadURLExternal":
        return Refusal("missing_argument")
    return missing(key)


def _as(kind: str, name: str, value: Any) -> Any:
    if kind == "str":
        if not isinstance(value, str):
            raise odd(f"this fake wants {name} as a string")
        return value
    if kind == "bool":
        return value if isinstance(value, bool) else str(value).lower() in ("true", "1")
    if kind == "int":
        return _as_int(name, value)
    if kind == "blocks":
        return [] if value == "" else as_json(value, name, list, "invalid_blocks_format")
    return as_json(value, name, dict if kind == "object" else list, _BAD_JSON.get(name, "invalid_arguments"))


_BAD_JSON = {"metadata": "invalid_metadata_format", "attachments": "invalid_attachments", "chunks": "invalid_chunks"}


def _as_int(name: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise Refusal("invalid_arguments", f"[ERROR] must be a number [json-pointer:/{name}]") from error
