"""Meaning of single updates; nothing makes the parser fail. Whole payloads: `test_samples`."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import channels.telegram
from channels.telegram.inbound import (
    NOT_PEOPLE,
    QUOTED_AT_MOST,
    RAW_AT_MOST,
    BotIdentity,
    ChatMigration,
    Meaning,
    TelegramPress,
    read,
)
from gateway.domain.messages import Inbound, Refused, RefusedReason
from tests.support.proof import examples, times

SAMPLES = sorted((Path(channels.telegram.__file__).parent / "samples").glob("*.json"))
UPDATES: list[dict[str, Any]] = [json.loads(path.read_text())["update"] for path in SAMPLES]
BOT = BotIdentity(id=99, username="dragoman_bot", account="main")
NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
SENT = int(NOW.timestamp()) - 60
ANN = {"id": 1001, "is_bot": False, "first_name": "Ann", "last_name": "Lee"}
ALONE = {"id": 1001, "type": "private"}
GROUP = {"id": -1003, "type": "supergroup"}
DRAGOMAN = {"id": 99, "is_bot": True, "first_name": "Dragoman"}


def message(**fields: Any) -> dict[str, object]:
    """An update with a message of Ann's; None leaves a field out."""
    made = {"message_id": 7, "from": ANN, "chat": ALONE, "date": SENT, "text": "hello", **fields}
    return {"update_id": 1, "message": {key: value for key, value in made.items() if value is not None}}


def said(**fields: Any) -> Inbound:
    found = read(message(**fields), BOT, NOW)
    assert isinstance(found, Inbound), found
    return found


def refused(update: object) -> Refused:
    found = read(update, BOT, NOW)
    assert isinstance(found, Refused), found
    return found


def entity(kind: str, start: int, length: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "offset": start, "length": length, **more}


# --- words ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "entities", "expected"),
    [
        ("bold and plain", [entity("bold", 0, 4)], "bold and plain"),
        ("see here", [entity("text_link", 4, 4, url="https://a.example")], "see [here](https://a.example)"),
        ("😀 run ls now", [entity("code", 7, 2)], "😀 run `ls` now"),
        ("a `b` c", [entity("code", 0, 7)], "``a `b` c``"),
        ("`b", [entity("code", 0, 2)], "`` `b ``"),
        ("x = 1", [entity("pre", 0, 5)], "```\nx = 1\n```"),
        ("so:x = 1", [entity("pre", 3, 5, language="python")], "so:\n```python\nx = 1\n```"),
        ("```", [entity("pre", 0, 3)], "````\n```\n````"),
        ("ab", [entity("code", 0, 2), entity("text_link", 1, 1, url="u")], "`ab`"),
        ("short", [entity("code", 2, 900)], "short"),
        ("/shell ls -l", [entity("bot_command", 0, 6), entity("code", 7, 5)], "/shell ls -l"),
        (" /shell ls", [entity("code", 8, 2)], " /shell ls"),
        ("/shell rm", [entity("code", 0, 9)], "/shell rm"),
        ("@dragoman_bot: go", [entity("mention", 0, 13)], "go"),
        ("@dragoman_bot go", [], "@dragoman_bot go"),
        ("@dragoman_bot run ls", [entity("mention", 0, 13), entity("code", 18, 2)], "run `ls`"),
        ("@dragoman_bot /shell@Dragoman_bot ls", [entity("mention", 0, 13)], "/shell ls"),
        ("/status@dragoman_bot2", [entity("bot_command", 0, 21)], "/status@dragoman_bot2"),
        ("a\x00b\ud800", [], "a\ufffdb\ufffd"),
    ],
)
def test_text_goes_on_as_it_is_meant(text: str, entities: list[dict[str, Any]], expected: str) -> None:
    assert said(text=text, entities=entities).text == expected


def test_a_long_text_counts_as_cut_in_the_units_of_telegram() -> None:
    assert not said(text="x" * 3999).cut
    assert said(text="x" * 4000).cut
    assert said(text="😀" * 2000).cut
    assert not said(text="x" * 4000, forward_origin={}).cut
    assert not said(text=None, photo=[{}], caption="x" * 4000).cut


