"""Lines of a card about the parts of a shell command."""

from __future__ import annotations

import pytest

from gateway.approvals.action import part_lines
from gateway.domain.tools import CallScope, Risk


@pytest.mark.parametrize(
    ("subjects", "lines"),
    [
        ((), ()),
        (("path:a.md",), ()),
        (("command:make",), ()),
        (("command:ls",), ("ls · reads only",)),
        (("command:make; ls",), ("make · runs", "ls · reads only")),
        (("command:make > out",), ("make · runs", "> out · writes")),
        (("command:make", "path:a.md", "command:ls"), ("make · runs", "ls · reads only")),
        (("command:cat ../a",), ()),
        (("command:cat /w/ann/a > /w/b",), ("cat /w/ann/a · reads only", "> /w/b · writes outside the workspace")),
        (
            ("command:make \u202e; ls",),
            (
                "It contains hidden or reordering characters, which can hide what a person reads.",
                "make \\u{202E} · runs",
                "ls · runs",
            ),
        ),
        (("command:; ls '",), ("It is not a script that can be read without doubt.", "ls · runs")),
        (
            ("command:" + "; ".join(f"make {n}" for n in range(9)),),
            (*(f"make {n} · runs" for n in range(7)), "and 2 more"),
        ),
        (
            ("command:ls; make", *(f"command:make {n}" for n in range(8))),
            ("ls · reads only", "make · runs", *(f"make {n} · runs" for n in range(6))),
        ),
    ],
)
def test_each_part_has_a_line_with_its_verdict(subjects: tuple[str, ...], lines: tuple[str, ...]) -> None:
    assert part_lines(CallScope(risk=Risk.EXECUTE, subjects=subjects, workspace="/w/ann")) == lines
