"""Parts of a script: commands, redirects, assignments and functions, wherever they stand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.shell import PartKind, Script, parse, part_verdicts, read_only, rule_for_always
from gateway.policy.shell.parsing import BYTES_AT_MOST, FOLDERS_AT_MOST, PARTS_AT_MOST

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
        ("for x in a; do b; done", [(ASSIGNMENT, ("x", "")), (COMMAND, ("b",))]),
        ("f() { a; }", [(FUNCTION, ()), (COMMAND, ("a",))]),
        ("a <<< b", [(COMMAND, ("a",))]),
        ("# a", []),
    ],
)
def test_redirects_assignments_and_functions_are_parts(script: str, expected: object) -> None:
    assert parts(script) == expected


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
        ("a;" * (PARTS_AT_MOST + 2), "too many parts"),
        ("( " * 300 + "a" + " )" * 300, "too many"),
        ("a $(" * 300 + "a" + ")" * 300, "too many"),
        ("a " * 300, "too long to be compared"),
        ("a\\\nb c", "two ways"),
        ('eval \'eval "eval \\"eval \\\\\\"eval eval eval x\\\\\\"\\""\'', "runs its arguments"),
    ],
)
def test_what_cannot_be_known_has_a_reason(script: str, why: str) -> None:
    found = parse(script)
    assert why in found.why_ask
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
        ("f() { a; }", None),
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