def test_message_follows_its_predecessor_in_a_numbered_chat() -> None:
    assert said(chat=GROUP, message_id=8).follows == said(chat=GROUP).event_key
    assert said(chat=GROUP, message_id=0).follows == ""
    assert said(message_id=8).follows == ""
    assert said(message_id=8, chat={"id": -4, "type": "group"}).follows == ""


def test_two_new_texts_in_one_second_are_two_events() -> None:
    def edit(text: str) -> Inbound:
        update = message(text=text, edit_date=SENT)
        found = read({"update_id": 1, "edited_message": update["message"]}, BOT, NOW)
        assert isinstance(found, Inbound)
        return found

    assert edit("delete B").event_key == edit("delete B").event_key
    assert edit("delete B").event_key != edit("delete C").event_key


@pytest.mark.parametrize("borrowed", [{"forward_origin": {}}, {"forward_date": 5}, {"via_bot": DRAGOMAN}])
def test_words_of_others_never_become_a_command(borrowed: dict[str, Any]) -> None:
    found = said(text="/shell rm " + "x" * 2000, entities=[entity("bot_command", 0, 6)], **borrowed)
    assert found.text.startswith("(")
    assert found.quoted == "/shell rm " + "x" * 2000


# --- who, where, when -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last", "name"),
    [
        ("Ann", None, "Ann"),
        ("  Ann ", "\u202eLee\n", "Ann Lee"),
        ("\u200b", "\u2066\u2069", "1001"),
        ("Ann\u00a0B.", "", "Ann B."),
        ("x" * 200, "y", "x" * 64),
        ("José", "李", "José 李"),
    ],
)
def test_a_name_can_be_seen_and_does_no_harm(first: str, last: str | None, name: str) -> None:
    assert said(**{"from": {**ANN, "first_name": first, "last_name": last}}).name == name


@given(st.text(max_size=100), st.text(max_size=100))
def test_any_name_is_short_and_printable(first: str, last: str) -> None:
    name = said(**{"from": {**ANN, "first_name": first, "last_name": last}}).name
    assert 0 < len(name) <= 64
    assert name.isprintable()


def test_direct_is_a_private_chat_with_the_very_person() -> None:
    assert said().direct
    assert not said(chat={"id": 2002, "type": "private"}).direct
    assert not said(chat={"id": 1001, "type": "group"}).direct
    assert not said(chat=GROUP).direct


def test_a_thread_is_a_topic_and_nothing_else() -> None:
    assert said(chat=GROUP, message_thread_id=5).conversation.thread == ""
    assert said(chat=GROUP, message_thread_id=5, is_topic_message=False).conversation.thread == ""
    assert said(chat=GROUP, message_thread_id=5, is_topic_message=True).conversation.thread == "5"
    assert refused(message(chat=GROUP, is_topic_message=True)).reason is RefusedReason.POISON


def test_reply_to_the_root_of_its_topic_answers_nothing() -> None:
    root = {"message_id": 5, "from": DRAGOMAN, "chat": GROUP, "date": SENT, "text": "a topic"}
    found = said(chat=GROUP, message_thread_id=5, is_topic_message=True, reply_to_message=root)
    assert (found.addressed, found.reply_to, found.quoted) == (False, "", "")
    found = said(chat=GROUP, reply_to_message={**root, "forum_topic_created": {"name": "Tools"}})
    assert (found.addressed, found.reply_to, found.quoted) == (False, "", "")
    found = said(chat=GROUP, message_thread_id=4, is_topic_message=True, reply_to_message=root)
    assert (found.addressed, found.reply_to, found.quoted) == (True, "5", "a topic")


def test_nothing_was_sent_later_than_now() -> None:
    assert said(date=SENT).sent_at == NOW - timedelta(seconds=60)
    assert said(date=SENT + 900).sent_at == NOW


def test_a_quote_is_cut() -> None:
    answered = {"message_id": 3, "from": ANN, "text": "x" * 4000}
    assert said(reply_to_message=answered).quoted == "x" * QUOTED_AT_MOST


