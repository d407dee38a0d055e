"""Meaning of single payloads; nothing makes the parser fail. Whole payloads: `test_samples`."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import channels.slack
from channels.slack.inbound import (
    NAME_AT_MOST,
    QUOTED_AT_MOST,
    RAW_AT_MOST,
    AccessEnded,
    Asking,
    Identity,
    Looked,
    Meaning,
    Opened,
    PersonFacts,
    SlackPress,
    Stopping,
    about,
    read,
)
from gateway.domain.messages import REASON_AT_MOST, Inbound, Refused, RefusedReason
from gateway.domain.waits import Verb
from tests.support.keys import conversation_of
from tests.support.proof import examples, times

SAMPLES = sorted((Path(channels.slack.__file__).parent / "samples").glob("*.json"))
PAYLOADS: list[Any] = [json.loads(path.read_text())["payload"] for path in SAMPLES]
BY_NAME: dict[str, Any] = dict(zip([path.stem for path in SAMPLES], PAYLOADS, strict=True))
ME = Identity(account="main", team="T0HOME", user="U0DRAGO", app="A0DRAGO")
NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
MEMBER = PersonFacts(member=True)


def event(**fields: Any) -> dict[str, Any]:
    """A direct message of Bob's; None leaves a field out."""
    payload = copy.deepcopy(BY_NAME["direct_text"])
    changed = {**payload["event"], **fields}
    payload["event"] = {key: value for key, value in changed.items() if value is not None}
    return payload


def said(known: PersonFacts = MEMBER, **fields: Any) -> Inbound:
    found = read(event(**fields), ME, NOW, known)
    assert isinstance(found, Inbound), found
    return found


def refused(payload: object) -> Refused:
    found = read(payload, ME, NOW, MEMBER)
    assert isinstance(found, Refused), found
    return found


# --- who and where ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "team", "outsider"),
    [
        ({}, "T0HOME", False),
        ({"team": None}, "T0HOME", False),
        ({"user_team": "T0ELSE"}, "T0ELSE", True),
        ({"user_team": None, "team": "T0ELSE"}, "T0ELSE", True),
        ({"user_team": "T0HOME", "team": "T0ELSE"}, "T0HOME", False),
    ],
)
def test_a_principal_carries_the_persons_own_workspace(fields: dict[str, Any], team: str, outsider: bool) -> None:
    found = said(**fields)
    assert (found.principal, found.outsider) == (f"slack:{team}/U0BOB", outsider)


def test_unknown_speaker_is_an_outsider() -> None:
    assert said(PersonFacts()).outsider
    command = read(BY_NAME["command_status"], ME, NOW)
    assert isinstance(command, Inbound)
    assert command.outsider


@pytest.mark.parametrize(
    ("channel", "kind", "direct"),
    [
        ("D0BOB", "im", True),
        ("D0BOB", None, True),
        ("D0BOB", "mpim", False),
        ("C0X", "im", False),
        ("C0X", "channel", False),
        ("G0X", "group", False),
    ],
)
def test_direct_is_the_bots_own_conversation_with_one_person(channel: str, kind: str | None, direct: bool) -> None:
    found = said(channel=channel, channel_type=kind)
    assert found.direct is direct
    assert found.also_called == (() if direct else (f"T0HOME/{channel}",))


@pytest.mark.parametrize("sample", ["thread_mention", "direct_assistant_thread", "command_status", "press"])
def test_a_conversation_can_be_read_from_its_key(sample: str) -> None:
    found = read(BY_NAME[sample], ME, NOW, MEMBER)
    assert isinstance(found, Inbound | SlackPress)
    place = found.conversation if isinstance(found, Inbound) else found.press.conversation
    assert conversation_of(place.key) == place


def test_a_mention_and_its_second_event_are_one() -> None:
    one, two = (read(BY_NAME[name], ME, NOW, MEMBER) for name in ("channel_mention", "app_mention"))
    assert one == two


def test_another_workspace_and_another_app_are_refused() -> None:
    other = Identity(account="main", team="T0THIRD", user="U0DRAGO")
    for name in ("direct_text", "press", "form", "command_status"):
        found = read(BY_NAME[name], other, NOW, MEMBER)
        assert isinstance(found, Refused), name
        assert (found.reason, found.detail) == (RefusedReason.UNKNOWN, "of another workspace")
    app = Identity(account="main", team="T0HOME", user="U0DRAGO", app="A0OTHER")
    assert isinstance(read(BY_NAME["direct_text"], app, NOW, MEMBER), Refused)


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"bot_id": "B1"}, "a bot speaks"),
        ({"bot_profile": {}}, "a bot speaks"),
        ({"app_id": "A1"}, "a bot speaks"),
        ({"user": "U0DRAGO"}, "a bot speaks"),
        ({"user": "USLACKBOT"}, "a bot speaks"),
        ({"subtype": "bot_message"}, "bot_message"),
    ],
)
def test_bots_are_nobody(fields: dict[str, Any], detail: str) -> None:
    found = refused(event(**fields))
    assert (found.reason, found.detail) == (RefusedReason.NOT_A_PERSON, detail)


