"""Rendering of slots for Slack: messages, files, cards with buttons.

The files in `golden/` are complete renderings, compared exactly. After an intended change, rewrite them with
`DRAGOMAN_GOLDEN=write` in the environment, and read the difference before the commit.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slack_sdk.models.blocks import Block

from channels._shared.files import IN_FILE
from channels.slack.blocks import FormPlace, reason_form, verb_of
from channels.slack.inbound import Identity, SlackPress, read
from channels.slack.limits import (
    ACTION_CHARS,
    ACTION_ID_CHARS,
    BLOCKS,
    BUTTON_CHARS,
    CONTEXT_ELEMENTS,
    FALLBACK_CHARS,
    HEADER_CHARS,
    MESSAGE_CHARS,
    METADATA_CHARS,
    SECTION_CHARS,
    TEXT_PARTS,
    UPLOAD_BYTES,
    VALUE_CHARS,
)
from channels.slack.outbound import LINES, STATUS_CHARS
from channels.slack.parts import ROOM, FilePart, Part, SlackTextPart
from channels.slack.plain import escaped
from gateway.domain.ids import Handle
from gateway.domain.messages import Press
from gateway.domain.slots import SlotKind
from gateway.domain.tools import ACTION_BYTES, Risk
from gateway.domain.waits import Verb, WaitState
from tests.support.makers import ANN_SLACK, EPOCH
from tests.support.proof import examples
from tests.unit.channels.slack.showings import THREAD, buttons, card, code, files, kinds, row, shown, texts

GOLDEN = Path(__file__).parent / "golden"
MARKDOWN_CHARS = 12_000
"""Slack's limit for all markdown blocks of a message together."""
MODAL_TITLE_CHARS = 24
LONG = "\n".join(f"line {n} of an answer that goes on and on, with **bold** words and `code`" for n in range(400))
OUTPUT = "\n".join(f"{n:5} -rw-r--r-- 1 ann ann {n * 37:8} file-{n}.txt" for n in range(700))
MARKDOWN = """\
# Disk report

The root file system is **81 % full**; *none* of it is a backup. See [the guide](https://example.org/guide).

```bash
journalctl --vacuum-size=500M
```

| folder | size |
|---|---:|
| /var/log | 12 GB |

> Nothing was deleted. Ask <@U0BB> or <!channel>.
"""
THREE = [
    row("uptime", WaitState.CONSUMED, n=1),
    row("rm -r build", n=2, risk=Risk.WRITE, note="There is no sandbox here: this runs on the host."),
    row("curl https://example.org", n=3, risk=Risk.NETWORK),
]
GOLDENS: dict[str, list[Part]] = {
    "answer": shown(MARKDOWN),
    "answer-as-file": shown(LONG),
    "answer-output-as-file": shown(f"```\n{OUTPUT}\n```\nexit 0 · 0.2 s"),
    "answer-partial": shown("Looking at **the fi", partial=True),
    "answer-resent": shown("```sh\nls\n```\ndone", uncertain=True),
    "answer-two-messages": shown("```\n" + "x = 1  # a line of code\n" * 600 + "```\nThat was it."),
    "answer-rtl-emoji": shown("**سلام** 👍🏽 `קוד` :smile: &amp; <b>"),
    "card": card(row("git status && make test")),
    "card-three-rows-one-decided": card(*THREE),
    "card-escaped": card(row("echo \u202e'dm -rf'\t# <@U0BB> **x** `y`\nnext" + " " * 20 + "; ѕudo")),
    "card-expired": card(row("reboot", WaitState.EXPIRED)),
    "card-denied-with-reason": card(row("reboot", WaitState.DENIED, reason="not while\n<@U0BB> works")),
    "card-long": card(row("echo " + "x" * 9000)),
    "status": shown("▸ shell: `df -h` <!here> · 3 s", kind=SlotKind.STATUS),
}


def as_json(part: Part) -> dict[str, Any]:
    if isinstance(part, SlackTextPart):
        return {**part.payload(), "size": part.size, "digest": part.digest}
    assert isinstance(part, FilePart)
    sha = hashlib.sha256(part.data).hexdigest()
    comment = escaped(part.said)
    return {"name": part.name, "comment": comment, "bytes": len(part.data), "sha256": sha, "digest": part.digest}


