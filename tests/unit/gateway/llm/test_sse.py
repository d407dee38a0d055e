from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.llm.sse import EventSplitter, EventTooLong


def events(*parts: bytes) -> list[bytes]:
    splitter = EventSplitter()
    found = [event for part in parts for event in splitter.feed(part)]
    return found + splitter.end()


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b": keep alive\n\nevent: x\nid: 1\nretry: 5\ndata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: a\n\ndata: [DONE]", [b"a", b"[DONE]"]),
        (b"data: a\r\n\r\ndata: b\r", [b"a", b"b"]),
        (b"data:\n\n", [b""]),
        (b"<html>\n\n", []),
        (b"", []),
    ],
)
def test_events_of_a_stream(stream: bytes, expected: list[bytes]) -> None:
    assert events(stream) == expected


@given(
    lines=st.lists(st.sampled_from([b"data: x", b"data: \xc3\xa9", b": c", b"", b"event: e"]), max_size=12),
    ends=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    cuts=st.lists(st.integers(min_value=0, max_value=120), max_size=8),
)
def test_events_are_the_same_for_any_split_of_bytes(lines: list[bytes], ends: bytes, cuts: list[int]) -> None:
    stream = b"".join(line + ends for line in lines)
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    parts = [stream[start:end] for start, end in pairwise(edges)]

    assert events(*parts) == events(stream)


@pytest.mark.parametrize("stream", [[b"data: 0123456789"], [b"data: 0", b"123456789"], [b"data: 01234\n" * 2]])
def test_an_event_without_end_is_refused(stream: list[bytes]) -> None:
    *first, last = stream
    splitter = EventSplitter(max_event_bytes=9)
    for part in first:
        assert splitter.feed(part) == []

    with pytest.raises(EventTooLong):
        splitter.feed(last)


def test_lines_that_say_nothing_are_not_gathered_for_ever() -> None:
    splitter = EventSplitter(max_event_bytes=1_000)
    with pytest.raises(EventTooLong):
        splitter.feed(b"data:\n" * 100)
