"""Errors for an owner's mistakes: the key, the reason, and what to write instead.

Checked through the function that the start calls, with the real tools. `tests/fault/test_start.py` also starts a
daemon for each kind of mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from config.load import load
from config.plugins import tool_specs
from gateway.errors import ConfigError


def refusal(folder: Path, toml: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the error text that the start prints. Its exit code follows from the kind of error."""
    file = folder / "config.toml"
    file.write_text(f'[log]\nlevel = "debug"\n{toml}\n')
    with pytest.raises(ConfigError) as caught:
        load(file, folder / "state", environ or {}, tool_specs())
    assert list(folder.iterdir()) == [file], "nothing is made before the configuration is good"
    return f"Error: {caught.value.message}\n{caught.value.cure}"


@pytest.mark.parametrize(
    ("toml", "wanted"),
    [
        ("[chat]\n", ["chat", "chats"]),
        ("[model]\nnaem = 'x'\n", ["naem", "name"]),
        ("[tools.shell]\ntimeout = 'soon'\n", ["timeout", '"90s"']),
        ("[tools.shell]\nsandbox = 'none'\n", ["sandbox", "basic"]),
        ("[tools.shell]\nnetwork = 'open'\n", ["network", "public"]),
        ("[tools.shell]\nsandbox = 'full'\nnetwork = 'host'\n", ["network", '"full"', '"public"']),
        ("[tools.shell]\nsandbox = 'off'\nnetwork = 'none'\n", ["network", "without a sandbox", '"basic"']),
        ("[tools.browser]\nnetwork = 'none'\n", ["network", "browser", "Remove it"]),
        ("[tools.sessions_list]\nnetwork = 'none'\n", ["network", "sessions_list", "Remove it"]),
        ("[tools.shel]\n", ["shel", "shell"]),
        ("[tools.shell]\napproval = 7\n", ["tools.shell.approval"]),
        ("[owners]\nann = 'telegram:1'\n", ["ann", "["]),
        ("[owners]\nann = ['telegram:@ann']\n", ["@ann"]),
        ("[model]\nname = 'openai:x'\napi_key = 'env:NO_SUCH_VARIABLE'\n", ["NO_SUCH_VARIABLE", "api_key"]),
        ("[model]\nname = 'openai:x'\napi_key = 'file:/no/such/file'\n", ["/no/such/file", "api_key"]),
        ('[model]\nname = "openai:x"\napi_key = "file:/a\\u0000b"\n', ["model.api_key", "cannot be seen"]),
        ("[model]\nname = 'openai:x'\nbase_url = 'https://xn--a/v1'\n", ["model.base_url", "no such host"]),
        ("[model]\nname = 'openai:x'\napi_key = 'sk-verysecretverysecret'\n", ["api_key", "env:"]),
        ("[store]\nurl = 'sqlite:dragoman.db'\n", ["url", "absolute"]),
        ("[store]\nurl = 'postgres://x'\n", ["url", "sqlite"]),
        ("[channels.discord]\n", ["discord", "module"]),
        ("[people]\nallow = 'everyone'\n", ["allow"]),
        ("[log]\n", ["TOML", "line"]),
        ("= 3\n", ["TOML", "line"]),
        ("[sessions]\nx = \x00\n", ["TOML"]),
    ],
)
def test_a_mistake_in_the_file(tmp_path: Path, toml: str, wanted: list[str]) -> None:
    told = refusal(tmp_path, toml)
    assert [word for word in wanted if word not in told] == []
    assert str(tmp_path / "config.toml") in told
    assert "sk-verysecret" not in told


KEY = "api_key = 'env:HOME'\n"