@pytest.mark.parametrize("name", sorted(GOLDENS))
def test_a_rendering_is_what_it_was(name: str) -> None:
    path = GOLDEN / f"{name}.json"
    found = json.dumps([as_json(part) for part in GOLDENS[name]], indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("DRAGOMAN_GOLDEN") == "write":
        path.write_text(found)
    assert found == path.read_text()


def test_every_golden_file_is_compared() -> None:
    assert sorted(path.stem for path in GOLDEN.iterdir()) == sorted(GOLDENS)


# --- Slack's limits -------------------------------------------------------------------------------


def validate(block: Mapping[str, Any]) -> None:
    """Let the SDK's own model of the block look at it."""
    parsed = cast("Any", Block).parse(dict(block))
    assert parsed is not None, block["type"]
    parsed.validate_json()


def check_block(block: Mapping[str, Any]) -> None:
    """Fail for a block that Slack would refuse, by its documentation and its SDK."""
    validate(block)
    match block["type"]:
        case "header":
            assert 0 < len(block["text"]["text"]) <= HEADER_CHARS
        case "section":
            assert 0 < len(block["text"]["text"]) <= SECTION_CHARS
        case "context":
            assert 0 < len(block["elements"]) <= CONTEXT_ELEMENTS
            assert all(0 < len(one["text"]) <= SECTION_CHARS for one in block["elements"])
        case "actions":
            for button in block["elements"]:
                assert 0 < len(button["text"]["text"]) <= BUTTON_CHARS
                assert 0 < len(button["value"]) <= VALUE_CHARS
                assert 0 < len(button["action_id"]) <= ACTION_ID_CHARS
        case "markdown":
            assert block["text"].strip()
        case kind:
            assert kind == "rich_text"
            assert block["elements"][0]["elements"][0]["text"]


def check(parts: list[Part]) -> None:
    """No message is more than Slack takes, and none rings anybody."""
    for part in texts(parts):
        assert 0 < len(part.blocks) <= BLOCKS
        assert part.size <= MESSAGE_CHARS
        assert sum(len(b["text"]) for b in part.blocks if b["type"] == "markdown") <= MARKDOWN_CHARS
        names = [button["action_id"] for button in buttons(part)]
        assert len(set(names)) == len(names)
        for block in part.blocks:
            check_block(block)
        payload = part.payload()
        assert 0 < len(payload["text"]) <= FALLBACK_CHARS
        assert "<" not in payload["text"]
        json.dumps(payload).encode()
    for file in files(parts):
        assert 0 < len(file.data) <= UPLOAD_BYTES


@pytest.mark.parametrize("name", sorted(GOLDENS))
def test_slack_would_take_every_rendering(name: str) -> None:
    check(GOLDENS[name])


@settings(max_examples=examples(60), deadline=None)
@given(
    st.text(st.characters(exclude_categories=()), max_size=60),
    st.integers(1, 800),
    st.booleans(),
    st.booleans(),
    st.sampled_from(SlotKind),
)
def test_any_text_can_be_sent(text: str, times: int, partial: bool, uncertain: bool, kind: SlotKind) -> None:
    if kind is SlotKind.CARD:
        return
    parts = shown(text * times, partial=partial, uncertain=uncertain, kind=kind)
    check(parts)
    assert len(parts) <= (1 if partial else TEXT_PARTS)
    again = shown(text * times, partial=partial, uncertain=uncertain, kind=kind)
    assert [part.digest for part in parts] == [part.digest for part in again]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.text(st.characters(exclude_categories=()), max_size=40), st.integers(1, 900)), max_size=8),
    st.sampled_from(WaitState),
    st.text(max_size=2000),
)
def test_any_card_can_be_sent_and_keeps_its_messages(
    commands: list[tuple[str, int]], state: WaitState, reason: str
) -> None:
    opened = card(*(row(text * times, n=n) for n, (text, times) in enumerate(commands, 1)))
    decided = card(*(row(text * times, state, n=n, reason=reason) for n, (text, times) in enumerate(commands, 1)))
    check(opened)
    check(decided)
    assert [type(part) for part in opened] == [type(part) for part in decided]
    assert [part.digest for part in files(opened)] == [part.digest for part in files(decided)]
    for one, other in zip(texts(opened), texts(decided), strict=True):
        assert code(one) == code(other)


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "  \n", "\u200b", "\u2060", "\x00\x01"])
@pytest.mark.parametrize("partial", [True, False])
@pytest.mark.parametrize("kind", [SlotKind.ANSWER, SlotKind.STATUS])
def test_nothing_to_see_is_no_message(text: str, partial: bool, kind: SlotKind) -> None:
    assert shown(text, uncertain=True, partial=partial, kind=kind) == []


