from __future__ import annotations

import asyncio
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress.bodies import CHUNKS_AT_ONCE, FRAMING_AT_MOST, BrokenBodyError, Chunks, Pulse, copy_body
from gateway.egress.dial import Ends
from tests.support.patience import PATIENCE_S
from tests.unit.gateway.egress.rig import opened

SMALL = b"6\r\nsmall!\r\n"
HEAD = b"POST http://inner.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


class Sink:
    """A writer that is never slow."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    async def drain(self) -> None:
        pass


@given(cuts=st.lists(st.integers(0, 46)))
def test_chunks_are_parsed_alike_for_any_split(cuts: list[int]) -> None:
    body = b"5;a=b\r\nhello\r\n1\r\n,\r\nA\r\n chunk\r\ned\r\n0\r\nX: y\r\n\r\n"
    chunks, at, found = Chunks(), 0, b""
    for cut in [*sorted(cuts), len(body)]:
        assert not chunks.ended or at == len(body)
        found += chunks.take(body[at:cut])
        at = max(at, cut)
    assert (found, chunks.ended) == (b"hello, chunk\r\ned", True)


def test_bytes_after_a_chunked_body_are_not_part_of_it() -> None:
    chunks = Chunks()
    assert chunks.take(SMALL + b"0\r\n\r\n" + SMALL) == b"small!"
    assert chunks.ended


def test_body_with_too_much_chunk_framing_is_refused() -> None:
    """Each chunk of one byte costs as much as one of a thousand; 1 MB of them held up everybody for half a minute."""
    short = Chunks()
    assert len(short.take(b"1\r\na\r\n" * 10_000)) == 10_000
    assert len(short.take(b"400\r\n" + b"x" * 1024 + b"\r\n")) == 1024
    with pytest.raises(BrokenBodyError, match="hardly more"):
        Chunks().take(b"1\r\na\r\n" * FRAMING_AT_MOST)
    padded = b"2;" + b"x" * 4_000 + b"\r\nok\r\n"
    with pytest.raises(BrokenBodyError, match="hardly more"):
        Chunks().take(padded * 20)


async def test_proxy_cuts_a_body_with_too_much_chunk_framing() -> None:
    async with opened() as rig, rig.connected() as ends, asyncio.timeout(PATIENCE_S):
        ends.writer.write(HEAD + b"1\r\na\r\n" * 200_000)
        with pytest.raises(ConnectionError):
            await ends.reader.read()
        assert rig.inner.requests == []


async def test_other_tasks_run_while_small_chunks_are_copied() -> None:
    """read() does not yield while its buffer has data: once, a whole body was copied without a pause."""
    read, sink = asyncio.StreamReader(), Sink()
    sent = SMALL * 100_000
    read.feed_data(sent + b"0\r\n\r\n")
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        ticking = group.create_task(others())
        ends = Ends(read, cast(asyncio.StreamWriter, sink))
        await copy_body(ends, ends, "chunked", Pulse(10.0))
        ticking.cancel()
    assert turns >= len(sent) // CHUNKS_AT_ONCE
    assert len(sink.written) <= turns + 2  # and they go on together
    copied = Chunks()
    assert copied.take(b"".join(sink.written)) == b"small!" * 100_000
    assert copied.ended


async def test_server_that_sends_only_interim_responses_is_given_up() -> None:
    async with opened() as rig:
        endless = await rig.get("http://inner.example/goes-on")
        assert endless.count(b"HTTP/1.1 100 ") == 20
        assert b"HTTP/1.1 502 " in endless
        assert b"sent only interim responses" in endless
        assert (await rig.get("http://inner.example/goes-on-a-little")).endswith(
            b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
        )
