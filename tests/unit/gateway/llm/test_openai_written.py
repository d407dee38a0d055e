"""Cache of messages as JSON: each is encoded once, with the same result as without the cache."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.ids import CallId
from gateway.domain.prompts import CallResult, Message, ModelRequest, UserText
from gateway.domain.steps import Answer
from gateway.domain.tools import ResultStatus, ToolCall, ToolResult
from gateway.llm.dialects import Dialect
from gateway.llm.openai_payload import (
    CHARS_KEPT,
    CHARS_OF_ONE,
    MESSAGES_KEPT,
    OPAQUE,
    MessageJsonCache,
    messages,
    request_body,
)
from tests.support.makers import BOB

OK = ToolResult(status=ResultStatus.OK, text="fine")
OWN, OTHER = "openai:m", "anthropic:n"
CALL = ToolCall(id=CallId("c 1"), tool="shell", arguments='{"command":"ls"}')
MESSAGES: tuple[Message, ...] = (
    UserText(text="Hi"),
    UserText(text=" "),
    UserText(text="Hi", name="Bob", who=BOB),
    UserText(text="Hi", data="what others said"),
    Answer(text="Yes.", model=OWN, opaque={OPAQUE: {"reasoning_content": "hm"}}),
    Answer(text=""),
    Answer(text="", model=OWN, calls=(CALL,)),
    Answer(text="", model=OTHER, calls=(CALL,)),
    CallResult(call=CALL.id, tool="shell", result=OK),
    CallResult(
        call=CallId("another"), tool="shell", result=ToolResult(status=ResultStatus.OK, text="x", untrusted=True)
    ),
)
DIALECTS = (Dialect(), Dialect(reasoning=False), Dialect(reasoning_everywhere=True, system_role="developer"))
REQUESTS = st.tuples(
    st.lists(st.sampled_from(MESSAGES), max_size=12),
    st.sampled_from(["", "m4rk", "an0ther"]),
    st.sampled_from([OWN, OTHER]),
    st.sampled_from(DIALECTS),
)


@given(st.lists(REQUESTS, max_size=8))
def test_a_request_is_the_same_whatever_was_asked_before(
    asked: list[tuple[list[Message], str, str, Dialect]],
) -> None:
    written = MessageJsonCache()
    for given_ones, mark, who, dialect in asked:
        request = ModelRequest(system="Be kind.", messages=tuple(given_ones), tools=(), mark=mark)
        body = json.loads(request_body("m", request, answered_by=who, dialect=dialect, written=written))
        assert body["messages"] == messages(request, answered_by=who, dialect=dialect)


def made_for(message: Message, times: list[Message], text: str = "x") -> list[dict[str, Any]]:
    times.append(message)
    return [{"text": text}]


def test_a_message_is_written_once_for_as_long_as_it_is_the_same() -> None:
    written, times = MessageJsonCache(), list[Message]()
    one, alike = UserText(text="one"), UserText(text="one")
    for how, message in [("a", one), ("a", one), ("b", one), ("b", one), ("b", alike), ("b", one)]:
        assert written.json(message, how, lambda message=message: made_for(message, times)) == '{"text":"x"}'
    assert times == [one, one, alike]
    assert times[-1] is alike


LONG = "x" * (CHARS_OF_ONE + 1)
LONG_ONES: list[Message] = [
    UserText(text=LONG),
    UserText(text="Hi", data=LONG),
    CallResult(call=CALL.id, tool="shell", result=ToolResult(status=ResultStatus.OK, text=LONG)),
    Answer(text="", calls=(ToolCall(id=CallId("c1"), tool="shell", arguments="{" + LONG),)),
    Answer(text="Hi", model=OTHER, opaque={OPAQUE: {"reasoning_details": [{"text": LONG}]}}),
]


@pytest.mark.parametrize("message", LONG_ONES)
def test_long_message_is_not_cached_even_if_its_json_is_short(message: Message) -> None:
    """A hundred invalid arguments of 1 MB kept 90 MB in memory, counted as 224,280 characters."""
    written, times = MessageJsonCache(), list[Message]()
    short = UserText(text="short")
    for one in (short, message, message, short):
        written.json(one, "", lambda one=one: made_for(one, times))
    assert times == [short, message, message]


@pytest.mark.parametrize(("count", "text"), [(MESSAGES_KEPT, "x"), (10, "x" * (CHARS_KEPT // 10))])
def test_cache_is_bounded_by_number_and_by_length(count: int, text: str) -> None:
    written, times = MessageJsonCache(), list[Message]()
    first, *others = [UserText(text=str(n)) for n in range(count + 1)]
    for message in [first, *others, others[-1], first]:
        written.json(message, "", lambda message=message: made_for(message, times, text))
    assert times == [first, *others, first]