@pytest.mark.parametrize("account", sorted(NOT_PEOPLE))
def test_accounts_that_stand_for_others_are_nobody(account: int) -> None:
    who = {**ANN, "id": account}
    assert refused(message(**{"from": who})).reason is RefusedReason.NOT_A_PERSON
    press = {"id": "1", "from": who, "message": {"chat": GROUP, "date": SENT}, "data": "x"}
    assert refused({"update_id": 1, "callback_query": press}).reason is RefusedReason.NOT_A_PERSON


def test_missing_is_bot_is_refused() -> None:
    assert refused(message(**{"from": {"id": 1001, "first_name": "Ann"}})).detail == (
        "message.from.is_bot: true or false is wanted"
    )


def test_a_bot_without_a_username_is_meant_by_none() -> None:
    nameless = BotIdentity(id=99, username="", account="main")
    update = message(chat=GROUP, text="@ hello", entities=[entity("mention", 0, 1)])
    found = read(update, nameless, NOW)
    assert isinstance(found, Inbound)
    assert not found.addressed


# --- what is refused ------------------------------------------------------------------------


def test_malformed_update_is_kept_with_its_field_not_its_value() -> None:
    found = refused(message(text=["a secret"]))
    assert found.reason is RefusedReason.POISON
    assert found.detail == "message.text: text of at most 65,536 characters is wanted"
    assert found.event_key == "u1"
    assert json.loads(found.raw) == message(text=["a secret"])


def test_update_without_an_id_is_keyed_by_its_content() -> None:
    updates: list[Any] = [{}, [], None, 5, "x", {"update_id": True}, {"update_id": -1}]
    assert len({refused(update).event_key for update in updates}) == 7
    assert refused({"a": 1}).event_key == refused({"a": 1}).event_key


def test_surplus_entities_are_left_out_and_refuse_nothing() -> None:
    """A message of 1,300 hashtags was refused: of a stranger 64 KiB were kept, and the owner was never answered."""
    tags = "#a " * 1300
    marks = [entity("hashtag", 3 * at, 2) for at in range(1300)]
    found = said(text=f"`{tags}", entities=[entity("code", 0, 1), *marks, entity("code", 3, 2)])

    assert found.text == f"`` ` ``{tags}".strip()


def test_a_huge_poison_is_cut() -> None:
    assert len(refused(message(text="x" * 1_000_000)).raw) == RAW_AT_MOST


def test_unserialisable_update_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert refused(deep).raw == ""
    assert refused(message(text=10**5000)).raw == ""
    for _ in range(100_000):  # taken apart by hand: the interpreter would do it by recursion
        deep = deep[0]


def test_the_name_of_an_unknown_kind_is_harmless() -> None:
    assert refused({"update_id": 1, "x\n\u202e'" + "y" * 100: {}}).detail == "x???" + "y" * 36
    assert refused({"update_id": 1, "message": None}).detail == "nothing"
    assert refused({"update_id": 1, "": {}}).detail == "a field without a name"


@pytest.mark.parametrize("wrong", [{"migrate_from_chat_id": 0}, {"migrate_to_chat_id": 1001}])
def test_only_groups_get_a_new_id(wrong: dict[str, int]) -> None:
    assert f"message.{next(iter(wrong))}: a whole number is wanted" in refused(message(chat=GROUP, **wrong)).detail


def test_a_press_with_an_id_of_any_length_is_refused() -> None:
    press = {"id": "9" * 65, "from": {"id": 1001, "is_bot": False}}
    found = refused({"update_id": 1, "callback_query": press})
    assert (found.event_key, found.detail) == ("u1", "callback_query.id: text of 1 to 64 bytes is wanted")


# --- nothing makes it fail ------------------------------------------------------------------

WRONG: list[Any] = [None, True, False, 0, -1, 2**70, 1.5, "", "x", "\ud800\x00", [], [[]], [None], {}, {"id": "x"}]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=20,
)


