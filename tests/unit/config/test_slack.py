"""`[channels.slack]` in whole configurations: one workspace or several, their secrets, requirements of HTTP mode."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from config.describe import lines
from config.load import Loaded, load
from config.manifest import app_manifest
from gateway.cli import main
from gateway.errors import ConfigError
from tests.support.settings import settings_of

ENVIRON = {
    "BOT": "xoxb-1-very-secret", "APP": "xapp-1-very-secret",
    "BOT2": "xoxb-2-very-secret", "APP2": "xapp-2-very-secret",
    "SIGNING": "very-secret-signing",
}  # fmt: skip
ONE = '[channels.slack]\nbot_token = "env:BOT"\napp_token = "env:APP"\n'
HTTP = '[channels.slack]\nbot_token = "env:BOT"\nmode = "http"\nsigning_secret = "env:SIGNING"\n'
PUBLIC = '[http]\npublic_url = "https://bot.example.org"\n'
TWO = (
    '[channels.slack.accounts.home]\nbot_token = "env:BOT"\napp_token = "env:APP"\n'
    '[channels.slack.accounts.work]\nbot_token = "env:BOT2"\napp_token = "env:APP2"\n'
)


def read(tmp_path: Path, toml: str, environ: Mapping[str, str] = ENVIRON) -> Loaded:
    file = tmp_path / "config.toml"
    file.write_text(toml)
    return load(file, tmp_path / "state", environ, {})


def refusal(tmp_path: Path, toml: str, environ: Mapping[str, str] = ENVIRON) -> str:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, toml, environ)
    assert "very-secret" not in str(caught.value)
    return str(caught.value)


def test_a_plain_table_is_the_account_main(tmp_path: Path) -> None:
    slack = settings_of(read(tmp_path, ONE + 'api_root = "http://127.0.0.1:8081/api"\n'), "slack")
    assert slack is not None
    assert list(slack.accounts) == ["main"]
    account = slack.accounts["main"]
    assert (account.mode, account.api_root) == ("socket", "http://127.0.0.1:8081/api/")


def test_several_workspaces_have_names(tmp_path: Path) -> None:
    loaded = read(tmp_path, TWO)
    assert settings_of(loaded, "slack") is not None
    assert list(settings_of(loaded, "slack").accounts) == ["home", "work"]
    assert ("channel slack/home", "socket at https://slack.com/api/") in lines(loaded)


def test_without_a_table_there_is_no_such_channel(tmp_path: Path) -> None:
    assert settings_of(read(tmp_path, ""), "slack") is None


def test_its_secrets_are_known_and_never_shown(tmp_path: Path) -> None:
    loaded = read(tmp_path, TWO + 'signing_secret = "env:SIGNING"\n')
    assert {one.get_secret_value() for one in loaded.secrets} == set(ENVIRON.values())
    assert "very-secret" not in f"{loaded} {lines(loaded)}"


def test_variables_set_it_and_lay_over_it(tmp_path: Path) -> None:
    loaded = read(tmp_path, "", {
        **ENVIRON, "DRAGOMAN_CHANNELS__SLACK__BOT_TOKEN": "env:BOT", "DRAGOMAN_CHANNELS__SLACK__APP_TOKEN": "env:APP",
        "DRAGOMAN_CHANNELS__SLACK__LIMITS__PER_CHANNEL_PER_S": "0.5",
    })  # fmt: skip
    assert settings_of(loaded, "slack") is not None
    assert settings_of(loaded, "slack").accounts["main"].limits.per_channel_per_s == 0.5


@pytest.mark.parametrize(
    ("toml", "key", "words"),
    [
        ("[channels.slack]\n", "channels.slack.bot_token", 'it is missing. Add bot_token = "env:NAME"'),
        ('channels.slack = "x"\n', "channels.slack", "it is not a table"),
        ('[channels.slack]\nbot_token = "xoxb-1"\n', "channels.slack.bot_token", '"env:NAME"'),
        ('[channels.slack]\nbot_token = "env:BOT"\n', "channels.slack.app_token", "connections:write"),
        (ONE.replace("env:APP", "env:BOT"), "channels.slack.app_token", "it is a bot's token, not an app-level token"),
        (ONE.replace("env:BOT", "env:APP"), "channels.slack.bot_token", "it is an app-level token, not a bot's token"),
        (ONE + 'bot_tokn = "x"\n', "channels.slack.bot_tokn", 'Did you mean "bot_token"?'),
        (ONE + 'mode = "webhook"\n', "channels.slack.mode", 'Write one of "socket" or "http".'),
        (ONE + 'mode = "http"\n', "channels.slack.signing_secret", 'or mode = "socket"'),
        (ONE + 'api_root = "slack.com"\n', "channels.slack.api_root", '"https://slack.com/api/"'),
        (ONE + "api_root = 'https://a\\b/api/'\n", "channels.slack.api_root", "it is not an address"),
        (ONE + "limits = { per_channel_per_s = -1 }\n", "channels.slack.limits.per_channel_per_s", "Write 0 or more"),
        (ONE + "limits = { per_channel_per_s = 1e-12 }\n", "channels.slack.limits.per_channel_per_s", "0.001 or more"),
        (ONE + "limits = { overall_per_min = 0.05 }\n", "channels.slack.limits.overall_per_min", "0.06 or more"),
        (ONE + TWO, "channels.slack.accounts", "Move these keys into [channels.slack.accounts.main]."),
        ("[channels.slack.accounts]\n", "channels.slack.accounts", "Write [channels.slack.accounts.NAME]"),
        (TWO.replace("BOT2", "BOT"), "channels.slack.accounts", "home and work have the same bot_token"),
        (TWO.replace("APP2", "APP"), "channels.slack.accounts", "Make an app of its own for each workspace"),
        (TWO + "colour = 1\n", "channels.slack.accounts.work.colour", "unknown key"),
        (HTTP, "channels.slack.mode", 'Set http.public_url = "https://…"'),
        (f'{HTTP}[http]\npublic_url = "http://a.org"\n', "channels.slack.mode", "Slack sends through TLS"),
        ("[channels.slak]\n", "channels.slak", 'Did you mean "slack"?'),
    ],
)
def test_bad_setting_is_refused_with_key_and_cure(tmp_path: Path, toml: str, key: str, words: str) -> None:
    told = refusal(tmp_path, toml)
    assert told.startswith(f"{tmp_path}/config.toml: {key}: ")
    assert words in told
    assert "problems" not in told, "one mistake is one problem"


def test_http_mode_needs_a_public_address(tmp_path: Path) -> None:
    loaded = read(tmp_path, HTTP + PUBLIC)
    assert settings_of(loaded, "slack") is not None
    assert loaded.warnings == ()


def test_dangerous_or_useless_setting_is_warned_of(tmp_path: Path) -> None:
    toml = ONE + 'api_root = "http://slack.example.org/api"\nsigning_secret = "env:SIGNING"\n'
    assert read(tmp_path, toml).warnings == (
        "channels.slack: the tokens of main go to http://slack.example.org/api/ without TLS.",
        'channels.slack: the signing_secret of main has no effect with mode = "socket".',
    )
    assert read(tmp_path, HTTP + 'app_token = "env:APP"\n' + PUBLIC).warnings == (
        'channels.slack: the app_token of main has no effect with mode = "http".',
    )


def test_slack_owner_without_the_page_is_enough(tmp_path: Path) -> None:
    toml = (
        ONE
        + '[channels.web]\nenabled = false\n[owners]\nann = ["slack:T0AA/U0BB"]\n[chats]\nallow = ["slack:T0AA/C0CC"]\n'
    )
    assert read(tmp_path, toml).warnings == ()


# --- the manifest ---------------------------------------------------------------------------


def made(tmp_path: Path, toml: str, account: str | None = None) -> dict[str, object]:
    file = tmp_path / "config.toml"
    file.write_text(toml)
    return dict(app_manifest("slack", file, {}, account))


def test_the_manifest_needs_no_tokens_and_no_table(tmp_path: Path) -> None:
    assert json.dumps(made(tmp_path, ONE)) == json.dumps(made(tmp_path, "")), "the secrets are not set here"
    assert '"socket_mode_enabled": true' in json.dumps(made(tmp_path, ""))


def test_the_manifest_is_that_of_the_account(tmp_path: Path) -> None:
    toml = TWO + 'mode = "http"\n' + PUBLIC
    assert "https://bot.example.org/slack/work" in json.dumps(made(tmp_path, toml, "work"))
    assert '"socket_mode_enabled": true' in json.dumps(made(tmp_path, toml, "home"))
    assert "https://bot.example.org/slack/main" in json.dumps(made(tmp_path, HTTP + PUBLIC, "main"))


@pytest.mark.parametrize(
    ("toml", "account", "told"),
    [
        (TWO, None, "There are several accounts: home, work. Name one with --account NAME."),
        (TWO, "wrok", "There is no Slack account 'wrok'. Did you mean \"work\"?"),
        (ONE, "work", "There is no Slack account 'work'. Known are: main."),
        (ONE + 'mode = "https"\n', None, 'Write one of "socket" or "http".'),
        (ONE + "mode = 5\n", None, 'Write one of "socket" or "http".'),
        (HTTP + '[http]\npublic_url = "http://a.org"\n', None, "platforms send to https:// addresses only."),
        ("channels = 5\n", None, "channels: it is not a table"),
        ('[channels.slack]\naccounts = "x"\n', None, "channels.slack.accounts: it is not a table"),
        ("http = 5\n", None, "http: it is not a table"),
    ],
)
def test_obstacle_to_a_manifest_is_named(tmp_path: Path, toml: str, account: str | None, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        made(tmp_path, toml, account)
    assert told in str(caught.value)


def test_the_command_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.toml"
    file.write_text(TWO)
    assert main(["--config", str(file), "slack-manifest", "--account", "work"]) == 0
    assert json.loads(capsys.readouterr().out) == app_manifest("slack", file, {}, "work")
    assert main(["--config", str(file), "slack-manifest"]) == 1
    assert "Name one with --account NAME." in capsys.readouterr().err