def test_sending_time_is_never_later_than_now_and_exact() -> None:
    assert said(ts="9999999999.000100").sent_at == NOW
    assert said(ts="1795248720.000100").sent_at == datetime(2026, 11, 21, 8, 12, tzinfo=UTC) + timedelta(
        microseconds=100
    )


def test_a_name_is_what_is_known_else_what_is_told_else_the_id() -> None:
    told = {"display_name": "Bobby\u202e", "real_name": "Bob"}
    assert said(PersonFacts(member=True, name="Bob Stone"), user_profile=told).name == "Bob Stone"
    assert said(user_profile=told).name == "Bobby"
    assert said(user_profile={"display_name": "\u200b"}).name == "U0BOB"
    assert said().name == "U0BOB"


@given(st.text(max_size=200))
def test_any_name_is_short_and_printable(name: str) -> None:
    found = said(PersonFacts(member=True, name=name)).name
    assert 0 < len(found) <= NAME_AT_MOST
    assert found.isprintable()


def test_root_of_a_thread_is_not_in_the_thread() -> None:
    ts = "1795248720.000100"
    assert said(thread_ts=ts).conversation.thread == ""
    assert said(thread_ts=ts, channel="C0X", channel_type="channel").conversation.thread == ""
    assert said(thread_ts=ts, channel="C0X", channel_type="channel", text="<@U0DRAGO> hi").conversation.thread == ts


# --- what is said -------------------------------------------------------------------------------


def test_shared_text_is_cut() -> None:
    assert len(said(attachments=[{"is_share": True, "text": "x" * 5000}]).quoted) == QUOTED_AT_MOST


@pytest.mark.parametrize(
    ("kind", "name"),
    [("image/png", "a picture"), ("audio/webm", "an audio file"), ("video/mp4", "a video"), ("text/plain", "a file"),
     ("", "a file")],
)  # fmt: skip
def test_malformed_file_is_named_and_the_message_kept(kind: str, name: str) -> None:
    found = said(subtype="file_share", files=[{"id": 7, "mimetype": kind}])
    assert (found.text, found.unread, found.attachments) == (said().text, name, ())


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("status", "/status"),
        ("STATUS", "/STATUS"),
        ("/status", "/status"),
        ("shell echo &lt;a&gt; &amp;lt;", "/shell echo <a> &lt;"),
        ("statuses are fine", "statuses are fine"),
        ("what is new?", "what is new?"),
        ("   ", "/help"),
    ],
)
def test_a_slash_command_is_a_command_of_ours_or_a_message(text: str, meant: str) -> None:
    known = PersonFacts(member=True, commands=frozenset({"status", "shell"}))
    found = read({**BY_NAME["command_status"], "text": text}, ME, NOW, known)
    assert isinstance(found, Inbound)
    assert (found.text, found.addressed) == (meant, True)


def test_a_form_brings_a_reason_of_a_length_that_is_kept() -> None:
    payload = copy.deepcopy(BY_NAME["form"])
    payload["view"]["state"]["values"]["reason"]["reason"]["value"] = "x" * 3000
    found = read(payload, ME, NOW)
    assert isinstance(found, SlackPress)
    assert found.press.reason == "x" * REASON_AT_MOST
    payload["view"]["state"]["values"]["reason"]["reason"]["value"] = None
    found = read(payload, ME, NOW)
    assert isinstance(found, SlackPress)
    assert found.press.reason == ""


@pytest.mark.parametrize(
    "metadata",
    ["", "x", "[]", "{}", '{"handle": "h", "channel": "C0/x"}', '{"handle": "h", "channel": "C0X", "thread": "x"}'],
)
def test_a_form_that_is_not_as_we_wrote_it_is_refused(metadata: str) -> None:
    payload = copy.deepcopy(BY_NAME["form"])
    payload["view"]["private_metadata"] = metadata
    assert refused(payload).reason is RefusedReason.POISON


@pytest.mark.parametrize("verb", Verb)
def test_only_a_press_that_wants_a_reason_asks_for_the_form(verb: Verb) -> None:
    payload = copy.deepcopy(BY_NAME["press"])
    payload["actions"][0]["action_id"] = f"{verb}:3"
    found = read(payload, ME, NOW)
    assert isinstance(found, Asking if verb is Verb.DENY_REASON else SlackPress)


def test_two_presses_are_two_events_and_a_repeated_one_is_one() -> None:
    again = copy.deepcopy(BY_NAME["press"])
    later = copy.deepcopy(BY_NAME["press"])
    later["actions"][0]["action_ts"] = "1795248771.123456"
    keys = {cast("SlackPress", read(one, ME, NOW)).press.event_key for one in (BY_NAME["press"], again, later)}
    assert len(keys) == 2