def places(node: Any) -> Iterator[tuple[str | int, ...]]:
    """Every place in a payload."""
    keys: list[Any] = list(cast("dict[str, Any]", node)) if isinstance(node, dict) else []
    keys = list(range(len(cast("list[Any]", node)))) if isinstance(node, list) else keys
    for key in keys:
        yield (key,)
        yield from ((key, *below) for below in places(node[key]))


PLACES = [(n, place) for n, update in enumerate(UPDATES) for place in places(update)]


def changed(n: int, place: tuple[str | int, ...], value: Any, *, remove: bool = False) -> dict[str, Any]:
    """A sample with one field changed."""
    update: Any = copy.deepcopy(UPDATES[n])
    node = update
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    if remove:
        del node[place[-1]]
    return update


def check(update: Any) -> Meaning:
    """Read it, and check what the rest of the gateway counts on."""
    found = read(update, BOT, NOW)
    match found:
        case Inbound():
            assert found.principal.removeprefix("telegram:").isdigit()
            assert NOW >= found.sent_at > datetime(1970, 1, 1, tzinfo=UTC)
            assert found.addressed or not found.direct
        case Refused(reason=RefusedReason.POISON):
            assert found.detail
            assert len(found.raw.encode()) <= RAW_AT_MOST
        case Refused():
            assert found.detail
            assert not found.raw
        case ChatMigration():
            assert found.old != ""
        case TelegramPress():
            assert found.press.handle
    storable(found)
    return found


def storable(value: Any) -> None:
    """No store can keep NUL or halves of characters; keys and names are short."""
    for field in dataclasses.fields(value):
        one = getattr(value, field.name)
        if dataclasses.is_dataclass(one):
            storable(one)
        elif isinstance(one, str):
            assert "\x00" not in one.encode().decode()
            assert len(one) <= (200_000 if field.name in {"text", "quoted", "raw"} else 256)


@pytest.mark.parametrize("n", range(len(UPDATES)), ids=[path.stem for path in SAMPLES])
def test_no_field_that_is_missing_or_wrong_makes_it_fail(n: int) -> None:
    each = times(1, 1, small=3)
    for at, (_, place) in enumerate([one for one in PLACES if one[0] == n]):
        check(changed(n, place, None, remove=True))
        for wrong in WRONG[at % each :: each]:
            check(changed(n, place, wrong))


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(PLACES), st.sampled_from(["x", "😀", "\ud800", "\x00", "`", "/a@", " "]), st.booleans())
def test_no_field_that_is_huge_makes_it_fail(where: tuple[int, tuple[str | int, ...]], unit: str, many: bool) -> None:
    huge: Any = [unit] * 200_000 if many else unit * 1_000_000
    check(changed(*where, huge))


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(PLACES), JSON)
def test_no_json_in_a_field_makes_it_fail(where: tuple[int, tuple[str | int, ...]], value: Any) -> None:
    check(changed(*where, value))


@settings(max_examples=examples(200), deadline=None)
@given(JSON, st.sampled_from(["message", "edited_message", "callback_query", "channel_post", "other"]))
def test_no_json_at_all_makes_it_fail(value: Any, kind: str) -> None:
    check(value)
    check({"update_id": 1, kind: value})


ENTITIES = st.builds(
    entity,
    st.sampled_from(["text_link", "code", "pre", "mention", "bot_command", "bold", "text_mention"]),
    st.integers(0, 30),
    st.integers(0, 30),
    url=st.just("https://a.example"),
    user=st.just(DRAGOMAN),
)


@given(st.text(max_size=30), st.lists(ENTITIES, max_size=5))
def test_no_entities_make_it_fail_or_a_command_of_what_is_none(text: str, entities: list[dict[str, Any]]) -> None:
    found = read(message(text=text or "x", entities=entities), BOT, NOW)
    assert isinstance(found, Inbound)
    names = [one for one in entities if one["type"] in {"mention", "text_mention"} and one["offset"] == 0]
    if not names and not text.lstrip().startswith("/"):
        assert not found.text.lstrip().startswith("/")
