from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain.steps import Answer, Usage
from gateway.domain.tools import ARGUMENTS_AT_MOST, NAMED_AT_MOST
from gateway.errors import ModelError
from gateway.llm.openai_answer import CUT_NOTE, AnswerLimits, AnswerParser

SMALL = AnswerLimits(text_chars=20, reasoning_chars=20, argument_chars=40, calls=2, chunk_bytes=2_000)


def refused(error: object) -> ModelError:
    return ModelError(f"refused {error}")


def event(chunk: object) -> bytes:
    return f"data: {json.dumps(chunk)}\n\n".encode()


def delta(finish: str | None = None, **fields: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})


def call(index: int | None = None, call_id: str | None = None, name: str | None = None, arguments: Any = None) -> bytes:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fields: dict[str, Any] = {"function": function}
    if index is not None:
        fields["index"] = index
    if call_id is not None:
        fields["id"] = call_id
    return delta(tool_calls=[fields])


STOP = delta("stop")
CALLS = delta("tool_calls")
DONE = b"data: [DONE]\n\n"


def assembled(*parts: bytes, taken: tuple[str, ...] = (), limits: AnswerLimits | None = None) -> tuple[Answer, str]:
    """Return the answer and the streamed text."""
    assembly = AnswerParser(refused, limits or AnswerLimits())
    streamed = "".join(assembly.feed(part) for part in parts)
    streamed += assembly.end()
    streamed += assembly.finish()
    return assembly.answer("openai:m", taken), streamed


def calls_of(*parts: bytes, taken: tuple[str, ...] = ()) -> list[tuple[str, str, str]]:
    answer, _ = assembled(*parts, taken=taken)
    return [(made.id, made.tool, made.arguments) for made in answer.calls]


# --- text, usage, the end ---------------------------------------------------------------------------


def test_text_figures_and_the_name_of_the_model() -> None:
    figures = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    answer, streamed = assembled(
        delta(role="assistant", content=""),
        delta(content="Hel"),
        delta(content="lo"),
        STOP,
        event({"choices": [], "usage": figures}),
        DONE,
    )

    assert streamed == "Hello"
    assert answer == Answer(
        text="Hello", model="openai:m", usage=Usage(input_tokens=9, output_tokens=2, cached_tokens=4)
    )


@pytest.mark.parametrize("ending", [[STOP, DONE], [STOP], [STOP, DONE, b"data: {broken"], [delta("eos"), DONE]])
def test_a_finish_reason_makes_an_answer_whole(ending: list[bytes]) -> None:
    assert assembled(delta(content="Hi"), *ending)[0].text == "Hi"


@pytest.mark.parametrize("stream", [[], [DONE], [delta(content="Hi")], [delta(content="Hi"), DONE], [b": ping\n\n"]])
def test_a_stream_that_ends_without_a_finish_reason_is_no_answer(stream: list[bytes]) -> None:
    with pytest.raises(ModelError, match="ended before its answer was whole") as caught:
        assembled(*stream)
    assert caught.value.retryable


def test_text_after_the_finish_means_an_unfinished_answer() -> None:
    with pytest.raises(ModelError, match="ended before its answer was whole"):
        assembled(delta("stop", content="Hi"), delta(content=" there"), DONE)

    assert assembled(delta("stop", content="Hi"), delta("stop", content=" there"), DONE)[0].text == "Hi there"
    assert assembled(delta("stop", content="Hi"), delta(content="", role="assistant"), DONE)[0].text == "Hi"


def test_null_written_out_is_no_finish() -> None:
    with pytest.raises(ModelError, match="ended before its answer was whole"):
        assembled(delta("null", content="Hi"), DONE)


@pytest.mark.parametrize("reason", ["tool_calls", "function_call"])
def test_a_call_that_was_announced_and_did_not_come_is_an_error(reason: str) -> None:
    with pytest.raises(ModelError, match="announced a call") as caught:
        assembled(delta(content="Let me look."), delta(reason), DONE)
    assert caught.value.retryable