@pytest.mark.parametrize("kind", [SlotKind.ANSWER, SlotKind.REPLY, SlotKind.NOTE, SlotKind.COPY, SlotKind.REFUSAL])
def test_every_kind_of_words_is_markdown(kind: SlotKind) -> None:
    (part,) = texts(shown("**hi** & bye", kind=kind))
    assert part.payload() == {"blocks": [{"type": "markdown", "text": "**hi** & bye"}], "text": "hi &amp; bye"}


@pytest.mark.parametrize("text", ["▸ shell: `a` **b** <b>_d_</b> <@U0BB>", "# 1 call", "> x", ":smile:", "```"])
def test_a_status_line_is_shown_as_it_is(text: str) -> None:
    (part,) = texts(shown(text, kind=SlotKind.STATUS))
    element = {"type": "plain_text", "text": text, "emoji": False}
    assert part.blocks == ({"type": "context", "elements": [element]},)


@pytest.mark.parametrize("text", ["x" * 10_000, "two\nlines\r\n" * 2_000, "\ud800\x00a" * 5_000, "😀" * 5_000])
def test_a_status_line_is_one_line_of_one_message_whatever_comes(text: str) -> None:
    (part,) = texts(shown(text, kind=SlotKind.STATUS, partial=True))
    line = part.blocks[0]["elements"][0]["text"]
    assert 0 < len(line) <= STATUS_CHARS
    assert "\n" not in line


