"""What a call of the browser reaches, for every action."""

from __future__ import annotations

from typing import Any, Literal, get_args

import pytest

from agent_tools.browser import Args, reach
from agent_tools.browser.arguments import ActionName
from agent_tools.browser.settings import BrowserSettings
from gateway.domain.tools import CallScope, Risk

READ = CallScope(risk=Risk.READ)
REACHES: dict[str, tuple[dict[str, Any], CallScope]] = {
    "open": ({"url": "https://www.example.org:8443/a"}, CallScope(risk=Risk.NETWORK, scope="example.org:8443")),
    "snapshot": ({}, READ),
    "click": ({"ref": "e1"}, READ),
    "type": ({"ref": "e1", "text": "x", "submit": True}, READ),
    "select": ({"ref": "e1", "values": ["x"]}, READ),
    "press": ({"key": "Enter"}, READ),
    "scroll": ({}, READ),
    "wait": ({"amount": 1}, READ),
    "back": ({}, READ),
    "tabs": ({"tab": 2}, READ),
    "screenshot": ({}, READ),
    "pdf": ({"path": "a.pdf"}, READ),
    "text": ({}, READ),
    "download": ({"url": "http://example.org/a.zip"}, CallScope(risk=Risk.NETWORK, scope="example.org")),
    "upload": ({"host": "a.example", "ref": "e1", "path": "a"}, CallScope(risk=Risk.NETWORK)),
    "evaluate": ({"host": "a.example", "script": "1"}, CallScope(risk=Risk.EXECUTE)),
    "close": ({}, READ),
}


@pytest.mark.parametrize("action", get_args(ActionName))
def test_what_each_action_reaches(action: str) -> None:
    given, expected = REACHES[action]
    assert reach(Args.model_validate({"action": action, **given}), BrowserSettings(evaluate="ask")) == expected


def test_a_download_of_the_open_page_asks_for_no_host() -> None:
    assert reach(Args(action="download", ref="e1"), BrowserSettings()) == READ


def test_an_address_that_the_action_does_not_take_covers_nothing() -> None:
    assert (
        reach(Args.model_validate({"action": "click", "ref": "e1", "url": "https://a.example/"}), BrowserSettings())
        == READ
    )


@pytest.mark.parametrize(("setting", "refused"), [("blocked", True), ("ask", False)])
def test_scripts_run_only_where_the_owner_lets_them_be_asked_for(
    setting: Literal["blocked", "ask"], refused: bool
) -> None:
    said = reach(Args(action="evaluate", host="a.example", script="1"), BrowserSettings(evaluate=setting))
    assert (said.risk, said.scope, bool(said.refused)) == (Risk.EXECUTE, "", refused)
    assert not refused or 'evaluate = "ask" in [tools.browser]' in said.refused