@pytest.mark.parametrize("reason", ["length", "max_tokens"])
def test_a_text_cut_at_the_output_limit_is_kept_and_says_so(reason: str) -> None:
    answer, streamed = assembled(delta(content="Once upon"), delta(reason), DONE)

    assert answer.text == streamed == f"Once upon{CUT_NOTE}"


@pytest.mark.parametrize(
    ("stream", "words", "retryable"),
    [
        ([call(0, "a", "shell", '{"com'), delta("length")], "in the middle of a call", False),
        ([delta(content="x"), call(0, "a", "shell", "{}"), delta("length")], "in the middle of a call", False),
        ([delta("length")], "before it said anything", False),
        ([delta(content="x"), delta("content_filter")], "content filter", False),
        ([delta(content="x"), delta("error")], "broke off", True),
        ([delta(content="x"), b"data: {oops\n\n"], "not a chunk", True),
        ([b"data: [1]\n\n"], "not a chunk", True),
        ([b"data: " + b"[" * 10_000 + b"\n\n"], "not a chunk", True),
        ([b"data: " + b"[" * 100_000 + b"\n\n"], "a chunk of more than 50,000 parts", False),
        ([b'data: {"choices":[' + b"{}," * 30_000 + b"{}]}\n\n"], "a chunk of more than 50,000 parts", False),
        ([b'data: {"x":"\\"","y":[' + b"1," * 50_000 + b"1]}\n\n"], "a chunk of more than 50,000 parts", False),
        ([delta(content="x"), event({"error": {"message": "boom"}})], "refused .*boom", False),
    ],
)
def test_malformed_answer_is_an_error(stream: list[bytes], words: str, retryable: bool) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        assembled(*stream, DONE)
    assert caught.value.retryable is retryable


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        ([delta(content="x" * 11)] * 2, "longer than 20"),
        ([delta(reasoning_content="x" * 21)], "reasoning is longer"),
        ([delta(reasoning_details=[{"type": "t", "text": "x" * 21}])], "reasoning is longer"),
        ([call(0, "a", "shell", "x" * 20)] * 2, "exceed 40"),
        ([call(n, f"i{n}", "t") for n in range(3)], "more than 2 calls"),
        ([delta(role="x" * 2_000)], "an event of more than 2,000 bytes"),
    ],
)
def test_an_answer_is_bounded(stream: list[bytes], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        assembled(*stream, STOP, limits=SMALL)


def test_too_long_text_is_refused_before_processing() -> None:
    """Joining and replacing six million surrogate halves took 2 s; reading them takes 0.2 s."""
    stream = b'data: {"choices":[{"delta":{"content":"' + b"\\ud800" * 6_000_000 + b'"}}]}\n\n'
    began = time.thread_time()
    with pytest.raises(ModelError, match="longer than 20"):
        assembled(stream, limits=AnswerLimits(text_chars=20, chunk_bytes=2 * len(stream)))
    assert time.thread_time() - began < 1


def test_an_event_is_bounded_before_it_is_read() -> None:
    """A number of 4,300 digits takes 0.1 ms to parse, and 16 MiB hold very many."""
    with pytest.raises(ModelError, match="more than 4,194,304 bytes"):
        assembled(b'data: {"x":[' + b"9" * 4_299 + (b"," + b"9" * 4_299) * 1_000 + b"]}\n\n")


def test_surrogate_halves_in_calls_and_reasoning_are_repaired() -> None:
    pieces = ["a\ud83d", "\ude00", "\ud83d"]
    answer, _ = assembled(
        *(delta(reasoning_content=piece) for piece in pieces), *(call(0, "i", "t", piece) for piece in pieces), CALLS
    )
    assert answer.calls[0].arguments == "a😀\ufffd"
    assert answer.opaque == {"openai": {"reasoning_content": "a😀\ufffd"}}


# --- odd servers --------------------------------------------------------------------------------


def test_fields_of_unexpected_types_are_passed_over() -> None:
    answer, _ = assembled(
        event({"choices": None}),
        event({"choices": [None, {"index": 1, "delta": {"content": "second choice"}}]}),
        event({"choices": [{"delta": None}]}),
        delta(role="martian", content=7, tool_calls="no", reasoning=3, reasoning_details={}),
        event({"choices": [], "usage": {"prompt_tokens": "many", "completion_tokens": -3}}),
        delta(content=[{"type": "thinking", "text": "hm"}, {"type": "text", "text": "Hi"}]),
        STOP,
    )

    assert answer == Answer(text="Hi", model="openai:m")


def test_split_surrogate_pair_is_joined_and_a_lone_half_replaced() -> None:
    answer, streamed = assembled(
        b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"\\ude00b\\udc00"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"\\ud83d"},"finish_reason":"stop"}]}\n\n',
    )

    assert answer.text == streamed == "a😀b\ufffd\ufffd"