# --- refusals -----------------------------------------------------------------------------------


def test_malformed_event_is_kept_with_its_field_not_its_value() -> None:
    found = refused(event(ts="a secret"))
    assert found.reason is RefusedReason.POISON
    assert found.detail == "event.ts: a timestamp like 1795248720.000100 is wanted"
    assert "verification-token" not in found.raw
    assert "a secret" in found.raw


def test_a_huge_poison_is_cut() -> None:
    found = refused(event(text="x" * 1_000_000))
    assert (found.reason, len(found.raw)) == (RefusedReason.POISON, RAW_AT_MOST)


def test_event_without_an_id_is_keyed_by_its_content() -> None:
    one, two = {**BY_NAME["form_closed"], "x": 1}, {**BY_NAME["form_closed"], "x": 2}
    assert refused(one).event_key == refused(copy.deepcopy(one)).event_key != refused(two).event_key


# --- anything -----------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=10,
)


def places(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a payload."""
    if path:
        yield path
    if isinstance(node, dict):
        for key, below in cast("dict[str, Any]", node).items():
            yield from places(below, (*path, key))
    elif isinstance(node, list):
        for n, below in enumerate(cast("list[Any]", node)):
            yield from places(below, (*path, n))


PLACES = [(n, path) for n, payload in enumerate(PAYLOADS) for path in places(payload)]
GONE = object()


def changed(n: int, path: tuple[str | int, ...], value: Any) -> Any:
    """A sample in which one place is something else, or gone."""
    payload = copy.deepcopy(PAYLOADS[n])
    here = payload
    for part in path[:-1]:
        here = here[part]
    if value is GONE:
        del here[path[-1]]
    else:
        here[path[-1]] = value
    return payload


def check(payload: Any) -> Meaning:
    """Read it; what comes of it can be stored."""
    known = PersonFacts(member=True, takes_part=True, direct="D0BOB", commands=frozenset({"status"}))
    found = read(payload, ME, NOW, known)
    asked = about(payload)
    if isinstance(found, Inbound):
        assert asked is not None
        assert found.event_key.startswith("T0HOME.")
        assert conversation_of(found.conversation.key) == found.conversation
        json.dumps([found.text, found.quoted, found.name, found.event_key]).encode()
        "".join([found.text, found.quoted, found.name]).encode()
    elif isinstance(found, Refused):
        assert found.event_key
        assert len(found.raw) <= RAW_AT_MOST
    else:
        assert isinstance(found, SlackPress | Asking | Stopping | Opened | Looked | AccessEnded)
    return found


WRONG: list[Any] = [
    GONE,
    None,
    "",
    "x",
    0,
    -1,
    1.5,
    2**70,
    float("nan"),
    True,
    [],
    {},
    [None],
    {"x": 1},
    "\ud800",
    "😀",
    "\x00",
]


@pytest.mark.parametrize("n", range(len(PAYLOADS)), ids=[path.stem for path in SAMPLES])
def test_no_field_that_is_missing_or_wrong_makes_it_fail(n: int) -> None:
    each = times(1, 1, small=3)
    for at, path in enumerate([path for sample, path in PLACES if sample == n]):
        for value in WRONG[at % each :: each]:
            check(changed(n, path, value))


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(PLACES),
    st.sampled_from(["x", "😀", "\ud800", "<", "<@U0DRAGO>", "&amp;", "<@", " "]),
    st.booleans(),
)
def test_no_field_that_is_huge_makes_it_fail(where: tuple[int, tuple[str | int, ...]], unit: str, many: bool) -> None:
    huge: Any = [unit] * 200_000 if many else unit * (1_000_000 // len(unit))
    check(changed(*where, huge))


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(PLACES), JSON)
def test_no_json_in_a_field_makes_it_fail(where: tuple[int, tuple[str | int, ...]], value: Any) -> None:
    check(changed(*where, value))


@settings(max_examples=examples(200), deadline=None)
@given(JSON, st.sampled_from(["event", "actions", "view", "command", "type"]))
def test_no_json_at_all_makes_it_fail(value: Any, key: str) -> None:
    check(value)
    check({"type": "event_callback", key: value})
    check({"type": "block_actions", "team": {"id": "T0HOME"}, key: value})


def test_unserialisable_event_is_refused() -> None:
    nested: Any = []
    for _ in range(50_000):
        nested = [nested]
    found = read(nested, ME, NOW)
    assert isinstance(found, Refused)
    assert (found.reason, found.raw) == (RefusedReason.POISON, "")


def test_press_on_a_card_with_replies_belongs_to_its_channel() -> None:
    payload = copy.deepcopy(BY_NAME["press_direct"])
    at = payload["container"]["message_ts"]
    payload["container"]["thread_ts"] = at
    payload.setdefault("message", {})["thread_ts"] = at
    found = read(payload, ME, NOW, MEMBER)

    assert isinstance(found, SlackPress)
    assert found.press.conversation.thread == ""