@pytest.mark.parametrize(
    ("toml", "key", "cure"),
    [
        ("[model]\nname = 'openia:gpt'\n", "model.name: there is no provider 'openia'", 'Did you mean "openai:…"?'),
        ("[model]\nname = 'openia:gpt'\n", "model.name", "Known are: alibaba, anthropic,"),
        ("[model]\nname = 'claude:x'\n", "model.name", 'Did you mean "anthropic:…"?'),
        (
            "[model]\nname = 'llama3:8b'\n",
            "model.name: there is no provider 'llama3'",
            '"openai:llama3:8b"',
        ),
        ("[model]\nname = 'openai'\n", "model.name: 'openai' is a provider without a model", '"openai:<model>"'),
        ("[model]\nname = 'OpenAI:x'\n", "model.name", 'Write it in lower case: "openai:x"'),
        (f"[model]\nname='openai:x'\n{KEY}[model.fallback]\n", "model.fallback", "Write [[model.fallback]], in double"),
        ("[model]\nfallback = 'openai:x'\n", "model.fallback: it is a list of tables", "Write [[model.fallback]]"),
        ("[model]\nfallback = ['openai:x']\n", "model.fallback: it is a list of tables", "Write [[model.fallback]]"),
        ("[tools.mine]\nmodule = 'mine.py'\n", "tools.mine.module: mine.py cannot be imported", "no .py"),
        ("[limits]\ntime_per_turn = true\n", "limits.time_per_turn: true is not a duration", '"90s"'),
        ("[[model]]\nname = 'openai:x'\n", "model", "Write [model], in single brackets"),
        ("[[http]]\n", "http", "Write [http], in single brackets"),
        ("[tools.shell]\napproval = true\n", "tools.shell.approval", 'Write one of "ask", "allow", "deny"'),
        ("[tools.shell]\nport = 1\n", "tools.shell.port", "port is a key of [http]: write it there"),
        ("[model]\nlevel = 'info'\n", "model.level", "level is a key of [log]: write it there"),
        ("[http]\nbase_url = 'x'\n", "http.base_url", "base_url is a key of [model] and [[model.fallback]]"),
        ("[http]\nper_chat_per_s = 1\n", "http.per_chat_per_s", "[channels.telegram.limits]: write it there"),
        ("[people]\nowners = []\n", "people.owners", "[people] knows: allow"),
        ("[people]\nallow = ['*']\n", "people.allow[0]", 'Write "telegram:*" for everyone'),
        ("[people]\nallow = 'telegram:1'\n", "people.allow: it is not a list", 'Write a list: ["telegram:1"]'),
        ("[agents.a]\n", "agents.a.description: it is missing", "Add description = …"),
        ("[channels.telegram]\n", "channels.telegram.token: it is missing", 'Add token = "env:NAME", and set that'),
        ("[channels.telegram]\nbot_token = 'x'\n", "channels.telegram.bot_token", 'Did you mean "token"?'),
        ("[channels.slack]\ntoken = 'x'\n", "channels.slack.token: unknown key", 'Did you mean "bot_token"?'),
        ("[model]\nname = 'openai:x'\napi_key = '$KEY'\n", "model.api_key: variables are not", 'Write "env:NAME"'),
        ("[model]\nbase_url = 'localhost:80/v1'\n", "model.base_url", 'Write it as "https://localhost:80/v1"'),
        ("[model]\nbase_url = 'http://a.b/v1/chat/completions'\n", "model.base_url", 'Write "http://a.b/v1"'),
        ("[model.prices]\ninput = 1\n", "model.prices.input", '[model.prices."openai:gpt-5-mini"]'),
        ("[model.prices.gpt-5]\n", "model.prices.gpt-5", '[model.prices."openai:gpt-5"]'),
        ("[store]\nurl = '/var/x.db'\n", "store.url: no store is known", 'as in "sqlite:///var/x.db"'),
        ("[tools.shell]\nenabled = false\n", "tools.shell.enabled", 'Write permission = "blocked" to switch'),
        ("[tools]\nshell = false\n", "tools.shell: it is not a table", "Write [tools.shell], and below it key = value"),
        ("[[owners]]\nname = 'ann'\n", "owners: there can be one such table only", "Write [owners]"),
        ("[telegram]\ntoken = 'x'\n", "telegram: unknown table", "Write [channels.telegram]."),
        ("[slack]\n", "slack: unknown table", "Write [channels.slack]."),
        ("[shell]\n", "shell: unknown table", "Write [tools.shell]."),
        ("[http]\napikey = 'x'\n", "http.apikey: unknown key", 'Did you mean "api_key"? api_key is a key of [model]'),
        (f"[store]\nurl = 'sqlite:///{'x' * 248}'\n", "store.url", "Choose a shorter path"),
        (f"[store]\nurl = 'sqlite:///{'x/' * 252}x'\n", "store.url", "Choose a shorter path"),
    ],
)
def test_mistake_names_key_and_cure(tmp_path: Path, toml: str, key: str, cure: str) -> None:
    told = refusal(tmp_path, toml, {"HOME": "x"})
    assert f"{tmp_path / 'config.toml'}: {key}" in told
    assert cure in told


