"""`[channels.telegram]` in whole configurations: one account or several, their secrets, requirements of webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from config.describe import lines
from config.load import Loaded, load
from gateway.errors import ConfigError
from tests.support.settings import settings_of

ENVIRON = {"TOKEN": "1001:very-secret-half", "OTHER": "2002:other-secret-half", "SECRET": "webhook-secret"}
ONE = '[channels.telegram]\ntoken = "env:TOKEN"\n'
WEBHOOK = f'{ONE}mode = "webhook"\nwebhook_secret = "env:SECRET"\n'
TWO = '[channels.telegram.accounts.home]\ntoken = "env:TOKEN"\n[channels.telegram.accounts.work]\ntoken = "env:OTHER"\n'


def read(tmp_path: Path, toml: str, environ: Mapping[str, str] = ENVIRON) -> Loaded:
    file = tmp_path / "config.toml"
    file.write_text(toml)
    return load(file, tmp_path / "state", environ, {})


def refusal(tmp_path: Path, toml: str, environ: Mapping[str, str] = ENVIRON) -> str:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, toml, environ)
    assert "secret-half" not in str(caught.value)
    return str(caught.value)


def test_a_plain_table_is_the_account_main(tmp_path: Path) -> None:
    telegram = settings_of(read(tmp_path, ONE + 'api_root = "http://127.0.0.1:8081/"\n'), "telegram")
    assert telegram is not None
    assert list(telegram.accounts) == ["main"]
    account = telegram.accounts["main"]
    assert (account.bot_id, account.mode, account.api_root) == (1001, "polling", "http://127.0.0.1:8081")
    limits = account.limits
    assert (limits.per_chat_per_s, limits.per_group_per_min, limits.overall_per_s) == (1, 20, 30)


def test_several_accounts_have_names(tmp_path: Path) -> None:
    telegram = settings_of(read(tmp_path, TWO), "telegram")
    assert telegram is not None
    assert {name: account.bot_id for name, account in telegram.accounts.items()} == {"home": 1001, "work": 2002}


def test_without_a_table_there_is_no_such_channel(tmp_path: Path) -> None:
    assert settings_of(read(tmp_path, ""), "telegram") is None


def test_its_secrets_are_known_whole_and_in_halves(tmp_path: Path) -> None:
    loaded = read(tmp_path, TWO + 'webhook_secret = "env:SECRET"\n')
    known = {one.get_secret_value() for one in loaded.secrets}
    assert known == {*ENVIRON.values(), "very-secret-half", "other-secret-half"}
    assert "secret-half" not in f"{loaded} {lines(loaded)}"


def test_variables_set_it_and_lay_over_it(tmp_path: Path) -> None:
    loaded = read(tmp_path, "", {
        **ENVIRON, "DRAGOMAN_CHANNELS__TELEGRAM__TOKEN": "env:TOKEN",
        "DRAGOMAN_CHANNELS__TELEGRAM__LIMITS__PER_CHAT_PER_S": "0.5",
        "DRAGOMAN_CHANNELS__TELEGRAM__LIMITS__OVERALL_PER_S": "0",
    })  # fmt: skip
    assert settings_of(loaded, "telegram") is not None
    limits = settings_of(loaded, "telegram").accounts["main"].limits
    assert (limits.per_chat_per_s, limits.overall_per_s) == (0.5, 0)
    told = refusal(tmp_path, ONE, {**ENVIRON, "DRAGOMAN_CHANNELS__TELEGRAM__LIMITS__PER_CHAT_PER_S": "fast"} | {
        "DRAGOMAN_CHANNELS__TELEGRAM__MODE": "push"
    })  # fmt: skip
    assert "$DRAGOMAN_CHANNELS__TELEGRAM__LIMITS__PER_CHAT_PER_S: channels.telegram.limits.per_chat_per_s" in told
    assert "it is not a number. Write it in digits" in told
    assert (
        '$DRAGOMAN_CHANNELS__TELEGRAM__MODE: channels.telegram.mode: it is none of the choices. Write one of "poll'
        in told
    )


@pytest.mark.parametrize(
    ("toml", "key", "words"),
    [
        ("[channels.telegram]\n", "channels.telegram.token", 'it is missing. Add token = "env:NAME"'),
        ('channels.telegram = "x"\n', "channels.telegram", "it is not a table"),
        ('[channels.telegram]\ntoken = "1:x"\n', "channels.telegram.token", '"env:NAME"'),
        ('[channels.telegram]\ntoken = "env:NONE"\n', "channels.telegram.token", "Set NONE before the start."),
        (ONE + 'tokn = "x"\n', "channels.telegram.tokn", 'Did you mean "token"?'),
        (ONE + 'mode = "push"\n', "channels.telegram.mode", 'Write one of "polling" or "webhook".'),
        (ONE + 'api_root = "example.org"\n', "channels.telegram.api_root", '"https://api.telegram.org"'),
        (ONE + "api_root = 'https://a\\b/api/'\n", "channels.telegram.api_root", "it is not an address"),
        (ONE + "limits = 5\n", "channels.telegram.limits", "it is not a table"),
        (ONE + "limits = { overall_per_s = true }\n", "channels.telegram.limits.overall_per_s", "without quotes"),
        (ONE + "limits = { per_chat_per_s = 1e-300 }\n", "channels.telegram.limits.per_chat_per_s", "0.001 or more"),
        (ONE + "limits = { per_group_per_min = 1e-3 }\n", "channels.telegram.limits.per_group_per_min", "0.06 or more"),
        (ONE + "limits = { overall_per_s = 1e-4 }\n", "channels.telegram.limits.overall_per_s", "or 0 for no limit"),
        (ONE + "limits = { overall = 3 }\n", "channels.telegram.limits.overall", 'Did you mean "overall_per_s"?'),
        (ONE + 'mode = "webhook"\n', "channels.telegram.webhook_secret", 'or mode = "polling"'),
        (ONE + TWO, "channels.telegram.accounts", "Move these keys into [channels.telegram.accounts.main]."),
        ("[channels.telegram.accounts]\n", "channels.telegram.accounts", "Write [channels.telegram.accounts.NAME]"),
        ("[channels.telegram]\naccounts = 5\n", "channels.telegram.accounts", "it is not a table"),
        (TWO.replace("OTHER", "TOKEN"), "channels.telegram.accounts", "home and work are the same bot (1001)"),
        (TWO.replace("home", "'a b'"), "channels.telegram.accounts", "'a b' cannot be an account's name"),
        (TWO + "colour = 1\n", "channels.telegram.accounts.work.colour", "unknown key"),
        (WEBHOOK, "channels.telegram.mode", 'Set http.public_url = "https://…"'),
        (f'{WEBHOOK}[http]\npublic_url = "http://a.org"\n', "channels.telegram.mode", "come through TLS"),
    ],
)
def test_bad_setting_is_refused_with_key_and_cure(tmp_path: Path, toml: str, key: str, words: str) -> None:
    told = refusal(tmp_path, toml)
    assert told.startswith(f"{tmp_path}/config.toml: {key}: ")
    assert words in told
    assert "problems" not in told, "one mistake is one problem"


@pytest.mark.parametrize("token", ["x", "1001", ":x", "1001:", "0:x", "a:x", "1001:x y", "1001:x\ny", "1001:x/../y"])
def test_malformed_token_is_refused_and_not_repeated(tmp_path: Path, token: str) -> None:
    told = refusal(tmp_path, ONE, {"TOKEN": token})
    assert "channels.telegram.token: it is not a bot's token. Take it from @BotFather" in told


@pytest.mark.parametrize("url", ["https://chat.example.org", "http://127.0.0.1:8470", "http://localhost"])
def test_webhooks_come_through_tls_or_from_this_machine(tmp_path: Path, url: str) -> None:
    loaded = read(tmp_path, f'{WEBHOOK}[http]\npublic_url = "{url}"\n[owners]\nann = ["telegram:1001"]\n')
    assert settings_of(loaded, "telegram") is not None
    assert settings_of(loaded, "telegram").accounts["main"].mode == "webhook"
    assert loaded.warnings == ()


def test_a_wrong_public_url_is_reported_once(tmp_path: Path) -> None:
    assert "public_url" in refusal(tmp_path, f'{WEBHOOK}[http]\npublic_url = "x"\n')
    assert "channels.telegram" not in refusal(tmp_path, f'{WEBHOOK}[http]\npublic_url = "x"\n')


def test_dangerous_or_useless_setting_is_warned_of(tmp_path: Path) -> None:
    toml = ONE + 'api_root = "http://bots.example.org"\nwebhook_secret = "env:SECRET"\n[owners]\nann = ["telegram:1"]\n'
    told = read(tmp_path, toml).warnings
    assert told == (
        "channels.telegram: the token of main goes to http://bots.example.org without TLS.",
        'channels.telegram: the webhook_secret of main has no effect with mode = "polling".',
    )


@pytest.mark.parametrize(
    ("toml", "warned"),
    [
        ("", True),
        ("[owners]\nann = []\n", True),
        ('[owners]\nann = ["slack:T0AA/U0BB"]\n', True),
        ('[owners]\nann = ["telegram:1001"]\n', False),
        ('[people]\nallow = ["telegram:2002"]\n', False),
        ('[people]\nallow = ["telegram:*"]\n', False),
        ('[chats]\nallow = ["telegram:-1003"]\n', False),
    ],
)
def test_a_bot_that_nobody_may_write_to_is_warned_of(tmp_path: Path, toml: str, warned: bool) -> None:
    told = [line for line in read(tmp_path, ONE + toml).warnings if line.startswith("channels.telegram: nobody")]
    assert len(told) == warned
    assert all("write to it: its refusal names your id" in line for line in told)
    assert not [line for line in read(tmp_path, toml).warnings if "nobody may write to the bot" in line]


def test_telegram_owner_without_the_page_is_enough(tmp_path: Path) -> None:
    toml = ONE + '[channels.web]\nenabled = false\n[owners]\nann = ["telegram:1001"]\n'
    loaded = read(tmp_path, toml)
    assert loaded.warnings == ()
    assert ("channel telegram/main", "bot 1001, polling at https://api.telegram.org") in lines(loaded)
