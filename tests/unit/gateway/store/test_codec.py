"""Codec of stored values: round trips lose nothing."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from gateway.domain.ids import CallId
from gateway.domain.messages import Conversation
from gateway.domain.steps import Answer, Usage
from gateway.domain.tools import NetworkMode, Picture, ResultStatus, SandboxMode, ToolCall, ToolResult
from gateway.store.codec import (
    ANSWER,
    APPROVAL,
    CALL,
    RESULT,
    dump_conversation,
    from_us,
    load_conversation,
    storable,
    to_us,
)
from tests.support.makers import approval

OF_EARLIER = (
    '{{"action":{{"tool":"shell","arguments":{{"command":"café","all":[1,null]}},"cwd":"/w","sandbox":"{}"}},'
    '"risk":"execute","action_key":"key","action_sha":"sha-1","requester":"telegram:1001","rendered":"date",'
    '"escaped":false,"note":"","scope":""}}'
)
"""An approval as it was stored when a sandbox was a text, and none the empty one."""


@pytest.mark.parametrize(("stored", "sandbox"), [("basic", SandboxMode.BASIC), ("off", SandboxMode.OFF), ("", None)])
def test_an_approval_of_earlier_is_read_and_written_as_it_was(stored: str, sandbox: SandboxMode | None) -> None:
    found = APPROVAL.load(OF_EARLIER.format(stored))

    assert found.action.sandbox is sandbox
    assert APPROVAL.dump(found) == OF_EARLIER.format(stored)


def test_an_approval_keeps_its_network_and_read_only_workspace() -> None:
    request = approval(3)
    for network in NetworkMode:
        action = replace(request.action, network=network, read_only=True)
        assert APPROVAL.load(APPROVAL.dump(replace(request, action=action))).action == action


def test_an_approval_whose_sandbox_nobody_knows_is_not_read() -> None:
    with pytest.raises(ValueError, match="sandbox"):
        APPROVAL.load(OF_EARLIER.format("none"))


def test_payloads_come_back_as_they_were() -> None:
    calls = (ToolCall(id=CallId("c1"), tool="shell", arguments='{"broken": '),)
    spoken = Answer(
        text='Grüße \x00 \u2028 "</script>',
        calls=calls,
        model="m",
        usage=Usage(input_tokens=1 << 40, cost_micros=7),
        note="`small` answered.",
        opaque={"openai": [{"deep": [None, 1.5, True, "ü"]}]},
    )
    assert ANSWER.load(ANSWER.dump(spoken)) == spoken
    came = ToolResult(
        status=ResultStatus.TIMEOUT,
        text="x" * 100_000,
        code="timeout",
        exit_code=-9,
        dropped_bytes=7,
        pictures=(Picture(file="b.png", media_type="image/png"), Picture(file="a.jpg", media_type="image/jpeg")),
    )
    assert RESULT.load(RESULT.dump(came)) == came
    assert APPROVAL.load(APPROVAL.dump(approval(3))) == approval(3)


def test_a_payload_of_another_version_is_read_with_defaults() -> None:
    assert ANSWER.load('{"text": "hi", "of_a_newer_version": 1}') == Answer(text="hi")
    before_prices = '{"text":"hi","calls":[],"model":"m","usage":{"input_tokens":5,"output_tokens":1},"opaque":{}}'
    assert ANSWER.load(before_prices) == Answer(text="hi", model="m", usage=Usage(input_tokens=5, output_tokens=1))
    before_pictures = '{"status":"ok","text":"done","code":"","hint":"","exit_code":null,"full_output":""}'
    assert RESULT.load(before_pictures) == ToolResult(status=ResultStatus.OK, text="done")


@pytest.mark.parametrize("place", [("telegram", "a/b", "-100"), ("slack", "w", "T0/C0", "1.2"), ("x", "", "", '"]')])
def test_places_differ_in_text_as_they_differ(place: tuple[str, ...]) -> None:
    channel, account, chat, *thread = place
    here = Conversation(channel=channel, account=account, chat=chat, thread="".join(thread))
    assert load_conversation(dump_conversation(here)) == here
    assert dump_conversation(here) != dump_conversation(Conversation(channel=channel, account=account, chat=f"{chat}/"))


def test_times_are_exact_to_the_microsecond_and_in_utc() -> None:
    moment = datetime(2026, 2, 3, 4, 5, 6, 789_123, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    assert from_us(to_us(moment)) == moment
    assert from_us(to_us(moment)).tzinfo is UTC
    with pytest.raises(TypeError):
        to_us(moment.replace(tzinfo=None))


def test_half_surrogate_pair_is_replaced_and_a_whole_one_joined() -> None:
    assert storable("a\ud83db") == "a\ufffdb"
    assert storable("\ud83d\ude00 and \udc00") == "😀 and \ufffd"
    assert storable("plain ü") == "plain ü"
    for text in ("a\ud83db", 'ü "quoted" \udc00'):
        assert ANSWER.dump(Answer(text=text)) == ANSWER.dump(Answer(text=storable(text)))


def test_half_surrogate_pairs_in_payloads_can_be_stored() -> None:
    """Also where a server attached something to a call: the names in it are its own."""
    attached = {"openai": {"\ud800": [{"\udc00": "a\ud83db"}, None, 1.5]}}
    call = ToolCall(id=CallId("c1"), tool="shell", arguments='"\ud83d"')
    whole = Answer(
        text="\ufffd",
        calls=(replace(call, arguments='"\ufffd"'),),
        opaque={"openai": {"\ufffd": [{"\ufffd": "a\ufffdb"}, None, 1.5]}},
    )
    assert ANSWER.load(ANSWER.dump(Answer(text="\ud83d", calls=(call,), opaque=attached))) == whole
    came = ToolResult(status=ResultStatus.ERROR, text="a\ud83db", pictures=(Picture(file="b", media_type="image/png"),))
    assert RESULT.load(RESULT.dump(came)) == replace(came, text="a\ufffdb")
    asked = replace(approval(3), rendered="rm \udc00")
    assert APPROVAL.load(APPROVAL.dump(asked)) == replace(asked, rendered="rm \ufffd")


def test_nothing_of_what_was_read_is_kept() -> None:
    """Short texts are not put aside for a next time that does not come."""

    def read(numbers: range) -> None:
        for n in numbers:
            CALL.load(f'{{"id":"call_{n:08}","tool":"shell","arguments":"ls {n}"}}')

    read(range(100))
    gc.collect()
    before = sys.getallocatedblocks()
    read(range(100, 3_100))
    gc.collect()
    assert sys.getallocatedblocks() - before < 100