@pytest.mark.parametrize(
    ("toml", "key", "cure"),
    [
        ("port = 8471\n", "port: unknown key, in no table", "port is a key of [http]: write it there"),
        ("allow = ['telegram:1']\n", "allow: unknown key, in no table", "[chats] and [people]: write it there"),
        ("token = 'env:HOME'\n", "token: unknown key", "token is a key of [channels.telegram]: write it there"),
        ("owners = ['telegram:1']\n", "owners: it is not a table", "Write [owners], and below it key = value"),
        ("name = 'openai:x'\n", "name: unknown key", "name is a key of [model] and [[model.fallback]]"),
        ("[http]\nport = 08470\n", "line 2, column 9: the value of port begins with 0", "Write the number without it"),
        ("[http]\nhost = 127.0.0.1\n", "line 2, column 13: the value of host has no quotes", 'host = "…"'),
        ("[log]\nlevel = info\n", "line 2, column 12: the value of level has no quotes", 'level = "…"'),
        ("[limits]\ntime_per_turn = 15m # x\n", "the value of time_per_turn has no quotes", "Put it in quotes"),
        ('[log]\nlevel = "info\n', "line 2, column 14: a text has no closing quote", "Close it"),
        ('[log]\n\nlevel = """info\n[http]\n', "line 3, column 16: a text has no closing quote", "Close it"),
        ("[log]\nlevel = “info”\n", "line 2, column 9: the line has typographic quotes", "straight quotes"),
        ("[log]\nlevel =\u00a0'info'\n", "invisible character (U+00A0)", "Delete it"),
        ("[log]\nlevel = 'a\x07'\n", "invisible character (U+0007)", "Delete it"),
        (
            "[log]\n[http]\n[log]\n",
            "line 3, column 5: the table [log] is there twice, first in line 1",
            "first one",
        ),
        ("[http]\nport = 1\nport = 2\n", "line 3, column 9: port has a value already", "Remove one"),
        ("[http]\nport: 1\n", "line 2, column 5: there is a colon where TOML has =", "key = value"),
        ("http:\n  port: 1\n", "line 1, column 5: there is a colon", "tables as [name]"),
        ('{"http": {"port": 1}}\n', "line 1, column 1: this is JSON", "Write TOML"),
        ("[http\nport = 1\n", "line 1, column 6: the line is not the name of a table", "Write [name]"),
        ("[model.prices.openai:x]\n", "line 1, column 21: a table's name has a character", "in quotes"),
        ("[model]\nname =\n", "line 2, column 7: name has no value", "put # before name"),
        ("[channels.web]\nenabled = True\n", "line 2, column 11: the value of enabled", "lower case"),
        ('[model]\ninstructions = "C:\\Users"\n', "a backslash in double quotes", "single quotes"),
        ("[owners]\nann = [telegram:1]\n", "line 2, column 8: a list is not closed, or lacks", '["one", "two"]'),
        ("[owners]\nann = ['a' 'b']\n", "a list is not closed, or lacks a comma", '["one", "two"]'),
        ("[owners]\nann = ['a'\n[http]\n", "a list is not closed", '["one", "two"]'),
        ("[tools.shell]\napproval = { main = 'ask',\n dm = 'deny' }\n", "braces is not closed in its line", "one line"),
        ("[log]\nlevel = 'info' 'x'\n", "there is more behind the value of level", "one value a line"),
        ("[log]\nlevel\n", "line 2, column 6: the line is neither key = value nor [table]", "put # before it"),
        ("[log]\nlevel = sk-verysecret\n", "the value of level has no quotes", "Put it in quotes"),
    ],
)
def test_syntax_error_names_place_and_cure(tmp_path: Path, toml: str, key: str, cure: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(toml)
    with pytest.raises(ConfigError) as caught:
        load(file, tmp_path / "state", {}, tool_specs())
    assert key in caught.value.message
    assert cure in caught.value.cure
    assert str(file) in caught.value.message
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("PORT", "$DRAGOMAN_HTTP__PORT"),
        ("HTTP_PORT", "$DRAGOMAN_HTTP__PORT"),
        ("HTTP", "$DRAGOMAN_HTTP__KEY"),
        ("OWNERS", "$DRAGOMAN_OWNERS__NAME"),
        ("OWNERS_ANN", "$DRAGOMAN_OWNERS__ANN"),
        ("MODEL_API_KEY", "$DRAGOMAN_MODEL__API_KEY"),
        ("LEVEL", "$DRAGOMAN_LOG__LEVEL"),
        ("ALLOW", "$DRAGOMAN_CHATS__ALLOW or $DRAGOMAN_PEOPLE__ALLOW"),
        ("TELEGRAM_TOKEN", "$DRAGOMAN_CHANNELS__TELEGRAM__TOKEN"),
        ("CHANNELS_TELEGRAM_TOKEN", "$DRAGOMAN_CHANNELS__TELEGRAM__TOKEN"),
        ("TOOLS_SHELL_APPROVAL", "$DRAGOMAN_TOOLS__SHELL__APPROVAL"),
        ("SHELL_APPROVAL", "$DRAGOMAN_TOOLS__SHELL__APPROVAL"),
    ],
)
def test_variable_without_effect_names_the_right_one(tmp_path: Path, name: str, meant: str) -> None:
    file = tmp_path / "config.toml"
    file.touch()
    loaded = load(file, tmp_path, {f"DRAGOMAN_{name}": '{"ann": 1}'}, tool_specs())
    assert loaded.warnings == (f"$DRAGOMAN_{name} sets nothing; {meant} would.",)


