"""Single values of Telegram's settings. Whole configurations: `tests/unit/config/test_telegram.py`."""

from __future__ import annotations

import pytest
from pydantic import SecretStr, ValidationError

from channels.telegram.settings import OFFICIAL_API, TelegramAccount, TelegramLimits, TelegramSettings

TOKEN = SecretStr("110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw")


def account(**values: object) -> TelegramAccount:
    return TelegramAccount.model_validate({"token": TOKEN, **values})


def flaws(**values: object) -> list[tuple[str, str]]:
    """Return fault and cure of each problem."""
    with pytest.raises(ValidationError) as caught:
        account(**values)
    return [(one["ctx"]["what"], one["ctx"]["cure"]) for one in caught.value.errors() if "ctx" in one]


def test_a_token_says_which_bot_and_shows_itself_to_nobody() -> None:
    made = account()
    assert made.bot_id == 110201543
    assert made.bare_token.get_secret_value() == "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
    assert "AAHdq" not in f"{made!r} {made}"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("https://api.telegram.org/", OFFICIAL_API),
        ("http://127.0.0.1:8081", "http://127.0.0.1:8081"),
        ("https://example.org/telegram/", "https://example.org/telegram"),
        ("http://[::1]:8081", "http://[::1]:8081"),
    ],
)
def test_a_server_is_an_address_without_its_final_slash(written: str, read: str) -> None:
    assert account(api_root=written).api_root == read


@pytest.mark.parametrize(
    "written", ["example.org", "https://u:p@a.org", "https://api.telegram.org/bot", "https://a.org/bot/"]
)
def test_malformed_server_address_is_refused(written: str) -> None:
    ((what, cure),) = flaws(api_root=written)
    assert what
    assert cure


@pytest.mark.parametrize("secret", ["", "a b", "ä", "x" * 257, "a.b", "a\n"])
def test_a_webhook_secret_is_what_telegram_takes(secret: str) -> None:
    assert account(mode="webhook", webhook_secret=SecretStr("x" * 256)).webhook_secret is not None
    assert flaws(webhook_secret=SecretStr(secret)) == [
        ("Telegram takes no such secret", "Use 1 to 256 letters, digits, - and _")
    ]


@pytest.mark.parametrize("value", [-1, 1e9, "1", True, None, float("nan"), float("inf")])
def test_a_limit_is_a_number_and_0_is_none(value: object) -> None:
    limits = TelegramLimits.model_validate({"per_chat_per_s": 0, "per_group_per_min": 1.5})
    assert (limits.per_chat_per_s, limits.per_group_per_min) == (0, 1.5)
    with pytest.raises(ValidationError):
        TelegramLimits.model_validate({"overall_per_s": value})


def test_settings_cannot_be_changed_and_take_nothing_unknown() -> None:
    made = TelegramSettings(accounts={"main": account()})
    with pytest.raises(ValidationError):
        made.accounts = {}
    with pytest.raises(ValidationError):
        made.accounts["main"].mode = "webhook"
    with pytest.raises(ValidationError):
        account(colour=1)
