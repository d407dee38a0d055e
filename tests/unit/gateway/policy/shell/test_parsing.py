"""Parts of a script: commands, redirects, assignments and functions, wherever they stand."""

from __future__ import annotations

import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.shell import PartKind, Script, parse, part_verdicts, read_only, rule_for_always
from gateway.policy.shell.loose import CHARS_AT_MOST, READINGS_AT_MOST, loose_readings
from gateway.policy.shell.parsing import (
    BYTES_AT_MOST,
    DEPTH_AT_MOST,
    FOLDERS_AT_MOST,
    NESTED_AT_MOST,
    PARTS_AT_MOST,
    TOO_MUCH,
    WORDS_AT_MOST,
)

COMMAND, READ, WRITE = PartKind.COMMAND, PartKind.READ, PartKind.WRITE
ASSIGNMENT, FUNCTION = PartKind.ASSIGNMENT, PartKind.FUNCTION


def parts(script: str) -> list[tuple[PartKind, tuple[str, ...]]]:
    return [(part.kind, part.words) for part in parse(script).parts]


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        ("ls", ["ls"]),
        ("ls -la 'a b'", ["ls -la a b"]),
        ("a; b\nc & d && e || f | g |& h", ["a", "b", "c", "d", "e", "f", "g", "h"]),
        ("(a; { b; })", ["a", "b"]),
        ("! a", ["a"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("while a; do b; done; until c; do d; done", ["a", "b", "c", "d"]),
        ("for x in 1 2; do a; done", ["a"]),
        ("case x in y) a;; z|w) b;; esac", ["a", "b"]),
        ("f() { a; }", ["a"]),
        ("function f { a; }", ["a"]),
        ('a "$(b)" `c` <(d) >(e)', ["b", "c", "d", "e", "a $(b) `c` <(d) >(e)"]),
        ("a ${x:-$(b)} $((1 + $(c)))", ["b", "c", "a ${x:-$(b)} $((1 + $(c)))"]),
        ("x=$(a) y=`b`", ["a", "b"]),
        ("x=(1 $(a))", ["a"]),
        ("a <<E\n$(b)\nE\nc", ["b", "a", "c"]),
        ("a <<< $(b)", ["b", "a"]),
        ("a > $(b)", ["a", "b"]),
        ("[ -f $(a) ] && [[ x == y ]]", ["a", "[ -f $(a) ]", "[[ x == y ]]"]),
        ("export X=$(a)", ["a", "export X=$(a)"]),
        ("unset x", ["unset x"]),
        ("a ''", ["a ''"]),
        ("'' a", ["'' a"]),
        ("[ \ud800 ]", ["[ \ud800 ]"]),
        ("a <<E | b\nx\nE\nc", ["b", "a", "c"]),
    ],
)
def test_commands_are_found_wherever_they_stand(script: str, commands: list[str]) -> None:
    found = [" ".join(part.words) for part in parse(script).parts if part.kind is COMMAND]
    assert sorted(found) == sorted(commands)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("> x", [(WRITE, ("x",))]),
        ("a < x", [(COMMAND, ("a",)), (READ, ("x",))]),
        ("a >> 'x y'", [(COMMAND, ("a",)), (WRITE, ("x y",))]),
        ("a &> x", [(COMMAND, ("a",)), (WRITE, ("x",))]),
        ("a >| x", [(COMMAND, ("a",)), (WRITE, ("x",))]),
        ("a >& x", [(COMMAND, ("a",)), (WRITE, ("x",))]),
        ("a 2> x 1> y", [(COMMAND, ("a",)), (WRITE, ("x",)), (WRITE, ("y",))]),
        ("> x a", [(COMMAND, ("a",)), (WRITE, ("x",))]),
        ("a > /dev/null 2>&1 2>&- <&3 >/dev/stderr 2>&1-", [(COMMAND, ("a",))]),
        ("{ a; } > x", [(COMMAND, ("a",)), (WRITE, ("x",))]),
        ("X=1", [(ASSIGNMENT, ("X", "1"))]),
        ("X='a b' a", [(ASSIGNMENT, ("X", "a b")), (COMMAND, ("a",))]),
        ("X+=1", [(ASSIGNMENT, ("X+", "1"))]),
        ("X=a=b", [(ASSIGNMENT, ("X", "a=b"))]),
        ("((x))", [(COMMAND, ("((",))]),
        ("a <<< $X", [(COMMAND, ("a",)), (READ, ("",))]),
        ("a >& - <& x", [(COMMAND, ("a",)), (READ, ("x",))]),
        ("for x in a; do b; done", [(ASSIGNMENT, ("x", "")), (COMMAND, ("b",))]),
        ("f() { a; }", [(FUNCTION, ()), (COMMAND, ("a",))]),
        ("a <<< b", [(COMMAND, ("a",))]),
        ("# a", []),
    ],
)
def test_redirects_assignments_and_functions_are_parts(script: str, expected: object) -> None:
    assert parts(script) == expected
    assert all(part.text in part.forms for part in parse(script).parts)


@pytest.mark.parametrize(
    "script",
    [
        "a <<E\nb\nE",
        "a 2>&1 3>&2-",
        "for x in a; do b; done",
        "X=1 a",
        "a;" * PARTS_AT_MOST,
        "ls " + "x " * (WORDS_AT_MOST - 1),
        "ls " + "x" * (BYTES_AT_MOST - 3),
        "( " * (DEPTH_AT_MOST - 3) + "a" + " )" * (DEPTH_AT_MOST - 3),
    ],
)
def test_known_script_has_no_reason_to_ask(script: str) -> None:
    found = parse(script)
    assert (found.why_ask, found.loose) == ("", ())


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("cat < x", ("< x",)),
        ("cat <x", ("< x", "<x")),
        ("cat >>x", ("> x", ">>x")),
    ],
)
def test_redirects_have_one_form_for_rules(script: str, expected: tuple[str, ...]) -> None:
    assert parse(script).parts[1].forms == expected


