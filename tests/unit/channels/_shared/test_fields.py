"""Readers of payload fields: a valid value, or a refusal that names the field."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from channels._shared.fields import LARGEST, TEXT_AT_MOST, Malformed, PayloadFields, as_ascii


class Updates(PayloadFields):
    whole = "update"


def test_absent_and_null_are_the_same() -> None:
    for fields in (PayloadFields({}), PayloadFields(dict.fromkeys(("a",)))):
        assert "a" not in fields
        assert (fields.text("a"), fields.flag("a"), fields.count("a"), fields.label("a", most=9)) == ("", False, 0, "")
        assert fields.maybe("a") is None
        assert fields.objects("a", most=1) == ()


READS: dict[str, Callable[[PayloadFields], object]] = {
    "true or false": lambda fields: fields.flag("a"),
    f"text of at most {TEXT_AT_MOST:,} characters": lambda fields: fields.text("a"),
    "an object": lambda fields: fields.object("a"),
    "a list of at most 2": lambda fields: fields.objects("a", most=2),
}


WRONG: list[tuple[str, object]] = [
    ("true or false", 1),
    ("true or false", "true"),
    (f"text of at most {TEXT_AT_MOST:,} characters", 5),
    (f"text of at most {TEXT_AT_MOST:,} characters", "a" * (TEXT_AT_MOST + 1)),
    ("an object", []),
    ("an object", None),
    ("a list of at most 2", {}),
    ("a list of at most 2", [{}, {}, {}]),
]


@pytest.mark.parametrize(("wanted", "given"), WRONG)
def test_a_refusal_names_the_field_and_what_is_wanted(wanted: str, given: object) -> None:
    with pytest.raises(Malformed) as caught:
        READS[wanted](PayloadFields({"a": given}, "event.message"))
    assert str(caught.value) == f"event.message.a: {wanted} is wanted"


def test_an_object_knows_its_place_and_its_kind() -> None:
    inner = Updates({"a": {"b": [{}, {"c": "deep"}]}}).object("a").objects("b", most=2)[1]
    assert isinstance(inner, Updates)
    assert inner.text("c") == "deep"
    with pytest.raises(Malformed, match=r"^a\.b\.c: an object is wanted$"):
        inner.object("c")
    with pytest.raises(Malformed, match=r"^update: an object is wanted$"):
        Updates([])
    with pytest.raises(Malformed, match=r"^a\.b: an object is wanted$"):
        Updates({"a": {"b": [5]}}).object("a").objects("b", most=2)


def test_unstorable_characters_are_replaced() -> None:
    assert PayloadFields({"a": "x\x00y\ud83dz"}).text("a") == "x\ufffdy\ufffdz"


@pytest.mark.parametrize(
    ("given", "counted"),
    [
        (5, 5), (0, 0), (-1, 0), (True, 0), (None, 0), ("5", 0), (5.0, 0), ([], 0), ({}, 0), (LARGEST, LARGEST),
        (LARGEST + 1, 0), (2**70, 0),
    ],
)  # fmt: skip
def test_impossible_size_is_none(given: object, counted: int) -> None:
    assert PayloadFields({"a": given}).count("a") == counted


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("  a \n b\t", "a b"),
        ("a\nb\r\n\x00.c", "a b .c"),
        ("../../etc", "../../etc"),
        ("\u202egpj.exe", "gpj.exe"),
        ("b\u202ew.exe", "b w.exe"),
        ("\ud800half", "half"),
        ("\u200b \u200b", ""),
        ("   ", ""),
        ("", ""),
        (None, ""),
        (7, ""),
        ("abcdefgh ij", "abcdefgh"),
        ("x" * 1_000_000, "x" * 9),
    ],
)
def test_a_label_is_one_line_that_can_be_seen(given: object, shown: str) -> None:
    assert PayloadFields({"a": given}).label("a", most=9) == shown


@pytest.mark.parametrize(
    ("payload", "kept"),
    [({"a": "ü\ud83d"}, '{"a": "\\u00fc\\ud83d"}'), ("x" * 20, '"xxxxxxxxxxxxxxxxxxx'), ({1, 2}, "")],
)
def test_any_payload_can_be_stored(payload: object, kept: str) -> None:
    assert as_ascii(payload, 24 if isinstance(payload, dict) else 20) == kept


def test_a_number_that_is_longer_than_can_be_written_is_nothing() -> None:
    assert as_ascii({"a": 10**5000}, None) == ""


def test_payload_nested_too_deep_to_write_is_empty() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert as_ascii(deep, None) == ""
