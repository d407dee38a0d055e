"""Accounts of a channel: their tables, and URLs that may receive messages."""

from __future__ import annotations

import pytest

from channels._shared.settings import is_safe_to_send_to
from config.accounts import account_tables
from config.basics import is_in_clear
from config.reading import TableReader

AT = ("channels", "somewhere")


def test_one_table_is_one_account_and_several_have_names() -> None:
    reader = TableReader(file="config.toml", variables={}, environ={})
    assert account_tables({"token": 1}, AT, reader, needs="a token") == {"main": (AT, {"token": 1})}
    both = {"accounts": {"home": {"token": 1}, "work": {}}}
    assert account_tables(both, AT, reader, needs="a token") == {
        "home": ((*AT, "accounts", "home"), {"token": 1}),
        "work": ((*AT, "accounts", "work"), {}),
    }
    assert reader.problems == []


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (5, "it is not a table"),
        ({"accounts": 5}, "it is not a table"),
        ({"accounts": {}}, "Write [channels.somewhere.accounts.NAME] with a token"),
        ({"accounts": {"home": {}}, "token": 1}, "Move these keys into [channels.somewhere.accounts.main]"),
    ],
)
def test_malformed_account_table_is_one_problem(raw: object, told: str) -> None:
    reader = TableReader(file="config.toml", variables={}, environ={})
    assert account_tables(raw, AT, reader, needs="a token") == {}
    (problem,) = reader.problems
    assert told in f"{problem.what}. {problem.cure}"
    assert problem.key.startswith("channels.somewhere")


@pytest.mark.parametrize(
    ("url", "safe", "in_clear"),
    [
        ("https://a.example", True, False),
        ("http://a.example", False, True),
        ("HTTP://a.example", False, True),
        ("http://127.0.0.1:8081", True, False),
        ("http://localhost", True, False),
        ("", False, False),
    ],
)
def test_address_off_this_machine_needs_encryption(url: str, safe: bool, in_clear: bool) -> None:
    assert is_safe_to_send_to(url) is safe
    assert is_in_clear(url) is in_clear
