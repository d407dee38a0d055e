"""Call scopes of every browser action."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, get_args

import pytest
from pydantic import ValidationError

from agent_tools.browser import Args, scope
from agent_tools.browser.arguments import ActionName, scopes_of
from agent_tools.browser.settings import BrowserSettings
from gateway.domain.scopes import Scopes
from gateway.domain.tools import CallScope, Destination, Risk
from gateway.policy.permission import placed, refused


def worst(args: Args, settings: BrowserSettings) -> CallScope:
    """Return the scope of a call without the list of what it touches."""
    return replace(scope(args, settings), subjects=(), sends=())


READ = CallScope(risk=Risk.READ)
WRITE = CallScope(risk=Risk.WRITE)


def _to(scope: str, host: str) -> CallScope:
    going = Destination(host=host, setting="[tools.browser] hosts")
    return CallScope(risk=Risk.NETWORK, scope=scope, destination=going)


REACHES: dict[str, tuple[dict[str, Any], CallScope]] = {
    "open": ({"url": "https://www.example.org:8443/a"}, _to("example.org:8443", "www.example.org:8443")),
    "snapshot": ({}, READ),
    "click": ({"ref": "e1"}, READ),
    "hover": ({"ref": "310,42"}, READ),
    "drag": ({"ref": "e1", "to": "310,42", "how": "Shift"}, READ),
    "type": ({"ref": "e1", "text": "x", "submit": True}, READ),
    "select": ({"ref": "e1", "values": ["x"]}, READ),
    "press": ({"key": "Enter"}, READ),
    "scroll": ({}, READ),
    "wait": ({"amount": 1}, READ),
    "back": ({}, READ),
    "tabs": ({"tab": 2}, READ),
    "screenshot": ({}, READ),
    "pdf": ({}, READ),
    "text": ({}, READ),
    "download": ({"url": "http://example.org/a.zip"}, _to("example.org", "example.org:80")),
    "upload": ({"host": "a.example", "ref": "e1", "path": "a"}, CallScope(risk=Risk.NETWORK)),
    "evaluate": ({"host": "a.example", "script": "1"}, CallScope(risk=Risk.EXECUTE)),
    "resize": ({"to": "400,800"}, READ),
    "dialog": ({"submit": True, "text": "yes"}, READ),
    "close": ({}, READ),
}


@pytest.mark.parametrize("action", get_args(ActionName))
def test_call_scope_of_each_action(action: str) -> None:
    given, expected = REACHES[action]
    assert worst(Args.model_validate({"action": action, **given}), BrowserSettings(evaluate="ask")) == expected


SAVED = {
    "download": ["downloads/july.pdf", "./downloads/a/b.pdf", "downloads//a.pdf"],
    "pdf": ["downloads/july.pdf", "browser/july.pdf"],
}
WRITTEN = [
    "GNUmakefile", ".git/hooks/pre-commit", "Downloads/a", "downloads", "downloads/", "downloads.pdf",
    "downloads/../GNUmakefile", "downloads/.git/config", "/workspace/downloads/a", "src/downloads/a", ".",
    "inbox2/a", "~/a",
]  # fmt: skip


@pytest.mark.parametrize("more", [{"ref": "e1"}, {"url": "http://example.org/a"}], ids=["ref", "url"])
@pytest.mark.parametrize("path", [*WRITTEN, "browser/july.pdf"])
def test_a_download_to_another_path_is_a_write(more: dict[str, str], path: str) -> None:
    """Its approval covers this one call: the next file has another path."""
    said = worst(Args.model_validate({"action": "download", "path": path, **more}), BrowserSettings())
    assert (said.risk, said.scope, said.refused) == (Risk.WRITE, "", "")


@pytest.mark.parametrize("path", WRITTEN)
def test_a_pdf_at_another_path_is_a_write(path: str) -> None:
    assert worst(Args(action="pdf", path=path), BrowserSettings()) == WRITE


@pytest.mark.parametrize(("action", "path"), [(action, path) for action in SAVED for path in SAVED[action]])
def test_a_file_in_the_browsers_folders_is_no_write(action: str, path: str) -> None:
    given = {"action": action, "path": path} | ({"ref": "e1"} if action == "download" else {})
    assert worst(Args.model_validate(given), BrowserSettings()) == READ


@pytest.mark.parametrize("path", ["inbox", "inbox/a.pdf", "./inbox/a.pdf", "inbox//a"])
@pytest.mark.parametrize("given", [{"action": "download", "ref": "e1"}, {"action": "pdf"}], ids=["download", "pdf"])
def test_a_file_in_the_inbox_is_refused(given: dict[str, str], path: str) -> None:
    with pytest.raises(ValidationError, match="folder for attachments"):
        Args.model_validate({**given, "path": path})


def test_an_upload_from_the_inbox_is_allowed() -> None:
    assert Args(action="upload", host="a.example", ref="e1", path="inbox/a.pdf").path == "inbox/a.pdf"


@pytest.mark.parametrize(("path", "lets"), [("GNUmakefile", True), ("downloads/a", False), (None, False)])
def test_an_allowed_write_reaches_its_own_host(path: str | None, *, lets: bool) -> None:
    args = Args(action="download", url="http://example.org/a", path=path)
    found = scopes_of(args, Scopes(frozenset({"a.example"})))
    assert (found.granted == {"a.example", "example.org"}) is lets


def test_a_download_of_the_open_page_asks_for_no_host() -> None:
    assert worst(Args(action="download", ref="e1"), BrowserSettings()) == READ


def test_an_address_that_the_action_does_not_take_covers_nothing() -> None:
    assert (
        worst(Args.model_validate({"action": "click", "ref": "e1", "url": "https://a.example/"}), BrowserSettings())
        == READ
    )


@pytest.mark.parametrize(("setting", "refused"), [("blocked", True), ("ask", False)])
def test_scripts_run_only_where_the_owner_lets_them_be_asked_for(
    setting: Literal["blocked", "ask"], refused: bool
) -> None:
    said = worst(Args(action="evaluate", host="a.example", script="1"), BrowserSettings(evaluate=setting))
    assert (said.risk, said.scope, bool(said.refused)) == (Risk.EXECUTE, "", refused)
    assert not refused or 'evaluate = "ask" in [tools.browser]' in said.refused


@pytest.mark.parametrize(
    ("given", "subjects", "sends"),
    [
        ({"action": "open", "url": "https://www.Example.org/a?b"}, ("host:example.org",), ("example.org",)),
        ({"action": "open", "url": "https://exämple.org:8443/"}, ("host:xn--exmple-cua.org:8443",), None),
        (
            {"action": "download", "url": "http://a.example/x", "path": "./sub//x.bin"},
            ("host:a.example", "path:./sub//x.bin"),
            ("a.example",),
        ),
        ({"action": "upload", "ref": "e1", "host": "a.example", "path": "notes.md"}, ("path:notes.md",), ()),
        ({"action": "pdf", "path": "/etc/x"}, ("path:/etc/x",), ()),
        ({"action": "pdf", "path": "a/../../x"}, ("path:a/../../x",), ()),
        ({"action": "snapshot"}, (), ()),
    ],
)
def test_scope_names_what_a_call_touches(
    given: dict[str, Any], subjects: tuple[str, ...], sends: tuple[str, ...] | None
) -> None:
    found = scope(Args.model_validate(given), BrowserSettings())

    assert found.subjects == subjects
    assert sends is None or found.sends == sends
    leads_out = str(given.get("path", "")) in ("/etc/x", "a/../../x")
    assert (refused(placed(found, "/w")) is not None) is leads_out
