"""Single values of Slack's settings. Whole configurations: `tests/unit/config/test_slack.py`."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from channels.slack.settings import OFFICIAL_API, SlackAccount, SlackLimits, SlackSettings, endpoint_path

BOT = "xoxb-1-2-abc"
APP = "xapp-1-A0-1-abc"
SIGNING = "0123456789abcdef0123456789abcdef"


def account(**fields: Any) -> SlackAccount:
    return SlackAccount.model_validate({"bot_token": BOT, "app_token": APP, **fields})


def flaw(**fields: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        account(**fields)
    (error,) = caught.value.errors()
    context = error.get("ctx", {})
    told = f"{context['what']} | {context['cure']} | {context['key']}"
    for key, value in fields.items():
        public = key in ("mode", "api_root") or len(str(value)) < 6
        assert public or str(value) not in told, "a secret is not repeated"
    return told


def test_defaults_of_an_account_are_slacks() -> None:
    found = account()
    assert (found.mode, found.api_root, found.signing_secret, found.limits) == (
        "socket", OFFICIAL_API, None, SlackLimits(per_channel_per_s=1, overall_per_min=300)
    )  # fmt: skip
    assert BOT not in repr(found)
    assert endpoint_path("main") == "/slack/main"


@pytest.mark.parametrize(
    ("token", "told"),
    [
        ("xoxp-1-2-abc", "it is a person's token, not a bot's token"),
        ("xapp-1-2-abc", "it is an app-level token, not a bot's token"),
        ("xoxe.xoxb-1-abc", "it is a token that expires"),
        ("xoxa-2-abc", "it is an old workspace token"),
        ("xoxb-", "it is not a bot's token"),
        ("xoxb-1 2", "it is not a bot's token"),
        ("xoxb-1\n2", "it is not a bot's token"),
        ("0123456789abcdef", "it is not a bot's token"),
    ],
)
def test_malformed_bot_token_is_refused_by_its_kind(token: str, told: str) -> None:
    found = flaw(bot_token=token)
    assert found.startswith(told)
    assert "Bot User OAuth Token (xoxb-…)" in found


@pytest.mark.parametrize("token", [BOT, "xoxp-1", "xapp-", "x"])
def test_malformed_app_token_is_refused(token: str) -> None:
    assert "connections:write" in flaw(app_token=token)


@pytest.mark.parametrize("secret", [BOT, APP, "short", "with blanks in it", "é" * 20])
def test_malformed_signing_secret_is_refused(secret: str) -> None:
    assert "Basic Information" in flaw(signing_secret=secret)


def test_each_mode_needs_its_secret() -> None:
    assert flaw(app_token=None).endswith("app_token")
    told = flaw(mode="http")
    assert told.endswith("signing_secret")
    assert "anybody could send messages in anybody's name" in told
    assert account(mode="http", app_token=None, signing_secret=SIGNING).mode == "http"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("https://slack.com/api", OFFICIAL_API),
        ("https://slack.com/api//", OFFICIAL_API),
        ("http://127.0.0.1:9/api/", "http://127.0.0.1:9/api/"),
        ("http://127.0.0.1:9", "http://127.0.0.1:9/"),
    ],
)
def test_an_api_root_ends_with_one_slash(given: str, meant: str) -> None:
    assert account(api_root=given).api_root == meant


@pytest.mark.parametrize("root", ["slack.com/api", "https://u:p@a.org"])
def test_malformed_api_root_is_refused(root: str) -> None:
    assert f'"{OFFICIAL_API}"' in flaw(api_root=root)


def test_an_accounts_name_can_stand_in_an_address() -> None:
    with pytest.raises(ValidationError, match="cannot be an account's name"):
        SlackSettings(accounts={"a/b": account()})


def test_two_accounts_share_neither_token() -> None:
    with pytest.raises(ValidationError, match="a and b have the same bot_token"):
        SlackSettings(accounts={"a": account(), "b": account(app_token="xapp-2")})
    with pytest.raises(ValidationError, match="each would be given the other's events"):
        SlackSettings(accounts={"a": account(), "b": account(bot_token="xoxb-2")})
    http = account(bot_token="xoxb-2", mode="http", signing_secret=SIGNING)
    found = SlackSettings(accounts={"a": account(), "b": http, "c": account(bot_token="xoxb-3", app_token="xapp-3")})
    assert list(found.accounts) == ["a", "b", "c"]
