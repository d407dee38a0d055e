from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.domain.ids import Handle, OwnerName, SessionId
from gateway.domain.messages import Conversation, Inbound, Press
from gateway.errors import BadRequest
from gateway.server.page import ids, inbound
from gateway.server.page.inbound import TEXT_AT_MOST, Close, Frame, Older, Open, PagePress, Say, parse, unpack
from tests.support.makers import ANN, EPOCH
from tests.support.proof import examples

SAY = {"op": "say", "id": "say-0001", "text": "hello"}
PRESS = {"op": "press", "id": "press-01", "handle": "w1.x", "reason": ""}


def read(frame: object) -> Frame:
    return parse(unpack(frame if isinstance(frame, str) else json.dumps(frame)), ANN, EPOCH)


def test_a_message_is_the_owners_whatever_the_frame_claims() -> None:
    found = read({**SAY, "owner": "cleo", "principal": "web:cleo", "name": "Cleo", "direct": False, "chat": "cleo"})

    assert found == Say(
        "say-0001",
        Inbound(
            event_key="ann:say-0001",
            conversation=Conversation(channel="web", account="page", chat="ann"),
            principal=ids.principal(ANN),
            name="ann",
            direct=True,
            addressed=True,
            text="hello",
            sent_at=EPOCH,
        ),
    )


def test_a_press_is_the_owners_too() -> None:
    found = read({**PRESS, "reason": "because", "principal": "web:cleo", "verb": "once"})

    assert found == PagePress(
        "press-01",
        Press(
            event_key="ann:press-01",
            conversation=ids.conversation(ANN),
            principal=ids.principal(ANN),
            handle=Handle("w1.x"),
            reason="because",
        ),
    )


@pytest.mark.parametrize(
    ("frame", "found"),
    [
        ({"op": "open", "session": "s"}, Open(SessionId("s"), None)),
        ({"op": "open", "session": "s", "after": None}, Open(SessionId("s"), None)),
        ({"op": "open", "session": "s", "after": 0}, Open(SessionId("s"), 0)),
        ({"op": "open", "session": "s", "after": 7}, Open(SessionId("s"), 7)),
        ({"op": "close", "session": "s"}, Close(SessionId("s"))),
        ({"op": "older", "session": "s", "before": 9}, Older(SessionId("s"), 9)),
    ],
)
def test_frame_of_a_page_is_read(frame: object, found: Frame) -> None:
    assert read(frame) == found


MALFORMED: list[tuple[Any, str]] = [
    ("", "not JSON"),
    ("{", "not JSON"),
    ("\x00", "not JSON"),
    ("[" * 100_000, "not JSON"),
    ("null", "JSON object"),
    ("[]", "JSON object"),
    ("7", "JSON object"),
    ('"say"', "JSON object"),
    ({}, "no op"),
    ({"op": None}, "no op"),
    ({"op": 7}, "no op"),
    ({"op": ["say"]}, "no op"),
    ({"op": "SAY"}, "no op"),
    ({"op": "x" * 10_000}, "no op"),
    ({"op": "open"}, "session: text is wanted"),
    ({"op": "open", "session": 7}, "session: text is wanted"),
    ({"op": "open", "session": "a\x00b"}, "session: text is wanted"),
    ({"op": "open", "session": "s", "after": "7"}, "after: a whole number"),
    ({"op": "open", "session": "s", "after": -1}, "after: a whole number"),
    ({"op": "open", "session": "s", "after": 1.5}, "after: a whole number"),
    ({"op": "open", "session": "s", "after": True}, "after: a whole number"),
    ({"op": "open", "session": "s", "after": 2**53}, "after: a whole number"),
    ({"op": "older", "session": "s"}, "before: a whole number"),
    ({"op": "older", "session": "s", "before": None}, "before: a whole number"),
    ({"op": "close"}, "session: text is wanted"),
    ({**SAY, "text": None}, "text: text is wanted"),
    ({**SAY, "text": ["hello"]}, "text: text is wanted"),
    ({**SAY, "text": "a\x00b"}, "text: text is wanted"),
    ({**SAY, "text": "half \ud83d of a pair"}, "text: text is wanted"),
    ({**SAY, "text": ""}, "it is empty"),
    ({**SAY, "text": " \n "}, "it is empty"),
    ({**SAY, "text": "x" * (TEXT_AT_MOST + 1)}, "longer than 200,000 characters"),
    ({**SAY, "id": None}, "id: text is wanted"),
    ({**SAY, "id": ""}, "id: 8 to 64"),
    ({**SAY, "id": "short"}, "id: 8 to 64"),
    ({**SAY, "id": "x" * 65}, "id: 8 to 64"),
    ({**SAY, "id": "say:0001"}, "id: 8 to 64"),
    ({**SAY, "id": "say-0001\n"}, "id: 8 to 64"),
    ({**PRESS, "handle": None}, "handle: text is wanted"),
    ({**PRESS, "handle": "w\ud800"}, "handle: text is wanted"),
    ({**PRESS, "id": 7}, "id: text is wanted"),
    ({**PRESS, "reason": "half \udc00"}, "reason: text is wanted"),
    ({**PRESS, "reason": "a\x00b"}, "reason: text is wanted"),
    ({**PRESS, "reason": 7}, "reason: text is wanted"),
]


@pytest.mark.parametrize(("frame", "says"), MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_frame_is_refused_with_what_is_wrong(frame: object, says: str) -> None:
    with pytest.raises(BadRequest) as wrong:
        read(frame)

    assert says in str(wrong.value)
    assert len(str(wrong.value)) < 200


@example('{"op": "say", "id": "say-0001", "text": "\\ud800"}')
@given(st.text())
@settings(deadline=None)
def test_any_text_may_come_as_a_frame(text: str) -> None:
    with pytest.raises(BadRequest):
        parse(unpack(text), ANN, EPOCH)


KEYS = ("session", "after", "before", "id", "text", "handle", "reason")
VALUES = st.text() | st.none() | st.integers() | st.booleans() | st.lists(st.text())


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, VALUES)),
    st.sampled_from(["open", "close", "older", "say", "press"]),
)
@settings(deadline=None, max_examples=examples(200))
def test_any_fields_may_come_in_a_frame(fields: dict[str, Any], op: str) -> None:
    try:
        found = read({**fields, "op": op})
    except BadRequest:
        return
    match found:
        case Say(_, message):
            assert message.principal == ids.principal(ANN)
            assert message.text.encode()
        case PagePress(_, press):
            assert press.principal == ids.principal(ANN)
            assert press.handle.encode() == str(press.handle).encode()
        case Open() | Close() | Older():
            assert found.session.encode() == str(found.session).encode()


def test_longest_message_is_taken_and_other_fields_are_cut() -> None:
    longest = read({**SAY, "text": "é" * TEXT_AT_MOST})
    assert isinstance(longest, Say)
    assert len(longest.message.text) == inbound.TEXT_AT_MOST == 200_000

    cut = read({**PRESS, "handle": "x" * 5000, "reason": "y" * 5000})
    assert isinstance(cut, PagePress)
    assert (len(cut.press.handle), len(cut.press.reason)) == (128, 4000)


def test_two_owners_pages_never_send_the_same_event() -> None:
    assert ids.event_key(ANN, "say-0001") != ids.event_key(OwnerName("cleo"), "say-0001")
    assert ids.conversation(ANN) != ids.conversation(OwnerName("cleo"))
