"""Settings of the browser."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from agent_tools.browser.settings import BrowserSettings


def test_defaults_of_the_browser_settings() -> None:
    settings = BrowserSettings()
    assert (settings.hosts, settings.executable, settings.evaluate) == ((), None, "blocked")
    assert (settings.sessions, settings.idle, settings.download_mb) == (6, timedelta(minutes=5), 100)
    assert all(field.description for field in BrowserSettings.model_fields.values())


@pytest.mark.parametrize(
    "host", ["wiki.lan", "10.0.0.5:8080", "*.lan", "*.lan:8443", "[fd00::1]", "[fd00::1]:8080", "WIKI"]
)
def test_a_host_of_the_private_network(host: str) -> None:
    assert BrowserSettings(hosts=(host,)).hosts == (host.lower(),)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("hosts", [host]) for host in ("", "*", "http://wiki.lan", "wiki.lan/", "a b", "a:0", "a:70000", "*.*.lan")),
        ("evaluate", "allow"),
        ("sessions", 0),
        ("sessions", 17),
        ("idle", timedelta(seconds=9)),
        ("idle", timedelta(days=2)),
        ("download_mb", 0),
        ("executable", ""),
        ("profile", "x"),
    ],
)  # fmt: skip
def test_bad_browser_setting_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        BrowserSettings.model_validate({key: value})
    assert refused.value.errors()[0]["loc"][0] == key


def test_the_tool_is_there_without_playwright_being_imported() -> None:
    code = "import sys, agent_tools.browser; sys.exit('playwright' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
