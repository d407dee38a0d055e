"""Refusals and error texts of settings for channels with accounts."""

from __future__ import annotations

import pytest
from pydantic_core import PydanticCustomError

from channels._shared.settings import check_account_name, limit, server

OFFICIAL = "https://api.example.org"


def refusal(text: str) -> str:
    with pytest.raises(PydanticCustomError) as caught:
        server(text, OFFICIAL)
    assert caught.value.context is not None
    assert caught.value.context["cure"] == f'Write, for instance, "{OFFICIAL}"'
    return caught.value.message()


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("https://a.example/api/", "a.example", None),
        ("http://[::1]:8081", "::1", 8081),
        ("HTTPS://A.example", "a.example", None),
        ("http://my_api:8081", "my_api", 8081),
        ("https://bücher.example", "bücher.example", None),
        ("https://xn--zca.example", "xn--zca.example", None),
    ],
)
def test_a_server_is_an_address_with_a_path(text: str, host: str, port: int | None) -> None:
    parts = server(text, OFFICIAL)
    assert (parts.hostname, parts.port) == (host, port)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("https://[", "it is not an address"),
        ("https://a.example:99999", "it is not an address"),
        ("", "it is not an http:// or https:// address"),
        ("a.example", "it is not an http:// or https:// address"),
        ("ftp://a.example", "it is not an http:// or https:// address"),
        ("https://", "it is not an http:// or https:// address"),
        ("https://a b", "it is not an http:// or https:// address"),
        ("https://...", "there is no such host or port"),
        ("https://a..example", "there is no such host or port"),
        (r"https://a\b/api/", "it is not an address"),
        ("https://xn--a/api/", "there is no such host or port"),
        ("https://a\u00adb/api/", "it is not an address"),
        ("https://a|b/api/", "there is no such host or port"),
        ("https://[::1]x/api/", "it is not an address"),
        ("https://a.example:0", "there is no such host or port"),
        ("https://ann:secret@a.example", "there is more in it than a server and a path"),
        ("https://a.example?x", "there is more in it than a server and a path"),
        ("https://a.example#x", "there is more in it than a server and a path"),
    ],
)
def test_malformed_server_address_is_refused(text: str, why: str) -> None:
    assert refusal(text) == why


def test_a_name_can_stand_in_a_path() -> None:
    for name in ("main", "a-b_C9", "x" * 32):
        check_account_name(name)
    for name in ("", "a b", "a/b", "ä", "x" * 33, "main\n"):
        with pytest.raises(PydanticCustomError, match="cannot be an account's name"):
            check_account_name(name)


@pytest.mark.parametrize("value", [0, 0.06, 0.5, 60_000])
def test_a_limit_is_none_or_lets_something_out(value: float) -> None:
    assert limit(60)(value) == value


@pytest.mark.parametrize("value", [1e-300, 1e-12, 0.0599])
def test_a_limit_that_hardly_lets_anything_out_is_refused(value: float) -> None:
    """Of 1e-12 a message waits for 30,000 years, and of 1e-300 its time cannot be said."""
    with pytest.raises(PydanticCustomError) as caught:
        limit(60)(value)
    assert caught.value.context is not None
    assert caught.value.context["cure"] == "Write 0.06 or more, or 0 for no limit"
