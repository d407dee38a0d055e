"""Arguments of a browser call."""

from __future__ import annotations

import json
import re
from typing import Any, Literal, get_args

import pytest
from pydantic import ValidationError

from agent_tools import browser
from agent_tools.browser.arguments import BY_HAND, TAKES, ActionName, blocked
from agent_tools.browser.settings import BrowserSettings
from gateway.domain.prompts import Complete, ModelRequest, UserText
from gateway.domain.sessions import SessionKind
from gateway.domain.tools import ApprovalMode, Availability, Risk, SandboxPolicy
from gateway.llm.operator import Operator

ACTIONS = get_args(ActionName)


def args(**given: Any) -> dict[str, Any]:
    """The arguments as they are stored and shown: what is there."""
    return browser.Args.model_validate_json(json.dumps(given)).model_dump(exclude_none=True)


def problem(**given: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        browser.Args.model_validate_json(json.dumps(given))
    return "; ".join(error["msg"] for error in caught.value.errors())


def test_spec_of_the_browser() -> None:
    spec = browser.SPEC
    assert (spec.name, spec.risk, spec.availability, spec.sandbox) == (
        "browser", Risk.NETWORK, Availability.MAIN, SandboxPolicy.AUTO
    )  # fmt: skip
    assert (spec.timeout_s, spec.actions["download"], spec.shows) == (60, 300, "url")
    assert spec.approval == {kind.value: ApprovalMode.DENY for kind in (SessionKind.DM, SessionKind.NON_MAIN)}
    assert set(spec.actions) == set(ACTIONS) == set(TAKES)
    assert (spec.needs, spec.extra) == ("playwright", "browser")


def test_every_action_takes_fields_that_there_are() -> None:
    for action in ACTIONS:
        takes = set(TAKES[action].replace("!", "").split())
        assert takes <= browser.Args.model_fields.keys()
        assert set(BY_HAND.get(action, ())) <= takes


def test_the_schema_is_short_and_says_what_may_be_left_out() -> None:
    schema = browser.Args.model_json_schema()
    assert len(json.dumps(schema)) <= 2500
    assert schema["required"] == ["action"]
    assert schema["properties"]["ref"]["type"] == "string"
    assert "null" not in json.dumps(schema)


@pytest.mark.parametrize("evaluate", ["blocked", "ask"])
def test_an_action_that_is_blocked_is_not_offered(evaluate: Literal["blocked", "ask"]) -> None:
    settings = BrowserSettings(evaluate=evaluate)
    offered = browser.schema(settings)
    fields = offered["properties"]
    allowed = evaluate == "ask"

    assert ("evaluate" in json.dumps(offered), "script" in fields) == (allowed, allowed)
    assert (len(fields["action"]["enum"]), fields["host"]["description"]) == (
        len(ACTIONS) - (not allowed),
        f"upload{', evaluate' if allowed else ''}: the host of the open page.",
    )
    assert offered["required"] == ["action"]
    # The same function decides what becomes of a call that is made all the same.
    call = browser.Args(action="evaluate", host="example.org", script="1")
    assert browser.scope(call, settings).refused == blocked(settings).get("evaluate", "")
    assert bool(blocked(settings)) is not allowed


# --- which fields -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"action": "open"}, "open needs url: the address"),
        ({"action": "open", "url": ""}, "open needs url"),
        ({"action": "click"}, "click needs ref: .*`snapshot`"),
        ({"action": "type", "ref": "e3"}, "type needs text"),
        ({"action": "select", "ref": "e3"}, "select needs either values.*or text"),
        ({"action": "select", "ref": "e3", "values": ["x"], "text": "x"}, "select needs either values.*or text"),
        ({"action": "select", "ref": "310,42", "values": ["x"]}, "no place can be given"),
        ({"action": "screenshot", "ref": "310,42"}, "no place can be given"),
        ({"action": "drag", "ref": "e1"}, "drag needs to: .*a ref .*or a place"),
        ({"action": "drag", "ref": "e1", "to": "e1"}, "onto itself"),
        ({"action": "drag", "ref": "3,4", "to": "-3,4"}, "a ref as in e12, or two numbers"),
        ({"action": "drag", "ref": "3,4", "to": "#b"}, "a ref as in e12, or two numbers"),
        ({"action": "click", "ref": "e1", "how": "treble"}, "'treble' is no way to click: join some of Alt, "),
        ({"action": "click", "ref": "e1", "how": "Shift++"}, "is no way to click"),
        ({"action": "resize", "to": "e1"}, "the new size in to, as in 800,600"),
        ({"action": "dialog"}, "dialog needs submit: true accepts"),
        ({"action": "press"}, "press needs key: .*Enter"),
        ({"action": "wait"}, "wait needs either text.*or amount"),
        ({"action": "wait", "text": "x", "amount": 1}, "wait needs either"),
        ({"action": "download"}, "download needs either url.*or ref"),
        ({"action": "download", "url": "https://a.example/", "ref": "e1"}, "download needs either"),
        ({"action": "upload", "host": "a.example", "ref": "e1"}, "upload needs path"),
        ({"action": "upload", "ref": "e1", "path": "a"}, "upload needs host: the host of the page"),
        ({"action": "evaluate", "host": "a.example"}, "evaluate needs script"),
        ({"action": "evaluate", "host": "", "script": "1"}, "evaluate needs host"),
        ({"action": "evaluate", "host": "a.example b.example", "script": "1"}, "a space or a control character"),
        ({"action": "evaluate", "host": "a" * 301, "script": "1"}, "at most 300 characters"),
        ({"action": "fly"}, "'open', 'snapshot'"),
        ({}, "Field required"),
        ({"action": "open", "url": "https://a.example/", "selector": "#a"}, "Extra inputs"),
        ({"action": "click", "ref": "#buy"}, "match pattern"),
        ({"action": "snapshot", "timeout": 60_000}, "less than or equal to 300"),
        ({"action": "upload", "host": "a.example", "ref": "e1", "path": "a\0b"}, "NUL"),
    ],
)
def test_missing_or_wrong_argument_is_named(given: dict[str, Any], words: str) -> None:
    assert re.search(words, problem(**given))