def test_a_whole_completion() -> None:
    assembly = AnswerParser(refused)
    message = {"content": "Hi", "tool_calls": [{"id": "a", "function": {"name": "shell", "arguments": "{}"}}]}
    text = assembly.feed_completion(json.dumps({"choices": [{"message": message}], "usage": {}}).encode())

    assert text + assembly.finish() == "Hi"
    assert [made.tool for made in assembly.answer("m", ()).calls] == ["shell"]


# --- calls --------------------------------------------------------------------------------------


def test_parallel_calls_in_fragments_are_put_together_by_index() -> None:
    assert calls_of(
        call(0, "a", "shell", ""),
        call(1, "b", "browser", '{"u'),
        call(0, None, None, '{"command":'),
        call(1, None, None, 'rl":1}'),
        call(0, None, None, '"ls"}'),
        CALLS,
    ) == [("a", "shell", '{"command":"ls"}'), ("b", "browser", '{"url":1}')]


def test_calls_stand_in_the_order_of_their_index() -> None:
    assert [made[0] for made in calls_of(call(1, "b", "t"), call(0, "a", "t"), CALLS)] == ["a", "b"]


@pytest.mark.parametrize("index", [0, None])
def test_whole_calls_that_share_an_index_or_have_none_stay_apart(index: int | None) -> None:
    assert calls_of(call(index, "a", "shell", "{}"), call(index, "b", "shell", '{"x":1}'), CALLS) == [
        ("a", "shell", "{}"),
        ("b", "shell", '{"x":1}'),
    ]


def test_a_server_that_repeats_id_and_name_in_every_fragment() -> None:
    assert calls_of(call(0, "a", "shell", '{"x"'), call(0, "a", "shell", ":1}"), CALLS) == [("a", "shell", '{"x":1}')]


def test_whole_calls_of_one_index_without_ids_stay_apart() -> None:
    found = calls_of(call(0, None, "shell", '{"a":1}'), call(0, None, "shell", '{"a":2}'), CALLS)

    assert found == [("call_1", "shell", '{"a":1}'), ("call_2", "shell", '{"a":2}')]


def test_fragments_with_a_repeated_name_and_no_id_are_one_call() -> None:
    assert calls_of(
        call(0, None, "shell", '{"a":{}'), call(0, None, "shell", ',"b":1}'), call(0, None, "shell", ""), CALLS
    ) == [("call_1", "shell", '{"a":{},"b":1}')]


def test_too_long_call_is_cut_to_just_above_its_limit() -> None:
    long = '{"command":"' + "x" * ARGUMENTS_AT_MOST
    ((_, tool, arguments),) = calls_of(call(0, "a", "t" * 300, long), call(0, "a", "u" * 300, long), CALLS)
    assert tool == "t" * NAMED_AT_MOST
    assert arguments == long[: ARGUMENTS_AT_MOST + 1]
    ((_, _, whole),) = calls_of(call(0, "a", "shell", "x" * ARGUMENTS_AT_MOST), CALLS)
    assert len(whole) == ARGUMENTS_AT_MOST
    halves = [call(0, None, "n", half) for half in ["\ud83d", "\ude00"] * 3]
    ((_, _, joined),) = calls_of(*halves, CALLS)
    assert joined == "\U0001f600" * 3


