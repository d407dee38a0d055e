"""URLs with a password, `proxy` of a channel and of a model and `store.url`: never in a text for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from config.describe import lines
from config.load import Loaded, load
from gateway.app.channel_loader import redactor_of
from gateway.errors import ConfigError
from tests.support.settings import settings_of

ENVIRON = {"TOKEN": "1:very-secret", "KEY": "sk-1", "PROXY": "http://ann:very%20secret-word@proxy.example.org:3128"}
TELEGRAM = '[channels.telegram]\ntoken = "env:TOKEN"\n'
MODEL = '[model]\nname = "openai:m"\napi_key = "env:KEY"\n'


def read(tmp_path: Path, toml: str, environ: Mapping[str, str] = ENVIRON) -> Loaded:
    file = tmp_path / "config.toml"
    file.write_text(toml)
    return load(file, tmp_path / "state", environ, {})


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("env:PROXY", ENVIRON["PROXY"]),
        (ENVIRON["PROXY"], ENVIRON["PROXY"]),
        ("http://127.0.0.1:3128", "http://127.0.0.1:3128"),
    ],
)
def test_proxy_is_address_or_secret(tmp_path: Path, written: str, url: str) -> None:
    loaded = read(tmp_path, f'{TELEGRAM}proxy = "{written}"\n{MODEL}proxy = "{written}"\n')
    telegram, model = settings_of(loaded, "telegram"), loaded.settings.model
    assert telegram is not None
    proxies = [telegram.accounts["main"].proxy, model.proxy]
    assert [proxy and proxy.way.url for proxy in proxies] == [url, url]
    told = f"{loaded.settings!r} {lines(loaded)} {loaded.warnings}"
    assert "secret-word" not in told


def test_password_of_proxy_is_redacted(tmp_path: Path) -> None:
    loaded = read(tmp_path, f'{MODEL}proxy = "{ENVIRON["PROXY"]}"\n')
    said = redactor_of(loaded).text(f"to {ENVIRON['PROXY']}, with ann:very secret-word and very%20secret-word")
    assert "secret-word" not in said


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("socks5://ann:very-secret@127.0.0.1:1080", "it is not the http:// address of an HTTP proxy"),
        ("https://ann:very-secret@127.0.0.1:3128", "it is not the http:// address of an HTTP proxy"),
        ("http://ann:very-secret@proxy:0", "there is no such host or port"),
        ("http://ann:very-secret@proxy/path", "there is more in it than a user, a host and a port"),
        ("http://ann:very/secret@proxy:3128", "it is not an address"),
        ("env:NOT_SET", "the environment variable NOT_SET is not set"),
    ],
)
def test_no_proxy_is_refused_with_its_cure(tmp_path: Path, written: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, f'{TELEGRAM}proxy = "{written}"\n')
    said = str(caught.value)
    assert f"channels.telegram.proxy: {told}" in said
    assert "very" not in said


@pytest.mark.parametrize(
    ("url", "password", "shown"),
    [
        (
            "redis://ann:very%20secret-word@redis.example.org:6379/0?prefix=mine",
            "very secret-word",
            "redis://redis.example.org:6379/0?prefix=mine",
        ),
        (
            "redis+sentinel://one,two/name?db=2&sentinel_user=ann&sentinel_password=very%20secret-word",
            "very secret-word",
            "redis+sentinel://one,two/name?db=2",
        ),
        (
            "redis+sentinel://ann:other@one,two/name?sentinel_password=very@secret-word",
            "very@secret-word",
            "redis+sentinel://one,two/name",
        ),
        *(
            (
                f"redis+sentinel://one:1,two/name?db=2&{name}=very%20secret-word&ca=a.pem",
                "very secret-word",
                "redis+sentinel://one:1,two/name?db=2&ca=a.pem",
            )
            for name in ("sentinel%5Fpassword", "sentinel_pasword")
        ),
    ],
)
def test_password_of_the_store_is_told_to_nobody(tmp_path: Path, url: str, password: str, shown: str) -> None:
    loaded = read(tmp_path, f'[store]\nurl = "{url}"\n')
    assert dict(lines(loaded))["store"] == shown
    said = redactor_of(loaded).text(f"cannot open {url}: no user ann:{password}")
    assert "secret-word" not in said
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, f'[store]\nurl = "{url.replace("://", "+other://")}"\n')
    assert f"no store is known at '{shown.replace('://', '+other://')}" in str(caught.value)
    assert "secret-word" not in str(caught.value)
