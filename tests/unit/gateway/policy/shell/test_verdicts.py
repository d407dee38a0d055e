"""Lines about the parts of a script, for cards."""

from __future__ import annotations

import re

import pytest

from gateway.approvals import part_lines
from gateway.domain.tools import CallScope, Risk
from gateway.policy.shell import WorkingFolder, parse, part_verdicts
from gateway.policy.shell.characters import why_unclear


@pytest.mark.parametrize(
    ("script", "verdicts"),
    [
        ("git status", [("git status", "reads only")]),
        ("rm x", [("rm x", "runs")]),
        ("ls > out", [("ls", "reads only"), ("> out", "writes")]),
        ("ls ../a > ../out", [("ls ../a", "reads only"), ("> ../out", "writes")]),
        ("ls > ../../out", [("ls", "reads only"), ("> ../../out", "writes outside the workspace")]),
        ("cat < ../a", [("cat", "reads only"), ("< ../a", "reads")]),
        ("ls > /w/out", [("ls", "reads only"), ("> /w/out", "writes")]),
        ("cat < a", [("cat", "reads only"), ("< a", "reads")]),
        ("cat < .env", [("cat", "reads only"), ("< .env", "reads what it may not read unasked")]),
        ("X=1", [("X=1", "sets a variable")]),
        ("PATH=x ls", [("PATH=x", "changes how programs run"), ("PATH=x ls", "reads only")]),
        ("f() { ls; }", [("f() { ls; }", "defines a function"), ("ls", "reads only")]),
        ("echo $X", [("echo $X", "cannot be known before it runs")]),
        ("$X a", [("$X a", "the program is known only when it runs")]),
        ("sudo ls", [("sudo ls", "it runs a command with other rights")]),
        ("ls 'x", [("", "It is not a script that can be read without doubt."), ("ls", "runs")]),
        ("ls \\\n  -la", [("ls \\ -la", "reads only")]),
        (f"cat {'x' * 76}", [(f"cat {'x' * 76}", "reads only")]),
        (f"cat {'x' * 100}", [(f"cat {'x' * 75}…", "reads only")]),
    ],
)
def test_each_part_has_its_verdict(script: str, verdicts: list[tuple[str, str]]) -> None:
    assert list(part_verdicts(parse(script), WorkingFolder(workspace="/w", folder="src"))) == verdicts


def test_no_more_than_eight_lines() -> None:
    assert part_verdicts(parse("ls;" * 8)) == (("ls", "reads only"),) * 8
    found = part_verdicts(parse("ls;" * 20))
    assert (len(found), found[-1]) == (8, ("", "and 13 more"))


@pytest.mark.parametrize(
    ("script", "lines"),
    [
        ("rm x", ()),
        ("ls", ("ls · reads only",)),
        ("ls; rm x", ("ls · reads only", "rm x · runs")),
        (
            "ls \u202e",
            ("It contains hidden or reordering characters, which can hide what a person reads.", "ls \\u{202E} · runs"),
        ),
        ("echo 'é' > x", ("echo '\\u{E9}' · reads only", "> x · writes")),
    ],
)
def test_lines_of_a_card_are_escaped(script: str, lines: tuple[str, ...]) -> None:
    scope = CallScope(risk=Risk.EXECUTE, subjects=(f"command:{script}", "path:a"))
    assert part_lines(scope) == lines


def test_a_call_without_a_command_has_no_lines() -> None:
    assert part_lines(CallScope(risk=Risk.WRITE, subjects=("path:a",))) == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("plain text\n\t", ""),
        ("größe 日本語 привет", ""),
        ("a\x00", "control"),
        ("a\x7f", "control"),
        ("a\x0b", "control"),
        ("a\u200b", "hidden"),
        ("a\u00a0b", "hidden"),
        ("a\u2028b", "hidden"),
        ("a\u3164b", "hidden"),
        ("a\ud800", "hidden"),
        ("\uff41", "look like"),
        ("a \u2013 b", "look like"),
        ("\u201ca\u201d", "look like"),
        ("\u2215", "look like"),
        ("\u201c", "look like"),
        ("\u201d", "look like"),
        ("\uff71", ""),
        ("p\u0430ss", "mixes"),
        ("\u03bfs", "mixes"),
        ("a/\u0430\u0431", ""),
        ("x=\u0430\u0431", ""),
    ],
)
def test_characters_that_mislead_are_named(text: str, why: str) -> None:
    assert why in why_unclear(text)
    assert (why_unclear(text) == "") is (why == "")
    assert re.fullmatch(r"(It .*reads\.)?", why_unclear(text))