def test_checks_for_the_end_of_calls_without_ids_are_bounded() -> None:
    """Each check of long arguments takes 1 ms, and one was made for every fragment ending in a brace."""
    short = [call(0, None, "shell", f'{{"n":{n}}}') for n in range(300)]
    assert len(calls_of(*short, CALLS)) == 300
    long = call(0, None, "shell", '{"command":"' + "x" * 900_000)
    began = time.thread_time()
    ((_, _, arguments),) = calls_of(long, *[call(0, None, "shell", "}") for _ in range(20_000)], CALLS)
    assert arguments.endswith("}" * 20_000)
    assert time.thread_time() - began < 8  # some 20 s, when each was looked at; half a second now


def test_an_end_that_is_followed_by_nothing_is_still_seen() -> None:
    blank = [call(0, None, "ls", ""), call(0, None, None, " \n")]
    made = calls_of(call(0, None, "ls", '{"n":1}'), *blank, call(0, None, "ls", "{}"), CALLS)
    assert [arguments for _, _, arguments in made] == ['{"n":1} \n', "{}"]


def test_arguments_sent_as_an_object_are_written_down() -> None:
    assert calls_of(call(0, "a", "shell", {"x": "é"}), CALLS) == [("a", "shell", '{"x": "é"}')]


@pytest.mark.parametrize("arguments", ["", "{", "null", '{"a":1}{"b":2}', "\ufffd"])
def test_arguments_stay_as_they_came(arguments: str) -> None:
    assert calls_of(call(0, "a", "shell", arguments), STOP) == [("a", "shell", arguments)]


def test_unusable_call_ids_become_unique_in_the_transcript() -> None:
    found = calls_of(
        call(0, None, "t"),
        call(1, "a", "t"),
        call(2, "a", "t"),
        call(3, "x" * 129, "t"),
        call(4, "é", "t"),
        call(5, "old", "t"),
        CALLS,
        taken=("old", "call_1"),
    )

    assert [made[0] for made in found] == ["call_2", "a", "call_3", "call_4", "call_5", "call_6"]


def test_two_hundred_parallel_calls() -> None:
    found = calls_of(*(call(n, "same", "t", "{}") for n in range(200)), CALLS)

    assert len({made[0] for made in found}) == 200


# --- what goes back unchanged ---------------------------------------------------------------------


def test_reasoning_is_kept_for_the_provider() -> None:
    answer, streamed = assembled(
        delta(reasoning_content="let me "),
        delta(reasoning_content="see"),
        delta(reasoning="also"),
        delta(content="42"),
        STOP,
    )

    assert streamed == "42"
    assert answer.opaque == {"openai": {"reasoning_content": "let me see", "reasoning": "also"}}


def test_fragments_of_reasoning_blocks_become_whole_blocks() -> None:
    answer, _ = assembled(
        delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "a", "signature": None}]),
        delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "b", "signature": "s"}]),
        delta(reasoning_details=[{"type": "reasoning.encrypted", "index": 1, "data": "x"}]),
        delta(reasoning_details=[{"type": "reasoning.encrypted", "data": "y"}]),
        STOP,
    )

    assert answer.opaque["openai"]["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "ab", "signature": "s"},
        {"type": "reasoning.encrypted", "index": 1, "data": "x"},
        {"type": "reasoning.encrypted", "data": "y"},
    ]


def test_long_reasoning_block_is_not_copied_for_each_fragment() -> None:
    def part(text: str) -> bytes:
        return delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": text}])

    began = time.thread_time()
    answer, _ = assembled(part("x" * 2_500_000), part("y") * 20_000, part("z"), STOP)
    assert time.thread_time() - began < 3  # 7 s once; a fifth of a second now
    ((block,),) = (answer.opaque["openai"]["reasoning_details"],)
    assert block["text"] == "x" * 2_500_000 + "y" * 20_000 + "z"


def test_a_text_is_no_part_of_its_chunk_whatever_stands_in_it() -> None:
    text = '{"a": [1, 2, "\\\\"]}, ' * 20_000
    answer, _ = assembled(delta(content=text), call(0, "a", "write", json.dumps({"text": text})), CALLS)
    assert answer.text == text
    assert json.loads(answer.calls[0].arguments) == {"text": text}


