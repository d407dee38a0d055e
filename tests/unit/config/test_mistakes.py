"""What an owner reads who made a mistake: the key, what is wrong with it, and what to write instead.

Judged by the function that the start calls, with the real tools. Of each place that can be wrong
`tests/fault/test_start.py` starts a daemon as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from config.load import load
from config.plugins import tool_specs
from gateway.errors import ConfigError


def refusal(folder: Path, toml: str, environ: Mapping[str, str] | None = None) -> str:
    """What the start prints of it. Its exit code follows from the kind of error."""
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


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
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
def test_one_mistake_is_told_once(tmp_path: Path, toml: str, problem: str) -> None:
    told = refusal(tmp_path, toml)
    assert problem in told
    assert "problems" not in told