@pytest.mark.parametrize(("levels", "is_read"), [(NESTED_AT_MOST, True), (NESTED_AT_MOST + 1, False)])
def test_scripts_inside_scripts_are_read_to_a_limit(levels: int, is_read: bool) -> None:
    script = "rm"
    for _ in range(levels):
        script = f"bash -c {shlex.quote(script)}"
    found = parse(script)
    assert (found.parts[-1].words == ("rm",)) is is_read
    assert (found.loose == ()) is is_read


@pytest.mark.parametrize("script", ['bash -c "a \'b"', "a $'b' 'c", 'a $"b"', "a > x y"])
def test_partly_read_script_is_compared_loosely(script: str) -> None:
    assert parse(script).loose


def test_a_script_with_too_many_signs_is_compared_loosely() -> None:
    script = "rm x|" * 1500
    found = parse(script)
    assert (found.text, found.parts, found.why_ask) == (script, (), TOO_MUCH)
    assert {script, "rm x", "x"} == {*(found.loose or ())}


@pytest.mark.parametrize(
    ("script", "readings"),
    [
        ("a 'b'/c; d\\\ne", ("a b/c", "b/c", "c", "de")),
        ("b/x/c d", ("b/x/c d", "c d", "d")),
        ("x" * (CHARS_AT_MOST // 2), ("x" * (CHARS_AT_MOST // 2),)),
        ("x" * (CHARS_AT_MOST // 2 + 1), None),
        ("a;" * (READINGS_AT_MOST - 1), ("a",) * (READINGS_AT_MOST - 1)),
        ("a;" * READINGS_AT_MOST, None),
    ],
    ids=["quotes", "paths", "characters", "more characters", "readings", "more readings"],
)
def test_loose_readings_are_runs_of_words(script: str, readings: tuple[str, ...] | None) -> None:
    assert loose_readings(script) == (None if readings is None else (script, *readings))


@pytest.mark.parametrize("depth", range(DEPTH_AT_MOST - 6, DEPTH_AT_MOST))
def test_a_test_is_read_at_any_depth(depth: int) -> None:
    found = parse("( " * depth + "[ -f x ]" + " )" * depth)
    assert [part.words[0] for part in found.parts][:1] in ([], ["["])


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("$X a", "program is known only"),
        ("a > $X", "redirect is known only"),
        ("a <<< $X", "text that is known only"),
        ("((x))", "calculates"),
        ("for ((i=0;i<1;i++)); do a; done", "calculates"),
        ("a 'b", "without doubt"),
        ("a <> x", "without doubt"),
        ("", "no command"),
        ("  \n", "no command"),
        ("# a", "no command"),
        ("a\u202eb", "hidden"),
        ("a\u200bb", "hidden"),
        ("a \x1b[1m", "control"),
        ("a\rb", "control"),
        ("a \uff0dl", "look like others"),
        ("\u0430b", "mixes alphabets"),
        ("\u0430\u0431", "not plain text"),
        ("x" * (BYTES_AT_MOST + 1), "too long"),
        ("a;" * (PARTS_AT_MOST + 1), "too many parts"),
        ("ls " + "x " * WORDS_AT_MOST, "too many parts"),
        ("nice " * 10 + "a", "too many wrappers"),
        ('a $"b"', "too many parts"),
        ("a > x y", "too many parts"),
        ("( " * 300 + "a" + " )" * 300, "too many"),
        ("a $(" * 300 + "a" + ")" * 300, "too many"),
        ("a " * 300, "too long to be compared"),
        ("a\\\nb c", "two ways"),
        ('eval \'eval "eval \\"eval \\\\\\"eval eval eval x\\\\\\"\\""\'', "runs its arguments"),
    ],
)
def test_unknown_script_has_a_reason_to_ask(script: str, why: str) -> None:
    found = parse(script)
    assert why in found.why_ask
    assert re.fullmatch(r"(It|The|Its) .*[a-z]\.", found.why_ask)
    assert not read_only(found)
    assert rule_for_always(found) is None


@pytest.mark.parametrize(
    ("script", "folders"),
    [
        ("a", ("",)),
        ("cd x && a", ("", "x")),
        ("cd x; cd y; a", ("", "x", "y", "x/y")),
        ("cd /tmp; a", ("", "/tmp")),
        ("(cd x); a", ("",)),
        ("b $(cd x); a", ("",)),
        ("cd $X; a", None),
        ("cd -; a", None),
        ("cd; a", None),
        ("cd ~; a", None),
        ("pushd x; a", None),
        ("popd; a", None),
        ("f() { a; }", None),
        ("f() { b; }; a", ("",)),
        ("cd x; cd y; cd z; a", ("", "x", "y", "x/y", "z", "x/z", "y/z", "x/y/z")),
        ("".join(f"cd {n};" for n in range(FOLDERS_AT_MOST)) + "a", None),
    ],
)
def test_folder_of_a_command_follows_cd(script: str, folders: object) -> None:
    (found,) = (part for part in parse(script).parts if part.words == ("a",))
    assert found.folders == folders


@given(st.text(st.sampled_from("ab \t\n'\"\\$`(){}[]<>|&;#!~*?=,.-/0é\u202e\x00\ud800"), max_size=60))
def test_any_text_is_parsed(text: str) -> None:
    found = parse(text)
    assert isinstance(found, Script)
    assert found.text == text
    if read_only(found):
        assert {part.kind for part in found.parts} <= {COMMAND, READ, ASSIGNMENT}
    assert rule_for_always(found) in (None, (text.strip(),))
    part_verdicts(found)
