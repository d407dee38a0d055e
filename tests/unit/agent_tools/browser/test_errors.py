"""Errors of browser calls."""

from __future__ import annotations

import pytest

from agent_tools.browser.errors import cure_of


@pytest.mark.parametrize(
    ("host", "cure"),
    [
        ("10.0.0.5:8080", 'hosts = ["10.0.0.5:8080"]'),
        ("127.0.0.1:80", 'hosts = ["127.0.0.1:80"]'),
        ("[fd00::5]:443", 'hosts = ["[fd00::5]:443"]'),
        ("wiki.lan:80", 'hosts = ["wiki.lan:80"]'),
        ("169.254.169.254:80", "Nobody can allow"),
        ("[fe80::1]:80", "Nobody can allow"),
        ("0.0.0.0:80", "Nobody can allow"),
        ("224.0.0.1:80", "Nobody can allow"),
    ],
)
def test_a_refusal_names_the_cure_that_there_is(host: str, cure: str) -> None:
    assert cure in cure_of(host)
