"""Patches: golden vectors of the envelope, and refusals that name line and cure."""

from __future__ import annotations

import time

import pytest

from agent_tools._files.patches import Hunk, parse_patch, patched
from gateway.errors import BadRequest


def envelope(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def test_patch_of_every_kind_is_read() -> None:
    found = parse_patch(
        envelope(
            "*** Add File: new.txt", "+one", "+two", "*** Delete File: old.txt", "*** Update File: a.py",
            "*** Move to: b.py", "@@ def first():", " a", "-b", "+c", "*** End of File",
        )
    )  # fmt: skip
    assert [(one.path, one.content, one.remove, one.move_to) for one in found] == [
        ("new.txt", "one\ntwo\n", False, ""),
        ("old.txt", None, True, ""),
        ("a.py", None, False, "b.py"),
    ]
    (hunk,) = found[2].hunks
    assert (hunk.heading, hunk.old, hunk.new, hunk.at_end) == ("def first():", ("a", "b"), ("a", "c"), True)


@pytest.mark.parametrize("wrapped", ["<<'EOF'\n{}\nEOF", "cat <<EOF\n{}\nEOF", "\n{}\n"])
def test_patch_is_read_in_a_here_document(wrapped: str) -> None:
    assert len(parse_patch(wrapped.format(envelope("*** Delete File: a")))) == 1


TEXT = "def first():\n    a = 1\n    return a\n\ndef second():\n    a = 1\n    return “a”  \n"
UPDATES = [
    (("-    return a", "+    return b"), TEXT.replace("return a\n", "return b\n", 1)),
    (("@@ def second():", "-    a = 1", "+    a = 2"), TEXT.replace("a = 1\n    return “", "a = 2\n    return “")),
    (('-    return "a"', "+    return 'b'"), TEXT.replace("    return “a”  ", "    return 'b'")),
    (("-def first():", "-    a = 1", "+def one():"), TEXT.replace("def first():\n    a = 1\n", "def one():\n", 1)),
    ((" def second():", "+    pass"), TEXT.replace("def second():\n", "def second():\n    pass\n")),
    (("+last", "*** End of File"), f"{TEXT}last\n"),
    (
        ("@@ def first():", "-    a = 1", "+    a = 3", "@@ def second():", "-    a = 1", "+    a = 4"),
        TEXT.replace("a = 1", "a = 3", 1).replace("a = 1", "a = 4", 1),
    ),
]


@pytest.mark.parametrize(("lines", "after"), UPDATES)
def test_hunks_change_the_text(lines: tuple[str, ...], after: str) -> None:
    (one,) = parse_patch(envelope("*** Update File: a", *lines))
    assert patched("a", TEXT, one.hunks) == after


def test_a_file_without_a_last_line_break_keeps_that() -> None:
    (one,) = parse_patch(envelope("*** Update File: a", "-b", "+c"))
    assert patched("a", "a\nb", one.hunks) == "a\nc"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no begin or no end"),
        ("*** Begin Patch\n*** Add File: a\n+x", "no begin or no end"),
        (envelope(), "changes no file"),
        (envelope("what is this"), "Line 2 of the patch is no heading"),
        (envelope("*** Add File: "), "is no heading"),
        (envelope("*** Add File: a", "x"), "does not begin with +"),
        (envelope("*** Update File: a"), "says nothing about how"),
        (envelope("*** Update File: a", "?x"), "begins with '\\?'"),
        (envelope("*** Delete File: a", "*** Delete File: a"), "names `a` twice"),
        (envelope(*(f"*** Delete File: {n}" for n in range(51))), "changes 51 files"),
    ],
)
def test_a_malformed_patch_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadRequest, match=why) as refused:
        parse_patch(text)
    assert refused.value.cure


@pytest.mark.parametrize(
    ("lines", "why"),
    [(("-nothing", "+x"), "hunk 1: its old lines"), (("@@ def third():", "-a", "+b"), "there is no line 'def third")],
)
def test_a_hunk_that_does_not_fit_is_refused(lines: tuple[str, ...], why: str) -> None:
    (one,) = parse_patch(envelope("*** Update File: a", *lines))
    with pytest.raises(BadRequest, match=why):
        patched("a", TEXT, one.hunks)


@pytest.mark.whole("compares lines for five seconds; the same bound is tested with `find`")
def test_a_hostile_patch_is_given_up_in_time() -> None:
    began = time.process_time()
    long = Hunk(heading="", old=("x",) * 10_000 + ("y",), new=())
    many = [Hunk(heading="", old=("x",), new=("x",))] * 100_000

    for hunks in ([long], many):
        with pytest.raises(BadRequest, match="fit in too many places"):
            patched("a", "x \n" * 450_000, hunks)
    assert time.process_time() - began < 60
