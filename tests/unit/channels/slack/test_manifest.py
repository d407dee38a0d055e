"""The app manifest, checked against Slack's schema."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from channels.slack.manifest import COMMAND, EVENTS, PUBLIC_URL, SCOPES, manifest
from channels.slack.settings import Mode

URL = re.compile(r"https://[^\s]+")
KEYS: dict[str, set[str]] = {
    "": {"_metadata", "display_information", "features", "oauth_config", "settings"},
    "_metadata": {"major_version", "minor_version"},
    "display_information": {"name", "description", "background_color", "long_description"},
    "features": {"agent_view", "app_home", "bot_user", "slash_commands"},
    "features.app_home": {"home_tab_enabled", "messages_tab_enabled", "messages_tab_read_only_enabled"},
    "features.agent_view": {"agent_description", "suggested_prompts", "actions"},
    "features.bot_user": {"display_name", "always_online"},
    "oauth_config": {"scopes"},
    "oauth_config.scopes": {"bot"},
    "settings": {
        "event_subscriptions", "interactivity", "org_deploy_enabled", "socket_mode_enabled", "token_rotation_enabled"
    },
    "settings.event_subscriptions": {"request_url", "bot_events"},
    "settings.interactivity": {"is_enabled", "request_url"},
}  # fmt: skip
NEEDED = {
    "app_mention": "app_mentions:read",
    "agent_session_stopped": "assistant:write",
    "app_context_changed": "assistant:write",
    "message.channels": "channels:history",
    "message.groups": "groups:history",
    "message.im": "im:history",
    "message.mpim": "mpim:history",
}
"""Scope that Slack requires of an app for each event it subscribes to."""


def check_keys(node: dict[str, Any], path: str = "") -> None:
    """No part has a key that the schema does not know."""
    assert set(node) <= KEYS[path], path
    for key, below in node.items():
        if isinstance(below, dict):
            check_keys(below, f"{path}.{key}".lstrip("."))  # pyright: ignore[reportUnknownArgumentType] - JSON, of any shape


@pytest.mark.parametrize("mode", ["socket", "http"])
def test_slack_would_take_it(mode: Mode) -> None:
    found = manifest(mode, public_url="https://bot.example.org", app="A name that is longer than Slack would take it")
    assert json.loads(json.dumps(found)) == found
    check_keys(found)
    about = found["display_information"]
    assert 0 < len(about["name"]) <= 35
    assert 0 < len(about["description"]) <= 140
    assert re.fullmatch("#[0-9a-f]{6}", about["background_color"])
    assert 0 < len(found["features"]["bot_user"]["display_name"]) <= 80
    (command,) = found["features"]["slash_commands"]
    assert set(command) <= {"command", "url", "description", "usage_hint", "should_escape"}
    assert command["command"] == COMMAND
    assert len(COMMAND) <= 32
    assert 0 < len(found["features"]["agent_view"]["agent_description"]) <= 300
    prompts = found["features"]["agent_view"]["suggested_prompts"]
    assert 0 < len(prompts) <= 4
    assert all(set(prompt) == {"title", "message"} for prompt in prompts)
    events, scopes = found["settings"]["event_subscriptions"]["bot_events"], found["oauth_config"]["scopes"]["bot"]
    assert len(set(events)) == len(events) <= 100
    assert all(NEEDED[event] in scopes for event in events if event in NEEDED)
    assert set(events) - set(NEEDED) == {"app_home_opened", "app_uninstalled", "tokens_revoked"}, "these need no scope"
    assert (scopes, events) == (list(SCOPES), list(EVENTS))


def test_a_new_app_has_no_assistant_view() -> None:
    assert "assistant_" not in json.dumps(manifest("socket"))


def test_a_socket_needs_no_address() -> None:
    found = manifest("socket", public_url="https://bot.example.org")
    assert found["settings"]["socket_mode_enabled"] is True
    assert not URL.search(json.dumps(found))


def test_manifest_over_http_has_one_address() -> None:
    found = manifest("http", account="work", public_url="https://bot.example.org")
    assert found["settings"]["socket_mode_enabled"] is False
    url = "https://bot.example.org/slack/work"
    assert found["settings"]["event_subscriptions"]["request_url"] == url
    assert found["settings"]["interactivity"] == {"is_enabled": True, "request_url": url}
    assert found["features"]["slash_commands"][0]["url"] == url


def test_an_address_that_is_not_known_yet_is_to_be_filled_in() -> None:
    assert manifest("http")["settings"]["event_subscriptions"]["request_url"] == f"{PUBLIC_URL}/slack/main"
