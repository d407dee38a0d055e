"""App manifest for Slack's page "From a manifest". Printed by `dragoman slack-manifest`; no message passes here."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from channels._shared.settings import ONE_ACCOUNT
from channels.slack.settings import Mode, endpoint_path

Json = dict[str, Any]
COMMAND = "/dragoman"
PUBLIC_URL = "https://YOUR-HOST"
"""Placeholder for a public URL that is not configured yet."""

SCOPES = MappingProxyType(
    {
        "app_mentions:read": "hears who names it",
        "assistant:write": "suggests what to ask, and says in a thread that it works",
        "channels:history": "reads the threads that it answers in",
        "chat:write": "answers",
        "commands": f"takes {COMMAND}",
        "files:read": "fetches files that people send",
        "files:write": "sends long answers and pictures as files",
        "groups:history": "the same in private channels",
        "im:history": "reads what is written to it directly",
        "im:read": "knows direct conversations",
        "im:write": "writes to an owner first, with a card for instance",
        "mpim:history": "the same in conversations of several people",
        "pins:write": "pins messages when the agent is asked to",
        "reactions:write": "shows with a reaction that it has read something, and reacts when asked to",
        "users:read": "distinguishes members from guests, and has their names",
    }
)
"""Scopes of the bot, each with its purpose."""
EVENTS = (
    "agent_session_stopped",
    "app_context_changed",
    "app_home_opened",
    "app_mention",
    "app_uninstalled",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
    "tokens_revoked",
)
PROMPTS = (("What can you do?", "What can you do?"), ("How is it going?", "/status"))
"""Title and message of each suggested prompt; at most four."""


def manifest(mode: Mode, *, account: str = ONE_ACCOUNT, public_url: str = "", app: str = "Dragoman") -> Json:
    """Return the manifest of an account's app, as JSON-safe data. `app`: display name, at most 35 characters.

    Needs no token: none exists before the installation. With `mode` "http", Slack sends to `public_url`; if that is
    empty, the manifest has a placeholder.
    """
    by_http = mode == "http"
    url: Json = {"url": f"{public_url or PUBLIC_URL}{endpoint_path(account)}"} if by_http else {}
    request: Json = {"request_url": url["url"]} if by_http else {}
    about = "Talks to an agent; nothing dangerous runs before somebody who may say so presses a button."
    command: Json = {
        "command": COMMAND,
        "description": "Say something to the agent, or give a command",
        "usage_hint": "status | stop | new | help | anything else is a message",
        "should_escape": False,
    }
    return {
        "_metadata": {"major_version": 2, "minor_version": 1},
        "display_information": {"name": app[:35], "description": about, "background_color": "#2c2d30"},
        "features": {
            "agent_view": {
                "agent_description": about,
                "suggested_prompts": [{"title": title, "message": message} for title, message in PROMPTS],
            },
            "app_home": {
                "home_tab_enabled": False,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": app[:80], "always_online": True},
            "slash_commands": [{**command, **url}],
        },
        "oauth_config": {"scopes": {"bot": list(SCOPES)}},
        "settings": {
            "event_subscriptions": {**request, "bot_events": list(EVENTS)},
            "interactivity": {"is_enabled": True, **request},
            "org_deploy_enabled": False,
            "socket_mode_enabled": not by_http,
            "token_rotation_enabled": False,
        },
    }
