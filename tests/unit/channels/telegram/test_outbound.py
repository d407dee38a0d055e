"""Rendering of slots for Telegram: messages, files, cards with buttons.

The files in `golden/` are complete renderings, compared exactly. After an intended change, rewrite them with
`DRAGOMAN_GOLDEN=write` in the environment, and read the difference before the commit.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels._shared.files import IN_FILE
from channels.telegram.formatted_text import units
from channels.telegram.limits import TEXT_PARTS, TEXT_UNITS, UPLOAD_BYTES
from channels.telegram.outbound import SOURCE_CHARS, SOURCE_LINES
from channels.telegram.parts import FilePart, Part, TelegramTextPart
from gateway.domain.messages import Conversation
from gateway.domain.slots import RenderedSlot, SlotKind
from gateway.domain.tools import Risk
from gateway.domain.waits import WaitState
from tests.support.makers import CHAT
from tests.support.proof import examples
from tests.support.shown import slot
from tests.unit.channels.telegram.showings import GROUP, RENDERER, card, files, pres, row, shown, status, texts

GOLDEN = Path(__file__).parent / "golden"
LONG = "\n".join(f"line {n} of an answer that goes on and on, with **bold** words and `code`" for n in range(400))
OUTPUT = "\n".join(f"{n:5} -rw-r--r-- 1 ann ann {n * 37:8} file-{n}.txt" for n in range(400))


# --- whole renderings -----------------------------------------------------------------------------

MARKDOWN = """\
# Disk report