@pytest.mark.parametrize(
    "text", [b'{"x":"' + b',\\"' * 400_000, b'{"x":"' + b",\\" * 500_001, b'{"x":' + b'",' * 500_001]
)
def test_chunk_cut_inside_a_string_is_refused_in_linear_time(text: bytes) -> None:
    """93 kB of unterminated escaped quotes took 8 s, quadratic in their length."""
    began = time.thread_time()
    with pytest.raises(ModelError):
        assembled(b"data: " + text + b"\n\n")
    assert time.thread_time() - began < 2


def test_empty_fragments_are_not_stored_and_are_bounded() -> None:
    assembly = AnswerParser(refused, AnswerLimits(argument_chars=1_000))
    nothing = call(0, "", "", "")
    with pytest.raises(ModelError, match="arguments of the model's calls exceed"):
        assembly.feed(nothing * 100)


def test_attached_data_is_dropped_when_it_is_not_strict_json() -> None:
    """Python reads and writes NaN; a strict server would refuse every later request of the conversation."""
    parts = [b'{"type":"t","x":NaN}', b'{"type":"t","x":1e999}']
    for part in parts:
        chunk = b'data: {"choices":[{"delta":{"content":"hi","reasoning_details":[' + part + b"]}}]}\n\n"
        answer, _ = assembled(chunk, STOP)
        assert answer.opaque == {}
        fields = b'{"index":0,"function":{"name":"t","arguments":"{}"},"extra_content":' + part + b"}"
        answer, _ = assembled(b'data: {"choices":[{"delta":{"tool_calls":[' + fields + b"]}}]}\n\n", CALLS)
        assert answer.opaque == {}


@pytest.mark.whole("a second of CPU; twenty thousand pieces of a block stay")
def test_reasoning_in_single_words_may_reach_the_usual_length() -> None:
    fields = {"type": "reasoning.text", "id": "rs_0123456789", "format": "openai-responses-v1", "index": 0}
    part = delta(reasoning_details=[{**fields, "text": "word "}])
    answer, _ = assembled(part * 100_000, STOP)
    ((block,),) = (answer.opaque["openai"]["reasoning_details"],)
    assert len(block["text"]) == 500_000


def test_attached_data_of_a_call_is_stored_under_its_final_id() -> None:
    fields = {"index": 0, "function": {"name": "t", "arguments": "{}"}, "extra_content": {"google": "signature"}}
    answer, _ = assembled(delta(tool_calls=[fields]), CALLS)

    assert answer.opaque == {"openai": {"calls": {"call_1": {"extra_content": {"google": "signature"}}}}}


# --- any boundary -----------------------------------------------------------------------------------

WHOLE = b"".join(
    [
        b": keep alive\r\n\r\n",
        delta(role="assistant", content="", reasoning_content="hm"),
        'data: {"choices":[{"delta":{"content":"Grüße 😀 "}}]}\n\n'.encode(),
        b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\r\n\r\n',
        b'data: {"choices":[{"delta":{"content":"\\ude00"}}]}\r\r',
        call(0, "a", "shell", '{"command":'),
        call(1, "b", "browser", "{"),
        call(0, None, None, '"ls"}'),
        CALLS,
        event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}),
        DONE,
    ]
)


@settings(deadline=None)
@given(cuts=st.lists(st.integers(min_value=0, max_value=len(WHOLE)), max_size=30))
def test_answer_is_the_same_for_any_split_of_bytes(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(WHOLE)]
    parts = [WHOLE[start:end] for start, end in pairwise(edges)]

    answer, streamed = assembled(*parts)

    assert (answer, streamed) == assembled(WHOLE)
    assert streamed == answer.text == "Grüße 😀 😀"
    assert [made.arguments for made in answer.calls] == ['{"command":"ls"}', "{"]


def test_byte_by_byte() -> None:
    assert assembled(*(WHOLE[n : n + 1] for n in range(len(WHOLE)))) == assembled(WHOLE)


def test_no_shorter_stream_makes_a_shorter_answer() -> None:
    whole, _ = assembled(WHOLE)
    for end in range(len(WHOLE)):
        try:
            answer, _ = assembled(WHOLE[:end])
        except ModelError:
            continue
        assert (answer.text, answer.calls) == (whole.text, whole.calls)