@pytest.mark.parametrize("name", ["SERVICE_HOST", "PORT_8470_TCP", "SHELL", "CONFIG_MAP", "MY_TOKEN"])
def test_other_variables_are_left_alone(tmp_path: Path, name: str) -> None:
    file = tmp_path / "config.toml"
    file.touch()
    assert load(file, tmp_path, {f"DRAGOMAN_{name}": "x"}, tool_specs()).warnings == ()


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("DRAGOMAN_TELEGRAM__TOKEN", "env:X", ["unknown table 'telegram'", "Set $DRAGOMAN_CHANNELS__TELEGRAM__TOKEN"]),
        ("DRAGOMAN_HTTP__PORT", "eighty", ["DRAGOMAN_HTTP__PORT", "port"]),
        ("DRAGOMAN_HTPP__PORT", "80", ["DRAGOMAN_HTPP__PORT", "http"]),
        ("DRAGOMAN_HTTP__PORT", "70000", ["DRAGOMAN_HTTP__PORT", "65535"]),
    ],
)
def test_a_mistake_in_a_variable(tmp_path: Path, name: str, value: str, wanted: list[str]) -> None:
    told = refusal(tmp_path, "", {name: value})
    assert [word for word in wanted if word not in told] == []


def test_two_variables_that_set_the_same_key(tmp_path: Path) -> None:
    told = refusal(tmp_path, "", {"DRAGOMAN_HTTP__PORT": "8470", "DRAGOMAN_http__Port": "8471"})
    assert told == "Error: $DRAGOMAN_HTTP__PORT and $DRAGOMAN_http__Port set the same key.\nUnset one of them."


def test_a_mark_at_the_beginning_is_no_mistake(tmp_path: Path) -> None:
    """As Windows' editors make it."""
    file = tmp_path / "config.toml"
    file.write_bytes(b"\xef\xbb\xbf[http]\nport = 1234\n")
    assert load(file, tmp_path, {}, tool_specs()).settings.http.port == 1234


@pytest.mark.parametrize(
    ("toml", "problem"),
    [
        ('[model]\nname = "openai:gpt"\napi_key = "env:NOPE"', "model.api_key: the environment variable NOPE"),
        ('[tools.mine]\nmodule = "no.such"', "tools.mine.module: no.such cannot be imported"),
        ("[http]\nport = []", "http.port: it is not a whole number"),
    ],
)
def test_one_mistake_is_reported_once(tmp_path: Path, toml: str, problem: str) -> None:
    told = refusal(tmp_path, toml)
    assert problem in told
    assert "problems" not in told


@pytest.mark.parametrize(("url", "warned"), [("http://localhost:11434", True), ("http://localhost:11434/v1", False)])
def test_base_url_without_a_path_is_a_warning(tmp_path: Path, url: str, warned: bool) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"[model]\nname = 'openai:x'\nbase_url = '{url}'\n")
    warnings = load(file, tmp_path, {}, tool_specs()).warnings
    assert warnings == ((f"model: base_url {url} has no path; most servers answer at {url}/v1.",) if warned else ())