The root file system is **81 % full**; *none* of it is a backup. See [the guide](https://example.org/guide).

```bash
journalctl --vacuum-size=500M
```

| folder | size |
|---|---:|
| /var/log | 12 GB |
| /home | 4 GB |

> Nothing was deleted.
"""
EXPIRED = [row("reboot", WaitState.EXPIRED)]
THREE = [
    row("uptime", WaitState.CONSUMED, n=1),
    row("rm -r build", n=2, risk=Risk.WRITE, note="There is no sandbox here: this runs on the host."),
    row("curl https://example.org", n=3, risk=Risk.NETWORK),
]
GOLDENS: dict[str, list[Part]] = {
    "answer": shown(MARKDOWN),
    "answer-long-list": shown("\n".join(f"{n}. point {n}\n    - [x] **done** {'so ' * 20}" for n in range(1, 90))),
    "answer-as-file": shown(LONG),
    "answer-output-as-file": shown(f"```\n{OUTPUT}\n```\nexit 0 · 0.2 s"),
    "answer-partial": shown("Looking at **the fi", partial=True),
    "answer-resent": shown("```sh\nls\n```\ndone", uncertain=True),
    "answer-in-group": shown("Ask @somebody, or `@nobody`. [x](javascript:alert(1))", where=GROUP),
    "answer-rtl-emoji": shown("**سلام** 👍🏽 `קוד` 👨‍👩‍👧‍👦 _🇩🇪_\n\n> שלום"),
    "card": card(row("git status && make test")),
    "card-three-rows-one-decided": card(*THREE),
    "card-escaped": card(row("echo \u202e'dm -rf'\t#  @ann **x** `y`\nnext" + " " * 20 + "; ѕudo")),
    "card-expired": card(*EXPIRED),
    "card-denied-with-reason": card(row("reboot", WaitState.DENIED, reason="not while\n@bob works")),
    "card-long": card(row("echo " + "x" * 6000)),
}


def as_json(part: Part) -> dict[str, Any]:
    if isinstance(part, TelegramTextPart):
        return {**part.payload(), "units": units(part.text), "digest": part.digest}
    assert isinstance(part, FilePart)
    sha = hashlib.sha256(part.data).hexdigest()
    return {"name": part.name, "caption": part.caption, "bytes": len(part.data), "sha256": sha, "digest": part.digest}


@pytest.mark.parametrize("name", sorted(GOLDENS))
def test_a_rendering_is_what_it_was(name: str) -> None:
    path = GOLDEN / f"{name}.json"
    found = json.dumps([as_json(part) for part in GOLDENS[name]], indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("DRAGOMAN_GOLDEN") == "write":
        path.write_text(found)
    assert found == path.read_text()


def test_every_golden_file_is_compared() -> None:
    assert sorted(path.stem for path in GOLDEN.iterdir()) == sorted(GOLDENS)


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "  \n", "\u200b", "\u2800"])
@pytest.mark.parametrize("partial", [True, False])
def test_nothing_to_see_is_no_message(text: str, partial: bool) -> None:
    assert shown(text, uncertain=True, partial=partial) == []


@pytest.mark.parametrize("text", ["```\n```", "# ", "&nbsp;", "<!-- ok -->"])
def test_text_of_markup_alone_is_shown_as_written(text: str) -> None:
    """It was said: no message at all would look as if nobody had answered. There may be more while it is written."""
    assert [part.text for part in shown(text) if isinstance(part, TelegramTextPart)] == [text.strip()]
    assert shown("```\n```", partial=True) == []


@pytest.mark.parametrize("kind", [SlotKind.ANSWER, SlotKind.REPLY, SlotKind.NOTE, SlotKind.COPY])
def test_every_kind_of_words_is_markdown(kind: SlotKind) -> None:
    (part,) = RENDERER.parts(RenderedSlot(slot=slot(CHAT, kind), text="**hi**"))
    assert part == TelegramTextPart(text="hi", entities=({"type": "bold", "offset": 0, "length": 2},))


@pytest.mark.parametrize("partial", [True, False])
@pytest.mark.parametrize(
    "text", ["▸ shell: `a` **b** [c](https://example.org) <b>_d_</b>", "# 1 call", "> x", "| a | b |", "```"]
)
def test_a_status_line_is_shown_as_it_is_and_makes_no_sound(text: str, partial: bool) -> None:
    (part,) = status(text, partial=partial)
    assert part == TelegramTextPart(text=text, silent=True)


@pytest.mark.parametrize("partial", [True, False])
@pytest.mark.parametrize("text", ["x" * 10_000, "two\nlines\r\n" * 2_000, "\ud800\x00a" * 5_000, "😀" * 5_000])
def test_a_status_line_is_one_line_of_one_message_whatever_comes(text: str, partial: bool) -> None:
    (part,) = texts(status(text, partial=partial))
    assert units(part.text) <= TEXT_UNITS
    assert "\n" not in part.text


@pytest.mark.parametrize("text", ["", " \n ", "\u200b"])
def test_a_status_line_without_words_is_no_message(text: str) -> None:
    assert status(text) == []


def test_status_line_mentions_nobody_and_is_marked_in_doubt() -> None:
    (part,) = texts(status("▸ shell: mail @bob", where=GROUP, uncertain=True))
    assert part.text == "(re-sent) ▸ shell: mail @\u2060bob"
    assert part.silent


def test_a_message_never_fetches_what_a_model_wrote() -> None:
    (part,) = texts(shown("https://evil.example/?secret=1"))
    assert part.payload() == {
        "text": "https://evil.example/?secret=1",
        "link_preview_options": {"is_disabled": True},
    }


def test_text_of_several_messages_is_cut_or_a_file() -> None:
    fits = "word " * (3 * 800)
    assert [type(part) for part in shown(fits)] == [TelegramTextPart] * 3
    text = "word " * (4 * 800)
    head, file = shown(text)
    assert isinstance(head, TelegramTextPart)
    assert isinstance(file, FilePart)
    assert head.text.endswith(IN_FILE)
    assert 3000 < units(head.text) <= TEXT_UNITS
    assert (file.name, file.data) == ("answer.md", text.encode())


@pytest.mark.parametrize("paragraphs", [3, 60, 300])
def test_links_defined_at_the_end_are_links_in_every_part(paragraphs: int) -> None:
    """Of one message, of several, and in the beginning of a text that goes as a file."""
    text = "\n\n".join(
        f"{n}. See [the guide][g] about this part of a long answer, {'word ' * 20}" for n in range(paragraphs)
    )
    made = shown(f"{text}\n\n[g]: https://example.org/guide")
    messages = [one for one in made if isinstance(one, TelegramTextPart)]

    assert len(messages) == {3: 1, 60: 3, 300: 1}[paragraphs]
    assert all("[" not in one.text for one in messages)
    urls = [entity["url"] for one in messages for entity in one.entities if entity["type"] == "text_link"]
    assert set(urls) == {"https://example.org/guide"}
    assert len(urls) == sum(one.text.count("the guide") for one in messages)


def test_long_output_is_a_file_with_its_exit_status_in_the_text() -> None:
    head, file = shown(f"```\n{OUTPUT}\n```\nexit 3 · 0.2 s")
    assert isinstance(head, TelegramTextPart)
    assert isinstance(file, FilePart)
    assert (file.name, file.data) == ("output.txt", OUTPUT.encode())
    assert head.text.endswith(f"{IN_FILE}\nexit 3 · 0.2 s")
    (code,) = pres(head)
    assert OUTPUT.startswith(code)
    assert code.endswith(".txt")


def test_a_file_is_never_larger_than_telegram_takes() -> None:
    _, file = shown("ä" * (UPLOAD_BYTES // 2 + 10))
    assert isinstance(file, FilePart)
    assert UPLOAD_BYTES - 2 <= len(file.data) <= UPLOAD_BYTES
    assert file.data.decode().rstrip().endswith("too large for Telegram")


def test_text_long_only_in_its_source_is_shown_in_a_file() -> None:
    head, file = shown(f"[a](https://example.org/{'x' * SOURCE_CHARS})")
    assert isinstance(head, TelegramTextPart)
    assert isinstance(file, FilePart)
    assert head.text.endswith(IN_FILE)


def test_a_text_of_very_many_lines_goes_as_a_file() -> None:
    fits = "\n".join("xyz" for _ in range(SOURCE_LINES))
    assert [type(part) for part in shown(fits)] == [TelegramTextPart]
    assert [type(part) for part in shown(f"{fits}\nxyz")] == [TelegramTextPart, FilePart]


@pytest.mark.parametrize("before", ["", "# ", "> ", "| a |\n|---|\n| "])
def test_open_format_at_a_cut_covers_the_rest(before: str) -> None:
    head, _ = shown(before + "so many words " * 1_000)
    assert isinstance(head, TelegramTextPart)
    kinds = {"# ": ["bold"], "> ": ["blockquote"], "": []}.get(before, ["pre"])
    assert [entity["type"] for entity in head.entities] == kinds
    assert all(entity["offset"] + entity["length"] > 3_900 for entity in head.entities)


@pytest.mark.parametrize("count", [100, 300, 301])
def test_more_formatting_than_three_messages_take_is_a_file(count: int) -> None:
    parts = shown("\n".join(f"**`c{n}`**" for n in range(count)))
    assert sum(len(part.entities) for part in texts(parts)) == (count if count <= 300 else 100)
    assert len(files(parts)) == (count > 300)


WORST = {
    "list": "- **a** `b`\n",
    "items": "- a\n",
    "paragraphs": "a\n\n",
    "quote": "> **q** `c` *i*\n",
    "one paragraph": "**b** `c` ",
    "table": "| a | b |\n|---|---|\n" + "| **x** | `y` |\n" * 500,
    "links": "[a](b) " * 80 + "\n\n",
    "empty cells": "|".join("a" * 80) + "\n" + "|".join("-" * 80) + "\n" + "a\n" * 200 + "\n",
    "small tables": "a|b\n-|-\na\na\n\n",
    "lazy quotes": "a\n>-\n",
}


ORDINARY = "A paragraph with **bold** and `code` in it, and a [link](https://example.org/a).\n\n" * 36


def cpu_s(text: str) -> float:
    """Seconds of CPU that a text takes."""
    began = time.thread_time()
    shown(text)
    return time.thread_time() - began


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", WORST)
@pytest.mark.parametrize("length", [8_000, SOURCE_CHARS, 60_000])
def test_no_text_holds_the_loop_up(name: str, length: int) -> None:
    # An ordinary text of 3 kB takes 4 ms; beside it, so that a slow machine or a tracer counts for both: each at its
    # best of five times, one after the other, because a machine is slower from one moment to the next. The worst
    # is 16 times an ordinary one on a quiet machine.
    text = (WORST[name] * length)[:length]
    took = [(cpu_s(text), cpu_s(ORDINARY)) for _ in range(5)]
    assert min(one for one, _ in took) < 50 * min(ordinary for _, ordinary in took)


def test_table_below_a_text_sent_as_a_file_fits() -> None:
    """It grows when it is set out in columns, and Telegram refused the message for good."""
    below = "w" * 100 + "|b\n-|-\n" + "|b\n" * 60
    first, *_ = texts(shown(f"```\n{'x' * 17_000}\n```\n{below}"))
    assert units(first.text) <= TEXT_UNITS
    assert "w" * 100 in first.text


@pytest.mark.parametrize("text", ["Looking at **the fi", "```py\nx = [", "a [link](https://exa", "| a | b |\n|---|"])
def test_partial_answer_is_one_message(text: str) -> None:
    (part,) = texts(shown(text, partial=True))
    assert part.text.endswith("…")
    assert "**" not in part.text
    assert "`" not in part.text


def test_a_long_beginning_stays_as_it_is_while_more_is_written() -> None:
    lengths = range(6_000, 20_000, 3_000)
    found = {shown("word " * (length // 5), partial=True)[0].digest for length in lengths}
    assert len(found) == 1
    (part,) = texts(shown("word " * 4000, partial=True))
    assert units(part.text) <= TEXT_UNITS


@settings(max_examples=examples(60), deadline=None)
@given(
    st.text(st.characters(exclude_categories=()), max_size=60),
    st.integers(1, 400),
    st.booleans(),
    st.booleans(),
    st.sampled_from([CHAT, GROUP]),
)
def test_any_text_can_be_sent(text: str, times: int, partial: bool, uncertain: bool, where: Conversation) -> None:
    parts = shown(text * times, partial=partial, uncertain=uncertain, where=where)
    assert all(0 < units(part.text) <= TEXT_UNITS for part in texts(parts))
    assert len(parts) <= (1 if partial else TEXT_PARTS)
    json.dumps([part.payload() for part in texts(parts)])
    assert [part.digest for part in parts] == [
        part.digest for part in shown(text * times, partial=partial, uncertain=uncertain, where=where)
    ]


def test_a_digest_tells_contents_apart() -> None:
    whole = TelegramTextPart(text="a")
    others = [
        TelegramTextPart(text="b"),
        TelegramTextPart(text="a", entities=({"type": "bold", "offset": 0, "length": 1},)),
        TelegramTextPart(text="a", buttons=(({"text": "Once", "callback_data": "h"},),)),
        FilePart(name="a", data=b"a", caption=""),
        FilePart(name="a", data=b"b", caption=""),
    ]
    assert len({part.digest for part in [whole, *others]}) == 6
    assert whole.digest == TelegramTextPart(text="a").digest