def test_text_of_two_messages_is_cut_or_a_file() -> None:
    fits = "word " * (2 * ROOM // 5 - 10)
    assert [type(part) for part in shown(fits)] == [SlackTextPart, SlackTextPart]
    text = "word " * (2 * ROOM // 5 + 10)
    head, file = shown(text)
    assert isinstance(head, SlackTextPart)
    assert isinstance(file, FilePart)
    assert head.blocks[-1]["text"] == IN_FILE
    assert (file.name, file.data) == ("answer.md", text.encode())


def test_code_that_is_cut_is_closed_and_opened_again() -> None:
    one, two = texts(GOLDENS["answer-two-messages"])
    for part in (one, two):
        assert part.blocks[0]["text"].count("```") == 2
    assert two.blocks[0]["text"].endswith("That was it.")


def test_long_output_is_a_file_with_its_exit_status_in_the_text() -> None:
    head, file = shown(f"```\n{OUTPUT}\n```\nexit 3 · 0.2 s")
    assert isinstance(head, SlackTextPart)
    assert isinstance(file, FilePart)
    assert (file.name, file.data) == ("output.txt", OUTPUT.encode())
    assert head.blocks[-1]["text"] == f"{IN_FILE}\n\nexit 3 · 0.2 s"
    assert head.blocks[0]["text"].count("```") == 2


def test_a_file_is_never_larger_than_we_send() -> None:
    _, file = shown("ä" * (UPLOAD_BYTES // 2 + 10))
    assert isinstance(file, FilePart)
    assert UPLOAD_BYTES - 2 <= len(file.data) <= UPLOAD_BYTES
    assert file.data[-100:].decode(errors="ignore").rstrip().endswith("too large for Slack")


def test_a_text_of_very_many_lines_goes_as_a_file() -> None:
    fits = "\n".join("xyz" for _ in range(LINES))
    assert [type(part) for part in shown(fits)] == [SlackTextPart]
    assert [type(part) for part in shown(f"{fits}\nxyz")] == [SlackTextPart, FilePart]


def test_only_the_message_in_doubt_is_marked() -> None:
    text = "word " * (2 * ROOM // 5 - 10)
    plain, marked = texts(shown(text)), texts(shown(text, uncertain=True, there=("1795248720.000100",)))
    assert plain[0] == marked[0]
    assert marked[1].blocks[1:] == plain[1].blocks
    assert marked[1].blocks[0]["elements"][0]["text"] == "(re-sent)"
    assert marked[1].payload()["text"].startswith("(re-sent) ")
    assert shown("x", uncertain=True, there=("1795248720.000100",)) == shown("x")


def test_without_blocks_the_words_are_still_there() -> None:
    (part,) = texts(shown(MARKDOWN))
    plain = part.plain()
    assert plain["blocks"] == []
    assert "journalctl" in plain["text"]
    assert "&lt;@" in plain["text"]
    assert "<" not in plain["text"]
    one = row("echo " + "<x>" * 500)
    (part,) = texts(card(one))
    assert one.wait.approval is not None
    assert one.wait.approval.rendered.replace("<", "&lt;").replace(">", "&gt;") in part.plain()["text"]
    assert "Deny" not in part.plain()["text"]
    assert part.plain()["text"].endswith("Decide on the web page.)")


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("Looking at **the fi", "Looking at **the fi**"),
        ("so `ls -", "so `ls -`"),
        ("a [link](https://exa", "a link"),
        ("done.\n\n## ", "done."),
        ("```py\nx = [", "```py\nx = [\n```"),
        ("a **b", "a **b**"),
        ("plain", "plain"),
    ],
)
def test_partial_answer_is_one_message(text: str, seen: str) -> None:
    (part,) = texts(shown(text, partial=True))
    assert part.blocks[0]["text"].rstrip() == seen
    assert part.blocks[1]["elements"][0]["text"] == "…"


def test_a_long_beginning_stays_as_it_is_while_more_is_written() -> None:
    found = {shown("word " * count, partial=True)[0].digest for count in (2_100, 3_000, 20_000)}
    assert len(found) == 1


WORST = {
    "list": "- **a** `b`\n",
    "paragraphs": "a\n\n",
    "quote": "> **q** `c` *i*\n",
    "nested quotes": "> " * 200,
    "one paragraph": "**b** `c` ",
    "table": "| a | b |\n|---|---|\n" + "| **x** | `y` |\n" * 500,
    "links": "[a](b) " * 80 + "\n\n",
    "empty cells": "|".join("a" * 80) + "\n" + "|".join("-" * 80) + "\n" + "a\n" * 200 + "\n",
    "small tables": "a|b\n-|-\na\na\n\n",
    "lazy quotes": "a\n>-\n",
    "fences": "```\nx\n```\n",
    "fence in list": "- ```\n  x\n  ```\n",
    "names": "<@U0BB> &lt;!channel",
    "brackets": "[",
}
ORDINARY = "A paragraph with **bold** and `code` in it, and a [link](https://example.org/a).\n\n" * 36


def cpu_s(text: str) -> float:
    """Seconds of CPU that a text takes."""
    began = time.thread_time()
    shown(text)
    return time.thread_time() - began


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", WORST)
@pytest.mark.parametrize("length", [8_000, 19_000, 60_000])
def test_no_text_holds_the_loop_up(name: str, length: int) -> None:
    # Beside an ordinary text of 3 kB, so that a slow machine or a tracer counts for both: each at its best of five
    # times, one after the other.
    text = (WORST[name] * length)[:length]
    took = [(cpu_s(text), cpu_s(ORDINARY)) for _ in range(5)]
    assert min(one for one, _ in took) < 25 * min(ordinary for _, ordinary in took)


# --- cards ----------------------------------------------------------------------------------------


def test_a_card_shows_the_whole_action_as_it_was_rendered() -> None:
    one = row("echo **not bold** [x](http://a.example) <@U0BB>\nrm \u202e x " + " " * 12)
    (part,) = texts(card(one))
    assert one.wait.approval is not None
    assert code(part) == [one.wait.approval.rendered]
    words = json.dumps(part.blocks, ensure_ascii=False)
    assert "Unusual characters" in words
    for label, value in one.facts:
        assert value in words or label == "Risk"


def test_a_card_shows_each_part_of_a_command() -> None:
    (part,) = texts(card(row("ls > x; sudo *y*", parts=("ls · reads only", "> x · writes", "sudo *y* · other rights"))))
    (lines,) = [block for block in part.blocks if "reads only" in json.dumps(block)]
    assert lines["elements"][0]["text"] == "• ls · reads only\n• > x · writes\n• sudo *y* · other rights"
    assert lines["elements"][0]["type"] == "plain_text"


def test_the_expiry_stands_once_below_a_card() -> None:
    (part,) = texts(card(row(), row("date", n=2)))
    assert json.dumps(part.blocks).count("Answer by") == 1
    assert "Answer by" in json.dumps(part.blocks[-1])


def test_buttons_carry_their_handles_in_order_below_their_row() -> None:
    one = row()
    (part,) = texts(card(replace(one, buttons=one.buttons[::-1])))
    assert [button["action_id"] for button in buttons(part)] == ["once:1", "deny:1", "deny_reason:1"]
    assert {button["value"] for button in buttons(part)} == {str(button.handle) for button in one.buttons}
    assert [verb_of(button["action_id"]) for button in buttons(part)] == [Verb.ONCE, Verb.DENY, Verb.DENY_REASON]
    (part,) = texts(card(*THREE))
    assert [name for name in kinds(part) if name in ("header", "actions", "section")] == [
        "header", "section", "header", "actions", "header", "actions"
    ]  # fmt: skip
    assert {button["action_id"][-1] for button in buttons(part)} == {"2", "3"}


@pytest.mark.parametrize("state", sorted(set(WaitState) - {WaitState.OPEN, WaitState.ANSWERED}))
def test_a_decided_row_has_its_outcome_and_no_button(state: WaitState) -> None:
    (part,) = texts(card(row("reboot", state)))
    assert buttons(part) == []
    (outcome,) = [block["text"]["text"] for block in part.blocks if block["type"] == "section"]
    assert row("reboot", state).outcome in outcome


def test_a_long_action_is_a_file_before_the_card_which_says_so() -> None:
    fits, long = row("x" * ACTION_CHARS), row("x" * (ACTION_CHARS + 1))
    assert [type(part) for part in card(fits)] == [SlackTextPart]
    file, part = card(long)
    assert isinstance(file, FilePart)
    assert isinstance(part, SlackTextPart)
    assert file.name == "command.txt"
    assert b"x" * (ACTION_CHARS + 1) in file.data
    assert hashlib.sha256(file.data).hexdigest()[:16] in json.dumps(part.blocks)
    assert buttons(part)[0]["action_id"] == "once:1"


def test_a_diff_of_many_lines_is_attached_before_the_buttons() -> None:
    lines = [f"+ line {n}" for n in range(60)]
    assert [type(part) for part in card(row("\n".join(lines[:40])))] == [SlackTextPart]
    file, part = card(row("\n".join(lines)))
    assert isinstance(file, FilePart)
    assert isinstance(part, SlackTextPart)
    assert b"+ line 59" in file.data
    shown = json.dumps(part.blocks)
    assert (shown.count("+ line"), "first 40 of 60 lines" in shown) == (40, True)
    assert buttons(part)[0]["action_id"] == "once:1"


def test_row_too_long_to_show_cannot_be_allowed() -> None:
    one = row("x" * (ACTION_BYTES + 1))
    part = texts(card(one))[-1]
    assert [button["action_id"] for button in buttons(part)] == ["deny:1", "deny_reason:1"]
    assert "cannot be shown whole" in json.dumps(part.blocks)


def test_eight_long_rows_fill_few_messages() -> None:
    parts = card(*(row(f"{n} " + "x" * 5000, n=n) for n in range(1, 9)))
    assert len(texts(parts)) <= 3
    assert len(buttons(texts(parts)[0]) + buttons(texts(parts)[-1])) >= 6
    check(parts)


# --- the form -------------------------------------------------------------------------------------


def test_the_form_comes_back_as_the_press_that_it_began_with() -> None:
    press = Press(event_key="k", conversation=THREAD, principal=ANN_SLACK, handle=Handle("a1:" + "x" * 200))
    view = reason_form(press, title="shell wants to run: reboot <@U0BB>")
    assert len(view["title"]["text"]) <= MODAL_TITLE_CHARS
    assert len(view["private_metadata"]) <= METADATA_CHARS
    for block in view["blocks"]:
        validate(block)
    sent = {**view, "id": "V1", "state": {"values": {"reason": {"reason": {"value": "no"}}}}}
    user = {"id": "U0BB", "team_id": "T0AA"}
    payload = {"type": "view_submission", "team": {"id": "T0AA"}, "user": user, "view": sent}
    found = read(payload, Identity(account="main", team="T0AA", user="U0ME"), EPOCH)
    assert isinstance(found, SlackPress)
    again = found.press
    assert (again.conversation, again.principal, again.handle, again.reason) == (
        THREAD, ANN_SLACK, press.handle, "no"
    )  # fmt: skip


@given(st.text(max_size=200))
def test_no_metadata_makes_the_form_fail(text: str) -> None:
    try:
        found = FormPlace.parse(text)
    except ValueError:
        return
    assert FormPlace.parse(found.text()) == found