@pytest.mark.parametrize(
    ("given", "read"),
    [
        # What a model fills in because it is there, and what another action takes.
        (
            {"action": "click", "ref": "e1", "url": "", "text": "", "key": None, "submit": False, "amount": 0},
            {"ref": "e1"},
        ),
        ({"action": "type", "ref": "f2e1", "text": ""}, {"ref": "f2e1", "text": ""}),
        ({"action": "select", "ref": "e1", "value": "Blue"}, {"ref": "e1", "values": ["Blue"]}),
        ({"action": "select", "ref": "e1", "values": ["a", "b"]}, {"ref": "e1", "values": ["a", "b"]}),
        ({"action": "snapshot", "timeout_s": 5}, {"timeout": 5.0}),
        ({"action": "snapshot", "host": "a.example"}, {}),
        ({"action": "close", "tab": 2}, {"tab": 2}),
    ],
)
def test_only_what_the_action_takes_is_left(given: dict[str, Any], read: dict[str, Any]) -> None:
    assert args(**given) == {"action": given["action"], **read}


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("example.org", "example.org"),
        ("WWW.Example.org", "example.org"),
        ("https://example.org/a?b", "example.org"),
        ("http://example.org:80", "example.org"),
        ("127.0.0.1:8080", "127.0.0.1:8080"),
        ("[2001:db8::1]:8080", "[2001:db8::1]:8080"),
    ],
)
def test_a_host_has_one_form(written: str, host: str) -> None:
    """That of the page's own, so that a card shows what is compared."""
    read = args(action="evaluate", host=written, script="1")
    assert read["host"] == host
    assert args(**read) == read


# --- by hand ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("open https://example.org/a?b=c", {"url": "https://example.org/a?b=c"}),
        ("Open example.org", {"url": "https://example.org/"}),
        ("open\nexample.org", {"url": "https://example.org/"}),
        ("snapshot", {}),
        ("click e12", {"ref": "e12"}),
        ("type e3 a=b  two", {"ref": "e3", "text": "a=b  two"}),
        ("type submit=true e3 two words ", {"ref": "e3", "text": "two words", "submit": True}),
        ("select e3 Dark blue", {"ref": "e3", "values": ["Dark blue"]}),
        ("press Enter", {"key": "Enter"}),
        ("scroll up 2", {"direction": "up", "amount": 2.0}),
        ("wait Thank you", {"text": "Thank you"}),
        ("wait 2.5", {"amount": 2.5}),
        ("tabs 2", {"tab": 2}),
        ("screenshot full_page=true", {"full_page": True}),
        ("download e4", {"ref": "e4"}),
        ("download example.org/a.pdf papers/a b.pdf", {"url": "https://example.org/a.pdf", "path": "papers/a b.pdf"}),
        ("upload example.org e4 my notes.txt", {"host": "example.org", "ref": "e4", "path": "my notes.txt"}),
        ("evaluate example.org a == b", {"host": "example.org", "script": "a == b"}),
        ("open timeout=20 example.org", {"url": "https://example.org/", "timeout": 20.0}),
        ('action=type ref=e3 text="two words" submit=true', {"ref": "e3", "text": "two words", "submit": True}),
    ],
)
async def test_a_command_that_a_person_types(text: str, read: dict[str, Any]) -> None:
    operator = Operator(lambda: {"browser": browser.SPEC})
    asked = ModelRequest(system="", messages=(UserText(text=f"/browser {text}"),), tools=())
    [answer] = [event.answer async for event in operator.stream(asked) if isinstance(event, Complete)]
    got = browser.Args.model_validate_json(answer.calls[0].arguments).model_dump(exclude_none=True)
    assert got == {"action": got["action"], **read}
    assert got["action"] in text.lower()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("back now", "back takes no 'now': leave it out"),
        ("dance", "Input should be 'open'"),
        ('action=open url="x', "the quotes do not match"),
        ("action=open now", "'now' is not of the form name=value"),
    ],
)
def test_a_command_that_is_not_understood(text: str, words: str) -> None:
    assert words in problem(action=text)


def test_nothing_is_given_twice() -> None:
    assert "url is given twice" in problem(action="open example.org", url="https://example.com/")
